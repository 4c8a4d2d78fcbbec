//! The resources of the configuration (`resources.static`): texts and files under URIs of the
//! operator's choice, and templates of them.
//!
//! A `{NAME}` in the URI stands for one segment of the path, and `{{NAME}}` in the text for its
//! value. The content never changes while the process runs. They are served on the endpoint of all
//! agents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;

use super::{
    ChangeSource, CompletionRequest, ListRequest, ListedResource, ProvidedContent, ResourceFacts,
    ResourcePermissions, ResourceProvider, ResourceRequest, unix_ms,
};
use crate::access::Authorizer;
use crate::calls::ClientContext;
use crate::config::StaticResource;
use crate::config::prompts::filled;
use crate::fault::Fault;
use crate::http_edge::Route;
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tools::{EmbeddedResource, ResourceContents};

/// Longest value of a variable, in bytes.
const MAX_VALUE_BYTES: usize = 1024;
/// Most bytes of a text with the values of its variables.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Provider of the resources of the configuration.
pub(crate) struct StaticResources {
    resources: Vec<StaticResource>,
    authorizer: Arc<Authorizer>,
    started_ms: u64,
    /// Never notified.
    changes: watch::Sender<u64>,
}

impl StaticResources {
    pub(crate) fn new(resources: Vec<StaticResource>, authorizer: Arc<Authorizer>) -> Self {
        Self { resources, authorizer, started_ms: unix_ms(), changes: watch::Sender::new(0) }
    }

    /// Returns the resource of a URI, and the values of its variables. A resource without variables
    /// wins over a template.
    fn find(&self, uri: &str) -> Option<(&StaticResource, BTreeMap<String, String>)> {
        if let Some(exact) = self.resources.iter().find(|one| !one.is_template() && one.uri == uri) {
            return Some((exact, BTreeMap::new()));
        }
        let mut templates = self.resources.iter().filter(|one| one.is_template());
        templates.find_map(|template| Some((template, values_of(&template.uri, uri)?)))
    }

    fn facts(&self) -> ResourceFacts {
        ResourceFacts {
            modified_ms: self.started_ms,
            policy: CachePolicy::Static,
            permissions: ResourcePermissions::default(),
            schema: "static",
        }
    }
}

/// Returns the values of the variables with which a template becomes the URI.
pub(super) fn values_of(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    let (mut template, mut rest) = (template, uri);
    while let Some((literal, after)) = template.split_once('{') {
        rest = rest.strip_prefix(literal)?;
        let (name, next) = after.split_once('}')?;
        let literal = next.split('{').next().unwrap_or_default();
        let end = if literal.is_empty() { rest.len() } else { rest.find(literal)? };
        let (value, left) = rest.split_at_checked(end)?;
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || value.contains(['/', '?', '#']) {
            return None;
        }
        let value = percent_decode_str(value).decode_utf8().ok()?;
        values.insert(name.to_owned(), value.into_owned());
        (template, rest) = (next, left);
    }
    (template == rest).then_some(values)
}

/// Returns the values as they stand inside the strings of a JSON text.
fn in_json(values: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let escaped = |value: String| {
        let quoted = serde_json::Value::String(value).to_string();
        quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
    };
    values.into_iter().map(|(name, value)| (name, escaped(value))).collect()
}

#[async_trait]
impl ResourceProvider for StaticResources {
    fn family(&self) -> &'static str {
        "static"
    }

    fn serves(&self, uri: &str) -> bool {
        self.find(uri).is_some()
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let templates = self.resources.iter().filter(|one| one.is_template());
        let template = |one: &StaticResource| ResourceTemplate {
            uri_template: Cow::Owned(one.uri.clone()),
            name: Cow::Owned(one.name.clone()),
            description: Cow::Owned(one.description.clone().unwrap_or_default()),
            mime_type: Cow::Owned(one.media_type.clone()),
        };
        templates.map(template).collect()
    }

    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let is_listed = |one: &&StaticResource| {
            client.route == Route::AllAgents
                && !one.is_template()
                && self.authorizer.may_read(&client.caller, None, &one.uri)
        };
        let row = |one: &StaticResource| ListedResource {
            uri: one.uri.clone(),
            name: one.name.clone(),
            title: one.title.clone(),
            description: one.description.clone().unwrap_or_default(),
            media_type: one.media_type.clone(),
            facts: self.facts(),
        };
        self.resources.iter().filter(is_listed).map(row).collect()
    }

    fn authorize(&self, authorizer: &Authorizer, request: ResourceRequest<'_>) -> Result<(), Fault> {
        let ResourceRequest { client, uri } = request;
        if client.route != Route::AllAgents {
            return Err(Fault::no_such_resource(uri));
        }
        authorizer.authorize_resource(client.requester(), None, uri)
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        let Some((found, values)) = self.find(request.uri) else { return Ok(None) };
        let content = match &found.content {
            ResourceContents::Blob(blob) => ResourceContents::Blob(blob.clone()),
            ResourceContents::Text(text) if found.is_template() => {
                let values = if found.media_type.ends_with("json") { in_json(values) } else { values };
                let too_large = || Fault::InvalidParams(format!("more than {MAX_TEXT_BYTES} bytes of text"));
                let mut room = MAX_TEXT_BYTES;
                ResourceContents::Text(filled(text, &values, &mut room).ok_or_else(too_large)?)
            }
            ResourceContents::Text(text) => ResourceContents::Text(text.clone()),
        };
        let media_type = Some(found.media_type.clone());
        let content = EmbeddedResource { uri: request.uri.to_owned(), media_type, content };
        Ok(Some(ProvidedContent { contents: vec![content], facts: self.facts(), held: Vec::new() }))
    }

    async fn subscribe<'a>(
        &'a self,
        _client: &'a ClientContext<'a>,
        _uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        Ok(Some(ChangeSource { changes: self.changes.subscribe(), mark: Box::new(|| 0) }))
    }

    async fn complete(&self, request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        let is_own = self.resources.iter().any(|one| one.uri == request.template);
        Ok(is_own.then(Vec::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_one_segment() {
        for (template, uri, expected) in [
            ("t://{id}/data", "t://123/data", Some(vec![("id", "123")])),
            ("t://{id}/data", "t://a%20b/data", Some(vec![("id", "a b")])),
            ("t://{a}/{b}", "t://x/y", Some(vec![("a", "x"), ("b", "y")])),
            ("t://{a}-{b}.txt", "t://x-y-z.txt", Some(vec![("a", "x"), ("b", "y-z")])),
            ("t://{id}/data", "t:///data", None),
            ("t://{id}/data", "t://1/2/data", None),
            ("t://{id}/data", "t://1/data/x", None),
            ("t://{id}", "t://1?x", None),
            ("t://x", "t://x", Some(Vec::new())),
        ] {
            let found = values_of(template, uri);
            let expected = expected.map(|values| {
                values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
            });
            assert_eq!(found, expected, "{template} {uri}");
        }
        assert_eq!(values_of("t://{id}", &format!("t://{}", "x".repeat(MAX_VALUE_BYTES + 1))), None);
    }

    #[test]
    fn values_stay_inside_their_json_string() {
        let values = BTreeMap::from([("id".to_owned(), "a\"b\\".to_owned())]);
        assert_eq!(in_json(values)["id"], "a\\\"b\\\\");
    }
}
