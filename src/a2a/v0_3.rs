//! How A2A 0.2 and 0.3 are written: the parameters of a send and of a webhook.
//!
//! Not here: parts (see `older`), reading (see `read`), requests about a task (see `dialect`).

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::dialect::Send;
use super::model::{Message, Role};
use super::older::{Parts, PushAuthentication};
use super::push::Webhook;

/// `MessageSendParams`.
pub(crate) struct SendParams<'a>(pub(crate) &'a Send<'a>);

#[derive(serde::Serialize)]
struct Params<'a> {
    message: MessageOut<'a>,
    configuration: Configuration<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        Params {
            message: MessageOut::from(ask.message),
            configuration: Configuration { accepted_output_modes: ask.accepted_output_modes, blocking: true },
        }
        .serialize(serializer)
    }
}

/// `TaskPushNotificationConfig`.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetPushParams<'a> {
    task_id: &'a str,
    push_notification_config: PushConfig<'a>,
}

#[derive(serde::Serialize)]
struct PushConfig<'a> {
    id: &'a str,
    url: &'a str,
    token: &'a str,
    authentication: PushAuthentication<'a>,
}

impl<'a> SetPushParams<'a> {
    pub(crate) fn new(task_id: &'a str, webhook: &Webhook<'a>) -> Self {
        let Webhook { id, url, token } = *webhook;
        let authentication = PushAuthentication::new(token);
        Self { task_id, push_notification_config: PushConfig { id, url, token, authentication } }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageOut<'a> {
    kind: &'static str,
    message_id: &'a str,
    role: &'static str,
    parts: Parts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    reference_task_ids: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> From<&'a Message> for MessageOut<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            kind: "message",
            message_id: message.message_id.as_deref().unwrap_or_default(),
            role: match message.role {
                Role::User => "user",
                Role::Agent => "agent",
            },
            parts: Parts { parts: &message.parts, tag: "kind" },
            task_id: message.task_id.as_deref(),
            context_id: message.context_id.as_deref(),
            reference_task_ids: &message.reference_task_ids,
            extensions: &message.extensions,
            metadata: message.metadata.as_deref(),
        }
    }
}
