//! Documents about the agents, for A2A clients: `GET /a2a`, a searchable list, and the API catalog
//! of RFC 9727.
//!
//! Both list the agents that the caller may use, and no others; they require the same
//! authentication as the agents. The catalog is at its well-known path and lists every such agent;
//! `bridge::search` says why this convention was chosen.
//!
//! A skill is left out if the operator hides it, or if the rules let the caller use it neither
//! through the MCP server nor through the A2A server. Cards and manifests from which nothing is
//! left out stay byte for byte the same.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName, LINK, VARY};
use http::request::Parts;
use http::{HeaderValue, Method, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Discovery;
use crate::a2a::{Dialect, bindings_of, skill_id};
use crate::agents::{Agent, ResolvedAgent};
use crate::auth::{Action, Caller, Endpoint, Rules, ServedProtocol};
use crate::bridge::resource_uri::decoded;
use crate::bridge::resource_view::{AgentCapabilities, Reachability};
use crate::bridge::search::{
    AgentMatch, AgentQuery, CatalogEntry, ListedAgent, ServedInterface, catalog, page,
};
use crate::config;
use crate::fault::{Abort, Fault};
use crate::http_edge::{API_CATALOG, AccessRecord, Headers, ResponseSink, Route, cacheable_json};
use crate::jsonrpc::Text;
use crate::jsonrpc::object::RawObject;
use crate::seal::{ListKind, PageCursor};
use crate::telemetry::label;

const LINKSET: &str = r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;

/// Parameters in the query of the list's URL.
#[derive(Debug, Default, PartialEq, Eq)]
struct ListQuery {
    text: String,
    skill: Option<String>,
    tag: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Name of gRPC in cards.
const GRPC: &str = "GRPC";

/// Address of an agent at the gateway, in every binding that A2A clients may use.
#[derive(Debug, Clone)]
pub(crate) struct ServedAddress {
    /// URL of JSON-RPC and HTTP+JSON.
    pub(crate) url: String,
    /// Address of gRPC; `None` if it is not served.
    grpc: Option<GrpcAddress>,
}

/// Address of an agent over gRPC: `host:port`, as clients of gRPC take it.
#[derive(Debug, Clone)]
struct GrpcAddress {
    /// Address of the gateway, at which the tenant of a message of 1.0 names the agent.
    authority: String,
    /// Tenant that names the agent.
    tenant: String,
    /// Address for clients of 0.3, which know no tenant; `None` if the agent has none.
    of_0_3: Option<String>,
}

impl ServedAddress {
    /// Creates the address of an agent at a gateway with this URL, without gRPC.
    pub(crate) fn new(base: &str, agent: &str) -> Self {
        Self { url: format!("{base}/a2a/{agent}"), grpc: None }
    }

    /// Adds gRPC. `is_alone` is true for the only agent that the caller sees.
    pub(crate) fn with_grpc(self, base: &str, agent: &config::Agent, is_alone: bool) -> Self {
        Self { grpc: Some(GrpcAddress::new(base, agent, is_alone)), ..self }
    }

    /// Returns the interfaces of a version, in order of preference for SDKs without one. 0.1 has
    /// none.
    pub(crate) fn interfaces(&self, version: Dialect) -> Vec<ServedInterface<'_>> {
        let bindings = match version {
            Dialect::V1 | Dialect::V0_3 => bindings_of(&[version]),
            Dialect::V0_1 => &[],
        };
        let protocol_version = version.version();
        let of = |binding: &'static str| ServedInterface {
            url: &self.url,
            protocol_binding: binding,
            protocol_version,
            tenant: None,
        };
        let grpc = self.grpc.as_ref().and_then(|grpc| grpc.interface(version));
        bindings.iter().copied().map(of).chain(grpc).collect()
    }
}

impl GrpcAddress {
    fn new(url: &str, agent: &config::Agent, is_alone: bool) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let port = if scheme == "https" { 443 } else { 80 };
        let written = rest.split('/').next().unwrap_or_default();
        let has_port = |authority: &str| {
            let port = authority.rsplit_once(':').map(|(_, port)| port);
            port.is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let authority = if has_port(written) { written.to_owned() } else { format!("{written}:{port}") };
        let own = agent.a2a_host.as_deref().map(|host| match authority.rsplit_once(':') {
            Some((_, port)) if !has_port(host) => format!("{host}:{port}"),
            Some(_) | None => host.to_owned(),
        });
        let of_0_3 = own.or_else(|| is_alone.then(|| authority.clone()));
        Self { authority, tenant: agent.name.clone(), of_0_3 }
    }

    /// Returns the interface of a version, if there is one.
    fn interface(&self, version: Dialect) -> Option<ServedInterface<'_>> {
        let (url, tenant) = match version {
            Dialect::V1 => (self.authority.as_str(), Some(self.tenant.as_str())),
            Dialect::V0_3 => (self.of_0_3.as_deref()?, None),
            Dialect::V0_1 => return None,
        };
        Some(ServedInterface { url, protocol_binding: GRPC, protocol_version: version.version(), tenant })
    }
}

/// An agent on a page of the list.
struct FoundAgent<'i> {
    found: AgentMatch<'i>,
    reachability: Reachability,
    /// The agent, once its card is known.
    known: Option<Arc<ResolvedAgent>>,
    address: ServedAddress,
}

/// The client that reads the list.
struct ListReader<'a> {
    caller: &'a Caller,
    /// URL of the gateway for it.
    base: &'a str,
    /// True if it can call the gateway over gRPC.
    has_grpc: bool,
}

/// Position in the list: the score and the name of the last agent before.
struct ListPosition {
    score: u32,
    name: String,
}

impl Discovery {
    /// Serves one of the documents; `base` is the URL of the gateway for this client.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no document.
    pub(crate) async fn serve_document(
        &self,
        http: &mut impl ResponseSink,
        record: &mut AccessRecord,
        route: Route<'_>,
        base: &str,
    ) -> Result<(), Abort> {
        let is_catalog = route == Route::ApiCatalog;
        record.method = if is_catalog { label::Method::ApiCatalog } else { label::Method::AgentList };
        let request = http.head();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Fault::MethodNotAllowed("GET, HEAD, OPTIONS").into());
        }
        let mut headers = self.vary();
        let (media_type, body) = if is_catalog {
            let link = HeaderValue::try_from(format!("<{base}{API_CATALOG}>; rel=\"api-catalog\""));
            headers.extend(link.ok().map(|link| (LINK, link)));
            (LINKSET, self.api_catalog(&record.caller, base))
        } else {
            let query = ListQuery::read(request)?;
            let reader = ListReader { caller: &record.caller, base, has_grpc: record.has_grpc };
            ("application/json", self.agent_list(&reader, &query)?)
        };
        record.hold(&self.limits, None, body.len()).map_err(Fault::from)?;
        let media_type = HeaderValue::from_static(media_type);
        Ok(cacheable_json(http, media_type, body.into_bytes(), headers).await?)
    }

    /// Returns one page of the matching agents that the caller may use.
    fn agent_list(&self, reader: &ListReader<'_>, asked: &ListQuery) -> Result<String, Fault> {
        let caller = reader.caller;
        let bad = |problem: String| Fault::BadQuery(problem);
        let query = AgentQuery::new(&asked.text, asked.skill.as_deref(), asked.tag.as_deref());
        let query = query.map_err(|problem| bad(problem.to_string()))?;
        let after = asked.cursor.as_deref().map(|cursor| self.open_cursor(caller, cursor)).transpose()?;
        let catalogue = self.catalogue.load_full();
        let found = self.search(&catalogue, super::requester(caller, Route::Agents), &query);
        let total = found.len();
        // The best match first: later entries have a lower score, or the same score and a later
        // name.
        let is_after = |found: &AgentMatch<'_>| {
            after.as_ref().is_none_or(|ListPosition { score, name }| {
                found.score < *score || (found.score == *score && found.name > name.as_str())
            })
        };
        let limit = asked.limit.unwrap_or(usize::MAX).min(self.page_size);
        let mut rest = found.into_iter().filter(is_after);
        let is_alone = self.only_agent(caller).is_some();
        let shown: Vec<FoundAgent<'_>> =
            rest.by_ref().take(limit).map(|found| self.found(found, reader, is_alone)).collect();
        let next = shown.last().filter(|_| rest.next().is_some()).map(|FoundAgent { found, .. }| {
            let after = format!("{}/{}", found.score, found.name);
            PageCursor { listing: ListKind::Agents, after }.seal(&self.sealer, caller.name())
        });
        let agents = shown.iter().map(|shown| {
            let versions = shown.known.as_deref().map(|known| self.served_versions(shown.found.name, known));
            listed(shown, versions.unwrap_or_default(), reader.base)
        });
        Ok(page(&agents.collect::<Vec<_>>(), total, next.as_deref()))
    }

    /// Returns the position of a page, from its cursor.
    fn open_cursor(&self, caller: &Caller, cursor: &str) -> Result<ListPosition, Fault> {
        PageCursor::open(&self.sealer, caller.name(), cursor)
            .filter(|cursor| cursor.listing == ListKind::Agents)
            .and_then(|cursor| {
                let (score, name) = cursor.after.split_once('/')?;
                Some(ListPosition { score: score.parse().ok()?, name: name.to_owned() })
            })
            .ok_or_else(|| Fault::BadQuery("unknown cursor: begin again without one".into()))
    }

    fn api_catalog(&self, caller: &Caller, base: &str) -> String {
        let catalogue = self.catalogue.load_full();
        let by = super::requester(caller, Route::ApiCatalog);
        let found = self.search(&catalogue, by, &AgentQuery::default());
        let known: Vec<_> = found.iter().map(|found| self.known(found.name)).collect();
        let entries = found.iter().zip(&known).map(|(found, known)| {
            let documentation = known.as_ref().and_then(|known| known.card.documentation_url.as_deref());
            CatalogEntry {
                url: ServedAddress::new(base, found.name).url,
                card: card(base, found.name),
                title: found.profile.map(|profile| profile.title.as_str()).filter(|title| !title.is_empty()),
                documentation: documentation.filter(|url| is_http_url(url)),
                metadata: self
                    .metadata
                    .url(Endpoint { service: ServedProtocol::A2a, agent: Some(found.name) }),
            }
        });
        catalog(&format!("{base}{API_CATALOG}"), &entries.collect::<Vec<_>>())
    }

    fn known(&self, agent: &str) -> Option<Arc<ResolvedAgent>> {
        self.directory.find(agent)?.known()
    }

    fn found<'i>(&self, found: AgentMatch<'i>, reader: &ListReader<'_>, is_alone: bool) -> FoundAgent<'i> {
        let agent = self.directory.find(found.name);
        let mut address = ServedAddress::new(reader.base, found.name);
        if let Some(agent) = agent.filter(|_| reader.has_grpc) {
            address = address.with_grpc(reader.base, &agent.settings, is_alone);
        }
        let known = agent.and_then(|agent| agent.known());
        let (found, reachability) = self.with_reachability(found);
        FoundAgent { found, reachability, known, address }
    }

    /// Returns the agent that a caller sees, if it is the only one.
    pub(crate) fn only_agent(&self, caller: &Caller) -> Option<&Arc<Agent>> {
        let agents = self.directory.agents().iter();
        let mut visible = agents.filter(|agent| self.authorizer.is_visible(caller, &agent.settings.name));
        visible.next().filter(|_| visible.next().is_none())
    }

    /// Returns the versions of A2A that clients may use for an agent.
    fn served_versions(&self, agent: &str, known: &ResolvedAgent) -> Vec<Dialect> {
        let translate = self.directory.find(agent).is_some_and(|agent| agent.settings.translate);
        known.interface.dialect.served_with(translate)
    }

    /// Returns the `Vary` headers: the documents differ by the caller's credentials.
    fn vary(&self) -> Headers {
        let names = [Some(AUTHORIZATION), self.key_header.clone()].into_iter().flatten();
        names.map(|name: HeaderName| (VARY, HeaderValue::from(name))).collect()
    }
}

fn listed<'a>(shown: &'a FoundAgent<'_>, versions: Vec<Dialect>, base: &str) -> ListedAgent<'a> {
    let FoundAgent { found, reachability, known, address } = shown;
    let known = known.as_deref();
    let interfaces: Vec<ServedInterface<'_>> =
        versions.iter().flat_map(|version| address.interfaces(*version)).collect();
    let mut bindings = if versions.is_empty() { Vec::new() } else { bindings_of(&versions).to_vec() };
    bindings.extend(interfaces.iter().any(|interface| interface.protocol_binding == GRPC).then_some(GRPC));
    let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
    ListedAgent {
        name: found.name,
        title: found.profile.and_then(|profile| text(&profile.title)),
        description: found.profile.and_then(|profile| text(&profile.description)),
        version: known.and_then(|known| text(&known.card.version)),
        url: &address.url,
        card: card(base, found.name),
        status: *reachability,
        bindings,
        supported_interfaces: interfaces,
        protocol_versions: versions.into_iter().map(Dialect::version).collect(),
        capabilities: known.map(|known| AgentCapabilities {
            streaming: known.card.streaming,
            push_notifications: known.card.push_notifications,
        }),
        skills: found.skills.iter().map(|skill| (*skill).into()).collect(),
        extensions: known.into_iter().flat_map(|known| &known.card.extensions).map(Into::into).collect(),
    }
}

fn card(base: &str, agent: &str) -> String {
    format!("{base}/a2a/{agent}/.well-known/agent-card.json")
}

/// Returns true if a link of a card is one that people can open.
fn is_http_url(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
}

impl ListQuery {
    fn read(request: &Parts) -> Result<Self, Fault> {
        let mut asked = Self::default();
        for pair in request.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            let read = || decoded(&value).map(Cow::into_owned);
            let unreadable = || Fault::BadQuery("it is not encoded as the query of a URL".into());
            match name {
                "q" => asked.text = read().ok_or_else(unreadable)?,
                "skill" => asked.skill = Some(read().ok_or_else(unreadable)?),
                "tag" => asked.tag = Some(read().ok_or_else(unreadable)?),
                "cursor" => asked.cursor = Some(read().ok_or_else(unreadable)?),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let wrong = || Fault::BadQuery("limit is not a whole number from 1".into());
                    asked.limit = Some(limit.ok_or_else(wrong)?);
                }
                // Other parameters have no meaning here: caches and proxies add their own.
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// Filter for the skills of an agent that a caller may see.
pub(crate) struct VisibleSkills<'a> {
    rules: &'a Rules,
    caller: Caller,
    agent: &'a config::Agent,
    /// Names of the agent's tools, by skill id.
    tools: HashMap<Arc<str>, String>,
    /// True if the agent has one tool without skills, and the caller may use that tool.
    has_tool: bool,
}

/// Member of a manifest that names a tool.
#[derive(Deserialize)]
struct NamedTool<'a> {
    #[serde(borrow)]
    name: Text<'a>,
}

impl Discovery {
    /// Returns the filter for the skills of `agent` that `caller` may see.
    pub(crate) fn visible_skills<'a>(&'a self, caller: &Caller, agent: &'a Agent) -> VisibleSkills<'a> {
        let name = agent.settings.name.as_str();
        let catalogue = self.catalogue.load();
        let all = || catalogue.of(name).of_agents();
        let whole = all().find(|tool| tool.skill.is_none());
        let tools = all().filter_map(|tool| Some((tool.skill.clone()?, tool.name.clone())));
        VisibleSkills {
            rules: self.authorizer.rules(),
            caller: caller.clone(),
            agent: &agent.settings,
            tools: tools.collect(),
            has_tool: whole.is_some_and(|tool| self.authorizer.may_call(caller, name, "", &tool.name)),
        }
    }
}

impl VisibleSkills<'_> {
    /// Returns true if the caller sees all skills of the agent.
    fn are_all(&self) -> bool {
        self.rules.is_empty() && !self.agent.skills.values().any(|skill| skill.hidden)
    }

    /// Returns true if the caller sees this skill.
    pub(crate) fn has(&self, skill: &str) -> bool {
        if self.agent.skills.get(skill).is_some_and(|skill| skill.hidden) {
            return false;
        }
        let tool = self.tools.get(skill).map_or(skill, String::as_str);
        // Through the MCP server or the A2A server.
        self.has_tool
            || [crate::mcp::Method::ToolsCall.as_str(), "SendMessage"].into_iter().any(|method| {
                let agent = Some(self.agent.name.as_str());
                let wanted = Action { method, agent, tool: Some((skill, tool)), resource: None };
                self.rules.allow(&self.caller, &wanted)
            })
    }

    /// Returns the agent's card without hidden skills; `None` if the card is not readable.
    pub(crate) fn card<'c>(&self, card: &'c RawValue) -> Option<Cow<'c, RawValue>> {
        if self.are_all() {
            return Some(Cow::Borrowed(card));
        }
        let mut members = RawObject::read(card.get())?;
        if let Some(skills) = members.find("skills") {
            let skills: Vec<&RawValue> = serde_json::from_str(skills.get()).ok()?;
            let is_seen = |skill: &&RawValue| {
                let id = RawObject::read(skill.get()).and_then(|skill| skill.text("id"));
                // Under the name that the rules and the settings use.
                id.is_some_and(|id| self.has(&skill_id(&id)))
            };
            let seen: Vec<&RawValue> = skills.into_iter().filter(is_seen).collect();
            let seen = serde_json::value::to_raw_value(&seen).ok()?;
            members.set("skills", seen);
        }
        Some(Cow::Owned(members.written()))
    }

    /// Returns the manifest without hidden skills and their tools; `None` if it is not readable.
    pub(crate) fn manifest<'m>(&self, manifest: &'m str) -> Option<Cow<'m, str>> {
        if self.are_all() {
            return Some(Cow::Borrowed(manifest));
        }
        let mut members = RawObject::read(manifest)?;
        let mut untold: Vec<String> = Vec::new();
        if let Some(mut a2a) = inner(&members, "a2a")?
            && let Some(skills) = inner(&a2a, "skills")?
        {
            let mut kept = RawObject::default();
            for (id, tool) in skills.into_each() {
                match self.has(&id) {
                    true => kept.set(&id, tool),
                    false => untold.extend(serde_json::from_str::<String>(tool.get()).ok()),
                }
            }
            a2a.set("skills", kept.written());
            members.set("a2a", a2a.written());
        }
        if let Some(mut bridge) = inner(&members, "mcpBridge")?
            && let Some(tools) = bridge.find("tools")
        {
            let tools: Vec<&RawValue> = serde_json::from_str(tools.get()).ok()?;
            let is_told = |tool: &&RawValue| {
                let named = serde_json::from_str::<NamedTool<'_>>(tool.get());
                named.is_ok_and(|tool| !untold.iter().any(|untold| untold == tool.name.as_str()))
            };
            let told: Vec<&RawValue> = tools.into_iter().filter(is_told).collect();
            let told = serde_json::value::to_raw_value(&told).ok()?;
            bridge.set("tools", told);
            members.set("mcpBridge", bridge.written());
        }
        Some(Cow::Owned(members.written().get().to_owned()))
    }
}

/// Returns the object in a member; `Some(None)` if the member is absent, `None` if it is not an
/// object.
fn inner(members: &RawObject, name: &str) -> Option<Option<RawObject>> {
    let Some(value) = members.find(name).filter(|value| value.get() != "null") else { return Some(None) };
    RawObject::read(value.get()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<ListQuery, Fault> {
        let request = http::Request::get(format!("/a2a?{query}")).body(()).unwrap();
        ListQuery::read(&request.into_parts().0)
    }

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let some = |text: &str| Some(text.to_owned());
        for (query, expected) in [
            ("", ListQuery::default()),
            (
                "q=rain+in%20M%C3%BCnster",
                ListQuery { text: "rain in Münster".into(), ..ListQuery::default() },
            ),
            (
                "tag=a%26b&skill=c&x=y",
                ListQuery { tag: some("a&b"), skill: some("c"), ..ListQuery::default() },
            ),
            ("limit=3&cursor=abc", ListQuery { limit: Some(3), cursor: some("abc"), ..ListQuery::default() }),
        ] {
            assert_eq!(asked(query).unwrap(), expected, "{query}");
        }
        for query in ["limit=0", "limit=-1", "limit=x", "limit", "q=%2", "q=%FF"] {
            assert!(matches!(asked(query), Err(Fault::BadQuery(_))), "{query}");
        }
    }
}
