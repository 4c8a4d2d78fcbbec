//! Content blocks: what a tool result is made of.
//!
//! Reads mcp.md §2.4. Not here: which block an A2A part becomes (see `bridge::content`).

use serde::Serialize;

/// Which results of tools hold links to resources. The text names every URL all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResourceLinks {
    /// None: some clients fail at any link.
    None,
    /// Those of `subagent_start`: a link to the task.
    #[default]
    SubagentStart,
    /// All: of tasks, and of files that agents name by URL.
    All,
}

/// One piece of a tool result.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The characters.
        text: String,
        /// For whom it is; absent when it is for everybody.
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
    /// A picture.
    Image {
        /// Base64.
        data: String,
        /// `image/…`.
        #[serde(rename = "mimeType")]
        media_type: String,
    },
    /// Sound; since 2025-03-26.
    Audio {
        /// Base64.
        data: String,
        /// `audio/…`.
        #[serde(rename = "mimeType")]
        media_type: String,
    },
    /// A resource that travels along.
    Resource {
        /// The resource itself.
        resource: EmbeddedResource,
    },
    /// A resource that stays where it is; since 2025-06-18.
    ResourceLink {
        /// Where.
        uri: String,
        /// What it is called.
        name: String,
        /// Its media type.
        #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
}

impl ContentBlock {
    /// Plain text for everybody.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), annotations: None }
    }

    /// Text that only the model needs.
    pub fn for_the_model(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), annotations: Some(Annotations { audience: ["assistant"] }) }
    }
}

/// For whom a block is.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Annotations {
    audience: [&'static str; 1],
}

/// A resource with its content: in a tool result, or as the answer of `resources/read`.
#[derive(Debug, Clone, Serialize)]
pub struct EmbeddedResource {
    /// What it is known by.
    pub uri: String,
    /// Its media type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The content.
    #[serde(flatten)]
    pub content: ResourceContents,
}

/// Text or bytes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceContents {
    /// The characters.
    Text(String),
    /// Base64.
    Blob(String),
}
