//! Protobuf messages, written field by field (protobuf.dev, "Encoding").
//!
//! No value is built in between, and no length is measured before: libraries need both. Out of scope: reading, and the
//! types of messages.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wire type of a varint.
const VARINT: u32 = 0;
/// The wire type of eight bytes.
const FIXED_64: u32 = 1;
/// The wire type of a length and as many bytes.
const DELIMITED: u32 = 2;
/// The wire type of four bytes.
const FIXED_32: u32 = 5;

/// The lengths that take one byte are smaller.
const ONE_BYTE_LENGTHS: usize = 0x80;

/// Appends a field with a length: `write` appends its content.
pub(crate) fn delimited<T>(number: u32, protobuf: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    tag(number, DELIMITED, protobuf);
    // Room for the length of most fields. A longer one is moved.
    let place = protobuf.len();
    protobuf.push(0);
    let written = write(protobuf);
    let length = protobuf.len() - place - 1;
    match u8::try_from(length) {
        Ok(short) if length < ONE_BYTE_LENGTHS => {
            if let Some(place) = protobuf.get_mut(place) {
                *place = short;
            }
        }
        _ => {
            let mut long = Vec::with_capacity(5);
            varint(length as u64, &mut long);
            protobuf.splice(place..=place, long);
        }
    }
    written
}

/// Appends a string or bytes.
pub(crate) fn bytes_field(number: u32, value: &[u8], protobuf: &mut Vec<u8>) {
    tag(number, DELIMITED, protobuf);
    varint(value.len() as u64, protobuf);
    protobuf.extend_from_slice(value);
}

/// Appends an integer, an enum or a `bool`.
pub(crate) fn varint_field(number: u32, value: i64, protobuf: &mut Vec<u8>) {
    tag(number, VARINT, protobuf);
    varint(value.cast_unsigned(), protobuf);
}

/// Appends a `double`.
pub(crate) fn double_field(number: u32, value: f64, protobuf: &mut Vec<u8>) {
    tag(number, FIXED_64, protobuf);
    protobuf.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `fixed32`.
pub(crate) fn fixed32_field(number: u32, value: u32, protobuf: &mut Vec<u8>) {
    tag(number, FIXED_32, protobuf);
    protobuf.extend_from_slice(&value.to_le_bytes());
}

/// Appends a time as `fixed64`: nanoseconds since 1970, and 0 for one before.
pub(crate) fn nanoseconds_field(number: u32, at: SystemTime, protobuf: &mut Vec<u8>) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    tag(number, FIXED_64, protobuf);
    protobuf.extend_from_slice(&nanoseconds.to_le_bytes());
}

fn tag(number: u32, wire_type: u32, protobuf: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), protobuf);
}

fn varint(mut value: u64, protobuf: &mut Vec<u8>) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return protobuf.push(low & 0x7f);
        }
        protobuf.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_has_as_many_bytes_as_it_needs() {
        for (length, prefix) in [
            (0, &[0x0a, 0][..]),
            (127, &[0x0a, 0x7f]),
            (128, &[0x0a, 0x80, 0x01]),
            (300, &[0x0a, 0xac, 0x02]),
            (20_000, &[0x0a, 0xa0, 0x9c, 0x01]),
        ] {
            let content: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            let whole = [prefix, &content].concat();
            let (mut nested, mut plain) = (Vec::new(), Vec::new());
            delimited(1, &mut nested, |protobuf| protobuf.extend_from_slice(&content));
            bytes_field(1, &content, &mut plain);
            assert_eq!((nested, plain), (whole.clone(), whole), "{length}");
        }
    }

    #[test]
    fn fields_have_their_wire_types() {
        let mut message = Vec::new();
        varint_field(1, 150, &mut message);
        varint_field(2, -1, &mut message);
        fixed32_field(16, 0x0403_0201, &mut message);
        nanoseconds_field(7, UNIX_EPOCH + std::time::Duration::from_nanos(9), &mut message);
        double_field(2, 1.0, &mut message);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x85, 0x01, 1, 2, 3, 4],
            &[0x39, 9, 0, 0, 0, 0, 0, 0, 0],
            &[0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ];
        assert_eq!(message, expected.concat());
    }
}
