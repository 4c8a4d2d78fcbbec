//! The admin listener: health, readiness, metrics, and what is known of the agents. For operators; loopback by default.
//!
//! Not here: what is counted (see `telemetry`).

use std::net::SocketAddr;

use async_trait::async_trait;
use http::{Method, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use pingora::services::listening::Service;

use crate::gateway::Bridge;

/// The application behind the admin listener.
pub struct Admin {
    bridge: Bridge,
}

/// The service of the admin listener.
pub fn admin_service(bridge: &Bridge, address: SocketAddr) -> Service<Admin> {
    let mut service = Service::new("admin".to_owned(), Admin { bridge: bridge.clone() });
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
            "/readyz" if self.bridge.is_ready() => {
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

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    response
}
