//! `resources/*`, `prompts/list` and `completion/complete`: the shapes of their results.
//!
//! Reads mcp.md §2.5, §2.6. Not here: which resources there are (see `bridge::resources`).

use serde::Serialize;

use super::content::EmbeddedResource;

/// One resource of a list.
#[derive(Debug, Serialize)]
pub struct Resource<'a> {
    /// What it is read by.
    pub uri: String,
    /// What it is called.
    pub name: &'a str,
    /// What it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// Its media type.
    #[serde(rename = "mimeType")]
    pub media_type: &'static str,
}

/// The result of `resources/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListResourcesResult<'a> {
    /// One page, sorted by name.
    pub resources: Vec<Resource<'a>>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One template of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// RFC 6570.
    pub uri_template: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// What it leads to.
    pub description: &'static str,
    /// Media type of what it leads to.
    pub mime_type: &'static str,
}

/// The result of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListResourceTemplatesResult {
    /// All of them.
    pub resource_templates: &'static [ResourceTemplate],
}

/// The result of `resources/read`.
#[derive(Debug, Serialize)]
pub struct ReadResourceResult {
    /// The content; never empty.
    pub contents: Vec<EmbeddedResource>,
}

/// The result of `prompts/list`: there are none.
#[derive(Debug, Default, Serialize)]
pub struct ListPromptsResult {
    prompts: [(); 0],
}

/// The result of `completion/complete`.
#[derive(Debug, Serialize)]
pub struct CompleteResult<'a> {
    /// What could stand there.
    pub completion: Completion<'a>,
}

/// What an argument could be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion<'a> {
    /// At most 100.
    pub values: Vec<&'a str>,
    /// How many there are.
    pub total: usize,
    /// Whether there are more than these.
    pub has_more: bool,
}
