//! Dispatch of requests: host policy, authentication, and the service of each route.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;

use crate::a2a::validation_echo;
use crate::a2a_server::{A2aRequest, A2aServer, GrpcConnection, MessageLimits, WebhookPush};
use crate::access::{RequestAuthenticator, subject_token};
use crate::config::{Require, RequireRule, Services, Settings};
use crate::discovery::Discovery;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{
    AccessRecord, BodyReader, ClientConnection, DrainState, Headers, HostPolicy, ListenerEdge,
    LocalConnection, PublicUrl, ResponseSink, Route, TrailerSink, authority, empty, fault, json, preflight,
    text,
};
use crate::limits::quota_owner;
use crate::mcp::Era;
use crate::mcp_server::{McpServer, MovedStream};
use crate::push_receiver::{ClientPush, PushReceiver, PushTarget};
use crate::tasks::Timestamp;
use crate::telemetry::label::{Method as Label, Push};
use crate::telemetry::metrics::{AgentMetrics, GaugeGuard, Metrics};
use crate::telemetry::trace::Tracer;

/// Future that answers a request, or returns the fault if the body was not read completely. Boxed,
/// so that no request carries the size of others, and few layers are polled.
type BoxResponse<'a> = Pin<Box<dyn Future<Output = Result<(), Abort>> + Send + 'a>>;

/// Settings of the HTTP edge.
pub(super) struct EdgeSettings {
    pub(super) host_policy: HostPolicy,
    pub(super) public_url: PublicUrl,
    /// Authentication that applies by default: any configured mechanism.
    pub(super) require: Require,
    /// Most bytes of the head of a request.
    pub(super) header_bytes: usize,
    /// Longest idle time of a connection.
    pub(super) keep_alive: Duration,
    /// Longest time for which a client does not read.
    pub(super) write_stall: Duration,
    pub(super) started: Timestamp,
    /// Longest time from the start until the gateway is ready.
    pub(super) ready_timeout: Duration,
}

/// Settings of one listener that can change while it listens.
pub(super) struct ListenerPolicy {
    /// The services of the listener.
    pub(super) serve: Services,
    /// Credentials that clients must present there.
    pub(super) require: Require,
    /// The listener as the HTTP edge sees it.
    pub(super) edge: Arc<ListenerEdge>,
}

impl EdgeSettings {
    pub(super) fn new(settings: &Settings, started: Timestamp) -> Self {
        Self {
            host_policy: HostPolicy::new(settings),
            public_url: PublicUrl::new(settings),
            require: default_requirement(settings),
            header_bytes: settings.limits.header,
            // A keep-alive without a limit would never end.
            keep_alive: settings.limits.keep_alive.max(Duration::from_secs(1)),
            write_stall: settings.limits.write_stall,
            started,
            ready_timeout: settings.ready.timeout,
        }
    }
}

/// Returns the default requirement: any configured mechanism.
pub(super) fn default_requirement(settings: &Settings) -> Require {
    let of = settings.auth.mechanisms();
    Require { rule: if of.is_empty() { RequireRule::None } else { RequireRule::Any }, of }
}

/// The services of one generation: passes each request to the service of its route.
pub(super) struct Dispatcher {
    /// The whole configuration in effect.
    pub(super) configuration: Settings,
    /// Number of the generation, from 1.
    pub(super) generation: u64,
    pub(super) settings: EdgeSettings,
    /// In the order of the listeners at the start.
    pub(super) listeners: Vec<ListenerPolicy>,
    pub(super) authenticator: RequestAuthenticator,
    pub(super) discovery: Arc<Discovery>,
    pub(super) body: Arc<BodyReader>,
    pub(super) mcp_server: McpServer,
    pub(super) a2a_server: A2aServer,
    pub(super) push_receiver: PushReceiver,
    /// Records spans; `None` if traces are only passed on.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// The edge of a host that names no listener.
    pub(super) host_edge: Arc<ListenerEdge>,
    pub(super) drain: Arc<DrainState>,
    pub(super) metrics: Arc<Metrics>,
    /// Metrics of requests that no agent is part of.
    pub(super) no_agent: Arc<AgentMetrics>,
    /// Counts the generations in memory.
    pub(super) _held: GaugeGuard,
}

/// A request with a stream that another generation continues.
#[derive(Clone, Copy)]
pub(super) struct ResumedRequest<'a> {
    pub(super) route: Route<'a>,
    /// Authentication that the caller needs; `None`: the listener does not serve the route any more.
    pub(super) require: Option<&'a Require>,
    /// True for the client that has started this process, which names no host.
    pub(super) is_local: bool,
}

/// Guard that counts a running request.
pub(super) struct RequestGuard<'a>(&'a AtomicUsize);

impl<'a> RequestGuard<'a> {
    pub(super) fn enter(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self(open)
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthReport {
    ok: bool,
    active_sse: i64,
    tasks: usize,
    uptime: u64,
}

impl Dispatcher {
    /// Handles a request on a route. A stream for notifications that another generation has to
    /// continue is left in `moved` (see [`Dispatcher::resume`]).
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(super) async fn handle(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        require: &Require,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        if matches!(route, Route::Push(_)) {
            record.method = Label::Push;
        }
        let done = match self.check_host_and_origin(http, route) {
            Ok(None) => match self.admit(http, record, route, require).await {
                Ok(()) => self.dispatch(http, record, route, require, moved).await,
                Err(fault) => Err(fault.into()),
            },
            Ok(Some(headers)) => {
                Box::pin(empty(http, StatusCode::NO_CONTENT, headers)).await.map_err(Abort::from)
            }
            Err(fault) => Err(fault.into()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Abort::ClientGone) => Err(ClientGone),
            Err(Abort::Rejected(fault)) => {
                // Boxed: rare cases must not make every request larger.
                Box::pin(self.reject_without_reading_body(http, record, fault)).await
            }
        }
    }

    /// Handles a request of gRPC; `checked` is the result of the checks before.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(super) async fn handle_grpc<C: TrailerSink>(
        &self,
        http: &mut C,
        record: &mut AccessRecord,
        require: &Require,
        checked: Result<(), Fault>,
    ) -> Result<(), ClientGone> {
        let named = self.a2a_server.agent_of_host(authority(http.head())).map(str::to_owned);
        let named = named.as_deref();
        let limits = &self.configuration.limits;
        let limits = MessageLimits { request: limits.body, event: limits.event };
        let mut http = GrpcConnection::new(http, limits);
        let http = &mut http;
        // With an agent, a token may be for that agent alone.
        let route = named.map_or(Route::Grpc, |agent| Route::A2a(agent, ""));
        let admitted = match checked.and_then(|()| self.check_host_and_origin(http, route).map(drop)) {
            Ok(()) if http.is_refused() => Err(Fault::NoSuchPath),
            Ok(()) => self.admit(http, record, route, require).await,
            Err(fault) => Err(fault),
        };
        let done = match admitted {
            Ok(()) => self.a2a_server.serve_grpc(http, record, require, named).await,
            Err(fault) => Err(fault.into()),
        };
        let done = match done {
            Ok(()) => Ok(()),
            Err(Abort::ClientGone) => Err(ClientGone),
            Err(Abort::Rejected(fault)) => self.a2a_server.reject_grpc(http, record, fault).await,
        };
        if http.is_late() {
            record.record_client_gone();
            return http.end_late().await;
        }
        done
    }

    /// Handles a message of the program that started this process, or of the page of operators:
    /// neither has a host and an origin to check. The caller must satisfy `require`; `None`: it is
    /// the program, which presents no credentials.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(super) async fn handle_local(
        &self,
        http: &mut LocalConnection,
        record: &mut AccessRecord,
        require: Option<&Require>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        let admitted = match require {
            Some(require) => self.admit(http, record, Route::AllAgents, require).await,
            None => {
                let owner = quota_owner(&record.caller, None);
                let admitted = self.discovery.limits.check_request_rate(&owner).await;
                record.quota_owner = Some(owner);
                let headers = &http.head().headers;
                let along = self.discovery.directory.along(headers, || None, record.scope.clone());
                record.forwarded = Some(along);
                admitted
            }
        };
        let done = match admitted {
            Ok(()) => Box::pin(self.mcp_server.serve(http, record, Route::AllAgents, moved)).await,
            Err(fault) => Err(fault.into()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Abort::ClientGone) => Err(ClientGone),
            Err(Abort::Rejected(rejection)) => {
                record.record_rejection(&rejection, &self.metrics);
                let (era, id) = (http.era(), http.id().cloned());
                fault(http, &rejection, era, id.as_ref()).await
            }
        }
    }

    /// Rejects a request with an unread body: the body must not be taken for the next request, and
    /// a client that is still sending must be able to read the response.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(super) async fn reject_without_reading_body(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        rejection: Fault,
    ) -> Result<(), ClientGone> {
        http.close_after_response();
        record.record_rejection(&rejection, &self.metrics);
        fault(http, &rejection, Era::Legacy, None).await?;
        self.body.drain_before_close(http).await;
        Ok(())
    }

    /// Returns the health as JSON.
    pub(super) fn health(&self) -> String {
        let health = HealthReport {
            ok: true,
            active_sse: self.metrics.open_streams(),
            tasks: self.mcp_server.engine.lookup.tasks.len(),
            uptime: self.settings.started.instant.elapsed().as_secs(),
        };
        serde_json::to_string(&health).unwrap_or_default()
    }

    /// Checks host and origin; returns the headers of the complete response to a preflight.
    fn check_host_and_origin(
        &self,
        http: &impl ClientConnection,
        route: Route<'_>,
    ) -> Result<Option<Headers>, Fault> {
        let request = http.head();
        match route {
            // Load balancers use any host name, and learn nothing that is worth a rebinding.
            Route::Health => Ok(None),
            // Agents present a token of their own, and are not browsers.
            Route::Push(_) => self.settings.host_policy.check_host(request).map(|()| None),
            _ => {
                self.settings.host_policy.check(request)?;
                Ok((request.method == Method::OPTIONS).then(|| preflight(request)))
            }
        }
    }

    /// Authenticates the caller of an endpoint, and checks that the agent is visible. Some routes
    /// need no authentication.
    async fn admit(
        &self,
        http: &impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        require: &Require,
    ) -> Result<(), Fault> {
        if matches!(route, Route::Health | Route::Push(_) | Route::Metadata(_)) {
            return Ok(());
        }
        self.authenticate(http, record, route, require).await?;
        let owner = quota_owner(&record.caller, http.client_network());
        self.discovery.limits.check_request_rate(&owner).await?;
        record.quota_owner = Some(owner);
        self.check_agent(http, record, route)
    }

    /// Authenticates the caller.
    async fn authenticate(
        &self,
        http: &impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        require: &Require,
    ) -> Result<(), Fault> {
        // If authentication is required and no mechanism is configured, every request is rejected.
        if !require.of.is_empty() || require.rule != RequireRule::None {
            record.caller = Box::pin(self.authenticator.authenticate(http, require, route)).await?;
        }
        Ok(())
    }

    /// Determines what is forwarded to agents, and checks that the agent of the route is visible.
    fn check_agent(
        &self,
        http: &impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
    ) -> Result<(), Fault> {
        let headers = &http.head().headers;
        let subject = || subject_token(&record.caller, headers);
        record.forwarded = Some(self.discovery.directory.along(headers, subject, record.scope.clone()));
        match route.agent() {
            Some(agent) if !self.discovery.authorizer.is_visible(&record.caller, agent) => {
                Err(Fault::NoSuchPath)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Continues a stream of another generation. Its caller is authenticated again, by `require`: the
    /// stream ends if this generation does not admit the caller, or without `require`.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(super) async fn resume(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        at: ResumedRequest<'_>,
        stream: MovedStream,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        let ResumedRequest { route, require, is_local } = at;
        let is_admitted = match require {
            Some(require) => {
                (is_local || self.settings.host_policy.check(http.head()).is_ok())
                    && self.authenticate(http, record, route, require).await.is_ok()
                    && self.check_agent(http, record, route).is_ok()
            }
            None => false,
        };
        match is_admitted {
            true => self.mcp_server.resume(http, record, route, stream, moved).await,
            false => self.mcp_server.end_moved(http, &stream).await,
        }
    }

    /// Returns the response of the service of a route, for an authenticated request.
    fn dispatch<'a, C: ClientConnection>(
        &'a self,
        http: &'a mut C,
        record: &'a mut AccessRecord,
        route: Route<'a>,
        require: &'a Require,
        moved: &'a mut Option<Box<MovedStream>>,
    ) -> BoxResponse<'a> {
        match route {
            Route::Health => Box::pin(self.serve_health(http)),
            Route::Push(token) => Box::pin(self.serve_push(http, record, token)),
            Route::Metadata(path) => Box::pin(self.serve_metadata(http, path)),
            // Only a request of gRPC has this route.
            Route::Grpc => Box::pin(std::future::ready(Err(Fault::NoSuchPath.into()))),
            Route::A2a(agent, path) => {
                self.a2a_server.serve(http, record, A2aRequest { route, require, agent, path })
            }
            Route::Agents | Route::ApiCatalog => Box::pin(async move {
                let base = self.settings.public_url.for_client(http);
                self.discovery.serve_document(http, record, route, &base).await
            }),
            Route::AllAgents | Route::OneAgent(_) => {
                Box::pin(self.mcp_server.serve(http, record, route, moved))
            }
        }
    }

    async fn serve_health(&self, http: &mut impl ResponseSink) -> Result<(), Abort> {
        match http.head().method {
            Method::GET => json(http, StatusCode::OK, self.health().into_bytes(), None).await?,
            Method::HEAD => empty(http, StatusCode::OK, Vec::new()).await?,
            _ => {
                let allow = (ALLOW, HeaderValue::from_static("GET, HEAD"));
                http.close_after_response();
                empty(http, StatusCode::METHOD_NOT_ALLOWED, vec![allow]).await?;
            }
        }
        Ok(())
    }

    /// Serves the metadata of a protected resource (RFC 9728).
    async fn serve_metadata(&self, http: &mut impl ResponseSink, path: &str) -> Result<(), Abort> {
        if http.head().method != Method::GET {
            return Err(Fault::MethodNotAllowed("GET, OPTIONS").into());
        }
        let document = self.discovery.metadata.document(path)?;
        Ok(json(http, StatusCode::OK, document, None).await?)
    }

    /// Serves a push of an agent, or its check whether it may push.
    async fn serve_push(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        token: &str,
    ) -> Result<(), Abort> {
        let Some(target) = self.push_receiver.target(token) else {
            self.metrics.record_push(Push::UnknownAddress);
            return Err(Fault::NoSuchPath.into());
        };
        record.agent = Some(target.agent().clone());
        match http.head().method {
            Method::POST => match target {
                PushTarget::Own(push) => self.push_receiver.receive(http, record, &push).await,
                PushTarget::Client(push) => {
                    let ClientPush { ticket, proof, agent } = &*push;
                    let push = WebhookPush { ticket, proof, agent };
                    self.a2a_server.forward_push(http, record, push).await
                }
            },
            Method::GET => {
                let echo = validation_echo(http.head().uri.query().unwrap_or_default());
                let echo = echo.ok_or(Fault::MethodNotAllowed("POST"))?;
                self.metrics.record_push(Push::Validated);
                Ok(text(http, echo).await?)
            }
            _ => Err(Fault::MethodNotAllowed("POST").into()),
        }
    }
}
