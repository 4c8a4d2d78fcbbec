//! The message of `SendMessage` from a client, validated, and the skill that it selects.

use serde_json::{Value, json};

use super::rpc::DemoError;

/// Longest id that a client may give, in bytes.
const MAX_ID: usize = 256;

/// Skills of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoSkill {
    Echo,
    Countdown,
    Ask,
}

impl DemoSkill {
    fn named(id: &str) -> Option<Self> {
        match id {
            "echo" => Some(Self::Echo),
            "countdown" => Some(Self::Countdown),
            "ask" => Some(Self::Ask),
            _ => None,
        }
    }
}

/// A message from the client.
#[derive(Debug)]
pub(super) struct IncomingMessage {
    /// As it came, for the task's history.
    pub(super) message: Value,
    pub(super) task: Option<String>,
    pub(super) context: Option<String>,
    pub(super) skill: DemoSkill,
    /// The text parts, joined, without the word that selected the skill.
    pub(super) text: String,
    /// The parts, without the word that selected the skill.
    pub(super) parts: Vec<Value>,
    /// True if the response is the current task instead of its end.
    pub(super) return_immediately: bool,
    /// The number of messages of the history that the client wants; all if absent.
    pub(super) history: Option<usize>,
}

/// Reads the params of `SendMessage` and `SendStreamingMessage`.
pub(super) fn read(params: &Value) -> Result<IncomingMessage, DemoError> {
    let message = params
        .get("message")
        .filter(|message| message.is_object())
        .ok_or_else(|| DemoError::BadParams("message", "Field is required.".into()))?;
    if id(message, "messageId", "message.message_id")?.is_none() {
        return Err(DemoError::BadParams("message.message_id", "Field is required.".into()));
    }
    if message.get("role").and_then(Value::as_str) != Some("ROLE_USER") {
        return Err(DemoError::BadParams("message.role", "must be ROLE_USER".into()));
    }
    let mut parts = message.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
    if parts.is_empty() {
        return Err(DemoError::BadParams("message.parts", "Field is required.".into()));
    }
    let skill = match message.pointer("/metadata/skillId").or_else(|| params.pointer("/metadata/skillId")) {
        Some(id) => id.as_str().and_then(DemoSkill::named).ok_or_else(|| {
            DemoError::BadParams("message.metadata.skillId", "must be echo, countdown or ask".into())
        })?,
        None => take_skill(&mut parts).unwrap_or(DemoSkill::Echo),
    };
    let configuration = params.get("configuration");
    Ok(IncomingMessage {
        task: id(message, "taskId", "message.task_id")?,
        context: id(message, "contextId", "message.context_id")?,
        skill,
        text: text(&parts),
        parts,
        return_immediately: configuration
            .and_then(|configuration| configuration.get("returnImmediately"))
            .and_then(Value::as_bool)
            .unwrap_or(false),
        history: history_length(configuration)?,
        message: message.clone(),
    })
}

/// Reads the member `historyLength`, which may be absent.
pub(super) fn history_length(of: Option<&Value>) -> Result<Option<usize>, DemoError> {
    let Some(length) = of.and_then(|of| of.get("historyLength")) else { return Ok(None) };
    let length = length.as_u64().and_then(|length| usize::try_from(length).ok());
    length.map(Some).ok_or_else(|| DemoError::BadParams("history_length", "must not be negative".into()))
}

/// Reads an id; an empty one counts as absent.
pub(super) fn id(of: &Value, member: &str, field: &'static str) -> Result<Option<String>, DemoError> {
    match of.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) if id.is_empty() => Ok(None),
        Some(Value::String(id)) if id.len() <= MAX_ID => Ok(Some(id.clone())),
        Some(_) => Err(DemoError::BadParams(field, format!("must be a text of at most {MAX_ID} bytes"))),
    }
}

/// Removes the first word of the first text if it names a skill.
fn take_skill(parts: &mut [Value]) -> Option<DemoSkill> {
    let slot = parts.iter_mut().find_map(|part| part.get_mut("text"))?;
    let text = slot.as_str()?.trim_start();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let skill = DemoSkill::named(&word.trim_end_matches(':').to_lowercase())?;
    *slot = json!(rest.trim_start());
    Some(skill)
}

fn text(parts: &[Value]) -> String {
    let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str, metadata: Value) -> Value {
        json!({ "message": {
            "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }], "metadata": metadata,
        }})
    }

    #[test]
    fn the_skill_comes_from_metadata_or_the_first_word() {
        for (text, metadata, skill, rest) in [
            ("echo hello", json!({}), DemoSkill::Echo, "hello"),
            ("hello echo", json!({}), DemoSkill::Echo, "hello echo"),
            ("Countdown: 5", json!({}), DemoSkill::Countdown, "5"),
            ("ask", json!({}), DemoSkill::Ask, ""),
            ("ask not", json!({ "skillId": "echo" }), DemoSkill::Echo, "ask not"),
        ] {
            let read = read(&params(text, metadata)).unwrap();
            assert_eq!((read.skill, read.text.as_str()), (skill, rest), "{text}");
        }
    }

    #[test]
    fn a_message_that_lacks_something_is_refused_by_field() {
        for (params, field) in [
            (json!({}), "message"),
            (json!({ "message": 1 }), "message"),
            (json!({ "message": { "role": "ROLE_USER", "parts": [{}] } }), "message.message_id"),
            (json!({ "message": { "messageId": "m", "role": "user", "parts": [{}] } }), "message.role"),
            (json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [] } }), "message.parts"),
            (params("x", json!({ "skillId": "fly" })), "message.metadata.skillId"),
            (params("x", json!({ "skillId": 4 })), "message.metadata.skillId"),
        ] {
            let DemoError::BadParams(named, _) = read(&params).unwrap_err() else { panic!("{params}") };
            assert_eq!(named, field, "{params}");
        }
    }
}
