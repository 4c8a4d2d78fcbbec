//! MCP resources: `resources/list` and `resources/read`.
//!
//! Reads docs/spec/mcp.md §2.5, §3.4. The holder of a handle may read its task; an unknown task and
//! a task of another caller look the same. See also `bridge::resource_view` and `subscriptions`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use http::Uri;

use super::lookup::NotFound;
use super::route::Route;
use super::{ClientContext, Inner};
use crate::a2a::TaskState;
use crate::agents::{Agent, DeclaredExtension, ResolvedAgent};
use crate::bridge::resource_uri::{REGISTRY, ResourceUri, STREAMS, agent_uri, task_uri};
use crate::bridge::resource_view::{self, StreamView, TaskInput, artifact_contents};
use crate::bridge::resource_view::{
    AgentCapabilities, AgentEntry, EndpointCount, ExtensionEntry, Reachability, registry,
};
use crate::config::CardSource;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::ClientParams;
use crate::mcp::content::{EmbeddedResource, ResourceContents};
use crate::mcp::resources::{ListResourcesResult, ReadResourceResult, Resource};
use crate::mcp::result_writer::ResultWriter;
use crate::mcp::tasks::iso8601;
use crate::seal::ListKind;
use crate::tasks::{ClientOverride, TaskEntry, TaskPhase};

const JSON: &str = "application/json";
/// Artifacts of more bytes are only named in the resource of their task.
const MOST_INLINE: usize = 64 * 1024;

/// One row of a resource list.
struct ResourceEntry {
    uri: String,
    name: String,
    description: Option<String>,
}

/// State of a task, for the list of streams.
struct StreamSummary {
    task: String,
    state: TaskState,
    watchers: usize,
    followed: bool,
    since: String,
}

impl StreamSummary {
    fn stream(&self) -> StreamView<'_> {
        let Self { task, state, watchers, followed, since } = self;
        StreamView { task, state: *state, watchers: *watchers, followed: *followed, since }
    }
}

impl Inner {
    /// Handles `resources/list`: the agents, the registry, the live streams, and the tasks of a
    /// named caller.
    pub(super) fn resources(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        writer: &ResultWriter<'_>,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let after = self.cursor(asker, ListKind::Resources, params)?;
        let most = self.settings.mcp.page_size;
        let mut lines = self.list_entries(door, asker);
        lines.sort_by(|one, other| one.uri.cmp(&other.uri));
        let start = after.map_or(0, |after| lines.partition_point(|line| line.uri <= after));
        let rest = lines.get(start..).unwrap_or_default();
        let page = rest.get(..most).unwrap_or(rest);
        let more = if rest.len() > page.len() { page.last() } else { None };
        let resources = page.iter().map(|line| Resource {
            uri: line.uri.clone(),
            name: &line.name,
            description: line.description.as_deref(),
            media_type: JSON,
        });
        let next_cursor = more.map(|line| self.next_cursor(asker, ListKind::Resources, &line.uri));
        let list = ListResourcesResult { resources: resources.collect(), next_cursor };
        // Tasks change at any time; agents do not.
        Ok(if asker.caller.is_anonymous() { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    fn list_entries(&self, door: Route<'_>, asker: &ClientContext) -> Vec<ResourceEntry> {
        let line = |uri: String, name: &str, description: &str| ResourceEntry {
            uri,
            name: name.to_owned(),
            description: Some(description.to_owned()).filter(|text| !text.is_empty()),
        };
        let mut lines = vec![
            line(
                REGISTRY.to_owned(),
                "registry",
                "Every A2A agent here: whether it can be called, and its card",
            ),
            line(STREAMS.to_owned(), "streams", "Your tasks whose agents are listened to now"),
        ];
        for (agent, known) in self.seen(asker, door) {
            let uri = agent_uri(&agent.settings.name);
            if !self.may_read(asker, Some(&agent), &uri) {
                continue;
            }
            lines.push(line(uri, &known.card.name, &known.card.description));
        }
        for (handle, entry) in self.tasks_of_caller(door, asker) {
            let state = self.client_status(&entry, asker).state.as_str();
            let name = format!("task of {}", entry.agent());
            lines.push(line(task_uri(&handle), &name, &format!("A task, {state}")));
        }
        lines
    }

    /// Returns the remembered tasks of the caller, by handle. Anonymous callers share one name and
    /// own no tasks.
    pub(super) fn tasks_of_caller(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
    ) -> Vec<(String, Arc<TaskEntry>)> {
        let mut owned = Vec::new();
        if asker.caller.is_anonymous() {
            return owned;
        }
        for entry in self.tasks.owned_by(asker.caller.name(), Instant::now()) {
            let agent = self.directory.find(entry.agent());
            if agent.is_some_and(|agent| self.can_see(&asker.caller, door, agent)) {
                owned.push((self.handle_of(&entry, asker), entry));
            }
        }
        owned.sort_by(|one, other| one.0.cmp(&other.0));
        owned
    }

    /// Handles `resources/read`.
    pub(super) async fn read(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        writer: &ResultWriter<'_>,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let unknown = || resource_not_found(uri);
        let contents = match ResourceUri::read(uri).ok_or_else(unknown)? {
            ResourceUri::Agent(name) => {
                let agent = self.directory.find(name).ok_or_else(unknown)?;
                self.authorize_resource((asker, door), Some(agent), uri)?;
                let contents = json(uri, self.described(asker, door, name).ok_or_else(unknown)?);
                return Ok(writer.cacheable(id, &ReadResourceResult { contents }));
            }
            ResourceUri::Registry if !self.may_read(asker, None, uri) => return Err(unknown()),
            ResourceUri::Registry => json(uri, self.registry(asker, door)),
            ResourceUri::Streams => json(uri, self.streams(door, asker)),
            ResourceUri::Stream(handle) => {
                let (entry, _) = self.readable(asker, door, handle).await?.ok_or_else(unknown)?;
                json(uri, resource_view::stream(&self.stream_summary(handle, &entry, asker).stream()))
            }
            ResourceUri::Task(handle) => {
                let (entry, known) = self.readable(asker, door, handle).await?.ok_or_else(unknown)?;
                self.refresh(&entry, &known).await;
                json(uri, self.shown(handle, &entry, asker))
            }
            ResourceUri::Artifact { task, artifact } => {
                let (entry, known) = self.readable(asker, door, task).await?.ok_or_else(unknown)?;
                self.refresh(&entry, &known).await;
                let found = entry.visible_state(|inside| {
                    inside.work.artifacts().find(|made| made.artifact_id == *artifact).cloned()
                });
                artifact_contents(&found.ok_or_else(unknown)?, uri)
            }
        };
        Ok(writer.live(id, &ReadResourceResult { contents }))
    }

    /// Returns the task of a handle, if this caller may read it here.
    pub(super) async fn readable(
        &self,
        asker: &ClientContext,
        door: Route<'_>,
        handle: &str,
    ) -> Result<Option<(Arc<TaskEntry>, Arc<ResolvedAgent>)>, Fault> {
        let Some((agent, named)) = self.open_handle(asker, door, handle) else { return Ok(None) };
        let method = crate::mcp::Method::ResourcesRead;
        match self.authorize_task((asker, door), method, &agent, || Fault::UnknownTask) {
            Err(Fault::UnknownTask) => return Ok(None),
            permitted => permitted?,
        }
        match self.entry(asker, &agent, &named).await {
            Ok((entry, known)) => {
                entry.own(asker.caller.name());
                Ok(Some((entry, known)))
            }
            Err(NotFound::Unknown) => Ok(None),
            Err(not_found) => Err(not_found.fault()),
        }
    }

    /// Returns the description of an agent as JSON: the operator's manifest as it was written, with
    /// its references; without one, the agent's card. Hidden skills are left out of both.
    fn described(&self, asker: &ClientContext, door: Route<'_>, name: &str) -> Option<String> {
        let agents = self.seen(asker, door);
        let (agent, known) = agents.into_iter().find(|(agent, _)| agent.settings.name == name)?;
        let skills = self.seen_skills(&asker.caller, &agent);
        match &agent.settings.manifest {
            Some(manifest) => skills.manifest(&manifest.text).map(Cow::into_owned),
            None => skills.card(&known.card.raw).map(|card| card.get().to_owned()),
        }
    }

    fn shown(&self, handle: &str, entry: &TaskEntry, asker: &ClientContext) -> String {
        let agent = entry.agent().as_ref();
        let state = self.client_status(entry, asker).state;
        let audience = self.audience(asker, agent);
        entry.visible_state(|inside| {
            let failure = match inside.phase() {
                TaskPhase::Failed(trouble) => Some(trouble.public_message(agent)),
                TaskPhase::Running | TaskPhase::Asking(..) | TaskPhase::Finished => None,
            };
            let context = audience.context(&inside.work);
            let seen = TaskInput {
                work: &inside.work,
                state,
                failure: failure.as_deref(),
                task: handle,
                context: context.as_deref(),
                agent,
                created_at: &iso8601(inside.created.unix_ms),
                last_updated_at: &iso8601(inside.changed.unix_ms),
                cancelled: inside.verdict == Some(ClientOverride::Cancelled),
            };
            resource_view::task(&seen, MOST_INLINE)
        })
    }

    fn stream_summary(&self, handle: &str, entry: &TaskEntry, asker: &ClientContext) -> StreamSummary {
        let state = self.client_status(entry, asker).state;
        entry.visible_state(|inside| StreamSummary {
            task: handle.to_owned(),
            state,
            watchers: inside.watchers(),
            followed: inside.is_followed(),
            since: iso8601(inside.created.unix_ms),
        })
    }

    fn streams(&self, door: Route<'_>, asker: &ClientContext) -> String {
        let owned = self.tasks_of_caller(door, asker).into_iter().filter(|(_, entry)| is_live(entry));
        let flows: Vec<StreamSummary> =
            owned.map(|(handle, entry)| self.stream_summary(&handle, &entry, asker)).collect();
        resource_view::streams(&flows.iter().map(StreamSummary::stream).collect::<Vec<_>>())
    }

    fn registry(&self, asker: &ClientContext, door: Route<'_>) -> String {
        let behind = self.directory.agents().iter().filter(|agent| self.can_see(&asker.caller, door, agent));
        let told: Vec<_> = behind
            .map(|agent| {
                let at = (address(agent), agent.last_seen().map(iso8601));
                let known = agent.known();
                let skills = self.seen_skills(&asker.caller, agent);
                let card = known.as_ref().and_then(|known| skills.card(&known.card.raw).map(Cow::into_owned));
                (agent, known, card, (at, agent.unsupported_required()))
            })
            .collect();
        let entries = told.iter().map(|(agent, known, card, ((url, last_seen), obstacle))| AgentEntry {
            name: &agent.settings.name,
            url: url.as_deref(),
            status: reach(agent),
            reason: obstacle.as_deref(),
            last_seen: last_seen.as_deref(),
            capabilities: known.as_ref().map(|known| AgentCapabilities {
                streaming: known.card.streaming,
                push_notifications: known.card.push_notifications,
            }),
            endpoints: endpoints(agent),
            extensions: known.iter().flat_map(|known| agent.declared(&known.card)).map(extension).collect(),
            card: card.as_deref(),
        });
        registry(&entries.collect::<Vec<_>>())
    }

    /// Returns the agents on this route with a known card, by name.
    pub(super) fn seen(
        &self,
        asker: &ClientContext,
        door: Route<'_>,
    ) -> Vec<(Arc<Agent>, Arc<ResolvedAgent>)> {
        let behind = self.directory.agents().iter().filter(|agent| self.can_see(&asker.caller, door, agent));
        behind.filter_map(|agent| Some((agent.clone(), agent.known()?))).collect()
    }
}

/// Returns the reachability of an agent as of the last fetch of its card.
pub(super) fn reach(agent: &Agent) -> Reachability {
    match (agent.problem(), agent.known()) {
        (Some(_), _) => Reachability::Unreachable,
        (None, Some(known)) if agent.obstacle_of(&known.card).is_some() => Reachability::Unusable,
        (None, Some(_)) => Reachability::Ready,
        (None, None) => Reachability::Unknown,
    }
}

fn endpoints(agent: &Agent) -> Option<EndpointCount> {
    let all = Some(agent.endpoints()).filter(|all| all.len() > 1)?;
    Some(EndpointCount { total: all.len(), up: all.iter().filter(|each| each.rests.is_none()).count() })
}

fn extension(declared: DeclaredExtension<'_>) -> ExtensionEntry<'_> {
    let DeclaredExtension { uri, required, active } = declared;
    ExtensionEntry { uri, required, active }
}

/// Returns the agent's URL; before its card is known, the URL of the card. The query is left out:
/// it may be a secret.
fn address(agent: &Agent) -> Option<String> {
    let known = agent.known().map(|known| known.interface.url.clone());
    let url = known.or_else(|| match &agent.settings.card {
        CardSource::Url(url) => Some(url.clone()),
        CardSource::File(_) => None,
    })?;
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}{}", uri.scheme_str()?, uri.authority()?, uri.path()))
}

/// Returns true if a task has a live stream.
pub(super) fn is_live(entry: &TaskEntry) -> bool {
    entry.visible_state(|inside| inside.is_followed() && !inside.is_finished())
}

pub(super) fn resource_not_found(uri: &str) -> Fault {
    Fault::NoSuchResource(uri.chars().take(1024).collect())
}

fn json(uri: &str, text: String) -> Vec<EmbeddedResource> {
    vec![EmbeddedResource {
        uri: uri.to_owned(),
        media_type: Some(JSON.to_owned()),
        content: ResourceContents::Text(text),
    }]
}
