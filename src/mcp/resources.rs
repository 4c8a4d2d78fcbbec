//! `resources/*`, `prompts/list` and `completion/complete`: the shapes of their results.
//!
//! Follows `docs/spec/mcp.md` §2.5, §2.6. `bridge::resource_uri` defines the resources.

use serde::Serialize;

use super::content::EmbeddedResource;

/// One resource of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Resource<'a> {
    /// The resource's URI.
    pub(crate) uri: String,
    /// The resource's name.
    pub(crate) name: &'a str,
    /// The resource's content, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// Media type.
    #[serde(rename = "mimeType")]
    pub(crate) media_type: &'static str,
}

/// The result of `resources/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListResourcesResult<'a> {
    /// One page, sorted by name.
    pub(crate) resources: Vec<Resource<'a>>,
    /// Cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// One template of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceTemplate {
    /// URI template (RFC 6570).
    pub(crate) uri_template: &'static str,
    /// The template's name.
    pub(crate) name: &'static str,
    /// The resources that the template leads to.
    pub(crate) description: &'static str,
    /// Media type of these resources.
    pub(crate) mime_type: &'static str,
}

/// The result of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListResourceTemplatesResult {
    /// All templates.
    pub(crate) resource_templates: &'static [ResourceTemplate],
}

/// The result of `resources/read`.
#[derive(Debug, Serialize)]
pub(crate) struct ReadResourceResult {
    /// The content; never empty.
    pub(crate) contents: Vec<EmbeddedResource>,
}

/// The result of `prompts/list`, always empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListPromptsResult {
    prompts: [(); 0],
}

/// The result of `completion/complete`.
#[derive(Debug, Serialize)]
pub(crate) struct CompleteResult<'a> {
    /// The possible values.
    pub(crate) completion: Completion<'a>,
}

/// The possible values of an argument.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Completion<'a> {
    /// At most 100.
    pub(crate) values: Vec<&'a str>,
    /// Number of possible values in all.
    pub(crate) total: usize,
    /// True if `values` is incomplete.
    pub(crate) has_more: bool,
}
