//! Decodes one part.
//!
//! A part is classified by its content: `kind` (0.2, 0.3), `type` (in place of it, from some
//! agents), or neither (1.0). Unknown parts are kept unchanged. Base64 is not decoded, links are
//! not fetched. Data that travels in a part's metadata before 1.0 (data that is not an object,
//! names and media types) is restored; the opposite is in `encode`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::super::dialect::Dialect;
use super::super::encode::WRAPPED;
use super::super::lenient::{
    LenientObject, LenientString, RawObject, ReadInPlace as _, ReadItem, ReadMembers, add_item,
};
use super::super::model::{Part, PartBody};
use crate::jsonrpc::JsonText;

impl<'de> ReadItem<'de> for Part {
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error> {
        let mut item: Option<RawPart<'de>> = None;
        item.read_in_place(deserializer)?;
        if let Some(item) = item {
            add_item(items, item.into_part());
        }
        Ok(())
    }
}

/// The members of a part, unparsed: which of them count is known only at the end.
#[derive(Default)]
struct RawPart<'de> {
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

/// The content, with its filename and media type.
struct PartContent {
    body: PartBody,
    filename: Option<String>,
    media_type: Option<String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileIn {
    name: LenientString,
    mime_type: LenientString,
    bytes: LenientString,
    uri: LenientString,
    /// 0.3 by HTTP+JSON has this member and the next.
    file_with_bytes: LenientString,
    file_with_uri: LenientString,
}

impl<'de> ReadMembers<'de> for RawPart<'de> {
    fn read_members<A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while let Some(name) = object.next_key::<PartMember>()? {
            self.put(name, object.next_value()?);
        }
        Ok(())
    }
}

impl<'de> RawPart<'de> {
    fn put(&mut self, name: PartMember, value: &'de RawValue) {
        let slot = match name {
            PartMember::Kind => &mut self.kind,
            PartMember::Text => &mut self.text,
            PartMember::Raw => &mut self.raw,
            PartMember::Url => &mut self.url,
            PartMember::File => &mut self.file,
            PartMember::Data => &mut self.data,
            PartMember::Filename => &mut self.filename,
            PartMember::MediaType => &mut self.media_type,
            PartMember::Metadata => &mut self.metadata,
            PartMember::Other(name) => return self.others.push((name, value)),
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

    /// Returns the content, if any version knows it.
    fn content(&self) -> Option<PartContent> {
        let kind = self.kind.map_or("null", RawValue::get);
        if !matches!(kind, "null" | r#""""# | r#""text""# | r#""file""# | r#""data""#) {
            return None;
        }
        self.file().or_else(|| {
            let body = self.body(kind)?;
            Some(PartContent { body, filename: filled(self.filename), media_type: filled(self.media_type) })
        })
    }

    fn body(&self, kind: &str) -> Option<PartBody> {
        let text = self.text.and_then(|raw| JsonText::read(raw).or_else(|| text(raw).map(JsonText::from)));
        // Empty text beside other content is a default value, not the content.
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
        // The JavaScript SDK writes `{}` for `{"data":null}`.
        let odd =
            |member: Option<&RawValue>| member.is_some_and(|raw| !matches!(raw.get(), "null" | r#""""#));
        let empty = matches!(kind, "null" | r#""""# | r#""data""#)
            && self.others.is_empty()
            && ![self.text, self.raw, self.url, self.file].into_iter().any(odd);
        empty.then(|| PartBody::Data(RawValue::NULL.to_owned()))
    }

    /// Returns the content of a file part of 0.2 and 0.3.
    fn file(&self) -> Option<PartContent> {
        let LenientObject(file) = serde_json::from_str::<LenientObject<FileIn>>(self.file?.get()).ok()?;
        let file = file?;
        let bytes = file.bytes.filled().or_else(|| file.file_with_bytes.filled().map(decoded_once));
        let body = match (bytes, file.uri.filled().or(file.file_with_uri.filled())) {
            (Some(base64), _) => PartBody::Raw(base64),
            (None, Some(uri)) => PartBody::Url(uri),
            (None, None) => return None,
        };
        Some(PartContent { body, filename: file.name.filled(), media_type: file.mime_type.filled() })
    }

    fn as_it_came(&self) -> Box<RawValue> {
        to_raw_value(self).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

impl Serialize for RawPart<'_> {
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

/// Returns a string; nothing if the value has another type.
fn text(raw: &RawValue) -> Option<String> {
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::from_str(raw.get())
        .or_else(|_| serde_json::from_str(raw.get()).map(|LossyUtf16(text)| text))
        .ok()
}

/// Text that may contain half of a surrogate pair: JavaScript agents split strings between the
/// halves when they stream.
struct LossyUtf16(String);

impl<'de> Deserialize<'de> for LossyUtf16 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = LossyUtf16;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyUtf16, E> {
                // A half has three bytes, and each would become a replacement character.
                let text = String::from_utf8_lossy(bytes);
                Ok(LossyUtf16(text.replace("\u{FFFD}\u{FFFD}\u{FFFD}", "\u{FFFD}")))
            }
        }
        deserializer.deserialize_bytes(Reader)
    }
}

fn filled(raw: Option<&RawValue>) -> Option<String> {
    raw.and_then(text).filter(|text| !text.is_empty())
}

enum PartMember {
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

impl<'de> Deserialize<'de> for PartMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = PartMember;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }
            fn visit_str<E>(self, name: &str) -> Result<PartMember, E> {
                Ok(match name {
                    "kind" | "type" => PartMember::Kind,
                    "text" => PartMember::Text,
                    "raw" => PartMember::Raw,
                    "url" => PartMember::Url,
                    "file" => PartMember::File,
                    "data" => PartMember::Data,
                    "filename" => PartMember::Filename,
                    "mediaType" => PartMember::MediaType,
                    "metadata" => PartMember::Metadata,
                    other => PartMember::Other(other.to_owned()),
                })
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// Moves the name and the media type of text and data back out of the metadata, where
/// `encode` puts them.
pub(in super::super) fn take_descriptions(parts: &mut [Part], from: Dialect) {
    match from {
        Dialect::V0_1 | Dialect::V0_3 => parts.iter_mut().for_each(take_description),
        Dialect::V1 => {}
    }
}

fn take_description(part: &mut Part) {
    if !matches!(part.body, PartBody::Text(_) | PartBody::Data(_)) {
        return;
    }
    let named = |raw: &&RawValue| raw.get().contains("\"filename\"") || raw.get().contains("\"mediaType\"");
    let Some(metadata) = part.metadata.as_deref().filter(named) else { return };
    let mut described = RawObject::read(metadata);
    for (name, slot) in [("filename", &mut part.filename), ("mediaType", &mut part.media_type)] {
        let text = described.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        if let Some(text) = text.filter(|text| !text.is_empty() && slot.is_none()) {
            *slot = Some(text);
            described.remove(|known, _| known == name);
        }
    }
    part.metadata = described.written();
}

/// Returns the base64 of a file in the protobuf form, where the official SDKs for Python, Java and Go encode the
/// base64 text once more. That for JavaScript does not: bytes that are no base64 text stay as they are.
fn decoded_once(base64: String) -> String {
    let inner = STANDARD.decode(&base64).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    inner.filter(|inner| !inner.is_empty() && STANDARD.decode(inner).is_ok()).unwrap_or(base64)
}

/// Takes data out of the object that the protobuf form has around it.
pub(in super::super) fn unwrap_proto_data(part: &mut Part) {
    let PartBody::Data(data) = &part.body else { return };
    let Some(inner) = RawObject::read(data).only("data") else { return };
    let inner = inner.to_owned();
    part.body = PartBody::Data(inner);
    unwrap_data(part);
}

/// Unwraps data that `encode` and the official SDK wrap because it is not an object.
pub(super) fn unwrap_data(part: &mut Part) {
    let PartBody::Data(data) = &part.body else { return };
    let Some(metadata) = part.metadata.as_deref().filter(|raw| raw.get().contains(WRAPPED)) else { return };
    let mut described = RawObject::read(metadata);
    if !described.remove(|name, value| name == WRAPPED && value.get() == "true") {
        return;
    }
    let Some(value) = RawObject::read(data).only("value") else { return };
    let value = PartBody::Data(value.to_owned());
    part.metadata = described.written();
    part.body = value;
}
