//! The resources of agents, tasks and live streams: `a2a-agent://…` and `a2a://…`.
//!
//! Reads docs/spec/mcp.md §2.5, §3.4. The holder of a handle may read its task; an unknown task and
//! a task of another caller look the same. See also `bridge::resource_view` for the shapes.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::value::RawValue;

use super::{
    AgentTypes, ChangeSource, CompletionRequest, JSON, ListRequest, ListedResource, ProvidedContent,
    ResourceFacts, ResourcePermissions, ResourceProvider, ResourceRequest,
};
use crate::a2a::{Artifact, PartBody};
use crate::access::Authorizer;
use crate::agents::{Agent, AgentFile, DeclaredExtension, ResolvedAgent};
use crate::bridge::resource_uri::{
    REGISTRY, ResourceUri, STREAMS, TEMPLATES, TemplateVariable, agent_uri, task_uri,
};
use crate::bridge::resource_view::{
    self, AgentEntry, EndpointCount, ExtensionEntry, StreamEvent, StreamView, TaskInput, artifact_contents,
    registry,
};
use crate::bridge::task_tools::TaskTool;
use crate::calls::{ClientContext, TaskLookup};
use crate::config::{ArtifactFiles, CardSource};
use crate::discovery::{Discovery, reachability};
use crate::fault::{AgentFailure, Fault};
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tasks::iso8601;
use crate::mcp::tools::{EmbeddedResource, ResourceContents};
use crate::quota::{AnswerRoom, BytePermit};
use crate::tasks::{ClientOverride, TaskEntry, TaskPhase, Timestamp};
use crate::transport::HttpClient;

/// Artifacts of more bytes are only named in the resource of their task.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Schemes of the URIs.
const SCHEMES: [&str; 2] = ["a2a://", "a2a-agent://"];

/// An agent in the registry, with the texts of its entry.
struct DescribedAgent<'a> {
    agent: &'a Arc<Agent>,
    /// Ids of the skills that the caller sees.
    skills: Vec<String>,
    known: Option<Arc<ResolvedAgent>>,
    card: Option<Box<RawValue>>,
    url: Option<String>,
    last_seen: Option<String>,
    obstacle: Option<String>,
}

impl DescribedAgent<'_> {
    fn entry<'s>(&'s self, types: &'s AgentTypes) -> AgentEntry<'s> {
        let Self { agent, skills, known, card, url, last_seen, obstacle } = self;
        let declared = known.iter().flat_map(|known| {
            let flags =
                [("streaming", known.card.streaming), ("pushNotifications", known.card.push_notifications)];
            flags.into_iter().filter(|(_, has)| *has).map(|(name, _)| name)
        });
        AgentEntry {
            name: &agent.settings.name,
            agent_type: types.of(&agent.settings.name),
            url: url.as_deref(),
            status: reachability(agent),
            reason: obstacle.as_deref(),
            last_seen: last_seen.as_deref(),
            capabilities: declared.chain(skills.iter().map(String::as_str)).collect(),
            endpoints: endpoints(agent),
            extensions: known.iter().flat_map(|known| agent.declared(&known.card)).map(extension).collect(),
            agent_card: card.as_deref(),
        }
    }
}

/// Provider of the resources of agents, tasks and streams.
pub(crate) struct A2aResources {
    pub(crate) lookup: Arc<TaskLookup>,
    pub(crate) discovery: Arc<Discovery>,
    /// Time at which the process began: the time of the last change of an empty list.
    pub(crate) started: Timestamp,
    pub(crate) agent_types: AgentTypes,
    /// Settings of files at the agents' origins; `None`: only their URLs are served.
    pub(crate) files: Option<ArtifactFiles>,
    pub(crate) http_client: HttpClient,
}

#[async_trait]
impl ResourceProvider for A2aResources {
    fn family(&self) -> &'static str {
        "a2a"
    }

    fn serves(&self, uri: &str) -> bool {
        SCHEMES.iter().any(|scheme| uri.starts_with(scheme))
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        TEMPLATES.to_vec()
    }

    /// Lists the agents, the registry, the live streams, and the tasks of a named caller.
    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let line = |uri: String, name: &str, description: &str, facts| ListedResource {
            uri,
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            media_type: JSON.to_owned(),
            facts,
        };
        let mut lines = vec![line(
            STREAMS.to_owned(),
            "streams",
            "Your tasks with an open stream of their agent",
            self.streams_facts(client),
        )];
        if self.authorizer().may_read(&client.caller, None, REGISTRY) {
            let about = "Every A2A agent here: whether it can be called, and its card";
            lines.push(line(REGISTRY.to_owned(), "registry", about, self.registry_facts(client)));
        }
        for (agent, known) in self.known_agents(client) {
            let uri = agent_uri(&agent.settings.name);
            if !self.authorizer().may_read(&client.caller, Some(&agent), &uri) {
                continue;
            }
            let facts = self.agent_facts(client, &agent);
            let name = agent.settings.manifest.as_ref().map_or(&known.card.name, |manifest| &manifest.name);
            lines.push(line(uri, name, &known.card.description, facts));
        }
        for (handle, entry) in self.lookup.tasks_of_caller(client) {
            let state = self.lookup.client_status(&entry, client).state.as_str();
            let name = format!("task of {}", entry.agent());
            let facts = self.task_facts(client, &entry);
            lines.push(line(task_uri(&handle), &name, &format!("A task, {state}"), facts));
        }
        lines
    }

    /// Authorizes agents and the registry by the rules. A handle opens for its caller alone, so the
    /// rules for resources do not apply to tasks.
    fn authorize(&self, authorizer: &Authorizer, request: ResourceRequest<'_>) -> Result<(), Fault> {
        let ResourceRequest { client, uri } = request;
        let unknown = || Fault::no_such_resource(uri);
        match ResourceUri::read(uri).ok_or_else(unknown)? {
            ResourceUri::Agent(name) => {
                let agent = self.discovery.directory.find(name).ok_or_else(unknown)?;
                authorizer.authorize_resource(client.requester(), Some(agent), uri)
            }
            ResourceUri::Registry if !authorizer.may_read(&client.caller, None, uri) => Err(unknown()),
            _ => Ok(()),
        }
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        let ResourceRequest { client, uri } = request;
        let Some(named) = ResourceUri::read(uri) else { return Ok(None) };
        Ok(match named {
            ResourceUri::Agent(name) => self
                .describe_agent(client, name)
                .map(|(agent, text)| ProvidedContent::json(uri, text, self.agent_facts(client, &agent))),
            ResourceUri::Registry => {
                Some(ProvidedContent::json(uri, self.registry(client), self.registry_facts(client)))
            }
            ResourceUri::Streams => {
                Some(ProvidedContent::json(uri, self.streams(client), self.streams_facts(client)))
            }
            ResourceUri::Stream(handle) => self.lookup.readable(client, handle).await?.map(|(entry, _)| {
                let text = resource_view::stream(&self.stream_view(handle, &entry, client));
                let facts = ResourceFacts { schema: "stream", ..self.task_facts(client, &entry) };
                ProvidedContent::json(uri, text, facts)
            }),
            ResourceUri::Task(handle) => self.fresh_task(client, handle).await?.map(|entry| {
                let view = TaskDescription { lookup: &self.lookup, agent_types: &self.agent_types, client };
                let text = view.json(handle, &entry, MAX_INLINE_BYTES);
                ProvidedContent::json(uri, text, self.task_facts(client, &entry))
            }),
            ResourceUri::Artifact { task, artifact } => {
                let Some(entry) = self.fresh_task(client, task).await? else { return Ok(None) };
                let found = entry.visible_state(|inside| {
                    inside.work.artifacts().find(|made| made.artifact_id == *artifact).cloned()
                });
                let facts = ResourceFacts { schema: "artifact", ..self.task_facts(client, &entry) };
                match found {
                    Some(found) => {
                        let (contents, held) = self.with_files(client, entry.agent(), found, uri).await?;
                        Some(ProvidedContent { contents, facts, held })
                    }
                    None => None,
                }
            }
        })
    }

    /// Subscribes to an agent, the registry or the list of streams. Tasks have watchers of their
    /// own (see `mcp_server`).
    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        Ok(match ResourceUri::read(uri) {
            Some(ResourceUri::Agent(name)) => {
                let agent = self.discovery.directory.find(name);
                let agent = agent.filter(|agent| self.authorizer().can_see(client.requester(), agent));
                agent.map(|agent| ChangeSource {
                    changes: self.discovery.catalogue.changes(),
                    mark: Box::new(|| agent.version()),
                })
            }
            Some(ResourceUri::Registry) => Some(ChangeSource {
                changes: self.discovery.directory.changes(),
                mark: Box::new(|| self.registry_mark(client)),
            }),
            // Anonymous callers own no streams.
            Some(ResourceUri::Streams) if !client.caller.is_anonymous() => {
                let changes = self.lookup.tasks.changes_of(client.caller.name());
                let seen = changes.clone();
                Some(ChangeSource { changes, mark: Box::new(move || *seen.borrow()) })
            }
            _ => None,
        })
    }

    async fn complete(&self, request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        let CompletionRequest { client, template, variable, params } = request;
        Ok(match TemplateVariable::read(template, variable) {
            Some(TemplateVariable::Agent) => {
                let agents = self.known_agents(client);
                Some(agents.iter().map(|(agent, _)| agent.settings.name.clone()).collect())
            }
            Some(TemplateVariable::Task) => Some(self.task_handles(client, false)),
            Some(TemplateVariable::Stream) => Some(self.task_handles(client, true)),
            Some(TemplateVariable::Artifact) => Some(self.artifact_ids(client, params.filled("id")).await?),
            None => None,
        })
    }

    fn loggable<'u>(&self, uri: &'u str) -> Cow<'u, str> {
        match ResourceUri::read(uri) {
            Some(ResourceUri::Task(_)) => Cow::Borrowed("a2a://task/***"),
            Some(ResourceUri::Artifact { .. }) => Cow::Borrowed("a2a://task/***/artifacts"),
            Some(ResourceUri::Stream(_)) => Cow::Borrowed("a2a://streams/***"),
            Some(ResourceUri::Agent(_) | ResourceUri::Registry | ResourceUri::Streams) => Cow::Borrowed(uri),
            None => Cow::Borrowed("(unreadable)"),
        }
    }
}

/// Describes tasks to one caller.
pub(super) struct TaskDescription<'a> {
    pub(super) lookup: &'a TaskLookup,
    pub(super) agent_types: &'a AgentTypes,
    pub(super) client: &'a ClientContext<'a>,
}

impl TaskDescription<'_> {
    /// Returns the resource of a task as JSON. Artifacts above `inline` bytes are named by their URI
    /// only.
    pub(super) fn json(&self, handle: &str, entry: &TaskEntry, inline: usize) -> String {
        let Self { lookup, agent_types, client } = *self;
        let agent = entry.agent().as_ref();
        let state = lookup.client_status(entry, client).state;
        let context_of = lookup.result_context_by_name(client, agent);
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
                agent_type: agent_types.of(agent),
                phase: lookup.settings.phase_of(inside.work.skill.as_deref()),
                created_at: &iso8601(inside.created_ms),
                last_updated_at: &iso8601(inside.changed.unix_ms),
                cancelled: inside.verdict == Some(ClientOverride::Cancelled),
            };
            resource_view::task(&seen, inline)
        })
    }
}

impl A2aResources {
    /// Returns the content of an artifact. Files at an origin of the agent are read, if that is
    /// configured; other URLs are content themselves.
    async fn with_files(
        &self,
        client: &ClientContext<'_>,
        agent: &str,
        mut artifact: Artifact,
        uri: &str,
    ) -> Result<(Vec<EmbeddedResource>, Vec<BytePermit>), Fault> {
        let without_files = |artifact: &Artifact| (artifact_contents(artifact, uri), Vec::new());
        let Some(settings) = &self.files else { return Ok(without_files(&artifact)) };
        let known = self
            .lookup
            .directory
            .find(agent)
            .and_then(|agent| self.lookup.resolved_agent(client, agent).ok());
        let Some(known) = known else { return Ok(without_files(&artifact)) };
        let until = Instant::now() + settings.timeout;
        let (mut files, mut kept) = (Vec::new(), Vec::new());
        for part in std::mem::take(&mut artifact.parts) {
            let place = match &part.body {
                PartBody::Url(url) if files.len() < settings.max_files => known.own_file(url),
                _ => None,
            };
            let Some(place) = place else {
                kept.push(part);
                continue;
            };
            let permit = self.lookup.limits.permit(client.quota_owner.as_ref());
            let mut room = AnswerRoom { limit: settings.max_bytes, permit };
            let fetched = known
                .fetch_file(
                    &self.http_client,
                    &place,
                    &mut room,
                    until.saturating_duration_since(Instant::now()),
                )
                .await;
            let file = fetched.map_err(|failure| {
                tracing::info!(agent, error = %failure, "failed to read file of agent");
                let reason = match failure {
                    AgentFailure::LimitExceeded(limit, _) => {
                        format!("a file has more than {limit} bytes (resources.files.max_bytes)")
                    }
                    failure => failure.public_message(agent),
                };
                Fault::ResourceUnavailable(reason)
            })?;
            // The file, and the same as text or base64.
            room.permit.set(file.bytes.len().saturating_mul(3)).map_err(Fault::from)?;
            files.push((file_content(file, part.media_type, uri), room.permit));
        }
        artifact.parts = kept;
        let mut contents = match artifact.parts.is_empty() && !files.is_empty() {
            true => Vec::new(),
            false => artifact_contents(&artifact, uri),
        };
        let (files, held): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        contents.extend(files);
        Ok((contents, held))
    }

    fn authorizer(&self) -> &Authorizer {
        &self.lookup.authorizer
    }

    /// Returns the task of a handle with the state that its agent reports now.
    async fn fresh_task(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Result<Option<Arc<TaskEntry>>, Fault> {
        let Some((entry, known)) = self.lookup.readable(client, handle).await? else { return Ok(None) };
        self.lookup.refresh(&entry, &known).await;
        Ok(Some(entry))
    }

    fn may_use(&self, client: &ClientContext<'_>, agent: &str, tool: TaskTool) -> bool {
        self.lookup.settings.subagent_tools && self.authorizer().may_use(&client.caller, agent, tool)
    }

    /// Returns a hash of the version and the reachability of each agent that the caller sees on this
    /// route, as the registry shows them.
    fn registry_mark(&self, client: &ClientContext<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        for agent in self.authorizer().visible_agents(client.requester()) {
            (agent.version(), reachability(agent)).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn task_facts(&self, client: &ClientContext<'_>, entry: &TaskEntry) -> ResourceFacts {
        let write = self.may_use(client, entry.agent(), TaskTool::Send);
        ResourceFacts {
            modified_ms: entry.visible_state(|inside| inside.changed.unix_ms),
            policy: CachePolicy::Realtime,
            permissions: ResourcePermissions { write, execute: false },
            schema: "task",
        }
    }

    fn agent_facts(&self, client: &ClientContext<'_>, agent: &Agent) -> ResourceFacts {
        let execute = self.may_use(client, &agent.settings.name, TaskTool::Start);
        ResourceFacts {
            modified_ms: agent.last_seen().unwrap_or(self.started.unix_ms),
            policy: CachePolicy::Static,
            permissions: ResourcePermissions { write: false, execute },
            schema: "agent",
        }
    }

    fn registry_facts(&self, client: &ClientContext<'_>) -> ResourceFacts {
        let visible = self.authorizer().visible_agents(client.requester());
        let newest = visible.filter_map(|agent| agent.last_seen()).max();
        ResourceFacts {
            modified_ms: newest.unwrap_or(self.started.unix_ms),
            policy: CachePolicy::Dynamic,
            permissions: ResourcePermissions::default(),
            schema: "registry",
        }
    }

    fn streams_facts(&self, client: &ClientContext<'_>) -> ResourceFacts {
        let owned = self.lookup.tasks_of_caller(client).into_iter();
        let newest = owned.map(|(_, entry)| entry.visible_state(|inside| inside.changed.unix_ms)).max();
        ResourceFacts {
            modified_ms: newest.unwrap_or(self.started.unix_ms),
            policy: CachePolicy::Dynamic,
            permissions: ResourcePermissions::default(),
            schema: "streams",
        }
    }

    fn task_handles(&self, client: &ClientContext<'_>, only_live: bool) -> Vec<String> {
        let owned = self.lookup.tasks_of_caller(client).into_iter();
        let wanted = owned.filter(|(_, entry)| !only_live || is_live(entry));
        wanted.map(|(handle, _)| handle).collect()
    }

    /// Returns the artifacts of the task that was filled in before; none if the task is unknown or
    /// its agent does not answer.
    async fn artifact_ids(
        &self,
        client: &ClientContext<'_>,
        task: Option<&str>,
    ) -> Result<Vec<String>, Fault> {
        let Some(task) = task else { return Ok(Vec::new()) };
        let entry = match self.lookup.readable(client, task).await {
            Ok(Some((entry, _))) => entry,
            Ok(None) | Err(Fault::AgentUnavailable) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        Ok(entry
            .visible_state(|inside| inside.work.artifacts().map(|made| made.artifact_id.clone()).collect()))
    }

    /// Returns the description of an agent as JSON: the operator's manifest as it was written, with
    /// its references; without one, the agent's card. Hidden skills are left out of both.
    fn describe_agent(&self, client: &ClientContext<'_>, name: &str) -> Option<(Arc<Agent>, String)> {
        let agents = self.known_agents(client);
        let (agent, known) = agents.into_iter().find(|(agent, _)| agent.settings.name == name)?;
        let skills = self.discovery.visible_skills(&client.caller, &agent);
        let text = match &agent.settings.manifest {
            Some(manifest) => skills.manifest(&manifest.text).map(Cow::into_owned),
            None => skills.card(&known.card.raw).map(|card| card.get().to_owned()),
        };
        drop(skills);
        text.map(|text| (agent, text))
    }

    fn stream_view(&self, handle: &str, entry: &TaskEntry, client: &ClientContext<'_>) -> StreamView {
        let state = self.lookup.client_status(entry, client).state;
        entry.visible_state(|inside| StreamView {
            task: handle.to_owned(),
            state,
            watchers: inside.watchers(),
            followed: inside.is_followed(),
            connections: inside.connections(),
            since: iso8601(inside.created_ms),
            events: StreamEvent::recent(&inside.events),
            total_events: inside.events.total(),
            client: inside.client.clone(),
        })
    }

    fn streams(&self, client: &ClientContext<'_>) -> String {
        let owned = self.lookup.tasks_of_caller(client).into_iter().filter(|(_, entry)| is_live(entry));
        let flows: Vec<StreamView> =
            owned.map(|(handle, entry)| self.stream_view(&handle, &entry, client)).collect();
        resource_view::streams(&flows)
    }

    fn registry(&self, client: &ClientContext<'_>) -> String {
        let described: Vec<_> = self
            .authorizer()
            .visible_agents(client.requester())
            .map(|agent| {
                let known = agent.known();
                let skills = self.discovery.visible_skills(&client.caller, agent);
                let card = known.as_ref().and_then(|known| skills.card(&known.card.raw).map(Cow::into_owned));
                let shown = known.iter().flat_map(|known| &known.card.skills);
                let shown = shown.filter(|skill| skills.has(&skill.id)).map(|skill| skill.id.clone());
                DescribedAgent {
                    agent,
                    skills: shown.collect(),
                    known: known.clone(),
                    card,
                    url: address(agent),
                    last_seen: agent.last_seen().map(iso8601),
                    obstacle: agent.unsupported_required(),
                }
            })
            .collect();
        let entries: Vec<_> = described.iter().map(|described| described.entry(&self.agent_types)).collect();
        let newest = described.iter().filter_map(|described| described.last_seen.as_deref()).max();
        registry(&entries, newest)
    }

    /// Returns the agents on this route with a known card, by name.
    fn known_agents(&self, client: &ClientContext<'_>) -> Vec<(Arc<Agent>, Arc<ResolvedAgent>)> {
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
    // A target of gRPC may have no scheme on the card.
    let known = known.filter(|url| !url.starts_with("//"));
    let called = || agent.endpoints().into_iter().next().map(|endpoint| endpoint.url);
    let url = known.or_else(called).or_else(|| match &agent.settings.card {
        CardSource::Url(url) => Some(url.clone()),
        CardSource::File(_) => None,
    })?;
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}{}", uri.scheme_str()?, uri.authority()?, uri.path()))
}

/// Returns the content of a file: as text if it is UTF-8 and its media type is one of text.
fn file_content(file: AgentFile, declared: Option<String>, uri: &str) -> EmbeddedResource {
    let media_type = file.media_type.or(declared).unwrap_or_else(|| "application/octet-stream".to_owned());
    let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = name.starts_with("text/") || name.ends_with("json") || name.ends_with("xml");
    let text = Some(&file.bytes).filter(|_| is_text).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let content = match text {
        Some(text) => ResourceContents::Text(text.to_owned()),
        None => ResourceContents::Blob(STANDARD.encode(&file.bytes)),
    };
    EmbeddedResource { uri: uri.to_owned(), media_type: Some(media_type), content }
}

/// Returns true if a task has a live stream.
fn is_live(entry: &TaskEntry) -> bool {
    entry.visible_state(|inside| inside.is_followed() && !inside.is_finished())
}
