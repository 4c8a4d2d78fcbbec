//! The skills of the agent: one function per skill, run on a spawned task of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::id_and_time::new_id;
use super::message::{DemoSkill, IncomingMessage};
use super::task::{ArtifactChunk, DemoTask, DemoTaskState};

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
