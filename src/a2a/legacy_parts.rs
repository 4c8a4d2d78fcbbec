//! The common wire format of all versions before A2A 1.0: parts, and the authentication of
//! webhooks; and the features of 1.0 that they lack.
//!
//! Two features of 1.0 have no member there and travel in a part's metadata: `data` that is not an
//! object is wrapped as `{"value":…}` and marked `data_part_compat`, as the official SDK does; the
//! name and media type of text and data. The messages around parts are in `v0_1` and `v0_3`,
//! decoding in `decode`.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::lenient::LenientMap;
use super::model::{Part, PartBody};

/// Mark of a data part with a wrapped value.
pub(crate) const WRAPPED: &str = "data_part_compat";

/// The authentication of an agent's pushes.
#[derive(serde::Serialize)]
pub(super) struct PushAuthentication<'a> {
    schemes: [&'static str; 1],
    credentials: &'a str,
}

impl<'a> PushAuthentication<'a> {
    pub(super) fn new(token: &'a str) -> Self {
        Self { schemes: ["Bearer"], credentials: token }
    }
}

/// The parts of a message.
pub(super) struct LegacyParts<'a> {
    pub(super) parts: &'a [Part],
    /// The name of the member with the kind of a part.
    pub(super) tag: &'static str,
}

impl Serialize for LegacyParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts.iter().map(|part| PartOut { part, tag: self.tag }))
    }
}

struct PartOut<'a> {
    part: &'a Part,
    tag: &'static str,
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, tag } = self;
        let mut metadata = LegacyMetadata {
            given: part.metadata.as_deref(),
            wrapped: false,
            filename: None,
            media_type: None,
        };
        let mut map = serializer.serialize_map(None)?;
        match &part.body {
            PartBody::Unknown(json) => return unknown(map, json),
            PartBody::Raw(bytes) => {
                map.serialize_entry(tag, "file")?;
                file(&mut map, part, "bytes", bytes)?;
            }
            PartBody::Url(uri) => {
                map.serialize_entry(tag, "file")?;
                file(&mut map, part, "uri", uri)?;
            }
            PartBody::Text(text) => {
                map.serialize_entry(tag, "text")?;
                map.serialize_entry("text", text)?;
                metadata.describe(part);
            }
            PartBody::Data(json) => {
                map.serialize_entry(tag, "data")?;
                metadata.wrapped = !json.get().starts_with('{');
                if metadata.wrapped {
                    map.serialize_entry("data", &LegacyValue { value: json })?;
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
struct LegacyValue<'a> {
    value: &'a RawValue,
}

#[derive(serde::Serialize)]
struct LegacyFile<'a> {
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
    let file = LegacyFile {
        name: part.filename.as_deref(),
        mime_type: part.media_type.as_deref(),
        bytes: (member == "bytes").then_some(content),
        uri: (member == "uri").then_some(content),
    };
    map.serialize_entry("file", &file)
}

/// Encodes the members of a part of an unknown kind.
fn unknown<M: SerializeMap>(mut map: M, json: &RawValue) -> Result<M::Ok, M::Error> {
    for (name, value) in members(json) {
        map.serialize_entry(&name, value)?;
    }
    map.end()
}

/// Returns the members of a JSON object, in their order; none if it is not an object.
pub(crate) fn members(json: &RawValue) -> Vec<(String, &RawValue)> {
    let LenientMap(members) = serde_json::from_str(json.get()).unwrap_or_default();
    members.unwrap_or_default()
}

/// The metadata of a part: the given one, and the members without a place of their own.
struct LegacyMetadata<'a> {
    given: Option<&'a RawValue>,
    wrapped: bool,
    filename: Option<&'a str>,
    media_type: Option<&'a str>,
}

impl<'a> LegacyMetadata<'a> {
    fn describe(&mut self, part: &'a Part) {
        self.filename = part.filename.as_deref();
        self.media_type = part.media_type.as_deref();
    }

    fn has_extra(&self) -> bool {
        self.wrapped || self.filename.is_some() || self.media_type.is_some()
    }

    fn is_empty(&self) -> bool {
        self.given.is_none() && !self.has_extra()
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

impl Serialize for LegacyMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (Some(given), false) = (self.given, self.has_extra()) {
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
