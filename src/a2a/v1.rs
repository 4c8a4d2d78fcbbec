//! How A2A 1.0 is written: the parameters of a send, straight from the canonical model, and of a webhook.
//!
//! Not here: reading (see `read`), requests about a task (see `dialect`).

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::dialect::Send;
use super::model::{Message, Part, PartBody, Role};
use super::push::Webhook;

/// `SendMessageRequest`.
pub(crate) struct SendParams<'a>(pub(crate) &'a Send<'a>);

#[derive(serde::Serialize)]
struct Params<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    message: MessageOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<Configuration<'a>>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    accepted_output_modes: &'a [String],
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        let modes = ask.accepted_output_modes;
        Params {
            tenant: ask.tenant.filter(|tenant| !tenant.is_empty()),
            message: MessageOut::from(ask.message),
            configuration: (!modes.is_empty()).then_some(Configuration { accepted_output_modes: modes }),
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
    pub(crate) fn new(task_id: &'a str, webhook: &Webhook<'a>, tenant: Option<&'a str>) -> Self {
        let Webhook { id, url, token } = *webhook;
        let authentication = PushAuthentication { scheme: "Bearer", credentials: token };
        Self { tenant: tenant.filter(|tenant| !tenant.is_empty()), task_id, id, url, token, authentication }
    }
}

/// `DeleteTaskPushNotificationConfigRequest`.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeletePushParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    task_id: &'a str,
    /// The webhook's, not the task's.
    id: &'a str,
}

impl<'a> DeletePushParams<'a> {
    pub(crate) fn new(task_id: &'a str, id: &'a str, tenant: Option<&'a str>) -> Self {
        Self { tenant: tenant.filter(|tenant| !tenant.is_empty()), task_id, id }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageOut<'a> {
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
            message_id: message.message_id.as_deref().unwrap_or_default(),
            role: match message.role {
                Role::User => "ROLE_USER",
                Role::Agent => "ROLE_AGENT",
            },
            parts: Parts(&message.parts),
            task_id: message.task_id.as_deref(),
            context_id: message.context_id.as_deref(),
            reference_task_ids: &message.reference_task_ids,
            extensions: &message.extensions,
            metadata: message.metadata.as_deref(),
        }
    }
}

struct Parts<'a>(&'a [Part]);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(PartOut))
    }
}

struct PartOut<'a>(&'a Part);

#[derive(Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part) = self;
        let mut members = Members {
            filename: part.filename.as_deref(),
            media_type: part.media_type.as_deref(),
            metadata: part.metadata.as_deref(),
            ..Members::default()
        };
        match &part.body {
            PartBody::Text(text) => members.text = Some(text),
            PartBody::Raw(base64) => members.raw = Some(base64),
            PartBody::Url(url) => members.url = Some(url),
            PartBody::Data(json) => members.data = Some(json),
            PartBody::Unknown(part) => return part.serialize(serializer),
        }
        members.serialize(serializer)
    }
}
