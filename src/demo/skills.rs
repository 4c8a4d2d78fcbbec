//! The skills of the agent, one function per skill, run on a spawned task of its own; the Agent Card
//! that lists them (A2A 1.0 §4.4), made once; and the message of `SendMessage`, validated, which
//! selects a skill.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until};

use super::DemoError;
use super::task::{ArtifactChunk, DemoTask, DemoTaskState, new_id};

/// Seconds that a countdown takes if the client names no number.
const DEFAULT_SECONDS: u64 = 3;
/// The longest countdown, in seconds.
const MAX_SECONDS: u64 = 60;

/// `echo`: the message that is returned at once, with the parts as they came.
pub(super) fn echo(incoming: &IncomingMessage) -> Value {
    json!({
        "messageId": new_id(),
        "role": "ROLE_AGENT",
        "contextId": incoming.context.clone().unwrap_or_else(new_id),
        "parts": incoming.parts,
    })
}

/// Begins the work of a new task. It runs to its end, with or without watchers.
pub(super) fn begin(task: Arc<DemoTask>, text: &str) {
    match task.skill {
        DemoSkill::Countdown => drop(tokio::spawn(countdown(task, seconds(text)))),
        DemoSkill::Ask => ask(&task, text),
        // Answered without a task.
        DemoSkill::Echo => {}
    }
}

/// Continues a task after its question was answered.
pub(super) fn resume(task: &DemoTask, text: &str) {
    let answer = format!("You said: {text}");
    let chunk = ArtifactChunk { artifact: "answer", text: &answer, append: false, last: true };
    // A cancel may have come in between; then there is nothing to complete.
    if task.produce(&chunk) && task.report(DemoTaskState::Completed, None) {
        tracing::debug!(task = task.id, "demo agent received its answer");
    }
}

fn ask(task: &DemoTask, text: &str) {
    let question = match text.trim() {
        "" => "What is your favourite colour?".to_owned(),
        about => format!("What should I know about \"{about}\"?"),
    };
    if !task.report(DemoTaskState::InputRequired, Some(&question)) {
        tracing::debug!(task = task.id, "demo agent was canceled before its question");
    }
}

async fn countdown(task: Arc<DemoTask>, seconds: u64) {
    let begun = Instant::now();
    for left in (1..=seconds).rev() {
        let passed = seconds - left;
        let said = task.report(DemoTaskState::Working, Some(&format!("{left} s left")));
        let chunk = ArtifactChunk {
            artifact: "countdown",
            text: &format!("{left} "),
            append: passed > 0,
            last: false,
        };
        if !(said && task.produce(&chunk)) {
            return;
        }
        // From the beginning, so that delays do not add up.
        sleep_until(begun + Duration::from_secs(passed + 1)).await;
    }
    let chunk = ArtifactChunk { artifact: "countdown", text: "liftoff", append: seconds > 0, last: true };
    if task.produce(&chunk) && task.report(DemoTaskState::Completed, None) {
        tracing::debug!(task = task.id, "demo agent finished its countdown");
    }
}

/// Returns the first number in the text.
fn seconds(text: &str) -> u64 {
    let digits = text.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    // Digits that do not fit mean more than the maximum.
    digits.map_or(DEFAULT_SECONDS, |digits| digits.parse().unwrap_or(MAX_SECONDS)).min(MAX_SECONDS)
}

/// The card as it is served.
pub(super) struct DemoCard {
    pub(super) body: Bytes,
    /// Quoted, as the header has it.
    pub(super) etag: String,
}

impl DemoCard {
    pub(super) fn new(address: SocketAddr) -> Self {
        let body = Bytes::from(card(&base_url(address)).to_string());
        let digest = Sha256::digest(&body);
        let etag = format!("\"{}\"", HEXLOWER.encode(digest.get(..8).unwrap_or_default()));
        Self { body, etag }
    }
}

/// Returns a URL that reaches `address` from this machine, ending in `/`.
pub(super) fn base_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/", SocketAddr::new(ip, address.port()))
}

fn card(url: &str) -> Value {
    json!({
        "name": "Demo Agent",
        "description": "A small A2A agent to try the gateway with: it echoes, counts down and asks a question.",
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "provider": { "organization": "mcp-a2a-gateway", "url": "https://a2a-protocol.org" },
        "capabilities": { "streaming": true, "pushNotifications": false, "extendedAgentCard": false },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": "echo",
                "name": "Echo",
                "description": "Sends back what it was sent, at once.",
                "tags": ["demo", "fast"],
                "examples": ["echo hello"],
            },
            {
                "id": "countdown",
                "name": "Countdown",
                "description": "Counts down the given number of seconds (default 3, at most 60), reporting each one.",
                "tags": ["demo", "slow", "streaming"],
                "examples": ["countdown 5"],
            },
            {
                "id": "ask",
                "name": "Ask",
                "description": "Asks a question before it answers, to show a task that needs input.",
                "tags": ["demo", "interactive"],
                "examples": ["ask me something"],
            },
        ],
    })
}

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
pub(super) fn read_message(params: &Value) -> Result<IncomingMessage, DemoError> {
    let message = params
        .get("message")
        .filter(|message| message.is_object())
        .ok_or_else(|| DemoError::BadParams("message", "Field is required.".into()))?;
    if message_id(message, "messageId", "message.message_id")?.is_none() {
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
        task: message_id(message, "taskId", "message.task_id")?,
        context: message_id(message, "contextId", "message.context_id")?,
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
pub(super) fn message_id(of: &Value, member: &str, field: &'static str) -> Result<Option<String>, DemoError> {
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

    #[test]
    fn seconds_are_found_and_bounded() {
        for (text, expected) in [
            ("", 3),
            ("from five", 3),
            ("5", 5),
            ("from 10 please, not 20", 10),
            ("0", 0),
            ("61", 60),
            ("99999999999999999999999", 60),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

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
            let read = read_message(&params(text, metadata)).unwrap();
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
            let DemoError::BadParams(named, _) = read_message(&params).unwrap_err() else {
                panic!("{params}")
            };
            assert_eq!(named, field, "{params}");
        }
    }
}
