//! The resources of workflows in phases: `sparc://…`.
//!
//! A workflow is the tasks of one A2A context, each in the phase that its metadata names
//! (`sparcPhase`) or that the configuration gives to its skill. Its URI holds the handle of the
//! context, which opens for its caller alone. Nothing is kept here: the task map has the tasks, and
//! its journal keeps them through a restart.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{
    AgentTypes, ChangeSource, CompletionRequest, JSON, ListRequest, ListedResource, ProvidedContent,
    ResourceFacts, ResourcePermissions, ResourceProvider, ResourceRequest, unix_ms,
};
use crate::a2a::{TaskState, clean};
use crate::agents::Agent;
use crate::bridge::output::words;
use crate::bridge::resource_uri::{artifact_uri, task_uri};
use crate::bridge::task_tools::TaskTool;
use crate::calls::{ClientContext, TaskLookup};
use crate::config::{MAX_TEMPLATE_BYTES, PHASES, Resources, Sparc, read_file};
use crate::discovery::Discovery;
use crate::fault::Fault;
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tasks::iso8601;
use crate::seal::ContextRef;
use crate::sync::lock;
use crate::tasks::{TaskEntry, TaskPhase};

/// Most tasks that one workflow shows: the newest.
const MAX_TASKS: usize = 200;
/// Most bytes of the text of one task.
const MAX_TEXT_BYTES: usize = 2048;
/// Time for which a template is served without a look at its file.
const TEMPLATE_TTL: Duration = Duration::from_secs(30);

const WORKFLOW: &str = "sparc://workflow/";
const PHASE: &str = "sparc://phase/";
const AGENT: &str = "sparc://agent/";

/// The resource that a URI names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SparcUri<'a> {
    /// The workflow of the context with this handle.
    Workflow(&'a str),
    /// The template of this phase.
    Template(&'a str),
    /// The capabilities of agents of this type.
    Capabilities(&'a str),
}

impl<'a> SparcUri<'a> {
    fn read(uri: &'a str) -> Option<Self> {
        let plain = |name: &&str| !name.is_empty() && !name.contains('/');
        if let Some(handle) = uri.strip_prefix(WORKFLOW) {
            return Some(handle).filter(plain).map(Self::Workflow);
        }
        if let Some(rest) = uri.strip_prefix(PHASE) {
            return rest.strip_suffix("/template").filter(plain).map(Self::Template);
        }
        let rest = uri.strip_prefix(AGENT)?.strip_suffix("/capabilities");
        rest.filter(plain).map(Self::Capabilities)
    }
}

/// One phase that one task went through.
struct PhaseVisit {
    phase: usize,
    /// Text of the state: that of the task, or `completed` if the task has moved on.
    state: &'static str,
    started: String,
    changed: String,
    changed_ms: u64,
    task: String,
    text: Option<String>,
    /// Id, name and description of each artifact that the agent made in the phase.
    artifacts: Vec<[Option<String>; 3]>,
    agent_type: Option<String>,
}

/// The start of a phase of one task.
struct TaskPhaseStart {
    phase: usize,
    /// Time of the agent.
    timestamp: Option<String>,
    /// Number of artifacts that the task had.
    artifacts_before: usize,
}

/// The tasks of a context.
struct WorkflowTasks {
    agent: Arc<Agent>,
    entries: Vec<Arc<TaskEntry>>,
}

/// A workflow in a list.
struct ListedWorkflow {
    agent: String,
    /// Time of the last change of one of its tasks, in milliseconds since 1970.
    modified_ms: u64,
}

/// Template of a phase as its file was read last.
struct CachedTemplate {
    text: Arc<str>,
    modified_ms: u64,
    read_at: Instant,
}

/// Provider of workflows, of the templates of their phases, and of the capabilities of agents.
pub(crate) struct SparcResources {
    lookup: Arc<TaskLookup>,
    discovery: Arc<Discovery>,
    settings: Sparc,
    has_batches: bool,
    agent_types: AgentTypes,
    /// Templates by phase: at most one for each phase.
    templates: Mutex<HashMap<&'static str, CachedTemplate>>,
    /// Never notified: for subscribers of templates.
    never: watch::Sender<u64>,
}

#[async_trait]
impl ResourceProvider for SparcResources {
    fn family(&self) -> &'static str {
        "sparc"
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![
            ResourceTemplate::fixed(
                "sparc://workflow/{contextId}",
                "workflow",
                "The tasks of one context as the phases of a workflow. The id is the contextId of a result.",
                JSON,
            ),
            ResourceTemplate::fixed(
                "sparc://phase/{phase}/template",
                "phase-template",
                "The template of a phase of a workflow",
                JSON,
            ),
            ResourceTemplate::fixed(
                "sparc://agent/{agentType}/capabilities",
                "agent-capabilities",
                "The skills of the agents of a type",
                JSON,
            ),
        ]
    }

    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let row = |uri: String, name: String, description: &str, facts| ListedResource {
            uri,
            name,
            title: None,
            description: description.to_owned(),
            media_type: JSON.to_owned(),
            facts,
        };
        let readable = |uri: &str| self.lookup.authorizer.may_read(&client.caller, None, uri);
        let templates =
            PHASES.iter().filter(|phase| self.settings.templates.contains_key(**phase)).map(|phase| {
                let about = "The template of a phase of a workflow";
                row(
                    format!("{PHASE}{phase}/template"),
                    format!("template of {phase}"),
                    about,
                    template_facts(unix_ms()),
                )
            });
        let types: BTreeSet<&str> = self.visible_types(client);
        let capabilities = types.into_iter().map(|agent_type| {
            let about = "The skills of the agents of this type";
            let facts = self.capabilities_facts(client, agent_type);
            row(
                format!("{AGENT}{agent_type}/capabilities"),
                format!("capabilities of {agent_type}"),
                about,
                facts,
            )
        });
        let workflows =
            self.workflows(client).into_iter().map(|(handle, ListedWorkflow { agent, modified_ms })| {
                let about = format!("The workflow of a conversation with {agent}");
                let facts = ResourceFacts { modified_ms, ..self.workflow_facts(client, &agent) };
                row(format!("{WORKFLOW}{handle}"), format!("workflow of {agent}"), &about, facts)
            });
        templates.chain(capabilities).chain(workflows).filter(|row| readable(&row.uri)).collect()
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        let ResourceRequest { client, uri } = request;
        Ok(match SparcUri::read(uri) {
            Some(SparcUri::Workflow(handle)) => self.read_workflow(client, uri, handle).await,
            Some(SparcUri::Template(phase)) => self.read_template(uri, phase).await,
            Some(SparcUri::Capabilities(agent_type)) => self.read_capabilities(client, uri, agent_type),
            None => None,
        })
    }

    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        Ok(match SparcUri::read(uri) {
            Some(SparcUri::Workflow(handle)) => {
                let handle = handle.to_owned();
                self.tasks_of(client, &handle).map(|_| ChangeSource {
                    changes: self.lookup.tasks.changes_of(client.caller.name()),
                    mark: Box::new(move || self.workflow_mark(client, &handle)),
                })
            }
            Some(SparcUri::Capabilities(agent_type)) => {
                let agent_type = agent_type.to_owned();
                self.visible_types(client).contains(agent_type.as_str()).then(|| ChangeSource {
                    changes: self.discovery.catalogue.changes(),
                    mark: Box::new(move || self.capabilities_mark(client, &agent_type)),
                })
            }
            Some(SparcUri::Template(phase)) if self.settings.templates.contains_key(phase) => {
                Some(ChangeSource { changes: self.never.subscribe(), mark: Box::new(|| 0) })
            }
            Some(SparcUri::Template(_)) | None => None,
        })
    }

    async fn complete(&self, request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        let client = request.client;
        Ok(match (request.template, request.variable) {
            ("sparc://workflow/{contextId}", "contextId") => {
                Some(self.workflows(client).into_keys().collect())
            }
            ("sparc://phase/{phase}/template", "phase") => {
                let has = |phase: &&&str| self.settings.templates.contains_key(**phase);
                Some(PHASES.iter().filter(has).map(|phase| (*phase).to_owned()).collect())
            }
            ("sparc://agent/{agentType}/capabilities", "agentType") => {
                Some(self.visible_types(client).into_iter().map(str::to_owned).collect())
            }
            _ => None,
        })
    }

    fn loggable<'u>(&self, uri: &'u str) -> Cow<'u, str> {
        Cow::Borrowed(if uri.starts_with(WORKFLOW) { "sparc://workflow/***" } else { uri })
    }
}

impl SparcResources {
    pub(crate) fn new(lookup: Arc<TaskLookup>, discovery: Arc<Discovery>, settings: &Resources) -> Self {
        Self {
            lookup,
            discovery,
            settings: settings.sparc.clone().unwrap_or_default(),
            has_batches: settings.batchtools.is_some(),
            agent_types: AgentTypes::new(settings),
            templates: Mutex::default(),
            never: watch::Sender::new(0),
        }
    }

    /// Returns the tasks of the context with this handle, the oldest first; `None` if the handle
    /// does not open for the caller on this route.
    fn tasks_of(&self, client: &ClientContext<'_>, handle: &str) -> Option<WorkflowTasks> {
        let caller = client.caller.name();
        let ContextRef { agent, context } = ContextRef::open(&self.lookup.sealer, caller, handle)?;
        let agent = self.lookup.directory.find(&agent)?;
        if !self.lookup.authorizer.can_see(client.requester(), agent) {
            return None;
        }
        let mut entries = self.lookup.tasks.owned_by(caller, Instant::now());
        entries.retain(|entry| {
            **entry.agent() == *agent.settings.name
                && entry.visible_state(|inside| inside.work.context_id.as_deref() == Some(&context))
        });
        entries.sort_by_key(|entry| entry.visible_state(|inside| inside.created_ms));
        let surplus = entries.len().saturating_sub(MAX_TASKS);
        entries.drain(..surplus);
        Some(WorkflowTasks { agent: agent.clone(), entries })
    }

    /// Returns the workflows of a named caller by the handles of their contexts.
    fn workflows(&self, client: &ClientContext<'_>) -> BTreeMap<String, ListedWorkflow> {
        let mut contexts: HashMap<ContextRef, u64> = HashMap::new();
        for (_, entry) in self.lookup.tasks_of_caller(client) {
            let found = entry.visible_state(|inside| {
                let has_phase = !self.phases_of(&inside.work).is_empty();
                let context = inside.work.context_id.clone().filter(|_| has_phase)?;
                let known = ContextRef { agent: entry.agent().to_string(), context };
                Some((known, inside.changed.unix_ms))
            });
            let Some((known, changed_ms)) = found.filter(|(known, _)| known.fits()) else { continue };
            let modified_ms = contexts.entry(known).or_default();
            *modified_ms = changed_ms.max(*modified_ms);
        }
        let listed = |(known, modified_ms): (ContextRef, u64)| {
            let handle = known.seal(&self.lookup.sealer, client.caller.name()).into_string();
            (handle, ListedWorkflow { agent: known.agent, modified_ms })
        };
        contexts.into_iter().map(listed).collect()
    }

    /// Returns the phases that a task went through.
    fn phases_of(&self, work: &crate::bridge::output::AgentOutput) -> Vec<TaskPhaseStart> {
        let number = |name: &str| PHASES.iter().position(|phase| *phase == name);
        let start = |visited: &crate::bridge::output::VisitedPhase| {
            let (timestamp, artifacts_before) = (visited.timestamp.clone(), visited.artifacts_before);
            Some(TaskPhaseStart { phase: number(&visited.name)?, timestamp, artifacts_before })
        };
        let told: Vec<_> = work.phases.iter().filter_map(start).collect();
        if !told.is_empty() {
            return told;
        }
        let by_rule = self.lookup.settings.phase_of(work.skill.as_deref()).and_then(number);
        let start = |phase| TaskPhaseStart { phase, timestamp: None, artifacts_before: 0 };
        by_rule.map(start).into_iter().collect()
    }

    fn visits(&self, client: &ClientContext<'_>, entry: &TaskEntry) -> Vec<PhaseVisit> {
        let task = self.lookup.handle_of(entry, client);
        let state = self.lookup.client_status(entry, client).state;
        entry.visible_state(|inside| {
            let phases = self.phases_of(&inside.work);
            let last = phases.len().saturating_sub(1);
            let created = iso8601(inside.created_ms);
            let changed = iso8601(inside.changed.unix_ms);
            let visit = |at: usize, start: &TaskPhaseStart| {
                let is_last = at == last;
                let following = phases.get(at + 1);
                let next = following.and_then(|start| start.timestamp.clone());
                // The first phase has what was there before it, the last one all that came later.
                let from = if at == 0 { 0 } else { start.artifacts_before };
                let until = following.map_or(usize::MAX, |start| start.artifacts_before);
                let text = inside.work.status.as_deref().map(|said| clean(&words(said), MAX_TEXT_BYTES));
                let made = |made: &crate::a2a::Artifact| {
                    [Some(made.artifact_id.clone()), made.name.clone(), made.description.clone()]
                };
                PhaseVisit {
                    phase: start.phase,
                    state: if is_last { state.as_str() } else { TaskState::Completed.as_str() },
                    started: start.timestamp.clone().unwrap_or_else(|| created.clone()),
                    changed: if is_last { changed.clone() } else { next.unwrap_or_else(|| changed.clone()) },
                    changed_ms: inside.changed.unix_ms,
                    task: task.clone(),
                    text: text.filter(|text| is_last && !text.is_empty()),
                    artifacts: inside.work.artifacts().take(until).skip(from).map(made).collect(),
                    agent_type: inside.work.metadata.text(crate::bridge::output::AGENT_TYPE),
                }
            };
            phases.iter().enumerate().map(|(at, start)| visit(at, start)).collect()
        })
    }

    async fn read_workflow(
        &self,
        client: &ClientContext<'_>,
        uri: &str,
        handle: &str,
    ) -> Option<ProvidedContent> {
        let WorkflowTasks { agent, entries } = self.tasks_of(client, handle)?;
        if let Ok(known) = self.lookup.resolved_agent(client, &agent) {
            let running = |entry: &&Arc<TaskEntry>| {
                entry.visible_state(|inside| inside.phase() == TaskPhase::Running && !inside.is_followed())
            };
            for entry in entries.iter().filter(running).take(PHASES.len()) {
                self.lookup.refresh(entry, &known).await;
            }
        }
        let visits: Vec<PhaseVisit> = entries.iter().flat_map(|entry| self.visits(client, entry)).collect();
        let modified_ms = visits.iter().map(|visit| visit.changed_ms).max()?;
        let name = agent.settings.name.as_str();
        let agent_type = visits.iter().rev().find_map(|visit| visit.agent_type.as_deref());
        let workflow = json!({
            "contextId": handle,
            "currentPhase": PHASES.get(current_phase(&visits)).unwrap_or(&""),
            "phases": phases_json(&visits),
            "artifacts": visits.iter().flat_map(artifacts_json).collect::<Vec<_>>(),
            "history": visits.iter().map(history_json).collect::<Vec<_>>(),
            "progress": progress(&visits),
            "metadata": {
                "startTime": visits.iter().map(|visit| visit.started.as_str()).min(),
                "agentType": agent_type.unwrap_or_else(|| self.agent_types.of(name)),
                "batchtoolsEnabled": self.has_batches,
                "agent": name,
            },
        });
        let facts = ResourceFacts { modified_ms, ..self.workflow_facts(client, name) };
        Some(ProvidedContent::json(uri, workflow.to_string(), facts))
    }

    /// Returns a mark that changes whenever a phase ends, or its agent asks.
    fn workflow_mark(&self, client: &ClientContext<'_>, handle: &str) -> u64 {
        let tasks = self.tasks_of(client, handle).map(|tasks| tasks.entries).unwrap_or_default();
        let mut settled = BTreeMap::new();
        for visit in tasks.iter().flat_map(|entry| self.visits(client, entry)) {
            let is_open = ["working", "submitted", "unknown"].contains(&visit.state);
            if !is_open {
                settled.insert(visit.phase, visit.state);
            }
        }
        hash_of(&settled)
    }

    fn workflow_facts(&self, client: &ClientContext<'_>, agent: &str) -> ResourceFacts {
        let has = |tool| {
            self.lookup.settings.subagent_tools && self.lookup.authorizer.may_use(&client.caller, agent, tool)
        };
        ResourceFacts {
            modified_ms: 0,
            policy: CachePolicy::Realtime,
            permissions: ResourcePermissions { write: has(TaskTool::Send), execute: has(TaskTool::Start) },
            schema: "workflow",
        }
    }

    async fn read_template(&self, uri: &str, phase: &str) -> Option<ProvidedContent> {
        let phase = PHASES.into_iter().find(|known| *known == phase)?;
        let path = self.settings.templates.get(phase)?.clone();
        if let Some(kept) =
            lock(&self.templates).get(phase).filter(|kept| kept.read_at.elapsed() < TEMPLATE_TTL)
        {
            return Some(ProvidedContent::json(uri, kept.text.to_string(), template_facts(kept.modified_ms)));
        }
        let read = tokio::task::spawn_blocking(move || read_template(phase, &path)).await.ok()?;
        let mut templates = lock(&self.templates);
        let CachedTemplate { text, modified_ms, .. } = refreshed_template(&mut templates, phase, read)?;
        Some(ProvidedContent::json(uri, text.to_string(), template_facts(*modified_ms)))
    }

    /// Returns the types of the agents that the caller sees on this route.
    fn visible_types<'s>(&'s self, client: &'s ClientContext<'_>) -> BTreeSet<&'s str> {
        let visible = self.lookup.authorizer.visible_agents(client.requester());
        visible.map(|agent| self.agent_types.of(&agent.settings.name)).collect()
    }

    fn agents_of<'s>(
        &'s self,
        client: &'s ClientContext<'_>,
        agent_type: &'s str,
    ) -> impl Iterator<Item = &'s Arc<Agent>> {
        let visible = self.lookup.authorizer.visible_agents(client.requester());
        visible.filter(move |agent| self.agent_types.of(&agent.settings.name) == agent_type)
    }

    fn read_capabilities(
        &self,
        client: &ClientContext<'_>,
        uri: &str,
        agent_type: &str,
    ) -> Option<ProvidedContent> {
        self.agents_of(client, agent_type).next()?;
        let mut tags = BTreeSet::new();
        let mut agents = Vec::new();
        for agent in self.agents_of(client, agent_type) {
            let known = agent.known();
            let visible = self.discovery.visible_skills(&client.caller, agent);
            let shown = known.iter().flat_map(|known| &known.card.skills);
            let skills: Vec<Value> = shown
                .filter(|skill| visible.has(&skill.id))
                .map(|skill| {
                    tags.extend(skill.tags.iter().cloned());
                    json!({
                        "id": skill.id, "name": skill.name, "description": skill.description,
                        "tags": skill.tags, "examples": skill.examples,
                        "inputModes": skill.input_modes, "outputModes": skill.output_modes,
                    })
                })
                .collect();
            let name = known.as_ref().map(|known| known.card.name.clone());
            agents.push(json!({ "agent": agent.settings.name, "name": name, "skills": skills }));
        }
        let skills: Vec<Value> =
            agents.iter().filter_map(|agent| agent.get("skills")?.as_array()).flatten().cloned().collect();
        let view = json!({
            "agentType": agent_type, "skills": skills, "specialisations": tags, "agents": agents,
        });
        let facts = self.capabilities_facts(client, agent_type);
        Some(ProvidedContent::json(uri, view.to_string(), facts))
    }

    fn capabilities_facts(&self, client: &ClientContext<'_>, agent_type: &str) -> ResourceFacts {
        let newest = self.agents_of(client, agent_type).filter_map(|agent| agent.last_seen()).max();
        let starts = |agent: &Arc<Agent>| {
            self.lookup.authorizer.may_use(&client.caller, &agent.settings.name, TaskTool::Start)
        };
        let execute = self.lookup.settings.subagent_tools && self.agents_of(client, agent_type).any(starts);
        ResourceFacts {
            modified_ms: newest.unwrap_or_else(unix_ms),
            policy: CachePolicy::Dynamic,
            permissions: ResourcePermissions { write: false, execute },
            schema: "capabilities",
        }
    }

    fn capabilities_mark(&self, client: &ClientContext<'_>, agent_type: &str) -> u64 {
        let versions: Vec<u64> = self.agents_of(client, agent_type).map(|agent| agent.version()).collect();
        hash_of(&versions)
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn template_facts(modified_ms: u64) -> ResourceFacts {
    ResourceFacts {
        modified_ms,
        policy: CachePolicy::Static,
        permissions: ResourcePermissions::default(),
        schema: "phaseTemplate",
    }
}

/// Returns the template of a phase after its file was read: the last one that could be read, if there
/// was one.
fn refreshed_template<'t>(
    templates: &'t mut HashMap<&'static str, CachedTemplate>,
    phase: &'static str,
    read: io::Result<CachedTemplate>,
) -> Option<&'t CachedTemplate> {
    match read {
        Ok(template) => {
            templates.insert(phase, template);
        }
        Err(error) => {
            tracing::warn!(phase, %error, "failed to read template of phase: the last one is served");
            templates.get_mut(phase)?.read_at = Instant::now();
        }
    }
    templates.get(phase)
}

/// Reads the template of a phase from its file.
fn read_template(phase: &str, path: &Path) -> io::Result<CachedTemplate> {
    let modified = fs::metadata(path)?.modified()?;
    let text = read_file(path, MAX_TEMPLATE_BYTES)?;
    let members: Map<String, Value> = serde_json::from_slice(&text)?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(CachedTemplate {
        text: template_json(phase, &members).to_string().into(),
        modified_ms: u64::try_from(since.as_millis()).unwrap_or_default(),
        read_at: Instant::now(),
    })
}

/// Returns the template of a phase with every member of its shape.
fn template_json(phase: &str, file: &Map<String, Value>) -> Value {
    let empty = Map::new();
    let template = file.get("template").and_then(Value::as_object).unwrap_or(&empty);
    let part = |name: &str| template.get(name).cloned().unwrap_or_else(|| json!([]));
    let other = |name: &str, absent: Value| file.get(name).cloned().unwrap_or(absent);
    json!({
        "phase": phase,
        "template": {
            "requirements": part("requirements"), "goals": part("goals"),
            "constraints": part("constraints"), "methodology": part("methodology"),
        },
        "guidelines": other("guidelines", json!([])),
        "examples": other("examples", json!([])),
        "validation": other("validation", json!({})),
    })
}

/// Returns the phase that work is in: the last one that began and has not ended; without one, the
/// last one that began.
fn current_phase(visits: &[PhaseVisit]) -> usize {
    let open = visits.iter().filter(|visit| !is_over(visit.state)).map(|visit| visit.phase).max();
    open.or_else(|| visits.iter().map(|visit| visit.phase).max()).unwrap_or_default()
}

fn is_over(state: &str) -> bool {
    ["completed", "failed", "canceled", "rejected"].contains(&state)
}

fn phases_json(visits: &[PhaseVisit]) -> Map<String, Value> {
    let phase = |(number, name): (usize, &&str)| {
        let of_phase: Vec<&PhaseVisit> = visits.iter().filter(|visit| visit.phase == number).collect();
        let Some(last) = of_phase.last() else { return ((*name).to_owned(), json!({})) };
        let tasks = of_phase.iter().map(|visit| {
            json!({ "taskId": visit.task, "taskUri": task_uri(&visit.task), "state": visit.state, "text": visit.text })
        });
        let view = json!({
            "status": last.state,
            "startTime": of_phase.iter().map(|visit| visit.started.as_str()).min(),
            "endTime": is_over(last.state).then_some(last.changed.as_str()),
            "tasks": tasks.collect::<Vec<_>>(),
            "artifacts": of_phase.iter().copied().flat_map(artifacts_json).collect::<Vec<_>>(),
        });
        ((*name).to_owned(), view)
    };
    PHASES.iter().enumerate().map(phase).collect()
}

fn artifacts_json(visit: &PhaseVisit) -> Vec<Value> {
    let phase = PHASES.get(visit.phase);
    let artifact = |[id, name, description]: &[Option<String>; 3]| {
        let id = id.as_deref().unwrap_or_default();
        json!({
            "artifactId": id, "name": name, "description": description, "phase": phase,
            "taskId": visit.task, "uri": artifact_uri(&visit.task, id),
        })
    };
    visit.artifacts.iter().map(artifact).collect()
}

fn history_json(visit: &PhaseVisit) -> Value {
    json!({
        "phase": PHASES.get(visit.phase), "state": visit.state, "timestamp": visit.changed,
        "taskId": visit.task, "text": visit.text,
    })
}

/// Returns the part of the phases that are completed, from 0 to 1.
fn progress(visits: &[PhaseVisit]) -> f64 {
    let done = (0..PHASES.len()).filter(|number| {
        let last = visits.iter().rev().find(|visit| visit.phase == *number);
        last.is_some_and(|visit| visit.state == "completed")
    });
    let done = u32::try_from(done.count()).unwrap_or_default();
    f64::from(done) / 5.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_uri_names_one_thing() {
        for (uri, named) in [
            ("sparc://workflow/a-B", Some(SparcUri::Workflow("a-B"))),
            ("sparc://phase/refinement/template", Some(SparcUri::Template("refinement"))),
            ("sparc://agent/coder/capabilities", Some(SparcUri::Capabilities("coder"))),
            ("sparc://workflow/", None),
            ("sparc://workflow/a/b", None),
            ("sparc://phase/refinement", None),
            ("sparc://agent//capabilities", None),
        ] {
            assert_eq!(SparcUri::read(uri), named, "{uri}");
        }
    }

    #[test]
    fn broken_template_keeps_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("completion.json");
        let (mut templates, phase) = (HashMap::new(), "completion");
        let mut read = |text: &str| {
            fs::write(&path, text).unwrap();
            let read = read_template(phase, &path);
            refreshed_template(&mut templates, phase, read).map(|template| template.text.to_string())
        };
        assert_eq!(read("{ broken"), None);
        let first = read(r#"{"guidelines":"first"}"#).unwrap();
        assert!(first.contains("first"));
        assert_eq!(read("[1]").unwrap(), first);
        assert_eq!(read(&" ".repeat(MAX_TEMPLATE_BYTES + 1)).unwrap(), first);
        assert!(read(r#"{"guidelines":"second"}"#).unwrap().contains("second"));
    }

    #[test]
    fn templates_have_every_member() {
        let file = json!({ "template": { "goals": ["g"] }, "guidelines": "read", "more": 1 });
        let shown = template_json("completion", file.as_object().unwrap());
        assert_eq!(
            shown,
            json!({ "phase": "completion",
                "template": { "requirements": [], "goals": ["g"], "constraints": [], "methodology": [] },
                "guidelines": "read", "examples": [], "validation": {} })
        );
    }

    #[test]
    fn current_phase_is_the_open_one() {
        let visit = |phase, state| PhaseVisit {
            phase,
            state,
            started: String::new(),
            changed: String::new(),
            changed_ms: 0,
            task: String::new(),
            text: None,
            artifacts: Vec::new(),
            agent_type: None,
        };
        let all = [visit(0, "completed"), visit(1, "working"), visit(2, "completed")];
        assert_eq!((current_phase(&all), progress(&all)), (1, 0.4));
        assert_eq!(current_phase(&all[..1]), 0);
    }
}
