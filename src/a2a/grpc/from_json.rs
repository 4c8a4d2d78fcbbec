//! Reads ProtoJSON, and writes it as a protobuf message.
//!
//! One pass over the text, and no value in between. As lenient as the other readers of an agent's JSON: members that
//! the schema does not have, `null`, and unknown names of enums are left out, and a number in place of a string is its
//! text.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::schema::{Field, FieldKind, FieldLabel, MessageType, Schema};
use super::{MAX_MESSAGE_DEPTH, ProtobufError};
use crate::protobuf::{bytes_field, delimited, double_field, varint_field};

/// Appends the JSON object as a message of this type.
pub(super) fn write_message(
    schema: &Schema,
    message_type: usize,
    json: &[u8],
    protobuf: &mut Vec<u8>,
) -> Result<(), ProtobufError> {
    let Some(message_type) = schema.message(message_type) else { return Err(ProtobufError::Tag) };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let message = MessageReader { schema, message_type, depth: 1, protobuf };
    message
        .deserialize(&mut reader)
        .and_then(|()| reader.end())
        .map_err(|error| ProtobufError::Json(error.to_string()))
}

/// Reads an object into a message.
struct MessageReader<'s, 'p> {
    schema: &'s Schema,
    message_type: &'s MessageType,
    depth: usize,
    protobuf: &'p mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageReader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageReader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(field) = object.next_key_seed(FieldName(self.message_type))? {
            let Some(field) = field else {
                object.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = FieldReader {
                schema: self.schema,
                field,
                is_item: false,
                depth: self.depth,
                protobuf: &mut *self.protobuf,
            };
            object.next_value_seed(value)?;
        }
        Ok(())
    }
}

/// Reads the name of a member; `None` if the message has no such field.
struct FieldName<'s>(&'s MessageType);

impl<'de, 's> DeserializeSeed<'de> for FieldName<'s> {
    type Value = Option<&'s Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'s> Visitor<'_> for FieldName<'s> {
    type Value = Option<&'s Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name))
    }
}

/// Reads the value of a field, or an item of a repeated one.
struct FieldReader<'s, 'p> {
    schema: &'s Schema,
    field: &'s Field,
    is_item: bool,
    depth: usize,
    protobuf: &'p mut Vec<u8>,
}

impl FieldReader<'_, '_> {
    /// Returns true for lists and objects, which only these kinds of fields take.
    fn takes_list(&self) -> bool {
        self.field.label == FieldLabel::Repeated
            && !self.is_item
            && !matches!(self.field.kind, FieldKind::Map(_))
    }

    /// Returns true if the default is written: it is a value of its own.
    fn has_presence(&self) -> bool {
        self.is_item || self.field.label != FieldLabel::Implicit
    }

    fn mismatch<E: Error>(&self, found: &str) -> E {
        E::custom(format_args!("{} is {found}", self.field.json_name))
    }

    fn integer<E: Error>(self, number: i64) -> Result<(), E> {
        let number = i32::try_from(number).map_err(|_| self.mismatch("no integer of 32 bits"))?;
        if number != 0 || self.has_presence() {
            varint_field(self.field.number, number.into(), self.protobuf);
        }
        Ok(())
    }

    fn any_value<E: Error>(self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), E> {
        delimited(self.field.number, self.protobuf, write);
        Ok(())
    }

    fn float<E: Error>(self, number: f64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Value => self.any_value(|protobuf| double_field(2, number, protobuf)),
            FieldKind::Text => self.visit_str(&number.to_string()),
            FieldKind::Integer if number.fract() == 0.0 => match format!("{number:.0}").parse() {
                Ok(number) => self.integer(number),
                Err(_) => Err(self.mismatch("no integer of 32 bits")),
            },
            _ => Err(self.mismatch("a number")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldReader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldReader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a field")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Value => self.any_value(null),
            _ => Ok(()),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            _ if self.takes_list() => Err(self.mismatch("no list")),
            FieldKind::Bool => self.integer(value.into()),
            FieldKind::Value => self.any_value(|protobuf| varint_field(4, value.into(), protobuf)),
            FieldKind::Text => self.visit_str(if value { "true" } else { "false" }),
            _ => Err(self.mismatch("a boolean")),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        match self.field.kind {
            _ if self.takes_list() => Err(self.mismatch("no list")),
            FieldKind::Integer | FieldKind::Enum(_) => self.integer(number),
            FieldKind::Text => self.visit_str(&number.to_string()),
            #[allow(clippy::cast_precision_loss, reason = "a Value has no other number than a double")]
            _ => self.float(number as f64),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            #[allow(clippy::cast_precision_loss, reason = "a Value has no other number than a double")]
            Err(_) => self.visit_f64(number as f64),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if self.takes_list() { Err(self.mismatch("no list")) } else { self.float(number) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.takes_list() {
            return Err(self.mismatch("no list"));
        }
        let number = self.field.number;
        match self.field.kind {
            FieldKind::Text => {
                if !text.is_empty() || self.has_presence() {
                    bytes_field(number, text.as_bytes(), self.protobuf);
                }
            }
            FieldKind::Bytes => {
                let bytes = read_base64(text).ok_or_else(|| self.mismatch("no base64"))?;
                if !bytes.is_empty() || self.has_presence() {
                    bytes_field(number, &bytes, self.protobuf);
                }
            }
            FieldKind::Enum(place) => {
                let known = self.schema.enumeration(place).and_then(|known| known.number(text));
                return known.map_or(Ok(()), |known| self.integer(known.into()));
            }
            FieldKind::Integer => {
                let number = text.parse().map_err(|_| self.mismatch("no integer"))?;
                return self.integer(number);
            }
            FieldKind::Value => return self.any_value(|protobuf| bytes_field(3, text.as_bytes(), protobuf)),
            FieldKind::Timestamp => {
                // A text that is no time must not lose the rest.
                if let Ok(moment) = OffsetDateTime::parse(text, &Rfc3339) {
                    delimited(number, self.protobuf, |protobuf| timestamp(moment, protobuf));
                }
            }
            FieldKind::Bool | FieldKind::Message(_) | FieldKind::Map(_) | FieldKind::Struct => {
                return Err(self.mismatch("a string"));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.takes_list() {
            loop {
                let item = FieldReader {
                    schema: self.schema,
                    field: self.field,
                    is_item: true,
                    depth: self.depth,
                    protobuf: &mut *self.protobuf,
                };
                if list.next_element_seed(item)?.is_none() {
                    return Ok(());
                }
            }
        }
        if self.field.kind != FieldKind::Value {
            return Err(self.mismatch("a list"));
        }
        let depth = self.depth;
        delimited(self.field.number, self.protobuf, |protobuf| {
            ValueReader { depth, protobuf }.visit_seq(list)
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        if self.takes_list() {
            return Err(self.mismatch("no list"));
        }
        let depth = next_depth(self.depth)?;
        let (schema, number) = (self.schema, self.field.number);
        match self.field.kind {
            FieldKind::Message(place) => {
                let Some(message_type) = schema.message(place) else { return Err(self.mismatch("unknown")) };
                delimited(number, self.protobuf, |protobuf| {
                    MessageReader { schema, message_type, depth, protobuf }.visit_map(object)
                })
            }
            FieldKind::Struct => {
                delimited(number, self.protobuf, |protobuf| object_entries(object, depth, protobuf))
            }
            FieldKind::Value => delimited(number, self.protobuf, |protobuf| {
                ValueReader { depth: self.depth, protobuf }.visit_map(object)
            }),
            FieldKind::Map(place) => {
                let value = schema.message(place).and_then(|entry| entry.numbered(2));
                let Some(field) = value else { return Err(self.mismatch("unknown")) };
                while let Some(key) = object.next_key::<String>()? {
                    delimited(number, self.protobuf, |protobuf| {
                        bytes_field(1, key.as_bytes(), protobuf);
                        object.next_value_seed(FieldReader { schema, field, is_item: true, depth, protobuf })
                    })?;
                }
                Ok(())
            }
            _ => Err(self.mismatch("an object")),
        }
    }
}

/// Reads any JSON value as the content of `google.protobuf.Value`.
struct ValueReader<'p> {
    depth: usize,
    protobuf: &'p mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        null(self.protobuf);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        varint_field(4, value.into(), self.protobuf);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "a Value has no other number than a double")]
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        double_field(2, number as f64, self.protobuf);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "a Value has no other number than a double")]
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        double_field(2, number as f64, self.protobuf);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        double_field(2, number, self.protobuf);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        bytes_field(3, text.as_bytes(), self.protobuf);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let depth = next_depth(self.depth)?;
        delimited(6, self.protobuf, |protobuf| {
            loop {
                let begin = protobuf.len();
                let item = delimited(1, protobuf, |protobuf| {
                    list.next_element_seed(ValueReader { depth, protobuf })
                })?;
                if item.is_none() {
                    protobuf.truncate(begin);
                    return Ok(());
                }
            }
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        let depth = next_depth(self.depth)?;
        delimited(5, self.protobuf, |protobuf| object_entries(object, depth, protobuf))
    }
}

fn next_depth<E: Error>(depth: usize) -> Result<usize, E> {
    if depth >= MAX_MESSAGE_DEPTH { Err(E::custom("nested too deeply")) } else { Ok(depth + 1) }
}

/// Appends the content of `google.protobuf.Struct`.
fn object_entries<'de, A: MapAccess<'de>>(
    mut object: A,
    depth: usize,
    protobuf: &mut Vec<u8>,
) -> Result<(), A::Error> {
    while let Some(key) = object.next_key::<String>()? {
        delimited(1, protobuf, |protobuf| {
            bytes_field(1, key.as_bytes(), protobuf);
            delimited(2, protobuf, |protobuf| object.next_value_seed(ValueReader { depth, protobuf }))
        })?;
    }
    Ok(())
}

fn null(protobuf: &mut Vec<u8>) {
    varint_field(1, 0, protobuf);
}

fn timestamp(moment: OffsetDateTime, protobuf: &mut Vec<u8>) {
    let seconds = moment.unix_timestamp();
    if seconds != 0 {
        varint_field(1, seconds, protobuf);
    }
    if let Ok(nanos @ 1..) = i32::try_from(moment.nanosecond()) {
        varint_field(2, nanos.into(), protobuf);
    }
}

/// Decodes base64 of either alphabet, with or without padding, as ProtoJSON allows.
fn read_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).ok()
}
