//! The bare pass-through: Pingora as a plain reverse proxy, with nothing in it but the address of
//! the upstream.
//!
//! Its listener is configured as the gateway's (`src/server`), so that buffers and modules make no
//! difference. With TLS it has the same certificates and library. For gRPC it speaks HTTP/2 on both sides, with many
//! streams on a connection to the upstream, as the gateway has them.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use pingora::apps::HttpServerOptions;
use pingora::listeners::ListenerConfig;
use pingora::listeners::tls::TlsSettings;
use pingora::modules::http::HttpModules;
use pingora::prelude::{HttpPeer, Result};
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

use super::keys::client_verifier;
use super::options::{Listener, PassRole};

/// Most streams on a connection to the upstream.
const MAX_STREAMS: usize = 100;

struct Pass {
    agent: u16,
    is_grpc: bool,
}

#[async_trait]
impl ProxyHttp for Pass {
    type CTX = ();

    fn new_ctx(&self) {}

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn upstream_peer(&self, _http: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new((Ipv4Addr::LOCALHOST, self.agent), false, String::new());
        if self.is_grpc {
            peer.options.set_http_version(2, 2);
            peer.options.max_h2_streams = MAX_STREAMS;
        }
        Ok(Box::new(peer))
    }
}

/// Runs until the process ends.
pub(crate) fn run(role: &PassRole) {
    let conf = ServerConf { threads: role.threads, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let pass = Pass { agent: role.agent, is_grpc: role.is_grpc };
    let mut service = http_proxy_service(&server.configuration, pass);
    let is_http2 = role.is_grpc || role.is_http2;
    if let Some(proxy) = service.app_logic_mut().filter(|_| is_http2) {
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        proxy.server_options = Some(options);
    }
    let listener = ListenerConfig::tcp(format!("127.0.0.1:{}", role.port));
    let listener = listener.l4_buffer(L4BufferSettings::new(4 * 1024, 1460));
    service.add_listener(match tls(role) {
        Some(tls) => listener.tls(tls),
        None => listener,
    });
    server.add_service(service);
    server.run_forever();
}

fn tls(role: &PassRole) -> Option<TlsSettings> {
    if role.listener == Listener::Plain {
        return None;
    }
    let [certificate, key] = ["server.crt", "server.key"].map(|file| role.keys.join(file));
    let mut settings = TlsSettings::intermediate(certificate.to_str()?, key.to_str()?).unwrap();
    if role.is_http2 {
        settings.enable_h2();
    }
    if role.listener == Listener::Mutual {
        settings.set_client_cert_verifier(client_verifier(&role.keys));
    }
    Some(settings)
}
