//! What an agent answers, whatever its version: read once, and its ids exchanged.
//!
//! Not here: writing it for the client (see `tell`), refusals (see `refusal`).

use serde::Deserialize;

use super::super::dialect::Dialect;
use super::super::error::AgentError;
use super::super::loose::{List, Object};
use super::super::model::{Event, Message, State, Status};
use super::super::read::{result, take_descriptions};
use super::operation::Operation;
use super::request::message_ids;
use super::splice::IdKind;
use super::webhook::{PushIn, Registered};

/// What an agent answers, or one event of its stream.
pub struct Answer(pub(super) Said);

/// What it is.
pub(super) enum Said {
    /// The messages are those of a task's history.
    Event(Box<Event>, Vec<Message>),
    Push(Registered),
    Pushes(Vec<Registered>),
    Nothing,
}

#[derive(Deserialize)]
struct Pushed {
    #[serde(default)]
    result: Object<PushIn>,
}

#[derive(Deserialize)]
struct PushList {
    #[serde(default)]
    result: List<Object<PushIn>>,
}

#[derive(Deserialize)]
struct PushPage {
    #[serde(default)]
    result: Object<Configs>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Configs {
    configs: List<Object<PushIn>>,
}

impl Answer {
    /// Reads a JSON-RPC response object: an answer, or the data of one event of a stream.
    ///
    /// # Errors
    ///
    /// [`AgentError`], if the agent refused, or answered something else than was asked for.
    pub fn read(from: Dialect, operation: Operation, json: &[u8]) -> Result<Self, AgentError> {
        match operation {
            Operation::Send | Operation::Stream | Operation::Subscribe => match from.event(json)? {
                Event::Unknown if operation.is_stream() => Ok(Self(Said::Nothing)),
                Event::Unknown => Err(AgentError::not_a2a("the answer holds neither a task nor a message")),
                event => Ok(Self::event(event, from)),
            },
            Operation::Get | Operation::Cancel => Ok(Self::event(Event::Task(from.task(json)?), from)),
            Operation::SetPush | Operation::GetPush => push(from, json),
            Operation::ListPush => pushes(from, json),
            Operation::DeletePush => result(json, from).map(|_| Self(Said::Nothing)),
            Operation::List | Operation::ExtendedCard => {
                Err(AgentError::not_a2a("this answer is not translated"))
            }
        }
    }

    /// Whether a stream ends with this: the task is over for good, or the agent says that nothing follows. One that waits for somebody
    /// may go on, and a task that is told whole at the beginning may still wait for what is being said.
    pub fn ends(&self) -> bool {
        match &self.0 {
            Said::Event(event, _) => match event.as_ref() {
                Event::Message(_) => true,
                Event::Task(task) => task.status.state.is_terminal(),
                Event::Status { status, last, .. } => *last || status.state.is_terminal(),
                Event::Artifact { .. } | Event::Unknown => false,
            },
            Said::Push(_) | Said::Pushes(_) | Said::Nothing => false,
        }
    }

    /// Shows every id of a task or a conversation, to be exchanged.
    ///
    /// # Errors
    ///
    /// The first that `exchange` gives.
    pub fn ids_mut<R>(
        &mut self,
        mut exchange: impl FnMut(IdKind, &mut String) -> Result<(), R>,
    ) -> Result<(), R> {
        let exchange = &mut exchange;
        match &mut self.0 {
            Said::Event(event, history) => {
                event_ids(event, exchange)?;
                history.iter_mut().try_for_each(|message| message_ids(message, exchange))
            }
            Said::Push(push) => push.task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id)),
            Said::Pushes(pushes) => {
                let mut ids = pushes.iter_mut().filter_map(|push| push.task_id.as_mut());
                ids.try_for_each(|id| exchange(IdKind::Task, id))
            }
            Said::Nothing => Ok(()),
        }
    }

    pub(super) fn event(mut event: Event, from: Dialect) -> Self {
        let mut history = Vec::new();
        let mut described = |message: &mut Message| take_descriptions(&mut message.parts, from);
        match &mut event {
            Event::Task(task) => {
                history = std::mem::take(&mut task.history).messages();
                history.iter_mut().for_each(&mut described);
                task.artifacts.iter_mut().for_each(|artifact| take_descriptions(&mut artifact.parts, from));
                settle(&mut task.status, from);
            }
            Event::Message(message) => described(message),
            Event::Status { status, .. } => settle(status, from),
            Event::Artifact { artifact, .. } => take_descriptions(&mut artifact.parts, from),
            Event::Unknown => {}
        }
        Self(Said::Event(Box::new(event), history))
    }
}

/// Whether an older client is told that nothing follows: the task is over, or waits for it to say something. Whoever waits for
/// somebody else to allow something hears of it on the same stream.
pub(super) fn is_over(status: &Status) -> bool {
    let waits_elsewhere = status.state == State::AuthRequired;
    (status.state.is_terminal() || status.state.is_interrupted()) && !waits_elsewhere
}

fn settle(status: &mut Status, from: Dialect) {
    if let Some(message) = &mut status.message {
        take_descriptions(&mut message.parts, from);
    }
    if let Some(timestamp) = &mut status.timestamp {
        // Without a zone it means UTC, and readers of 1.0 refuse it.
        let (day, time) = timestamp.split_once('T').unwrap_or_default();
        if !day.is_empty() && !time.contains(['Z', 'z', '+', '-']) {
            timestamp.push('Z');
        }
    }
}

fn event_ids<R>(
    event: &mut Event,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    match event {
        Event::Task(task) => {
            exchange(IdKind::Task, &mut task.id)?;
            task.context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(&mut task.status, exchange)
        }
        Event::Message(message) => message_ids(message, exchange),
        Event::Status { task_id, context_id, status, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(status, exchange)
        }
        Event::Artifact { task_id, context_id, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))
        }
        Event::Unknown => Ok(()),
    }
}

fn status_ids<R>(
    status: &mut Status,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    status.message.iter_mut().try_for_each(|message| message_ids(message, exchange))
}

fn push(from: Dialect, json: &[u8]) -> Result<Answer, AgentError> {
    result(json, from)?;
    let pushed: Pushed = serde_json::from_slice(json).map_err(|error| broken(&error))?;
    let registered = pushed.result.0.and_then(PushIn::registered);
    registered
        .map(|registered| Answer(Said::Push(registered)))
        .ok_or_else(|| AgentError::not_a2a("the answer holds no webhook"))
}

fn pushes(from: Dialect, json: &[u8]) -> Result<Answer, AgentError> {
    result(json, from)?;
    let list = match from {
        Dialect::V0_1 | Dialect::V0_3 => {
            serde_json::from_slice::<PushList>(json).map_err(|error| broken(&error))?.result
        }
        Dialect::V1 => {
            let page: PushPage = serde_json::from_slice(json).map_err(|error| broken(&error))?;
            page.result.0.unwrap_or_default().configs
        }
    };
    let registered = list.items().filter_map(|push| push.0.and_then(PushIn::registered));
    Ok(Answer(Said::Pushes(registered.collect())))
}

fn broken(error: &serde_json::Error) -> AgentError {
    AgentError::not_a2a(&format!("not JSON: {error}"))
}
