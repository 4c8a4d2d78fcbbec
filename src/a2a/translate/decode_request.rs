//! A client's request in any version: decoded once, its ids replaced, and encoded for the agent.
//!
//! The tenant of a client is ignored: that of the agent is used. Encoding is in `encode_request`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::decode::{MessageIn, take_descriptions};
use super::super::depth::{MAX_DEPTH, depth_within};
use super::super::dialect::Dialect;
use super::super::lenient::{LenientBool, LenientInteger, LenientList, LenientObject, LenientString, object};
use super::super::model::Message;
use super::operation::Operation;
use super::push_config::{PushConfig, PushIn};
use super::rewrite_ids::IdKind;

/// A client's request to an agent.
pub struct ClientRequest {
    pub(super) operation: Operation,
    pub(super) asked: RequestParams,
    /// The number of history messages that the client wants; without one, the agent decides.
    pub(super) history: Option<u32>,
    /// A JSON object, byte for byte.
    pub(super) metadata: Option<Box<RawValue>>,
}

/// The parameters of a request.
pub(super) enum RequestParams {
    Say(Box<SendMessageRequest>),
    Task(String),
    SetPush { task_id: String, config: PushConfig },
    Push { task_id: String, config_id: Option<String> },
    Nothing,
}

/// A message, and the form of its response.
pub(super) struct SendMessageRequest {
    pub(super) message: Message,
    pub(super) modes: Vec<String>,
    /// True if the client wants an immediate response, and not one at the end.
    pub(super) at_once: bool,
    pub(super) push: Option<PushConfig>,
}

/// The error for invalid parameters: -32602.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid parameters: {0}")]
pub struct BadParams(pub &'static str);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ParamsIn {
    id: LenientString,
    task_id: LenientString,
    session_id: LenientString,
    message: LenientObject<MessageIn>,
    configuration: LenientObject<ConfigurationIn>,
    accepted_output_modes: LenientList<LenientString>,
    history_length: LenientInteger,
    push_notification: LenientObject<PushIn>,
    push_notification_config_id: LenientString,
    metadata: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConfigurationIn {
    accepted_output_modes: LenientList<LenientString>,
    history_length: LenientInteger,
    blocking: LenientBool,
    return_immediately: LenientBool,
    push_notification_config: LenientObject<PushIn>,
    task_push_notification_config: LenientObject<PushIn>,
}

impl ClientRequest {
    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`BadParams`] if a member is missing that every version requires, or if only one version has
    /// the operation.
    pub fn read(from: Dialect, operation: Operation, params: Option<&RawValue>) -> Result<Self, BadParams> {
        let json = params.map_or("{}", RawValue::get);
        if !depth_within(json.as_bytes(), MAX_DEPTH) {
            return Err(BadParams("nested too deeply"));
        }
        let given: LenientObject<ParamsIn> =
            serde_json::from_str(json).map_err(|_| BadParams("not as expected"))?;
        let mut given = given.0.ok_or(BadParams("not an object"))?;
        let metadata = object(given.metadata.take());
        let limit = match &mut given.configuration.0 {
            Some(configuration) if from != Dialect::V0_1 => std::mem::take(&mut configuration.history_length),
            _ => given.history_length,
        };
        let history = history(from, limit);
        let asked = match operation {
            Operation::Send | Operation::Stream => RequestParams::Say(Box::new(saying(from, given)?)),
            Operation::Get | Operation::Cancel | Operation::Subscribe => {
                RequestParams::Task(task_id(given.id)?)
            }
            Operation::SetPush => registration(json)?,
            Operation::GetPush | Operation::ListPush | Operation::DeletePush => push(from, given)?,
            Operation::ExtendedCard => RequestParams::Nothing,
            Operation::List => return Err(BadParams("no other version lists tasks")),
        };
        Ok(Self { operation, asked, history, metadata })
    }

    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the task that the request is about or continues, if it names one.
    pub fn task_id(&self) -> Option<&str> {
        match &self.asked {
            RequestParams::Say(said) => said.message.task_id.as_deref(),
            RequestParams::Task(task_id)
            | RequestParams::SetPush { task_id, .. }
            | RequestParams::Push { task_id, .. } => Some(task_id),
            RequestParams::Nothing => None,
        }
    }

    /// Returns the conversation of the message, if the request names one.
    pub fn context_id(&self) -> Option<&str> {
        match &self.asked {
            RequestParams::Say(said) => said.message.context_id.as_deref(),
            RequestParams::Task(_)
            | RequestParams::SetPush { .. }
            | RequestParams::Push { .. }
            | RequestParams::Nothing => None,
        }
    }

    /// Removes the ids that a client of 0.1 generated for a new task: agents of other versions
    /// generate them.
    pub fn drop_client_ids(&mut self, task: bool, context: bool) {
        if let RequestParams::Say(said) = &mut self.asked {
            said.message.task_id = said.message.task_id.take().filter(|_| !task);
            said.message.context_id = said.message.context_id.take().filter(|_| !context);
        }
    }

    /// Generates the ids that the agent's version requires and the client did not send. `fresh`
    /// must return unguessable ids.
    pub fn generate_missing_ids(&mut self, to: Dialect, mut fresh: impl FnMut() -> String) {
        let RequestParams::Say(said) = &mut self.asked else { return };
        let message = &mut said.message;
        if to.client_generates_task_ids() {
            // An existing task has its conversation already.
            if message.task_id.is_none() {
                message.task_id = Some(fresh());
                message.context_id.get_or_insert_with(&mut fresh);
            }
        } else {
            message.message_id.get_or_insert_with(&mut fresh);
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
        match &mut self.asked {
            RequestParams::Say(said) => message_ids(&mut said.message, &mut exchange),
            RequestParams::Task(task_id)
            | RequestParams::SetPush { task_id, .. }
            | RequestParams::Push { task_id, .. } => exchange(IdKind::Task, task_id),
            RequestParams::Nothing => Ok(()),
        }
    }
}

/// Passes the ids of a message to `exchange`.
pub(super) fn message_ids<R>(
    message: &mut Message,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    message.task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
    message.context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
    message.reference_task_ids.iter_mut().try_for_each(|id| exchange(IdKind::Reference, id))
}

/// Returns the requested history length. "No history" is 0 in 1.0, is the default in 0.1, and
/// cannot be expressed in 0.2 and 0.3.
fn history(from: Dialect, length: LenientInteger) -> Option<u32> {
    let length = length.0.and_then(|length| u32::try_from(length).ok());
    match from {
        Dialect::V0_1 => Some(length.unwrap_or(0)),
        Dialect::V0_3 => length.filter(|length| *length > 0),
        Dialect::V1 => length,
    }
}

fn task_id(id: LenientString) -> Result<String, BadParams> {
    id.filled().ok_or(BadParams("the task's id is missing"))
}

fn saying(from: Dialect, given: ParamsIn) -> Result<SendMessageRequest, BadParams> {
    let message = given.message.0.ok_or(BadParams("message is missing"))?;
    if let Some(missing) = message.missing_member(from != Dialect::V0_1) {
        return Err(BadParams(missing));
    }
    let configuration = given.configuration.0.unwrap_or_default();
    let mut message = Message::from(message);
    let (modes, push) = match from {
        Dialect::V0_1 => {
            message.task_id = Some(task_id(given.id)?);
            message.context_id = given.session_id.filled();
            (given.accepted_output_modes, given.push_notification)
        }
        Dialect::V0_3 => (configuration.accepted_output_modes, configuration.push_notification_config),
        Dialect::V1 => (configuration.accepted_output_modes, configuration.task_push_notification_config),
    };
    take_descriptions(&mut message.parts, from);
    Ok(SendMessageRequest {
        message,
        modes: modes.items().filter_map(LenientString::filled).collect(),
        at_once: match from {
            Dialect::V0_1 => false,
            Dialect::V0_3 => configuration.blocking.0 == Some(false),
            Dialect::V1 => configuration.return_immediately.is_set(),
        },
        push: push.0.map(|push| push.config().ok_or(BadParams("the webhook has no url"))).transpose()?,
    })
}

fn registration(json: &str) -> Result<RequestParams, BadParams> {
    let given: LenientObject<PushIn> =
        serde_json::from_str(json).map_err(|_| BadParams("not as expected"))?;
    let registered = given.0.and_then(PushIn::registered).ok_or(BadParams("the webhook has no url"))?;
    let task_id = registered.task_id.ok_or(BadParams("the task's id is missing"))?;
    Ok(RequestParams::SetPush { task_id, config: registered.config })
}

fn push(from: Dialect, given: ParamsIn) -> Result<RequestParams, BadParams> {
    let (task, config) = match from {
        Dialect::V0_1 | Dialect::V0_3 => (given.id, given.push_notification_config_id),
        Dialect::V1 => (given.task_id, given.id),
    };
    Ok(RequestParams::Push { task_id: task_id(task)?, config_id: config.filled() })
}
