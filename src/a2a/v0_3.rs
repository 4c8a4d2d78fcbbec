//! How A2A 0.2 and 0.3 are written: the parameters of a send and of a webhook.
//!
//! Not here: parts (see `older`), reading (see `read`), requests about a task (see `dialect`).

use serde::ser::{Serialize, Serializer};

use super::dialect::{Dialect, Send};
use super::older::PushAuthentication;
use super::out::MessageOut;
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
            message: MessageOut::to_send(ask.message, Dialect::V0_3),
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
