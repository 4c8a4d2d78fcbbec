//! Data of one HTTP request for the access log and the metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use pingora::proxy::Session;

use super::route::loggable_path;
use crate::agents::{Agent, ForwardedContext};
use crate::auth::Caller;
use crate::fault::{AgentFailure, Blame, Fault};
use crate::limits::Limits;
use crate::mcp::Era;
use crate::quota::{BytePermit, FREE_BYTES, NoRoomError, QuotaOwner};
use crate::telemetry::access_log::AccessLine;
use crate::telemetry::label::{Method, Outcome, Refusal};
use crate::telemetry::metrics::{AgentMetrics, Metrics};

/// Returns which party an agent failure is attributed to.
pub(crate) fn outcome_of(trouble: &AgentFailure) -> Outcome {
    match trouble {
        AgentFailure::TokenUnavailable(_) => Outcome::GatewayFault,
        AgentFailure::TokenExchangeFailed(_) | AgentFailure::CallerBytes => Outcome::ClientFault,
        AgentFailure::Bytes => Outcome::GatewayFault,
        _ => Outcome::AgentFault,
    }
}

/// Facts of the transport about one request and its response.
pub(crate) struct ExchangeFacts {
    /// Name of the listener.
    pub(crate) listener: String,
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
    /// True if the request belongs to a session.
    pub(crate) session: bool,
    /// Time spent waiting for the agent.
    pub(crate) agent_took: Option<Duration>,
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
    pub(crate) fn new(caller: Caller) -> Self {
        Self {
            begun: Instant::now(),
            caller,
            quota_owner: None,
            forwarded: None,
            method: Method::Other,
            tool: None,
            agent: None,
            era: None,
            session: false,
            agent_took: None,
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
    pub(crate) fn finish(&self, http: &Session, no_agent: &AgentMetrics) {
        self.finish_with(http.req_header(), no_agent, || ExchangeFacts {
            listener: http.server_addr().map(ToString::to_string).unwrap_or_default(),
            status: http.response_written().map_or(0, |response| response.status.as_u16()),
            bytes_in: http.body_bytes_read() as u64,
            bytes_out: http.body_bytes_sent() as u64,
        });
    }

    /// Counts and logs the request with this head, over any transport.
    pub(crate) fn finish_with(
        &self,
        head: &Parts,
        no_agent: &AgentMetrics,
        facts: impl FnOnce() -> ExchangeFacts,
    ) {
        let took = self.begun.elapsed();
        let metrics = self.agent.as_ref().map_or(no_agent, |agent| &agent.metrics);
        metrics.request(self.method, self.outcome);
        metrics.observe_latency(took, self.agent_took);
        if !tracing::enabled!(target: "access", tracing::Level::INFO) {
            return;
        }
        let ExchangeFacts { listener, status, bytes_in, bytes_out } = facts();
        AccessLine {
            listener: &listener,
            method: head.method.as_str(),
            path: loggable_path(head.uri.path()),
            status,
            rpc: (self.method != Method::Other).then(|| self.method.label()),
            tool: self.tool.as_deref(),
            agent: self.agent.as_ref().map(|agent| agent.settings.name.as_str()),
            era: self.era.map(Era::word),
            session: self.session,
            took,
            agent_took: self.agent_took,
            bytes_in,
            bytes_out,
            outcome: self.outcome.label(),
            fault: self.fault,
        }
        .write();
    }
}
