//! MCP methods that the gateway answers without an agent.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::limits::QuotaOwner;
use super::route::Route;
use super::sessions::Agreed;
use super::{ClientContext, Inner};
use crate::bridge::catalogue::{Catalogue, CatalogueView, ToolRef};
use crate::bridge::resource_uri::TEMPLATES;
use crate::bridge::search;
use crate::bridge::task_tools::TaskTool;
use crate::fault::Fault;
use crate::jsonrpc::{Id, write_result};
use crate::mcp::lifecycle::{
    DiscoverResult, EmptyResult, Implementation, InitializeResult, ServerCapabilities,
};
use crate::mcp::resources::{ListPromptsResult, ListResourceTemplatesResult};
use crate::mcp::result_writer::ResultWriter;
use crate::mcp::tools::ListToolsResult;
use crate::mcp::{ClientParams, Era, Method, Version};
use crate::seal::{ListKind, PageCursor};

/// Response, and the id of the session that it begins.
pub(super) struct MethodReply {
    pub(super) body: Vec<u8>,
    pub(super) session: Option<String>,
}

/// Which built-in tools the instructions mention.
struct AdvertisedTools {
    wait: bool,
    send: bool,
    start: bool,
    find: bool,
}

impl AdvertisedTools {
    /// Returns the instructions for the model on how to use the tools.
    fn instructions(&self) -> String {
        const BEGIN: &str = "Each tool is a skill of an A2A agent. Say in `text` what the agent should do. A result can carry a \
                             contextId: pass it to continue that conversation. If a result says that the agent still works or \
                             asks something, ";
        let next = match (self.wait, self.send) {
            (true, true) => "pass its taskId to subagent_wait to wait, or to subagent_send with the answer.",
            (true, false) => {
                "pass its taskId to subagent_wait to wait, or call the same tool again with it and the answer in `text`."
            }
            (false, true) => {
                "call the same tool again with its taskId alone to wait, or pass that to subagent_send with the answer."
            }
            (false, false) => {
                "call the same tool again with the taskId it gives: alone to wait, or with text to answer."
            }
        };
        let mut text = format!("{BEGIN}{next}");
        if self.start {
            text.push_str(" subagent_start begins work without waiting for it.");
        }
        if self.find {
            text.push_str(
                " If you do not know which tool to call, find_agent finds agents by what they can do.",
            );
        }
        text
    }
}

impl From<Vec<u8>> for MethodReply {
    fn from(body: Vec<u8>) -> Self {
        Self { body, session: None }
    }
}

impl Inner {
    pub(super) fn writer(&self, era: Era) -> ResultWriter<'_> {
        let ttl_ms = u64::try_from(self.settings.mcp.list_ttl.as_millis()).unwrap_or(u64::MAX);
        ResultWriter { era, server: self.server(), ttl_ms }
    }

    /// Returns the instructions for the model on this route: the operator's text, or the gateway's
    /// own. They name the tools that this caller may use.
    fn instructions(&self, door: Route<'_>, asker: &ClientContext) -> Option<Cow<'_, str>> {
        if let Some(written) = &self.settings.mcp.instructions {
            return Some(Cow::Borrowed(written.as_str())).filter(|text| !text.is_empty());
        }
        let catalogue = self.catalogue.load();
        let view = self.catalogue_view(&catalogue, door);
        let has = |name: &str| {
            let tool = view.find(name).filter(|tool| tool.own().is_some());
            tool.is_some_and(|tool| self.is_tool_visible(asker, tool))
        };
        let tools = AdvertisedTools {
            wait: has(TaskTool::Wait.name()),
            send: has(TaskTool::Send.name()),
            start: has(TaskTool::Start.name()),
            find: self.directory.agents().len() > 1 && has(search::tool::NAME),
        };
        Some(Cow::Owned(tools.instructions()))
    }

    fn server(&self) -> Implementation<'_> {
        Implementation { name: &self.settings.mcp.server_name, version: env!("CARGO_PKG_VERSION") }
    }

    pub(super) fn catalogue_view<'c>(&self, catalogue: &'c Catalogue, door: Route<'_>) -> &'c CatalogueView {
        match door {
            Route::OneAgent(agent) | Route::A2a(agent, _) => catalogue.of(agent),
            Route::AllAgents
            | Route::Agents
            | Route::ApiCatalog
            | Route::Health
            | Route::Push(_)
            | Route::Metadata(_) => catalogue.all(),
        }
    }

    /// Handles a request.
    pub(super) async fn handle(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        method: Method,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<MethodReply, Fault> {
        let writer = self.writer(asker.version.era());
        let nothing = || write_result(id, &EmptyResult {});
        let body = match method {
            Method::Ping => nothing(),
            Method::Discover => {
                writer.cacheable(id, &DiscoverResult::new(self.instructions(door, asker).as_deref()))
            }
            Method::ToolsList => self.tools(door, asker, &writer, id, params)?,
            Method::ResourcesList => self.resources(door, asker, &writer, id, params)?,
            Method::ResourceTemplatesList => {
                writer.cacheable(id, &ListResourceTemplatesResult { resource_templates: TEMPLATES })
            }
            Method::ResourcesRead => Box::pin(self.read(door, asker, &writer, id, params)).await?,
            Method::PromptsList => writer.cacheable(id, &ListPromptsResult::default()),
            Method::Complete => Box::pin(self.complete(door, asker, &writer, id, params)).await?,
            Method::SetLevel => {
                let level = params.level.ok_or_else(|| Fault::InvalidParams("level is missing".into()))?;
                if let Some(session) = &asker.session {
                    self.sessions.set_level(session, level);
                    self.note_session(session);
                }
                nothing()
            }
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                Box::pin(self.subscribe(door, asker, params, method == Method::ResourcesSubscribe)).await?;
                nothing()
            }
            Method::TasksGet
            | Method::TasksCancel
            | Method::TasksUpdate
            | Method::TasksResult
            | Method::TasksList => return Err(Fault::UnknownMethod(method.as_str().to_owned())),
            Method::Initialize | Method::ToolsCall | Method::Listen => return Err(Fault::Internal),
        };
        Ok(body.into())
    }

    /// Handles the first request of a session.
    pub(super) fn initialize(
        &self,
        door: Route<'_>,
        (asker, whose): (&ClientContext, &QuotaOwner),
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<MethodReply, Fault> {
        let requested = params.protocol_version.as_ref();
        let requested = requested.ok_or_else(|| Fault::InvalidParams("protocolVersion is missing".into()))?;
        let version = Version::negotiate(requested.as_str());
        let instructions = self.instructions(door, asker);
        let result = InitializeResult {
            protocol_version: version.as_str(),
            capabilities: ServerCapabilities::legacy(version, !asker.caller.is_anonymous()),
            server_info: self.server(),
            instructions: instructions.as_deref(),
        };
        let agreed = Agreed {
            version,
            capabilities: params.capabilities.unwrap_or_default(),
            client: params.client_name().and_then(|name| self.clients.mark_of(name)),
        };
        let owner = (&self.sealer, asker.caller.name(), whose);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let session = self.sessions.begin(owner, agreed, (now, rand::random()));
        Ok(MethodReply { body: write_result(id, &result), session: Some(session) })
    }

    /// Returns true if the catalogue has the tools of all agents that this client sees. The tools
    /// of an agent without a card are still missing.
    fn has_all_tools(&self, door: Route<'_>, asker: &ClientContext) -> bool {
        let mut seen =
            self.directory.agents().iter().filter(|agent| self.can_see(&asker.caller, door, agent));
        let are_known = seen.all(|agent| agent.version() > 0 && agent.known().is_some());
        are_known && self.directory.versions() == self.built.load(Ordering::Acquire)
    }

    fn tools(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        writer: &ResultWriter<'_>,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let after = self.cursor(asker, ListKind::Tools, params)?;
        // Checked before the catalogue is loaded, which is built after the cards are known.
        let is_complete = self.has_all_tools(door, asker);
        let catalogue = self.catalogue.load_full();
        let shown = |tool: &ToolRef| self.is_allowed(tool) && self.is_tool_visible(asker, tool);
        let most = self.settings.mcp.page_size;
        let (page, next) = self.catalogue_view(&catalogue, door).page(after.as_deref(), most, shown);
        let tools = page.iter().map(|tool| tool.listed(asker.version)).collect();
        let next_cursor = next.map(|after| self.next_cursor(asker, ListKind::Tools, after));
        let list = ListToolsResult { tools, next_cursor };
        Ok(if is_complete { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    /// Returns true if a tool can be called at all. Other tools are not listed, and a call returns
    /// the reason.
    fn is_allowed(&self, tool: &ToolRef) -> bool {
        let agent = tool.of_agent().and_then(|tool| self.directory.find(&tool.agent));
        agent.is_none_or(|agent| agent.unsupported_required().is_none())
    }

    pub(super) fn cursor(
        &self,
        asker: &ClientContext,
        listing: ListKind,
        params: &ClientParams<'_>,
    ) -> Result<Option<String>, Fault> {
        let Some(cursor) = &params.cursor else { return Ok(None) };
        PageCursor::open(&self.sealer, asker.caller.name(), cursor.as_str())
            .filter(|cursor| cursor.listing == listing)
            .map(|cursor| Some(cursor.after))
            .ok_or_else(|| Fault::InvalidParams("unknown cursor: begin again without one".into()))
    }

    pub(super) fn next_cursor(&self, asker: &ClientContext, listing: ListKind, after: &str) -> String {
        PageCursor { listing, after: after.to_owned() }.seal(&self.sealer, asker.caller.name())
    }
}
