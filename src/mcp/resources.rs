//! `resources/*`, `prompts/*` and `completion/complete`: the shapes of their results.
//!
//! Follows `docs/spec/mcp.md` §2.5, §2.6. `bridge::resource_uri` defines the resources,
//! `mcp_server::prompts` the prompts.

use std::borrow::Cow;

use serde::Serialize;

use super::tools::{ContentBlock, EmbeddedResource};

/// One resource of a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Resource {
    /// The resource's URI.
    pub(crate) uri: String,
    /// The resource's name.
    pub(crate) name: String,
    /// The name for people, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// The resource's content, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Media type.
    #[serde(rename = "mimeType")]
    pub(crate) media_type: String,
    /// The facts about the resource.
    #[serde(rename = "_meta")]
    pub(crate) meta: ResourceMeta,
}

/// The facts about a resource that do not belong to its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceMeta {
    /// The URI in the scheme of the family.
    pub(crate) resource_id: String,
    /// The family.
    #[serde(rename = "type")]
    pub(crate) family: &'static str,
    /// Time of the last change, in ISO 8601.
    pub(crate) last_modified: String,
    /// How long a copy is good.
    pub(crate) cache_policy: CachePolicy,
    /// The caller's permissions: `read`, `write`, `execute`.
    pub(crate) permissions: Vec<&'static str>,
    /// URL of the JSON Schema of the content.
    pub(crate) schema: String,
}

/// How long a copy of a resource is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CachePolicy {
    /// 30 seconds.
    Static,
    /// Not at all: each read is current.
    Dynamic,
    /// Until the next notification; a client without a subscription reads again.
    Realtime,
}

impl CachePolicy {
    /// Returns the time for which a client may keep a copy, in milliseconds.
    pub(crate) fn ttl_ms(self) -> u64 {
        match self {
            Self::Static => 30_000,
            Self::Dynamic | Self::Realtime => 0,
        }
    }
}

/// The result of `resources/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListResourcesResult {
    /// One page, sorted by URI.
    pub(crate) resources: Vec<Resource>,
    /// Cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// One template of `resources/templates/list`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceTemplate {
    /// URI template (RFC 6570).
    pub(crate) uri_template: Cow<'static, str>,
    /// The template's name.
    pub(crate) name: Cow<'static, str>,
    /// The resources that the template leads to.
    pub(crate) description: Cow<'static, str>,
    /// Media type of these resources.
    pub(crate) mime_type: Cow<'static, str>,
}

impl ResourceTemplate {
    /// Returns a template of which all texts are known when the gateway is built.
    pub(crate) const fn fixed(
        uri_template: &'static str,
        name: &'static str,
        description: &'static str,
        mime_type: &'static str,
    ) -> Self {
        Self {
            uri_template: Cow::Borrowed(uri_template),
            name: Cow::Borrowed(name),
            description: Cow::Borrowed(description),
            mime_type: Cow::Borrowed(mime_type),
        }
    }
}

/// The result of `resources/templates/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListResourceTemplatesResult {
    /// All templates.
    pub(crate) resource_templates: Vec<ResourceTemplate>,
}

/// The result of `resources/read`.
#[derive(Debug, Serialize)]
pub(crate) struct ReadResourceResult {
    /// The content; never empty.
    pub(crate) contents: Vec<DescribedContents>,
}

/// One piece of the content of a resource, with the facts about the resource.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DescribedContents {
    /// The piece.
    #[serde(flatten)]
    pub(crate) content: EmbeddedResource,
    /// The facts about the resource.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<ResourceMeta>,
}

/// One prompt of a list.
#[derive(Debug, Serialize)]
pub(crate) struct PromptEntry<'a> {
    /// The prompt's name.
    pub(crate) name: &'a str,
    /// The title for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'a str>,
    /// The prompt's purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// The arguments that the user gives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) arguments: Vec<PromptArgumentEntry<'a>>,
}

/// One argument of a prompt.
#[derive(Debug, Serialize)]
pub(crate) struct PromptArgumentEntry<'a> {
    /// The argument's name.
    pub(crate) name: &'a str,
    /// The title for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'a str>,
    /// The argument's meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// True if the prompt cannot be had without it.
    pub(crate) required: bool,
}

/// The result of `prompts/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListPromptsResult<'a> {
    /// One page, sorted by name.
    pub(crate) prompts: Vec<PromptEntry<'a>>,
    /// Cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// The result of `prompts/get`.
#[derive(Debug, Serialize)]
pub(crate) struct GetPromptResult<'a> {
    /// The prompt's purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// The messages; never empty.
    pub(crate) messages: Vec<PromptMessage>,
}

/// One message of a prompt.
#[derive(Debug, Serialize)]
pub(crate) struct PromptMessage {
    /// `user` or `assistant`.
    pub(crate) role: &'static str,
    /// Its only block.
    pub(crate) content: ContentBlock,
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
