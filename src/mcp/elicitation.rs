//! `elicitation/create`: questions to the client's user, and their answers.
//!
//! Follows `docs/spec/mcp.md` §2.10, §2.12, §2.13. One question travels as a request of the gateway
//! (legacy) or as an entry of `inputRequests` (modern). The form that fits a client comes from
//! `elicitation_schema`, the content of a question from `bridge::elicitation`.

use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::version::Version;
use crate::jsonrpc::{Object, write_notification};

const CREATE: &str = "elicitation/create";

/// One question to the user.
#[derive(Debug, Clone)]
pub enum ElicitRequest {
    /// A question that is answered in a form.
    Form {
        /// The question in words.
        message: String,
        /// The form, as `elicitation_schema::adapt` writes it for the revision.
        schema: Box<RawValue>,
    },
    /// A question that is settled at a web page; the answer only says if the user went there.
    Url {
        /// The subject in words.
        message: String,
        /// The page.
        url: String,
    },
}

/// Encodes the request that the gateway sends on a legacy stream, as JSON text. `id` also names the
/// elicitation, if it is one by URL; `related_task` is the core task that it belongs to.
pub fn create(id: &str, version: Version, ask: &ElicitRequest, related_task: Option<&str>) -> Vec<u8> {
    let params = ElicitParams { version, ask, id: Some(id), related_task };
    // Writing to memory does not fail, and neither does text or JSON that was read before.
    serde_json::to_vec(&InputRequest { jsonrpc: "2.0", id, method: CREATE, params }).unwrap_or_default()
}

/// Encodes questions as the value of `inputRequests`, each under its key; for modern clients only.
pub fn input_requests(asks: &[(String, ElicitRequest)]) -> Option<Box<RawValue>> {
    to_raw_value(&InputEntries(asks)).ok()
}

/// Encodes `notifications/elicitation/complete` as JSON text: the elicitation by URL is settled.
pub fn complete(elicitation_id: &str) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Complete<'a> {
        elicitation_id: &'a str,
    }
    write_notification("notifications/elicitation/complete", Some(&Complete { elicitation_id }))
}

#[derive(Serialize)]
struct InputRequest<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    method: &'static str,
    params: ElicitParams<'a>,
}

struct InputEntries<'a>(&'a [(String, ElicitRequest)]);

impl Serialize for InputEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            method: &'static str,
            params: ElicitParams<'a>,
        }
        serializer.collect_map(self.0.iter().map(|(key, ask)| {
            let params = ElicitParams { version: Version::V2026_07_28, ask, id: None, related_task: None };
            (key, Entry { method: CREATE, params })
        }))
    }
}

struct ElicitParams<'a> {
    version: Version,
    ask: &'a ElicitRequest,
    /// Id of an elicitation by URL, in the one revision that requires it.
    id: Option<&'a str>,
    related_task: Option<&'a str>,
}

impl Serialize for ElicitParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            mode: Option<&'static str>,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            requested_schema: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            url: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            elicitation_id: Option<&'a str>,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<ElicitMeta<'a>>,
        }
        let meta = self.related_task.map(|task_id| ElicitMeta { related: RelatedTask { task_id } });
        let modes = self.version >= Version::V2025_11_25;
        match self.ask {
            ElicitRequest::Form { message, schema } => Members {
                mode: modes.then_some("form"),
                message,
                requested_schema: Some(schema),
                url: None,
                elicitation_id: None,
                meta,
            },
            ElicitRequest::Url { message, url } => Members {
                mode: Some("url"),
                message,
                requested_schema: None,
                url: Some(url),
                elicitation_id: self.id,
                meta,
            },
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct ElicitMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/related-task")]
    related: RelatedTask<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RelatedTask<'a> {
    task_id: &'a str,
}

/// The user's reaction to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElicitAction {
    /// The user answered, or agreed to go to the page.
    Accept,
    /// The user declined.
    Decline,
    /// The user closed the question without an answer.
    Cancel,
}

/// The client's response to one question.
#[derive(Debug, Clone)]
pub struct ElicitResult {
    /// The user's reaction.
    pub action: ElicitAction,
    /// The filled-in form: an object, not validated yet.
    pub content: Option<Box<RawValue>>,
}

impl ElicitResult {
    /// Reads the result of a client's response, or a value of `inputResponses`; `None` if it has
    /// another shape.
    pub fn read(json: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire {
            action: ElicitAction,
            #[serde(default)]
            content: Option<Box<RawValue>>,
        }
        let Object(Wire { action, content }) = serde_json::from_str(json.get()).ok()?;
        match &content {
            Some(content) if !content.get().starts_with('{') => None,
            Some(_) | None => Some(Self { action, content }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    fn form() -> ElicitRequest {
        ElicitRequest::Form {
            message: "Which \"date\"?".into(),
            schema: raw(r#"{"type":"object","properties":{}}"#),
        }
    }

    fn url() -> ElicitRequest {
        ElicitRequest::Url { message: "Connect".into(), url: "https://a.test/".into() }
    }

    #[test]
    fn each_revision_gets_its_shape() {
        let schema = r#""message":"Which \"date\"?","requestedSchema":{"type":"object","properties":{}}"#;
        let page = r#""mode":"url","message":"Connect","url":"https://a.test/","elicitationId":"i""#;
        let task = r#","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"tk"}}"#;
        for (version, ask, related, params) in [
            (Version::V2025_06_18, form(), None, schema.to_owned()),
            (Version::V2025_11_25, form(), None, format!(r#""mode":"form",{schema}"#)),
            (Version::V2025_11_25, form(), Some("tk"), format!(r#""mode":"form",{schema}{task}"#)),
            (Version::V2025_11_25, url(), None, page.to_owned()),
        ] {
            let written = String::from_utf8(create("i", version, &ask, related)).unwrap();
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":"i","method":"elicitation/create","params":{{{params}}}}}"#
            );
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn modern_questions_are_entries_without_an_id() {
        let written = input_requests(&[("a".into(), form()), ("b".into(), url())]).unwrap();
        assert_eq!(
            written.get(),
            concat!(
                r#"{"a":{"method":"elicitation/create","params":{"mode":"form","message":"Which \"date\"?","#,
                r#""requestedSchema":{"type":"object","properties":{}}}},"#,
                r#""b":{"method":"elicitation/create","params":{"mode":"url","message":"Connect","url":"https://a.test/"}}}"#
            )
        );
    }

    #[test]
    fn a_settled_page_is_told() {
        assert_eq!(
            String::from_utf8(complete("e")).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#
        );
    }

    #[test]
    fn answers_are_read_and_nothing_else_is() {
        for (json, action, content) in [
            (r#"{"action":"accept","content":{"a":1}}"#, Some(ElicitAction::Accept), Some(r#"{"a":1}"#)),
            (r#"{"action":"accept","content":null,"_meta":{}}"#, Some(ElicitAction::Accept), None),
            (r#"{"action":"decline"}"#, Some(ElicitAction::Decline), None),
            (r#"{"action":"cancel"}"#, Some(ElicitAction::Cancel), None),
            (r#"{"action":"accept","content":[1]}"#, None, None),
            (r#"{"action":"maybe"}"#, None, None),
            (r#"{"content":{}}"#, None, None),
            ("null", None, None),
            (r#"["accept"]"#, None, None),
        ] {
            let answer = ElicitResult::read(&raw(json));
            assert_eq!(answer.as_ref().map(|answer| answer.action), action, "{json}");
            let found = answer.and_then(|answer| answer.content);
            assert_eq!(found.as_ref().map(|content| content.get()), content, "{json}");
        }
    }
}
