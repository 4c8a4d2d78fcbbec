//! The methods of A2A 1.0 that the agent has: each becomes one answer or one stream.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::message::{self, Incoming, Skill};
use super::rpc::{Call, Refusal};
use super::skills;
use super::task::{Task, Tasks};

/// What a call comes to.
pub(super) enum Outcome {
    /// One result.
    Result(Value),
    /// Results, one per event: the first is known, the others follow.
    Stream(Value, Option<mpsc::Receiver<Value>>),
}

/// Does what the call asks for.
pub(super) async fn perform(tasks: &Tasks, call: &Call) -> Result<Outcome, Refusal> {
    match call.method.as_str() {
        "SendMessage" => send(tasks, message::read(&call.params)?).await,
        "SendStreamingMessage" => stream(tasks, &message::read(&call.params)?),
        "GetTask" => {
            let history = message::history_length(Some(&call.params))?;
            Ok(Outcome::Result(named(tasks, call)?.snapshot(history)))
        }
        "CancelTask" => Ok(Outcome::Result(named(tasks, call)?.cancel()?)),
        "SubscribeToTask" => {
            let (snapshot, events) = named(tasks, call)?.resubscribe()?;
            Ok(Outcome::Stream(json!({ "task": snapshot }), Some(events)))
        }
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => Err(Refusal::NoPush),
        "GetExtendedAgentCard" => Err(Refusal::NoExtendedCard),
        _ => Err(Refusal::NoSuchMethod),
    }
}

async fn send(tasks: &Tasks, incoming: Incoming) -> Result<Outcome, Refusal> {
    let Some(turn) = turn(tasks, &incoming)? else {
        return Ok(Outcome::Result(json!({ "message": skills::echo(&incoming) })));
    };
    let (_, mut events) = turn.task.watch();
    turn.go(&incoming.text);
    if !incoming.return_immediately {
        while events.recv().await.is_some() {}
    }
    Ok(Outcome::Result(json!({ "task": turn.task.snapshot(incoming.history) })))
}

fn stream(tasks: &Tasks, incoming: &Incoming) -> Result<Outcome, Refusal> {
    let Some(turn) = turn(tasks, incoming)? else {
        return Ok(Outcome::Stream(json!({ "message": skills::echo(incoming) }), None));
    };
    let (snapshot, events) = turn.task.watch();
    turn.go(&incoming.text);
    Ok(Outcome::Stream(json!({ "task": snapshot }), Some(events)))
}

/// One turn of a task: its first, or the answer to its question.
struct Turn {
    task: Arc<Task>,
    is_first: bool,
}

impl Turn {
    /// Sets the work going; watch the task before, or its first events are missed.
    fn go(&self, text: &str) {
        if self.is_first {
            skills::begin(Arc::clone(&self.task), text);
        } else {
            skills::resume(&self.task, text);
        }
    }
}

/// The task that this message begins or continues; none if the answer is a bare message.
fn turn(tasks: &Tasks, incoming: &Incoming) -> Result<Option<Turn>, Refusal> {
    if let Some(id) = &incoming.task {
        let task = tasks.find(id)?;
        if incoming.context.as_ref().is_some_and(|context| *context != task.context) {
            let problem = "is not the context of this task".into();
            return Err(Refusal::BadParams("message.context_id", problem));
        }
        task.resume(&incoming.message)?;
        return Ok(Some(Turn { task, is_first: false }));
    }
    match incoming.skill {
        Skill::Echo => Ok(None),
        Skill::Countdown | Skill::Ask => {
            let task = tasks.begin(incoming.skill, incoming.context.clone(), &incoming.message);
            Ok(Some(Turn { task, is_first: true }))
        }
    }
}

fn named(tasks: &Tasks, call: &Call) -> Result<Arc<Task>, Refusal> {
    let id = message::id(&call.params, "id", "id")?;
    tasks.find(&id.ok_or_else(|| Refusal::BadParams("id", "Field is required.".into()))?)
}
