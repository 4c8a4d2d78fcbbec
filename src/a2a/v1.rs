//! Encodes A2A 1.0: the parameters of a send, straight from the canonical model, and of a webhook.
//!
//! Messages are in `encode`, decoding is in `decode`, requests about a task are in `dialect`.

use serde::ser::{Serialize, Serializer};

use super::dialect::{Dialect, OperationRequest};
use super::encode::MessageOut;
use super::push::PushNotificationConfig;

/// `SendMessageRequest`.
pub(crate) struct SendParams<'a>(pub(crate) &'a OperationRequest<'a>);

#[derive(serde::Serialize)]
struct SendMessageParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    message: MessageOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<SendMessageConfiguration<'a>>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct SendMessageConfiguration<'a> {
    accepted_output_modes: &'a [String],
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        let modes = ask.accepted_output_modes;
        SendMessageParams {
            tenant: ask.tenant.filter(|tenant| !tenant.is_empty()),
            message: MessageOut::for_sending(ask.message, Dialect::V1),
            configuration: (!modes.is_empty())
                .then_some(SendMessageConfiguration { accepted_output_modes: modes }),
        }
        .serialize(serializer)
    }
}

/// `TaskPushNotificationConfig`.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetPushParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    task_id: &'a str,
    id: &'a str,
    url: &'a str,
    token: &'a str,
    authentication: PushAuthentication<'a>,
}

#[derive(serde::Serialize)]
struct PushAuthentication<'a> {
    scheme: &'static str,
    credentials: &'a str,
}

impl<'a> SetPushParams<'a> {
    pub(crate) fn new(
        task_id: &'a str,
        webhook: &PushNotificationConfig<'a>,
        tenant: Option<&'a str>,
    ) -> Self {
        let PushNotificationConfig { id, url, token } = *webhook;
        let authentication = PushAuthentication { scheme: "Bearer", credentials: token };
        Self { tenant: tenant.filter(|tenant| !tenant.is_empty()), task_id, id, url, token, authentication }
    }
}
