//! The resources of the configuration: texts and files under URIs of the operator's choice, and
//! templates of them (`resources.static`); and resources of existing systems: a JSON endpoint of an
//! HTTP server under such URIs, read with credentials of the gateway (`resources.http`).
//!
//! A `{NAME}` in the URI stands for one segment of the path. `{{NAME}}` in the text stands for its
//! value, and `{NAME}` in the URL for its value percent-encoded, so that it stays inside its segment;
//! `{caller}` in the URL is the name of the caller. Texts and files never change while the process
//! runs. All are served on the endpoint of all agents, and only read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use tokio::sync::watch;

use super::{
    ChangeSource, CompletionRequest, JSON, ListRequest, ListedResource, ProvidedContent, ResourceFacts,
    ResourcePermissions, ResourceProvider, ResourceRequest, is_json, unix_ms,
};
use crate::a2a::percent_encoded;
use crate::access::Authorizer;
use crate::auth::TlsIdentity;
use crate::calls::ClientContext;
use crate::config::prompts::filled;
use crate::config::{HttpResource, StaticResource};
use crate::fault::Fault;
use crate::http_edge::Route;
use crate::limits::Limits;
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tools::{EmbeddedResource, ResourceContents};
use crate::quota::AnswerRoom;
use crate::transport::{
    AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, TransportError, Upstream,
};

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
fn values_of(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
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

/// Name of the caller in the URL of an endpoint.
const CALLER: &str = "caller";
const CALLER_VARIABLE: &str = "{caller}";
/// Families of which such an endpoint may serve resources; other schemes belong to the last.
const FAMILIES: [&str; 4] = ["memory", "batchtools", "sparc", "http"];

/// One endpoint, ready to be called.
struct HttpEndpoint {
    settings: HttpResource,
    target: Upstream,
}

/// Provider of the endpoints of one family.
pub(crate) struct HttpResources {
    family: &'static str,
    endpoints: Vec<HttpEndpoint>,
    client: HttpClient,
    limits: Arc<Limits>,
    authorizer: Arc<Authorizer>,
}

impl HttpResources {
    /// Creates the providers of these endpoints, one for each family.
    ///
    /// # Errors
    ///
    /// The setting with which no request can be sent, as text.
    pub(crate) fn by_family(
        endpoints: &[HttpResource],
        client: &HttpClient,
        limits: &Arc<Limits>,
        authorizer: &Arc<Authorizer>,
    ) -> Result<Vec<Self>, String> {
        let mut families: BTreeMap<&'static str, Vec<HttpEndpoint>> = BTreeMap::new();
        for settings in endpoints {
            let scheme = settings.uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
            let [.., other] = FAMILIES;
            let family = FAMILIES.into_iter().find(|family| *family == scheme).unwrap_or(other);
            let target =
                target(settings).map_err(|problem| format!("resources.http: {}: {problem}", settings.uri))?;
            let endpoint = HttpEndpoint { settings: settings.clone(), target };
            families.entry(family).or_default().push(endpoint);
        }
        let provider = |(family, endpoints)| Self {
            family,
            endpoints,
            client: client.clone(),
            limits: limits.clone(),
            authorizer: authorizer.clone(),
        };
        Ok(families.into_iter().map(provider).collect())
    }

    /// Returns the endpoint of a URI, and the values of its variables.
    fn find(&self, uri: &str) -> Option<(&HttpEndpoint, BTreeMap<String, String>)> {
        self.endpoints.iter().find_map(|endpoint| Some((endpoint, values_of(&endpoint.settings.uri, uri)?)))
    }

    async fn fetch(
        &self,
        endpoint: &HttpEndpoint,
        values: BTreeMap<String, String>,
        request: ResourceRequest<'_>,
    ) -> Result<Option<ProvidedContent>, Fault> {
        let HttpResource { url, headers, max_bytes, .. } = &endpoint.settings;
        let caller = Some(request.client.caller.name()).filter(|_| url.contains(CALLER_VARIABLE));
        if values.values().map(String::as_str).chain(caller).any(leaves_its_segment) {
            return Ok(None);
        }
        let place = filled_url(url, values, request.client.caller.name());
        let place: Uri = place.parse().map_err(|_| Fault::no_such_resource(request.uri))?;
        let mut sent = Request::new(Bytes::new());
        *sent.method_mut() = Method::GET;
        *sent.uri_mut() = place.path_and_query().map(|path| path.clone().into()).unwrap_or_default();
        let shown = sent.headers_mut();
        shown.insert(ACCEPT, HeaderValue::from_static(JSON));
        for (name, secret) in headers {
            if let Ok(mut value) = HeaderValue::from_str(secret.expose()) {
                value.set_sensitive(true);
                shown.insert(name.clone(), value);
            }
        }
        let unavailable = |error: &TransportError| {
            tracing::info!(uri = endpoint.settings.uri, %error, "failed to read resource from its endpoint");
            let reason = match error {
                TransportError::NoRoom(no_room) => return Fault::from(*no_room),
                TransportError::TooLarge { limit } => format!("it has more than {limit} bytes (max_bytes)"),
                _ => "its endpoint does not respond".to_owned(),
            };
            Fault::ResourceUnavailable(reason)
        };
        let mut reply =
            self.client.send(&endpoint.target, sent).await.map_err(|error| unavailable(&error))?;
        match reply.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            status => {
                let status = status.as_u16();
                tracing::info!(
                    uri = endpoint.settings.uri,
                    status,
                    "failed to read resource from its endpoint"
                );
                let reason = format!("its endpoint responds with HTTP {status}");
                return Err(Fault::ResourceUnavailable(reason));
            }
        }
        let modified_ms = modified_ms(reply.headers()).unwrap_or_else(unix_ms);
        let has_json = has_json(reply.headers());
        let permit = self.limits.permit(request.client.quota_owner.as_ref());
        let mut room = AnswerRoom { limit: *max_bytes, permit };
        let body = reply.collect_in(&mut room).await.map_err(|error| unavailable(&error))?;
        // The text, its filtered copy, and the response.
        room.permit.set(body.len().saturating_mul(3)).map_err(Fault::from)?;
        let text = String::from_utf8(body.into())
            .ok()
            .filter(|text| has_json && serde_json::from_str::<IgnoredAny>(text).is_ok());
        let Some(text) = text else {
            tracing::info!(uri = endpoint.settings.uri, "endpoint of a resource did not answer with JSON");
            return Err(Fault::ResourceUnavailable("its endpoint does not respond with JSON".to_owned()));
        };
        let content = ProvidedContent::json(request.uri, text, facts(modified_ms));
        Ok(Some(ProvidedContent { held: vec![room.permit], ..content }))
    }
}

/// Returns the target of an endpoint.
fn target(settings: &HttpResource) -> Result<Upstream, String> {
    // The variables are in the path and the query.
    let base = settings.url.split('{').next().unwrap_or_default();
    let uri: Uri = base.parse().unwrap_or_default();
    let mut target = TargetSettings::new(uri, AddressPolicy::Trusted);
    let is_plain = target.uri.scheme_str() == Some("http");
    target.tls = TlsIdentity::new(&settings.tls, is_plain)?.tls(true);
    target.server_name.clone_from(&settings.tls.server_name);
    let timeout = settings.timeout;
    target.timeouts = ExchangeTimeouts {
        connect: timeout.min(target.timeouts.connect),
        first_byte: timeout,
        idle: timeout,
        total: timeout,
    };
    Upstream::new(target).map_err(|error| error.to_string())
}

/// Returns true for a value with a step that servers may resolve, also if it is percent-encoded.
fn leaves_its_segment(value: &str) -> bool {
    value.contains(char::is_control) || value.split(['/', '\\']).any(|step| matches!(step, "." | ".."))
}

/// Returns the URL with the values of its variables, percent-encoded.
fn filled_url(url: &str, mut values: BTreeMap<String, String>, caller: &str) -> String {
    values.insert(CALLER.to_owned(), caller.to_owned());
    let mut pieces = url.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}').unwrap_or_default();
        let value = values.get(name).map(|value| percent_encoded(value).to_string());
        filled.push_str(&value.unwrap_or_default());
        filled.push_str(rest);
    }
    filled
}

fn has_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_json)
}

fn modified_ms(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(LAST_MODIFIED)?.to_str().ok()?;
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn facts(modified_ms: u64) -> ResourceFacts {
    ResourceFacts {
        modified_ms,
        policy: CachePolicy::Dynamic,
        permissions: ResourcePermissions::default(),
        schema: "http",
    }
}

#[async_trait]
impl ResourceProvider for HttpResources {
    fn family(&self) -> &'static str {
        self.family
    }

    fn serves(&self, uri: &str) -> bool {
        self.find(uri).is_some()
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let settings = self.endpoints.iter().map(|endpoint| &endpoint.settings);
        let template = |one: &HttpResource| ResourceTemplate {
            uri_template: Cow::Owned(one.uri.clone()),
            name: Cow::Owned(one.name.clone()),
            description: Cow::Owned(one.description.clone().unwrap_or_default()),
            mime_type: Cow::Borrowed(JSON),
        };
        settings.filter(|one| one.is_template()).map(template).collect()
    }

    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let settings = self.endpoints.iter().map(|endpoint| &endpoint.settings);
        let is_listed = |one: &&HttpResource| {
            client.route == Route::AllAgents
                && !one.is_template()
                && self.authorizer.may_read(&client.caller, None, &one.uri)
        };
        let row = |one: &HttpResource| ListedResource {
            uri: one.uri.clone(),
            name: one.name.clone(),
            title: None,
            description: one.description.clone().unwrap_or_default(),
            media_type: JSON.to_owned(),
            facts: facts(unix_ms()),
        };
        settings.filter(is_listed).map(row).collect()
    }

    fn authorize(&self, authorizer: &Authorizer, request: ResourceRequest<'_>) -> Result<(), Fault> {
        let ResourceRequest { client, uri } = request;
        if client.route != Route::AllAgents {
            return Err(Fault::no_such_resource(uri));
        }
        authorizer.authorize_resource(client.requester(), None, uri)
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        match self.find(request.uri) {
            Some((endpoint, values)) => self.fetch(endpoint, values, request).await,
            None => Ok(None),
        }
    }

    async fn subscribe<'a>(
        &'a self,
        _client: &'a ClientContext<'a>,
        _uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        Ok(None)
    }

    async fn complete(&self, request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        let is_own = self.endpoints.iter().any(|endpoint| endpoint.settings.uri == request.template);
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

    #[test]
    fn values_stay_inside_their_segment() {
        for (value, expected) in [("..", true), ("a/../b", true), ("a\\..", true), ("a..b/c.d", false)] {
            assert_eq!(leaves_its_segment(value), expected, "{value}");
        }
        let values = BTreeMap::from([("key".to_owned(), "../a/b?c#d".to_owned())]);
        let url = filled_url("https://bank.example/{caller}/data/{key}?v=1", values, "key:ann & dns:x");
        assert_eq!(url, "https://bank.example/key%3Aann%20%26%20dns%3Ax/data/..%2Fa%2Fb%3Fc%23d?v=1");
    }
}
