//! JSON-RPC 2.0 of the demonstration agent: one request, one response, errors with A2A 1.0
//! `ErrorInfo`; and the methods of A2A 1.0 that the agent has, each of which returns one response or
//! one stream.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::message::{self, DemoSkill, IncomingMessage};
use super::skills;
use super::task::{DemoTask, Tasks};

/// A request with a valid envelope.
#[derive(Debug)]
pub(super) struct RpcCall {
    /// A string, a number or null; returned as it came.
    pub(super) id: Value,
    pub(super) method: String,
    /// Always an object.
    pub(super) params: Value,
}

/// Reason for which a call fails (A2A 1.0 §5.4 and JSON-RPC 2.0 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DemoError {
    NotJson,
    NotARequest,
    NoSuchMethod,
    /// The field in question and its defect.
    BadParams(&'static str, String),
    NoSuchTask,
    NotCancelable,
    NoPush,
    Unsupported(&'static str),
    NoExtendedCard,
    WrongVersion,
}

impl DemoError {
    /// Returns code, text, and the reason for `ErrorInfo` where A2A defines one.
    fn facts(&self) -> (i32, String, Option<&'static str>) {
        match self {
            Self::NotJson => (-32700, "Invalid JSON payload".into(), None),
            Self::NotARequest => (-32600, "Request payload validation error".into(), None),
            Self::NoSuchMethod => (-32601, "Method not found".into(), None),
            Self::BadParams(field, problem) => {
                (-32602, format!("Invalid parameters: {field}: {problem}"), None)
            }
            Self::NoSuchTask => (-32001, "Task not found".into(), Some("TASK_NOT_FOUND")),
            Self::NotCancelable => (-32002, "Task cannot be canceled".into(), Some("TASK_NOT_CANCELABLE")),
            Self::NoPush => {
                let text = "Push Notification is not supported".into();
                (-32003, text, Some("PUSH_NOTIFICATION_NOT_SUPPORTED"))
            }
            Self::Unsupported(what) => (-32004, (*what).into(), Some("UNSUPPORTED_OPERATION")),
            Self::NoExtendedCard => {
                let text = "Extended Agent Card is not configured".into();
                (-32007, text, Some("EXTENDED_AGENT_CARD_NOT_CONFIGURED"))
            }
            Self::WrongVersion => {
                let text = "A2A-Version must be 1.0".into();
                (-32009, text, Some("VERSION_NOT_SUPPORTED"))
            }
        }
    }

    fn details(&self) -> Option<Value> {
        if let Self::BadParams(field, problem) = self {
            return Some(json!([{
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": problem }],
            }]));
        }
        let (_, _, reason) = self.facts();
        Some(json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason?,
            "domain": "a2a-protocol.org",
            "metadata": {},
        }]))
    }
}

/// Reads the envelope; an error comes with the id of its response.
pub(super) fn read(body: &[u8]) -> Result<RpcCall, (Value, DemoError)> {
    let whole: Value = serde_json::from_slice(body).map_err(|_| (Value::Null, DemoError::NotJson))?;
    let id = whole.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
    let method = whole.get("method").and_then(Value::as_str);
    let version = whole.get("jsonrpc").and_then(Value::as_str);
    let (Some(method), Some("2.0")) = (method, version) else { return Err((id, DemoError::NotARequest)) };
    let params = match whole.get("params") {
        None => json!({}),
        Some(params) if params.is_object() => params.clone(),
        Some(_) => return Err((id, DemoError::BadParams("params", "must be an object".into()))),
    };
    Ok(RpcCall { id, method: method.to_owned(), params })
}

/// Encodes a successful response.
pub(super) fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Encodes an error response.
pub(super) fn error(id: &Value, refusal: &DemoError) -> Value {
    let (code, message, _) = refusal.facts();
    let mut error = json!({ "code": code, "message": message });
    if let (Some(details), Some(error)) = (refusal.details(), error.as_object_mut()) {
        error.insert("data".into(), details);
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Outcome of a call.
pub(super) enum CallOutcome {
    /// One result.
    Result(Value),
    /// Results, one per event: the first one, and a receiver of the others.
    Stream(Value, Option<mpsc::Receiver<Value>>),
}

/// Performs a call.
pub(super) async fn perform(tasks: &Tasks, call: &RpcCall) -> Result<CallOutcome, DemoError> {
    match call.method.as_str() {
        "SendMessage" => send(tasks, message::read(&call.params)?).await,
        "SendStreamingMessage" => stream(tasks, &message::read(&call.params)?),
        "GetTask" => {
            let history = message::history_length(Some(&call.params))?;
            Ok(CallOutcome::Result(named(tasks, call)?.snapshot(history)))
        }
        "CancelTask" => Ok(CallOutcome::Result(named(tasks, call)?.cancel()?)),
        "SubscribeToTask" => {
            let (snapshot, events) = named(tasks, call)?.resubscribe()?;
            Ok(CallOutcome::Stream(json!({ "task": snapshot }), Some(events)))
        }
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => Err(DemoError::NoPush),
        "GetExtendedAgentCard" => Err(DemoError::NoExtendedCard),
        _ => Err(DemoError::NoSuchMethod),
    }
}

async fn send(tasks: &Tasks, incoming: IncomingMessage) -> Result<CallOutcome, DemoError> {
    let Some(turn) = turn(tasks, &incoming)? else {
        return Ok(CallOutcome::Result(json!({ "message": skills::echo(&incoming) })));
    };
    let (_, mut events) = turn.task.watch();
    turn.go(&incoming.text);
    if !incoming.return_immediately {
        while events.recv().await.is_some() {}
    }
    Ok(CallOutcome::Result(json!({ "task": turn.task.snapshot(incoming.history) })))
}

fn stream(tasks: &Tasks, incoming: &IncomingMessage) -> Result<CallOutcome, DemoError> {
    let Some(turn) = turn(tasks, incoming)? else {
        return Ok(CallOutcome::Stream(json!({ "message": skills::echo(incoming) }), None));
    };
    let (snapshot, events) = turn.task.watch();
    turn.go(&incoming.text);
    Ok(CallOutcome::Stream(json!({ "task": snapshot }), Some(events)))
}

/// One message to a task: its first, or the answer to its question.
struct TaskTurn {
    task: Arc<DemoTask>,
    is_first: bool,
}

impl TaskTurn {
    /// Starts the work; watch the task before, or its first events are missed.
    fn go(&self, text: &str) {
        if self.is_first {
            skills::begin(Arc::clone(&self.task), text);
        } else {
            skills::resume(&self.task, text);
        }
    }
}

/// Returns the task that this message begins or continues; `None` if the response is a bare
/// message.
fn turn(tasks: &Tasks, incoming: &IncomingMessage) -> Result<Option<TaskTurn>, DemoError> {
    if let Some(id) = &incoming.task {
        let task = tasks.find(id)?;
        if incoming.context.as_ref().is_some_and(|context| *context != task.context) {
            let problem = "is not the context of this task".into();
            return Err(DemoError::BadParams("message.context_id", problem));
        }
        task.resume(&incoming.message)?;
        return Ok(Some(TaskTurn { task, is_first: false }));
    }
    match incoming.skill {
        DemoSkill::Echo => Ok(None),
        DemoSkill::Countdown | DemoSkill::Ask => {
            let task = tasks.begin(incoming.skill, incoming.context.clone(), &incoming.message);
            Ok(Some(TaskTurn { task, is_first: true }))
        }
    }
}

fn named(tasks: &Tasks, call: &RpcCall) -> Result<Arc<DemoTask>, DemoError> {
    let id = message::id(&call.params, "id", "id")?;
    tasks.find(&id.ok_or_else(|| DemoError::BadParams("id", "Field is required.".into()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broken_envelope_has_its_code_and_keeps_its_id() {
        for (body, id, code) in [
            ("{", Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":7}"#, json!(7), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"x"}"#, json!("a"), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","method":"x","params":[1]}"#, json!("a"), -32602),
            (r#"{"jsonrpc":"2.0","id":{"a":1},"method":3}"#, Value::Null, -32600),
        ] {
            let (read_id, refusal) = read(body.as_bytes()).unwrap_err();
            let answer = error(&read_id, &refusal);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{body}");
        }
    }

    #[test]
    fn an_a2a_error_names_its_reason() {
        let answer = error(&json!(1), &DemoError::WrongVersion);
        assert_eq!(answer["error"]["code"], -32009);
        assert_eq!(answer["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
        assert_eq!(answer["error"]["data"][0]["domain"], "a2a-protocol.org");
    }
}
