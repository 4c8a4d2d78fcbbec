//! Encodes A2A 0.1: the parameters of a send and of a webhook.
//!
//! The client generates the ids there: `id` is the task and `sessionId` the conversation. A message
//! has neither an id nor extensions nor referenced tasks: those are lost. Parts are in
//! `legacy_parts`, decoding is in `decode`; `agents` generates the ids.

use serde::ser::{Serialize, Serializer};

use super::dialect::{Dialect, OperationRequest};
use super::encode::MessageOut;
use super::legacy_parts::PushAuthentication;
use super::push::PushNotificationConfig;

/// Number of messages of a task's history that are requested: servers send none by default, and
/// some agents put their response there.
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
            message: MessageOut::for_sending(ask.message, Dialect::V0_1),
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
        // One webhook per task: there is no id to distinguish two.
        let PushNotificationConfig { id: _, url, token } = *webhook;
        let authentication = PushAuthentication::new(token);
        Self { id: task_id, push_notification_config: PushConfig { url, token, authentication } }
    }
}
