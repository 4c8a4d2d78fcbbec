//! The gateway inside an existing Pingora proxy.
//!
//! The host serves its own site by forwarding requests to an upstream; it passes each request to
//! the gateway first, from its own `request_filter`, and continues when the gateway did not handle
//! the request.
//!
//! ```sh
//! cargo run --example embed -- config/minimal.yaml 127.0.0.1:8088 127.0.0.1:3000
//! ```
//!
//! The listeners of the configuration are not used: the host has its own. TLS is set up by the host
//! as always.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use async_trait::async_trait;
use mcp_a2a_gateway::config;
use mcp_a2a_gateway::gateway::{BackgroundService, Gateway, Handled};
use mcp_a2a_gateway::tls::install_provider;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::services::background::background_service;
use pingora::upstreams::peer::HttpPeer;

/// An existing proxy.
struct Host {
    gateway: Gateway,
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Host {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, http: &mut Session, (): &mut ()) -> pingora::Result<bool> {
        match self.gateway.handle(http).await {
            Handled::Served => Ok(true),
            // Nothing has been read or written: the host continues as before.
            Handled::NotHandled => Ok(false),
        }
    }

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, listen, upstream] = arguments.as_slice() else {
        eprintln!("usage: embed CONFIG LISTEN UPSTREAM");
        return ExitCode::FAILURE;
    };
    let Ok(upstream) = upstream.parse() else {
        eprintln!("UPSTREAM must be an address like 127.0.0.1:3000");
        return ExitCode::FAILURE;
    };
    match gateway(Path::new(config)) {
        Ok((gateway, service)) => serve(listen, Host { gateway, upstream }, service),
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn gateway(path: &Path) -> Result<(Gateway, BackgroundService), Box<dyn std::error::Error>> {
    install_provider();
    Ok(Gateway::new(config::load(path)?)?)
}

fn serve(listen: &str, host: Host, service: BackgroundService) -> ! {
    let mut server = Server::new_with_opt_and_conf(None, Default::default());
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, host);
    proxy.add_tcp(listen);
    server.add_service(proxy);
    // Cards, followed calls and sweeps: without this service the gateway knows no agents.
    server.add_service(background_service("gateway", service));
    server.run_forever()
}
