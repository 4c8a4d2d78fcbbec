//! Encodes a client's request for the agent.
//!
//! 0.2 and 0.3 cannot express "no history": there one message is requested, and dropped from the
//! response (see `encode_response`). Requests are decoded in `decode_request`.

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::dialect::Dialect;
use super::super::encode::MessageOut;
use super::super::v0_1::HISTORY;
use super::decode_request::{ClientRequest, RequestParams, SendMessageRequest};
use super::operation::Operation;
use super::push_config::{PushOut, RegisteredOut};

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ParamsOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<ConfigurationOut<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification: Option<PushOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationOut<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    blocking: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_immediately: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config: Option<PushOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_push_notification_config: Option<PushOut<'a>>,
}

impl ConfigurationOut<'_> {
    fn is_empty(&self) -> bool {
        self.accepted_output_modes.is_empty()
            && self.blocking.is_none()
            && self.return_immediately.is_none()
            && self.history_length.is_none()
            && self.push_notification_config.is_none()
            && self.task_push_notification_config.is_none()
    }
}

impl ClientRequest {
    /// Encodes the parameters in the agent's version. The tenant is the agent's; only 1.0 has one.
    pub fn write(&self, to: Dialect, tenant: Option<&str>) -> Vec<u8> {
        let tenant = tenant.filter(|tenant| !tenant.is_empty() && to == Dialect::V1);
        let written = match &self.asked {
            RequestParams::Say(said) => serde_json::to_vec(&self.send_message(said, to, tenant)),
            RequestParams::Task(task_id) => serde_json::to_vec(&self.task_params(task_id, to, tenant)),
            RequestParams::SetPush { task_id, config } => {
                serde_json::to_vec(&RegisteredOut::new(Some(task_id), config, tenant, to))
            }
            RequestParams::Push { task_id, config_id } => {
                let (task_id, config_id) = (Some(task_id.as_str()), config_id.as_deref());
                serde_json::to_vec(&match to {
                    Dialect::V0_1 => ParamsOut { id: task_id, ..ParamsOut::default() },
                    Dialect::V0_3 => {
                        let push_notification_config_id = config_id;
                        ParamsOut { id: task_id, push_notification_config_id, ..ParamsOut::default() }
                    }
                    Dialect::V1 => ParamsOut { tenant, task_id, id: config_id, ..ParamsOut::default() },
                })
            }
            RequestParams::Nothing => serde_json::to_vec(&ParamsOut { tenant, ..ParamsOut::default() }),
        };
        // Writing to memory does not fail, and neither does text or JSON that was read before.
        written.unwrap_or_default()
    }

    fn history_length(&self, to: Dialect) -> Option<u32> {
        match (to, self.history) {
            (Dialect::V0_1, None) => Some(HISTORY.into()),
            (Dialect::V0_1, Some(0)) | (Dialect::V0_3 | Dialect::V1, None) => None,
            (Dialect::V0_3, Some(0)) => Some(1),
            (_, Some(length)) => Some(length),
        }
    }

    fn task_params<'a>(&'a self, task_id: &'a str, to: Dialect, tenant: Option<&'a str>) -> ParamsOut<'a> {
        // A server of 1.0 rejects unknown members: only a cancellation has metadata there.
        let described = to != Dialect::V1 || self.operation == Operation::Cancel;
        ParamsOut {
            tenant,
            id: Some(task_id),
            history_length: self.history_length(to).filter(|_| self.operation == Operation::Get),
            metadata: self.metadata.as_deref().filter(|_| described),
            ..ParamsOut::default()
        }
    }

    fn send_message<'a>(
        &'a self,
        said: &'a SendMessageRequest,
        to: Dialect,
        tenant: Option<&'a str>,
    ) -> ParamsOut<'a> {
        let mut params = ParamsOut {
            tenant,
            message: Some(MessageOut::for_sending(&said.message, to)),
            metadata: self.metadata.as_deref(),
            ..ParamsOut::default()
        };
        let history_length = self.history_length(to);
        let push = said.push.as_ref().map(|push| PushOut::new(push, to));
        let common = ConfigurationOut {
            accepted_output_modes: &said.modes,
            history_length,
            ..ConfigurationOut::default()
        };
        let configuration = match to {
            Dialect::V0_1 => {
                params.id = said.message.task_id.as_deref();
                params.session_id = said.message.context_id.as_deref();
                params.accepted_output_modes = &said.modes;
                params.history_length = history_length;
                params.push_notification = push;
                return params;
            }
            Dialect::V0_3 => {
                let blocking = (self.operation == Operation::Send).then_some(!said.at_once);
                ConfigurationOut { blocking, push_notification_config: push, ..common }
            }
            Dialect::V1 => {
                let return_immediately = said.at_once.then_some(true);
                ConfigurationOut { return_immediately, task_push_notification_config: push, ..common }
            }
        };
        params.configuration = (!configuration.is_empty()).then_some(configuration);
        params
    }
}
