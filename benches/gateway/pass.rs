//! The bare pass-through: Pingora as a plain reverse proxy, with nothing in it but where to go.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use pingora::prelude::{HttpPeer, Result};
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

struct Pass {
    agent: u16,
}

#[async_trait]
impl ProxyHttp for Pass {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _http: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new((Ipv4Addr::LOCALHOST, self.agent), false, String::new())))
    }
}

/// Runs for ever.
pub(crate) fn run(port: u16, agent: u16, threads: usize) {
    let conf = ServerConf { threads, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Pass { agent });
    service.add_tcp(&format!("127.0.0.1:{port}"));
    server.add_service(service);
    server.run_forever();
}
