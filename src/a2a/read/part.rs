//! Reading one part, and the words of a status.
//!
//! A part is known by its content: `kind` (0.2, 0.3), `type` (what some agents write instead), or neither (1.0). What no
//! version knows is kept as it came. Not here: decoding base64, following links.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::super::loose::{List, Object, Text};
use super::super::model::{Part, PartBody, State};
use super::wrapped::unwrap_data;

/// The parts of a message or an artifact. What is no object at all is passed over.
pub(super) fn parts(list: List<PartIn>) -> Vec<Part> {
    list.items().filter_map(|part| part.0).collect()
}

/// A part, or nothing if it is no object.
pub(super) struct PartIn(Option<Part>);

impl<'de> Deserialize<'de> for PartIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(found) = Object::<Found<'de>>::deserialize(deserializer)?;
        Ok(Self(found.map(Found::into_part)))
    }
}

/// The members of a part, not looked into yet: which of them count is known only at the end.
#[derive(Default)]
struct Found<'de> {
    kind: Option<&'de RawValue>,
    text: Option<&'de RawValue>,
    raw: Option<&'de RawValue>,
    url: Option<&'de RawValue>,
    file: Option<&'de RawValue>,
    data: Option<&'de RawValue>,
    filename: Option<&'de RawValue>,
    media_type: Option<&'de RawValue>,
    metadata: Option<&'de RawValue>,
    others: Vec<(String, &'de RawValue)>,
}

/// Content, with the filename and the media type that come with it.
struct Content {
    body: PartBody,
    filename: Option<String>,
    media_type: Option<String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct FileIn {
    name: Text,
    #[serde(rename = "mimeType")]
    mime_type: Text,
    bytes: Text,
    uri: Text,
}

impl<'de> Deserialize<'de> for Found<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Found<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Found<'de>, A::Error> {
                let mut found = Found::default();
                while let Some(name) = object.next_key::<Name>()? {
                    found.put(name, object.next_value()?);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Found<'de> {
    fn put(&mut self, name: Name, value: &'de RawValue) {
        let slot = match name {
            Name::Kind => &mut self.kind,
            Name::Text => &mut self.text,
            Name::Raw => &mut self.raw,
            Name::Url => &mut self.url,
            Name::File => &mut self.file,
            Name::Data => &mut self.data,
            Name::Filename => &mut self.filename,
            Name::MediaType => &mut self.media_type,
            Name::Metadata => &mut self.metadata,
            Name::Other(name) => return self.others.push((name, value)),
        };
        *slot = Some(value);
    }

    fn into_part(self) -> Part {
        let metadata = self.metadata.filter(|raw| raw.get().starts_with('{')).map(ToOwned::to_owned);
        let Some(content) = self.content() else {
            return Part { metadata, ..Part::new(PartBody::Unknown(self.as_it_came())) };
        };
        let mut part =
            Part { body: content.body, filename: content.filename, media_type: content.media_type, metadata };
        unwrap_data(&mut part);
        part
    }

    /// The content, if any version knows it.
    fn content(&self) -> Option<Content> {
        let kind = self.kind.map_or("null", RawValue::get);
        if !matches!(kind, "null" | r#""""# | r#""text""# | r#""file""# | r#""data""#) {
            return None;
        }
        self.file().or_else(|| {
            let body = self.body(kind)?;
            Some(Content { body, filename: filled(self.filename), media_type: filled(self.media_type) })
        })
    }

    fn body(&self, kind: &str) -> Option<PartBody> {
        let text = self.text.and_then(text);
        // Empty text beside other content is a default that was printed, not the content.
        let alone = self.raw.is_none() && self.url.is_none() && self.data.is_none();
        if let Some(text) = text.filter(|text| alone || !text.is_empty()) {
            return Some(PartBody::Text(text));
        }
        if let Some(base64) = filled(self.raw) {
            return Some(PartBody::Raw(base64));
        }
        if let Some(url) = filled(self.url) {
            return Some(PartBody::Url(url));
        }
        if let Some(data) = self.data {
            return Some(PartBody::Data(data.to_owned()));
        }
        // The JavaScript SDK writes `{}` where it means `{"data":null}`.
        let odd =
            |member: Option<&RawValue>| member.is_some_and(|raw| !matches!(raw.get(), "null" | r#""""#));
        let empty = matches!(kind, "null" | r#""""# | r#""data""#)
            && self.others.is_empty()
            && ![self.text, self.raw, self.url, self.file].into_iter().any(odd);
        empty.then(|| PartBody::Data(RawValue::NULL.to_owned()))
    }

    /// The content of a file part of 0.2 and 0.3.
    fn file(&self) -> Option<Content> {
        let Object(file) = serde_json::from_str::<Object<FileIn>>(self.file?.get()).ok()?;
        let file = file?;
        let body = match (file.bytes.filled(), file.uri.filled()) {
            (Some(base64), _) => PartBody::Raw(base64),
            (None, Some(uri)) => PartBody::Url(uri),
            (None, None) => return None,
        };
        Some(Content { body, filename: file.name.filled(), media_type: file.mime_type.filled() })
    }

    fn as_it_came(&self) -> Box<RawValue> {
        to_raw_value(self).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

impl Serialize for Found<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let known = [
            ("kind", self.kind),
            ("text", self.text),
            ("raw", self.raw),
            ("url", self.url),
            ("file", self.file),
            ("data", self.data),
            ("filename", self.filename),
            ("mediaType", self.media_type),
            ("metadata", self.metadata),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                map.serialize_entry(name, value)?;
            }
        }
        for (name, value) in &self.others {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A string; nothing, if it is anything else.
fn text(raw: &RawValue) -> Option<String> {
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::from_str(raw.get()).or_else(|_| serde_json::from_str(raw.get()).map(|Torn(text)| text)).ok()
}

/// Text with half of a surrogate pair in it: JavaScript agents that stream cut strings between the halves.
struct Torn(String);

impl<'de> Deserialize<'de> for Torn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Torn;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Torn, E> {
                // A half comes as three bytes, of which each would become a replacement character.
                let text = String::from_utf8_lossy(bytes);
                Ok(Torn(text.replace("\u{FFFD}\u{FFFD}\u{FFFD}", "\u{FFFD}")))
            }
        }
        deserializer.deserialize_bytes(Reader)
    }
}

fn filled(raw: Option<&RawValue>) -> Option<String> {
    raw.and_then(text).filter(|text| !text.is_empty())
}

enum Name {
    Kind,
    Text,
    Raw,
    Url,
    File,
    Data,
    Filename,
    MediaType,
    Metadata,
    Other(String),
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }
            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(match name {
                    "kind" | "type" => Name::Kind,
                    "text" => Name::Text,
                    "raw" => Name::Raw,
                    "url" => Name::Url,
                    "file" => Name::File,
                    "data" => Name::Data,
                    "filename" => Name::Filename,
                    "mediaType" => Name::MediaType,
                    "metadata" => Name::Metadata,
                    other => Name::Other(other.to_owned()),
                })
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// A state as any version writes it; [`State::Unknown`], if it is no word at all.
pub(super) struct StateIn(pub(super) State);

impl Default for StateIn {
    fn default() -> Self {
        Self(State::Unknown)
    }
}

impl<'de> Deserialize<'de> for StateIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(word) = Text::deserialize(deserializer)?;
        Ok(Self(word.as_deref().map_or(State::Unknown, State::from_wire)))
    }
}
