//! Push notifications of every version: webhooks, their registration, and the pushes that arrive.
//!
//! A push is a hint to call `GetTask`, which returns the actual state. So of its body only the task
//! id is read, and a push that is repeated, late or forged costs one request and changes nothing.
//! Two kinds of webhooks exist: those of the gateway, and those that clients register and agents
//! return.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::dialect::Dialect;
use super::lenient::{LenientList, LenientObject, LenientString, MAX_DEPTH, depth_within};
use super::proto_json::task_of_push;

/// Maximum size of a push, in bytes.
pub(crate) const MAX_PUSH_BYTES: usize = 4 * 1024 * 1024;
/// The header in which agents send the token of the registration.
pub const PUSH_TOKEN: &str = "x-a2a-notification-token";

/// The authentication scheme of the gateway's webhooks.
const BEARER: &str = "Bearer";
/// Maximum length of a validation token that is echoed, in characters.
const MAX_ECHO: usize = 512;

/// The webhook to which an agent sends events of a task. Not printable: it contains secrets.
#[derive(Clone, Copy)]
pub struct PushNotificationConfig<'a> {
    /// The name of this registration, unique within the task.
    pub id: &'a str,
    /// The URL, which is unguessable.
    pub url: &'a str,
    /// The credential of the agent: printable, and a secret. It is sent both as the token and as
    /// the credentials of a `Bearer`, because some agents use only one of them.
    pub token: &'a str,
}

/// Returns true if a push proves that it comes from the agent that received this token.
///
/// For requests to the URL of the task only: the URL is the first proof, the token the second. The
/// comparison takes a time that does not reveal how much of the token is right.
///
/// A signed JWT (as the samples of 0.1 send, RS256 over a digest of the body) is accepted,
/// unverified, in place of the token. Its key would come from a place that the agent names, so it
/// proves no more than the URL does; and the body is not trusted, so there is nothing for a
/// signature to protect. A JWT beside a wrong token does not help.
pub fn accepts(headers: &HeaderMap, token: &str) -> bool {
    is_proven(headers, token, true)
}

/// Checks the token alone, without a JWT in its place: for pushes with a trusted body.
pub(crate) fn matches_token(headers: &HeaderMap, token: &str) -> bool {
    is_proven(headers, token, false)
}

fn is_proven(headers: &HeaderMap, token: &str, takes_jwt: bool) -> bool {
    if token.is_empty() {
        return false;
    }
    let mut tokens = headers.get_all(PUSH_TOKEN).iter().peekable();
    if tokens.peek().is_some() {
        return tokens.all(|given| same(given.as_bytes(), token));
    }
    let mut authorizations = headers.get_all(AUTHORIZATION).iter();
    let (Some(given), None) = (authorizations.next(), authorizations.next()) else { return false };
    given.to_str().ok().and_then(|given| given.trim().split_once(' ')).is_some_and(|(scheme, credentials)| {
        let credentials = credentials.trim_start();
        let is_signed = scheme.eq_ignore_ascii_case("bearer") && is_jwt(credentials);
        same(credentials.as_bytes(), token) || (takes_jwt && is_signed)
    })
}

/// Compares digests: the position of their first difference reveals nothing about the texts.
fn same(given: &[u8], expected: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(expected)
}

fn is_jwt(text: &str) -> bool {
    let base64url = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // Every JWT begins with a JSON object, and `{"` is `eyJ`.
    text.starts_with("eyJ") && text.split('.').count() == 3 && text.split('.').all(base64url)
}

/// Returns the id of the task of a push in any version: a task, an event, or one of them in a
/// wrapper.
///
/// `None` if it has none, is no JSON, or is larger than `MAX_PUSH_BYTES`. The id is not verified:
/// compare it with the task that the URL belongs to.
pub fn push_task_id(body: &[u8]) -> Option<String> {
    if body.len() > MAX_PUSH_BYTES || !depth_within(body, MAX_DEPTH) {
        return None;
    }
    let LenientObject(said) = serde_json::from_slice::<LenientObject<Box<PushBody>>>(body).ok()?;
    let mut said = said?;
    // Some agents send a whole JSON-RPC message; its own id is not a task's.
    let inner = said.result.0.take().or_else(|| said.params.0.take());
    inner.unwrap_or(said).about()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PushBody {
    result: LenientObject<Box<PushBody>>,
    params: LenientObject<Box<PushBody>>,
    task: LenientObject<TaskIdOnly>,
    status_update: LenientObject<TaskIdOnly>,
    artifact_update: LenientObject<TaskIdOnly>,
    message: LenientObject<TaskIdOnly>,
    kind: LenientString,
    id: LenientString,
    task_id: LenientString,
    status: Option<IgnoredAny>,
    artifact: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskIdOnly {
    id: LenientString,
    task_id: LenientString,
}

impl PushBody {
    fn about(self) -> Option<String> {
        if let Some(task) = self.task.0 {
            return task.id.filled();
        }
        if let Some(event) = self.status_update.0.or(self.artifact_update.0).or(self.message.0) {
            return event.task_id.filled();
        }
        // A task, or an event of 0.1; ids of other objects are not task ids.
        let of_task =
            self.status.is_some() || self.artifact.is_some() || self.kind.0.as_deref() == Some("task");
        self.task_id.filled().or_else(|| self.id.filled().filter(|_| of_task))
    }
}

/// Returns the response to an agent of 0.1 that verifies the URL with `GET`: the validation token
/// of the query.
///
/// To be sent as `text/plain`. `None` if there is none, or if it has other characters than a token:
/// text that a browser could read as a page is not echoed.
pub fn validation_echo(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("validationToken="))?;
    if value.len() > 3 * MAX_ECHO {
        return None;
    }
    let echo = percent_decode_str(value).decode_utf8().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=:".contains(&b);
    ((1..=MAX_ECHO).contains(&echo.len()) && echo.bytes().all(plain)).then(|| echo.into_owned())
}

/// The webhook for events of a task. Not printable: it contains secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PushConfig {
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
pub(crate) struct PushAuthentication {
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
    /// The resource name, in HTTP+JSON of 0.3.
    name: LenientString,
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

    /// Returns the agent's id of the webhook, if it names one. In 0.1 its `id` is that of the task.
    pub(super) fn webhook_id(self, dialect: Dialect) -> Option<String> {
        let nested = self.push_notification_config.0.and_then(|config| config.id.filled());
        match dialect {
            Dialect::V0_1 => nested,
            Dialect::V0_3 | Dialect::V1 => nested.or(self.id.filled()),
        }
    }

    /// Returns the webhook and its task; nothing if it contains no webhook.
    pub(super) fn registered(mut self) -> Option<TaskPushNotificationConfig> {
        let Some(inner) = self.push_notification_config.0.take() else {
            let task_id = std::mem::take(&mut self.task_id).filled();
            return Some(TaskPushNotificationConfig { task_id, config: self.config()? });
        };
        Some(TaskPushNotificationConfig {
            task_id: self
                .task_id
                .filled()
                .or(self.id.filled())
                .or_else(|| task_of_push(&self.name.0?).map(str::to_owned)),
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
    schemes: Option<SchemesOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<&'a str>,
}

impl<'a> PushOut<'a> {
    /// Encodes a client's webhook.
    pub(super) fn new(config: &'a PushConfig, dialect: Dialect) -> Self {
        let authentication = |given: &'a PushAuthentication| {
            let credentials = given.credentials.as_deref();
            AuthenticationOut::new(SchemesOut::Given(&given.schemes), credentials, dialect)
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

    /// Returns the webhook under this id.
    pub(super) fn with_id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Encodes a webhook of the gateway. 0.1 has one webhook per task, and so no id to distinguish
    /// two.
    pub(super) fn of_gateway(webhook: &PushNotificationConfig<'a>, dialect: Dialect) -> Self {
        let PushNotificationConfig { id, url, token } = *webhook;
        Self {
            tenant: None,
            task_id: None,
            id: Some(id).filter(|_| dialect != Dialect::V0_1),
            url,
            token: Some(token),
            authentication: Some(AuthenticationOut::new(SchemesOut::Bearer, Some(token), dialect)),
        }
    }
}

impl<'a> AuthenticationOut<'a> {
    /// Encodes the schemes: 1.0 has one, and uses the first.
    fn new(schemes: SchemesOut<'a>, credentials: Option<&'a str>, dialect: Dialect) -> Self {
        match dialect {
            Dialect::V0_1 | Dialect::V0_3 => Self { scheme: None, schemes: Some(schemes), credentials },
            Dialect::V1 => Self { scheme: schemes.first(), schemes: None, credentials },
        }
    }
}

/// The schemes to choose from.
#[derive(Clone, Copy)]
enum SchemesOut<'a> {
    /// The scheme of the gateway's webhooks.
    Bearer,
    /// The schemes that a client registered.
    Given(&'a [String]),
}

impl<'a> SchemesOut<'a> {
    fn first(self) -> Option<&'a str> {
        match self {
            Self::Bearer => Some(BEARER),
            Self::Given(schemes) => schemes.first().map(String::as_str),
        }
    }
}

impl Serialize for SchemesOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bearer => [BEARER].serialize(serializer),
            Self::Given(schemes) => schemes.serialize(serializer),
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
        push: PushOut<'a>,
        tenant: Option<&'a str>,
        dialect: Dialect,
    ) -> Self {
        match dialect {
            Dialect::V0_1 => Self::Around { id: task_id, task_id: None, push_notification_config: push },
            Dialect::V0_3 => Self::Around { id: None, task_id, push_notification_config: push },
            Dialect::V1 => Self::Flat(PushOut { tenant, task_id, ..push }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpYXQiOjF9.c2ln";

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given.iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(*name, value.parse().unwrap());
            headers
        })
    }

    #[test]
    fn one_right_proof_is_needed_and_a_wrong_token_is_never_made_good() {
        let bearer_jwt = format!("Bearer {JWT}");
        for (given, accepted) in [
            (&[][..], false),
            (&[("x-a2a-notification-token", "secret")], true),
            (&[("X-A2A-Notification-Token", "secret"), ("authorization", "Bearer other")], true),
            (&[("x-a2a-notification-token", "secre")], false),
            (&[("x-a2a-notification-token", "secret2")], false),
            (&[("x-a2a-notification-token", "")], false),
            (&[("x-a2a-notification-token", "other"), ("authorization", "Bearer secret")], false),
            (&[("x-a2a-notification-token", "other"), ("authorization", &bearer_jwt)], false),
            (&[("x-a2a-notification-token", "secret"), ("x-a2a-notification-token", "other")], false),
            (&[("authorization", "Bearer secret")], true),
            (&[("authorization", "bearer  secret")], true),
            (&[("authorization", "ApiKey secret")], true),
            (&[("authorization", "secret")], false),
            (&[("authorization", "Bearer other")], false),
            (&[("authorization", "Bearer secret"), ("authorization", "Bearer secret")], false),
            (&[("authorization", &bearer_jwt)], true),
            (&[("authorization", &format!("Basic {JWT}"))], false),
            (&[("authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpYXQiOjF9.")], false),
            (&[("authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpYXQiOjF9")], false),
            (&[("authorization", "Bearer a.b.c")], false),
        ] {
            assert_eq!(accepts(&headers(given), "secret"), accepted, "{given:?}");
        }
        assert!(!accepts(&headers(&[("x-a2a-notification-token", "")]), ""), "no token is not a token");
        assert!(
            !matches_token(&headers(&[("authorization", &bearer_jwt)]), "secret"),
            "not where the body counts"
        );
        assert!(matches_token(&headers(&[("authorization", "Bearer secret")]), "secret"));
    }

    #[test]
    fn a_push_of_every_version_names_its_task() {
        for (body, task) in [
            (r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}"#, Some("t")),
            (r#"{"id":"t","sessionId":"s","status":{"state":"completed"},"artifacts":[{}]}"#, Some("t")),
            (r#"{"id":"t","status":{"state":"working"},"final":false}"#, Some("t")),
            (r#"{"id":"t","artifact":{"parts":[],"index":0}}"#, Some("t")),
            (r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#, Some("t")),
            (r#"{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}"#, Some("t")),
            (r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{}}}"#, Some("t")),
            (r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a"}}}"#, Some("t")),
            (r#"{"message":{"messageId":"m","taskId":"t","parts":[{"text":"x"}]}}"#, Some("t")),
            (r#"{"kind":"status-update","taskId":"t","status":{},"final":true}"#, Some("t")),
            (r#"{"kind":"artifact-update","taskId":"t","artifact":{}}"#, Some("t")),
            (r#"{"kind":"message","messageId":"m","taskId":"t","parts":[]}"#, Some("t")),
            (r#"{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","status":{}}}"#, Some("t")),
            (r#"{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t"}}}"#, Some("t")),
            (r#"{"jsonrpc":"2.0","method":"x","id":"1","params":{"id":"t","status":{}}}"#, Some("t")),
            (r#"{"message":{"messageId":"m","parts":[]}}"#, None),
            (r#"{"id":"1","jsonrpc":"2.0","method":"x"}"#, None),
            (r#"{"id":"not a task's"}"#, None),
            (r#"{"task":{"id":""}}"#, None),
            (r#"{"task":{"id":7}}"#, None),
            (r#"{"kind":"task","id":null}"#, None),
            ("[]", None),
            ("\"t\"", None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(push_task_id(body.as_bytes()).as_deref(), task, "{body}");
        }
    }

    #[test]
    fn a_push_is_bounded() {
        let deep = format!(r#"{{"id":"t","status":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(push_task_id(deep.as_bytes()), None);
        let sized = |bytes: usize| {
            let body = r#"{"id":"t","status":""}"#;
            body.replace(r#""""#, &format!("{:?}", "x".repeat(bytes - body.len())))
        };
        assert!(push_task_id(sized(MAX_PUSH_BYTES).as_bytes()).is_some());
        assert_eq!(push_task_id(sized(MAX_PUSH_BYTES + 1).as_bytes()), None);
    }

    #[test]
    fn only_a_plain_token_is_echoed() {
        let longest = "x".repeat(MAX_ECHO);
        for (query, echo) in [
            ("validationToken=3f2a-b_c.d~1", Some("3f2a-b_c.d~1")),
            ("a=b&validationToken=x%2F%2b%3D%3d", Some("x/+==")),
            (&format!("validationToken={longest}"), Some(longest.as_str())),
            (&format!("validationToken={longest}x"), None),
            (&format!("validationToken={}", "%41".repeat(MAX_ECHO + 1)), None),
            ("", None),
            ("validationToken", None),
            ("validationToken=", None),
            ("xvalidationToken=a", None),
            ("validationToken=%3Cscript%3E", None),
            ("validationToken=<b>", None),
            ("validationToken=a%0d%0ab", None),
            ("validationToken=%C3%A9", None),
            ("validationToken=%4", None),
            ("validationToken=%+4", None),
            ("validationToken=%zz", None),
            ("validationToken=%é", None),
        ] {
            assert_eq!(validation_echo(query).as_deref(), echo, "{query}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>, query in "(validationToken=)?[%a-f0-9é&]{0,20}", token: String) {
            push_task_id(&body);
            validation_echo(&query);
            let (tail, header) = (token.clone() + "x", http::HeaderValue::from_str(&token));
            if let Ok(header) = header {
                let given = HeaderMap::from_iter([(http::HeaderName::from_static(PUSH_TOKEN), header)]);
                prop_assert_eq!(accepts(&given, &token), !token.is_empty());
                prop_assert!(!accepts(&given, &tail));
            }
        }
    }
}
