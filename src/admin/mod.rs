//! The admin listener: probes, metrics, the state of the gateway, changes, and a page for people.
//! For operators; loopback by default.
//!
//! A route is a row of [`ROUTES`] and an arm of [`AdminPages::act`]. A request ends before its body
//! is read if its host, its route or its credentials are refused; bodies have a bound and a
//! deadline. One request per connection of HTTP/1.1, so that none stays idle. The health listener is
//! the same application with the probes alone. Out of scope: the content of the answers, which comes
//! from `gateway`.

mod authentication;
mod changes;
mod page;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::config::{Admin, HealthListener, Limits as AllLimits, Settings};
use crate::fault::ClientGone;
use crate::gateway::{Gateway, OverviewReport, ReadyReport, Reloader, WaitedAgent};
use crate::http_edge::{ClientConnection, HttpConnection, ResponseHead, ResponseSink, check_host};
use crate::server::{HttpApp, HttpLimits, ServedRequest};
use crate::telemetry::label::Refusal;
use crate::telemetry::{log, recent};
use authentication::{AdminAuthentication, is_same_origin};
use page::{McpRelay, PageFile, RelayRequest};

/// Most bytes of a message for an agent.
const MAX_CALL_BODY_BYTES: usize = 1024 * 1024;
/// Most bytes of any other body: some are read before the client has authenticated.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Most concurrent requests of a connection of HTTP/2.
const MAX_STREAMS: u32 = 8;
/// Longest time for the rest of a refused request.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest idle time of a connection of HTTP/2.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4";

/// Need of a route for credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// None, and any host: load balancers and orchestrators use any name, and learn nothing that is
    /// worth a rebinding.
    Probe,
    /// None.
    Open,
    /// Those of an operator, if the listener can check any.
    Reader,
    /// Those of an operator. Without a way to check them the route is closed.
    Operator,
}

/// A route of the admin listener.
struct AdminRoute {
    method: Method,
    /// The path; one segment may be `{…}`, which any text fits.
    path: &'static str,
    access: Access,
    action: Action,
}

/// The work of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Health,
    Live,
    Ready,
    Started,
    Metrics,
    Agents,
    Agent,
    LogLevel,
    SetLogLevel,
    SessionState,
    SignIn,
    SignOut,
    Page(&'static PageFile),
    Overview,
    AgentPage,
    Activity,
    History,
    Audit,
    Configuration,
    /// Writes its answer itself, as a stream.
    Call,
    Reload,
    Digests,
    PutAgent,
    DeleteAgent,
}

impl Action {
    /// Returns the maximum size of the body of its requests, in bytes.
    fn max_body(self) -> usize {
        if self == Self::Call { MAX_CALL_BODY_BYTES } else { MAX_BODY_BYTES }
    }
}

/// Every route. Besides a row, a new route has an [`Action`] and its arm in [`AdminPages::act`].
const ROUTES: &[AdminRoute] = &[
    get("/healthz", Access::Probe, Action::Health),
    get("/livez", Access::Probe, Action::Live),
    get("/readyz", Access::Probe, Action::Ready),
    get("/startupz", Access::Probe, Action::Started),
    get("/metrics", Access::Reader, Action::Metrics),
    get("/agents", Access::Reader, Action::Agents),
    get("/", Access::Open, Action::Page(&page::INDEX)),
    get("/page/style.css", Access::Open, Action::Page(&page::STYLE)),
    get("/page/app.js", Access::Open, Action::Page(&page::APP)),
    get("/page/elements.js", Access::Open, Action::Page(&page::ELEMENTS)),
    get("/page/client.js", Access::Open, Action::Page(&page::CLIENT)),
    get("/page/plots.js", Access::Open, Action::Page(&page::PLOTS)),
    get("/page/caller.js", Access::Open, Action::Page(&page::CALLER)),
    get("/api/overview", Access::Operator, Action::Overview),
    get("/api/agents", Access::Operator, Action::AgentPage),
    get("/log", Access::Reader, Action::LogLevel),
    route(Method::PUT, "/log", Access::Operator, Action::SetLogLevel),
    get("/api/agents/{name}", Access::Operator, Action::Agent),
    get("/api/activity", Access::Operator, Action::Activity),
    get("/api/history", Access::Operator, Action::History),
    get("/api/audit", Access::Operator, Action::Audit),
    get("/api/config", Access::Operator, Action::Configuration),
    route(Method::POST, "/api/mcp", Access::Operator, Action::Call),
    get("/api/session", Access::Open, Action::SessionState),
    route(Method::POST, "/api/session", Access::Open, Action::SignIn),
    route(Method::DELETE, "/api/session", Access::Open, Action::SignOut),
    route(Method::POST, "/reload", Access::Operator, Action::Reload),
    get("/config", Access::Operator, Action::Digests),
    route(Method::PUT, "/agents/{name}", Access::Operator, Action::PutAgent),
    route(Method::DELETE, "/agents/{name}", Access::Operator, Action::DeleteAgent),
];

const fn get(path: &'static str, access: Access, action: Action) -> AdminRoute {
    route(Method::GET, path, access, action)
}

const fn route(method: Method, path: &'static str, access: Access, action: Action) -> AdminRoute {
    AdminRoute { method, path, access, action }
}

/// A request that was admitted.
struct AdminRequest {
    /// The text in place of `{…}` in the path.
    parameter: Option<String>,
    query: String,
    headers: HeaderMap,
    body: Bytes,
    /// Value of the session cookie.
    session: Option<String>,
    client: Option<IpAddr>,
    is_tls: bool,
    /// False if `Host` could be one of another site.
    is_own_host: bool,
}

impl AdminRequest {
    /// Returns a number in the query; 0 if it is absent.
    fn number(&self, name: &str) -> usize {
        let mut members = self.query.split('&').filter_map(|member| member.split_once('='));
        let value = members.find_map(|(key, value)| (key == name).then_some(value));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

/// An answer with a complete body.
struct AdminResponse {
    status: StatusCode,
    media_type: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl AdminResponse {
    fn new(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, media_type, headers: Vec::new(), body: body.into() }
    }

    /// Returns an answer with a value as JSON.
    fn json(status: StatusCode, value: &impl Serialize) -> Self {
        Self::new(status, JSON, serde_json::to_vec(value).unwrap_or_default())
    }
}

/// Returns an answer with the level of the log.
fn log_level() -> AdminResponse {
    AdminResponse::json(StatusCode::OK, &json!({ "level": log::filter() }))
}

/// Sets the level of the log to a filter as text; an empty one means the level that counts without
/// `log.level`.
fn set_log_level(body: &[u8]) -> Result<AdminResponse, AdminError> {
    let refused = |problem: String| AdminError::new(StatusCode::BAD_REQUEST, problem);
    let unreadable = |_| refused("the level is not UTF-8 (write for example info,access=off)".to_owned());
    let filter = str::from_utf8(body).map_err(unreadable)?.trim();
    let filter = Some(filter).filter(|filter| !filter.is_empty());
    log::set_filter(filter).map_err(|problem| refused(problem.to_string()))?;
    tracing::warn!(filter = log::filter(), "changed log level on request");
    Ok(log_level())
}

/// A refusal, told as text or as JSON: as the client accepts it.
#[derive(Debug)]
struct AdminError {
    status: StatusCode,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl AdminError {
    fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), headers: Vec::new() }
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// 429 with the time of the next attempt.
    fn rate_limited(wait: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too many failed attempts from this address")
            .with(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1))
    }

    /// 401 with the challenge.
    fn unauthenticated(message: &'static str) -> Self {
        let challenge = HeaderValue::from_static("Bearer realm=\"mcp-a2a-gateway admin\"");
        Self::new(StatusCode::UNAUTHORIZED, message).with(WWW_AUTHENTICATE, challenge)
    }

    fn into_response(self, as_json: bool) -> AdminResponse {
        let mut response = if as_json {
            AdminResponse::json(self.status, &json!({ "error": self.message }))
        } else {
            AdminResponse::new(self.status, TEXT, format!("{}\n", self.message))
        };
        response.headers = self.headers;
        response
    }
}

/// Routes that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServedRoutes {
    All,
    /// The probes, and the metrics if that is true.
    Probes {
        metrics: bool,
    },
}

impl ServedRoutes {
    fn has(self, route: &AdminRoute) -> bool {
        match self {
            Self::All => true,
            Self::Probes { metrics } => match route.action {
                Action::Live | Action::Ready | Action::Started => true,
                Action::Metrics => metrics,
                _ => false,
            },
        }
    }
}

/// Longest times of the steps of a request.
#[derive(Debug, Clone, Copy)]
struct AdminTimeouts {
    body: Duration,
    write: Duration,
}

/// The application behind the admin listener, and behind the health listener.
pub(crate) struct AdminApp {
    pages: AdminPages,
    timeouts: AdminTimeouts,
    limits: HttpLimits,
}

/// The routes of a listener.
struct AdminPages {
    gateway: Gateway,
    /// `None`: the configuration cannot be read again.
    reloader: Option<Arc<Reloader>>,
    hosts: Vec<String>,
    /// Addresses of the listeners for clients.
    listeners: Vec<SocketAddr>,
    accepts: AtomicBool,
    served: ServedRoutes,
    authentication: AdminAuthentication,
    relay: McpRelay,
    /// The configuration at the start, for the page.
    configuration: Value,
    /// The key of the digests of the configuration.
    digest_key: [u8; 16],
}

impl AdminApp {
    /// Returns the application of the admin listener of a gateway with these settings. The
    /// configuration is reloaded by `reloader`, if it can be.
    pub(crate) fn new(
        gateway: &Gateway,
        admin: &Admin,
        settings: &Settings,
        reloader: Option<Arc<Reloader>>,
    ) -> Self {
        if admin.has_authentication() {
            recent::keep_audit();
        }
        let mut app = Self::with(gateway, admin, settings, ServedRoutes::All);
        app.pages.reloader = reloader;
        app
    }

    /// Returns the application of the health listener of such a gateway.
    pub(crate) fn probes(gateway: &Gateway, health: &HealthListener, settings: &Settings) -> Self {
        let allowed_hosts = health.allowed_hosts.clone();
        let admin = Admin { allowed_hosts, ..Admin::default() };
        Self::with(gateway, &admin, settings, ServedRoutes::Probes { metrics: health.metrics })
    }

    fn with(gateway: &Gateway, admin: &Admin, settings: &Settings, served: ServedRoutes) -> Self {
        let AllLimits { body_read: body, write_stall: write, .. } = settings.limits;
        let limits = HttpLimits::new(&settings.limits, MAX_STREAMS, gateway.metrics().clone());
        let pages = AdminPages {
            gateway: gateway.clone(),
            reloader: None,
            hosts: admin.allowed_hosts.clone(),
            listeners: settings.listeners.iter().map(|listener| listener.address).collect(),
            accepts: AtomicBool::new(false),
            served,
            authentication: AdminAuthentication::new(admin),
            relay: McpRelay::new(settings),
            configuration: page::configuration(settings),
            digest_key: rand::random(),
        };
        let limits = limits.for_operators(IDLE_TIMEOUT);
        Self { pages, timeouts: AdminTimeouts { body, write }, limits }
    }

    /// Answers one request.
    async fn answer(&self, http: &mut HttpConnection<'_>) {
        http.close_after_response();
        http.set_write_stall(self.timeouts.write);
        let as_json = tells_json(http);
        let answered = match self.pages.admit(http) {
            Ok(admitted) => match read_body(http, self.timeouts.body, admitted.action.max_body()).await {
                Ok(body) if admitted.action == Action::Call => {
                    let AdminRequest { headers, client, .. } = admitted.request;
                    let call = RelayRequest { headers, body, client };
                    match self.pages.relay.serve(&self.pages.gateway, http, call).await {
                        Ok(()) => return,
                        Err(error) => Err(error),
                    }
                }
                Ok(body) => self.pages.act(admitted.action, &AdminRequest { body, ..admitted.request }).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let is_refused = answered.is_err();
        let response = answered.unwrap_or_else(|error| error.into_response(as_json));
        match write(http, response).await {
            Ok(()) if is_refused => drain(http).await,
            Ok(()) => {}
            Err(ClientGone) => debug!("admin client disconnected"),
        }
    }
}

impl HttpApp for AdminApp {
    fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    fn serve<'a>(&'a self, request: &'a mut HttpConnection<'_>) -> ServedRequest<'a> {
        Box::pin(self.answer(request))
    }
}

/// A request that may be acted upon.
struct AdmittedRequest {
    action: Action,
    request: AdminRequest,
}

impl AdminPages {
    /// Finds the route of a request, and checks that its client may use it.
    ///
    /// # Errors
    ///
    /// The refusal.
    fn admit(&self, http: &HttpConnection<'_>) -> Result<AdmittedRequest, AdminError> {
        let head = http.head();
        let found = self.find(&head.method, head.uri.path());
        let is_probe = found.as_ref().is_ok_and(|(route, _)| self.is_free_of_hosts(route));
        let is_own_host = check_host(head, &self.hosts).is_ok();
        if !is_probe && !is_own_host {
            self.gateway.metrics().refused(Refusal::Host);
            let remedy = "this Host is not served here; the operator can list it under admin.allowed_hosts";
            return Err(AdminError::new(StatusCode::FORBIDDEN, remedy));
        }
        let (route, parameter) = found?;
        let changes = head.method != Method::GET && head.method != Method::HEAD;
        let is_tls = http.is_tls();
        if changes && !is_same_origin(head, is_tls) {
            self.gateway.metrics().refused(Refusal::Origin);
            return Err(AdminError::new(
                StatusCode::FORBIDDEN,
                "the request comes from a page of another origin",
            ));
        }
        let client = http.client_network();
        let session = authentication::session_cookie(&head.headers).map(str::to_owned);
        let proven = match route.access {
            Access::Probe | Access::Open => None,
            Access::Reader if !self.authentication.is_configured() => None,
            Access::Reader | Access::Operator => {
                let proven = self.authentication.verify(&head.headers, http.tls(), client, changes);
                Some(proven.inspect_err(|_| self.gateway.metrics().refused(Refusal::Unauthenticated))?)
            }
        };
        if let (true, Some(by)) = (changes, proven) {
            info!(method = %head.method, path = route.path, by = by.label(), ?client, "admin request");
        }
        let body = Bytes::new();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let headers = if route.action == Action::Call { head.headers.clone() } else { HeaderMap::new() };
        let request = AdminRequest { parameter, query, headers, body, session, client, is_tls, is_own_host };
        Ok(AdmittedRequest { action: route.action, request })
    }

    /// Returns true if a route is served for any `Host`. The readiness names agents, so that only the
    /// health listener answers it to any, without the names.
    fn is_free_of_hosts(&self, route: &AdminRoute) -> bool {
        let is_bare = route.action != Action::Ready || self.served != ServedRoutes::All;
        route.access == Access::Probe && is_bare
    }

    /// Finds the route, and the text in place of `{…}`.
    fn find(&self, method: &Method, path: &str) -> Result<(&'static AdminRoute, Option<String>), AdminError> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let served = || ROUTES.iter().filter(|route| self.served.has(route));
        let mut allowed = Vec::new();
        for route in served() {
            let Some(parameter) = fit(route.path, path) else { continue };
            if route.method == *method {
                return Ok((route, parameter.map(str::to_owned)));
            }
            allowed.push(route.method.as_str());
        }
        if !allowed.is_empty() {
            let methods = allowed.join(", ");
            let error = AdminError::new(StatusCode::METHOD_NOT_ALLOWED, format!("only {methods}"));
            return Err(match HeaderValue::from_str(&methods) {
                Ok(methods) => error.with(ALLOW, methods),
                Err(_) => error,
            });
        }
        let mut paths: Vec<&str> = served().map(|route| route.path).collect();
        paths.dedup();
        Err(AdminError::new(StatusCode::NOT_FOUND, format!("served here: {}", paths.join(" "))))
    }

    /// Acts upon an admitted request.
    ///
    /// # Errors
    ///
    /// The refusal.
    async fn act(&self, action: Action, request: &AdminRequest) -> Result<AdminResponse, AdminError> {
        let view = self.gateway.operator_view();
        Ok(match action {
            Action::Health => AdminResponse::new(StatusCode::OK, JSON, self.gateway.health()),
            Action::Live => AdminResponse::json(StatusCode::OK, &json!({ "live": true })),
            Action::Ready => self.ready(request.is_own_host).await,
            Action::Started => self.started().await,
            Action::Metrics => AdminResponse::new(StatusCode::OK, METRICS, self.gateway.render_metrics()),
            Action::Agents => AdminResponse::new(StatusCode::OK, JSON, self.gateway.agents()),
            Action::Page(file) => file.response(),
            Action::Overview => AdminResponse::json(StatusCode::OK, &self.overview()),
            Action::AgentPage => {
                AdminResponse::new(StatusCode::OK, JSON, view.agent_page(request.number("offset")))
            }
            Action::Activity => AdminResponse::json(StatusCode::OK, &view.activity()),
            Action::History => AdminResponse::json(
                StatusCode::OK,
                &json!({ "seconds": recent::SAMPLE_SECONDS, "intervals": view.history() }),
            ),
            Action::Audit => AdminResponse::json(StatusCode::OK, &audit_page(request.number("offset"))),
            Action::Configuration => AdminResponse::json(StatusCode::OK, &self.configuration().await),
            // Served before.
            Action::Call => return Err(AdminError::new(StatusCode::NOT_FOUND, "not served here")),
            Action::Agent => {
                let name = request.parameter.as_deref().unwrap_or_default();
                let state = view.agent_state(name);
                let unknown = || AdminError::new(StatusCode::NOT_FOUND, "there is no agent of this name");
                AdminResponse::new(StatusCode::OK, JSON, state.ok_or_else(unknown)?)
            }
            Action::LogLevel => log_level(),
            Action::SetLogLevel => set_log_level(&request.body)?,
            Action::SessionState => {
                AdminResponse::json(StatusCode::OK, &self.authentication.state(request.session.as_deref()))
            }
            Action::SignIn => self.sign_in(request)?,
            Action::SignOut => {
                let cookie = self.authentication.sign_out(request);
                let mut response = AdminResponse::json(StatusCode::OK, &json!({ "signed_in": false }));
                response.headers.push((SET_COOKIE, cookie));
                response
            }
            Action::Reload => self.reload().await?,
            Action::Digests => self.digests().await?,
            Action::PutAgent => self.put_agent(request).await?,
            Action::DeleteAgent => self.delete_agent(request).await?,
        })
    }

    fn sign_in(&self, request: &AdminRequest) -> Result<AdminResponse, AdminError> {
        let cookie = self.authentication.sign_in(request);
        let cookie = cookie.inspect_err(|_| self.gateway.metrics().refused(Refusal::Unauthenticated))?;
        info!(client = ?request.client, "operator signed in");
        let mut response = AdminResponse::json(StatusCode::OK, &json!({ "signed_in": true }));
        response.headers.push((SET_COOKIE, cookie));
        Ok(response)
    }

    /// Returns the configuration that was loaded last, for the page.
    async fn configuration(&self) -> Value {
        match &self.reloader {
            Some(reloader) => page::configuration(&reloader.configured().await),
            None => self.configuration.clone(),
        }
    }

    fn overview(&self) -> OverviewBody {
        let report = self.gateway.operator_view().overview();
        OverviewBody {
            report,
            ready: self.gateway.ready_report().into(),
            calls_through: self.relay.listener(),
            takes_keys: self.gateway.operator_view().key_header().is_some(),
        }
    }

    async fn ready(&self, is_own_host: bool) -> AdminResponse {
        let report = self.gateway.ready_report();
        let reason = match report.reason {
            None if !self.accepts().await => Some("listeners"),
            reason => reason,
        };
        let body = match is_own_host {
            true => ReadyBody::from(ReadyReport { reason, ..report }),
            false => ReadyBody { ready: reason.is_none(), reason, ..ReadyBody::default() },
        };
        AdminResponse::json(status(body.ready), &body)
    }

    async fn started(&self) -> AdminResponse {
        let started = self.gateway.has_been_ready() && self.accepts().await;
        AdminResponse::json(status(started), &json!({ "started": started }))
    }

    /// Returns true if every listener accepts connections. Services start in no order; once they
    /// run, they run.
    async fn accepts(&self) -> bool {
        const ACCEPT_TIMEOUT: Duration = Duration::from_millis(500);
        if self.accepts.load(Ordering::Acquire) {
            return true;
        }
        for address in &self.listeners {
            if !matches!(timeout(ACCEPT_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_))) {
                return false;
            }
        }
        self.accepts.store(true, Ordering::Release);
        true
    }
}

/// The answer of `/readyz`.
#[derive(Default, Serialize)]
struct ReadyBody {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<WaitedAgent>,
    #[serde(skip_serializing_if = "is_zero")]
    waiting_more: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<String>,
}

impl From<ReadyReport> for ReadyBody {
    fn from(report: ReadyReport) -> Self {
        let ReadyReport { reason, waiting, waiting_more, degraded } = report;
        Self { ready: reason.is_none(), reason, waiting, waiting_more, degraded }
    }
}

/// The answer of `/api/overview`.
#[derive(Serialize)]
struct OverviewBody {
    #[serde(flatten)]
    report: OverviewReport,
    ready: ReadyBody,
    /// The listener with the requirements that calls of the page must meet.
    calls_through: Option<SocketAddr>,
    /// True if callers may have API keys.
    takes_keys: bool,
}

/// Lines of the audit log on a page.
const AUDIT_PAGE: usize = 100;

/// Returns a page of the audit log, the newest first.
fn audit_page(offset: usize) -> Value {
    let lines = recent::audit_lines();
    let total = lines.len();
    let page: Vec<_> = lines.iter().skip(offset).take(AUDIT_PAGE).map(|line| &**line).collect();
    json!({ "total": total, "offset": offset, "lines": page })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the status of a probe.
fn status(is_good: bool) -> StatusCode {
    if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Compares a path with that of a route; returns the text in place of `{…}`.
fn fit<'a>(pattern: &str, path: &'a str) -> Option<Option<&'a str>> {
    let Some((before, rest)) = pattern.split_once('{') else { return (pattern == path).then_some(None) };
    let (_, after) = rest.split_once('}')?;
    let text = path.strip_prefix(before)?.strip_suffix(after)?;
    (!text.is_empty() && !text.contains('/')).then_some(Some(text))
}

/// Returns true if a refusal is told as JSON.
fn tells_json(http: &HttpConnection<'_>) -> bool {
    let head = http.head();
    let accepted = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    head.uri.path().starts_with("/api/") || head.method != Method::GET || accepted.contains(JSON)
}

/// Reads the body of a request completely.
async fn read_body(
    http: &mut HttpConnection<'_>,
    within: Duration,
    most: usize,
) -> Result<Bytes, AdminError> {
    let announced = http.head().headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let too_large =
        || AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {most} bytes"));
    if announced.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let incomplete = |_| AdminError::new(StatusCode::BAD_REQUEST, "the body is not complete");
    let reading = async {
        if http.head().headers.contains_key(http::header::EXPECT) {
            http.continue_body().await.map_err(incomplete)?;
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = http.read_body().await.map_err(incomplete)? {
            if whole.len() + piece.len() > most {
                return Err(too_large());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    let late = |_| Err(AdminError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
    timeout(within, reading).await.unwrap_or_else(late)
}

/// Reads and discards the rest of a refused request for a while: otherwise closing the connection
/// could lose the answer.
async fn drain(http: &mut HttpConnection<'_>) {
    if http.head().headers.contains_key(http::header::EXPECT) {
        return;
    }
    let reading = async {
        let mut thrown = 0;
        while let Ok(Some(piece)) = http.read_body().await {
            thrown += piece.len();
            if thrown > 2 * MAX_CALL_BODY_BYTES {
                return;
            }
        }
    };
    if timeout(DRAIN_TIMEOUT, reading).await.is_err() {
        debug!("refused admin client still sends, closing connection");
    }
}

/// Writes an answer.
async fn write(http: &mut HttpConnection<'_>, response: AdminResponse) -> Result<(), ClientGone> {
    let AdminResponse { status, media_type, headers, body } = response;
    let mut head = ResponseHead::new(status);
    head.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    head.insert(CONTENT_LENGTH, body.len());
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    head.headers.extend(headers.into_iter().map(|(name, value)| (Some(name), value)).collect::<Vec<_>>());
    http.write_response(head, body, true).await
}
