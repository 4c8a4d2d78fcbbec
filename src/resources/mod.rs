//! MCP resources: the providers of their families, and the rules that all families share.
//!
//! A [`ResourceProvider`] knows the content of one family. [`ResourceRegistry`] finds the provider
//! of a URI, limits the rate, applies the rules of authorization, filters and expires the content,
//! adds the facts (`_meta`), and writes the audit log. Out of scope: the methods of MCP and their
//! streams (see `mcp_server`).
//!
//! A family has a scheme of its own (`a2a://…`); `mcp://{server}/{family}/…` is another spelling of
//! each URI. Rules, rates and filters always see the URI in the scheme of the family.

mod a2a;
mod configured;
mod memory;
mod sparc;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::a2a::percent_encoded;
use crate::access::Authorizer;
use crate::bridge::catalogue::BuiltinTool;
use crate::bridge::provider_tools::ProviderTool;
use crate::bridge::resource_uri::parse_alias;
use crate::calls::ClientContext;
use crate::config::{FamilyPolicy, Resources};
use crate::fault::Fault;
use crate::limits::CallerRate;
use crate::mcp::ClientParams;
use crate::mcp::resources::{
    CachePolicy, DescribedContents, ReadResourceResult, Resource, ResourceMeta, ResourceTemplate,
};
use crate::mcp::tasks::iso8601;
use crate::mcp::tools::{CallToolResult, EmbeddedResource, ResourceContents};
use crate::quota::{BytePermit, QuotaOwner};
use crate::telemetry::access_log::ResourceAccess;

pub(crate) use a2a::A2aResources;
pub(crate) use configured::{HttpResources, StaticResources};
pub(crate) use memory::{MAX_WAITING_RESULTS, MemoryResources, TaskResultRecorder};
pub(crate) use sparc::SparcResources;

/// JSON Schemas of the contents, of which each family names one definition.
const SCHEMAS: &str = include_str!("../../schemas/resources.v1.json");
/// Path of the schemas below the name of the server.
const SCHEMAS_PATH: &str = "schemas/resources.v1.json";

/// Media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// Text in place of a filtered value.
const REDACTED: &str = "***";

/// A request for one resource.
#[derive(Clone, Copy)]
pub(crate) struct ResourceRequest<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    /// URI in the scheme of the family.
    pub(crate) uri: &'a str,
}

/// A request for one page of the resources of a caller.
#[derive(Clone, Copy)]
pub(crate) struct ListRequest<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    /// URI of the last resource of the page before.
    pub(crate) after: Option<&'a str>,
    /// Most resources of the page.
    pub(crate) limit: usize,
}

/// A request for the values of a variable of a template.
#[derive(Clone, Copy)]
pub(crate) struct CompletionRequest<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    pub(crate) template: &'a str,
    pub(crate) variable: &'a str,
    /// The params of the request, with the values of other variables.
    pub(crate) params: &'a ClientParams<'a>,
}

/// A call of a tool that a provider offers.
#[derive(Clone, Copy)]
pub(crate) struct ProviderCall<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    pub(crate) tool: &'a str,
    pub(crate) arguments: Option<&'a RawValue>,
}

/// Permissions of a caller besides reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResourcePermissions {
    /// The caller may change the resource, by a tool.
    pub(crate) write: bool,
    /// The caller may start the work that belongs to it, by a tool.
    pub(crate) execute: bool,
}

/// Facts about a resource for its reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceFacts {
    /// Time of the last change, in milliseconds since 1970.
    pub(crate) modified_ms: u64,
    pub(crate) policy: CachePolicy,
    pub(crate) permissions: ResourcePermissions,
    /// Name of the definition in the JSON Schemas.
    pub(crate) schema: &'static str,
}

/// One row of a list.
#[derive(Debug, Clone)]
pub(crate) struct ListedResource {
    /// URI in the scheme of the family.
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    /// Empty: none.
    pub(crate) description: String,
    pub(crate) media_type: String,
    pub(crate) facts: ResourceFacts,
}

/// Content of a resource.
pub(crate) struct ProvidedContent {
    /// Never empty.
    pub(crate) contents: Vec<EmbeddedResource>,
    pub(crate) facts: ResourceFacts,
    /// Permits for the bytes, until the response is encoded.
    pub(crate) held: Vec<BytePermit>,
}

impl ProvidedContent {
    /// Returns content that is one JSON text.
    pub(crate) fn json(uri: &str, text: String, facts: ResourceFacts) -> Self {
        let content = EmbeddedResource {
            uri: uri.to_owned(),
            media_type: Some(JSON.to_owned()),
            content: ResourceContents::Text(text),
        };
        Self { contents: vec![content], facts, held: Vec::new() }
    }
}

/// Signal for possible changes of a resource. A subscriber is notified when a signal comes and the
/// mark differs from the one before.
pub(crate) struct ChangeSource<'a> {
    pub(crate) changes: watch::Receiver<u64>,
    pub(crate) mark: Box<dyn Fn() -> u64 + Send + Sync + 'a>,
}

/// Provider of the resources of one family. All methods answer for the caller and the route of the
/// request: a resource of another caller does not exist.
#[async_trait]
pub(crate) trait ResourceProvider: Send + Sync {
    /// Returns the name of the family, such as `memory`: the type of its resources.
    fn family(&self) -> &'static str;

    /// Returns true if the provider serves URIs of this form. The URI is in the scheme of a family.
    fn serves(&self, uri: &str) -> bool {
        uri.strip_prefix(self.family()).is_some_and(|rest| rest.starts_with("://"))
    }

    /// Returns the templates of the URIs.
    fn templates(&self) -> Vec<ResourceTemplate>;

    /// Returns the resources that the caller may read, with URIs greater than `after`: at least the
    /// first `limit + 1` of them.
    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource>;

    /// Authorizes reading or subscribing by the rules for resources.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected, as if the resource did not exist.
    fn authorize(&self, authorizer: &Authorizer, request: ResourceRequest<'_>) -> Result<(), Fault> {
        authorizer.authorize_resource(request.client.requester(), None, request.uri)
    }

    /// Returns the content; `None` if there is no such resource for the caller.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault>;

    /// Returns the signal of changes; `None` if the caller cannot subscribe to this resource.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault>;

    /// Returns the values of a variable of one of the templates; `None` if the template is of
    /// another provider.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    async fn complete(&self, _request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        Ok(None)
    }

    /// Calls a tool of the provider, after its authorization; `None` if it has no such tool. The
    /// tools are declared in the catalogue of tools (see `discovery`).
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected.
    async fn call(&self, call: ProviderCall<'_>) -> Result<Option<CallToolResult>, Fault> {
        let _ = call;
        Ok(None)
    }

    /// Returns the URI for the log, without handles: those are secret.
    fn loggable<'u>(&self, uri: &'u str) -> Cow<'u, str> {
        Cow::Borrowed(uri)
    }

    /// Removes the state that is no longer needed. Called every few seconds.
    fn sweep(&self) {}
}

/// The types of agents.
#[derive(Debug, Clone)]
pub(crate) struct AgentTypes(BTreeMap<String, String>);

impl AgentTypes {
    pub(crate) fn new(settings: &Resources) -> Self {
        Self(settings.agent_types.clone())
    }

    /// Returns the type of an agent: the configured one, or its name.
    pub(crate) fn of<'a>(&'a self, agent: &'a str) -> &'a str {
        self.0.get(agent).map_or(agent, String::as_str)
    }
}

/// A provider with the limits and filters of its family.
pub(crate) struct ProviderRegistration {
    provider: Arc<dyn ResourceProvider>,
    policy: FamilyPolicy,
    rate: CallerRate,
}

impl ProviderRegistration {
    pub(crate) fn new(provider: Arc<dyn ResourceProvider>, policy: &FamilyPolicy) -> Self {
        Self { provider, policy: policy.clone(), rate: CallerRate::new(policy.rate, policy.rate) }
    }

    fn is_expired(&self, facts: &ResourceFacts) -> bool {
        let age = u128::from(unix_ms().saturating_sub(facts.modified_ms));
        self.policy.max_age.is_some_and(|most| age > most.as_millis())
    }
}

/// A resource of a family, found by its URI.
struct FoundResource<'r, 'u> {
    family: &'r ProviderRegistration,
    /// URI in the scheme of the family.
    uri: Cow<'u, str>,
}

/// Content with its facts, ready to be encoded.
pub(crate) struct ReadResource {
    pub(crate) result: ReadResourceResult,
    pub(crate) policy: CachePolicy,
    /// Permits for the bytes, until the response is encoded.
    pub(crate) held: Vec<BytePermit>,
}

/// All resources of the gateway.
pub(crate) struct ResourceRegistry {
    families: Vec<ProviderRegistration>,
    authorizer: Arc<Authorizer>,
    /// Name of the server in `mcp://{server}/…`, percent-encoded.
    server: String,
}

impl ResourceRegistry {
    /// Creates the registry of these providers. The first that serves a URI is asked.
    pub(crate) fn new(
        families: Vec<ProviderRegistration>,
        authorizer: Arc<Authorizer>,
        server_name: &str,
    ) -> Self {
        Self { families, authorizer, server: percent_encoded(server_name).to_string() }
    }

    /// Returns the templates of all families.
    pub(crate) fn templates(&self) -> Vec<ResourceTemplate> {
        self.families.iter().flat_map(|family| family.provider.templates()).collect()
    }

    /// Returns one page of the resources of a caller, sorted by URI, and true if more follow.
    pub(crate) fn list(&self, request: ListRequest<'_>) -> (Vec<Resource>, bool) {
        let mut rows: Vec<Resource> = Vec::new();
        for family in &self.families {
            let listed = family.provider.list(request).into_iter();
            let shown = listed.filter(|row| {
                request.after.is_none_or(|after| row.uri.as_str() > after) && !family.is_expired(&row.facts)
            });
            rows.extend(shown.map(|row| self.row(family, row)));
        }
        rows.sort_by(|one, other| one.uri.cmp(&other.uri));
        rows.dedup_by(|one, other| one.uri == other.uri);
        let has_more = rows.len() > request.limit;
        rows.truncate(request.limit);
        (rows, has_more)
    }

    fn row(&self, family: &ProviderRegistration, row: ListedResource) -> Resource {
        let meta = self.meta(family, &row.uri, &row.facts);
        Resource {
            meta,
            uri: row.uri,
            name: row.name,
            title: row.title,
            description: Some(row.description).filter(|text| !text.is_empty()),
            media_type: row.media_type,
        }
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn read(&self, request: ResourceRequest<'_>) -> Result<ReadResource, Fault> {
        let ResourceRequest { client, uri } = request;
        if let Some(schemas) = self.schemas(uri) {
            return Ok(schemas);
        }
        let Some(found) = self.find(uri) else { return Err(Fault::no_such_resource(uri)) };
        let own = ResourceRequest { client, uri: &found.uri };
        let content = Self::permit(&found, own, &self.authorizer);
        let content = match content {
            Ok(()) => found.family.provider.read(own).await,
            Err(fault) => Err(fault),
        };
        let content = content.and_then(|content| {
            let living = content.filter(|content| !found.family.is_expired(&content.facts));
            living.ok_or_else(|| Fault::no_such_resource(uri))
        });
        record_access(&found, client, "read", content.as_ref().err());
        let ProvidedContent { mut contents, facts, held } = content?;
        redact_contents(&mut contents, &found.family.policy.redact);
        let meta = self.meta(found.family, &found.uri, &facts);
        let described = contents.into_iter().map(|content| {
            let shown = if content.uri == *found.uri { uri.to_owned() } else { content.uri };
            let content = EmbeddedResource { uri: shown, ..content };
            DescribedContents { content, meta: Some(meta.clone()) }
        });
        Ok(ReadResource {
            result: ReadResourceResult { contents: described.collect() },
            policy: facts.policy,
            held,
        })
    }

    /// Subscribes to changes of a resource; `None` if there is no such resource, or it never
    /// changes.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        let Some(found) = self.find(uri) else { return Ok(None) };
        let subscribed =
            match Self::permit(&found, ResourceRequest { client, uri: &found.uri }, &self.authorizer) {
                Ok(()) => found.family.provider.subscribe(client, &found.uri).await,
                Err(fault) => Err(fault),
            };
        record_access(&found, client, "subscribe", subscribed.as_ref().err());
        subscribed
    }

    /// Subscribes for a session again, after [`Self::subscribe`] accepted it: the rate and the audit
    /// log do not count that twice.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn resubscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        let Some(found) = self.find(uri) else { return Ok(None) };
        let provider = &found.family.provider;
        provider.authorize(&self.authorizer, ResourceRequest { client, uri: &found.uri })?;
        provider.subscribe(client, &found.uri).await
    }

    /// Returns the values of a variable of a template; none if no provider has the template.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn complete(&self, request: CompletionRequest<'_>) -> Result<Vec<String>, Fault> {
        for family in &self.families {
            if let Some(values) = family.provider.complete(request).await? {
                return Ok(values);
            }
        }
        Ok(Vec::new())
    }

    /// Calls a tool of a provider; `None` if none has such a tool. The caller is authorized before.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected.
    pub(crate) async fn call(&self, call: ProviderCall<'_>) -> Result<Option<CallToolResult>, Fault> {
        for family in &self.families {
            if let Some(result) = family.provider.call(call).await? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    /// Returns true if the URI belongs to a family of the gateway, or has the form of one.
    pub(crate) fn is_own(&self, uri: &str) -> bool {
        self.find(uri).is_some()
    }

    /// Removes the state of callers that is no longer needed.
    pub(crate) fn sweep(&self) {
        for family in &self.families {
            family.rate.sweep();
            family.provider.sweep();
        }
    }

    fn permit(
        found: &FoundResource<'_, '_>,
        request: ResourceRequest<'_>,
        authorizer: &Authorizer,
    ) -> Result<(), Fault> {
        found.family.rate.check(&owner_of(request.client))?;
        found.family.provider.authorize(authorizer, request)
    }

    fn find<'u>(&self, uri: &'u str) -> Option<FoundResource<'_, 'u>> {
        let uri = match parse_alias(uri) {
            Some(alias) if *alias.server == *self.server => {
                Cow::Owned(format!("{}://{}", alias.family, alias.path))
            }
            Some(_) => return None,
            None => Cow::Borrowed(uri),
        };
        let family = self.families.iter().find(|family| family.provider.serves(&uri))?;
        Some(FoundResource { family, uri })
    }

    fn meta(&self, family: &ProviderRegistration, uri: &str, facts: &ResourceFacts) -> ResourceMeta {
        let ResourcePermissions { write, execute } = facts.permissions;
        let granted = [("read", true), ("write", write), ("execute", execute)];
        ResourceMeta {
            resource_id: uri.to_owned(),
            family: family.provider.family(),
            last_modified: iso8601(facts.modified_ms),
            cache_policy: facts.policy,
            permissions: granted.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect(),
            schema: format!("mcp://{}/{SCHEMAS_PATH}#/$defs/{}", self.server, facts.schema),
        }
    }

    /// Returns the JSON Schemas of all families, if the URI is theirs.
    fn schemas(&self, uri: &str) -> Option<ReadResource> {
        let path = uri.strip_prefix("mcp://")?.strip_prefix(self.server.as_str())?.strip_prefix('/')?;
        (path.split('#').next() == Some(SCHEMAS_PATH)).then(|| {
            let content = EmbeddedResource {
                uri: uri.to_owned(),
                media_type: Some("application/schema+json".to_owned()),
                content: ResourceContents::Text(SCHEMAS.to_owned()),
            };
            let contents = vec![DescribedContents { content, meta: None }];
            let result = ReadResourceResult { contents };
            ReadResource { result, policy: CachePolicy::Static, held: Vec::new() }
        })
    }
}

/// Returns the tools of the providers that are switched on.
pub(crate) fn builtin_tools(settings: &Resources) -> Vec<BuiltinTool> {
    let memory = ProviderTool::MEMORY.into_iter().filter(|_| settings.memory.is_some());
    let batches = ProviderTool::BATCH.into_iter().filter(|_| settings.batchtools.is_some());
    let tool = |tool: ProviderTool| BuiltinTool::new(tool.name(), true, |version| tool.json(version));
    memory.chain(batches).filter_map(tool).collect()
}

/// Returns the owner of the quotas of a request.
pub(crate) fn owner_of(client: &ClientContext<'_>) -> QuotaOwner {
    let named = || QuotaOwner::Caller(client.caller.name().into());
    client.quota_owner.clone().unwrap_or_else(named)
}

/// Returns the present time in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes the line of an access to the audit log.
fn record_access(
    found: &FoundResource<'_, '_>,
    client: &ClientContext<'_>,
    access: &'static str,
    fault: Option<&Fault>,
) {
    let provider = &found.family.provider;
    let resource = provider.loggable(&found.uri);
    let line = ResourceAccess {
        scope: client.requester().scope,
        caller: client.caller.name(),
        access,
        family: provider.family(),
        resource: &resource,
        outcome: fault.map_or("ok", Fault::word),
    };
    line.write();
}

/// Replaces the values that the pointers lead to in each JSON text. JSON that cannot be read is
/// replaced as a whole: it could not be filtered.
fn redact_contents(contents: &mut [EmbeddedResource], pointers: &[String]) {
    if pointers.is_empty() {
        return;
    }
    for piece in contents.iter_mut().filter(|piece| piece.media_type.as_deref().is_some_and(is_json)) {
        let text = match &mut piece.content {
            ResourceContents::Text(text) => text,
            // Not UTF-8, so that it could not be filtered.
            ResourceContents::Blob(blob) => {
                blob.clear();
                continue;
            }
        };
        *text = redacted_json(std::mem::take(text), pointers);
    }
}

/// Replaces the values that the pointers lead to in a JSON text.
fn redacted_json(text: String, pointers: &[String]) -> String {
    if pointers.is_empty() {
        return text;
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            pointers.iter().for_each(|pointer| redact(&mut value, pointer));
            value.to_string()
        }
        Err(_) => format!("{REDACTED:?}"),
    }
}

/// Returns true for the media type of JSON, or of a format in JSON, with or without parameters.
fn is_json(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name == JSON || name.ends_with("+json")
}

/// Replaces the values that a JSON pointer leads to. The step `*` stands for every member or
/// element.
fn redact(value: &mut Value, pointer: &str) {
    let Some(steps) = pointer.strip_prefix('/') else {
        *value = Value::String(REDACTED.to_owned());
        return;
    };
    let (step, rest) = steps.split_at(steps.find('/').unwrap_or(steps.len()));
    let name = step.replace("~1", "/").replace("~0", "~");
    match value {
        Value::Object(members) if step == "*" => members.values_mut().for_each(|each| redact(each, rest)),
        Value::Object(members) => {
            if let Some(member) = members.get_mut(&name) {
                redact(member, rest);
            }
        }
        Value::Array(elements) if step == "*" => elements.iter_mut().for_each(|each| redact(each, rest)),
        Value::Array(elements) => {
            if let Some(element) = name.parse().ok().and_then(|at: usize| elements.get_mut(at)) {
                redact(element, rest);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_filter_json() {
        for (pointer, expected) in [
            ("/a/b", r#"{"a":{"b":"***","c/d":[{"e":1},{"e":2}]},"f":3}"#),
            ("/a/c~1d/1/e", r#"{"a":{"b":1,"c/d":[{"e":1},{"e":"***"}]},"f":3}"#),
            ("/a/c~1d/*/e", r#"{"a":{"b":1,"c/d":[{"e":"***"},{"e":"***"}]},"f":3}"#),
            ("/*", r#"{"a":"***","f":"***"}"#),
            ("/f/g", r#"{"a":{"b":1,"c/d":[{"e":1},{"e":2}]},"f":3}"#),
        ] {
            let mut value: Value =
                serde_json::from_str(r#"{"a":{"b":1,"c/d":[{"e":1},{"e":2}]},"f":3}"#).unwrap();
            redact(&mut value, pointer);
            assert_eq!(value, serde_json::from_str::<Value>(expected).unwrap(), "{pointer}");
        }
    }

    #[test]
    fn unreadable_json_is_hidden() {
        let piece = |text: &str, media_type: &str| EmbeddedResource {
            uri: "u:a".into(),
            media_type: Some(media_type.into()),
            content: ResourceContents::Text(text.into()),
        };
        let mut contents = [piece("{", JSON), piece("{", "text/plain")];
        redact_contents(&mut contents, &["/a".to_owned()]);
        let shown: Vec<Value> =
            contents.iter().map(|piece| serde_json::json!(piece)["text"].clone()).collect();
        assert_eq!(shown, ["\"***\"", "{"]);
    }
}
