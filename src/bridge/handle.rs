//! The handle result: a client's view of a task, in words that a model can act on and the same as
//! data.
//!
//! Follows `docs/spec/mcp.md` §3.1. Clients see sealed handles, never an agent's ids. The agent's
//! output is in `tool_result`.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::content::StructuredEnvelope;
use super::content::{ContentDisplay, blocks, joined};
use super::elicitation::AgentQuestion;
use super::extension;
use super::output::AgentOutput;
use super::resource_uri::{artifact_uri, task_uri};
use super::task_status::state_of;
use crate::a2a::{Part, PartBody, TaskState, clean};
use crate::mcp::Version;
use crate::mcp::tools::{CallToolResult, ContentBlock, ResourceLinks};
use crate::seal::{ContextHandle, LocalRef, Sealer, TaskHandle, TaskRef};

/// Maximum number of artifacts that a result names; the resource of the task names all.
const MOST_ARTIFACTS: usize = 100;

/// The built-in task tools that a text may name: those that the caller may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskTools {
    /// `subagent_wait`.
    pub wait: bool,
    /// `subagent_send`.
    pub send: bool,
}

/// The recipient of a result, and its permissions.
#[derive(Debug, Clone, Copy)]
pub struct ResultContext<'a> {
    /// The client's revision.
    pub version: Version,
    /// The stable name of the caller.
    pub caller: &'a str,
    /// Sealer of the client's handles.
    pub sealer: &'a Sealer,
    /// The agent of the call.
    pub agent: &'a str,
    /// The built-in task tools that the client has; without them the agent's tool takes a `taskId`.
    pub task_tools: TaskTools,
    /// URIs of the A2A extensions with data that passes to the client.
    pub extensions: &'a [String],
    /// The results that contain links.
    pub links: ResourceLinks,
}

impl ResultContext<'_> {
    /// Returns the presentation of blocks to the client.
    pub(super) fn display(&self) -> ContentDisplay {
        ContentDisplay { version: self.version, links: self.links == ResourceLinks::All }
    }

    /// Returns the tool that takes an answer: `subagent_send`, or `tool` if the caller may not use
    /// that.
    pub(super) fn answering_tool(&self, tool: &'static str) -> &'static str {
        if self.task_tools.send { "subagent_send" } else { tool }
    }

    /// Returns the caller's handle of the task; `local` names the call while its task has no name.
    pub fn task(&self, work: &AgentOutput, local: [u8; 16]) -> TaskHandle {
        let agent = self.agent.to_owned();
        let skill = || work.skill.as_deref().map(str::to_owned);
        let known = work.task_id.as_deref();
        let known = known.map(|task| TaskRef { agent: agent.clone(), task: task.into(), skill: skill() });
        match known.and_then(TaskRef::fitting) {
            Some(known) => known.seal(self.sealer, self.caller),
            None => LocalRef { agent, number: local }.seal(self.sealer, self.caller),
        }
    }

    /// Returns the caller's handle of the conversation, if there is one that fits.
    pub fn context(&self, work: &AgentOutput) -> Option<String> {
        let context = work.context_id.as_deref()?;
        ContextHandle::fitting(self.sealer, self.caller, self.agent, context).map(ContextHandle::into_string)
    }
}

/// The data of a task for a client. One shape in all results; the output schema of the task tools
/// promises it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskHandleData<'a> {
    #[serde(flatten)]
    envelope: StructuredEnvelope<'a>,
    task_id: &'a str,
    task_uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    artifacts: Vec<ArtifactLink<'a>>,
    #[serde(flatten)]
    extras: HandleNotes,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLink<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    uri: String,
}

/// Additional members of some results.
#[derive(Default, Serialize)]
pub(super) struct HandleNotes {
    /// The structured output of finished work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Box<RawValue>>,
    /// True if the message was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ok: Option<bool>,
    /// True if the task was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) canceled: Option<bool>,
    /// True if the content has a link to the task.
    #[serde(skip)]
    pub(super) is_linked: bool,
}

/// The content of a handle result, as blocks and as data.
pub(super) struct HandleContent<'a> {
    pub(super) content: Vec<ContentBlock>,
    pub(super) envelope: StructuredEnvelope<'a>,
}

/// Returns a handle result that begins with `said`. A task that waits for an answer shows its
/// question.
pub(super) fn handle(
    work: &AgentOutput,
    audience: &ResultContext<'_>,
    local: [u8; 16],
    said: String,
    extras: HandleNotes,
) -> CallToolResult {
    let (mut content, mut envelope) =
        (vec![ContentBlock::text(said.as_str())], StructuredEnvelope::new(said));
    if state_of(work).is_interrupted() {
        // Text and data of the question are in the sentence already.
        let is_said = |part: &&Part| matches!(part.body, PartBody::Text(_) | PartBody::Data(_));
        if let Some(status) = &work.status {
            let beside = status.parts.iter().filter(|part| !is_said(part));
            blocks(beside, audience.display(), &mut content);
            envelope.add_beside_text(&status.parts);
        }
        let is_shown = !work.status_text().is_empty();
        for artifact in work.artifacts_of_turn() {
            if is_shown {
                joined(&artifact.parts, audience.display(), &mut content);
                envelope.add(&artifact.parts, true);
            } else {
                blocks(artifact.parts.iter().filter(|part| !is_said(part)), audience.display(), &mut content);
                envelope.add_beside_text(&artifact.parts);
            }
        }
    }
    handle_of(work, audience, local, HandleContent { content, envelope }, extras)
}

/// Returns a handle result with the content `told`.
pub(super) fn handle_of(
    work: &AgentOutput,
    audience: &ResultContext<'_>,
    local: [u8; 16],
    told: HandleContent<'_>,
    extras: HandleNotes,
) -> CallToolResult {
    let HandleContent { mut content, envelope } = told;
    let extensions = extension::told(work, audience.extensions);
    if !audience.version.has_structured_output() {
        return CallToolResult { content, extensions, ..CallToolResult::default() };
    }
    let task = audience.task(work, local);
    let task = task.as_str();
    let uri = task_uri(task);
    if extras.is_linked || audience.links == ResourceLinks::All {
        content.push(ContentBlock::ResourceLink {
            uri: uri.clone(),
            name: "task".into(),
            media_type: Some("application/json".into()),
        });
    }
    let artifacts = work.artifacts().take(MOST_ARTIFACTS).map(|artifact| ArtifactLink {
        artifact_id: &artifact.artifact_id,
        name: artifact.name.as_deref(),
        uri: artifact_uri(task, &artifact.artifact_id),
    });
    let handle = TaskHandleData {
        envelope,
        task_id: task,
        task_uri: &uri,
        context_id: audience.context(work),
        state: state_of(work).as_str(),
        status_message: Some(work.status_text()).filter(|text| !text.is_empty()),
        artifacts: artifacts.collect(),
        extras,
    };
    CallToolResult { content, structured_content: to_raw_value(&handle).ok(), is_error: false, extensions }
}

/// Returns text of an agent in a form that fits into a sentence of the gateway.
pub(super) fn quotable(text: &str) -> String {
    const MAX_QUOTE_BYTES: usize = 8 * 1024;
    clean(text, MAX_QUOTE_BYTES)
}

/// Returns the next step for the model while the task is not finished; `tool` takes a `taskId` if
/// the caller may not use the built-in tools.
pub(super) fn next_step_hint(
    work: &AgentOutput,
    audience: &ResultContext<'_>,
    tool: &str,
    task: &str,
) -> String {
    let state = state_of(work);
    let said = Some(work.status_text()).filter(|text| !text.is_empty());
    let said =
        said.or_else(|| Some(work.made_text()).filter(|text| state.is_interrupted() && !text.is_empty()));
    let said = said.as_deref();
    let again = format!("{tool} with taskId={task:?}");
    let TaskTools { wait, send } = audience.task_tools;
    let answer = if send { format!("subagent_send with taskId={task:?}") } else { again.clone() };
    let wait = if wait { format!("subagent_wait with taskId={task:?}") } else { format!("{again} alone") };
    match state {
        TaskState::InputRequired => format!(
            "The agent asks: {}\nTo answer, call {answer}. {}.",
            said.unwrap_or("(it did not say what)"),
            AgentQuestion::of(work)
                .map_or_else(|| "Give the answer as text".to_owned(), |open| open.answer_hint())
        ),
        TaskState::AuthRequired => format!(
            "The agent needs an authorization before it can go on: {}\nOnce it has been given, call {wait} to get the result. Do \
             not send secrets.",
            said.unwrap_or("(it did not say which)")
        ),
        TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::Rejected
        | TaskState::Unknown => format!(
            "The agent is still working ({}{}). Call {wait} to wait for the result.",
            state.as_str(),
            said.map(|said| format!(": {said:?}")).unwrap_or_default()
        ),
    }
}
