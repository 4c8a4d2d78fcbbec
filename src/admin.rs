//! The admin listener: health, readiness, metrics, and what is known of the agents. For operators; loopback by default.
//!
//! Not here: what is counted (see `telemetry`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use pingora::services::listening::Service;
use tokio::net::TcpStream;

use crate::gateway::Bridge;

/// The application behind the admin listener.
pub struct Admin {
    bridge: Bridge,
    listeners: Vec<SocketAddr>,
    accepts: AtomicBool,
}

/// The service of the admin listener of a bridge that is served at `listeners`.
pub fn admin_service(bridge: &Bridge, address: SocketAddr, listeners: Vec<SocketAddr>) -> Service<Admin> {
    let admin = Admin { bridge: bridge.clone(), listeners, accepts: AtomicBool::new(false) };
    let mut service = Service::new("admin".to_owned(), admin);
    service.threads = Some(1);
    service.add_tcp(&address.to_string());
    service
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, http: &mut ServerSession) -> Response<Vec<u8>> {
        let request = http.req_header();
        if request.method != Method::GET {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", b"only GET\n".to_vec());
        }
        let json = "application/json";
        match request.uri.path() {
            "/healthz" => answer(StatusCode::OK, json, self.bridge.health().into_bytes()),
            "/agents" => answer(StatusCode::OK, json, self.bridge.agents().into_bytes()),
            "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4", self.bridge.metrics().render()),
            "/readyz" if self.bridge.is_ready() && self.accepts().await => {
                answer(StatusCode::OK, json, br#"{"ready":true}"#.to_vec())
            }
            "/readyz" => answer(StatusCode::SERVICE_UNAVAILABLE, json, br#"{"ready":false}"#.to_vec()),
            _ => answer(
                StatusCode::NOT_FOUND,
                "text/plain",
                b"served here: /healthz /readyz /metrics /agents\n".to_vec(),
            ),
        }
    }
}

impl Admin {
    /// Whether every listener takes connections. Services start in no order; once they run, they run.
    async fn accepts(&self) -> bool {
        const SHORTLY: Duration = Duration::from_millis(500);
        if self.accepts.load(Ordering::Acquire) {
            return true;
        }
        for address in &self.listeners {
            let connecting = tokio::time::timeout(SHORTLY, TcpStream::connect(address));
            if !matches!(connecting.await, Ok(Ok(_))) {
                return false;
            }
        }
        self.accepts.store(true, Ordering::Release);
        true
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    response
}
