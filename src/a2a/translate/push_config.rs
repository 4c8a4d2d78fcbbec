//! Webhooks for push notifications, in the form in which clients register them and agents return
//! them.
//!
//! The gateway's own webhooks are in `a2a::push`.

use serde::{Deserialize, Serialize};

use super::super::dialect::Dialect;
use super::super::lenient::{LenientList, LenientObject, LenientString};

/// The webhook for events of a task. Not printable: it contains secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Id of the registration within the task; 0.1 has none.
    pub id: Option<String>,
    /// The URL.
    pub url: String,
    /// The token of each push, by which the receiver verifies it.
    pub token: Option<String>,
    /// The authentication of the sender.
    pub authentication: Option<PushAuthentication>,
}

/// The authentication of a sender of pushes. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct PushAuthentication {
    /// The schemes to choose from; 1.0 has one, and uses the first.
    pub schemes: Vec<String>,
    /// The credentials for the scheme.
    pub credentials: Option<String>,
}

/// A webhook with its task.
pub(super) struct TaskPushNotificationConfig {
    pub(super) task_id: Option<String>,
    pub(super) config: PushConfig,
}

/// A push configuration of any version, by itself or around another.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PushIn {
    id: LenientString,
    task_id: LenientString,
    url: LenientString,
    token: LenientString,
    authentication: LenientObject<AuthenticationIn>,
    push_notification_config: LenientObject<Box<PushIn>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthenticationIn {
    scheme: LenientString,
    schemes: LenientList<LenientString>,
    credentials: LenientString,
}

impl PushIn {
    /// Returns the webhook; nothing if it has no URL.
    pub(super) fn config(self) -> Option<PushConfig> {
        Some(PushConfig {
            id: self.id.filled(),
            url: self.url.filled()?,
            token: self.token.filled(),
            authentication: self.authentication.0.map(|given| PushAuthentication {
                schemes: given
                    .schemes
                    .items()
                    .chain([given.scheme])
                    .filter_map(LenientString::filled)
                    .collect(),
                credentials: given.credentials.filled(),
            }),
        })
    }

    /// Returns the webhook and its task; nothing if it contains no webhook.
    pub(super) fn registered(mut self) -> Option<TaskPushNotificationConfig> {
        let Some(inner) = self.push_notification_config.0.take() else {
            let task_id = std::mem::take(&mut self.task_id).filled();
            return Some(TaskPushNotificationConfig { task_id, config: self.config()? });
        };
        Some(TaskPushNotificationConfig {
            task_id: self.task_id.filled().or(self.id.filled()),
            config: inner.config()?,
        })
    }
}

/// A webhook as part of another object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication: Option<AuthenticationOut<'a>>,
}

#[derive(Serialize)]
struct AuthenticationOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schemes: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<&'a str>,
}

impl<'a> PushOut<'a> {
    pub(super) fn new(config: &'a PushConfig, dialect: Dialect) -> Self {
        let authentication = |given: &'a PushAuthentication| AuthenticationOut {
            scheme: given.schemes.first().map(String::as_str).filter(|_| dialect == Dialect::V1),
            schemes: (dialect != Dialect::V1).then_some(given.schemes.as_slice()),
            credentials: given.credentials.as_deref(),
        };
        Self {
            tenant: None,
            task_id: None,
            id: config.id.as_deref().filter(|_| dialect != Dialect::V0_1),
            url: &config.url,
            token: config.token.as_deref(),
            authentication: config.authentication.as_ref().map(authentication),
        }
    }
}

/// A webhook with its task: as a wrapper in older versions, as a member in 1.0.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum RegisteredOut<'a> {
    Flat(PushOut<'a>),
    #[serde(rename_all = "camelCase")]
    Around {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<&'a str>,
        push_notification_config: PushOut<'a>,
    },
}

impl<'a> RegisteredOut<'a> {
    pub(super) fn new(
        task_id: Option<&'a str>,
        config: &'a PushConfig,
        tenant: Option<&'a str>,
        dialect: Dialect,
    ) -> Self {
        let push = PushOut::new(config, dialect);
        match dialect {
            Dialect::V0_1 => Self::Around { id: task_id, task_id: None, push_notification_config: push },
            Dialect::V0_3 => Self::Around { id: None, task_id, push_notification_config: push },
            Dialect::V1 => Self::Flat(PushOut { tenant, task_id, ..push }),
        }
    }
}
