//! Data of one HTTP request for the access log and the metrics.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client_address::{client_address, given_request_id};
use super::connection::{ExchangeProgress, HttpConnection, ResponseSink as _};
use super::route::loggable_path;
use crate::agents::{Agent, ForwardedContext};
use crate::auth::Caller;
use crate::config::TrustedProxies;
use crate::fault::{AgentFailure, Blame, Fault};
use crate::limits::Limits;
use crate::mcp::Era;
use crate::quota::{BytePermit, FREE_BYTES, NoRoomError, QuotaOwner};
use crate::telemetry::label::{Method, Outcome, Refusal};
use crate::telemetry::log;
use crate::telemetry::metrics::{AgentMetrics, Metrics, ResponseMetrics};
use crate::telemetry::request_facts::{CompletedRequest, RequestFacts, RequestTexts};
use crate::telemetry::trace::{RequestScope, SpanEvent, TraceContext, Tracer, new_request_id};
use http::request::Parts;

/// Returns which party an agent failure is attributed to.
pub(crate) fn outcome_of(trouble: &AgentFailure) -> Outcome {
    match trouble {
        AgentFailure::TokenUnavailable(_) => Outcome::GatewayFault,
        AgentFailure::TokenExchangeFailed(_) | AgentFailure::CallerBytes => Outcome::ClientFault,
        AgentFailure::Bytes => Outcome::GatewayFault,
        _ => Outcome::AgentFault,
    }
}

/// The listener of a request, as the HTTP edge sees it.
pub(crate) struct ListenerEdge {
    /// Its name: the configured address.
    pub(crate) name: String,
    /// True if every connection has the configured address: it names one port of one address.
    is_exact: bool,
    /// The proxies before it.
    pub(crate) proxies: TrustedProxies,
    /// True if it serves agents over gRPC.
    pub(crate) has_grpc: bool,
    /// Its responses by status.
    pub(crate) responses: ResponseMetrics,
}

impl ListenerEdge {
    /// Creates the edge of the listener with this configured address.
    pub(crate) fn new(
        name: String,
        proxies: TrustedProxies,
        has_grpc: bool,
        responses: ResponseMetrics,
    ) -> Self {
        let is_specific = |address: SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
        Self { is_exact: name.parse().is_ok_and(is_specific), name, proxies, has_grpc, responses }
    }

    /// Returns the address that a connection was made to, as far as it is known.
    fn address(&self, http: &HttpConnection<'_>) -> Cow<'_, str> {
        match http.server_address().filter(|_| !self.is_exact) {
            Some(address) => Cow::Owned(address.to_string()),
            None => Cow::Borrowed(&self.name),
        }
    }

    /// Returns the scope of a request with this head, from this peer.
    pub(crate) fn scope(
        &self,
        head: &Parts,
        peer: Option<IpAddr>,
        tracer: Option<&Arc<Tracer>>,
    ) -> RequestScope {
        let headers = &head.headers;
        // Without proxies no header is read.
        let (client, id) = match self.proxies.networks.is_empty() {
            true => (peer.map(|peer| peer.to_canonical()), None),
            false => (
                peer.map(|peer| client_address(headers, peer, &self.proxies)),
                given_request_id(headers, peer, &self.proxies),
            ),
        };
        let id = id.and_then(|id| id.to_str().ok()).map_or_else(new_request_id, str::to_owned);
        RequestScope::new(Cow::Owned(id), client, TraceContext::of_headers(headers), tracer)
    }
}

/// Facts of the transport about one request and its response.
pub(crate) struct ExchangeFacts<'a> {
    /// Name of the listener.
    pub(crate) listener: Cow<'a, str>,
    /// Status of the response; 0 without a response.
    pub(crate) status: u16,
    /// Bytes of the request body.
    pub(crate) bytes_in: u64,
    /// Bytes of the response body.
    pub(crate) bytes_out: u64,
}

/// Access record: the facts about one request so far.
pub(crate) struct AccessRecord {
    begun: Instant,
    /// The authenticated caller.
    pub(crate) caller: Caller,
    /// Context that is forwarded to the agents.
    pub(crate) forwarded: Option<Arc<ForwardedContext>>,
    /// Owner of the quota that the request uses.
    pub(crate) quota_owner: Option<QuotaOwner>,
    /// Method of the request.
    pub(crate) method: Method,
    /// Tool of a call.
    pub(crate) tool: Option<String>,
    /// Agent that the request is for.
    pub(crate) agent: Option<Arc<Agent>>,
    /// Era of the client.
    pub(crate) era: Option<Era>,
    /// Version of the client's protocol.
    pub(crate) version: Option<&'static str>,
    /// Keyed digest of the session of the request, for the log: the id itself may be a secret.
    pub(crate) session: Option<u64>,
    /// The same of its task.
    pub(crate) task: Option<u64>,
    /// The same of its conversation.
    pub(crate) context: Option<u64>,
    /// Id, client address and trace of the request.
    pub(crate) scope: Arc<RequestScope>,
    /// Time spent waiting for the agent.
    pub(crate) agent_took: Option<Duration>,
    /// True if the listener serves agents over gRPC, so that cards name it.
    pub(crate) has_grpc: bool,
    /// Permit for the bytes of the response while the client reads it; present once they are
    /// counted.
    held: Option<BytePermit>,
    /// Bytes of responses that are kept for a batch.
    kept: usize,
    /// Outcome of the request.
    pub(crate) outcome: Outcome,
    /// Reason for a failure.
    pub(crate) fault: Option<&'static str>,
}

impl AccessRecord {
    pub(crate) fn new(caller: Caller, scope: Arc<RequestScope>) -> Self {
        Self {
            begun: scope.begun(),
            caller,
            quota_owner: None,
            forwarded: None,
            method: Method::Other,
            tool: None,
            agent: None,
            era: None,
            version: None,
            session: None,
            task: None,
            context: None,
            scope,
            agent_took: None,
            has_grpc: true,
            held: None,
            kept: 0,
            outcome: Outcome::Ok,
            fault: None,
        }
    }

    /// Counts the bytes of a response until the request is over, and releases `source`, the permit
    /// of the data that the response was made from.
    ///
    /// # Errors
    ///
    /// [`NoRoomError`] if the quota is exhausted.
    pub(crate) fn hold(
        &mut self,
        limits: &Limits,
        source: Option<BytePermit>,
        bytes: usize,
    ) -> Result<(), NoRoomError> {
        let bytes = self.kept.saturating_add(bytes);
        if bytes <= FREE_BYTES && self.held.is_none() {
            return Ok(());
        }
        let owner = self.quota_owner.as_ref();
        let held = self.held.get_or_insert_with(|| limits.permit(owner));
        if let Some(source) = source {
            held.absorb(source);
        }
        held.set(bytes).inspect_err(|_| held.shrink_to(self.kept))
    }

    /// Keeps counting the last response while later responses of the same batch are made.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.kept = self.kept.saturating_add(bytes);
    }

    /// Records that the client disconnected.
    pub(crate) fn record_client_gone(&mut self) {
        self.scope.event(SpanEvent::ClientGone);
        if self.fault.is_none() {
            self.outcome = Outcome::ClientGone;
        }
    }

    /// Returns true if the facts of the request will be read: the access log is on, or its span is recorded.
    pub(crate) fn needs_facts(&self) -> bool {
        log::shows_access() || self.scope.is_recorded()
    }

    /// Records the rejection of the request.
    pub(crate) fn record_rejection(&mut self, fault: &Fault, metrics: &Metrics) {
        self.fault = Some(fault.word());
        self.outcome = match fault.culprit() {
            Blame::Client => Outcome::ClientFault,
            Blame::Agent => Outcome::AgentFault,
            Blame::Gateway => Outcome::GatewayFault,
        };
        metrics.refused(match fault {
            Fault::HostRefused(_) | Fault::Misdirected => Refusal::Host,
            Fault::CertificateNoLongerValid => Refusal::Unauthenticated,
            Fault::OriginRefused(_) => Refusal::Origin,
            Fault::Unauthenticated(_) | Fault::DuplicateCredentials(_) => Refusal::Unauthenticated,
            Fault::InsufficientScope(_) | Fault::Forbidden => Refusal::Forbidden,
            // Counted where the quota was exhausted.
            Fault::CallerBytes | Fault::Bytes => return,
            Fault::RateLimited(_) | Fault::QuotaExceeded(_) => Refusal::RateLimited,
            Fault::Busy(_) | Fault::Ending | Fault::AuthUnavailable => Refusal::Overloaded,
            Fault::TasksFull => Refusal::TasksFull,
            Fault::BodyTooLarge(_) | Fault::HeaderTooLarge(_) => Refusal::TooLarge,
            Fault::NoSuchPath
            | Fault::NoSuchTool(_)
            | Fault::NoSuchResource(_)
            | Fault::SessionNotFound
            | Fault::UnknownTask => Refusal::NotFound,
            _ => Refusal::Malformed,
        });
    }

    /// Counts and logs the request.
    pub(crate) fn finish(&self, http: &HttpConnection<'_>, edge: &ListenerEdge, no_agent: &AgentMetrics) {
        let ExchangeProgress { status, bytes_in, bytes_out } = http.progress();
        edge.responses.count(status);
        self.finish_with(http.head(), no_agent, || ExchangeFacts {
            listener: edge.address(http),
            status,
            bytes_in,
            bytes_out,
        });
    }

    /// Counts and logs the request with this head, over any transport, and ends its span.
    pub(crate) fn finish_with<'a>(
        &self,
        head: &Parts,
        no_agent: &AgentMetrics,
        exchange: impl FnOnce() -> ExchangeFacts<'a>,
    ) {
        let ended = Instant::now();
        let took = ended.saturating_duration_since(self.begun);
        let metrics = self.agent.as_ref().map_or(no_agent, |agent| &agent.metrics);
        metrics.request(self.method, self.outcome);
        metrics.observe_latency(took, self.agent_took);
        // That of a request without a message, or with one that was refused, has not begun.
        self.scope.begin_trace(None);
        if !self.needs_facts() {
            return;
        }
        let ExchangeFacts { listener, status, bytes_in, bytes_out } = exchange();
        let texts = RequestTexts {
            request: self.scope.id(),
            caller: self.caller.name(),
            listener: &listener,
            method: head.method.as_str(),
            path: loggable_path(head.uri.path()),
            tool: self.tool.as_deref().unwrap_or_default(),
            agent: self.agent.as_ref().map_or("", |agent| agent.settings.name.as_str()),
        };
        let facts = RequestFacts {
            trace: self.scope.trace_id(),
            client: self.scope.client(),
            status,
            rpc: Some(self.method).filter(|method| *method != Method::Other),
            era: self.era.map(Era::word),
            version: self.version,
            session: self.session,
            task: self.task,
            context: self.context,
            took,
            agent_took: self.agent_took,
            bytes_in,
            bytes_out,
            is_anonymous: self.caller.is_anonymous(),
            outcome: self.outcome,
            fault: self.fault,
        };
        let request = CompletedRequest { texts, facts };
        self.scope.end(&request);
        request.log(ended);
    }
}
