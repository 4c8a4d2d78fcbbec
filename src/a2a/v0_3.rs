//! Encodes A2A 0.2 and 0.3: the parameters of a send and of a webhook.
//!
//! Parts are in `legacy_parts`, decoding is in `decode`, requests about a task are in `dialect`.

use serde::ser::{Serialize, Serializer};

use super::dialect::{Dialect, OperationRequest};
use super::encode::MessageOut;
use super::legacy_parts::PushAuthentication;
use super::push::PushNotificationConfig;

/// `MessageSendParams`.
pub(crate) struct SendParams<'a>(pub(crate) &'a OperationRequest<'a>);

#[derive(serde::Serialize)]
struct MessageSendParams<'a> {
    message: MessageOut<'a>,
    configuration: MessageSendConfiguration<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageSendConfiguration<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        MessageSendParams {
            message: MessageOut::for_sending(ask.message, Dialect::V0_3),
            configuration: MessageSendConfiguration {
                accepted_output_modes: ask.accepted_output_modes,
                blocking: true,
            },
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
    pub(crate) fn new(task_id: &'a str, webhook: &PushNotificationConfig<'a>) -> Self {
        let PushNotificationConfig { id, url, token } = *webhook;
        let authentication = PushAuthentication::new(token);
        Self { task_id, push_notification_config: PushConfig { id, url, token, authentication } }
    }
}
