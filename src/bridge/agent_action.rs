//! Turns the arguments of a call into an action at the agent.
//!
//! Opens the handles that the model passed and makes the A2A message. A task that a call continues
//! must be fetched first; the driver of the call does that.

use serde_json::value::RawValue;

use super::arguments::{FileArgument, ToolArguments};
use super::extension::{ClientExtensions, MessageExtensions};
use crate::a2a::{Message, Part, PartBody, Role, uuid};
use crate::jsonrpc::ObjectText;
use crate::seal::{ContextRef, Sealer, TaskKey};

/// The action at the agent.
#[derive(Debug)]
pub enum AgentAction {
    /// Send this message.
    Say(Message),
    /// Send this message in the task, or after it if it is finished.
    Continue(TaskKey, Message),
    /// Wait for the task.
    Await(TaskKey),
}

/// The trace context (W3C) of the request, for the metadata of its message.
#[derive(Debug, Default, Clone, Copy)]
pub struct TraceContext<'a> {
    /// `traceparent`.
    pub parent: Option<&'a str>,
    /// `tracestate`.
    pub state: Option<&'a str>,
}

/// The caller, the agent and the data of the client's request.
#[derive(Debug, Clone, Copy)]
pub struct CallOrigin<'a> {
    /// The stable name of the caller.
    pub caller: &'a str,
    /// Sealer of the caller's handles.
    pub sealer: &'a Sealer,
    /// The agent that the tool belongs to.
    pub agent: &'a str,
    /// The skill that the tool stands for.
    pub skill: Option<&'a str>,
    /// The caller's trace.
    pub trace: TraceContext<'a>,
    /// Random bytes for the id of the message.
    pub message_id: [u8; 16],
    /// The client's data for A2A extensions.
    pub extensions: ClientExtensions<'a>,
}

/// Builds the action.
///
/// # Errors
///
/// The problem of a handle, or of extension data, for the model. Foreign, expired, tampered and
/// unknown handles have the same text.
pub fn build(asked: ToolArguments, sender: &CallOrigin<'_>) -> Result<AgentAction, String> {
    let context = match &asked.context {
        None => None,
        Some(handle) => Some(open_context(handle, sender)?),
    };
    let Some(handle) = &asked.task else { return message(asked, context, sender).map(AgentAction::Say) };
    let speaks = asked.text.is_some() || asked.data.is_some() || !asked.files.is_empty();
    let named = TaskKey::open(sender.sealer, sender.caller, handle);
    let Some((_, named)) = named.filter(|(agent, _)| agent == sender.agent) else {
        return Err(unknown_task());
    };
    Ok(match speaks {
        true => AgentAction::Continue(named, message(asked, context, sender)?),
        false => AgentAction::Await(named),
    })
}

/// Returns the text for a task that is unknown or belongs to another tool.
pub fn unknown_task() -> String {
    "Unknown taskId: no such task of this tool, or it has expired. Call without taskId to begin a new one."
        .into()
}

fn open_context(handle: &str, sender: &CallOrigin<'_>) -> Result<String, String> {
    ContextRef::open(sender.sealer, sender.caller, handle)
        .filter(|known| known.agent == sender.agent)
        .map(|known| known.context)
        .ok_or_else(|| {
            "Unknown contextId: no such conversation of this tool. Call without contextId to begin a new one."
                .into()
        })
}

fn message(
    asked: ToolArguments,
    context_id: Option<String>,
    sender: &CallOrigin<'_>,
) -> Result<Message, String> {
    let passing = sender.extensions.passing()?;
    let mut parts = Vec::with_capacity(2);
    parts.extend(asked.text.map(|text| Part::new(PartBody::Text(text))));
    parts.extend(asked.data.map(|data| Part::new(PartBody::Data(data))));
    parts.extend(asked.files.into_iter().map(file));
    Ok(Message {
        message_id: Some(uuid(sender.message_id)),
        role: Role::User,
        parts,
        task_id: None,
        context_id,
        reference_task_ids: Vec::new(),
        metadata: metadata(sender, &passing),
        extensions: passing.uris,
    })
}

/// Returns the metadata of a message: the members of the gateway, and the data of A2A extensions.
fn metadata(sender: &CallOrigin<'_>, passing: &MessageExtensions<'_>) -> Option<Box<RawValue>> {
    /// The size of the names and of the characters around values, in bytes.
    const FRAME_BYTES: usize = 48;
    let TraceContext { parent, state } = sender.trace;
    let own = [
        ("skillId", sender.skill),
        ("traceparent", parent.filter(|text| text.len() <= 256)),
        ("tracestate", state.filter(|text| text.len() <= 512)),
    ];
    let bytes: usize = own.iter().filter_map(|(_, text)| *text).map(str::len).sum();
    let mut metadata = ObjectText::with_capacity(FRAME_BYTES + bytes);
    for (name, text) in own {
        if let Some(text) = text {
            metadata.add_text(name, text);
        }
    }
    for (uri, data) in &passing.data {
        metadata.add_raw(uri, data);
    }
    metadata.finish().ok().flatten()
}

fn file(file: FileArgument) -> Part {
    let body = match (file.url, file.bytes) {
        (Some(url), _) => PartBody::Url(url),
        (None, bytes) => PartBody::Raw(bytes.unwrap_or_default()),
    };
    Part { body, filename: file.name, media_type: file.media_type, metadata: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::arguments::{ToolInput, read};
    use crate::seal::TaskRef;

    fn sealer() -> Sealer {
        Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap()
    }

    fn sender<'a>(sealer: &'a Sealer, caller: &'a str, agent: &'a str) -> CallOrigin<'a> {
        let trace = TraceContext { parent: Some("00-t"), state: None };
        let extensions = ClientExtensions::default();
        CallOrigin { caller, sealer, agent, skill: Some("sing"), trace, message_id: [7; 16], extensions }
    }

    fn ask(text: &str) -> ToolArguments {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        read(&ToolInput::Flat, Some(&raw)).unwrap()
    }

    #[test]
    fn a_message_carries_all_that_was_asked() {
        let sealer = sealer();
        let asked =
            ask(r#"{"text":"hi","data":[1],"files":[{"bytes":"QQ==","mediaType":"a/b","name":"f"}]}"#);
        let AgentAction::Say(message) = build(asked, &sender(&sealer, "me", "bard")).unwrap() else {
            panic!()
        };
        assert_eq!(message.parts.len(), 3);
        assert_eq!(message.metadata.unwrap().get(), r#"{"skillId":"sing","traceparent":"00-t"}"#);
        assert_eq!(message.message_id.as_deref(), Some("07070707-0707-4707-8707-070707070707"));
    }

    #[test]
    fn handles_of_one_caller_are_useless_to_another() {
        let sealer = sealer();
        let known = TaskRef { agent: "bard".into(), task: "t1".into(), skill: None };
        let handle = known.seal(&sealer, "me");
        let asked = || ask(&format!(r#"{{"taskId":"{handle}"}}"#));
        assert!(
            matches!(build(asked(), &sender(&sealer, "me", "bard")), Ok(AgentAction::Await(TaskKey::Task(task, None))) if task.as_str() == "t1")
        );
        let foreign = build(asked(), &sender(&sealer, "you", "bard")).unwrap_err();
        let other_agent = build(asked(), &sender(&sealer, "me", "scribe")).unwrap_err();
        let nonsense = build(ask(r#"{"taskId":"nonsense"}"#), &sender(&sealer, "me", "bard")).unwrap_err();
        assert_eq!(foreign, nonsense);
        assert_eq!(foreign, other_agent);
    }

    #[test]
    fn text_with_a_task_continues_it() {
        let sealer = sealer();
        let skill = Some("sing".to_owned());
        let handle = TaskRef { agent: "bard".into(), task: "t1".into(), skill: skill.clone() };
        let handle = handle.seal(&sealer, "me");
        let context = ContextRef { agent: "bard".into(), context: "c1".into() }.seal(&sealer, "me");
        let asked = ask(&format!(r#"{{"text":"on","taskId":"{handle}","contextId":"{context}"}}"#));
        let AgentAction::Continue(task, message) = build(asked, &sender(&sealer, "me", "bard")).unwrap()
        else {
            panic!()
        };
        assert_eq!(task, TaskKey::Task("t1".into(), skill));
        assert_eq!(message.context_id.as_deref(), Some("c1"));
        assert!(build(ask(r#"{"text":"a","contextId":"c1"}"#), &sender(&sealer, "me", "bard")).is_err());
    }
}
