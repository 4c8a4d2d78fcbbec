//! The methods of A2A 1.0 that the agent has: each returns one response or one stream.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::message::{self, DemoSkill, IncomingMessage};
use super::rpc::{DemoError, RpcCall};
use super::skills;
use super::task::{DemoTask, Tasks};

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
