//! The resources of the memory bank: `memory://namespace/…`, `memory://data/…`, `memory://search/…`.
//!
//! A namespace is a name in the bank of the caller, or the handle of a conversation (`contextId`):
//! then its values belong to that conversation. A handle that is not the caller's is a name like
//! any other, in the caller's own bank. See also `memory` for the bank itself.
//!
//! [`TaskResultRecorder`] writes each finished task into the bank of its owners, under
//! `task:{taskId}:{phase}` in the namespace of its conversation. Only named callers own tasks.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tracing::info;

use super::a2a::TaskDescription;
use super::{
    AgentTypes, ChangeSource, CompletionRequest, JSON, ListRequest, ListedResource, ProvidedContent,
    ProviderCall, ResourceFacts, ResourcePermissions, ResourceProvider, ResourceRequest, owner_of,
    redacted_json, unix_ms,
};
use crate::a2a::percent_encoded;
use crate::access::Authorizer;
use crate::auth::Caller;
use crate::bridge::output::{OutputState, PHASE};
use crate::bridge::provider_tools::{ProviderTool, read_memory_delete, read_memory_store};
use crate::calls::{ClientContext, TaskLookup};
use crate::config::Resources;
use crate::fault::Fault;
use crate::http_edge::Route;
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tasks::iso8601;
use crate::mcp::tools::{CallToolResult, ContentBlock};
use crate::memory::{MemoryAddress, MemoryBank, MemoryRefusal, MemoryRow, NewValue, SearchPage, SearchQuery};
use crate::quota::QuotaOwner;
use crate::seal::{ContextRef, Sealer};
use crate::tasks::TaskEntry;

const KEYS_TEMPLATE: &str = "memory://namespace/{namespace}/keys{?limit,cursor}";
const DATA_TEMPLATE: &str = "memory://data/{namespace}/{key}";
const SEARCH_TEMPLATE: &str = "memory://search/{namespace}{?pattern,page,limit,cursor}";
/// Keys on a page without a `limit`.
const KEYS_PAGE: usize = 100;
/// Results on a page of a search without a `limit`.
const SEARCH_PAGE: usize = 20;
/// Most entries on a page.
const MAX_PAGE: usize = 1000;
/// Namespaces among the completions.
const MAX_COMPLETIONS: usize = 100;

/// Provider of the resources of the memory bank.
pub(crate) struct MemoryResources {
    pub(crate) bank: Arc<MemoryBank>,
    pub(crate) sealer: Sealer,
    pub(crate) authorizer: Arc<Authorizer>,
}

/// A resource of the memory bank, by its URI. Names are as the client wrote them, decoded.
#[derive(Debug, PartialEq, Eq)]
enum MemoryUri<'a> {
    Keys { namespace: Cow<'a, str>, page: PageRequest },
    Data { namespace: Cow<'a, str>, key: Cow<'a, str> },
    Search { namespace: Cow<'a, str>, pattern: String, page: PageRequest },
}

/// Position and size of a page.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageRequest {
    number: Option<usize>,
    limit: Option<usize>,
    after: Option<String>,
}

impl<'a> MemoryUri<'a> {
    fn parse(uri: &'a str) -> Option<Self> {
        let rest = uri.strip_prefix("memory://")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (kind, rest) = path.split_once('/')?;
        match kind {
            "namespace" => {
                let namespace = decoded(rest.strip_suffix("/keys")?)?;
                Some(Self::Keys { namespace, page: PageRequest::parse(query)? })
            }
            "data" => {
                let (namespace, key) = rest.split_once('/')?;
                Some(Self::Data { namespace: decoded(namespace)?, key: decoded(key)? })
            }
            "search" => {
                let pattern = parameters(query).find(|(name, _)| *name == "pattern");
                let pattern = pattern.and_then(|(_, value)| decoded(value))?.into_owned();
                Some(Self::Search { namespace: decoded(rest)?, pattern, page: PageRequest::parse(query)? })
            }
            _ => None,
        }
    }
}

impl PageRequest {
    fn parse(query: &str) -> Option<Self> {
        let mut page = Self::default();
        for (name, value) in parameters(query) {
            let number = || value.parse::<usize>().ok().filter(|number| *number > 0);
            match name {
                "page" => page.number = Some(number()?),
                "limit" => page.limit = Some(number()?.min(MAX_PAGE)),
                "cursor" => page.after = Some(open_cursor(value)?),
                _ => {}
            }
        }
        Some(page)
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(_, value)| !value.is_empty())
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok().filter(|text| !text.is_empty())
}

fn cursor(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn open_cursor(cursor: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

fn data_uri(namespace: &str, key: &str) -> String {
    format!("memory://data/{}/{}", percent_encoded(namespace), percent_encoded(key))
}

#[async_trait]
impl ResourceProvider for MemoryResources {
    fn family(&self) -> &'static str {
        "memory"
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let keys = "The keys of a namespace of your memory bank, in pages";
        let search = "A search in a namespace: a glob such as task:*:specification, or words";
        vec![
            ResourceTemplate::fixed(KEYS_TEMPLATE, "memory keys", keys, JSON),
            ResourceTemplate::fixed(DATA_TEMPLATE, "memory value", "A value of your memory bank", JSON),
            ResourceTemplate::fixed(SEARCH_TEMPLATE, "memory search", search, JSON),
        ]
    }

    /// Lists the namespaces of the caller.
    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let (owner, now_ms) = (owner_of(client), unix_ms());
        let names = self.bank.namespaces(&owner, now_ms);
        let row = |stored: Arc<str>| {
            let namespace = self.shown_namespace(client, &stored)?;
            let uri = format!("memory://namespace/{}/keys", percent_encoded(&namespace));
            let is_listed = request.after.is_none_or(|after| uri.as_str() > after)
                && self.authorizer.may_read(&client.caller, None, &uri);
            is_listed.then(|| ListedResource {
                uri,
                name: namespace,
                title: None,
                description: "A namespace of your memory bank".to_owned(),
                media_type: JSON.to_owned(),
                facts: self.facts(client, now_ms, CachePolicy::Realtime, "memoryKeys"),
            })
        };
        let mut rows: Vec<ListedResource> = names.into_iter().filter_map(row).collect();
        rows.sort_by(|one, other| one.uri.cmp(&other.uri));
        rows.truncate(request.limit + 1);
        rows
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        let ResourceRequest { client, uri } = request;
        let (owner, now_ms) = (owner_of(client), unix_ms());
        let Some(parsed) = MemoryUri::parse(uri) else { return Ok(None) };
        Ok(match parsed {
            MemoryUri::Keys { namespace, page } => {
                let stored = self.stored_namespace(client, &namespace);
                let limit = page.limit.unwrap_or(KEYS_PAGE);
                let found = self.bank.list(&owner, &stored, page.after.as_deref(), limit, now_ms).await;
                let modified = found.entries.iter().map(|entry| entry.row.modified_ms).max();
                let keys = found.entries.iter().map(|entry| {
                    let row = &entry.row;
                    json!({
                        "key": *entry.key,
                        "created": iso8601(row.created_ms),
                        "accessed": iso8601(row.accessed_ms),
                        "size": row.value.len(),
                        "ttl": row.ttl_seconds,
                    })
                });
                let stats = json!({
                    "total": found.stats.total,
                    "size": found.stats.size,
                    "oldestEntry": found.stats.oldest_ms.map(iso8601),
                });
                let mut value =
                    json!({ "namespace": namespace, "keys": keys.collect::<Vec<_>>(), "stats": stats });
                add_cursor(&mut value, found.next.as_deref());
                let policy = CachePolicy::Realtime;
                let facts = self.facts(client, modified.unwrap_or(now_ms), policy, "memoryKeys");
                Some(ProvidedContent::json(uri, value.to_string(), facts))
            }
            MemoryUri::Data { namespace, key } => {
                let stored = self.stored_namespace(client, &namespace);
                let at = MemoryAddress { owner: &owner, namespace: &stored, key: &key };
                self.bank.get(at, now_ms).await.map(|row| {
                    let facts = self.facts(client, row.modified_ms, CachePolicy::Realtime, "memoryData");
                    ProvidedContent::json(uri, data_json(&namespace, &key, &row), facts)
                })
            }
            MemoryUri::Search { namespace, pattern, page } => {
                let stored = self.stored_namespace(client, &namespace);
                let query = SearchQuery {
                    pattern,
                    page: page.number.unwrap_or(1),
                    limit: page.limit.unwrap_or(SEARCH_PAGE),
                    after: page.after,
                };
                let found = self.bank.search(&owner, &stored, &query, now_ms).await;
                let found = found.map_err(|refusal| Fault::InvalidParams(refusal.to_string()))?;
                let facts = self.facts(client, now_ms, CachePolicy::Dynamic, "memorySearch");
                let value = search_json(&namespace, &query, &found);
                Some(ProvidedContent::json(uri, value.to_string(), facts))
            }
        })
    }

    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        let (namespace, key) = match MemoryUri::parse(uri) {
            Some(MemoryUri::Keys { namespace, .. }) => (namespace, None),
            Some(MemoryUri::Data { namespace, key }) => (namespace, Some(key.into_owned())),
            // Any change of the namespace may change what a search finds.
            Some(MemoryUri::Search { namespace, .. }) => (namespace, None),
            None => return Ok(None),
        };
        let (owner, stored) = (owner_of(client), self.stored_namespace(client, &namespace));
        let changes = self.bank.changes_of(&owner);
        let mark = move || self.bank.version_of(&owner, &stored, key.as_deref(), unix_ms());
        Ok(Some(ChangeSource { changes, mark: Box::new(mark) }))
    }

    async fn complete(&self, request: CompletionRequest<'_>) -> Result<Option<Vec<String>>, Fault> {
        let CompletionRequest { client, template, variable, .. } = request;
        if ![KEYS_TEMPLATE, DATA_TEMPLATE, SEARCH_TEMPLATE].contains(&template) {
            return Ok(None);
        }
        let names = match variable {
            "namespace" => self.bank.namespaces(&owner_of(client), unix_ms()),
            _ => Vec::new(),
        };
        let shown = names.iter().filter_map(|stored| self.shown_namespace(client, stored));
        Ok(Some(shown.take(MAX_COMPLETIONS).collect()))
    }

    async fn call(&self, call: ProviderCall<'_>) -> Result<Option<CallToolResult>, Fault> {
        let ProviderCall { client, tool, arguments } = call;
        let done = match ProviderTool::from_name(tool) {
            Some(ProviderTool::MemoryStore) => match read_memory_store(arguments) {
                Ok(store) => {
                    let value = NewValue { json: store.json, ttl_seconds: store.ttl_seconds };
                    self.store(client, &store.namespace, &store.key, value).await
                }
                Err(problem) => Err(problem),
            },
            Some(ProviderTool::MemoryDelete) => match read_memory_delete(arguments) {
                Ok(delete) => self.delete(client, &delete.namespace, &delete.key).await,
                Err(problem) => Err(problem),
            },
            _ => return Ok(None),
        };
        Ok(Some(match done {
            Ok(value) => CallToolResult {
                content: vec![ContentBlock::text(value.to_string())],
                structured_content: to_raw_value(&value).ok(),
                ..CallToolResult::default()
            },
            Err(problem) => CallToolResult::failure(problem),
        }))
    }

    /// Keys and namespaces may hold handles: only the kind of the resource is logged.
    fn loggable<'u>(&self, uri: &'u str) -> Cow<'u, str> {
        let rest = uri.strip_prefix("memory://").unwrap_or_default();
        let kind = rest.split(['/', '?']).next().unwrap_or_default();
        let known = ["namespace", "data", "search"].contains(&kind);
        Cow::Owned(format!("memory://{}", if known { kind } else { "" }))
    }

    fn sweep(&self) {
        self.bank.sweep(unix_ms());
    }
}

impl MemoryResources {
    async fn store(
        &self,
        client: &ClientContext<'_>,
        namespace: &str,
        key: &str,
        value: NewValue,
    ) -> Result<Value, String> {
        let (owner, stored) = (owner_of(client), self.stored_namespace(client, namespace));
        let at = MemoryAddress { owner: &owner, namespace: &stored, key };
        let row = self.bank.store(at, value, unix_ms()).await.map_err(|refusal| refusal.to_string())?;
        Ok(json!({
            "namespace": namespace,
            "key": key,
            "uri": data_uri(namespace, key),
            "size": row.value.len(),
            "ttl": row.ttl_seconds,
            "created": iso8601(row.created_ms),
        }))
    }

    async fn delete(&self, client: &ClientContext<'_>, namespace: &str, key: &str) -> Result<Value, String> {
        let (owner, stored) = (owner_of(client), self.stored_namespace(client, namespace));
        let at = MemoryAddress { owner: &owner, namespace: &stored, key };
        let deleted = self.bank.delete(at, unix_ms()).await.map_err(|refusal| refusal.to_string())?;
        Ok(json!({ "deleted": deleted }))
    }

    /// Returns the name of a namespace in the bank: names and conversations never meet.
    fn stored_namespace(&self, client: &ClientContext<'_>, namespace: &str) -> String {
        match ContextRef::open(&self.sealer, client.caller.name(), namespace) {
            Some(ContextRef { agent, context }) => conversation_namespace(&agent, Some(&context)),
            None => format!("n{namespace}"),
        }
    }

    /// Returns the name of a namespace as the client writes it.
    fn shown_namespace(&self, client: &ClientContext<'_>, stored: &str) -> Option<String> {
        match stored.strip_prefix('n') {
            Some(name) => Some(name.to_owned()),
            None => {
                let (agent, context) = stored.strip_prefix('c')?.split_once('/')?;
                let (agent, context) = (agent.to_owned(), context.to_owned());
                let handle = ContextRef { agent, context }.seal(&self.sealer, client.caller.name());
                Some(handle.into_string())
            }
        }
    }

    fn facts(
        &self,
        client: &ClientContext<'_>,
        modified_ms: u64,
        policy: CachePolicy,
        schema: &'static str,
    ) -> ResourceFacts {
        let write = self.authorizer.may_call_builtin(&client.caller, ProviderTool::MemoryStore.name());
        ResourceFacts {
            modified_ms,
            policy,
            permissions: ResourcePermissions { write, execute: false },
            schema,
        }
    }
}

/// Returns the name of the namespace of a conversation in the bank; without a conversation, that of
/// the namespace with the name of the agent.
pub(super) fn conversation_namespace(agent: &str, context: Option<&str>) -> String {
    let known = context.map(|context| ContextRef { agent: agent.to_owned(), context: context.to_owned() });
    match known.filter(ContextRef::fits) {
        Some(ContextRef { agent, context }) => format!("c{agent}/{context}"),
        None => format!("n{agent}"),
    }
}

fn metadata(namespace: &str, row: &MemoryRow) -> Value {
    json!({
        "namespace": namespace,
        "created": iso8601(row.created_ms),
        "accessed": iso8601(row.accessed_ms),
        "accessCount": row.access_count,
        "ttl": row.ttl_seconds,
    })
}

/// Returns the resource of a value. The value keeps the digits of its numbers.
fn data_json(namespace: &str, key: &str, row: &MemoryRow) -> String {
    let (key, metadata) = (json!(key), metadata(namespace, row));
    format!(r#"{{"key":{key},"value":{},"metadata":{metadata}}}"#, row.value)
}

fn search_json(namespace: &str, query: &SearchQuery, found: &SearchPage) -> Value {
    let results = found.hits.iter().map(|hit| {
        json!({
            "key": *hit.entry.key,
            "score": (hit.score * 1000.0).round() / 1000.0,
            "preview": hit.entry.row.preview(),
            "metadata": metadata(namespace, &hit.entry.row),
        })
    });
    let mut pagination = json!({
        "total": found.total,
        "totalIsExact": found.is_total_exact,
        "page": query.page,
        "limit": query.limit,
    });
    add_cursor(&mut pagination, found.next.as_deref());
    json!({
        "pattern": query.pattern,
        "namespace": namespace,
        "results": results.collect::<Vec<_>>(),
        "pagination": pagination,
    })
}

fn add_cursor(value: &mut Value, next: Option<&str>) {
    if let (Value::Object(members), Some(next)) = (value, next) {
        members.insert("nextCursor".to_owned(), cursor(next).into());
    }
}

/// Finished tasks that wait until they are recorded.
pub(crate) const MAX_WAITING_RESULTS: usize = 4096;
/// Last part of the key of a task without a phase.
const NO_PHASE: &str = "result";

/// Writes finished tasks into the memory bank, with the settings of the present configuration.
pub(crate) struct TaskResultRecorder<'a> {
    pub(crate) lookup: &'a TaskLookup,
    pub(crate) bank: &'a MemoryBank,
    pub(crate) settings: &'a Resources,
}

impl TaskResultRecorder<'_> {
    /// Writes a task that has finished, if it has owners and results are recorded.
    pub(crate) async fn record(&self, entry: &TaskEntry) {
        if !self.lookup.settings.records_results {
            return;
        }
        let (is_finished, owners) = entry.visible_state(|inside| {
            let owners: Vec<String> = inside.owners().map(str::to_owned).collect();
            (inside.work.state() == OutputState::Finished && inside.work.task_id.is_some(), owners)
        });
        let callers = owners.into_iter().map(|name| Caller::hypothetical(&name, Vec::new(), Vec::new()));
        for caller in callers.filter(|caller| is_finished && !caller.is_anonymous()) {
            if let Err(refusal) = self.record_for(caller, entry).await {
                info!(agent = %entry.agent(), error = %refusal, "failed to record finished task in memory bank");
            }
        }
    }

    async fn record_for(&self, caller: Caller, entry: &TaskEntry) -> Result<(), MemoryRefusal> {
        let owner = QuotaOwner::Caller(caller.name().into());
        let client = ClientContext::detached(caller, Route::AllAgents, Some(owner.clone()));
        let handle = self.lookup.handle_of(entry, &client);
        let (namespace, phase) = entry.visible_state(|inside| {
            let rule = || self.lookup.settings.phase_of(inside.work.skill.as_deref()).map(str::to_owned);
            let phase = inside.work.metadata.text(PHASE).or_else(rule);
            let context = inside.work.context_id.as_deref();
            (conversation_namespace(entry.agent(), context), phase)
        });
        let key = format!("task:{handle}:{}", phase.as_deref().unwrap_or(NO_PHASE));
        let most = self.bank.limits().value_bytes;
        // Artifacts are still readable by their URIs.
        let artifacts = entry.visible_state(|inside| inside.work.artifact_bytes());
        let inline = if artifacts > most { 0 } else { most };
        let agent_types = AgentTypes::new(self.settings);
        let view = TaskDescription { lookup: self.lookup, agent_types: &agent_types, client: &client };
        let mut json = view.json(&handle, entry, inline);
        if json.len() > most {
            json = view.json(&handle, entry, 0);
        }
        let json = redacted_json(json, &self.settings.a2a.redact);
        let at = MemoryAddress { owner: &owner, namespace: &namespace, key: &key };
        self.bank.store_soon(at, NewValue { json, ttl_seconds: None }, unix_ms()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_names_and_pages() {
        let page = |number, limit, after: Option<&str>| PageRequest {
            number,
            limit,
            after: after.map(str::to_owned),
        };
        for (uri, expected) in [
            (
                "memory://namespace/a%2Fb/keys",
                Some(MemoryUri::Keys { namespace: "a/b".into(), page: PageRequest::default() }),
            ),
            (
                "memory://namespace/n/keys?limit=5000&cursor=azE",
                Some(MemoryUri::Keys { namespace: "n".into(), page: page(None, Some(1000), Some("k1")) }),
            ),
            (
                "memory://data/n/task:7:x/y%3F",
                Some(MemoryUri::Data { namespace: "n".into(), key: "task:7:x/y?".into() }),
            ),
            (
                "memory://search/n?pattern=task:*:specification&page=2",
                Some(MemoryUri::Search {
                    namespace: "n".into(),
                    pattern: "task:*:specification".into(),
                    page: page(Some(2), None, None),
                }),
            ),
            ("memory://search/n", None),
            ("memory://search/n?pattern=*&page=0", None),
            ("memory://namespace/n", None),
            ("memory://namespace//keys", None),
            ("memory://data/n", None),
            ("memory://other/n/k", None),
        ] {
            assert_eq!(MemoryUri::parse(uri), expected, "{uri}");
        }
    }

    #[test]
    fn cursor_leads_back_to_its_key() {
        assert_eq!(open_cursor(&cursor("task:é/1")).as_deref(), Some("task:é/1"));
        assert_eq!(open_cursor("?"), None);
    }
}
