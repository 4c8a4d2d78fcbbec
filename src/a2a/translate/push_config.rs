//! Webhooks for push notifications, as clients register them and agents give them back.
//!
//! Not here: whether an address may be called; the gateway's own webhooks (see `push` one level up).

use serde::{Deserialize, Serialize};

use super::super::dialect::Dialect;
use super::super::lenient::{LenientList, LenientObject, LenientString};

/// Where news of a task is to be sent. Not to be printed: there are secrets in it.
#[derive(Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Its name within the task; 0.1 has none.
    pub id: Option<String>,
    /// The address.
    pub url: String,
    /// What comes with each push, so that the receiver knows it for genuine.
    pub token: Option<String>,
    /// How the sender is to prove itself.
    pub authentication: Option<PushAuthentication>,
}

/// How a sender of pushes proves itself. Not to be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PushAuthentication {
    /// The schemes to choose from; 1.0 has one, and takes the first.
    pub schemes: Vec<String>,
    /// What goes with the scheme.
    pub credentials: Option<String>,
}

/// A webhook with the task that it is for.
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
    /// The webhook; nothing, if it has no address.
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

    /// The webhook and its task; nothing, if there is no webhook in it.
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

/// A webhook, as it is part of something else.
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

/// A webhook with its task: around it in older versions, beside it in 1.0.
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
