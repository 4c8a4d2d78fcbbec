//! A client's request in any version: decoded once, its ids replaced, and encoded for the agent.
//!
//! The tenant of a client is ignored: that of the agent is used. 0.2 and 0.3 cannot express "no
//! history": there one message is requested, and dropped from the response (see `response`).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::decode::{client_message, take_descriptions};
use super::super::dialect::Dialect;
use super::super::encode::{MessageOut, to_json};
use super::super::lenient::{
    LenientBool, LenientInteger, LenientList, LenientObject, LenientString, MAX_DEPTH, depth_within, object,
};
use super::super::model::Message;
use super::super::operation::Operation;
use super::super::push::{PushConfig, PushIn, PushOut, RegisteredOut};
use super::super::request::V0_1_HISTORY_LENGTH;
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
struct ParamsIn<'a> {
    id: LenientString,
    task_id: LenientString,
    session_id: LenientString,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
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
        let given: LenientObject<ParamsIn<'_>> =
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

fn saying(from: Dialect, given: ParamsIn<'_>) -> Result<SendMessageRequest, BadParams> {
    let mut message = client_message(given.message, from != Dialect::V0_1).map_err(BadParams)?;
    let configuration = given.configuration.0.unwrap_or_default();
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

fn push(from: Dialect, given: ParamsIn<'_>) -> Result<RequestParams, BadParams> {
    let (task, config) = match from {
        Dialect::V0_1 | Dialect::V0_3 => (given.id, given.push_notification_config_id),
        Dialect::V1 => (given.task_id, given.id),
    };
    Ok(RequestParams::Push { task_id: task_id(task)?, config_id: config.filled() })
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ParamsOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<ConfigurationOut<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification: Option<PushOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationOut<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    blocking: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_immediately: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config: Option<PushOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_push_notification_config: Option<PushOut<'a>>,
}

impl ConfigurationOut<'_> {
    fn is_empty(&self) -> bool {
        self.accepted_output_modes.is_empty()
            && self.blocking.is_none()
            && self.return_immediately.is_none()
            && self.history_length.is_none()
            && self.push_notification_config.is_none()
            && self.task_push_notification_config.is_none()
    }
}

impl ClientRequest {
    /// Encodes the parameters in the agent's version. The tenant is the agent's; only 1.0 has one.
    pub fn write(&self, to: Dialect, tenant: Option<&str>) -> Vec<u8> {
        let tenant = tenant.filter(|tenant| !tenant.is_empty() && to == Dialect::V1);
        match &self.asked {
            RequestParams::Say(said) => json(&self.send_message(said, to, tenant)),
            RequestParams::Task(task_id) => json(&self.task_params(task_id, to, tenant)),
            RequestParams::SetPush { task_id, config } => {
                json(&RegisteredOut::new(Some(task_id), PushOut::new(config, to), tenant, to))
            }
            RequestParams::Push { task_id, config_id } => {
                let (task_id, config_id) = (Some(task_id.as_str()), config_id.as_deref());
                json(&match to {
                    Dialect::V0_1 => ParamsOut { id: task_id, ..ParamsOut::default() },
                    Dialect::V0_3 => {
                        let push_notification_config_id = config_id;
                        ParamsOut { id: task_id, push_notification_config_id, ..ParamsOut::default() }
                    }
                    Dialect::V1 => ParamsOut { tenant, task_id, id: config_id, ..ParamsOut::default() },
                })
            }
            RequestParams::Nothing => json(&ParamsOut { tenant, ..ParamsOut::default() }),
        }
    }

    fn history_length(&self, to: Dialect) -> Option<u32> {
        match (to, self.history) {
            (Dialect::V0_1, None) => Some(V0_1_HISTORY_LENGTH.into()),
            (Dialect::V0_1, Some(0)) | (Dialect::V0_3 | Dialect::V1, None) => None,
            (Dialect::V0_3, Some(0)) => Some(1),
            (_, Some(length)) => Some(length),
        }
    }

    fn task_params<'a>(&'a self, task_id: &'a str, to: Dialect, tenant: Option<&'a str>) -> ParamsOut<'a> {
        // A server of 1.0 rejects unknown members: only a cancellation has metadata there.
        let described = to != Dialect::V1 || self.operation == Operation::Cancel;
        ParamsOut {
            tenant,
            id: Some(task_id),
            history_length: self.history_length(to).filter(|_| self.operation == Operation::Get),
            metadata: self.metadata.as_deref().filter(|_| described),
            ..ParamsOut::default()
        }
    }

    fn send_message<'a>(
        &'a self,
        said: &'a SendMessageRequest,
        to: Dialect,
        tenant: Option<&'a str>,
    ) -> ParamsOut<'a> {
        let mut params = ParamsOut {
            tenant,
            message: Some(MessageOut::for_sending(&said.message, to)),
            metadata: self.metadata.as_deref(),
            ..ParamsOut::default()
        };
        let history_length = self.history_length(to);
        let push = said.push.as_ref().map(|push| PushOut::new(push, to));
        let common = ConfigurationOut {
            accepted_output_modes: &said.modes,
            history_length,
            ..ConfigurationOut::default()
        };
        let configuration = match to {
            Dialect::V0_1 => {
                params.id = said.message.task_id.as_deref();
                params.session_id = said.message.context_id.as_deref();
                params.accepted_output_modes = &said.modes;
                params.history_length = history_length;
                params.push_notification = push;
                return params;
            }
            Dialect::V0_3 => {
                let blocking = (self.operation == Operation::Send).then_some(!said.at_once);
                ConfigurationOut { blocking, push_notification_config: push, ..common }
            }
            Dialect::V1 => {
                let return_immediately = said.at_once.then_some(true);
                ConfigurationOut { return_immediately, task_push_notification_config: push, ..common }
            }
        };
        params.configuration = (!configuration.is_empty()).then_some(configuration);
        params
    }
}

/// A JSON-RPC request, or the body of an HTTP+JSON request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestOrParams {
    params: LenientObject<MessageParams>,
    message: LenientObject<MessageIds>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MessageParams {
    message: LenientObject<MessageIds>,
    /// Used in 0.1.
    session_id: LenientString,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MessageIds {
    context_id: LenientString,
}

/// Returns the id of the conversation of the message in a request. An unreadable request has none.
pub(crate) fn context_of(request: &[u8]) -> Option<String> {
    if !depth_within(request, MAX_DEPTH) {
        return None;
    }
    let RequestOrParams { params, message } =
        serde_json::from_slice::<LenientObject<RequestOrParams>>(request).ok()?.0?;
    let MessageParams { message: inside, session_id } = params.0.unwrap_or_default();
    let said = inside.0.or(message.0).and_then(|said| said.context_id.filled());
    said.or(session_id.filled())
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    to_json(value, 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_and_binding_has_its_place_for_the_conversation() {
        for (request, context) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"message":{"contextId":"c"}}}"#, Some("c")),
            (
                r#"{"method":"tasks/send","params":{"id":"t","sessionId":"s","message":{"parts":[]}}}"#,
                Some("s"),
            ),
            (r#"{"message":{"contextId":"c"},"configuration":{}}"#, Some("c")),
            (r#"{"params":{"message":{"contextId":""}}}"#, None),
            (r#"{"params":{"message":{"contextId":7}}}"#, None),
            (r#"{"params":[],"message":"c"}"#, None),
            ("[]", None),
            ("<html>", None),
        ] {
            assert_eq!(context_of(request.as_bytes()).as_deref(), context, "{request}");
        }
        let deep = format!("{{\"params\":{}{}}}", "[".repeat(999), "]".repeat(999));
        assert_eq!(context_of(deep.as_bytes()), None);
    }
}
