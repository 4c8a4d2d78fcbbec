//! An agent's response in any version: decoded once, with its ids replaced.
//!
//! It is encoded for the client in `encode_response`; errors are in `error`.

use serde::Deserialize;

use super::super::decode::{result, take_descriptions};
use super::super::dialect::Dialect;
use super::super::error::AgentError;
use super::super::lenient::{LenientList, LenientObject};
use super::super::model::{Message, StreamResponse, TaskState, TaskStatus};
use super::decode_request::message_ids;
use super::operation::Operation;
use super::push_config::{PushIn, TaskPushNotificationConfig};
use super::rewrite_ids::IdKind;

/// An agent's response, or one event of its stream.
pub struct AgentResponse(pub(super) ResponseBody);

/// The kind of a response, with its content.
pub(super) enum ResponseBody {
    /// The messages are those of a task's history.
    Event(Box<StreamResponse>, Vec<Message>),
    Push(TaskPushNotificationConfig),
    Pushes(Vec<TaskPushNotificationConfig>),
    Nothing,
}

#[derive(Deserialize)]
struct PushedConfig {
    #[serde(default)]
    result: LenientObject<PushIn>,
}

#[derive(Deserialize)]
struct PushList {
    #[serde(default)]
    result: LenientList<LenientObject<PushIn>>,
}

#[derive(Deserialize)]
struct PushPage {
    #[serde(default)]
    result: LenientObject<ConfigList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigList {
    configs: LenientList<LenientObject<PushIn>>,
}

impl AgentResponse {
    /// Decodes a JSON-RPC response object: a response, or the data of one event of a stream.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request, or responded with another kind of result.
    pub fn read(from: Dialect, operation: Operation, json: &[u8]) -> Result<Self, AgentError> {
        match operation {
            Operation::Send | Operation::Stream | Operation::Subscribe => match from.event(json)? {
                StreamResponse::Unknown if operation.is_stream() => Ok(Self(ResponseBody::Nothing)),
                StreamResponse::Unknown => {
                    Err(AgentError::invalid_response("the answer holds neither a task nor a message"))
                }
                event => Ok(Self::event(event, from)),
            },
            Operation::Get | Operation::Cancel => {
                Ok(Self::event(StreamResponse::Task(from.task(json)?), from))
            }
            Operation::SetPush | Operation::GetPush => push(from, json),
            Operation::ListPush => pushes(from, json),
            Operation::DeletePush => result(json, from).map(|_| Self(ResponseBody::Nothing)),
            Operation::List | Operation::ExtendedCard => {
                Err(AgentError::invalid_response("this answer is not translated"))
            }
        }
    }

    /// Returns true if a stream ends with this event: the task has ended, or the agent marks the
    /// event as the last. An interrupted task may continue, and the task at the beginning of a
    /// stream may still wait for the message that is being sent.
    pub fn is_final(&self) -> bool {
        match &self.0 {
            ResponseBody::Event(event, _) => match event.as_ref() {
                StreamResponse::Message(_) => true,
                StreamResponse::Task(task) => task.status.state.is_terminal(),
                StreamResponse::Status { status, last, .. } => *last || status.state.is_terminal(),
                StreamResponse::Artifact { .. } | StreamResponse::Unknown => false,
            },
            ResponseBody::Push(_) | ResponseBody::Pushes(_) | ResponseBody::Nothing => false,
        }
    }

    /// Passes every id of a task or a conversation to `exchange`, which may replace it.
    ///
    /// # Errors
    ///
    /// The first error of `exchange`.
    pub fn ids_mut<R>(
        &mut self,
        mut exchange: impl FnMut(IdKind, &mut String) -> Result<(), R>,
    ) -> Result<(), R> {
        let exchange = &mut exchange;
        match &mut self.0 {
            ResponseBody::Event(event, history) => {
                event_ids(event, exchange)?;
                history.iter_mut().try_for_each(|message| message_ids(message, exchange))
            }
            ResponseBody::Push(push) => push.task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id)),
            ResponseBody::Pushes(pushes) => {
                let mut ids = pushes.iter_mut().filter_map(|push| push.task_id.as_mut());
                ids.try_for_each(|id| exchange(IdKind::Task, id))
            }
            ResponseBody::Nothing => Ok(()),
        }
    }

    pub(super) fn event(mut event: StreamResponse, from: Dialect) -> Self {
        let mut history = Vec::new();
        let mut described = |message: &mut Message| take_descriptions(&mut message.parts, from);
        match &mut event {
            StreamResponse::Task(task) => {
                history = std::mem::take(&mut task.history).messages();
                history.iter_mut().for_each(&mut described);
                task.artifacts.iter_mut().for_each(|artifact| take_descriptions(&mut artifact.parts, from));
                normalize(&mut task.status, from);
            }
            StreamResponse::Message(message) => described(message),
            StreamResponse::Status { status, .. } => normalize(status, from),
            StreamResponse::Artifact { artifact, .. } => take_descriptions(&mut artifact.parts, from),
            StreamResponse::Unknown => {}
        }
        Self(ResponseBody::Event(Box::new(event), history))
    }
}

/// Returns true if a status is the last one for an older client: the task has ended, or waits for
/// the client. A client that waits for an authorization by another party gets further events on the
/// same stream.
pub(super) fn is_over(status: &TaskStatus) -> bool {
    let waits_elsewhere = status.state == TaskState::AuthRequired;
    (status.state.is_terminal() || status.state.is_interrupted()) && !waits_elsewhere
}

fn normalize(status: &mut TaskStatus, from: Dialect) {
    if let Some(message) = &mut status.message {
        take_descriptions(&mut message.parts, from);
    }
    if let Some(timestamp) = &mut status.timestamp {
        // Without a zone it means UTC, and readers of 1.0 reject it.
        let (day, time) = timestamp.split_once('T').unwrap_or_default();
        if !day.is_empty() && !time.contains(['Z', 'z', '+', '-']) {
            timestamp.push('Z');
        }
    }
}

fn event_ids<R>(
    event: &mut StreamResponse,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    match event {
        StreamResponse::Task(task) => {
            exchange(IdKind::Task, &mut task.id)?;
            task.context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(&mut task.status, exchange)
        }
        StreamResponse::Message(message) => message_ids(message, exchange),
        StreamResponse::Status { task_id, context_id, status, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(status, exchange)
        }
        StreamResponse::Artifact { task_id, context_id, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))
        }
        StreamResponse::Unknown => Ok(()),
    }
}

fn status_ids<R>(
    status: &mut TaskStatus,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    status.message.iter_mut().try_for_each(|message| message_ids(message, exchange))
}

fn push(from: Dialect, json: &[u8]) -> Result<AgentResponse, AgentError> {
    result(json, from)?;
    let pushed: PushedConfig = serde_json::from_slice(json).map_err(|error| broken(&error))?;
    let registered = pushed.result.0.and_then(PushIn::registered);
    registered
        .map(|registered| AgentResponse(ResponseBody::Push(registered)))
        .ok_or_else(|| AgentError::invalid_response("the answer holds no webhook"))
}

fn pushes(from: Dialect, json: &[u8]) -> Result<AgentResponse, AgentError> {
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
    Ok(AgentResponse(ResponseBody::Pushes(registered.collect())))
}

fn broken(error: &serde_json::Error) -> AgentError {
    AgentError::invalid_response(&format!("not JSON: {error}"))
}
