//! The handle result: what a client holds of a task, in words that a model can act on and the same as data.
//!
//! Reads mcp.md §3.1. Clients see sealed handles, never an agent's ids. Not here: what an agent made (see `outcome`).

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::content::blocks;
use super::extension::told;
use super::resources::{artifact_uri, task_uri};
use super::status::state_of;
use super::work::{Work, words};
use crate::a2a::{Message, PartBody, State, clean};
use crate::mcp::Version;
use crate::mcp::content::Block;
use crate::mcp::tools::CallResult;
use crate::seal::{ContextRef, LocalRef, Sealer, TaskHandle, TaskRef};

/// Most artifacts that a result names; the resource of the task names all.
const MOST_ARTIFACTS: usize = 100;

/// Which of the gateway's own tools for tasks a text may name: those that the caller may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskTools {
    /// `subagent_wait`.
    pub wait: bool,
    /// `subagent_send`.
    pub send: bool,
}

/// For whom a result is made.
#[derive(Debug, Clone, Copy)]
pub struct Audience<'a> {
    /// The revision that the client speaks.
    pub version: Version,
    /// The stable name of the caller.
    pub caller: &'a str,
    /// Seals what it will hold.
    pub sealer: &'a Sealer,
    /// The agent that did the work.
    pub agent: &'a str,
    /// The gateway's own tools for tasks that the client has; else the agent's tool takes a `taskId`.
    pub task_tools: TaskTools,
    /// URIs of the extensions of A2A of which it gets data; no others pass.
    pub extensions: &'a [String],
}

impl Audience<'_> {
    /// The caller's handle of the task; `local` names the call while its task has no name.
    pub fn task(&self, work: &Work, local: [u8; 16]) -> TaskHandle {
        let agent = self.agent.to_owned();
        let skill = || work.skill.as_deref().map(str::to_owned);
        let known = work.task_id.as_deref();
        let known = known.map(|task| TaskRef { agent: agent.clone(), task: task.into(), skill: skill() });
        match known.and_then(TaskRef::fitting) {
            Some(known) => known.seal(self.sealer, self.caller),
            None => LocalRef { agent, number: local }.seal(self.sealer, self.caller),
        }
    }

    /// The caller's handle of the conversation, if there is one that fits.
    pub fn context(&self, work: &Work) -> Option<String> {
        let context = work.context_id.clone()?;
        let known = ContextRef { agent: self.agent.to_owned(), context };
        known.fits().then(|| known.seal(self.sealer, self.caller).into_string())
    }
}

/// What a client holds of a task. One shape wherever it appears; the subagent tools promise it as their output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handle<'a> {
    task_id: &'a str,
    task_uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    artifacts: Vec<ArtifactLink<'a>>,
    #[serde(flatten)]
    extras: Extras,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLink<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    uri: String,
}

/// What some results say besides.
#[derive(Default, Serialize)]
pub(super) struct Extras {
    /// The structured output of finished work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Box<RawValue>>,
    /// What was to be sent was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ok: Option<bool>,
    /// What was to be cancelled is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) canceled: Option<bool>,
}

/// A handle result that begins with `said`.
pub(super) fn handle(
    work: &Work,
    audience: &Audience<'_>,
    local: [u8; 16],
    said: String,
    extras: Extras,
) -> CallResult {
    let task = audience.task(work, local);
    let (task, state) = (task.as_str(), state_of(work));
    let uri = task_uri(task);
    let mut content = vec![Block::text(said)];
    if let Some(status) = work.status.as_ref().filter(|_| state.is_interrupted()) {
        let beside_text = status.parts.iter().filter(|part| !matches!(part.body, PartBody::Text(_)));
        blocks(beside_text, audience.version, &mut content);
    }
    if !audience.version.has_structured_output() {
        return CallResult { content, extensions: told(work, audience.extensions), ..CallResult::default() };
    }
    content.push(Block::ResourceLink {
        uri: uri.clone(),
        name: "task".into(),
        media_type: Some("application/json".into()),
    });
    let artifacts = work.artifacts().take(MOST_ARTIFACTS).map(|artifact| ArtifactLink {
        artifact_id: &artifact.artifact_id,
        name: artifact.name.as_deref(),
        uri: artifact_uri(task, &artifact.artifact_id),
    });
    let handle = Handle {
        task_id: task,
        task_uri: &uri,
        context_id: audience.context(work),
        state: state.word(),
        status_message: work.status.as_ref().map(quoted).filter(|text| !text.is_empty()),
        artifacts: artifacts.collect(),
        extras,
    };
    let (structured_content, extensions) = (to_raw_value(&handle).ok(), told(work, audience.extensions));
    CallResult { content, structured_content, is_error: false, extensions }
}

/// The words of an agent within a sentence of the gateway's: bounded, and without characters that a reader does not see.
pub(super) fn quoted(message: &Message) -> String {
    quotable(&words(message))
}

/// Returns text of an agent as it may stand within a sentence of the gateway's.
pub(super) fn quotable(text: &str) -> String {
    const LONGEST: usize = 8 * 1024;
    clean(text, LONGEST)
}

/// What the model can do next about work that is not finished; `tool` takes a `taskId` where the gateway's own tools may not be used.
pub(super) fn advice(work: &Work, audience: &Audience<'_>, (tool, task): (&str, &str)) -> String {
    let state = state_of(work);
    let said = work.status.as_ref().map(quoted).filter(|text| !text.is_empty());
    let said = said.as_deref();
    let again = format!("{tool} with taskId={task:?}");
    let TaskTools { wait, send } = audience.task_tools;
    let answer = if send { format!("subagent_send with taskId={task:?}") } else { again.clone() };
    let wait = if wait { format!("subagent_wait with taskId={task:?}") } else { format!("{again} alone") };
    match state {
        State::InputRequired => format!(
            "The agent asks: {}\nTo answer, call {answer} and the answer as text.",
            said.unwrap_or("(it did not say what)")
        ),
        State::AuthRequired => format!(
            "The agent needs an authorization before it can go on: {}\nOnce it has been given, call {wait} to get the result. Do \
             not send secrets.",
            said.unwrap_or("(it did not say which)")
        ),
        State::Submitted
        | State::Working
        | State::Completed
        | State::Failed
        | State::Canceled
        | State::Rejected
        | State::Unknown => format!(
            "The agent is still working ({}{}). Call {wait} to wait for the result.",
            state.word(),
            said.map(|said| format!(": {said:?}")).unwrap_or_default()
        ),
    }
}
