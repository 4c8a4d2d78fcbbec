//! `tools/list` and `tools/call`: the shapes of their results.
//!
//! Reads mcp.md §2.3, §2.4. Not here: which tools there are (see `bridge::catalogue`).

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::content::ContentBlock;
use super::params::EXTENSIONS;

/// One tool, as a client sees it.
#[derive(Debug, Serialize)]
pub struct Tool<'a> {
    /// What it is called by.
    pub name: &'a str,
    /// What it is called for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// What it does.
    pub description: &'a str,
    /// JSON Schema of its arguments; always an object.
    #[serde(rename = "inputSchema")]
    pub input_schema: &'a RawValue,
    /// JSON Schema of its structured content; since 2025-06-18.
    #[serde(rename = "outputSchema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<&'a RawValue>,
    /// What to expect of it.
    pub annotations: ToolAnnotations<'a>,
    /// How it can be run; 2025-11-25 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
}

/// Whether a call of a tool can run as a task of the core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// If the client wants it to.
    #[default]
    Optional,
    /// It must.
    Required,
    /// It cannot.
    Never,
}

impl TaskSupport {
    /// How a tool says so; `None` where it says nothing, which means never.
    pub fn execution(self) -> Option<ToolExecution> {
        let task_support = match self {
            Self::Optional => "optional",
            Self::Required => "required",
            Self::Never => return None,
        };
        Some(ToolExecution { task_support })
    }
}

/// How a tool can be run.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecution {
    task_support: &'static str,
}

/// Hints about a tool. The gateway cannot know what an agent does, so they claim nothing good of an agent's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations<'a> {
    /// What it is called for people, where the tool itself cannot say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// Whether it only reads; of an agent's tool not known, so no.
    pub read_only_hint: bool,
    /// Whether it may destroy something; of an agent's tool not known, so yes.
    pub destructive_hint: bool,
    /// Whether calling it twice is like calling it once; of an agent's tool no.
    pub idempotent_hint: bool,
    /// Whether it deals with the world outside: an agent does.
    pub open_world_hint: bool,
}

impl<'a> ToolAnnotations<'a> {
    /// The hints for a tool of an agent.
    pub fn of_an_agent(title: Option<&'a str>) -> Self {
        Self {
            title,
            read_only_hint: false,
            destructive_hint: true,
            idempotent_hint: false,
            open_world_hint: true,
        }
    }
}

/// The result of `tools/list`; each tool is written already.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListToolsResult<'a> {
    /// One page, sorted by name.
    pub tools: Vec<&'a RawValue>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The result of `tools/call`.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    /// What the tool has to say.
    pub content: Vec<ContentBlock>,
    /// The same as data; since 2025-06-18, and an object for legacy clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Box<RawValue>>,
    /// Whether the call failed, in a way that a model can act on.
    pub is_error: bool,
    /// Data of the agent's extensions of A2A, a JSON object; whoever writes the result puts it into `_meta`.
    #[serde(skip)]
    pub extensions: Option<Box<RawValue>>,
}

/// What a result of a tool says in `_meta`.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ResultMeta<'a> {
    extensions: Option<&'a RawValue>,
}

impl Serialize for ResultMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        if let Some(extensions) = self.extensions {
            members.serialize_entry(EXTENSIONS, extensions)?;
        }
        members.end()
    }
}

impl<'a> ResultMeta<'a> {
    pub(super) fn of(extensions: Option<&'a RawValue>) -> Self {
        Self { extensions }
    }

    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.extensions.is_none()
    }
}

impl CallToolResult {
    /// A failure told to the model.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { content: vec![ContentBlock::text(text)], is_error: true, ..Self::default() }
    }

    /// Returns the result as an error, or not as one.
    #[must_use]
    pub fn with_error(self, is_error: bool) -> Self {
        Self { is_error, ..self }
    }

    pub(super) fn beside(&self) -> ResultMeta<'_> {
        ResultMeta::of(self.extensions.as_deref())
    }
}
