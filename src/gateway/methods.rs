//! Everything that the gateway answers by itself.
//!
//! Not here: `tools/call` (see `call`), resources (see `reading`), completions (see `completing`), streams (see
//! `listen`).

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::route::Door;
use super::sessions::Agreed;
use super::shares::Whose;
use super::{Asker, Inner};
use crate::bridge::catalogue::{Catalogue, Entry, View};
use crate::bridge::finding;
use crate::bridge::resources::TEMPLATES;
use crate::bridge::subagent::Tool;
use crate::fault::Fault;
use crate::jsonrpc::{Id, write_result};
use crate::mcp::lifecycle::{Discovered, Initialized, Nothing, ServerCapabilities, ServerInfo};
use crate::mcp::reply::Writer;
use crate::mcp::resources::{PromptList, TemplateList};
use crate::mcp::tools::ToolList;
use crate::mcp::{Era, Method, Params, Version};
use crate::seal::{Cursor, Listing};

/// A response, and the session that it begins.
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) session: Option<String>,
}

/// Which of the gateway's own tools are told of.
struct Told {
    wait: bool,
    send: bool,
    start: bool,
    find: bool,
}

impl Told {
    /// How to use the tools, for the model.
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

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Self { body, session: None }
    }
}

impl Inner {
    pub(super) fn writer(&self, era: Era) -> Writer<'_> {
        let ttl_ms = u64::try_from(self.settings.mcp.list_ttl.as_millis()).unwrap_or(u64::MAX);
        Writer { era, server: self.server(), ttl_ms }
    }

    /// How to use what is behind a door, for the model: the operator's words, or the gateway's own. They name the tools that this
    /// caller may use.
    fn instructions(&self, door: Door<'_>, asker: &Asker) -> Option<Cow<'_, str>> {
        if let Some(written) = &self.settings.mcp.instructions {
            return Some(Cow::Borrowed(written.as_str())).filter(|text| !text.is_empty());
        }
        let catalogue = self.catalogue.load();
        let view = self.view(&catalogue, door);
        let has = |name: &str| {
            let tool = view.find(name).filter(|tool| tool.own().is_some());
            tool.is_some_and(|tool| self.shows(asker, tool))
        };
        let tools = Told {
            wait: has(Tool::Wait.name()),
            send: has(Tool::Send.name()),
            start: has(Tool::Start.name()),
            find: self.directory.agents().len() > 1 && has(finding::tool::NAME),
        };
        Some(Cow::Owned(tools.instructions()))
    }

    fn server(&self) -> ServerInfo<'_> {
        ServerInfo { name: &self.settings.mcp.server_name, version: env!("CARGO_PKG_VERSION") }
    }

    pub(super) fn view<'c>(&self, catalogue: &'c Catalogue, door: Door<'_>) -> &'c View {
        match door {
            Door::OneAgent(agent) | Door::A2a(agent, _) => catalogue.of(agent),
            Door::AllAgents
            | Door::Agents
            | Door::ApiCatalog
            | Door::Health
            | Door::Push(_)
            | Door::Metadata(_) => catalogue.all(),
        }
    }

    /// Answers a request.
    pub(super) async fn answer(
        &self,
        door: Door<'_>,
        asker: &Asker,
        method: Method,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Reply, Fault> {
        let writer = self.writer(asker.version.era());
        let nothing = || write_result(id, &Nothing {});
        let body = match method {
            Method::Ping => nothing(),
            Method::Discover => {
                writer.listed(id, &Discovered::new(self.instructions(door, asker).as_deref()))
            }
            Method::ToolsList => self.tools(door, asker, &writer, id, params)?,
            Method::ResourcesList => self.resources(door, asker, &writer, id, params)?,
            Method::ResourceTemplatesList => {
                writer.listed(id, &TemplateList { resource_templates: TEMPLATES })
            }
            Method::ResourcesRead => Box::pin(self.read(door, asker, &writer, id, params)).await?,
            Method::PromptsList => writer.listed(id, &PromptList::default()),
            Method::Complete => Box::pin(self.complete(door, asker, &writer, id, params)).await?,
            Method::SetLevel => {
                let level = params.level.ok_or_else(|| Fault::BadParams("level is missing".into()))?;
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

    /// Answers the first request of a session.
    pub(super) fn initialize(
        &self,
        door: Door<'_>,
        (asker, whose): (&Asker, &Whose),
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Reply, Fault> {
        let requested = params.protocol_version.as_ref();
        let requested = requested.ok_or_else(|| Fault::BadParams("protocolVersion is missing".into()))?;
        let version = Version::negotiate(requested.as_str());
        let instructions = self.instructions(door, asker);
        let result = Initialized {
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
        Ok(Reply { body: write_result(id, &result), session: Some(session) })
    }

    /// Whether the catalogue has the tools of all agents that this client sees. Those of an agent without a card are still
    /// to come.
    fn has_all_tools(&self, door: Door<'_>, asker: &Asker) -> bool {
        let mut seen = self.directory.agents().iter().filter(|agent| self.sees(&asker.caller, door, agent));
        let are_known = seen.all(|agent| agent.version() > 0 && agent.known().is_some());
        are_known && self.directory.versions() == self.built.load(Ordering::Acquire)
    }

    fn tools(
        &self,
        door: Door<'_>,
        asker: &Asker,
        writer: &Writer<'_>,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let after = self.cursor(asker, Listing::Tools, params)?;
        // Before the catalogue is looked at, which is made after the cards are known.
        let is_complete = self.has_all_tools(door, asker);
        let catalogue = self.catalogue.load_full();
        let shown = |tool: &Entry| self.is_usable(tool) && self.shows(asker, tool);
        let most = self.settings.mcp.page_size;
        let (page, next) = self.view(&catalogue, door).page(after.as_deref(), most, shown);
        let tools = page.iter().map(|tool| tool.listed(asker.version)).collect();
        let next_cursor = next.map(|after| self.next(asker, Listing::Tools, after));
        let list = ToolList { tools, next_cursor };
        Ok(if is_complete { writer.listed(id, &list) } else { writer.live(id, &list) })
    }

    /// Whether a tool can be called at all; one that cannot is not listed, and a call says why.
    fn is_usable(&self, tool: &Entry) -> bool {
        let agent = tool.of_agent().and_then(|tool| self.directory.find(&tool.agent));
        agent.is_none_or(|agent| agent.obstacle().is_none())
    }

    pub(super) fn cursor(
        &self,
        asker: &Asker,
        listing: Listing,
        params: &Params<'_>,
    ) -> Result<Option<String>, Fault> {
        let Some(cursor) = &params.cursor else { return Ok(None) };
        Cursor::open(&self.sealer, asker.caller.name(), cursor.as_str())
            .filter(|cursor| cursor.listing == listing)
            .map(|cursor| Some(cursor.after))
            .ok_or_else(|| Fault::BadParams("unknown cursor: begin again without one".into()))
    }

    pub(super) fn next(&self, asker: &Asker, listing: Listing, after: &str) -> String {
        Cursor { listing, after: after.to_owned() }.seal(&self.sealer, asker.caller.name())
    }
}
