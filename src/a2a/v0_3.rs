//! How A2A 0.2 and 0.3 are written: the parameters of a send and of a webhook, and what 1.0 has and they have not.
//!
//! Two things of 1.0 have no place there and travel in a part's metadata: `data` that is no object is wrapped as
//! `{"value":…}` and marked `data_part_compat`, as the official SDK does; the name and media type of text and data.
//! Not here: reading (see `read`), requests about a task (see `dialect`).

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::dialect::Send;
use super::loose::Members;
use super::model::{Message, Part, PartBody, Role};
use super::push::Webhook;

/// Marks a data part whose value is wrapped.
pub(crate) const WRAPPED: &str = "data_part_compat";

/// `MessageSendParams`.
pub(crate) struct SendParams<'a>(pub(crate) &'a Send<'a>);

#[derive(serde::Serialize)]
struct Params<'a> {
    message: MessageOut<'a>,
    configuration: Configuration<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
}

impl Serialize for SendParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ask) = self;
        Params {
            message: MessageOut::from(ask.message),
            configuration: Configuration { accepted_output_modes: ask.accepted_output_modes, blocking: true },
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

#[derive(serde::Serialize)]
struct PushAuthentication<'a> {
    schemes: [&'static str; 1],
    credentials: &'a str,
}

impl<'a> SetPushParams<'a> {
    pub(crate) fn new(task_id: &'a str, webhook: &Webhook<'a>) -> Self {
        let Webhook { id, url, token } = *webhook;
        let authentication = PushAuthentication { schemes: ["Bearer"], credentials: token };
        Self { task_id, push_notification_config: PushConfig { id, url, token, authentication } }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageOut<'a> {
    kind: &'static str,
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
            kind: "message",
            message_id: message.message_id.as_deref().unwrap_or_default(),
            role: match message.role {
                Role::User => "user",
                Role::Agent => "agent",
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

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part) = self;
        let mut metadata =
            Metadata { given: part.metadata.as_deref(), wrapped: false, filename: None, media_type: None };
        let mut map = serializer.serialize_map(None)?;
        match &part.body {
            PartBody::Unknown(json) => return unknown(map, json),
            PartBody::Raw(bytes) => file(&mut map, part, "bytes", bytes)?,
            PartBody::Url(uri) => file(&mut map, part, "uri", uri)?,
            PartBody::Text(text) => {
                map.serialize_entry("kind", "text")?;
                map.serialize_entry("text", text)?;
                metadata.describe(part);
            }
            PartBody::Data(json) => {
                map.serialize_entry("kind", "data")?;
                metadata.wrapped = !json.get().starts_with('{');
                if metadata.wrapped {
                    map.serialize_entry("data", &Value { value: json })?;
                } else {
                    map.serialize_entry("data", json)?;
                }
                metadata.describe(part);
            }
        }
        if !metadata.is_empty() {
            map.serialize_entry("metadata", &metadata)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Value<'a> {
    value: &'a RawValue,
}

#[derive(serde::Serialize)]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
}

fn file<M: SerializeMap>(map: &mut M, part: &Part, member: &str, content: &str) -> Result<(), M::Error> {
    map.serialize_entry("kind", "file")?;
    let file = File {
        name: part.filename.as_deref(),
        mime_type: part.media_type.as_deref(),
        bytes: (member == "bytes").then_some(content),
        uri: (member == "uri").then_some(content),
    };
    map.serialize_entry("file", &file)
}

/// Writes the members of a part that no version knows.
fn unknown<M: SerializeMap>(mut map: M, json: &RawValue) -> Result<M::Ok, M::Error> {
    for (name, value) in members(json) {
        map.serialize_entry(&name, value)?;
    }
    map.end()
}

/// The members of a JSON object, in their order; none, if it is none.
pub(crate) fn members(json: &RawValue) -> Vec<(String, &RawValue)> {
    let Members(members) = serde_json::from_str(json.get()).unwrap_or_default();
    members.unwrap_or_default()
}

/// The metadata of a part: what was given, and what has no other place.
struct Metadata<'a> {
    given: Option<&'a RawValue>,
    wrapped: bool,
    filename: Option<&'a str>,
    media_type: Option<&'a str>,
}

impl<'a> Metadata<'a> {
    fn describe(&mut self, part: &'a Part) {
        self.filename = part.filename.as_deref();
        self.media_type = part.media_type.as_deref();
    }

    fn adds(&self) -> bool {
        self.wrapped || self.filename.is_some() || self.media_type.is_some()
    }

    fn is_empty(&self) -> bool {
        self.given.is_none() && !self.adds()
    }

    fn overwrites(&self, name: &str) -> bool {
        match name {
            WRAPPED => self.wrapped,
            "filename" => self.filename.is_some(),
            "mediaType" => self.media_type.is_some(),
            _ => false,
        }
    }
}

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (Some(given), false) = (self.given, self.adds()) {
            return given.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.given.map(members).unwrap_or_default() {
            if !self.overwrites(&name) {
                map.serialize_entry(&name, value)?;
            }
        }
        if self.wrapped {
            map.serialize_entry(WRAPPED, &true)?;
        }
        for (name, value) in [("filename", self.filename), ("mediaType", self.media_type)] {
            if let Some(value) = value {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}
