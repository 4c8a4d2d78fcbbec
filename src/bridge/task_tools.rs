//! The built-in tools, and those for tasks of any agent: start, send, cancel, get, wait.
//!
//! Follows `docs/spec/mcp.md` §2.3, §2.4. Their names, descriptions, schemas and arguments, and the
//! errors for a model that calls them incorrectly. Out of scope: execution, the results (see
//! `tool_result`).

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::arguments::{self, FLAT_SCHEMA, ToolInput, schema_errors, strict_validator};
use super::resource_uri::{ResourceUri, agent_of};
use crate::jsonrpc::object::UniqueObject;
use crate::mcp::Version;

/// Maximum time that a call of `subagent_wait` may request, in seconds.
pub(crate) const LONGEST_WAIT: u64 = 3600;

/// A built-in task tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskTool {
    /// `subagent_cancel`.
    Cancel,
    /// `subagent_get`.
    Get,
    /// `subagent_send`.
    Send,
    /// `subagent_start`.
    Start,
    /// `subagent_wait`.
    Wait,
}

/// The arguments of a call. Tasks are unopened handles.
#[derive(Debug, Clone)]
pub enum TaskToolCall {
    /// Cancel the task.
    Cancel {
        /// The task.
        task: String,
    },
    /// Get the task.
    Get {
        /// The task.
        task: String,
    },
    /// Send a message in the task.
    Send {
        /// The task.
        task: String,
        /// The message: text, data or files.
        said: Box<arguments::ToolArguments>,
    },
    /// Start a task.
    Start {
        /// The name of the agent.
        agent: String,
        /// The message.
        text: String,
    },
    /// Wait for the task.
    Wait {
        /// The task.
        task: String,
        /// Maximum time to wait, if the model gives one.
        seconds: Option<u64>,
    },
}

impl TaskTool {
    /// All tools, by name.
    pub const ALL: [Self; 5] = [Self::Cancel, Self::Get, Self::Send, Self::Start, Self::Wait];

    /// Returns the tool with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the tool's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "subagent_cancel",
            Self::Get => "subagent_get",
            Self::Send => "subagent_send",
            Self::Start => "subagent_start",
            Self::Wait => "subagent_wait",
        }
    }

    /// Returns true if the tool is useful where there is only one agent: the agent's own tools
    /// start tasks.
    pub(crate) fn is_with_one_agent(self) -> bool {
        self != Self::Start
    }

    fn validator(self) -> Option<&'static Validator> {
        static ALL: LazyLock<Vec<(TaskTool, Validator)>> = LazyLock::new(|| {
            let compiled = |tool: TaskTool| Some((tool, strict_validator(&tool.input_schema()).ok()?));
            TaskTool::ALL.into_iter().filter_map(compiled).collect()
        });
        ALL.iter().find(|(tool, _)| *tool == self).map(|(_, validator)| validator)
    }
}

/// Reads the arguments of a call; absent and `null` ones are `{}`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read(tool: TaskTool, arguments: Option<&RawValue>) -> Result<TaskToolCall, String> {
    let value = match tool {
        // `subagent_send` has the arguments of an agent's tool.
        TaskTool::Send => Value::Null,
        TaskTool::Cancel | TaskTool::Get | TaskTool::Start | TaskTool::Wait => {
            argument(tool.validator(), arguments)?
        }
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let task = || task_of(text("taskId"));
    Ok(match tool {
        TaskTool::Cancel => TaskToolCall::Cancel { task: task() },
        TaskTool::Get => TaskToolCall::Get { task: task() },
        TaskTool::Send => read_send(arguments)?,
        TaskTool::Start => TaskToolCall::Start { agent: agent(&text("subagentUri"))?, text: text("text") },
        TaskTool::Wait => {
            TaskToolCall::Wait { task: task(), seconds: value.get("seconds").and_then(seconds) }
        }
    })
}

/// Reads the arguments of `subagent_send`: those of an agent's tool, but within a task.
fn read_send(arguments: Option<&RawValue>) -> Result<TaskToolCall, String> {
    let mut said = arguments::read(&ToolInput::Flat, arguments)?;
    let Some(task) = said.task.take() else {
        return Err("Invalid arguments: \"taskId\" is a required property.".into());
    };
    if said.context.is_some() {
        return Err("Invalid arguments: contextId is not taken: the task has its conversation.".into());
    }
    if said.text.is_none() && said.data.is_none() && said.files.is_empty() {
        return Err("Invalid arguments: give text, data or files to send.".into());
    }
    Ok(TaskToolCall::Send { task: task_of(task), said: Box::new(said) })
}

/// Returns the taskId, also if a model passes the URI of the task for it.
fn task_of(given: String) -> String {
    match ResourceUri::read(&given) {
        Some(ResourceUri::Task(task)) => task.to_owned(),
        _ => given,
    }
}

fn agent(uri: &str) -> Result<String, String> {
    agent_of(uri).map(ToOwned::to_owned).ok_or_else(|| {
        let shown: String = uri.chars().take(100).collect();
        let plain = !shown.contains([':', '/']) && !shown.is_empty();
        let meant = if plain { &shown } else { "NAME" };
        format!("Invalid arguments: /subagentUri: {shown:?} is not the URI of an agent. Write \"a2a-agent://{meant}\".")
    })
}

/// Reads whole seconds, which some clients write as a float.
fn seconds(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the schema saw to whole and small"
    )]
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64))
}

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

/// The description of a tool.
pub(crate) struct BuiltinToolSpec {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) input: Value,
    pub(crate) output: Value,
    pub(crate) annotations: Value,
}

impl BuiltinToolSpec {
    /// Returns the tool as a client of this revision sees it.
    pub(crate) fn json(self, version: Version) -> Option<Box<RawValue>> {
        let mut annotations = self.annotations;
        let mut tool = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input,
        });
        if version.has_structured_output() {
            insert(&mut tool, "title", json!(self.title));
            insert(&mut tool, "outputSchema", self.output);
        } else {
            insert(&mut annotations, "title", json!(self.title));
        }
        insert(&mut tool, "annotations", annotations);
        to_raw_value(&tool).ok()
    }
}

fn insert(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(name.to_owned(), value);
    }
}

/// Returns the validated arguments of a call; absent and `null` ones are `{}`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub(crate) fn argument(judge: Option<&Validator>, arguments: Option<&RawValue>) -> Result<Value, String> {
    let json = arguments.map(RawValue::get).filter(|json| *json != "null").unwrap_or("{}");
    let wrong = |error: serde_json::Error| format!("Invalid arguments: {error}.");
    let mut value: Value = serde_json::from_str(json).map_err(wrong)?;
    if let Value::Object(members) = &mut value {
        // The validated content must be the used content: each name once. Clients write `null` for
        // absent members.
        serde_json::from_str::<UniqueObject<'_>>(json).map_err(wrong)?;
        members.retain(|_, value| !value.is_null());
    }
    let judge = judge.ok_or("The gateway cannot judge arguments of this tool.")?;
    match schema_errors(judge, &value) {
        Some(complaints) => Err(format!("Invalid arguments: {complaints}.")),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::validator;
    use super::super::output::AgentOutput;
    use super::super::tool_result::{
        ResultContext, TaskTools, cancelled, declined, result, sent, snapshot, started,
    };
    use super::*;
    use crate::a2a::read_task;
    use crate::mcp::tools::{CallToolResult, ResourceLinks};
    use crate::seal::Sealer;

    fn asked(tool: TaskTool, json: &str) -> Result<TaskToolCall, String> {
        read(tool, Some(&RawValue::from_string(json.into()).unwrap()))
    }

    #[test]
    fn arguments_are_read() {
        let task = || "t".to_owned();
        let text = || "go".to_owned();
        let said =
            arguments::ToolArguments { text: Some(text().into()), ..arguments::ToolArguments::default() };
        let start =
            || Ok::<TaskToolCall, String>(TaskToolCall::Start { agent: "weather".into(), text: text() });
        for (tool, json, expected) in [
            (TaskTool::Start, r#"{"subagentUri":"a2a-agent://weather","text":"go"}"#, start()),
            (TaskTool::Start, r#"{"subagentUri":"a2a-agent:///weather","text":"go"}"#, start()),
            (
                TaskTool::Send,
                r#"{"taskId":"a2a://task/t","text":"go","data":{},"files":[]}"#,
                Ok(TaskToolCall::Send { task: task(), said: Box::new(said) }),
            ),
            (TaskTool::Cancel, r#"{"taskId":"t"}"#, Ok(TaskToolCall::Cancel { task: task() })),
            (TaskTool::Get, r#"{"taskId":"a2a://task/t"}"#, Ok(TaskToolCall::Get { task: task() })),
            (TaskTool::Wait, r#"{"taskId":"t"}"#, Ok(TaskToolCall::Wait { task: task(), seconds: None })),
            (
                TaskTool::Wait,
                r#"{"taskId":"t","seconds":null}"#,
                Ok(TaskToolCall::Wait { task: task(), seconds: None }),
            ),
            (
                TaskTool::Wait,
                r#"{"taskId":"t","seconds":5}"#,
                Ok(TaskToolCall::Wait { task: task(), seconds: Some(5) }),
            ),
            (
                TaskTool::Wait,
                r#"{"taskId":"t","seconds":5.0}"#,
                Ok(TaskToolCall::Wait { task: task(), seconds: Some(5) }),
            ),
        ] {
            assert_eq!(format!("{:?}", asked(tool, json)), format!("{expected:?}"), "{json}");
        }
    }

    #[test]
    fn a_model_is_told_what_is_wrong() {
        for (tool, json, told) in [
            (TaskTool::Start, r#"{"subagentUri":"weather","text":"go"}"#, r#"Write "a2a-agent://weather"."#),
            (TaskTool::Start, r#"{"subagentUri":"https://x/y","text":"go"}"#, r#"Write "a2a-agent://NAME"."#),
            (TaskTool::Start, r#"{"subagentUri":"a2a-agent://w"}"#, "\"text\" is a required property"),
            (TaskTool::Send, r#"{"taskId":"t","text":""}"#, "give text, data or files"),
            (TaskTool::Send, r#"{"text":"go"}"#, "\"taskId\" is a required property"),
            (TaskTool::Send, r#"{"taskId":"t","text":"go","contextId":"c"}"#, "contextId is not taken"),
            (TaskTool::Get, "{}", "\"taskId\" is a required property"),
            (TaskTool::Get, r#"{"taskId":7}"#, "/taskId: 7 is not of type \"string\""),
            (TaskTool::Get, r#"{"taskId":"t","task":"u"}"#, "'task' was unexpected"),
            (TaskTool::Get, r#"{"taskId":"t","taskId":"u"}"#, "twice"),
            (TaskTool::Wait, r#"{"taskId":"t","seconds":-1}"#, "/seconds: -1 is less than the minimum"),
            (TaskTool::Wait, r#"{"taskId":"t","seconds":1.5}"#, "/seconds: 1.5 is not of type \"integer\""),
            (
                TaskTool::Wait,
                r#"{"taskId":"t","seconds":99999}"#,
                "/seconds: 99999 is greater than the maximum",
            ),
            (TaskTool::Cancel, "[]", "is not of type \"object\""),
        ] {
            let error = asked(tool, json).unwrap_err();
            assert!(error.contains(told), "{json}: {error}");
        }
        assert!(read(TaskTool::Get, None).is_err());
    }

    #[test]
    fn every_result_keeps_what_its_tool_promises() {
        let sealer = Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap();
        for state in [
            "submitted",
            "working",
            "input-required",
            "auth-required",
            "completed",
            "failed",
            "canceled",
            "rejected",
            "odd",
        ] {
            let json = json!({"id": "raw-t", "contextId": "raw-c",
                "status": {"state": state, "message": {"parts": [{"text": "words"}]}},
                "artifacts": [{"artifactId": "a", "name": "n", "parts": [{"data": [1]}]}, {"artifactId": "b"}]});
            let task = read_task(json.to_string().as_bytes()).unwrap();
            let unnamed = AgentOutput::new(10);
            let named = AgentOutput::from_task(task, 10_000).unwrap();
            for (version, work) in [
                (Version::V2025_06_18, &named),
                (Version::V2026_07_28, &named),
                (Version::V2025_11_25, &unnamed),
            ] {
                let audience = ResultContext {
                    version,
                    caller: "me",
                    sealer: &sealer,
                    agent: "bard",
                    task_tools: TaskTools { wait: true, send: true },
                    extensions: &[],
                    links: ResourceLinks::SubagentStart,
                };
                let all: [(TaskTool, CallToolResult); 7] = [
                    (TaskTool::Start, started(work, &audience, [1; 16])),
                    (TaskTool::Send, sent(work, &audience, [1; 16])),
                    (TaskTool::Cancel, cancelled(work, &audience, [1; 16], true)),
                    (TaskTool::Cancel, cancelled(work, &audience, [1; 16], false)),
                    (TaskTool::Get, snapshot(work, &audience, [1; 16])),
                    (TaskTool::Wait, snapshot(work, &audience, [1; 16])),
                    (TaskTool::Wait, declined(work, &audience, [1; 16])),
                ];
                for (tool, result) in all {
                    let told = serde_json::to_value(&result).unwrap();
                    let schema = validator(&tool.output_schema()).unwrap();
                    let structured = &told["structuredContent"];
                    let errors: Vec<String> =
                        schema.iter_errors(structured).map(|error| error.to_string()).collect();
                    assert!(errors.is_empty(), "{tool:?} {state}: {errors:?} in {told}");
                    let link = json!({"type": "resource_link", "uri": structured["taskUri"], "name": "task", "mimeType": "application/json"});
                    let is_linked = told["content"].as_array().unwrap().contains(&link);
                    assert_eq!(is_linked, tool == TaskTool::Start, "{told}");
                    assert!(!told.to_string().contains("raw-"), "{told}");
                }
            }
        }
    }

    #[test]
    fn the_advice_names_the_tools_that_there_are() {
        let sealer = Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap();
        let told = |state: &str, helps: bool| {
            let json = json!({"id": "t", "status": {"state": state}}).to_string();
            let work = AgentOutput::from_task(read_task(json.as_bytes()).unwrap(), 100).unwrap();
            let version = Version::V2025_03_26;
            let audience = ResultContext {
                version,
                caller: "me",
                sealer: &sealer,
                agent: "bard",
                task_tools: TaskTools { wait: helps, send: helps },
                extensions: &[],
                links: ResourceLinks::SubagentStart,
            };
            serde_json::to_value(result(&work, &audience, [1; 16])).unwrap()["content"][0]["text"].to_string()
        };
        for (state, tool) in [
            ("working", "subagent_wait"),
            ("input-required", "subagent_send"),
            ("auth-required", "subagent_wait"),
        ] {
            assert!(told(state, true).contains(tool), "{}", told(state, true));
            assert!(told(state, false).contains("this tool again with taskId="), "{}", told(state, false));
        }
    }

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
