//! How A2A 0.1 is written: the parameters of a send and of a webhook.
//!
//! Whoever asks makes the ids there: `id` is the task and `sessionId` the conversation. A message has neither an id nor extensions
//! nor tasks that it refers to: those are lost. Not here: parts (see `older`), reading (see `read`), making ids (see `agents`).

use serde::ser::{Serialize, Serializer};

use super::dialect::{Dialect, OperationRequest};
use super::encode::MessageOut;
use super::legacy_parts::PushAuthentication;
use super::push::PushNotificationConfig;

/// How many messages of a task's history are asked for: servers give none of their own accord, and some agents put their answer
/// there.
pub(super) const HISTORY: u8 = 10;

/// `TaskSendParams`.
pub(crate) struct SendParams<'a>(pub(crate) &'a OperationRequest<'a>);

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct SendTaskParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    message: MessageOut<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    history_length: u8,
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        SendTaskParams {
            id: ask.message.task_id.as_deref(),
            session_id: ask.message.context_id.as_deref(),
            message: MessageOut::without_output_only(ask.message, Dialect::V0_1),
            accepted_output_modes: ask.accepted_output_modes,
            history_length: HISTORY,
        }
        .serialize(serializer)
    }
}

/// `TaskPushNotificationConfig`.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetPushParams<'a> {
    id: &'a str,
    push_notification_config: PushConfig<'a>,
}

#[derive(serde::Serialize)]
struct PushConfig<'a> {
    url: &'a str,
    token: &'a str,
    authentication: PushAuthentication<'a>,
}

impl<'a> SetPushParams<'a> {
    pub(crate) fn new(task_id: &'a str, webhook: &PushNotificationConfig<'a>) -> Self {
        // One webhook per task: there is no id to tell two apart.
        let PushNotificationConfig { id: _, url, token } = *webhook;
        let authentication = PushAuthentication::new(token);
        Self { id: task_id, push_notification_config: PushConfig { url, token, authentication } }
    }
}
