//! `initialize` and `server/discover`: what the gateway says about itself.
//!
//! Reads mcp.md §1.4, §2.1. Not here: sessions.

use serde::Serialize;

use super::version::Version;

/// Who the gateway is.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ServerInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

/// What the gateway can do. The same for both eras but for logging, which the modern one asks for per request.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ServerCapabilities {
    tools: Lists,
    resources: Resources,
    prompts: Empty,
    completions: Empty,
    #[serde(skip_serializing_if = "Option::is_none")]
    logging: Option<Empty>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Empty {}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lists {
    list_changed: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    subscribe: bool,
    list_changed: bool,
}

impl ServerCapabilities {
    /// For `initialize`.
    pub fn legacy() -> Self {
        Self { logging: Some(Empty {}), ..Self::modern() }
    }

    /// For `server/discover`.
    pub fn modern() -> Self {
        Self {
            tools: Lists { list_changed: true },
            resources: Resources { subscribe: true, list_changed: true },
            prompts: Empty {},
            completions: Empty {},
            logging: None,
        }
    }
}

/// The result of `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialized<'a> {
    /// The revision that the session will have.
    pub protocol_version: &'static str,
    /// What the gateway can do.
    pub capabilities: ServerCapabilities,
    /// Who the gateway is.
    pub server_info: ServerInfo<'a>,
    /// How to use it, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<&'a str>,
}

/// The result of `server/discover`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Discovered<'a> {
    /// The modern revisions; legacy ones are not told here (mcp.md §1.5).
    pub supported_versions: [&'static str; Version::MODERN.len()],
    /// What the gateway can do.
    pub capabilities: ServerCapabilities,
    /// How to use it, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<&'a str>,
}

impl<'a> Discovered<'a> {
    /// What there is to discover.
    pub fn new(instructions: Option<&'a str>) -> Self {
        Self {
            supported_versions: Version::MODERN.map(Version::as_str),
            capabilities: ServerCapabilities::modern(),
            instructions,
        }
    }
}

/// The result of `ping` and of everything else that has nothing to say; strictly empty.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Nothing {}
