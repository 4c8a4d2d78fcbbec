//! The admin listener: health, readiness, metrics, and the state of the agents. For operators;
//! loopback by default.
//!
//! One request per connection, within a deadline, so that none stays idle.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use serde_json::json;
use tokio::net::TcpStream;

use crate::gateway::Gateway;
use crate::http_edge::check_host;
use crate::telemetry::label::Refusal;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// The application behind the admin listener.
pub(crate) struct AdminApp {
    pages: Arc<AdminPages>,
    within: Duration,
}

/// The pages of the admin listener.
struct AdminPages {
    gateway: Gateway,
    hosts: Vec<String>,
    listeners: Vec<SocketAddr>,
    accepts: AtomicBool,
}

impl AdminApp {
    /// Returns the application for a gateway that is served at `listeners`. Answers requests for
    /// one of these `hosts` that are complete `within` this time.
    pub(crate) fn new(
        gateway: &Gateway,
        hosts: Vec<String>,
        listeners: Vec<SocketAddr>,
        within: Duration,
    ) -> Self {
        let pages =
            AdminPages { gateway: gateway.clone(), hosts, listeners, accepts: AtomicBool::new(false) };
        Self { pages: Arc::new(pages), within }
    }
}

#[async_trait]
impl HttpServerApp for AdminApp {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let served = self.pages.process_new_http(session, shutdown);
        tokio::time::timeout(self.within, served).await.unwrap_or_else(|_| {
            tracing::debug!("admin request timed out");
            None
        })
    }
}

#[async_trait]
impl ServeHttp for AdminPages {
    async fn response(&self, http: &mut ServerSession) -> Response<Vec<u8>> {
        http.set_keepalive(None);
        let request = http.req_header();
        let path = request.uri.path();
        // Free on every listener: load balancers use any name.
        if path != "/healthz" && check_host(request, &self.hosts).is_err() {
            self.gateway.metrics().refused(Refusal::Host);
            let remedy =
                b"this Host is not served here; the operator can list it under admin.allowed_hosts\n";
            return answer(StatusCode::FORBIDDEN, TEXT, remedy.to_vec());
        }
        if request.method != Method::GET {
            return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, b"only GET\n".to_vec());
        }
        match path {
            "/healthz" => answer(StatusCode::OK, JSON, self.gateway.health().into_bytes()),
            "/agents" => answer(StatusCode::OK, JSON, self.gateway.agents().into_bytes()),
            "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4", self.gateway.render_metrics()),
            "/readyz" if self.gateway.is_ready() && self.accepts().await => {
                answer(StatusCode::OK, JSON, ready(&self.gateway.degraded()))
            }
            "/readyz" => answer(StatusCode::SERVICE_UNAVAILABLE, JSON, br#"{"ready":false}"#.to_vec()),
            _ => answer(
                StatusCode::NOT_FOUND,
                TEXT,
                b"served here: /healthz /readyz /metrics /agents\n".to_vec(),
            ),
        }
    }
}

impl AdminPages {
    /// Returns true if every listener accepts connections. Services start in no order; once they
    /// run, they run.
    async fn accepts(&self) -> bool {
        const ACCEPT_TIMEOUT: Duration = Duration::from_millis(500);
        if self.accepts.load(Ordering::Acquire) {
            return true;
        }
        for address in &self.listeners {
            let connecting = tokio::time::timeout(ACCEPT_TIMEOUT, TcpStream::connect(address));
            if !matches!(connecting.await, Ok(Ok(_))) {
                return false;
            }
        }
        self.accepts.store(true, Ordering::Release);
        true
    }
}

/// Returns the body that reports readiness, and the parts that are degraded.
fn ready(degraded: &[&str]) -> Vec<u8> {
    let body = match degraded {
        [] => json!({ "ready": true }),
        degraded => json!({ "ready": true, "degraded": degraded }),
    };
    body.to_string().into_bytes()
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    response
}
