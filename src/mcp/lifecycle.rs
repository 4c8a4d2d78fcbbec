//! `initialize` and `server/discover`: the gateway's description of itself.
//!
//! Follows `docs/spec/mcp.md` §1.4, §2.1.

use serde::Serialize;

use super::version::Version;

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
pub struct ServerCapabilities {
    tools: ListCapability,
    resources: ResourcesCapability,
    prompts: Empty,
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
    pub fn legacy(version: Version, lists_tasks: bool) -> Self {
        let tasks = TasksCapability {
            list: lists_tasks.then_some(Empty {}),
            cancel: Empty {},
            requests: TaskRequests { tools: ToolTasks { call: Empty {} } },
        };
        let tasks = version.has_core_tasks().then_some(tasks);
        Self { logging: Some(Empty {}), tasks, ..Self::either() }
    }

    /// Returns the capabilities for `server/discover`.
    pub fn modern() -> Self {
        Self { extensions: Some(ExtensionsCapability { tasks: Empty {} }), ..Self::either() }
    }

    fn either() -> Self {
        Self {
            tools: ListCapability { list_changed: true },
            resources: ResourcesCapability { subscribe: true, list_changed: true },
            prompts: Empty {},
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
pub struct InitializeResult<'a> {
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
pub struct DiscoverResult<'a> {
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
    pub fn new(instructions: Option<&'a str>) -> Self {
        Self {
            supported_versions: Version::MODERN.map(Version::as_str),
            capabilities: ServerCapabilities::modern(),
            instructions,
        }
    }
}

/// The result of `ping` and of every other method without a result; strictly empty.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EmptyResult {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
}
