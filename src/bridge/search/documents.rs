//! The agents as documents over HTTP: the list for A2A clients, and the API catalog of RFC 9727.
//!
//! The catalog is a linkset (RFC 9264) with one context for each agent: its endpoint as anchor,
//! `service-desc` and `describedby` its card, `service-doc` the documentation that the card names,
//! `service-meta` the OAuth metadata (RFC 9728). RFC 9727 is the one published standard for such a
//! list. The drafts of AI catalogs and agent registries (`ai-catalog.json` and others) are left
//! out: they still change, and agree on nothing beyond the content of the card itself.

use serde::Serialize;

use super::super::resource_view::json;
use super::super::resource_view::{AgentCapabilities, Reachability};
use super::SkillProfile;
use crate::a2a::AgentExtension;

/// One agent of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedAgent<'a> {
    /// The agent's name in the configuration.
    pub(crate) name: &'a str,
    /// The agent's name on its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'a str>,
    /// The agent's description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// The version of the agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<&'a str>,
    /// URL of the agent's endpoint.
    pub(crate) url: String,
    /// URL of the agent's card.
    pub(crate) card: String,
    /// The agent's reachability.
    pub(crate) status: Reachability,
    /// The A2A versions that clients may use for it here; its own is the first.
    pub(crate) protocol_versions: Vec<&'static str>,
    /// The bindings that clients may use.
    pub(crate) bindings: &'static [&'static str],
    /// The agent's capabilities, if its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capabilities: Option<AgentCapabilities>,
    /// The skills that match.
    pub(crate) skills: Vec<ListedSkill<'a>>,
    /// The extensions that the agent supports.
    pub(crate) extensions: Vec<ListedExtension<'a>>,
}

/// One skill of an agent in the list.
#[derive(Debug, Serialize)]
pub(crate) struct ListedSkill<'a> {
    id: &'a str,
    name: &'a str,
    tags: &'a [String],
}

/// An extension that an agent supports.
#[derive(Debug, Serialize)]
pub(crate) struct ListedExtension<'a> {
    uri: &'a str,
    required: bool,
}

impl<'a> From<&'a SkillProfile> for ListedSkill<'a> {
    fn from(skill: &'a SkillProfile) -> Self {
        Self { id: &skill.id, name: &skill.name, tags: &skill.tags }
    }
}

impl<'a> From<&'a AgentExtension> for ListedExtension<'a> {
    fn from(extension: &'a AgentExtension) -> Self {
        Self { uri: &extension.uri, required: extension.required }
    }
}

/// Encodes one page of the list as JSON.
pub(crate) fn page(agents: &[ListedAgent<'_>], total: usize, next_cursor: Option<&str>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct AgentListPage<'a> {
        agents: &'a [ListedAgent<'a>],
        total: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    }
    json(&AgentListPage { agents, total, next_cursor })
}

/// One agent of the catalog.
#[derive(Debug)]
pub(crate) struct CatalogEntry<'a> {
    /// URL of the agent's endpoint.
    pub(crate) url: String,
    /// URL of the agent's card.
    pub(crate) card: String,
    /// The agent's name on its card.
    pub(crate) title: Option<&'a str>,
    /// URL of the documentation for people.
    pub(crate) documentation: Option<&'a str>,
    /// URL of the OAuth protected resource metadata.
    pub(crate) metadata: Option<String>,
}

/// A link with its media type and title.
#[derive(Serialize)]
struct CatalogLink<'a> {
    href: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LinkContext<'a> {
    anchor: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    item: Vec<CatalogLink<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_desc: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    describedby: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_doc: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_meta: Option<[CatalogLink<'a>; 1]>,
}

/// Encodes the API catalog with the URL `place` as JSON: first its items, then a context for each
/// agent.
pub(crate) fn catalog(place: &str, agents: &[CatalogEntry<'_>]) -> String {
    #[derive(Serialize)]
    struct Linkset<'a> {
        linkset: Vec<LinkContext<'a>>,
    }
    let none = |anchor| LinkContext {
        anchor,
        item: Vec::new(),
        service_desc: None,
        describedby: None,
        service_doc: None,
        service_meta: None,
    };
    let item = |agent| CatalogLink { media_type: None, ..link(agent) };
    let all = LinkContext { item: agents.iter().map(item).collect(), ..none(place) };
    let each = agents.iter().map(|agent| LinkContext {
        service_desc: Some([CatalogLink { href: &agent.card, ..link(agent) }]),
        describedby: Some([CatalogLink { href: &agent.card, ..link(agent) }]),
        service_doc: agent.documentation.map(|href| [CatalogLink { href, media_type: None, title: None }]),
        service_meta: agent
            .metadata
            .as_deref()
            .map(|href| [CatalogLink { href, title: None, ..link(agent) }]),
        ..none(&agent.url)
    });
    json(&Linkset { linkset: std::iter::once(all).chain(each).collect() })
}

fn link<'a>(agent: &'a CatalogEntry<'a>) -> CatalogLink<'a> {
    CatalogLink { href: &agent.url, media_type: Some("application/json"), title: agent.title }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_catalog_is_a_linkset_of_arrays_of_links() {
        let agent = CatalogEntry {
            url: "https://gw/a2a/w".into(),
            card: "https://gw/a2a/w/.well-known/agent-card.json".into(),
            title: Some("W"),
            documentation: Some("https://docs.example/"),
            metadata: Some("https://gw/.well-known/oauth-protected-resource/a2a/w".into()),
        };
        let bare =
            CatalogEntry { title: None, documentation: None, metadata: None, ..entry("https://gw/a2a/x") };
        let told: Value = serde_json::from_str(&catalog("https://gw/c", &[agent, bare])).unwrap();
        let card = json!([{ "href": "https://gw/a2a/w/.well-known/agent-card.json", "type": "application/json", "title": "W" }]);
        let meta = "https://gw/.well-known/oauth-protected-resource/a2a/w";
        assert_eq!(
            told,
            json!({ "linkset": [
                { "anchor": "https://gw/c", "item": [
                    { "href": "https://gw/a2a/w", "title": "W" }, { "href": "https://gw/a2a/x" },
                ] },
                {
                    "anchor": "https://gw/a2a/w", "service-desc": card, "describedby": card,
                    "service-doc": [{ "href": "https://docs.example/" }],
                    "service-meta": [{ "href": meta, "type": "application/json" }],
                },
                {
                    "anchor": "https://gw/a2a/x",
                    "service-desc": [{ "href": "https://gw/a2a/x/card", "type": "application/json" }],
                    "describedby": [{ "href": "https://gw/a2a/x/card", "type": "application/json" }],
                },
            ] })
        );
        let empty: Value = serde_json::from_str(&catalog("https://gw/c", &[])).unwrap();
        assert_eq!(empty, json!({ "linkset": [{ "anchor": "https://gw/c" }] }));
    }

    fn entry(url: &str) -> CatalogEntry<'static> {
        CatalogEntry {
            url: url.into(),
            card: format!("{url}/card"),
            title: None,
            documentation: None,
            metadata: None,
        }
    }
}
