//! Content blocks: the parts of a tool result.
//!
//! Follows `docs/spec/mcp.md` §2.4. `bridge::content` chooses the block for each A2A part.

use serde::Serialize;

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
        text: String,
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
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), annotations: None }
    }

    /// Returns text that only the model needs.
    pub(crate) fn for_the_model(text: impl Into<String>) -> Self {
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
