//! MCP methods that the gateway answers without an agent: lists, completions, the first request.
//!
//! `completion/complete` gives values for the variables of resource templates: agents that the
//! caller may use, tasks and live streams of a named caller, and artifacts of a task by its handle.
//! Arguments of prompts have the values of `prompts`. Other arguments have no completions. Reads docs/spec/mcp.md §2.6.

use std::borrow::Cow;

use super::McpServer;
use crate::bridge::catalogue::ToolRef;
use crate::bridge::search;
use crate::bridge::task_tools::TaskTool;
use crate::calls::{CallRequest, ClientContext};
use crate::discovery::view;
use crate::fault::Fault;
use crate::jsonrpc::{Object, Text, write_result};
use crate::mcp::lifecycle::{DiscoverResult, EmptyResult, InitializeResult, ServerCapabilities};
use crate::mcp::resources::{CompleteResult, Completion, ListResourceTemplatesResult, ListResourcesResult};
use crate::mcp::result_writer::ResultWriter;
use crate::mcp::tools::ListToolsResult;
use crate::mcp::{ClientParams, Method, Version};
use crate::quota::QuotaOwner;
use crate::resources::{CompletionRequest, ListRequest, ReadResource, ResourceRequest};
use crate::seal::{ListKind, PageCursor};
use crate::sessions::{Agreed, SessionClient};

/// Most values of one completion; the limit of MCP.
const MAX_COMPLETIONS: usize = 100;

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

impl McpServer {
    /// Returns the instructions for the model on this route: the operator's text, or the gateway's
    /// own. They name the tools that this caller may use.
    fn instructions(&self, client: &ClientContext<'_>) -> Option<Cow<'_, str>> {
        if let Some(written) = &self.settings.instructions {
            return Some(Cow::Borrowed(written.as_str())).filter(|text| !text.is_empty());
        }
        let catalogue = self.discovery.catalogue.load();
        let view = view(&catalogue, client.route);
        let has = |name: &str| {
            let tool = view.find(name).filter(|tool| tool.own().is_some());
            tool.is_some_and(|tool| self.authorizer().is_tool_visible(client.requester(), tool))
        };
        let tools = AdvertisedTools {
            wait: has(TaskTool::Wait.name()),
            send: has(TaskTool::Send.name()),
            start: has(TaskTool::Start.name()),
            find: self.discovery.directory.agents().len() > 1 && has(search::tool::NAME),
        };
        Some(Cow::Owned(tools.instructions()))
    }

    /// Handles a request.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) async fn handle(
        &self,
        method: Method,
        request: CallRequest<'_>,
    ) -> Result<MethodReply, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let writer = self.writer(client.era());
        let nothing = || write_result(id, &EmptyResult {});
        let shows_tasks = match method {
            Method::ResourcesList | Method::Complete => true,
            // Those of the memory bank and of batches name no tasks.
            Method::ResourcesRead => params.uri.as_ref().is_some_and(|uri| {
                !["memory:", "batchtools:"].iter().any(|scheme| uri.as_str().starts_with(scheme))
            }),
            _ => false,
        };
        if shows_tasks {
            self.lookup().learn_tasks_of_caller(client).await;
        }
        let body = match method {
            Method::Ping => nothing(),
            Method::Discover => {
                writer.cacheable(id, &DiscoverResult::new(self.instructions(client).as_deref()))
            }
            Method::ToolsList => self.list_tools(request)?,
            Method::ResourcesList => self.list_resources(request)?,
            Method::ResourceTemplatesList => {
                let resource_templates = self.resources.templates();
                writer.cacheable(id, &ListResourceTemplatesResult { resource_templates })
            }
            Method::ResourcesRead => Box::pin(self.read_resource(request)).await?,
            Method::PromptsList => self.list_prompts(request)?,
            Method::PromptsGet => self.get_prompt(request)?,
            Method::Complete => Box::pin(self.complete(request)).await?,
            Method::SetLevel => {
                let level = params.level.ok_or_else(|| Fault::InvalidParams("level is missing".into()))?;
                if let Some(session) = &client.session {
                    self.sessions.set_level(session, level);
                }
                nothing()
            }
            Method::ResourcesSubscribe => {
                Box::pin(self.subscribe(client, params)).await?;
                nothing()
            }
            Method::ResourcesUnsubscribe => {
                Box::pin(self.unsubscribe(client, params)).await?;
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
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] without a revision.
    pub(super) fn initialize(
        &self,
        request: CallRequest<'_>,
        owner: &QuotaOwner,
    ) -> Result<MethodReply, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let requested = params.protocol_version.as_ref();
        let requested = requested.ok_or_else(|| Fault::InvalidParams("protocolVersion is missing".into()))?;
        let version = Version::negotiate(requested.as_str());
        let instructions = self.instructions(client);
        let result = InitializeResult {
            protocol_version: version.as_str(),
            capabilities: ServerCapabilities::legacy(version, !client.caller.is_anonymous()),
            server_info: self.settings.identity.implementation(),
            instructions: instructions.as_deref(),
        };
        let agreed = Agreed {
            version,
            capabilities: params.capabilities.unwrap_or_default(),
            client: params.client_name().and_then(|name| self.clients.mark_of(name)),
            software: params.client_software(),
        };
        let session = self.sessions.begin(&SessionClient { caller: client.caller.name(), owner }, agreed);
        Ok(MethodReply { body: write_result(id, &result), session: Some(session) })
    }

    /// Returns true if the catalogue has the tools of all agents that this client sees. The tools
    /// of an agent without a card are still missing.
    pub(super) fn has_all_tools(&self, client: &ClientContext<'_>) -> bool {
        let mut visible = self.authorizer().visible_agents(client.requester());
        let are_known = visible.all(|agent| agent.version() > 0 && agent.known().is_some());
        are_known && self.discovery.catalogue.is_current()
    }

    fn list_tools(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let after = self.open_cursor(client, ListKind::Tools, params)?;
        // Checked before the catalogue is loaded, which is built after the cards are known.
        let is_complete = self.has_all_tools(client);
        let catalogue = self.discovery.catalogue.load_full();
        let is_listed = |tool: &ToolRef| {
            self.is_callable(tool) && self.authorizer().is_tool_visible(client.requester(), tool)
        };
        let limit = self.settings.page_size;
        let (page, next) = view(&catalogue, client.route).page(after.as_deref(), limit, is_listed);
        let tools = page.iter().map(|tool| tool.listed(client.version)).collect();
        let next_cursor = next.map(|after| self.seal_cursor(client, ListKind::Tools, after));
        let list = ListToolsResult { tools, next_cursor };
        let writer = self.writer(client.era());
        Ok(if is_complete { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    /// Returns true if a tool can be called at all. Other tools are not listed, and a call returns
    /// the reason.
    fn is_callable(&self, tool: &ToolRef) -> bool {
        let agent = tool.of_agent().and_then(|tool| self.discovery.directory.find(&tool.agent));
        agent.is_none_or(|agent| agent.unsupported_required().is_none())
    }

    /// Returns the position after which a page begins; `None` for the first page.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for a cursor of another list or caller.
    pub(super) fn open_cursor(
        &self,
        client: &ClientContext<'_>,
        listing: ListKind,
        params: &ClientParams<'_>,
    ) -> Result<Option<String>, Fault> {
        let Some(cursor) = &params.cursor else { return Ok(None) };
        PageCursor::open(&self.discovery.sealer, client.caller.name(), cursor.as_str())
            .filter(|cursor| cursor.listing == listing)
            .map(|cursor| Some(cursor.after))
            .ok_or_else(|| Fault::InvalidParams("unknown cursor: begin again without one".into()))
    }

    /// Returns the cursor of the page after this entry.
    pub(super) fn seal_cursor(&self, client: &ClientContext<'_>, listing: ListKind, after: &str) -> String {
        PageCursor { listing, after: after.to_owned() }.seal(&self.discovery.sealer, client.caller.name())
    }

    /// Returns the page of sorted entries after this position, and the cursor of the next page.
    pub(super) fn page<'l, T>(
        &self,
        client: &ClientContext<'_>,
        listing: ListKind,
        params: &ClientParams<'_>,
        sorted: &'l [T],
        key: impl Fn(&T) -> &str,
    ) -> Result<(&'l [T], Option<String>), Fault> {
        let after = self.open_cursor(client, listing, params)?;
        let start = after.map_or(0, |after| sorted.partition_point(|entry| key(entry) <= after.as_str()));
        let rest = sorted.get(start..).unwrap_or_default();
        let page = rest.get(..self.settings.page_size).unwrap_or(rest);
        let last = if rest.len() > page.len() { page.last() } else { None };
        Ok((page, last.map(|last| self.seal_cursor(client, listing, key(last)))))
    }

    /// Handles `resources/list`.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for an unknown cursor.
    fn list_resources(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let after = self.open_cursor(client, ListKind::Resources, params)?;
        let limit = self.settings.page_size;
        let (resources, has_more) =
            self.resources.list(ListRequest { client, after: after.as_deref(), limit });
        let last = resources.last().filter(|_| has_more);
        let next_cursor = last.map(|last| self.seal_cursor(client, ListKind::Resources, &last.uri));
        let list = ListResourcesResult { resources, next_cursor };
        let writer = self.writer(client.era());
        // Tasks change at any time; agents do not.
        Ok(if client.caller.is_anonymous() { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    /// Handles `resources/read`.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    async fn read_resource(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let ReadResource { result, policy, held } =
            self.resources.read(ResourceRequest { client, uri }).await?;
        let writer = ResultWriter { ttl_ms: policy.ttl_ms(), ..self.writer(client.era()) };
        let encoded = writer.cacheable(id, &result);
        drop(held);
        Ok(encoded)
    }

    /// Returns the completions of an argument.
    async fn complete(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let (Some(Object(reference)), Some(Object(argument))) = (&params.reference, &params.argument) else {
            return Err(Fault::InvalidParams("ref and argument are needed".into()));
        };
        let template = reference.uri.as_ref().map(Text::as_str).unwrap_or_default();
        let variable = argument.name.as_str();
        let mut all = match &reference.name {
            Some(prompt) => self.prompt_values(client, prompt.as_str(), variable),
            None => self.resources.complete(CompletionRequest { client, template, variable, params }).await?,
        };
        all.retain(|value| value.starts_with(argument.value.as_str()));
        let total = all.len();
        let values: Vec<&str> = all.iter().take(MAX_COMPLETIONS).map(String::as_str).collect();
        let has_more = total > values.len();
        let completion = Completion { values, total, has_more };
        Ok(self.writer(client.era()).uncacheable(id, &CompleteResult { completion }))
    }
}
