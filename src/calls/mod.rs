//! The call engine: one call of an agent, from its start to the result, whichever server asked.
//!
//! [`CallEngine`] starts a call or joins a task, runs it while the client waits, and decides the
//! form of the response. [`TaskLookup`] finds the task of a handle. Out of scope: the methods of
//! MCP (see `mcp_server`), work that outlives its client (see `follow`).

mod cancelled_calls;
mod lookup;
mod questions;
mod responder;
mod run;
mod source;
mod start;

use std::sync::Arc;
use std::time::Duration;

use crate::access::{Authorizer, Requester};
use crate::agents::{CallLimits, ForwardedContext};
use crate::auth::Caller;
use crate::bridge::agent_action::unknown_task;
use crate::config::{Calls, Settings};
use crate::discovery::LiveCatalogue;
use crate::fault::{Abort, AgentFailure, Fault};
use crate::http_edge::{Accepts, DrainState, Route, outcome_of};
use crate::jsonrpc::{Id, SharedBody};
use crate::limits::Limits;
use crate::mcp::lifecycle::Implementation;
use crate::mcp::notifications::LoggingLevel;
use crate::mcp::result_writer::ResultWriter;
use crate::mcp::tools::CallToolResult;
use crate::mcp::{ClientCapabilities, ClientParams, ClientSoftware, Era, Version};
use crate::quota::QuotaOwner;
use crate::seal::Sealer;
use crate::sessions::{ClientLimits, Session, SessionKey, SessionStore};
use crate::telemetry::label::Outcome;
use crate::telemetry::metrics::Metrics;
use crate::transport::HttpClient;

pub(crate) use cancelled_calls::CancelledCalls;
pub(crate) use cancelled_calls::{InFlightCalls, LiveCalls};
pub(crate) use lookup::{NotFound, TaskLookup, TaskSettings, resolved_agent};
pub(crate) use questions::{OfferedAnswers, already_answered, in_form_of_question, last_question};
pub(crate) use questions::{open_requests, question_of};
pub(crate) use responder::{CallResponder, ResponseTarget, WaitFor, WaitOutcome};
pub(crate) use run::{ActiveCall, ResultKind, add_delay, cancelled_result};
pub(crate) use source::{CallEvent, CallEvents, EventSource, FollowedTask};
pub(crate) use start::{ANSWER_IN_FLIGHT, AnswerClass, OpenedAction, offered_extensions};

/// Client context: the caller and the route of a request, and its protocol facts.
pub(crate) struct ClientContext<'r> {
    pub(crate) caller: Caller,
    pub(crate) route: Route<'r>,
    pub(crate) version: Version,
    pub(crate) capabilities: ClientCapabilities,
    /// Session of a legacy client, if it has one.
    pub(crate) session: Option<Session>,
    /// Least level of log messages wanted.
    pub(crate) level: Option<LoggingLevel>,
    pub(crate) accepts: Accepts,
    /// Context that is forwarded to the agents.
    pub(crate) forwarded: Option<Arc<ForwardedContext>>,
    /// Limits of the client for one call.
    pub(crate) limits: ClientLimits,
    /// Owner of the byte quota that responses of agents use.
    pub(crate) quota_owner: Option<QuotaOwner>,
    /// Software of the client, if the client told it.
    pub(crate) software: Option<Arc<ClientSoftware>>,
}

impl<'r> ClientContext<'r> {
    /// Returns the context of a caller without a connection.
    pub(crate) fn detached(caller: Caller, route: Route<'r>, quota_owner: Option<QuotaOwner>) -> Self {
        Self {
            caller,
            route,
            version: Version::V2026_07_28,
            capabilities: ClientCapabilities::default(),
            session: None,
            level: None,
            accepts: Accepts { json: true, stream: false },
            forwarded: None,
            limits: ClientLimits::default(),
            quota_owner,
            software: None,
        }
    }
}

impl ClientContext<'_> {
    /// Returns a copy without the route, for a later request.
    pub(crate) fn without_route(&self) -> ClientContext<'static> {
        ClientContext {
            caller: self.caller.clone(),
            route: Route::AllAgents,
            version: self.version,
            capabilities: self.capabilities,
            session: self.session.clone(),
            level: self.level,
            accepts: self.accepts,
            forwarded: self.forwarded.clone(),
            limits: self.limits,
            quota_owner: self.quota_owner.clone(),
            software: self.software.clone(),
        }
    }

    /// Returns the era of the client.
    pub(crate) fn era(&self) -> Era {
        self.version.era()
    }

    /// Returns the context in this session.
    pub(crate) fn with_session(self, session: Session) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Returns the caller and the route, for rules.
    pub(crate) fn requester(&self) -> Requester<'_> {
        let scope = self.forwarded.as_deref().map(ForwardedContext::scope);
        Requester { caller: &self.caller, route: self.route, scope }
    }
}

/// Request of a client, by its id and params.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    pub(crate) id: &'a Id,
    pub(crate) params: &'a ClientParams<'a>,
    /// The body that the params are read from, which their texts may keep.
    pub(crate) body: Option<&'a SharedBody<'a>>,
}

/// Target of the response to a call, and the time until the response is due.
pub(crate) struct CallTarget<'s, S> {
    pub(crate) to: ResponseTarget<'s, S>,
    pub(crate) budget: Duration,
}

/// Name and cache times of the MCP server, for its results.
pub(crate) struct ServerIdentity {
    name: String,
    list_ttl_ms: u64,
}

impl ServerIdentity {
    pub(crate) fn new(settings: &Settings) -> Self {
        let list_ttl_ms = u64::try_from(settings.mcp.list_ttl.as_millis()).unwrap_or(u64::MAX);
        Self { name: settings.mcp.server_name.clone(), list_ttl_ms }
    }

    /// Returns the implementation that the server introduces itself as.
    pub(crate) fn implementation(&self) -> Implementation<'_> {
        Implementation { name: &self.name, version: env!("CARGO_PKG_VERSION") }
    }

    /// Returns the encoder of results for clients of an era.
    pub(crate) fn writer(&self, era: Era) -> ResultWriter<'_> {
        ResultWriter { era, server: self.implementation(), ttl_ms: self.list_ttl_ms }
    }
}

/// Settings of the call engine.
pub(crate) struct CallSettings {
    pub(crate) calls: Calls,
    /// Limits of one exchange with an agent.
    pub(crate) exchange: CallLimits,
    /// Most bytes of the artifacts of one task.
    pub(crate) artifact_bytes: usize,
    pub(crate) identity: Arc<ServerIdentity>,
}

/// Runs the calls of agents.
pub(crate) struct CallEngine {
    pub(crate) lookup: Arc<TaskLookup>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) catalogue: Arc<LiveCatalogue>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) sessions: Arc<SessionStore>,
    pub(crate) http_client: HttpClient,
    pub(crate) sealer: Sealer,
    pub(crate) cancelled_calls: Arc<CancelledCalls>,
    pub(crate) running: InFlightCalls,
    pub(crate) live: Arc<LiveCalls>,
    pub(crate) drain: Arc<DrainState>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: CallSettings,
}

impl CallEngine {
    /// Cancels the running call of a session with this id.
    pub(crate) fn cancel_request(&self, session: SessionKey, id: &Id) {
        self.running.cancel(session, id);
    }

    /// Cancels the tasks of cancelled calls of a session that has ended.
    pub(crate) fn end_session(&self, session: SessionKey) {
        self.cancelled_calls.end_session(session);
    }

    /// Returns the encoder of results for clients of an era.
    pub(crate) fn writer(&self, era: Era) -> ResultWriter<'_> {
        self.settings.identity.writer(era)
    }
}

/// Error of a call that ends before the agent is contacted.
pub(crate) enum CallError {
    /// The request is invalid.
    Fault(Fault),
    /// The call has an error that a model can correct, or the agent is not available.
    ToolError(Box<CallToolResult>, Outcome),
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<CallError> for Abort<CallError> {
    fn from(error: CallError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Abort> for Abort<CallError> {
    fn from(abort: Abort) -> Self {
        abort.map(CallError::Fault)
    }
}

impl CallError {
    /// Returns an error that a model can correct.
    pub(crate) fn tool_error(text: String) -> Self {
        Self::ToolError(Box::new(CallToolResult::failure(text)), Outcome::ClientFault)
    }

    /// Returns the error of a rejected action on a task: a forbidden task reads like an unknown
    /// one.
    pub(crate) fn of_task(fault: Fault) -> Self {
        match fault {
            Fault::UnknownTask | Fault::NoSuchTool(_) => Self::tool_error(unknown_task()),
            fault => Self::Fault(fault),
        }
    }

    /// Returns the error of a failed agent.
    pub(crate) fn agent_failure(failure: &AgentFailure, agent: &str) -> Self {
        let result = CallToolResult::failure(failure.public_message(agent));
        Self::ToolError(Box::new(result), outcome_of(failure))
    }

    /// Returns the error for a task that is not found at this agent.
    pub(crate) fn not_found(not_found: NotFound, agent: &str) -> Self {
        match not_found {
            NotFound::Unknown => Self::tool_error(unknown_task()),
            NotFound::Trouble(failure) => Self::agent_failure(&failure, agent),
            NotFound::Unfit(text) => Self::tool_error(text),
        }
    }
}
