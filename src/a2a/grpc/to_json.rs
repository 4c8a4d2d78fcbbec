//! Reads a protobuf message, and writes it as ProtoJSON.
//!
//! One pass over the bytes for each level, and no value in between: memory is bounded by a small multiple of the
//! message. Fields that the schema does not have are skipped, as protobuf demands. Integral numbers of a
//! `google.protobuf.Value` are written without a fraction, as agents of the other bindings write them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use time::OffsetDateTime;

use super::schema::{Field, FieldKind, FieldLabel, Schema};
use super::{MAX_MESSAGE_DEPTH, ProtobufError};
use crate::jsonrpc::write_json;

/// The largest integer below which a double has no gaps, as a double.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// One value of the wire format.
#[derive(Debug, Clone, Copy)]
pub(super) enum WireValue<'a> {
    /// Integers, `bool` and enums.
    Varint(u64),
    /// `double`, as bits.
    Fixed64(u64),
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
    /// `float`, as bits: no field here has it.
    Fixed32,
}

/// The fields of one message, in the order of the wire.
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the number and the value of the next field.
    pub(super) fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| ProtobufError::Tag)?;
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                let (value, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
                self.rest = rest;
                WireValue::Bytes(value)
            }
            5 => {
                self.array::<4>()?;
                WireValue::Fixed32
            }
            // Groups ended with proto2.
            _ => return Err(ProtobufError::Tag),
        };
        match tag >> 3 {
            0 => Err(ProtobufError::Tag),
            number => Ok(Some((number, value))),
        }
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::Truncated)?;
            self.rest = rest;
            // The tenth byte has one bit left; readers drop the others.
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Varint)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (value, rest) = self.rest.split_first_chunk().ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(*value)
    }
}

/// Writes the message of this type as a JSON object.
pub(super) fn write_message(
    schema: &Schema,
    message_type: usize,
    message: &[u8],
    json: &mut Vec<u8>,
) -> Result<(), ProtobufError> {
    JsonWriter { schema, json, depth: 0 }.message(message_type, message)
}

struct JsonWriter<'a> {
    schema: &'a Schema,
    json: &'a mut Vec<u8>,
    depth: usize,
}

/// The values of a message by field. Only their offsets in the message are held.
struct FieldIndex<'a> {
    message: &'a [u8],
    /// Number and offset of each field, in the order of the numbers.
    places: Vec<(u32, u32)>,
    /// The number of the last field of a `oneof`.
    chosen: Option<u32>,
}

impl<'a> FieldIndex<'a> {
    fn of(message: &'a [u8], fields: &[Field]) -> Result<Self, ProtobufError> {
        let mut wire = WireFields::of(message);
        let (mut places, mut chosen) = (Vec::new(), None);
        let mut place = 0;
        while let Some((number, _)) = wire.next()? {
            if let Some(field) = fields.iter().find(|field| field.number == number) {
                places.push((number, place));
                if field.label == FieldLabel::OneOf {
                    chosen = Some(number);
                }
            }
            place = u32::try_from(message.len() - wire.rest.len()).map_err(|_| ProtobufError::TooLong)?;
        }
        places.sort_by_key(|(number, _)| *number);
        Ok(Self { message, places, chosen })
    }

    /// Returns the values of a field, in the order of the wire.
    fn values(&self, field: &Field) -> impl DoubleEndedIterator<Item = WireValue<'a>> {
        let is_dropped = field.label == FieldLabel::OneOf && self.chosen != Some(field.number);
        let begin = self.places.partition_point(|(number, _)| *number < field.number);
        let end = self.places.partition_point(|(number, _)| *number <= field.number);
        let range = if is_dropped { 0..0 } else { begin..end };
        self.places.get(range).unwrap_or_default().iter().filter_map(|(_, place)| {
            let rest = self.message.get(usize::try_from(*place).ok()?..)?;
            WireFields { rest }.next().ok().flatten().map(|(_, value)| value)
        })
    }
}

impl JsonWriter<'_> {
    fn message(&mut self, message_type: usize, message: &[u8]) -> Result<(), ProtobufError> {
        let schema = self.schema;
        let Some(message_type) = schema.message(message_type) else { return Err(ProtobufError::Tag) };
        self.nested(|writer| {
            let index = FieldIndex::of(message, &message_type.fields)?;
            let mut members = Members::begin(b'{');
            for field in &message_type.fields {
                writer.field(field, &index, &mut members)?;
            }
            members.end(b'}', writer.json);
            Ok(())
        })
    }

    /// Counts one level of nesting while `write` writes its content.
    fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        if self.depth == MAX_MESSAGE_DEPTH {
            return Err(ProtobufError::Depth);
        }
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }

    fn field(
        &mut self,
        field: &Field,
        index: &FieldIndex<'_>,
        members: &mut Members,
    ) -> Result<(), ProtobufError> {
        if let FieldKind::Map(entry) = field.kind {
            if index.values(field).next().is_some() {
                members.name(&field.json_name, self.json);
                self.map(entry, index.values(field))?;
            }
            return Ok(());
        }
        if field.label == FieldLabel::Repeated {
            if self.writes_default(field) || index.values(field).next().is_some() {
                members.name(&field.json_name, self.json);
                let mut list = Members::begin(b'[');
                for value in index.values(field) {
                    list.item(self.json);
                    self.value(field, value)?;
                }
                list.end(b']', self.json);
            }
            return Ok(());
        }
        let Some(last) = index.values(field).next_back() else {
            return self.absent(field, members);
        };
        let has_default = field.label == FieldLabel::Implicit && is_default(last) && !is_message(field.kind);
        if has_default {
            return self.absent(field, members);
        }
        members.name(&field.json_name, self.json);
        if is_message(field.kind) && index.values(field).nth(1).is_some() {
            // Parts of one message: their concatenation is the whole, by definition.
            let parts = index.values(field).filter_map(|value| match value {
                WireValue::Bytes(part) => Some(part),
                _ => None,
            });
            let whole = parts.collect::<Vec<_>>().concat();
            return self.value(field, WireValue::Bytes(&whole));
        }
        self.value(field, last)
    }

    /// Returns true for the required fields of the outermost message: deeper ones would let many empty messages of two
    /// bytes grow to many times their size.
    fn writes_default(&self, field: &Field) -> bool {
        field.is_required && self.depth == 1
    }

    /// Writes the default of a required field; other fields are left out.
    fn absent(&mut self, field: &Field, members: &mut Members) -> Result<(), ProtobufError> {
        let default: &[u8] = match field.kind {
            FieldKind::Text => b"\"\"",
            FieldKind::Integer => b"0",
            _ => return Ok(()),
        };
        if self.writes_default(field) && field.label == FieldLabel::Implicit {
            members.name(&field.json_name, self.json);
            self.json.extend_from_slice(default);
        }
        Ok(())
    }

    fn value(&mut self, field: &Field, value: WireValue<'_>) -> Result<(), ProtobufError> {
        match (field.kind, value) {
            (FieldKind::Text, WireValue::Bytes(text)) => self.text(text),
            (FieldKind::Bytes, WireValue::Bytes(bytes)) => {
                self.json.push(b'"');
                self.json.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
                self.json.push(b'"');
                Ok(())
            }
            (FieldKind::Bool, WireValue::Varint(bits)) => {
                self.literal(if bits == 0 { "false" } else { "true" })
            }
            (FieldKind::Integer, WireValue::Varint(bits)) => self.json(&int32(bits)),
            (FieldKind::Enum(place), WireValue::Varint(bits)) => {
                let number = int32(bits);
                match self.schema.enumeration(place).and_then(|known| known.name(number)) {
                    Some(name) => self.json(name),
                    None => self.json(&number),
                }
            }
            (FieldKind::Message(place), WireValue::Bytes(message)) => self.message(place, message),
            (FieldKind::Struct, WireValue::Bytes(message)) => self.object(message),
            (FieldKind::Value, WireValue::Bytes(message)) => self.any_value(message),
            (FieldKind::Timestamp, WireValue::Bytes(message)) => {
                let text = timestamp(message)?;
                self.json(&text)
            }
            _ => Err(ProtobufError::WireType(field.number)),
        }
    }

    fn map<'v>(
        &mut self,
        entry: usize,
        entries: impl Iterator<Item = WireValue<'v>>,
    ) -> Result<(), ProtobufError> {
        let Some(entry) = self.schema.message(entry) else { return Err(ProtobufError::Tag) };
        let Some(value_field) = entry.numbered(2) else { return Err(ProtobufError::Tag) };
        self.entries(entries, |writer, value| match value {
            Some(value) => writer.value(value_field, value),
            None if is_message(value_field.kind) => writer.literal("{}"),
            None => writer.literal("\"\""),
        })
    }

    /// Writes `google.protobuf.Struct`: a map from names to values.
    fn object(&mut self, message: &[u8]) -> Result<(), ProtobufError> {
        let mut entries = Vec::new();
        let mut fields = WireFields::of(message);
        while let Some((number, value)) = fields.next()? {
            if number == 1 {
                entries.push(value);
            }
        }
        self.nested(|writer| {
            writer.entries(entries.into_iter(), |writer, value| match value {
                Some(WireValue::Bytes(value)) => writer.any_value(value),
                Some(_) => Err(ProtobufError::WireType(2)),
                None => writer.literal("null"),
            })
        })
    }

    /// Writes the entries of a map as an object. Of several entries with one key the last one counts.
    fn entries<'v>(
        &mut self,
        entries: impl Iterator<Item = WireValue<'v>>,
        write: impl Fn(&mut Self, Option<WireValue<'v>>) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        let mut found = Vec::new();
        for entry in entries {
            found.push(map_entry(entry)?);
        }
        let last: HashMap<&str, usize> =
            found.iter().enumerate().map(|(place, entry)| (entry.0, place)).collect();
        let mut members = Members::begin(b'{');
        for (place, (key, value)) in found.iter().enumerate() {
            if last.get(key) == Some(&place) {
                members.name(key, self.json);
                write(self, *value)?;
            }
        }
        members.end(b'}', self.json);
        Ok(())
    }

    /// Writes `google.protobuf.Value`: the last of its kinds counts.
    fn any_value(&mut self, message: &[u8]) -> Result<(), ProtobufError> {
        let mut last = None;
        let mut fields = WireFields::of(message);
        while let Some((number, value)) = fields.next()? {
            if (1..=6).contains(&number) {
                last = Some((number, value));
            }
        }
        match last {
            None | Some((1, WireValue::Varint(_))) => self.literal("null"),
            Some((2, WireValue::Fixed64(bits))) => self.number(f64::from_bits(bits)),
            Some((3, WireValue::Bytes(text))) => self.text(text),
            Some((4, WireValue::Varint(bits))) => self.literal(if bits == 0 { "false" } else { "true" }),
            Some((5, WireValue::Bytes(message))) => self.object(message),
            Some((6, WireValue::Bytes(message))) => self.nested(|writer| {
                let mut list = Members::begin(b'[');
                let mut fields = WireFields::of(message);
                while let Some((number, value)) = fields.next()? {
                    if let (1, WireValue::Bytes(value)) = (number, value) {
                        list.item(writer.json);
                        writer.any_value(value)?;
                    }
                }
                list.end(b']', writer.json);
                Ok(())
            }),
            Some((number, _)) => Err(ProtobufError::WireType(number)),
        }
    }

    fn number(&mut self, number: f64) -> Result<(), ProtobufError> {
        if !number.is_finite() {
            // JSON has no such number, and one of them must not lose the rest.
            return self.literal("null");
        }
        if number.fract() == 0.0 && number.abs() < EXACT_INTEGERS {
            self.json.extend_from_slice(format!("{number:.0}").as_bytes());
            return Ok(());
        }
        self.json(&number)
    }

    fn text(&mut self, text: &[u8]) -> Result<(), ProtobufError> {
        let text = std::str::from_utf8(text).map_err(|_| ProtobufError::Text)?;
        self.json(text)
    }

    fn literal(&mut self, literal: &str) -> Result<(), ProtobufError> {
        self.json.extend_from_slice(literal.as_bytes());
        Ok(())
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProtobufError> {
        write_json(self.json, value).map_err(|_| ProtobufError::Text)
    }
}

/// An object or a list that is being written.
struct Members {
    /// The sign before the next member.
    before: u8,
    opening: Option<u8>,
}

impl Members {
    fn begin(opening: u8) -> Self {
        Self { before: opening, opening: Some(opening) }
    }

    fn item(&mut self, json: &mut Vec<u8>) {
        json.push(self.before);
        self.before = b',';
        self.opening = None;
    }

    fn name(&mut self, name: &str, json: &mut Vec<u8>) {
        self.item(json);
        // Writing to a vector cannot fail.
        json.extend(serde_json::to_vec(name).unwrap_or_default());
        json.push(b':');
    }

    fn end(self, closing: u8, json: &mut Vec<u8>) {
        json.extend(self.opening);
        json.push(closing);
    }
}

/// Returns key and value of an entry of a map.
fn map_entry(entry: WireValue<'_>) -> Result<(&str, Option<WireValue<'_>>), ProtobufError> {
    let WireValue::Bytes(entry) = entry else { return Err(ProtobufError::WireType(1)) };
    let (mut key, mut value) = ("", None);
    let mut fields = WireFields::of(entry);
    while let Some((number, found)) = fields.next()? {
        match (number, found) {
            (1, WireValue::Bytes(text)) => {
                key = std::str::from_utf8(text).map_err(|_| ProtobufError::Text)?
            }
            (2, found) => value = Some(found),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Returns `google.protobuf.Timestamp` as RFC 3339 text, in UTC and with 0, 3, 6 or 9 digits of a second.
fn timestamp(message: &[u8]) -> Result<String, ProtobufError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut fields = WireFields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, WireValue::Varint(bits)) => seconds = bits.cast_signed(),
            (2, WireValue::Varint(bits)) => nanos = int32(bits),
            _ => {}
        }
    }
    let moment = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| ProtobufError::Timestamp)?;
    let nanos =
        u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(ProtobufError::Timestamp)?;
    let (year, month, day) = moment.to_calendar_date();
    if !(1..=9999).contains(&year) {
        return Err(ProtobufError::Timestamp);
    }
    let (hour, minute, second) = moment.to_hms();
    let month = u8::from(month);
    let fraction = match nanos {
        0 => String::new(),
        nanos if nanos % 1_000_000 == 0 => format!(".{:03}", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => format!(".{:06}", nanos / 1_000),
        nanos => format!(".{nanos:09}"),
    };
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Returns the low half of a varint: negative numbers are extended to ten bytes.
fn int32(bits: u64) -> i32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn is_message(kind: FieldKind) -> bool {
    use FieldKind::{Message, Struct, Timestamp, Value};
    matches!(kind, Message(_) | Struct | Value | Timestamp)
}

fn is_default(value: WireValue<'_>) -> bool {
    match value {
        WireValue::Varint(bits) | WireValue::Fixed64(bits) => bits == 0,
        WireValue::Bytes(bytes) => bytes.is_empty(),
        WireValue::Fixed32 => false,
    }
}
