//! `tools/list` and `tools/call`: the shapes of their results, and the content blocks in them.
//!
//! Follows `docs/spec/mcp.md` §2.3, §2.4. `bridge::catalogue` defines the tools, `bridge::content`
//! chooses the block for each A2A part.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::jsonrpc::JsonText;

/// The member of `_meta` that holds data of A2A extensions under their URIs, in requests and in
/// results: member names of `_meta` are not URIs in MCP.
pub const EXTENSIONS: &str = "mcp-a2a-gateway/extensions";

/// One tool, as a client sees it.
#[derive(Debug, Serialize)]
pub struct Tool<'a> {
    /// The tool's name.
    pub name: &'a str,
    /// The title for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// The purpose of the tool.
    pub description: &'a str,
    /// JSON Schema of its arguments; always an object.
    #[serde(rename = "inputSchema")]
    pub input_schema: &'a RawValue,
    /// JSON Schema of its structured content; since 2025-06-18.
    #[serde(rename = "outputSchema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<&'a RawValue>,
    /// Hints on its behaviour.
    pub annotations: ToolAnnotations<'a>,
    /// The ways to run it; 2025-11-25 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
}

/// The support of a tool for core tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// A call runs as a task if the client requests it.
    #[default]
    Optional,
    /// A call must run as a task.
    Required,
    /// A call cannot run as a task.
    Never,
}

impl TaskSupport {
    /// Returns the `execution` member; `None` for tools without tasks, which is the default of the
    /// protocol.
    pub fn execution(self) -> Option<ToolExecution> {
        let task_support = match self {
            Self::Optional => "optional",
            Self::Required => "required",
            Self::Never => return None,
        };
        Some(ToolExecution { task_support })
    }
}

/// The ways to run a tool.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecution {
    task_support: &'static str,
}

/// Hints about a tool. The gateway cannot know the behaviour of an agent, so the hints of an
/// agent's tool promise nothing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations<'a> {
    /// The title for people, in revisions where the tool itself has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// True if the tool only reads; false for an agent's tool, of which it is unknown.
    pub read_only_hint: bool,
    /// True if the tool may destroy something; true for an agent's tool, of which it is unknown.
    pub destructive_hint: bool,
    /// True if a second identical call has no effect; false for an agent's tool.
    pub idempotent_hint: bool,
    /// True if the tool interacts with the outside world, as agents do.
    pub open_world_hint: bool,
}

impl<'a> ToolAnnotations<'a> {
    /// Returns the hints for an agent's tool.
    pub(crate) fn of_an_agent(title: Option<&'a str>) -> Self {
        Self {
            title,
            read_only_hint: false,
            destructive_hint: true,
            idempotent_hint: false,
            open_world_hint: true,
        }
    }
}

/// The result of `tools/list`; each tool is encoded already.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListToolsResult<'a> {
    /// One page, sorted by name.
    pub tools: Vec<&'a RawValue>,
    /// Cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The result of `tools/call`.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    /// The content blocks.
    pub content: Vec<ContentBlock>,
    /// The same as data; since 2025-06-18, and an object for legacy clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Box<RawValue>>,
    /// True if the call failed in a way that a model can act on.
    pub is_error: bool,
    /// Data of the agent's A2A extensions, a JSON object; the result writer puts it into `_meta`.
    #[serde(skip)]
    pub extensions: Option<Box<RawValue>>,
}

/// The `_meta` of a tool result.
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

    /// Returns true if there is no `_meta` to write.
    pub(super) fn is_empty(&self) -> bool {
        self.extensions.is_none()
    }
}

impl CallToolResult {
    /// Returns a failure as text for the model.
    pub fn failure(text: impl Into<JsonText>) -> Self {
        Self { content: vec![ContentBlock::text(text)], is_error: true, ..Self::default() }
    }

    /// Returns the result with `isError` set to `is_error`.
    #[must_use]
    pub(crate) fn with_error(self, is_error: bool) -> Self {
        Self { is_error, ..self }
    }

    /// Returns the bytes of all texts and data.
    pub(super) fn bytes(&self) -> usize {
        let data = [&self.structured_content, &self.extensions].into_iter().flatten();
        let data = data.map(|data| data.get().len());
        self.content.iter().map(ContentBlock::bytes).chain(data).fold(0, usize::saturating_add)
    }

    pub(super) fn beside(&self) -> ResultMeta<'_> {
        ResultMeta::of(self.extensions.as_deref())
    }
}

/// The tool results that contain links to resources. The text names every URL in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResourceLinks {
    /// No results: some clients fail on any link.
    None,
    /// The results of `subagent_start`: a link to the task.
    #[default]
    SubagentStart,
    /// All results: links to tasks, and to files that agents name by URL.
    All,
}

/// One piece of a tool result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The characters.
        text: JsonText,
        /// The audience of the text; absent if the text is for all readers.
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// `image/…`.
        #[serde(rename = "mimeType")]
        media_type: String,
    },
    /// Audio; since 2025-03-26.
    Audio {
        /// Base64.
        data: String,
        /// `audio/…`.
        #[serde(rename = "mimeType")]
        media_type: String,
    },
    /// An embedded resource.
    Resource {
        /// The resource itself.
        resource: EmbeddedResource,
    },
    /// A link to a resource; since 2025-06-18.
    ResourceLink {
        /// URI of the resource.
        uri: String,
        /// Name of the resource.
        name: String,
        /// Media type.
        #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
}

impl ContentBlock {
    /// Returns plain text for all readers.
    pub fn text(text: impl Into<JsonText>) -> Self {
        Self::Text { text: text.into(), annotations: None }
    }

    /// Returns the bytes of its text or data.
    fn bytes(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.json_bytes(),
            Self::Image { data, .. } | Self::Audio { data, .. } => data.len(),
            Self::Resource { resource } => match &resource.content {
                ResourceContents::Text(data) | ResourceContents::Blob(data) => data.len(),
            },
            Self::ResourceLink { uri, .. } => uri.len(),
        }
    }

    /// Returns text that only the model needs.
    pub(crate) fn for_the_model(text: impl Into<JsonText>) -> Self {
        Self::Text { text: text.into(), annotations: Some(Annotations { audience: ["assistant"] }) }
    }
}

/// The audience of a block.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub struct Annotations {
    audience: [&'static str; 1],
}

/// A resource with its content: in a tool result, or in the result of `resources/read`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmbeddedResource {
    /// The resource's URI.
    pub uri: String,
    /// Media type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The content.
    #[serde(flatten)]
    pub content: ResourceContents,
}

/// Text or bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceContents {
    /// The characters.
    Text(String),
    /// Base64.
    Blob(String),
}
