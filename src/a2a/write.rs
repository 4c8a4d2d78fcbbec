//! Encodes tasks and messages as A2A 1.0, straight from the canonical model.
//!
//! Used to persist, show and send them: the output can be decoded again without loss. Requests to
//! agents are in `v1`, older versions in `v0_1` and `v0_3`.

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::value::RawValue;

use super::dialect::Dialect;
use super::encode::{HistoryOut, TaskOut};
use super::error::AgentError;
use super::model::{Part, PartBody, Task};

/// Encodes a task as A2A 1.0 JSON.
pub fn task_json(task: &Task) -> Vec<u8> {
    // Writing to memory does not fail, and neither does text or JSON that was read before.
    serde_json::to_vec(&TaskOut::new(task, HistoryOut::Raw(task.history.raw()), Dialect::V1))
        .unwrap_or_default()
}

/// Decodes the output of [`task_json`], or any task of an agent.
///
/// # Errors
///
/// [`AgentError`] if it is no task.
pub fn read_task(json: &[u8]) -> Result<Task, AgentError> {
    // In the envelope that agents use, so that there is one reader.
    let mut answer = Vec::with_capacity(json.len() + 16);
    answer.extend_from_slice(br#"{"result":"#);
    answer.extend_from_slice(json);
    answer.push(b'}');
    Dialect::V1.task(&answer)
}

/// The parts of a message or an artifact, encoded as A2A 1.0.
#[derive(Debug, Clone, Copy)]
pub struct EncodedParts<'a> {
    parts: &'a [Part],
    bare: bool,
}

impl<'a> EncodedParts<'a> {
    /// Encodes the content alone, for display: agents put ids of their own into metadata.
    pub fn without_metadata(parts: &'a [Part]) -> Self {
        Self { parts, bare: true }
    }

    /// Encodes the content and all other members.
    pub(super) fn with_metadata(parts: &'a [Part]) -> Self {
        Self { parts, bare: false }
    }
}

impl Serialize for EncodedParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts.iter().map(|part| PartOut { part, bare: self.bare }))
    }
}

struct PartOut<'a> {
    part: &'a Part,
    bare: bool,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedMembers<'a> {
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
        let Self { part, bare } = self;
        let mut members = EncodedMembers {
            filename: part.filename.as_deref(),
            media_type: part.media_type.as_deref(),
            metadata: part.metadata.as_deref().filter(|_| !bare),
            ..EncodedMembers::default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Generates parts in any dialect, odd ones included.
    fn part() -> impl Strategy<Value = Value> {
        let data = prop_oneof![
            Just(json!(null)),
            Just(json!({"b": [1, {"c": "d"}], "a": 1.5})),
            any::<i64>().prop_map(Value::from)
        ];
        prop_oneof![
            any::<String>().prop_map(|text| json!({"text": text})),
            any::<String>().prop_map(|text| json!({"kind": "text", "text": text, "metadata": {"m": 1}})),
            Just(json!({"kind": "file", "file": {"name": "n", "mimeType": "a/b", "bytes": "AAAA"}})),
            Just(json!({"url": "https://a.test/", "filename": "f", "mediaType": "a/b"})),
            data.clone().prop_map(|data| json!({"data": data})),
            data.prop_map(
                |data| json!({"kind": "data", "data": {"value": data}, "metadata": {"data_part_compat": true}})
            ),
            Just(json!({"kind": "hologram", "light": [1, 2], "metadata": {"m": 1}})),
            Just(json!({})),
            Just(json!(7)),
        ]
    }

    fn message() -> impl Strategy<Value = Value> {
        let id = prop::option::of("[a-z]{0,3}");
        (prop::collection::vec(part(), 0..4), id, prop::sample::select(vec!["user", "ROLE_AGENT"])).prop_map(
            |(parts, id, role)| {
                json!({"messageId": id, "role": role, "parts": parts, "taskId": "t", "extensions": ["urn:x"],
                       "referenceTaskIds": ["r"], "metadata": {"k": [1]}})
            },
        )
    }

    fn task() -> impl Strategy<Value = Value> {
        let states =
            ["submitted", "TASK_STATE_WORKING", "input-required", "auth-required", "completed", "odd"];
        let artifact = (prop::collection::vec(part(), 0..4), "[ab]{0,2}").prop_map(|(parts, id)| {
            json!({"artifactId": id, "name": "n", "description": "d", "extensions": ["urn:x"], "parts": parts, "metadata": {"x": 1}})
        });
        (
            any::<String>().prop_filter("ids are not empty", |id| !id.is_empty()),
            prop::sample::select(states.to_vec()),
            prop::option::of(message()),
            prop::collection::vec(artifact, 0..3),
            prop::option::of(prop::collection::vec(message(), 0..3)),
        )
            .prop_map(|(id, state, message, artifacts, history)| {
                json!({"id": id, "contextId": "c", "artifacts": artifacts, "history": history, "metadata": {"a": 1},
                       "status": {"state": state, "message": message, "timestamp": "2026-01-01T00:00:00Z"}})
            })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_it_was(given in task()) {
            let known = read_task(given.to_string().as_bytes()).unwrap();
            let written = task_json(&known);
            let again = read_task(&written).unwrap();
            prop_assert_eq!(format!("{known:?}"), format!("{again:?}"));
            prop_assert_eq!(task_json(&again), written);
        }
    }

    #[test]
    fn a_task_is_written_as_1_0() {
        let given = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required","message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"a"}]}},"artifacts":[{"artifactId":"x","parts":[{"kind":"data","data":{"n":1e400}}]}],"history":[{"role":"user"}]}"#;
        let written = String::from_utf8(task_json(&read_task(given.as_bytes()).unwrap())).unwrap();
        assert_eq!(
            written,
            r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"role":"ROLE_AGENT","parts":[{"text":"a"}]}},"artifacts":[{"artifactId":"x","parts":[{"data":{"n":1e400}}]}],"history":[{"role":"user"}]}"#
        );
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for json in ["", "7", "null", r#"{"id":"t"}"#, r#"{"id":"t","status":{}},"x":{"#] {
            assert!(read_task(json.as_bytes()).is_err(), "{json}");
        }
    }
}
