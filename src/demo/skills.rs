//! The skills of the agent, one function per skill, run on a spawned task of its own; and the Agent
//! Card that lists them (A2A 1.0 §4.4), made once.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until};

use super::message::{DemoSkill, IncomingMessage};
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
        let mut etag = String::from("\"");
        for byte in digest.iter().take(8) {
            // Writing into a String cannot fail.
            write!(etag, "{byte:02x}").unwrap_or_default();
        }
        etag.push('"');
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
}
