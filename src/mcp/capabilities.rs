//! The capabilities that a client declares.
//!
//! Kept as bits, because a sealed session carries them. The gateway's own are in `lifecycle`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::jsonrpc::Object;

/// A set of client capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCapabilities(u16);

impl ClientCapabilities {
    /// The client can show its user a form.
    pub const FORM: Self = Self(1);
    /// The client can send its user to a URL.
    pub const URL: Self = Self(2);
    /// The client knows the tasks extension (2026-07-28).
    pub const TASKS_EXTENSION: Self = Self(4);
    /// The client can sample from a model. The gateway never asks for that.
    pub const SAMPLING: Self = Self(8);
    /// The client has roots. The gateway never asks for them.
    pub const ROOTS: Self = Self(16);

    /// Returns true if the set contains all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the client can put a question to its user, by form or by URL.
    pub fn can_be_asked(self) -> bool {
        self.has(Self::FORM) || self.has(Self::URL)
    }

    /// Returns the set as bits, for a sealed session.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Reads the set from its bits.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    fn with(self, other: Self, present: bool) -> Self {
        if present { Self(self.0 | other.0) } else { self }
    }
}

/// Written in the form in which a client declares them, to name missing capabilities.
impl Serialize for ClientCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let empty = BTreeMap::<&str, ()>::new;
        let mut members = serializer.serialize_map(None)?;
        let modes = [("form", Self::FORM), ("url", Self::URL)];
        let modes: BTreeMap<_, _> =
            modes.into_iter().filter(|(_, mode)| self.has(*mode)).map(|(name, _)| (name, empty())).collect();
        if !modes.is_empty() {
            members.serialize_entry("elicitation", &modes)?;
        }
        if self.has(Self::TASKS_EXTENSION) {
            let tasks = BTreeMap::from([("io.modelcontextprotocol/tasks", empty())]);
            members.serialize_entry("extensions", &tasks)?;
        }
        for (name, capability) in [("roots", Self::ROOTS), ("sampling", Self::SAMPLING)] {
            if self.has(capability) {
                members.serialize_entry(name, &empty())?;
            }
        }
        members.end()
    }
}

/// Only presence counts, not the value: old clients wrote `true`.
#[derive(Deserialize)]
struct WireCapabilities<'a> {
    #[serde(borrow, default)]
    elicitation: Option<&'a RawValue>,
    #[serde(default)]
    sampling: Option<IgnoredAny>,
    #[serde(default)]
    roots: Option<IgnoredAny>,
    #[serde(borrow, default)]
    extensions: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ElicitationCapability {
    #[serde(default)]
    form: Option<IgnoredAny>,
    #[serde(default)]
    url: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct ExtensionCapabilities {
    #[serde(default, rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<IgnoredAny>,
}

fn inside<'a, T: Deserialize<'a> + Default>(raw: &'a RawValue) -> T {
    serde_json::from_str::<Object<T>>(raw.get()).map_or_else(|_| T::default(), |Object(inside)| inside)
}

impl<'de> Deserialize<'de> for ClientCapabilities {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(wire) = Object::<WireCapabilities<'de>>::deserialize(deserializer)?;
        let (form, url) = match wire.elicitation.map(inside::<ElicitationCapability>) {
            // `{}` means forms, the only mode of 2025-06-18.
            Some(modes) => (modes.form.is_some() || modes.url.is_none(), modes.url.is_some()),
            None => (false, false),
        };
        let tasks = wire.extensions.is_some_and(|raw| inside::<ExtensionCapabilities>(raw).tasks.is_some());
        Ok(Self::default()
            .with(Self::FORM, form)
            .with(Self::URL, url)
            .with(Self::TASKS_EXTENSION, tasks)
            .with(Self::SAMPLING, wire.sampling.is_some())
            .with(Self::ROOTS, wire.roots.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for bits in 0..32 {
            let written = ClientCapabilities::from_bits(bits);
            let text = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<ClientCapabilities>(&text).unwrap(), written, "{text}");
        }
        let tasks = serde_json::to_string(&ClientCapabilities::TASKS_EXTENSION).unwrap();
        assert_eq!(tasks, r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    }

    #[test]
    fn capabilities_are_read_by_presence() {
        let all = |text| serde_json::from_str::<ClientCapabilities>(text).unwrap();
        assert_eq!(all("{}"), ClientCapabilities::default());
        assert!(all(r#"{"sampling":true,"roots":1}"#).has(ClientCapabilities::SAMPLING));
        assert!(all(r#"{"elicitation":{}}"#).has(ClientCapabilities::FORM));
        let url = all(r#"{"elicitation":{"url":{}}}"#);
        assert!(url.has(ClientCapabilities::URL) && !url.has(ClientCapabilities::FORM));
        assert!(
            all(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"x":1}"#)
                .has(ClientCapabilities::TASKS_EXTENSION)
        );
        assert!(serde_json::from_str::<ClientCapabilities>("[]").is_err());
    }
}
