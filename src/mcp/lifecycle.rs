//! `initialize` and `server/discover`: the gateway's description of itself, and the capabilities that
//! a client declares.
//!
//! Follows `docs/spec/mcp.md` §1.4, §2.1. The capabilities of a client are kept as bits, because a
//! sealed session carries them.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::version::Version;
use crate::jsonrpc::Object;

/// Name and version of the gateway.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Implementation<'a> {
    /// Name.
    pub name: &'a str,
    /// Version.
    pub version: &'a str,
}

/// The gateway's capabilities. Equal in both eras except for logging, which the modern era requests
/// per request, and tasks, which 2025-11-25 has in its core and the modern era as an extension.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ServerCapabilities {
    tools: ListCapability,
    resources: ResourcesCapability,
    prompts: ListCapability,
    completions: Empty,
    #[serde(skip_serializing_if = "Option::is_none")]
    logging: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<TasksCapability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<ExtensionsCapability>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Empty {}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListCapability {
    list_changed: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourcesCapability {
    subscribe: bool,
    list_changed: bool,
}

/// Tasks in the core.
#[derive(Debug, Clone, Copy, Serialize)]
struct TasksCapability {
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Empty>,
    cancel: Empty,
    requests: TaskRequests,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct TaskRequests {
    tools: ToolTasks,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct ToolTasks {
    call: Empty,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct ExtensionsCapability {
    #[serde(rename = "io.modelcontextprotocol/tasks")]
    tasks: Empty,
}

impl ServerCapabilities {
    /// Returns the capabilities for `initialize` of a revision. `lists_tasks` is true if the caller
    /// has a name of its own, so that its tasks can be told apart from those of others.
    pub(crate) fn legacy(version: Version, lists_tasks: bool) -> Self {
        let tasks = TasksCapability {
            list: lists_tasks.then_some(Empty {}),
            cancel: Empty {},
            requests: TaskRequests { tools: ToolTasks { call: Empty {} } },
        };
        let tasks = version.has_core_tasks().then_some(tasks);
        Self { logging: Some(Empty {}), tasks, ..Self::either() }
    }

    /// Returns the capabilities for `server/discover`.
    pub(crate) fn modern() -> Self {
        Self { extensions: Some(ExtensionsCapability { tasks: Empty {} }), ..Self::either() }
    }

    fn either() -> Self {
        Self {
            tools: ListCapability { list_changed: true },
            resources: ResourcesCapability { subscribe: true, list_changed: true },
            prompts: ListCapability { list_changed: true },
            completions: Empty {},
            logging: None,
            tasks: None,
            extensions: None,
        }
    }
}

/// The result of `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeResult<'a> {
    /// Revision of the session.
    pub protocol_version: &'static str,
    /// The gateway's capabilities.
    pub capabilities: ServerCapabilities,
    /// Name and version of the gateway.
    pub server_info: Implementation<'a>,
    /// Instructions for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<&'a str>,
}

/// The result of `server/discover`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiscoverResult<'a> {
    /// The modern revisions; legacy ones are not listed here (`docs/spec/mcp.md` §1.5).
    pub supported_versions: [&'static str; Version::MODERN.len()],
    /// The gateway's capabilities.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<&'a str>,
}

impl<'a> DiscoverResult<'a> {
    /// Returns the result with these instructions.
    pub(crate) fn new(instructions: Option<&'a str>) -> Self {
        Self {
            supported_versions: Version::MODERN.map(Version::as_str),
            capabilities: ServerCapabilities::modern(),
            instructions,
        }
    }
}

/// The result of `ping` and of every other method without a result; strictly empty.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct EmptyResult {}

/// A set of client capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCapabilities(u16);

impl ClientCapabilities {
    /// The client can show its user a form.
    pub const FORM: Self = Self(1);
    /// The client can send its user to a URL.
    pub const URL: Self = Self(2);
    /// The client knows the tasks extension (2026-07-28).
    pub(crate) const TASKS_EXTENSION: Self = Self(4);
    /// The client can sample from a model. The gateway never asks for that.
    pub(crate) const SAMPLING: Self = Self(8);
    /// The client has roots. The gateway never asks for them.
    pub(crate) const ROOTS: Self = Self(16);

    /// Returns true if the set contains all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the client can put a question to its user, by form or by URL.
    pub(crate) fn can_be_asked(self) -> bool {
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
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tasks_are_declared_where_the_revision_has_them_and_nowhere_else() {
        let core = |lists| {
            let mut tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
            if lists {
                tasks["list"] = json!({});
            }
            tasks
        };
        for (declared, tasks, extensions) in [
            (ServerCapabilities::legacy(Version::V2025_11_25, false), core(false), Value::Null),
            (ServerCapabilities::legacy(Version::V2025_11_25, true), core(true), Value::Null),
            (ServerCapabilities::legacy(Version::V2025_06_18, true), Value::Null, Value::Null),
            (ServerCapabilities::legacy(Version::V2024_11_05, true), Value::Null, Value::Null),
            (ServerCapabilities::modern(), Value::Null, json!({ "io.modelcontextprotocol/tasks": {} })),
        ] {
            let declared = serde_json::to_value(declared).unwrap();
            assert_eq!((&declared["tasks"], &declared["extensions"]), (&tasks, &extensions), "{declared}");
            assert_eq!(declared.as_object().unwrap().values().filter(|value| value.is_null()).count(), 0);
        }
    }

    #[test]
    fn written_lifecycle_reads_back() {
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
