//! The dialects of A2A: requests to an agent in each, and decoding of its responses.
//!
//! One request per HTTP exchange, so every request has the id 1 and the id of a response is
//! ignored. The dialect of an agent is determined in `card` and `probe`.

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::error::AgentError;
use super::lenient::{LenientObject, LenientString};
use super::model::{Message, PartBody, StreamResponse, Task};
use super::push::PushNotificationConfig;
use super::{decode, v0_1, v0_3, v1};

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const OLD_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

/// Maximum length of an extension URI in a request to an agent, in bytes.
const MAX_EXTENSION: usize = 512;
/// Maximum number of extensions named in one request.
const MAX_EXTENSIONS: usize = 32;

/// A group of A2A versions with one wire format: the versions within one differ too little to
/// matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A2A 0.1: `tasks/send`.
    V0_1,
    /// A2A 0.2 and 0.3: `message/send`.
    V0_3,
    /// A2A 1.0: `SendMessage`.
    V1,
}

/// The content of a send.
#[derive(Debug, Clone, Copy)]
pub struct OperationRequest<'a> {
    /// The message. Its `message_id` should be set: every version but 0.1 requires one, and it is
    /// sent empty otherwise. If [`Dialect::client_generates_task_ids`], its `task_id` and
    /// `context_id` should be set too.
    pub message: &'a Message,
    /// Media types of the output that the client accepts; empty leaves the choice to the agent.
    pub accepted_output_modes: &'a [String],
    /// Tenant of the chosen interface (A2A 1.0); not sent to older agents.
    pub tenant: Option<&'a str>,
}

impl Dialect {
    /// Returns the version for people, and for `A2A-Version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1",
            Self::V0_3 => "0.3",
            Self::V1 => "1.0",
        }
    }

    /// Returns true if the client, not the agent, generates the ids of a new task and of its
    /// conversation. They must be unguessable: a message with the id of a task continues it.
    pub fn client_generates_task_ids(self) -> bool {
        match self {
            Self::V0_1 => true,
            Self::V0_3 | Self::V1 => false,
        }
    }

    /// Returns the header that names extensions; 0.1 has none, and its servers know that of 0.3.
    pub fn extensions_header(self) -> HeaderName {
        match self {
            Self::V0_1 | Self::V0_3 => OLD_EXTENSIONS,
            Self::V1 => EXTENSIONS,
        }
    }

    /// Encodes the request that sends a message, and waits for the task to end or to ask; as a
    /// stream if `streaming`.
    pub fn send(self, ask: &OperationRequest<'_>, streaming: bool) -> Vec<u8> {
        let room = capacity_hint(ask);
        match (self, streaming) {
            (Self::V0_1, false) => call("tasks/send", &v0_1::SendParams(ask), room),
            (Self::V0_1, true) => call("tasks/sendSubscribe", &v0_1::SendParams(ask), room),
            (Self::V0_3, false) => call("message/send", &v0_3::SendParams(ask), room),
            (Self::V0_3, true) => call("message/stream", &v0_3::SendParams(ask), room),
            (Self::V1, false) => call("SendMessage", &v1::SendParams(ask), room),
            (Self::V1, true) => call("SendStreamingMessage", &v1::SendParams(ask), room),
        }
    }

    /// Encodes the request for the current state of a task.
    pub fn get_task(self, task_id: &str, tenant: Option<&str>) -> Vec<u8> {
        match self {
            Self::V0_1 => {
                let params = TaskParams { history_length: Some(v0_1::HISTORY), ..TaskParams::new(task_id) };
                call("tasks/get", &params, 128 + task_id.len())
            }
            Self::V0_3 => task_params("tasks/get", task_id, None),
            Self::V1 => task_params("GetTask", task_id, tenant),
        }
    }

    /// Encodes the request to cancel a task.
    pub fn cancel_task(self, task_id: &str, tenant: Option<&str>) -> Vec<u8> {
        match self {
            Self::V0_1 | Self::V0_3 => task_params("tasks/cancel", task_id, None),
            Self::V1 => task_params("CancelTask", task_id, tenant),
        }
    }

    /// Encodes the request to attach to a task's stream again; none where that is not safe.
    pub fn subscribe(self, task_id: &str, tenant: Option<&str>) -> Option<Vec<u8>> {
        match self {
            // Resubscription makes the Python SDK 0.3 store every event once per listener: the task
            // is corrupted. Servers of 0.1 have no resubscription, or one like that.
            Self::V0_1 | Self::V0_3 => None,
            Self::V1 => Some(task_params("SubscribeToTask", task_id, tenant)),
        }
    }

    /// Encodes the request to send push notifications about a task to this webhook.
    pub fn set_push(
        self,
        task_id: &str,
        webhook: &PushNotificationConfig<'_>,
        tenant: Option<&str>,
    ) -> Vec<u8> {
        let room = 256 + task_id.len() + webhook.url.len() + 2 * webhook.token.len();
        match self {
            Self::V0_1 => {
                call("tasks/pushNotification/set", &v0_1::SetPushParams::new(task_id, webhook), room)
            }
            Self::V0_3 => {
                call("tasks/pushNotificationConfig/set", &v0_3::SetPushParams::new(task_id, webhook), room)
            }
            Self::V1 => {
                let params = v1::SetPushParams::new(task_id, webhook, tenant);
                call("CreateTaskPushNotificationConfig", &params, room)
            }
        }
    }

    /// Returns the headers of every request, with these extensions. Text that is no URI of an
    /// extension is skipped.
    pub fn headers(self, extensions: &[String]) -> Vec<(HeaderName, HeaderValue)> {
        let extensions = extension_list(extensions);
        let mut headers = Vec::with_capacity(2);
        match self {
            Self::V0_1 => return headers,
            // No version: 0.3 servers ignore it, and some that support both route by it.
            Self::V0_3 => headers.extend(extensions.clone().map(|list| (OLD_EXTENSIONS, list))),
            Self::V1 => headers.push((VERSION, HeaderValue::from_static("1.0"))),
        }
        headers.extend(extensions.map(|list| (EXTENSIONS, list)));
        headers
    }

    /// Decodes one JSON-RPC response object: the data of a stream's event, or the response to a
    /// send.
    ///
    /// A response without a result, or with one of an unknown kind, is [`StreamResponse::Unknown`].
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the bytes are not such an object.
    pub fn event(self, json: &[u8]) -> Result<StreamResponse, AgentError> {
        decode::result(json, self)?.map_or(Ok(StreamResponse::Unknown), |body| body.event())
    }

    /// Decodes the response to [`Dialect::set_push`]: the agent's id of the webhook, if it returns
    /// one.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the registration or did not respond.
    pub fn webhook_id(self, json: &[u8]) -> Result<Option<String>, AgentError> {
        decode::result(json, self)?;
        let LenientObject(answer) = serde_json::from_slice::<LenientObject<PushAnswer>>(json)
            .map_err(|error| AgentError::invalid_response(&format!("not JSON: {error}")))?;
        let result = answer.and_then(|answer| answer.result.0).unwrap_or_default();
        let nested = result.push_notification_config.0.and_then(|config| config.id.filled());
        Ok(match self {
            // In 0.1 it is the id of the task.
            Self::V0_1 => nested,
            Self::V0_3 | Self::V1 => nested.or_else(|| result.id.filled()),
        })
    }

    /// Decodes the response to a request for a task, or to its cancellation.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the response contains no task.
    pub fn task(self, json: &[u8]) -> Result<Task, AgentError> {
        self.event(json).and_then(StreamResponse::into_task)
    }
}

#[derive(Deserialize)]
struct PushAnswer {
    #[serde(default)]
    result: LenientObject<PushResult>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PushResult {
    id: LenientString,
    /// Before 1.0.
    push_notification_config: LenientObject<PushNamed>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PushNamed {
    id: LenientString,
}

#[derive(Serialize)]
struct EncodedCall<'a, P> {
    jsonrpc: &'static str,
    id: u8,
    method: &'static str,
    params: &'a P,
}

#[derive(Serialize)]
struct TaskParams<'a> {
    id: &'a str,
    #[serde(rename = "historyLength", skip_serializing_if = "Option::is_none")]
    history_length: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
}

impl<'a> TaskParams<'a> {
    fn new(id: &'a str) -> Self {
        Self { id, history_length: None, tenant: None }
    }
}

fn task_params(method: &'static str, id: &str, tenant: Option<&str>) -> Vec<u8> {
    let params = TaskParams { tenant: tenant.filter(|tenant| !tenant.is_empty()), ..TaskParams::new(id) };
    call(method, &params, 128 + id.len())
}

fn call<P: Serialize>(method: &'static str, params: &P, room: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(room);
    let call = EncodedCall { jsonrpc: "2.0", id: 1, method, params };
    // Writing to memory does not fail, and neither does text or JSON that was read before.
    match serde_json::to_writer(&mut body, &call) {
        Ok(()) => body,
        Err(_) => Vec::new(),
    }
}

/// Returns the approximate size of the request, so that it is encoded without reallocation.
fn capacity_hint(ask: &OperationRequest<'_>) -> usize {
    let parts = ask.message.parts.iter().map(|part| {
        128 + match &part.body {
            PartBody::Text(text) => text.len() + text.len() / 8,
            PartBody::Raw(text) | PartBody::Url(text) => text.len(),
            PartBody::Data(json) | PartBody::Unknown(json) => json.get().len(),
        }
    });
    512 + parts.sum::<usize>()
}

fn extension_list(extensions: &[String]) -> Option<HeaderValue> {
    let nameable = |uri: &&String| {
        (1..=MAX_EXTENSION).contains(&uri.len())
            && uri.bytes().all(|b| b.is_ascii_graphic() && b != b',' && b != b'"')
    };
    let named: Vec<&str> =
        extensions.iter().filter(nameable).map(String::as_str).take(MAX_EXTENSIONS).collect();
    if named.is_empty() {
        return None;
    }
    HeaderValue::from_str(&named.join(", ")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_about_a_task_name_it_and_its_tenant() {
        use Dialect::{V0_1, V0_3, V1};
        let subscribe = |dialect: Dialect, tenant| dialect.subscribe("t\"1", tenant).unwrap_or_default();
        for (body, expected) in [
            (
                V0_1.get_task("t\"1", Some("acme")),
                r#""method":"tasks/get","params":{"id":"t\"1","historyLength":10}}"#,
            ),
            (V0_1.cancel_task("t\"1", None), r#""method":"tasks/cancel","params":{"id":"t\"1"}}"#),
            (V0_3.get_task("t\"1", Some("acme")), r#""method":"tasks/get","params":{"id":"t\"1"}}"#),
            (V0_3.cancel_task("t\"1", None), r#""method":"tasks/cancel","params":{"id":"t\"1"}}"#),
            (
                V1.get_task("t\"1", Some("acme")),
                r#""method":"GetTask","params":{"id":"t\"1","tenant":"acme"}}"#,
            ),
            (V1.cancel_task("t\"1", Some("")), r#""method":"CancelTask","params":{"id":"t\"1"}}"#),
            (subscribe(V1, None), r#""method":"SubscribeToTask","params":{"id":"t\"1"}}"#),
        ] {
            assert_eq!(String::from_utf8(body).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":1,{expected}"#));
        }
        assert_eq!((V0_1.subscribe("t", None), V0_3.subscribe("t", None)), (None, None));
    }

    #[test]
    fn a_webhook_is_registered_and_taken_back_in_the_words_of_the_dialect() {
        use Dialect::{V0_1, V0_3, V1};
        let hook = PushNotificationConfig { id: "w", url: "https://gw/push/x", token: "s\"" };
        for (body, expected) in [
            (
                V0_1.set_push("t", &hook, Some("acme")),
                r#""method":"tasks/pushNotification/set","params":{"id":"t","pushNotificationConfig":{"url":"https://gw/push/x","token":"s\"","authentication":{"schemes":["Bearer"],"credentials":"s\""}}}}"#,
            ),
            (
                V0_3.set_push("t", &hook, Some("acme")),
                r#""method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"id":"w","url":"https://gw/push/x","token":"s\"","authentication":{"schemes":["Bearer"],"credentials":"s\""}}}}"#,
            ),
            (
                V1.set_push("t", &hook, Some("acme")),
                r#""method":"CreateTaskPushNotificationConfig","params":{"tenant":"acme","taskId":"t","id":"w","url":"https://gw/push/x","token":"s\"","authentication":{"scheme":"Bearer","credentials":"s\""}}}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(body).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":1,{expected}"#));
        }
    }

    #[test]
    fn the_answer_to_a_registration_says_its_id_or_why_there_is_none() {
        use super::super::ErrorKind;
        for (answer, id) in [
            (r#"{"result":{"taskId":"t","pushNotificationConfig":{"id":"w","url":"u"}}}"#, Some("w")),
            (r#"{"result":{"taskId":"t","id":"w","url":"u","tenant":""}}"#, Some("w")),
            (r#"{"result":{"taskId":"t","pushNotificationConfig":{"url":"u"}}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1}"#, None),
            (r#"{"jsonrpc":"2.0","result":null}"#, None),
        ] {
            for dialect in [Dialect::V0_3, Dialect::V1] {
                assert_eq!(dialect.webhook_id(answer.as_bytes()).unwrap().as_deref(), id, "{answer}");
            }
        }
        let answer = br#"{"result":{"id":"t","pushNotificationConfig":{"url":"u"}}}"#;
        assert_eq!(Dialect::V0_1.webhook_id(answer), Ok(None), "there the id is the task's");
        let error = Dialect::V1.webhook_id(br#"{"error":{"code":-32003,"message":"no"}}"#).unwrap_err();
        assert!(matches!(error, AgentError::Refused { kind: ErrorKind::PushNotSupported, .. }), "{error:?}");
        assert!(matches!(Dialect::V1.webhook_id(b"<html>"), Err(AgentError::NotA2a(_))));
    }

    #[test]
    fn text_that_is_no_extension_never_reaches_a_header() {
        let bad = ["", "a b", "a,b", "a\r\nx: y", "é", "\"a\"", &"x".repeat(513)].map(str::to_owned);
        assert_eq!(Dialect::V0_1.headers(&["urn:a".to_owned()]), [], "it knows no extensions");
        assert_eq!(Dialect::V0_3.headers(&bad), []);
        assert_eq!(Dialect::V1.headers(&bad), [(VERSION, HeaderValue::from_static("1.0"))]);
        let many = vec!["urn:a".to_owned(); 100];
        let headers = Dialect::V1.headers(&many);
        assert_eq!(headers[1].1.to_str().unwrap().matches("urn:a").count(), MAX_EXTENSIONS);
    }

    #[test]
    fn depth_is_refused_before_anything_is_read() {
        let data = "[".repeat(100_000) + &"]".repeat(100_000);
        let answer = format!(r#"{{"result":{{"message":{{"parts":[{{"data":{data}}}]}}}}}}"#);
        for dialect in [Dialect::V0_1, Dialect::V0_3, Dialect::V1] {
            let error = dialect.event(answer.as_bytes()).unwrap_err();
            assert_eq!(error, AgentError::NotA2a("nested too deeply".to_owned()));
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_refused() {
        let error = Dialect::V1.event(b"{\"result\":{\"kind\":\"\xff\"}}").unwrap_err();
        assert_eq!(error, AgentError::NotA2a("not UTF-8".to_owned()));
    }
}
