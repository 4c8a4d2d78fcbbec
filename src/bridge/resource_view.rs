//! The content of the resources: a task with all known data, one of its artifacts, live streams with
//! the last events of a task, and the registry of agents.
//!
//! Follows `docs/spec/mcp.md` §3.4. Tasks and conversations appear under sealed handles, never
//! under the agent's ids. Their URIs are in `resource_uri`. The time of an event is an argument. Its
//! large contents are counted, not kept: each event is a few hundred bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::content::{ContentDisplay, blocks};
use super::output::{AGENT_TYPE, AgentOutput, BATCH, PHASE, words};
use super::resource_uri::{artifact_uri, stream_uri, task_uri};
use crate::a2a::{
    Artifact, EncodedParts, Message, Part, PartBody, Role, StreamResponse, Task, TaskState, TaskStatus, clean,
};
use crate::mcp::Version;
use crate::mcp::tasks::iso8601;
use crate::mcp::tools::{ContentBlock, EmbeddedResource, ResourceContents};

/// The software of the client that began a task.
pub(crate) use crate::mcp::ClientSoftware;

/// A task as one caller sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskInput<'a> {
    /// The agent's output.
    pub(crate) work: &'a AgentOutput,
    /// The state of the task, which may differ from the last report of the agent: the task may be
    /// lost, or its question answered.
    pub(crate) state: TaskState,
    /// Reason of the failure, if the gateway and not the agent gives it.
    pub(crate) failure: Option<&'a str>,
    /// The caller's handle of the task.
    pub(crate) task: &'a str,
    /// The caller's handle of the conversation.
    pub(crate) context: Option<&'a str>,
    /// The name of the agent.
    pub(crate) agent: &'a str,
    /// The type of the agent, unless the task names one.
    pub(crate) agent_type: &'a str,
    /// The phase of a workflow by the rules of the configuration, unless the task names one.
    pub(crate) phase: Option<&'a str>,
    /// Time of creation, in ISO 8601.
    pub(crate) created_at: &'a str,
    /// Time of the last change, in ISO 8601.
    pub(crate) last_updated_at: &'a str,
    /// True if the client has cancelled the task, regardless of the agent's reaction.
    pub(crate) cancelled: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskView<'a> {
    task_id: &'a str,
    task_uri: String,
    context_id: Option<&'a str>,
    agent: &'a str,
    status: StatusView<'a>,
    metadata: TaskMetadata,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageView<'a>>,
    history: Vec<MessageView<'a>>,
    artifacts: Vec<ArtifactView<'a>>,
    created_at: &'a str,
    last_updated_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_verdict: Option<&'static str>,
}

#[derive(Serialize)]
struct StatusView<'a> {
    state: &'static str,
    timestamp: &'a str,
    message: Option<MessageView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskMetadata {
    sparc_phase: Option<String>,
    batchtools_optimized: bool,
    agent_type: String,
}

impl TaskMetadata {
    fn new(seen: &TaskInput<'_>) -> Self {
        let told = &seen.work.metadata;
        let is_batch = |(name, value): (&str, &RawValue)| name == BATCH && value.get() == "true";
        Self {
            sparc_phase: told.text(PHASE).or_else(|| seen.phase.map(str::to_owned)),
            batchtools_optimized: told.members().any(is_batch),
            agent_type: told.text(AGENT_TYPE).unwrap_or_else(|| seen.agent_type.to_owned()),
        }
    }
}

#[derive(Serialize)]
struct MessageView<'a> {
    role: &'static str,
    parts: EncodedParts<'a>,
}

impl<'a> From<&'a Message> for MessageView<'a> {
    fn from(message: &'a Message) -> Self {
        let role = match message.role {
            Role::User => "user",
            Role::Agent => "agent",
        };
        Self { role, parts: EncodedParts::without_metadata(&message.parts) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactView<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<EncodedParts<'a>>,
    /// Size of the content at the URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

impl<'a> ArtifactView<'a> {
    fn new(artifact: &'a Artifact, task: &str, most: usize) -> Self {
        let bytes = artifact.parts.iter().map(|part| part.body.bytes()).sum();
        let binary = artifact.parts.iter().any(|part| matches!(part.body, PartBody::Raw(_)));
        let inline = bytes <= most && !binary;
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            uri: artifact_uri(task, &artifact.artifact_id),
            parts: inline.then(|| EncodedParts::without_metadata(&artifact.parts)),
            bytes: (!inline).then_some(bytes),
        }
    }
}

/// Encodes the resource of a task as JSON. Artifacts above `most` bytes, and binary ones, are named
/// by their URI only.
pub(crate) fn task(seen: &TaskInput<'_>, most: usize) -> String {
    const MAX_TEXT_BYTES: usize = 8 * 1024;
    let work = seen.work;
    let history = work.messages();
    let said = work.status.as_deref().or(work.reply.as_deref());
    let words = |said| Some(clean(&words(said), MAX_TEXT_BYTES)).filter(|text| !text.is_empty());
    let view = TaskView {
        task_id: seen.task,
        task_uri: task_uri(seen.task),
        context_id: seen.context,
        agent: seen.agent,
        status: StatusView {
            state: seen.state.as_str(),
            timestamp: work.timestamp.as_deref().unwrap_or(seen.last_updated_at),
            message: said.map(MessageView::from),
        },
        metadata: TaskMetadata::new(seen),
        state: seen.state.as_str(),
        status_message: seen.failure.map(str::to_owned).or_else(|| said.and_then(words)),
        message: said.map(MessageView::from),
        history: history.iter().map(MessageView::from).collect(),
        artifacts: work.artifacts().map(|artifact| ArtifactView::new(artifact, seen.task, most)).collect(),
        created_at: seen.created_at,
        last_updated_at: seen.last_updated_at,
        client_verdict: seen.cancelled.then_some("cancelled"),
    };
    json(&view)
}

/// Returns the content of an artifact under its URI: its text as one, each other part by itself.
/// Never empty.
pub(crate) fn artifact_contents(artifact: &Artifact, uri: &str) -> Vec<EmbeddedResource> {
    let mut contents: Vec<EmbeddedResource> = Vec::new();
    let mut text: Option<(String, Option<String>)> = None;
    for part in &artifact.parts {
        match &part.body {
            PartBody::Text(more) => {
                let (all, _) = text.get_or_insert_with(|| (String::new(), part.media_type.clone()));
                all.push_str(&more.to_str());
            }
            PartBody::Raw(_) => contents.extend(blob(part, uri)),
            PartBody::Url(url) => {
                contents.push(embedded(uri, "text/uri-list", ResourceContents::Text(url.clone())))
            }
            PartBody::Data(data) | PartBody::Unknown(data) => {
                contents.push(embedded(
                    uri,
                    "application/json",
                    ResourceContents::Text(data.get().to_owned()),
                ));
            }
        }
    }
    if text.is_some() || contents.is_empty() {
        let (all, media_type) = text.unwrap_or_default();
        let media_type = media_type.unwrap_or_else(|| "text/plain".to_owned());
        contents.insert(0, embedded(uri, &media_type, ResourceContents::Text(all)));
    }
    contents
}

/// Returns bytes in the base64 that clients accept; text, if the part has none.
fn blob(part: &Part, uri: &str) -> Option<EmbeddedResource> {
    let mut shown = Vec::new();
    blocks([part], ContentDisplay { version: Version::V2026_07_28, links: false }, &mut shown);
    match shown.pop()? {
        ContentBlock::Image { data, media_type } | ContentBlock::Audio { data, media_type } => {
            Some(embedded(uri, &media_type, ResourceContents::Blob(data)))
        }
        ContentBlock::Resource { resource } => Some(EmbeddedResource { uri: uri.to_owned(), ..resource }),
        ContentBlock::Text { text, .. } => {
            Some(embedded(uri, "text/plain", ResourceContents::Text(text.into_string())))
        }
        ContentBlock::ResourceLink { .. } => None,
    }
}

fn embedded(uri: &str, media_type: &str, content: ResourceContents) -> EmbeddedResource {
    EmbeddedResource { uri: uri.to_owned(), media_type: Some(media_type.to_owned()), content }
}

/// The stream of a task as one caller sees it.
#[derive(Debug, Clone)]
pub(crate) struct StreamView {
    /// The caller's handle of the task, which is the id of the stream.
    pub(crate) task: String,
    /// The state of the task.
    pub(crate) state: TaskState,
    /// Current number of watchers.
    pub(crate) watchers: usize,
    /// True if the task has a follower now.
    pub(crate) followed: bool,
    /// Number of times that the gateway began to listen to the agent.
    pub(crate) connections: u32,
    /// Time since which the task is known to the gateway, in ISO 8601.
    pub(crate) since: String,
    /// The last events, each with its time in ISO 8601.
    pub(crate) events: Vec<StreamEvent>,
    /// Number of events so far.
    pub(crate) total_events: u64,
    /// The software of the client that began the task, if that client told it.
    pub(crate) client: Option<Arc<ClientSoftware>>,
}

/// One event of a stream.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StreamEvent {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: EventSummary,
}

impl StreamEvent {
    /// Returns the last events of a task.
    pub(crate) fn recent(log: &EventLog) -> Vec<Self> {
        let event = |event: &LoggedEvent| Self {
            kind: event.summary.kind(),
            timestamp: iso8601(event.unix_ms),
            data: event.summary.clone(),
        };
        log.recent().map(event).collect()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedStream<'a> {
    stream_id: &'a str,
    connection_id: String,
    status: &'static str,
    events: &'a [StreamEvent],
    metadata: StreamMetadata<'a>,
    id: &'a str,
    uri: String,
    task_uri: String,
    state: &'static str,
    watchers: usize,
    followed: bool,
    since: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StreamMetadata<'a> {
    start_time: &'a str,
    total_events: u64,
    client_info: EncodedClient<'a>,
}

/// `clientInfo`: an empty object where the client is unknown.
#[derive(Serialize)]
struct EncodedClient<'a> {
    #[serde(flatten)]
    software: Option<&'a ClientSoftware>,
}

impl<'a> From<&'a StreamView> for EncodedStream<'a> {
    fn from(stream: &'a StreamView) -> Self {
        let is_active = stream.followed && !stream.state.is_terminal();
        Self {
            stream_id: &stream.task,
            connection_id: stream.connections.to_string(),
            status: if is_active { "active" } else { "closed" },
            events: &stream.events,
            metadata: StreamMetadata {
                start_time: &stream.since,
                total_events: stream.total_events,
                client_info: EncodedClient { software: stream.client.as_deref() },
            },
            id: &stream.task,
            uri: stream_uri(&stream.task),
            task_uri: task_uri(&stream.task),
            state: stream.state.as_str(),
            watchers: stream.watchers,
            followed: stream.followed,
            since: &stream.since,
        }
    }
}

/// Encodes a stream as JSON.
pub(crate) fn stream(stream: &StreamView) -> String {
    json(&EncodedStream::from(stream))
}

/// Encodes a list of streams as JSON.
pub(crate) fn streams(streams: &[StreamView]) -> String {
    #[derive(Serialize)]
    struct Streams<'a> {
        streams: Vec<EncodedStream<'a>>,
    }
    json(&Streams { streams: streams.iter().map(EncodedStream::from).collect() })
}

/// Encodes a view. Writing to memory does not fail, and neither does text or JSON that was parsed
/// before.
pub(super) fn json<T: Serialize>(view: &T) -> String {
    serde_json::to_string(view).unwrap_or_else(|_| "{}".to_owned())
}

/// One agent of the registry.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentEntry<'a> {
    /// The agent's name in the configuration.
    pub(crate) name: &'a str,
    /// The agent's type.
    pub(crate) agent_type: &'a str,
    /// URL of the agent, or of its card.
    pub(crate) url: Option<&'a str>,
    /// The agent's reachability.
    #[serde(serialize_with = "health")]
    pub(crate) status: Reachability,
    /// The reason why the agent cannot be called although its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
    /// Time of the last contact, in ISO 8601.
    pub(crate) last_seen: Option<&'a str>,
    /// The capabilities that its card declares, and the ids of its skills.
    pub(crate) capabilities: Vec<&'a str>,
    /// Number of endpoints, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<EndpointCount>,
    /// The A2A extensions that its card declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) extensions: Vec<ExtensionEntry<'a>>,
    /// The card, unchanged; `None` while it is unknown.
    pub(crate) agent_card: Option<&'a RawValue>,
}

/// Writes the reachability in the words of the registry: a ready agent is `healthy`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn health<S: serde::Serializer>(status: &Reachability, serializer: S) -> Result<S::Ok, S::Error> {
    match status {
        Reachability::Ready => serializer.serialize_str("healthy"),
        other => other.serialize(serializer),
    }
}

/// The reachability of an agent at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reachability {
    /// The card is known and usable.
    Ready,
    /// The card could not be fetched.
    Unreachable,
    /// The card requires more than the operator configured.
    Unusable,
    /// The card has not been fetched yet.
    Unknown,
}

/// The number of an agent's endpoints.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct EndpointCount {
    /// All endpoints.
    pub(crate) total: usize,
    /// Endpoints in use now; the others failed, and are not used for a while.
    pub(crate) up: usize,
}

/// An extension that an agent supports.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ExtensionEntry<'a> {
    /// The URI of the extension.
    pub(crate) uri: &'a str,
    /// True if the agent rejects clients that do not name it.
    pub(crate) required: bool,
    /// True if the gateway names it.
    pub(crate) active: bool,
}

/// The abilities that an agent declares.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentCapabilities {
    /// The agent supports streaming.
    pub(crate) streaming: bool,
    /// The agent sends push notifications.
    pub(crate) push_notifications: bool,
}

/// Encodes the registry of agents as JSON. `last_scan` is the time of the last contact with any of
/// them.
pub(crate) fn registry(agents: &[AgentEntry<'_>], last_scan: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Registry<'a> {
        agents: &'a [AgentEntry<'a>],
        discovery: AgentScan<'a>,
        totals: Totals,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct AgentScan<'a> {
        last_scan: Option<&'a str>,
        total_agents: usize,
        healthy_agents: usize,
    }
    #[derive(Serialize)]
    struct Totals {
        agents: usize,
        ready: usize,
        unreachable: usize,
        unusable: usize,
        unknown: usize,
    }
    let count = |status| agents.iter().filter(|agent| agent.status == status).count();
    let totals = Totals {
        agents: agents.len(),
        ready: count(Reachability::Ready),
        unreachable: count(Reachability::Unreachable),
        unusable: count(Reachability::Unusable),
        unknown: count(Reachability::Unknown),
    };
    let discovery =
        AgentScan { last_scan, total_agents: agents.len(), healthy_agents: count(Reachability::Ready) };
    json(&Registry { agents, discovery, totals })
}

/// Most events that are kept of one task.
const MAX_EVENTS: usize = 32;
/// Most bytes of the text of one event.
const MAX_TEXT_BYTES: usize = 512;

/// One event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoggedEvent {
    /// Time of arrival, in milliseconds since 1970.
    unix_ms: u64,
    summary: EventSummary,
}

/// An event in short. Small, since each task keeps some. A count above `u32::MAX` is kept as that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum EventSummary {
    Task {
        artifacts: u32,
        #[serde(with = "state_word")]
        state: TaskState,
        text: Option<Box<str>>,
    },
    StatusUpdate {
        #[serde(with = "state_word")]
        state: TaskState,
        text: Option<Box<str>>,
    },
    Message {
        text: Box<str>,
    },
    ArtifactUpdate {
        append: bool,
        artifact_id: Box<str>,
        bytes: u32,
        last_chunk: bool,
        name: Option<Box<str>>,
    },
}

/// A state as the word for people.
mod state_word {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::a2a::TaskState;

    pub(super) fn serialize<S: Serializer>(state: &TaskState, serializer: S) -> Result<S::Ok, S::Error> {
        state.as_str().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TaskState, D::Error> {
        Box::<str>::deserialize(deserializer).map(|word| TaskState::from_wire(&word))
    }
}

/// The last events of a task.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct EventLog {
    total: u64,
    recent: VecDeque<LoggedEvent>,
    bytes: usize,
}

impl EventLog {
    /// Records an event. A response to a poll that repeats the event before is not one.
    pub(crate) fn record(&mut self, event: &StreamResponse, unix_ms: u64) {
        let Some(summary) = EventSummary::of(event) else { return };
        let is_task = matches!(summary, EventSummary::Task { .. });
        if is_task && self.recent.back().is_some_and(|last| last.summary == summary) {
            return;
        }
        // Before the new one comes, so that the queue never grows beyond its limit.
        if self.recent.len() >= MAX_EVENTS
            && let Some(oldest) = self.recent.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
        let logged = LoggedEvent { unix_ms, summary };
        self.total += 1;
        self.bytes += logged.bytes();
        self.recent.push_back(logged);
    }

    /// Returns the number of events so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the last events, the oldest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &LoggedEvent> {
        self.recent.iter()
    }

    /// Returns the size of the kept events in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl LoggedEvent {
    /// Returns the size in bytes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.summary.text_bytes()
    }
}

impl EventSummary {
    /// Returns the event in short; `None` if its kind is unknown.
    fn of(event: &StreamResponse) -> Option<Self> {
        let status_text = |status: &TaskStatus| status.message.as_deref().map(text_of);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(match event {
            StreamResponse::Task(Task { status, artifacts, .. }) => {
                let text = status_text(status);
                Self::Task { artifacts: count(artifacts.len()), state: status.state, text }
            }
            StreamResponse::Message(message) => Self::Message { text: text_of(message) },
            StreamResponse::Status { status, .. } => {
                Self::StatusUpdate { state: status.state, text: status_text(status) }
            }
            StreamResponse::Artifact { artifact, append, last_chunk, .. } => Self::ArtifactUpdate {
                append: *append,
                artifact_id: short(&artifact.artifact_id),
                bytes: count(artifact.parts.iter().map(|part| part.body.bytes()).sum()),
                last_chunk: *last_chunk,
                name: artifact.name.as_deref().map(short),
            },
            StreamResponse::Unknown => return None,
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Task { .. } => "task",
            Self::Message { .. } => "message",
            Self::StatusUpdate { .. } => "status-update",
            Self::ArtifactUpdate { .. } => "artifact-update",
        }
    }

    fn text_bytes(&self) -> usize {
        let length = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
        match self {
            Self::Message { text } => text.len(),
            Self::Task { text, .. } | Self::StatusUpdate { text, .. } => length(text),
            Self::ArtifactUpdate { artifact_id, name, .. } => artifact_id.len() + length(name),
        }
    }
}

fn text_of(message: &Message) -> Box<str> {
    short(&words(message))
}

fn short(text: &str) -> Box<str> {
    clean(text, MAX_TEXT_BYTES).into_boxed_str()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::a2a::{Dialect, read_task};

    fn work(task: &Value) -> AgentOutput {
        AgentOutput::from_task(read_task(task.to_string().as_bytes()).unwrap(), 10_000).unwrap()
    }

    fn shown(work: &AgentOutput, cancelled: bool, most: usize) -> Value {
        let seen = TaskInput {
            work,
            state: work.state.unwrap_or(TaskState::Submitted),
            failure: None,
            task: "tk",
            context: Some("cx"),
            agent: "bard",
            agent_type: "coder",
            phase: None,
            created_at: "2026-01-01T00:00:00.000Z",
            last_updated_at: "2026-01-01T00:00:01.000Z",
            cancelled,
        };
        serde_json::from_str(&super::task(&seen, most)).unwrap()
    }

    #[test]
    fn a_task_is_shown_with_all_that_is_known_and_none_of_the_agents_ids() {
        let message = json!({"role": "agent", "messageId": "raw-m", "taskId": "raw-t", "contextId": "raw-c",
            "parts": [{"text": "Which?", "metadata": {"session": "raw-c"}}], "metadata": {"x": "raw-m"}});
        let task = json!({"id": "raw-t", "contextId": "raw-c", "metadata": {"x": "raw-t"},
            "status": {"state": "input-required", "message": message},
            "artifacts": [{"artifactId": "a/b", "name": "n", "parts": [{"text": "made"}], "metadata": {"x": "raw-t"}}],
            "history": [{"role": "user", "taskId": "raw-t", "parts": [{"text": "do"}]}, message]});
        let shown = shown(&work(&task), true, 100);
        let asked = json!({"role": "agent", "parts": [{"text": "Which?"}]});
        assert_eq!(
            shown,
            json!({"taskId": "tk", "taskUri": "a2a://task/tk", "contextId": "cx", "agent": "bard",
                "status": {"state": "input-required", "timestamp": "2026-01-01T00:00:01.000Z", "message": asked},
                "metadata": {"sparcPhase": null, "batchtoolsOptimized": false, "agentType": "coder"},
                "state": "input-required", "statusMessage": "Which?", "message": asked,
                "history": [{"role": "user", "parts": [{"text": "do"}]}, asked],
                "artifacts": [{"artifactId": "a/b", "name": "n", "uri": "a2a://task/tk/artifacts/a%2Fb",
                               "parts": [{"text": "made"}]}],
                "createdAt": "2026-01-01T00:00:00.000Z", "lastUpdatedAt": "2026-01-01T00:00:01.000Z",
                "clientVerdict": "cancelled"})
        );
    }

    #[test]
    fn a_lost_task_is_shown_as_failed_whatever_its_agent_said_last() {
        let work = work(
            &json!({"id": "t", "status": {"state": "working", "message": {"parts": [{"text": "on it"}]}}}),
        );
        let (created_at, last_updated_at) = ("C", "U");
        let (state, failure) = (TaskState::Failed, Some("lost"));
        let seen = TaskInput {
            work: &work,
            state,
            failure,
            task: "tk",
            context: None,
            agent: "a",
            agent_type: "a",
            phase: None,
            created_at,
            last_updated_at,
            cancelled: false,
        };
        let shown: Value = serde_json::from_str(&super::task(&seen, 100)).unwrap();
        assert_eq!((&shown["state"], &shown["statusMessage"]), (&json!("failed"), &json!("lost")));
    }

    #[test]
    fn a_stream_leads_to_its_task() {
        let one = StreamView {
            task: "tk".into(),
            state: TaskState::Working,
            watchers: 2,
            followed: true,
            connections: 1,
            since: "S".into(),
            events: Vec::new(),
            total_events: 7,
            client: Some(Arc::new(ClientSoftware { name: "host".into(), version: Some("1.9".into()) })),
        };
        let told = json!({"streamId": "tk", "connectionId": "1", "status": "active", "events": [],
            "metadata": {"startTime": "S", "totalEvents": 7, "clientInfo": {"name": "host", "version": "1.9"}},
            "id": "tk", "uri": "a2a://streams/tk", "taskUri": "a2a://task/tk", "state": "working",
            "watchers": 2, "followed": true, "since": "S"});
        assert_eq!(serde_json::from_str::<Value>(&stream(&one)).unwrap(), told);
        assert_eq!(serde_json::from_str::<Value>(&streams(&[one])).unwrap(), json!({"streams": [told]}));
        assert_eq!(streams(&[]), r#"{"streams":[]}"#);
    }

    #[test]
    fn large_and_binary_artifacts_are_only_named() {
        let task = json!({"id": "t", "status": {"state": "working"}, "artifacts": [
            {"artifactId": "small", "parts": [{"text": "12345"}]},
            {"artifactId": "large", "parts": [{"text": "123"}, {"data": {"a":1}}]},
            {"artifactId": "binary", "parts": [{"raw": "AAAA"}]}]});
        let shown = shown(&work(&task), false, 5);
        let told: Vec<Value> = shown["artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|artifact| {
                json!([artifact["artifactId"], artifact.get("parts").is_some(), artifact["bytes"]])
            })
            .collect();
        assert_eq!(json!(told), json!([["small", true, null], ["large", false, 10], ["binary", false, 4]]));
        assert_eq!(shown.get("clientVerdict"), None);
    }

    #[test]
    fn an_artifact_is_read_whole() {
        let contents = |parts: Value| {
            let task = json!({"id": "t", "status": {}, "artifacts": [{"artifactId": "a", "parts": parts}]});
            let work = work(&task);
            json!(artifact_contents(work.artifacts().next().unwrap(), "u:a"))
        };
        let text = |media_type: &str, text: &str| json!({"uri": "u:a", "mimeType": media_type, "text": text});
        let blob = |media_type: &str| json!({"uri": "u:a", "mimeType": media_type, "blob": "QQ=="});
        for (parts, expected) in [
            (json!([{"text": "a", "mediaType": "text/csv"}, {"text": "b"}]), json!([text("text/csv", "ab")])),
            (json!([{"raw": "QQ", "mediaType": "image/png"}]), json!([blob("image/png")])),
            (json!([{"raw": "QQ", "mediaType": "application/pdf"}]), json!([blob("application/pdf")])),
            (json!([{"raw": "QQ"}]), json!([blob("application/octet-stream")])),
            (
                json!([{"data": [1]}, {"text": "t"}, {"url": "https://a.test/"}]),
                json!([
                    text("text/plain", "t"),
                    text("application/json", "[1]"),
                    text("text/uri-list", "https://a.test/")
                ]),
            ),
            (json!([]), json!([text("text/plain", "")])),
        ] {
            assert_eq!(contents(parts.clone()), expected, "{parts}");
        }
        let broken = contents(json!([{"raw": "!!"}]));
        assert!(broken[0]["text"].as_str().unwrap().contains("not base64"), "{broken}");
    }

    #[test]
    fn the_registry_counts_its_agents() {
        let card = RawValue::from_string(r#"{"name":"A"}"#.into()).unwrap();
        let ready = AgentEntry {
            name: "a",
            agent_type: "coder",
            url: Some("https://a.test/"),
            status: Reachability::Ready,
            reason: None,
            extensions: vec![ExtensionEntry { uri: "urn:x", required: false, active: true }],
            last_seen: Some("2026-01-01T00:00:00.000Z"),
            capabilities: vec!["streaming", "write"],
            endpoints: Some(EndpointCount { total: 3, up: 2 }),
            agent_card: Some(&card),
        };
        let lost = AgentEntry {
            status: Reachability::Unreachable,
            last_seen: None,
            extensions: Vec::new(),
            capabilities: Vec::new(),
            endpoints: None,
            agent_card: None,
            ..ready.clone()
        };
        let told: Value = serde_json::from_str(&registry(&[ready, lost], Some("L"))).unwrap();
        assert_eq!(
            told["totals"],
            json!({"agents": 2, "ready": 1, "unreachable": 1, "unusable": 0, "unknown": 0})
        );
        assert_eq!(told["discovery"], json!({"lastScan": "L", "totalAgents": 2, "healthyAgents": 1}));
        assert_eq!(
            told["agents"][0],
            json!({"name": "a", "agentType": "coder", "url": "https://a.test/", "status": "healthy",
                "lastSeen": "2026-01-01T00:00:00.000Z", "capabilities": ["streaming", "write"],
                "endpoints": {"total": 3, "up": 2},
                "extensions": [{"uri": "urn:x", "required": false, "active": true}], "agentCard": {"name": "A"}})
        );
        assert_eq!(
            told["agents"][1],
            json!({"name": "a", "agentType": "coder", "url": "https://a.test/", "status": "unreachable",
                "lastSeen": null, "capabilities": [], "agentCard": null})
        );
    }

    fn status(state: TaskState) -> StreamResponse {
        let status = TaskStatus { state, message: None, timestamp: None };
        StreamResponse::Status { task_id: None, context_id: None, status, last: false, metadata: None }
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let mut log = EventLog::default();
        for at in 0..100 {
            log.record(&status(TaskState::Working), at);
        }
        assert_eq!((log.total(), log.recent().count()), (100, MAX_EVENTS));
        assert_eq!(log.recent().next().map(|event| event.unix_ms), Some(68));
        let kept: usize = log.recent().map(LoggedEvent::bytes).sum();
        assert_eq!(log.bytes(), kept);
    }

    #[test]
    fn events_are_shown_in_short() {
        let long = "x".repeat(2 * MAX_TEXT_BYTES);
        let mut log = EventLog::default();
        for event in [
            r#"{"task":{"id":"t","status":{"state":"TASK_STATE_SUBMITTED"},"artifacts":[{"artifactId":"a"}]}}"#,
            r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"on it"}]}}}}"#,
            r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"four"}]},"append":true}}"#,
            &format!(r#"{{"message":{{"parts":[{{"text":"{long}"}}]}}}}"#),
        ] {
            let event = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}}}"#);
            log.record(&Dialect::V1.event(event.as_bytes()).unwrap(), 0);
        }
        let told: Vec<Value> = StreamEvent::recent(&log).iter().map(|event| json!(event)).collect();
        let event = |kind: &str, data: Value| json!({"type": kind, "timestamp": "1970-01-01T00:00:00.000Z", "data": data});
        assert_eq!(
            told,
            [
                event("task", json!({"state": "submitted", "text": null, "artifacts": 1})),
                event("status-update", json!({"state": "working", "text": "on it"})),
                event(
                    "artifact-update",
                    json!({"artifactId": "a", "name": null, "append": true, "lastChunk": false, "bytes": 4})
                ),
                event("message", json!({"text": "x".repeat(MAX_TEXT_BYTES)})),
            ]
        );
    }

    #[test]
    fn unknown_events_do_not_count() {
        let mut log = EventLog::default();
        log.record(&StreamResponse::Unknown, 1);
        assert_eq!((log.total(), log.bytes()), (0, 0));
    }
}
