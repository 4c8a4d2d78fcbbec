//! Durations and sizes in a form for people: `30s`, `4MiB`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A duration of the file: a whole number and one of the units `ms`, `s`, `m`, `h`, `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HumanDuration(pub(super) Duration);

/// A number of bytes of the file: a whole number, alone or with one of the units `KiB`, `MiB`,
/// `GiB`, `KB`, `MB`, `GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) usize);

const WAIT_HINT: &str = "a duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d";
const SIZE_HINT: &str =
    "a size: a whole number, alone (bytes) or with a unit, such as 1024, 64KiB, 4MiB or 10MB";

/// Parses a duration of the configuration, such as `250ms` or `4s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    HumanDuration::parse(text).map(|HumanDuration(duration)| duration)
}

impl HumanDuration {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(milliseconds).map(|total| Self(Duration::from_millis(total)))
    }
}

impl ByteSize {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let bytes: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "KB" | "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return None,
        };
        usize::try_from(number.checked_mul(bytes)?).ok().map(Self)
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|each: char| !each.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    // One space is a common form: `4 MiB`.
    Some((number.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        let fits = units.into_iter().find(|(unit, _)| total > 0 && total.is_multiple_of(*unit));
        let (unit, name) = fits.unwrap_or((1, "ms"));
        write!(out, "{}{name}", total / unit)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let fits = units.into_iter().find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (unit, name) = fits.unwrap_or((1, ""));
        write!(out, "{}{name}", self.0 / unit)
    }
}

/// Reads a text with `parse`; a bare number only where a unit is not needed.
struct UnitVisitor<T> {
    hint: &'static str,
    parse: fn(&str) -> Option<T>,
    bare: fn(u64) -> Option<T>,
}

impl<T> Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.hint)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::custom(format_args!("expected {}", self.hint)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.bare)(number).ok_or_else(|| E::custom(format_args!("has no unit; expected {}", self.hint)))
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor { hint: WAIT_HINT, parse: Self::parse, bare: |_| None })
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bare = |number| usize::try_from(number).ok().map(Self);
        deserializer.deserialize_any(UnitVisitor { hint: SIZE_HINT, parse: Self::parse, bare })
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d.",
            "type": "string",
            "pattern": "^[0-9]+ ?(ms|s|m|h|d)$",
        })
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes: a whole number, alone or with a unit, such as 64KiB, 4MiB or 10MB.",
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB|KB|kB|MB|GB)?$",
            "minimum": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, milliseconds) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("30d", 2_592_000_000)]
        {
            let wait = HumanDuration::parse(text).unwrap();
            assert_eq!(wait.0, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(wait.to_string(), text);
        }
        for text in ["", "s", "30", "1.5s", "-1s", "30 seconds", "1h30m", "999999999999999999d", "३s", "+3s"]
        {
            assert_eq!(HumanDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, shown) in [
            ("4MiB", 4_194_304, "4MiB"),
            ("64 KiB", 65_536, "64KiB"),
            ("10MB", 10_000_000, "10000000"),
            ("1024", 1024, "1KiB"),
            ("2GiB", 2_147_483_648, "2GiB"),
            ("7B", 7, "7"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for text in ["", "MiB", "4mib", "4M", "1.5MiB", "-1", "99999999999GiB"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }
}
