//! Makes the result of a call from the agent's output.
//!
//! Follows `docs/spec/mcp.md` §3.1, §3.2. A finished task becomes its content; one that continues
//! or asks becomes a *handle result* (see `handle`). The built-in tools have one shape for both. The
//! result of the call after a cancelled one names the task of that call, which continues
//! (`gateway::cancelled_calls` selects these calls).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::content::{ContentDisplay, StructuredEnvelope, blocks, joined};
use super::extension;
use super::handle::{HandleContent, HandleNotes, handle, handle_of, next_step_hint, quotable};
pub use super::handle::{ResultContext, TaskTools};
use super::output::{AgentOutput, OutputState};
use super::resource_uri::task_uri;
use super::task_status::state_of;
use crate::a2a::{Part, PartBody, TaskState};
use crate::mcp::Version;
use crate::mcp::tools::{CallToolResult, ContentBlock, ResourceLinks};

/// The output is only at the agent, which does not return it: the text must not read as an empty
/// result.
const NOT_TO_BE_HAD: &str =
    "The task has ended, but what the agent made cannot be had from it now. Ask for the task again later.";

/// The alternative to the built-in tools that takes a `taskId`, in a result of the agent's tool,
/// and in one of a built-in tool.
pub(super) const AGAIN: &str = "this tool again";
pub(super) const ELSEWHERE: &str = "the agent's own tool";

/// Returns the result of a call with the output `work`; `local` names the call while its task has
/// no name.
pub fn result(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    match work.state() {
        OutputState::Finished => finished(work, audience),
        OutputState::Asking | OutputState::Running => {
            let advice = next_step_hint(work, audience, AGAIN, audience.task(work, local).as_str());
            handle(work, audience, local, advice, HandleNotes::default())
        }
    }
}

/// Returns the result of a call with a question that the user declined to answer.
pub fn declined(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    let task = audience.task(work, local);
    let said = format!(
        "The user declined to answer. The task stays open.\n{}",
        next_step_hint(work, audience, AGAIN, task.as_str())
    );
    handle(work, audience, local, said, HandleNotes::default())
}

/// Returns the result of a call with an answer that the agent rejected: the question is still open.
pub fn refused(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    let task = audience.task(work, local);
    let (tool, question) = (audience.answering_tool(AGAIN), work.status_text());
    let said = format!(
        "The agent refused this answer; its question is still open: {question}\nTo answer in another form, call {tool} \
         with taskId={:?} and text, data or files, as the agent wants it.",
        task.as_str()
    );
    handle(work, audience, local, said, HandleNotes::default())
}

/// The words for a model before the handle of a conversation, in quotation marks.
pub(crate) const CONTINUATION_HINT: &str = "To continue this conversation, pass contextId ";

/// Returns the result of `subagent_start`.
pub fn started(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    let task = audience.task(work, local);
    let first = format!("The task was started: {}.", task_uri(task.as_str()));
    let is_linked = matches!(audience.links, ResourceLinks::SubagentStart | ResourceLinks::All);
    task_tool_result(work, audience, local, &first, HandleNotes { is_linked, ..HandleNotes::default() })
}

/// Returns the result of `subagent_send`.
pub fn sent(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    task_tool_result(
        work,
        audience,
        local,
        "The text was sent.",
        HandleNotes { ok: Some(true), ..HandleNotes::default() },
    )
}

/// Returns the result of `subagent_get` and `subagent_wait`.
pub fn snapshot(work: &AgentOutput, audience: &ResultContext<'_>, local: [u8; 16]) -> CallToolResult {
    task_tool_result(work, audience, local, "", HandleNotes::default())
}

/// Returns the result of `subagent_cancel`; `canceled` is true if the cancellation is known to have
/// had an effect.
pub fn cancelled(
    work: &AgentOutput,
    audience: &ResultContext<'_>,
    local: [u8; 16],
    canceled: bool,
) -> CallToolResult {
    let state = state_of(work);
    let said = match (canceled, state.is_terminal()) {
        (true, _) if state == TaskState::Canceled => "The task is canceled.".to_owned(),
        (true, _) => format!("The task is canceled here; the agent last said that it is {}.", state.as_str()),
        (false, true) => format!("The task had ended before: it is {}.", state.as_str()),
        (false, false) => format!("The agent did not cancel the task: it is {}.", state.as_str()),
    };
    handle(work, audience, local, said, HandleNotes { canceled: Some(canceled), ..HandleNotes::default() })
}

/// Returns the result of a task tool: the output, if the task is finished; else the next step.
fn task_tool_result(
    work: &AgentOutput,
    audience: &ResultContext<'_>,
    local: [u8; 16],
    first: &str,
    extras: HandleNotes,
) -> CallToolResult {
    if work.state() != OutputState::Finished {
        let advice = next_step_hint(work, audience, ELSEWHERE, audience.task(work, local).as_str());
        return handle(work, audience, local, format!("{first} {advice}").trim_start().to_owned(), extras);
    }
    let is_error = work.artifacts_shed || matches!(state_of(work), TaskState::Failed | TaskState::Rejected);
    let pieces = output(work, state_of(work) != TaskState::Completed);
    let (content, text) = finished_content(work, &pieces, audience.display());
    let fresh = envelope(text.clone(), pieces.iter().filter(|piece| !piece.is_earlier));
    let extras = HandleNotes { output: fresh.single_data().map(ToOwned::to_owned), ..extras };
    handle_of(work, audience, local, HandleContent { content, envelope: envelope(text, &pieces) }, extras)
        .with_error(is_error)
}

fn finished(work: &AgentOutput, audience: &ResultContext<'_>) -> CallToolResult {
    if work.artifacts_shed {
        return CallToolResult::failure(NOT_TO_BE_HAD);
    }
    let is_error = state_of(work) != TaskState::Completed;
    let pieces = output(work, is_error);
    let (mut content, _) = finished_content(work, &pieces, audience.display());
    let context = audience.context(work).filter(|_| !is_error);
    let structured_content =
        if is_error { None } else { structured(work, &pieces, audience.version, context.as_deref()) };
    if let Some(context) = context {
        content.push(ContentBlock::for_the_model([CONTINUATION_HINT, "\"", &context, "\"."].concat()));
    }
    let extensions = extension::told(work, audience.extensions);
    CallToolResult { content, structured_content, is_error, extensions }
}

/// Returns the blocks of a finished task, and the gateway's text among them.
fn finished_content(
    work: &AgentOutput,
    pieces: &[OutputPiece<'_>],
    display: ContentDisplay,
) -> (Vec<ContentBlock>, String) {
    let state = state_of(work);
    let mut text = String::new();
    if work.artifacts_shed {
        NOT_TO_BE_HAD.clone_into(&mut text);
    }
    if state != TaskState::Completed {
        text = client_override(state, work);
    }
    let mut content = Vec::with_capacity(2);
    content.extend(Some(ContentBlock::text(text.as_str())).filter(|_| !text.is_empty()));
    for piece in pieces {
        match piece.is_artifact {
            true => joined(piece.parts.iter(), display, &mut content),
            false => blocks(piece.parts.iter(), display, &mut content),
        }
    }
    if content.is_empty() {
        "The agent completed the task and gave no output.".clone_into(&mut text);
        content.push(ContentBlock::text(text.as_str()));
    }
    (content, text)
}

/// One artifact or message of the output.
struct OutputPiece<'a> {
    parts: Cow<'a, [Part]>,
    is_artifact: bool,
    /// True if it was made before the last question: the client got it with that question.
    is_earlier: bool,
}

impl<'a> OutputPiece<'a> {
    fn message(parts: impl Into<Cow<'a, [Part]>>) -> Self {
        Self { parts: parts.into(), is_artifact: false, is_earlier: false }
    }
}

/// Returns the agent's output: its reply; or the artifacts and the final message; or, from agents
/// that use neither, its last message.
fn output(work: &AgentOutput, is_error: bool) -> Vec<OutputPiece<'_>> {
    if let Some(reply) = &work.reply {
        return vec![OutputPiece::message(&reply.parts)];
    }
    let mut of_turn = work.artifacts_of_turn().map(|artifact| artifact.artifact_id.as_str()).peekable();
    let mut pieces: Vec<OutputPiece<'_>> = Vec::with_capacity(2);
    for artifact in work.artifacts() {
        let is_fresh = of_turn.next_if_eq(&artifact.artifact_id.as_str()).is_some();
        let parts = Cow::Borrowed(artifact.parts.as_slice());
        pieces.push(OutputPiece { parts, is_artifact: true, is_earlier: !is_fresh });
    }
    if is_error {
        return pieces;
    }
    pieces.extend(work.status.iter().map(|status| OutputPiece::message(&status.parts)));
    let is_shown = |piece: &OutputPiece<'_>| piece.parts.iter().any(|part| !part.is_thought());
    if !pieces.iter().any(is_shown)
        && let Some(said) = work.closing_message()
    {
        pieces.push(OutputPiece::message(said.parts));
    }
    pieces
}

fn client_override(state: TaskState, work: &AgentOutput) -> String {
    let said = work.reason().map(|reason| quotable(&reason)).filter(|text| !text.is_empty());
    let what = match state {
        TaskState::Rejected => "The agent rejected the task",
        TaskState::Canceled => "The agent canceled the task",
        TaskState::Failed
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::InputRequired
        | TaskState::AuthRequired
        | TaskState::Completed
        | TaskState::Unknown => "The agent failed the task",
    };
    match said {
        Some(said) => format!("{what}: {said}"),
        None => format!("{what} and did not say why."),
    }
}

/// Returns a text of the gateway and pieces of output, as data.
fn envelope<'a>(
    text: String,
    pieces: impl IntoIterator<Item = &'a OutputPiece<'a>>,
) -> StructuredEnvelope<'a> {
    let mut envelope = StructuredEnvelope::new(text);
    for piece in pieces {
        envelope.add(&piece.parts, piece.is_artifact);
    }
    envelope
}

/// Returns the output since the last question as structured content: a lone data part as it is (any
/// JSON for modern clients, an object for legacy ones), data and other content together in one
/// envelope. Text alone has none.
fn structured(
    work: &AgentOutput,
    pieces: &[OutputPiece<'_>],
    version: Version,
    context: Option<&str>,
) -> Option<Box<RawValue>> {
    let is_data = |part: &Part| matches!(part.body, PartBody::Data(_));
    // Nearly every result is text alone, which need not be copied.
    if !version.has_structured_output() || !pieces.iter().any(|piece| piece.parts.iter().any(is_data)) {
        return None;
    }
    let envelope = envelope(String::new(), pieces.iter().filter(|piece| !piece.is_earlier));
    if let Some(only) = envelope.only_data() {
        let fits = version >= Version::V2026_07_28 || only.get().starts_with('{');
        return (fits && only.get() != "null").then(|| only.to_owned());
    }
    if !envelope.is_mixed() {
        return None;
    }
    to_raw_value(&FinishedOutput { envelope, context_id: context, state: state_of(work).as_str() }).ok()
}

/// Output of several kinds, and the conversation that it belongs to.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FinishedOutput<'a> {
    #[serde(flatten)]
    envelope: StructuredEnvelope<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    state: &'static str,
}

/// A cancelled call with a task that continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierCall<'a> {
    /// The output of its task.
    pub work: &'a AgentOutput,
    /// Number of the call, used while its task has no name.
    pub local: [u8; 16],
    /// True if it was a call of a built-in tool.
    pub is_own_tool: bool,
}

impl EarlierCall<'_> {
    /// Returns the sentences that name the task and the way to its result.
    pub(crate) fn told(&self, audience: &ResultContext<'_>) -> String {
        let tool = if self.is_own_tool { ELSEWHERE } else { AGAIN };
        let task = audience.task(self.work, self.local);
        let task = task.as_str();
        if self.work.state() != OutputState::Finished {
            let advice = next_step_hint(self.work, audience, tool, task);
            return format!(
                "An earlier call of this tool was cancelled before its result came; it is still running as task {task:?}. {advice}"
            );
        }
        let wait = if audience.task_tools.wait { "subagent_wait" } else { tool };
        format!(
            "An earlier call of this tool was cancelled before its result came; it has ended as task {task:?}. Call {wait} with \
             taskId={task:?} to get the result."
        )
    }
}

/// Adds sentences of the gateway to a result: to its text, and to its structured content, which
/// some clients show alone.
pub(crate) fn add_text(result: &mut CallToolResult, said: &str) {
    if let Some(structured) = result.structured_content.take() {
        result.structured_content = Some(with_text(structured, said));
    }
    result.content.push(ContentBlock::text(said));
}

/// Returns an envelope with this text added: the existing one, or a new one around a lone data
/// part.
fn with_text(structured: Box<RawValue>, said: &str) -> Box<RawValue> {
    let added = match envelope_members(&structured) {
        Some((members, text)) if text.is_empty() => with_member(members, said),
        Some((members, text)) => with_member(members, &format!("{text}\n{said}")),
        None => to_raw_value(&StructuredEnvelope::with_data(said, &structured)).ok(),
    };
    added.unwrap_or(structured)
}

fn with_member(members: BTreeMap<&str, &RawValue>, text: &str) -> Option<Box<RawValue>> {
    let text = to_raw_value(text).ok()?;
    let mut members = members;
    members.insert("text", &text);
    to_raw_value(&members).ok()
}

/// Returns the members of an envelope and its text; `None` for data of an agent.
fn envelope_members(structured: &RawValue) -> Option<(BTreeMap<&str, &RawValue>, String)> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(structured.get()).ok()?;
    let is_list = |name| members.get(name).is_some_and(|value: &&RawValue| value.get().starts_with('['));
    let text = serde_json::from_str(members.get("text")?.get()).ok()?;
    (is_list("data") && is_list("files")).then_some((members, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Artifact, Message, Role, StreamResponse, TaskStatus};
    use crate::seal::Sealer;

    fn sealer() -> Sealer {
        Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap()
    }

    fn message(text: &str) -> Message {
        Message {
            message_id: None,
            role: Role::Agent,
            parts: vec![Part::new(PartBody::Text(text.into()))],
            task_id: None,
            context_id: None,
            reference_task_ids: vec![],
            extensions: vec![],
            metadata: None,
        }
    }

    fn work(state: TaskState, said: Option<&str>, parts: Vec<Part>) -> AgentOutput {
        let mut work = AgentOutput::new(10_000);
        if !parts.is_empty() {
            let artifact = Artifact {
                artifact_id: "a".into(),
                name: None,
                description: None,
                parts,
                extensions: Vec::new(),
                metadata: None,
            };
            let event = StreamResponse::Artifact {
                task_id: None,
                context_id: None,
                artifact,
                append: false,
                last_chunk: true,
                metadata: None,
            };
            work.apply(event).unwrap();
        }
        let status = TaskStatus { state, message: said.map(message).map(Box::new), timestamp: None };
        let event = StreamResponse::Status {
            task_id: Some("raw-task-id".into()),
            context_id: Some("raw-context-id".into()),
            status,
            last: true,
            metadata: None,
        };
        work.apply(event).unwrap();
        work
    }

    fn audience(version: Version, sealer: &Sealer, helps: bool) -> ResultContext<'_> {
        let task_tools = TaskTools { wait: helps, send: helps };
        ResultContext {
            version,
            caller: "me",
            sealer,
            agent: "bard",
            task_tools,
            extensions: &[],
            links: ResourceLinks::default(),
        }
    }

    fn told(work: &AgentOutput, version: Version) -> serde_json::Value {
        let sealer = sealer();
        let audience = audience(version, &sealer, false);
        serde_json::to_value(result(work, &audience, [1; 16])).unwrap()
    }

    fn data(json: &str) -> Part {
        Part::new(PartBody::Data(RawValue::from_string(json.into()).unwrap()))
    }

    #[test]
    fn clients_never_see_an_agents_ids() {
        for state in [
            TaskState::Completed,
            TaskState::Failed,
            TaskState::InputRequired,
            TaskState::Working,
            TaskState::AuthRequired,
        ] {
            let text = told(&work(state, Some("words"), vec![]), Version::V2026_07_28).to_string();
            assert!(!text.contains("raw-"), "{text}");
        }
    }

    #[test]
    fn a_question_becomes_a_handle_that_a_model_can_act_on() {
        let told = told(&work(TaskState::InputRequired, Some("Which date?"), vec![]), Version::V2025_11_25);
        assert_eq!(told["isError"], false);
        assert_eq!(told["structuredContent"]["state"], "input-required");
        assert_eq!(told["structuredContent"]["statusMessage"], "Which date?");
        let task = told["structuredContent"]["taskId"].as_str().unwrap();
        assert!(told["content"][0]["text"].as_str().unwrap().contains(task));
        assert_eq!(told["structuredContent"]["taskUri"], format!("a2a://task/{task}"));
    }

    #[test]
    fn old_clients_get_no_structured_content() {
        let told = told(&work(TaskState::Working, None, vec![]), Version::V2025_03_26);
        assert!(told.get("structuredContent").is_none());
        assert!(told["content"][0]["text"].as_str().unwrap().contains("taskId="));
    }

    #[test]
    fn one_data_part_is_structured_content_as_far_as_the_revision_takes_it() {
        for (parts, version, expected) in [
            (vec![data(r#"{"a":1}"#)], Version::V2025_06_18, Some(r#"{"a":1}"#)),
            (vec![data("[1]")], Version::V2025_11_25, None),
            (vec![data("[1]")], Version::V2026_07_28, Some("[1]")),
            (vec![data("{}"), data("{}")], Version::V2026_07_28, None),
        ] {
            let told = told(&work(TaskState::Completed, None, parts), version);
            assert_eq!(told.get("structuredContent").map(ToString::to_string).as_deref(), expected);
        }
    }

    #[test]
    fn withheld_output_is_named() {
        let mut shed = work(TaskState::Completed, None, vec![data("[1]")]);
        shed.evict_artifacts();
        let sealer = sealer();
        let audience = audience(Version::V2026_07_28, &sealer, true);
        for told in [result(&shed, &audience, [1; 16]), snapshot(&shed, &audience, [1; 16])] {
            let told = serde_json::to_value(told).unwrap();
            assert_eq!(told["isError"], true, "{told}");
            assert!(told["content"][0]["text"].as_str().unwrap().contains("cannot be had"), "{told}");
        }
    }

    #[test]
    fn failures_are_errors_with_the_agents_words() {
        for (state, words) in [
            (TaskState::Failed, "failed"),
            (TaskState::Rejected, "rejected"),
            (TaskState::Canceled, "canceled"),
        ] {
            let told = told(&work(state, Some("no luck"), vec![]), Version::V2025_11_25);
            assert_eq!(told["isError"], true);
            let text = told["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(words) && text.contains("no luck"), "{text}");
        }
    }

    #[test]
    fn a_task_without_a_name_still_gets_a_handle() {
        let told = told(&AgentOutput::new(10), Version::V2026_07_28);
        assert!(told["structuredContent"]["taskId"].as_str().unwrap().len() > 20);
    }

    fn by_tool(
        state: TaskState,
        parts: Vec<Part>,
        make: impl Fn(&AgentOutput, &ResultContext<'_>) -> CallToolResult,
    ) -> serde_json::Value {
        let sealer = sealer();
        let audience = audience(Version::V2025_11_25, &sealer, true);
        serde_json::to_value(make(&work(state, Some("words"), parts), &audience)).unwrap()
    }

    #[test]
    fn a_subagent_tool_gives_what_the_agent_made_and_the_handle_beside_it() {
        let look = |state, parts| by_tool(state, parts, |work, audience| snapshot(work, audience, [1; 16]));
        let done = look(TaskState::Completed, vec![data("[1]")]);
        assert_eq!(done["structuredContent"]["output"], serde_json::json!([1]));
        assert_eq!(done["structuredContent"]["artifacts"][0]["artifactId"], "a");
        assert_eq!((&done["content"][0]["text"], &done["isError"]), (&"[1]".into(), &false.into()));
        for (state, is_error) in
            [(TaskState::Failed, true), (TaskState::Rejected, true), (TaskState::Canceled, false)]
        {
            let told = look(state, vec![]);
            assert_eq!(
                (&told["isError"], &told["structuredContent"]["state"]),
                (&is_error.into(), &state.as_str().into())
            );
        }
        let going = look(TaskState::Working, vec![data("[1]")]);
        assert_eq!(going["structuredContent"].get("output"), None);
        assert!(going["content"][0]["text"].as_str().unwrap().contains("subagent_wait"), "{going}");
    }

    #[test]
    fn cancelled_result_names_the_work() {
        let sent = by_tool(TaskState::Working, vec![], |work, audience| sent(work, audience, [1; 16]));
        assert_eq!(sent["structuredContent"]["ok"], true);
        let declined =
            by_tool(TaskState::InputRequired, vec![], |work, audience| declined(work, audience, [1; 16]));
        let text = declined["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("declined") && text.contains("words") && text.contains("subagent_send"),
            "{text}"
        );
        for (state, canceled, said) in [
            (TaskState::Canceled, true, "is canceled."),
            (TaskState::Working, true, "canceled here"),
            (TaskState::Completed, false, "had ended before"),
            (TaskState::Working, false, "did not cancel"),
        ] {
            let told = by_tool(state, vec![], |work, audience| cancelled(work, audience, [1; 16], canceled));
            assert_eq!(
                (&told["structuredContent"]["canceled"], &told["isError"]),
                (&canceled.into(), &false.into())
            );
            assert!(told["content"][0]["text"].as_str().unwrap().contains(said), "{told}");
        }
    }

    #[test]
    fn link_to_the_task_stands_where_it_is_wanted() {
        let sealer = sealer();
        for (version, links, in_handle, in_start) in [
            (Version::V2025_03_26, ResourceLinks::All, false, false),
            (Version::V2025_06_18, ResourceLinks::None, false, false),
            (Version::V2025_06_18, ResourceLinks::SubagentStart, false, true),
            (Version::V2025_06_18, ResourceLinks::All, true, true),
        ] {
            let work = work(TaskState::Working, None, vec![]);
            let audience = ResultContext { links, ..audience(version, &sealer, true) };
            let has_link = |result: CallToolResult| {
                let result = serde_json::to_value(result).unwrap();
                result["content"].as_array().unwrap().iter().any(|block| block["type"] == "resource_link")
            };
            assert_eq!(has_link(result(&work, &audience, [1; 16])), in_handle, "{version:?} {links:?}");
            assert_eq!(has_link(started(&work, &audience, [1; 16])), in_start, "{version:?} {links:?}");
        }
    }

    #[test]
    fn data_beside_text_is_in_one_envelope() {
        let text = Part::new(PartBody::Text("It is".into()));
        let parts = vec![text, data(r#"{"n":1}"#), data("[2]")];
        for version in [Version::V2025_06_18, Version::V2026_07_28] {
            let told = told(&work(TaskState::Completed, Some("done"), parts.clone()), version);
            let structured = &told["structuredContent"];
            assert_eq!(structured["text"], "It is\ndone", "{told}");
            assert_eq!(structured["data"], serde_json::json!([{ "n": 1 }, [2]]));
            assert_eq!(
                (&structured["files"], &structured["state"]),
                (&serde_json::json!([]), &"completed".into())
            );
            assert!(structured["contextId"].is_string(), "{told}");
        }
    }

    #[test]
    fn data_of_an_earlier_turn_is_not_the_output() {
        let mut work = work(TaskState::InputRequired, Some("Which?"), vec![data(r#"{"draft":1}"#)]);
        let status = TaskStatus {
            state: TaskState::Completed,
            message: Some(Box::new(message("done"))),
            timestamp: None,
        };
        let event =
            StreamResponse::Status { task_id: None, context_id: None, status, last: true, metadata: None };
        work.apply(event).unwrap();
        let told = told(&work, Version::V2026_07_28);
        assert_eq!(told.get("structuredContent"), None, "{told}");
        assert_eq!(told["content"][0]["text"], r#"{"draft":1}"#, "the task made it");
    }

    #[test]
    fn sentences_stand_in_the_text_and_in_structured_content() {
        for (before, after) in [
            (None, None),
            (
                Some(r#"{"text":"a","data":[],"files":[],"taskId":"t"}"#),
                Some(r#"{"data":[],"files":[],"taskId":"t","text":"a\nb"}"#),
            ),
            (Some(r#"{"text":"","data":[1],"files":[]}"#), Some(r#"{"data":[1],"files":[],"text":"b"}"#)),
            (Some(r#"{"text":"x"}"#), Some(r#"{"text":"b","data":[{"text":"x"}],"files":[]}"#)),
            (Some("[7]"), Some(r#"{"text":"b","data":[[7]],"files":[]}"#)),
        ] {
            let structured_content = before.map(|json| RawValue::from_string(json.to_owned()).unwrap());
            let mut result = CallToolResult { structured_content, ..CallToolResult::default() };
            add_text(&mut result, "b");
            assert_eq!(result.structured_content.as_deref().map(RawValue::get), after);
            assert_eq!(serde_json::to_value(&result.content).unwrap()[0]["text"], "b");
        }
    }
}
