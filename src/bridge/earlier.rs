//! Calls that a client cancelled: the result of its next call names their tasks, which continue.
//!
//! See also `gateway::cancelled_calls`, which selects these calls.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::envelope::StructuredEnvelope;
use super::handle::{ResultContext, next_step_hint};
use super::output::{AgentOutput, OutputState};
use super::tool_result::{AGAIN, ELSEWHERE};
use crate::mcp::content::ContentBlock;
use crate::mcp::tools::CallToolResult;

/// A cancelled call with a task that continues.
#[derive(Debug, Clone, Copy)]
pub struct EarlierCall<'a> {
    /// The output of its task.
    pub work: &'a AgentOutput,
    /// Number of the call, used while its task has no name.
    pub local: [u8; 16],
    /// True if it was a call of a built-in tool.
    pub is_own_tool: bool,
}

impl EarlierCall<'_> {
    /// Returns the sentences that name the task and the way to its result.
    pub fn told(&self, audience: &ResultContext<'_>) -> String {
        let tool = if self.is_own_tool { ELSEWHERE } else { AGAIN };
        let task = audience.task(self.work, self.local);
        let task = task.as_str();
        if self.work.state() != OutputState::Finished {
            let advice = next_step_hint(self.work, audience, (tool, task));
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
pub fn add(result: &mut CallToolResult, said: &str) {
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
            add(&mut result, "b");
            assert_eq!(result.structured_content.as_deref().map(RawValue::get), after);
            assert_eq!(serde_json::to_value(&result.content).unwrap()[0]["text"], "b");
        }
    }
}
