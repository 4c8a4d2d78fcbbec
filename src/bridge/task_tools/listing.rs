//! The listing of the built-in task tools: descriptions, schemas of their input and output, hints.
//!
//! Follows `docs/spec/mcp.md` §2.3, §2.4.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::arguments::FLAT_SCHEMA;
use super::super::builtin_tool::BuiltinToolSpec;
use super::{LONGEST_WAIT, TaskTool};
use crate::mcp::Version;

impl TaskTool {
    /// Returns the tool as a client of this revision sees it.
    pub fn json(self, version: Version) -> Option<Box<RawValue>> {
        let sheet = BuiltinToolSpec {
            name: self.name(),
            title: self.title(),
            description: self.description(),
            input: self.input_schema(),
            output: self.output_schema(),
            annotations: self.annotations(),
        };
        sheet.json(version)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel a task",
            Self::Get => "Look at a task",
            Self::Send => "Send to a task",
            Self::Start => "Start a task",
            Self::Wait => "Wait for a task",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Cancel => {
                "Cancel a task that an agent works on. Agents may refuse, or finish before they hear of it."
            }
            Self::Get => {
                "See how a task stands, at once: its state, what the agent said last and what it made so far."
            }
            Self::Send => {
                "Say something to the agent within a task: the answer to its question, or more to do. If the task goes on \
                 then, wait for it."
            }
            Self::Start => {
                "Have an agent begin a task, and get its taskId without waiting for the result. The resource \
                 a2a://agents/registry says which agents there are."
            }
            Self::Wait => {
                "Wait until a task is done or the agent asks something, and get the result or the question. Call again if \
                 it is still working."
            }
        }
    }

    pub(super) fn input_schema(self) -> Value {
        let task = json!({"type": "string", "minLength": 1, "description": "The taskId that an earlier result gave."});
        let text = json!({"type": "string", "minLength": 1, "description": "What to tell the agent."});
        let (properties, required) = match self {
            Self::Cancel | Self::Get => (json!({"taskId": task}), json!(["taskId"])),
            Self::Send => {
                let flat: Value = serde_json::from_str(FLAT_SCHEMA).unwrap_or_default();
                let flat =
                    |name: &str| flat.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
                let text = json!({"type": "string", "description": "What to tell the agent, or the answer to its question."});
                let properties =
                    json!({"taskId": task, "text": text, "data": flat("data"), "files": flat("files")});
                (properties, json!(["taskId"]))
            }
            Self::Start => {
                let uri = json!({"type": "string", "minLength": 1,
                    "description": "The agent, for example a2a-agent://weather."});
                (json!({"subagentUri": uri, "text": text}), json!(["subagentUri", "text"]))
            }
            Self::Wait => {
                let seconds = json!({"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT,
                    "description": "How long to wait at most. The gateway may answer earlier, with the task still working."});
                (json!({"taskId": task, "seconds": seconds}), json!(["taskId"]))
            }
        };
        json!({"type": "object", "properties": properties, "required": required})
    }

    /// Returns the output schema: one shape for all tools; two of them promise one member more.
    pub(super) fn output_schema(self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        let artifact = json!({
            "type": "object",
            "properties": {"artifactId": {"type": "string"}, "name": {"type": "string"}, "uri": {"type": "string"}},
            "required": ["artifactId", "uri"],
            "additionalProperties": false,
        });
        let file = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "mimeType": {"type": "string"}, "url": {"type": "string"}},
            "additionalProperties": false,
        });
        let properties = json!({
            "taskUri": text("The task as a resource."),
            "taskId": text("Pass it to the other tools."),
            "contextId": text("The conversation that the task belongs to."),
            "state": {"type": "string", "description": "Where the task stands.", "enum": [
                "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled",
                "rejected", "unknown"]},
            "statusMessage": text("What the agent said last, or asks."),
            "artifacts": {"type": "array", "items": artifact, "description": "What the agent made, to be read by URI."},
            "output": any_json("The structured output of a finished task."),
            "text": text("All that the result says."),
            "data": {"type": "array", "items": any_json("A data part."), "description": "Data of the agent: its output, or what it asks."},
            "files": {"type": "array", "items": file, "description": "Files of the agent; their bytes are in the content."},
            "ok": {"type": "boolean", "description": "Whether the text was sent."},
            "canceled": {"type": "boolean", "description": "Whether the task was canceled."},
        });
        let required = match self {
            Self::Send => json!(["state", "text", "ok"]),
            Self::Cancel => json!(["state", "text", "canceled"]),
            Self::Get | Self::Start | Self::Wait => json!(["state", "text"]),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    fn annotations(self) -> Value {
        let reads = matches!(self, Self::Get | Self::Wait);
        json!({
            "readOnlyHint": reads,
            "destructiveHint": !reads,
            "idempotentHint": reads || self == Self::Cancel,
            "openWorldHint": true,
        })
    }
}

/// Returns a schema that allows any JSON and yet names types: tools that convert schemas need one.
fn any_json(description: &str) -> Value {
    let types = ["object", "array", "string", "number", "boolean", "null"];
    let branches: Vec<Value> = types.iter().map(|one| json!({ "type": one })).collect();
    json!({ "anyOf": branches, "description": description })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tool: TaskTool, version: Version) -> Value {
        serde_json::from_str(tool.json(version).unwrap().get()).unwrap()
    }

    #[test]
    fn each_revision_sees_what_it_knows() {
        for tool in TaskTool::ALL {
            assert_eq!(TaskTool::from_name(tool.name()), Some(tool));
            for version in [Version::V2024_11_05, Version::V2025_03_26] {
                let old = listed(tool, version);
                assert!(old.get("title").is_none() && old.get("outputSchema").is_none(), "{old}");
                assert!(old["annotations"]["title"].is_string(), "{old}");
            }
            for version in [Version::V2025_06_18, Version::V2025_11_25, Version::V2026_07_28] {
                let new = listed(tool, version);
                assert!(new["title"].is_string() && new["outputSchema"]["type"] == "object", "{new}");
                assert!(!new["inputSchema"].to_string().contains("additionalProperties"), "{new}");
                let reads = matches!(tool, TaskTool::Get | TaskTool::Wait);
                assert_eq!(new["annotations"]["readOnlyHint"], reads, "{new}");
                assert_eq!(new["annotations"].get("title"), None);
            }
        }
        assert_eq!(
            TaskTool::ALL.into_iter().filter(|tool| !tool.is_with_one_agent()).collect::<Vec<_>>(),
            [TaskTool::Start]
        );
        assert!(TaskTool::ALL.is_sorted_by_key(|tool| tool.name()));
    }
}
