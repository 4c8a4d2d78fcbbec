//! `resources/*`, `prompts/list` and `completion/complete`: the shapes of their results.
//!
//! Follows `docs/spec/mcp.md` §2.5, §2.6. `bridge::resource_uri` defines the resources.

use serde::Serialize;

use super::content::EmbeddedResource;

/// One resource of a list.
#[derive(Debug, Serialize)]
pub struct Resource<'a> {
    /// The resource's URI.
    pub uri: String,
    /// The resource's name.
    pub name: &'a str,
    /// The resource's content, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    /// Media type.
    #[serde(rename = "mimeType")]
    pub media_type: &'static str,
}

/// The result of `resources/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListResourcesResult<'a> {
    /// One page, sorted by name.
    pub resources: Vec<Resource<'a>>,
    /// Cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One template of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// URI template (RFC 6570).
    pub uri_template: &'static str,
    /// The template's name.
    pub name: &'static str,
    /// The resources that the template leads to.
    pub description: &'static str,
    /// Media type of these resources.
    pub mime_type: &'static str,
}

/// The result of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListResourceTemplatesResult {
    /// All templates.
    pub resource_templates: &'static [ResourceTemplate],
}

/// The result of `resources/read`.
#[derive(Debug, Serialize)]
pub struct ReadResourceResult {
    /// The content; never empty.
    pub contents: Vec<EmbeddedResource>,
}

/// The result of `prompts/list`, always empty.
#[derive(Debug, Default, Serialize)]
pub struct ListPromptsResult {
    prompts: [(); 0],
}

/// The result of `completion/complete`.
#[derive(Debug, Serialize)]
pub struct CompleteResult<'a> {
    /// The possible values.
    pub completion: Completion<'a>,
}

/// The possible values of an argument.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion<'a> {
    /// At most 100.
    pub values: Vec<&'a str>,
    /// Number of possible values in all.
    pub total: usize,
    /// True if `values` is incomplete.
    pub has_more: bool,
}
