//! Encodes the JSON-RPC requests to an agent in each dialect, straight from the canonical model.
//!
//! One request per HTTP exchange, so every request has the id 1. Messages are in `encode`, the form
//! of webhooks in `push`, responses in `decode`; `binding` chooses between this and HTTP+JSON.

use serde::Serialize;

use super::dialect::Dialect;
use super::encode::{MessageOut, to_json};
use super::model::{Message, PartBody};
use super::operation::Operation;
use super::push::{PushNotificationConfig, PushOut, RegisteredOut};

/// The content of a send.
#[derive(Debug, Clone, Copy)]
pub struct OperationRequest<'a> {
    /// The message. Its `message_id` should be set: every version but 0.1 requires one, and it is
    /// sent empty otherwise. If `Dialect::client_generates_task_ids`, its `task_id` and
    /// `context_id` should be set too.
    pub message: &'a Message,
    /// Media types of the output that the client accepts; empty leaves the choice to the agent.
    pub accepted_output_modes: &'a [String],
    /// Tenant of the chosen interface (A2A 1.0); not sent to older agents.
    pub tenant: Option<&'a str>,
}

impl Dialect {
    /// Encodes the request that sends a message, and waits for the task to end or to ask; as a
    /// stream if `streaming`.
    pub fn send(self, ask: &OperationRequest<'_>, streaming: bool) -> Vec<u8> {
        let method = self.method(if streaming { Operation::Stream } else { Operation::Send });
        let room = capacity_hint(ask);
        match self {
            Self::V0_1 => call(method, &TaskSendParams::new(ask), room),
            Self::V0_3 => call(method, &MessageSendParams::new(ask), room),
            Self::V1 => call(method, &SendMessageParams::new(ask), room),
        }
    }

    /// Encodes the request for the current state of a task.
    pub fn get_task(self, task_id: &str, tenant: Option<&str>) -> Vec<u8> {
        let history_length = match self {
            Self::V0_1 => Some(V0_1_HISTORY_LENGTH),
            Self::V0_3 | Self::V1 => None,
        };
        self.task_request(Operation::Get, TaskParams { id: task_id, history_length, tenant })
    }

    /// Encodes the request to cancel a task.
    pub(crate) fn cancel_task(self, task_id: &str, tenant: Option<&str>) -> Vec<u8> {
        self.task_request(Operation::Cancel, TaskParams { id: task_id, history_length: None, tenant })
    }

    /// Encodes the request to attach to a task's stream again; none where that is not safe.
    pub fn subscribe(self, task_id: &str, tenant: Option<&str>) -> Option<Vec<u8>> {
        match self {
            // Resubscription makes the Python SDK 0.3 store every event once per listener: the task
            // is corrupted. Servers of 0.1 have no resubscription, or one like that.
            Self::V0_1 | Self::V0_3 => None,
            Self::V1 => {
                let params = TaskParams { id: task_id, history_length: None, tenant };
                Some(self.task_request(Operation::Subscribe, params))
            }
        }
    }

    /// Encodes the request to send push notifications about a task to this webhook.
    pub(crate) fn set_push(
        self,
        task_id: &str,
        webhook: &PushNotificationConfig<'_>,
        tenant: Option<&str>,
    ) -> Vec<u8> {
        let room = 256 + task_id.len() + webhook.url.len() + 2 * webhook.token.len();
        let tenant = tenant.filter(|tenant| !tenant.is_empty());
        let push = PushOut::of_gateway(webhook, self);
        call(self.method(Operation::SetPush), &RegisteredOut::new(Some(task_id), push, tenant, self), room)
    }

    fn task_request(self, operation: Operation, params: TaskParams<'_>) -> Vec<u8> {
        let tenant = params.tenant.filter(|tenant| !tenant.is_empty() && self == Self::V1);
        call(self.method(operation), &TaskParams { tenant, ..params }, 128 + params.id.len())
    }

    /// Returns the name of an operation that every version has.
    fn method(self, operation: Operation) -> &'static str {
        operation.name(self).unwrap_or(operation.as_str())
    }
}

/// Number of messages of a task's history that are requested in 0.1: servers send none by default,
/// and some agents put their response there.
pub(super) const V0_1_HISTORY_LENGTH: u8 = 10;

/// `TaskSendParams` of 0.1. The client generates the ids there: `id` is the task and `sessionId` the
/// conversation. A message has neither an id nor extensions nor referenced tasks: those are lost.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskSendParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    message: MessageOut<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    history_length: u8,
}

impl<'a> TaskSendParams<'a> {
    fn new(ask: &OperationRequest<'a>) -> Self {
        Self {
            id: ask.message.task_id.as_deref(),
            session_id: ask.message.context_id.as_deref(),
            message: MessageOut::for_sending(ask.message, Dialect::V0_1),
            accepted_output_modes: ask.accepted_output_modes,
            history_length: V0_1_HISTORY_LENGTH,
        }
    }
}

/// `MessageSendParams` of 0.2 and 0.3.
#[derive(Serialize)]
struct MessageSendParams<'a> {
    message: MessageOut<'a>,
    configuration: MessageSendConfiguration<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageSendConfiguration<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
}

impl<'a> MessageSendParams<'a> {
    fn new(ask: &OperationRequest<'a>) -> Self {
        Self {
            message: MessageOut::for_sending(ask.message, Dialect::V0_3),
            configuration: MessageSendConfiguration {
                accepted_output_modes: ask.accepted_output_modes,
                blocking: true,
            },
        }
    }
}

/// `SendMessageRequest` of 1.0.
#[derive(Serialize)]
pub(super) struct SendMessageParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    message: MessageOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<SendMessageConfiguration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SendMessageConfiguration<'a> {
    accepted_output_modes: &'a [String],
}

impl<'a> SendMessageParams<'a> {
    pub(super) fn new(ask: &OperationRequest<'a>) -> Self {
        let modes = ask.accepted_output_modes;
        Self {
            tenant: ask.tenant.filter(|tenant| !tenant.is_empty()),
            message: MessageOut::for_sending(ask.message, Dialect::V1),
            configuration: (!modes.is_empty())
                .then_some(SendMessageConfiguration { accepted_output_modes: modes }),
        }
    }
}

#[derive(Serialize)]
struct EncodedCall<'a, P> {
    jsonrpc: &'static str,
    id: u8,
    method: &'static str,
    params: &'a P,
}

/// `GetTaskRequest` of 1.0, and the params of other requests about a task.
#[derive(Serialize)]
pub(super) struct TaskParams<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "historyLength", skip_serializing_if = "Option::is_none")]
    pub(super) history_length: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<&'a str>,
}

fn call<P: Serialize>(method: &'static str, params: &P, capacity: usize) -> Vec<u8> {
    to_json(&EncodedCall { jsonrpc: "2.0", id: 1, method, params }, capacity)
}

/// Returns the approximate size of the request, so that it is encoded without reallocation.
fn capacity_hint(ask: &OperationRequest<'_>) -> usize {
    let parts = ask.message.parts.iter().map(|part| {
        128 + match &part.body {
            PartBody::Text(text) => text.json_bytes(),
            PartBody::Raw(text) | PartBody::Url(text) => text.len(),
            PartBody::Data(json) | PartBody::Unknown(json) => json.get().len(),
        }
    });
    512 + parts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::AgentError;

    #[test]
    fn requests_about_a_task_name_it_and_its_tenant() {
        use Dialect::{V0_1, V0_3, V1};
        let subscribe = |dialect: Dialect, tenant| dialect.subscribe("t\"1", tenant).unwrap_or_default();
        for (body, expected) in [
            (
                V0_1.get_task("t\"1", Some("acme")),
                r#""method":"tasks/get","params":{"id":"t\"1","historyLength":10}}"#,
            ),
            (V0_1.cancel_task("t\"1", None), r#""method":"tasks/cancel","params":{"id":"t\"1"}}"#),
            (V0_3.get_task("t\"1", Some("acme")), r#""method":"tasks/get","params":{"id":"t\"1"}}"#),
            (V0_3.cancel_task("t\"1", None), r#""method":"tasks/cancel","params":{"id":"t\"1"}}"#),
            (
                V1.get_task("t\"1", Some("acme")),
                r#""method":"GetTask","params":{"id":"t\"1","tenant":"acme"}}"#,
            ),
            (V1.cancel_task("t\"1", Some("")), r#""method":"CancelTask","params":{"id":"t\"1"}}"#),
            (subscribe(V1, None), r#""method":"SubscribeToTask","params":{"id":"t\"1"}}"#),
        ] {
            assert_eq!(String::from_utf8(body).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":1,{expected}"#));
        }
        assert_eq!((V0_1.subscribe("t", None), V0_3.subscribe("t", None)), (None, None));
    }

    #[test]
    fn a_webhook_is_registered_and_taken_back_in_the_words_of_the_dialect() {
        use Dialect::{V0_1, V0_3, V1};
        let hook = PushNotificationConfig { id: "w", url: "https://gw/push/x", token: "s\"" };
        for (body, expected) in [
            (
                V0_1.set_push("t", &hook, Some("acme")),
                r#""method":"tasks/pushNotification/set","params":{"id":"t","pushNotificationConfig":{"url":"https://gw/push/x","token":"s\"","authentication":{"schemes":["Bearer"],"credentials":"s\""}}}}"#,
            ),
            (
                V0_3.set_push("t", &hook, Some("acme")),
                r#""method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"id":"w","url":"https://gw/push/x","token":"s\"","authentication":{"schemes":["Bearer"],"credentials":"s\""}}}}"#,
            ),
            (
                V1.set_push("t", &hook, Some("acme")),
                r#""method":"CreateTaskPushNotificationConfig","params":{"tenant":"acme","taskId":"t","id":"w","url":"https://gw/push/x","token":"s\"","authentication":{"scheme":"Bearer","credentials":"s\""}}}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(body).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":1,{expected}"#));
        }
    }

    #[test]
    fn the_answer_to_a_registration_says_its_id_or_why_there_is_none() {
        use super::super::ErrorKind;
        for (answer, id) in [
            (r#"{"result":{"taskId":"t","pushNotificationConfig":{"id":"w","url":"u"}}}"#, Some("w")),
            (r#"{"result":{"taskId":"t","id":"w","url":"u","tenant":""}}"#, Some("w")),
            (r#"{"result":{"taskId":"t","pushNotificationConfig":{"url":"u"}}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1}"#, None),
            (r#"{"jsonrpc":"2.0","result":null}"#, None),
        ] {
            for dialect in [Dialect::V0_3, Dialect::V1] {
                assert_eq!(dialect.webhook_id(answer.as_bytes()).unwrap().as_deref(), id, "{answer}");
            }
        }
        let answer = br#"{"result":{"id":"t","pushNotificationConfig":{"url":"u"}}}"#;
        assert_eq!(Dialect::V0_1.webhook_id(answer), Ok(None), "there the id is the task's");
        let error = Dialect::V1.webhook_id(br#"{"error":{"code":-32003,"message":"no"}}"#).unwrap_err();
        assert!(matches!(error, AgentError::Refused { kind: ErrorKind::PushNotSupported, .. }), "{error:?}");
        assert!(matches!(Dialect::V1.webhook_id(b"<html>"), Err(AgentError::NotA2a(_))));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let data = "[".repeat(100_000) + &"]".repeat(100_000);
        let answer = format!(r#"{{"result":{{"message":{{"parts":[{{"data":{data}}}]}}}}}}"#);
        for dialect in [Dialect::V0_1, Dialect::V0_3, Dialect::V1] {
            let error = dialect.event(answer.as_bytes()).unwrap_err();
            assert_eq!(error, AgentError::NotA2a("nested too deeply".to_owned()));
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_refused() {
        let error = Dialect::V1.event(b"{\"result\":{\"kind\":\"\xff\"}}").unwrap_err();
        assert_eq!(error, AgentError::NotA2a("not UTF-8".to_owned()));
    }
}
