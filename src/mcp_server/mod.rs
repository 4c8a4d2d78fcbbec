//! The MCP server: the methods of both eras, sessions, subscriptions and task tools.
//!
//! Agents are called by `calls`; what a client may see is decided in `access` and `discovery`.

mod methods;
mod notifications;
mod post;
mod prompts;
mod subscriptions;
mod task_tools;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method as HttpMethod, StatusCode};

use crate::access::Authorizer;
use crate::batch::BatchService;
use crate::calls::{CallEngine, ServerIdentity, TaskLookup};
use crate::config::{Prompt, Settings};
use crate::discovery::Discovery;
use crate::fault::{Abort, Fault};
use crate::http_edge::{AccessRecord, BodyReader, ClientConnection, DrainState, Route, empty};
use crate::limits::Limits;
use crate::mcp::Era;
use crate::mcp::classify::McpHeaders;
use crate::mcp::result_writer::ResultWriter;
use crate::resources::ResourceRegistry;
use crate::sessions::{ClientLimitTable, SessionStore};
use crate::tasks::Timestamp;
use crate::telemetry::label;
use crate::telemetry::metrics::{AgentMetrics, Metrics};

use methods::MethodReply;
pub(crate) use subscriptions::MovedStream;

/// Settings of the MCP server.
pub(crate) struct McpSettings {
    /// Deepest nesting of a request.
    depth: usize,
    /// Most requests of a batch.
    batch: usize,
    /// Longest wait of a client for a result.
    budget: Duration,
    /// Interval of keep-alive comments on a stream.
    keep_alive: Duration,
    /// Most entries on one page of a list.
    page_size: usize,
    /// Prompts of the operator, sorted by name.
    prompts: Vec<Prompt>,
    /// Instructions of the operator for the model.
    instructions: Option<String>,
    /// Time at which the process began.
    started: Timestamp,
    identity: Arc<ServerIdentity>,
}

impl McpSettings {
    pub(crate) fn new(settings: &Settings, identity: Arc<ServerIdentity>, started: Timestamp) -> Self {
        Self {
            depth: settings.limits.depth,
            batch: settings.limits.batch,
            budget: settings.calls.budget,
            keep_alive: settings.calls.keep_alive,
            page_size: settings.mcp.page_size,
            prompts: settings.prompts.clone(),
            instructions: settings.mcp.instructions.clone(),
            started,
            identity,
        }
    }
}

/// Serves MCP clients.
pub(crate) struct McpServer {
    pub(crate) engine: Arc<CallEngine>,
    pub(crate) resources: Arc<ResourceRegistry>,
    /// Batches of calls, if they are configured.
    pub(crate) batches: Option<Arc<BatchService>>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) sessions: Arc<SessionStore>,
    pub(crate) clients: ClientLimitTable,
    pub(crate) body: Arc<BodyReader>,
    pub(crate) drain: Arc<DrainState>,
    pub(crate) metrics: Arc<Metrics>,
    /// Metrics of requests that no agent is part of.
    pub(crate) no_agent: Arc<AgentMetrics>,
    pub(crate) settings: McpSettings,
    pub(crate) generation: ServerGeneration,
}

/// The configuration of a server, among those of the process.
pub(crate) struct ServerGeneration {
    /// Its number.
    pub(crate) number: u64,
    /// The number of the present one.
    pub(crate) present: Arc<AtomicU64>,
    /// Number of changes of settings that change what clients find in lists, besides the agents.
    pub(crate) lists: u64,
}

impl ServerGeneration {
    /// Returns true if another configuration is in use.
    fn is_superseded(&self) -> bool {
        self.present.load(Ordering::Acquire) != self.number
    }
}

impl McpServer {
    /// Serves a request to an MCP endpoint. A stream for notifications that another configuration
    /// has to continue is left in `moved` (see [`McpServer::resume`]).
    ///
    /// # Errors
    ///
    /// [`Abort`] if the client disconnected, or if the body was not read completely.
    pub(crate) async fn serve(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), Abort> {
        match http.head().method {
            HttpMethod::POST => self.post(http, record, route, moved).await,
            HttpMethod::GET => {
                record.method = label::Method::SessionStream;
                Box::pin(self.session_stream(http, record, route, moved)).await
            }
            HttpMethod::DELETE => self.end_session(http, record).await,
            _ => Err(Fault::MethodNotAllowed("POST, GET, DELETE, OPTIONS").into()),
        }
    }

    /// Ends a legacy session; a second request for the same session succeeds too.
    async fn end_session(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
    ) -> Result<(), Abort> {
        record.method = label::Method::SessionEnd;
        let headers = McpHeaders::read(&http.head().headers);
        let Some(id) = headers.session.value() else { return Err(Fault::MethodNotAllowed("POST").into()) };
        let found = self.sessions.find(record.caller.name(), id);
        let (session, _) = found.ok_or(Fault::SessionNotFound)?;
        self.sessions.end(&session).await?;
        self.engine.end_session(session.key);
        Ok(empty(http, StatusCode::NO_CONTENT, Vec::new()).await?)
    }

    fn lookup(&self) -> &TaskLookup {
        &self.engine.lookup
    }

    fn authorizer(&self) -> &Authorizer {
        &self.engine.authorizer
    }

    /// Returns the encoder of results for clients of an era.
    fn writer(&self, era: Era) -> ResultWriter<'_> {
        self.settings.identity.writer(era)
    }
}
