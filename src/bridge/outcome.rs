//! From what is known of the work to the result of the call.
//!
//! Reads mcp.md §3.1, §3.2. A finished task becomes its content; one that goes on or asks becomes a *handle result*: words that
//! a model can act on, and the same as data. Clients see sealed handles, never an agent's ids. Not here: when to answer.

use serde::Serialize;
use serde_json::value::RawValue;

use super::content::{blocks, joined};
use super::work::{Standing, Work, words};
use crate::a2a::{Message, Part, PartBody, State, clean};
use crate::mcp::Version;
use crate::mcp::content::Block;
use crate::mcp::tools::CallResult;
use crate::seal::{ContextRef, LocalRef, Sealer, TaskRef};

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
}

/// The result of a call whose work stands as `work` says; `local` names the call while its task has no name.
pub fn result(work: &Work, audience: &Audience<'_>, local: [u8; 16]) -> CallResult {
    match work.standing() {
        Standing::Finished => finished(work, audience),
        Standing::Asking | Standing::Running => handle(work, audience, local),
    }
}

fn finished(work: &Work, audience: &Audience<'_>) -> CallResult {
    let state = work.state.unwrap_or(State::Completed);
    let is_error = work.reply.is_none() && state != State::Completed;
    let mut content = Vec::with_capacity(2);
    if is_error {
        content.push(Block::text(verdict(state, work.status.as_ref())));
    }
    output(work, is_error, audience.version, &mut content);
    if content.is_empty() {
        content.push(Block::text("The agent completed the task and gave no output."));
    }
    let structured_content = if is_error { None } else { structured(work, audience.version) };
    if let Some(context) = context_handle(work, audience).filter(|_| !is_error) {
        content.push(Block::for_the_model(format!(
            "To continue this conversation, pass contextId {context:?}."
        )));
    }
    CallResult { content, structured_content, is_error }
}

/// What the agent made: its reply; or the artifacts and what it says at the end; or, from agents that use neither, its last word.
fn output(work: &Work, is_error: bool, version: Version, content: &mut Vec<Block>) {
    if let Some(reply) = &work.reply {
        return blocks(&reply.parts, version, content);
    }
    for artifact in work.artifacts() {
        joined(&artifact.parts, version, content);
    }
    if is_error {
        return;
    }
    if let Some(status) = &work.status {
        blocks(&status.parts, version, content);
    } else if content.is_empty()
        && let Some(said) = work.last_message()
    {
        blocks(&said.parts, version, content);
    }
}

fn verdict(state: State, said: Option<&Message>) -> String {
    let said = said.map(quoted).filter(|text| !text.is_empty());
    let what = match state {
        State::Rejected => "The agent rejected the task",
        State::Canceled => "The agent canceled the task",
        State::Failed
        | State::Submitted
        | State::Working
        | State::InputRequired
        | State::AuthRequired
        | State::Completed
        | State::Unknown => "The agent failed the task",
    };
    match said {
        Some(said) => format!("{what}: {said}"),
        None => format!("{what} and did not say why."),
    }
}

/// The one data part of the output, for clients that take data: any JSON for modern ones, an object for legacy ones.
fn structured(work: &Work, version: Version) -> Option<Box<RawValue>> {
    if !version.has_structured_output() {
        return None;
    }
    let made = work.artifacts().flat_map(|artifact| &artifact.parts);
    let replied = work.reply.iter().flat_map(|reply| &reply.parts);
    let mut all = made.chain(replied).filter_map(data);
    let (first, second) = (all.next(), all.next());
    let only = first.filter(|_| second.is_none())?;
    // Some clients take `null` for nothing and then miss what was promised.
    let is_something = version >= Version::V2026_07_28 && only.get() != "null";
    let fits = is_something || only.get().starts_with('{');
    fits.then(|| only.to_owned())
}

fn data(part: &Part) -> Option<&RawValue> {
    match &part.body {
        PartBody::Data(json) => Some(json),
        PartBody::Text(_) | PartBody::Raw(_) | PartBody::Url(_) | PartBody::Unknown(_) => None,
    }
}

fn context_handle(work: &Work, audience: &Audience<'_>) -> Option<String> {
    let context = work.context_id.clone()?;
    let known = ContextRef { agent: audience.agent.to_owned(), context };
    known.fits().then(|| known.seal(audience.sealer, audience.caller).into_string())
}

/// What a client holds of a task that is not finished. One shape wherever it appears.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handle<'a> {
    task_id: &'a str,
    task_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
}

fn handle(work: &Work, audience: &Audience<'_>, local: [u8; 16]) -> CallResult {
    let agent = audience.agent.to_owned();
    let known = work.task_id.as_deref().map(|task| TaskRef { agent: agent.clone(), task: task.into() });
    let task = match known.filter(TaskRef::fits) {
        Some(known) => known.seal(audience.sealer, audience.caller),
        None => LocalRef { agent, number: local }.seal(audience.sealer, audience.caller),
    };
    let task = task.as_str();
    let state = work.state.unwrap_or(State::Submitted);
    let said = work.status.as_ref().map(quoted).filter(|text| !text.is_empty());
    let mut content = vec![Block::text(advice(state, said.as_deref(), task))];
    if let Some(status) = work.status.as_ref().filter(|_| state.is_interrupted()) {
        let beside_text = status.parts.iter().filter(|part| !matches!(part.body, PartBody::Text(_)));
        blocks(beside_text, audience.version, &mut content);
    }
    let handle = Handle {
        task_id: task,
        task_uri: format!("a2a://task/{task}"),
        context_id: context_handle(work, audience),
        state: state.word(),
        status_message: said,
    };
    let structured_content = audience.version.has_structured_output();
    let structured_content =
        structured_content.then(|| serde_json::value::to_raw_value(&handle).ok()).flatten();
    CallResult { content, structured_content, is_error: false }
}

/// The words of an agent within a sentence of the gateway's: bounded, and without characters that a reader does not see.
fn quoted(message: &Message) -> String {
    const LONGEST: usize = 8 * 1024;
    clean(&words(message), LONGEST)
}

fn advice(state: State, said: Option<&str>, task: &str) -> String {
    match state {
        State::InputRequired => format!(
            "The agent asks: {}\nTo answer, call this tool again with taskId={task:?} and the answer as text.",
            said.unwrap_or("(it did not say what)")
        ),
        State::AuthRequired => format!(
            "The agent needs an authorization before it can go on: {}\nOnce it has been given, call this tool again with \
             taskId={task:?} alone to get the result. Do not send secrets.",
            said.unwrap_or("(it did not say which)")
        ),
        State::Submitted
        | State::Working
        | State::Completed
        | State::Failed
        | State::Canceled
        | State::Rejected
        | State::Unknown => format!(
            "The agent is still working ({}{}). Call this tool again with taskId={task:?} alone to wait for the result.",
            state.word(),
            said.map(|said| format!(": {said:?}")).unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Artifact, Event, Role, Status};

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

    fn work(state: State, said: Option<&str>, parts: Vec<Part>) -> Work {
        let mut work = Work::new(10_000);
        if !parts.is_empty() {
            let artifact =
                Artifact { artifact_id: "a".into(), name: None, description: None, parts, metadata: None };
            let event = Event::Artifact {
                task_id: None,
                context_id: None,
                artifact,
                append: false,
                last_chunk: true,
                metadata: None,
            };
            work.apply(event).unwrap();
        }
        let status = Status { state, message: said.map(message), timestamp: None };
        let event = Event::Status {
            task_id: Some("raw-task-id".into()),
            context_id: Some("raw-context-id".into()),
            status,
            last: true,
            metadata: None,
        };
        work.apply(event).unwrap();
        work
    }

    fn told(work: &Work, version: Version) -> serde_json::Value {
        let sealer = sealer();
        let audience = Audience { version, caller: "me", sealer: &sealer, agent: "bard" };
        serde_json::to_value(result(work, &audience, [1; 16])).unwrap()
    }

    fn data(json: &str) -> Part {
        Part::new(PartBody::Data(RawValue::from_string(json.into()).unwrap()))
    }

    #[test]
    fn clients_never_see_an_agents_ids() {
        for state in
            [State::Completed, State::Failed, State::InputRequired, State::Working, State::AuthRequired]
        {
            let text = told(&work(state, Some("words"), vec![]), Version::V2026_07_28).to_string();
            assert!(!text.contains("raw-"), "{text}");
        }
    }

    #[test]
    fn a_question_becomes_a_handle_that_a_model_can_act_on() {
        let told = told(&work(State::InputRequired, Some("Which date?"), vec![]), Version::V2025_11_25);
        assert_eq!(told["isError"], false);
        assert_eq!(told["structuredContent"]["state"], "input-required");
        assert_eq!(told["structuredContent"]["statusMessage"], "Which date?");
        let task = told["structuredContent"]["taskId"].as_str().unwrap();
        assert!(told["content"][0]["text"].as_str().unwrap().contains(task));
        assert_eq!(told["structuredContent"]["taskUri"], format!("a2a://task/{task}"));
    }

    #[test]
    fn old_clients_get_no_structured_content() {
        let told = told(&work(State::Working, None, vec![]), Version::V2025_03_26);
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
            let told = told(&work(State::Completed, None, parts), version);
            assert_eq!(told.get("structuredContent").map(ToString::to_string).as_deref(), expected);
        }
    }

    #[test]
    fn failures_are_errors_with_the_agents_words() {
        for (state, words) in
            [(State::Failed, "failed"), (State::Rejected, "rejected"), (State::Canceled, "canceled")]
        {
            let told = told(&work(state, Some("no luck"), vec![]), Version::V2025_11_25);
            assert_eq!(told["isError"], true);
            let text = told["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(words) && text.contains("no luck"), "{text}");
        }
    }

    #[test]
    fn a_task_without_a_name_still_gets_a_handle() {
        let told = told(&Work::new(10), Version::V2026_07_28);
        assert!(told["structuredContent"]["taskId"].as_str().unwrap().len() > 20);
    }
}
