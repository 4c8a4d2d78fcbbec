//! MCP resources: `resources/list` and `resources/read`.
//!
//! Reads docs/spec/mcp.md §2.5, §3.4. The holder of a handle may read its task; an unknown task and
//! a task of another caller look the same. See also `bridge::resource_view` and `subscriptions`.

use std::borrow::Cow;
use std::sync::Arc;

use http::Uri;
use serde_json::value::RawValue;

use super::McpServer;
use crate::a2a::TaskState;
use crate::agents::{Agent, DeclaredExtension, ResolvedAgent};
use crate::bridge::resource_uri::{REGISTRY, ResourceUri, STREAMS, agent_uri, task_uri};
use crate::bridge::resource_view::{self, StreamView, TaskInput, artifact_contents};
use crate::bridge::resource_view::{AgentCapabilities, AgentEntry, EndpointCount, ExtensionEntry, registry};
use crate::calls::{CallRequest, ClientContext};
use crate::config::CardSource;
use crate::discovery::reachability;
use crate::fault::Fault;
use crate::mcp::content::{EmbeddedResource, ResourceContents};
use crate::mcp::resources::{ListResourcesResult, ReadResourceResult, Resource};
use crate::mcp::tasks::iso8601;
use crate::seal::ListKind;
use crate::tasks::{ClientOverride, TaskEntry, TaskPhase};

const JSON: &str = "application/json";
/// Artifacts of more bytes are only named in the resource of their task.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// One row of a resource list.
struct ResourceEntry {
    uri: String,
    name: String,
    description: Option<String>,
}

/// An agent in the registry, with the texts of its entry.
struct DescribedAgent<'a> {
    agent: &'a Arc<Agent>,
    known: Option<Arc<ResolvedAgent>>,
    card: Option<Box<RawValue>>,
    url: Option<String>,
    last_seen: Option<String>,
    obstacle: Option<String>,
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

impl McpServer {
    /// Handles `resources/list`: the agents, the registry, the live streams, and the tasks of a
    /// named caller.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for an unknown cursor.
    pub(super) fn list_resources(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params } = request;
        let mut entries = self.list_entries(client);
        entries.sort_by(|one, other| one.uri.cmp(&other.uri));
        let (page, next_cursor) =
            self.page(client, ListKind::Resources, params, &entries, |entry| &entry.uri)?;
        let resources = page.iter().map(|entry| Resource {
            uri: entry.uri.clone(),
            name: &entry.name,
            description: entry.description.as_deref(),
            media_type: JSON,
        });
        let list = ListResourcesResult { resources: resources.collect(), next_cursor };
        let writer = self.writer(client.era());
        // Tasks change at any time; agents do not.
        Ok(if client.caller.is_anonymous() { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    fn list_entries(&self, client: &ClientContext<'_>) -> Vec<ResourceEntry> {
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
        for (agent, known) in self.known_agents(client) {
            let uri = agent_uri(&agent.settings.name);
            if !self.authorizer().may_read(&client.caller, Some(&agent), &uri) {
                continue;
            }
            let name = agent.settings.manifest.as_ref().map_or(&known.card.name, |manifest| &manifest.name);
            lines.push(line(uri, name, &known.card.description));
        }
        for (handle, entry) in self.lookup().tasks_of_caller(client) {
            let state = self.lookup().client_status(&entry, client).state.as_str();
            let name = format!("task of {}", entry.agent());
            lines.push(line(task_uri(&handle), &name, &format!("A task, {state}")));
        }
        lines
    }

    /// Handles `resources/read`.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) async fn read_resource(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params } = request;
        let writer = self.writer(client.era());
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let unknown = || Fault::no_such_resource(uri);
        let contents = match ResourceUri::read(uri).ok_or_else(unknown)? {
            ResourceUri::Agent(name) => {
                let agent = self.discovery.directory.find(name).ok_or_else(unknown)?;
                self.authorizer().authorize_resource(client.requester(), Some(agent), uri)?;
                let contents = json(uri, self.describe_agent(client, name).ok_or_else(unknown)?);
                return Ok(writer.cacheable(id, &ReadResourceResult { contents }));
            }
            ResourceUri::Registry if !self.authorizer().may_read(&client.caller, None, uri) => {
                return Err(unknown());
            }
            ResourceUri::Registry => json(uri, self.registry(client)),
            ResourceUri::Streams => json(uri, self.streams(client)),
            ResourceUri::Stream(handle) => {
                let (entry, _) = self.lookup().readable(client, handle).await?.ok_or_else(unknown)?;
                json(uri, resource_view::stream(&self.stream_summary(handle, &entry, client).stream()))
            }
            ResourceUri::Task(handle) => {
                let (entry, known) = self.lookup().readable(client, handle).await?.ok_or_else(unknown)?;
                self.lookup().refresh(&entry, &known).await;
                json(uri, self.describe_task(handle, &entry, client))
            }
            ResourceUri::Artifact { task, artifact } => {
                let (entry, known) = self.lookup().readable(client, task).await?.ok_or_else(unknown)?;
                self.lookup().refresh(&entry, &known).await;
                let found = entry.visible_state(|inside| {
                    inside.work.artifacts().find(|made| made.artifact_id == *artifact).cloned()
                });
                artifact_contents(&found.ok_or_else(unknown)?, uri)
            }
        };
        Ok(writer.live(id, &ReadResourceResult { contents }))
    }

    /// Returns the description of an agent as JSON: the operator's manifest as it was written, with
    /// its references; without one, the agent's card. Hidden skills are left out of both.
    fn describe_agent(&self, client: &ClientContext<'_>, name: &str) -> Option<String> {
        let agents = self.known_agents(client);
        let (agent, known) = agents.into_iter().find(|(agent, _)| agent.settings.name == name)?;
        let skills = self.discovery.visible_skills(&client.caller, &agent);
        match &agent.settings.manifest {
            Some(manifest) => skills.manifest(&manifest.text).map(Cow::into_owned),
            None => skills.card(&known.card.raw).map(|card| card.get().to_owned()),
        }
    }

    fn describe_task(&self, handle: &str, entry: &TaskEntry, client: &ClientContext<'_>) -> String {
        let agent = entry.agent().as_ref();
        let state = self.lookup().client_status(entry, client).state;
        let context_of = self.lookup().result_context(client, agent);
        entry.visible_state(|inside| {
            let failure = match inside.phase() {
                TaskPhase::Failed(trouble) => Some(trouble.public_message(agent)),
                TaskPhase::Running | TaskPhase::Asking(..) | TaskPhase::Finished => None,
            };
            let context = context_of.context(&inside.work);
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
            resource_view::task(&seen, MAX_INLINE_BYTES)
        })
    }

    fn stream_summary(&self, handle: &str, entry: &TaskEntry, client: &ClientContext<'_>) -> StreamSummary {
        let state = self.lookup().client_status(entry, client).state;
        entry.visible_state(|inside| StreamSummary {
            task: handle.to_owned(),
            state,
            watchers: inside.watchers(),
            followed: inside.is_followed(),
            since: iso8601(inside.created.unix_ms),
        })
    }

    fn streams(&self, client: &ClientContext<'_>) -> String {
        let owned = self.lookup().tasks_of_caller(client).into_iter().filter(|(_, entry)| is_live(entry));
        let flows: Vec<StreamSummary> =
            owned.map(|(handle, entry)| self.stream_summary(&handle, &entry, client)).collect();
        resource_view::streams(&flows.iter().map(StreamSummary::stream).collect::<Vec<_>>())
    }

    fn registry(&self, client: &ClientContext<'_>) -> String {
        let described: Vec<_> = self
            .authorizer()
            .visible_agents(client.requester())
            .map(|agent| {
                let known = agent.known();
                let skills = self.discovery.visible_skills(&client.caller, agent);
                let card = known.as_ref().and_then(|known| skills.card(&known.card.raw).map(Cow::into_owned));
                DescribedAgent {
                    agent,
                    known,
                    card,
                    url: address(agent),
                    last_seen: agent.last_seen().map(iso8601),
                    obstacle: agent.unsupported_required(),
                }
            })
            .collect();
        let entries =
            described.iter().map(|DescribedAgent { agent, known, card, url, last_seen, obstacle }| {
                AgentEntry {
                    name: &agent.settings.name,
                    url: url.as_deref(),
                    status: reachability(agent),
                    reason: obstacle.as_deref(),
                    last_seen: last_seen.as_deref(),
                    capabilities: known.as_ref().map(|known| AgentCapabilities {
                        streaming: known.card.streaming,
                        push_notifications: known.card.push_notifications,
                    }),
                    endpoints: endpoints(agent),
                    extensions: known
                        .iter()
                        .flat_map(|known| agent.declared(&known.card))
                        .map(extension)
                        .collect(),
                    card: card.as_deref(),
                }
            });
        registry(&entries.collect::<Vec<_>>())
    }

    /// Returns the agents on this route with a known card, by name.
    pub(super) fn known_agents(&self, client: &ClientContext<'_>) -> Vec<(Arc<Agent>, Arc<ResolvedAgent>)> {
        let visible = self.authorizer().visible_agents(client.requester());
        visible.filter_map(|agent| Some((agent.clone(), agent.known()?))).collect()
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

fn json(uri: &str, text: String) -> Vec<EmbeddedResource> {
    vec![EmbeddedResource {
        uri: uri.to_owned(),
        media_type: Some(JSON.to_owned()),
        content: ResourceContents::Text(text),
    }]
}
