//! Documents about the agents, for A2A clients: `GET /a2a`, a searchable list, and the API catalog
//! of RFC 9727.
//!
//! Both list the agents that the caller may use, and no others; they require the same
//! authentication as the agents. The catalog is at its well-known path and lists every such agent;
//! `bridge::search::documents` says why this convention was chosen.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName, LINK, VARY};
use http::{HeaderValue, Method, Uri};
use pingora::http::RequestHeader;
use pingora::proxy::Session;

use super::Inner;
use super::a2a::{bindings, served};
use super::access_record::AccessRecord;
use super::oauth_metadata::public_base_url;
use super::response::{ClientGone, Headers, cacheable_json};
use super::route::{API_CATALOG, METADATA, Route};
use crate::a2a::Dialect;
use crate::agents::ResolvedAgent;
use crate::auth::Caller;
use crate::bridge::resource_uri::decoded;
use crate::bridge::resource_view::{AgentCapabilities, Reachability};
use crate::bridge::search::documents::{CatalogEntry, ListedAgent, catalog, page};
use crate::bridge::search::{AgentMatch, AgentQuery};
use crate::fault::Fault;
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

impl Inner {
    /// Handles a request for one of the documents.
    pub(super) async fn serve_document(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        door: Route<'_>,
    ) -> Result<(), Result<Fault, ClientGone>> {
        let is_catalog = door == Route::ApiCatalog;
        exchange.method = if is_catalog { label::Method::ApiCatalog } else { label::Method::AgentList };
        let request = http.req_header();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Ok(Fault::MethodNotAllowed("GET, HEAD, OPTIONS")));
        }
        let base = self.base(http);
        let mut headers = self.vary();
        let (media_type, body) = if is_catalog {
            let link = HeaderValue::try_from(format!("<{base}{API_CATALOG}>; rel=\"api-catalog\""));
            headers.extend(link.ok().map(|link| (LINK, link)));
            (LINKSET, self.api_catalog(&exchange.caller, &base))
        } else {
            let asked = ListQuery::read(request).map_err(Ok)?;
            ("application/json", self.agent_list(&exchange.caller, &base, &asked).map_err(Ok)?)
        };
        exchange.hold(&self.shares, None, body.len()).map_err(|no_room| Ok(no_room.into()))?;
        let media_type = HeaderValue::from_static(media_type);
        cacheable_json(http, media_type, body.into_bytes(), headers).await.map_err(Err)
    }

    /// Returns one page of the matching agents that a caller may use.
    fn agent_list(&self, caller: &Caller, base: &str, asked: &ListQuery) -> Result<String, Fault> {
        let bad = |problem: String| Fault::BadQuery(problem);
        let query = AgentQuery::new(&asked.text, asked.skill.as_deref(), asked.tag.as_deref());
        let query = query.map_err(|problem| bad(problem.to_string()))?;
        let after = asked.cursor.as_deref().map(|cursor| self.place_of(caller, cursor)).transpose()?;
        let catalogue = self.catalogue.load_full();
        let found = self.search(&catalogue, (caller, Route::Agents), &query);
        let total = found.len();
        // The best match first: later entries have a lower score, or the same score and a later
        // name.
        let is_after = |found: &AgentMatch<'_>| {
            after.as_ref().is_none_or(|(score, name)| {
                found.score < *score || (found.score == *score && found.name > name.as_str())
            })
        };
        let most = asked.limit.unwrap_or(usize::MAX).min(self.settings.mcp.page_size);
        let mut rest = found.into_iter().filter(is_after);
        let shown: Vec<_> = rest.by_ref().take(most).map(|found| self.with_reachability(found)).collect();
        let next = shown.last().filter(|_| rest.next().is_some()).map(|(last, _)| {
            let after = format!("{}/{}", last.score, last.name);
            PageCursor { listing: ListKind::Agents, after }.seal(&self.sealer, caller.name())
        });
        let known: Vec<_> = shown.iter().map(|(found, _)| self.catalog_entry(found.name)).collect();
        let agents = shown.iter().zip(&known).map(|(shown, known)| {
            let spoken = known.as_deref().map(|known| self.protocol_versions(shown.0.name, known));
            listed(shown, known.as_deref(), spoken.unwrap_or_default(), base)
        });
        Ok(page(&agents.collect::<Vec<_>>(), total, next.as_deref()))
    }

    /// Returns the position of a page, from its cursor.
    fn place_of(&self, caller: &Caller, cursor: &str) -> Result<(u32, String), Fault> {
        PageCursor::open(&self.sealer, caller.name(), cursor)
            .filter(|cursor| cursor.listing == ListKind::Agents)
            .and_then(|cursor| {
                let (score, name) = cursor.after.split_once('/')?;
                Some((score.parse().ok()?, name.to_owned()))
            })
            .ok_or_else(|| Fault::BadQuery("unknown cursor: begin again without one".into()))
    }

    fn api_catalog(&self, caller: &Caller, base: &str) -> String {
        let catalogue = self.catalogue.load_full();
        let found = self.search(&catalogue, (caller, Route::ApiCatalog), &AgentQuery::default());
        let known: Vec<_> = found.iter().map(|found| self.catalog_entry(found.name)).collect();
        let entries = found.iter().zip(&known).map(|(found, known)| {
            let documentation = known.as_ref().and_then(|known| known.card.documentation_url.as_deref());
            CatalogEntry {
                url: url(base, found.name),
                card: card(base, found.name),
                title: found.profile.map(|profile| profile.title.as_str()).filter(|title| !title.is_empty()),
                documentation: documentation.filter(|url| is_http_url(url)),
                metadata: self.token_metadata(found.name),
            }
        });
        catalog(&format!("{base}{API_CATALOG}"), &entries.collect::<Vec<_>>())
    }

    fn catalog_entry(&self, agent: &str) -> Option<Arc<ResolvedAgent>> {
        self.directory.find(agent)?.known()
    }

    /// Returns the versions of A2A that clients may use for an agent.
    fn protocol_versions(&self, agent: &str, known: &ResolvedAgent) -> Vec<Dialect> {
        let translate = self.directory.find(agent).is_some_and(|agent| agent.settings.translate);
        served(known.interface.dialect, translate)
    }

    /// Returns the URL of the metadata about tokens for an agent, if callers authenticate with
    /// tokens (RFC 9728 §3.1).
    fn token_metadata(&self, agent: &str) -> Option<String> {
        let public = self.settings.public_url.as_deref().filter(|_| !self.settings.auth.tokens.is_empty())?;
        let base = public_base_url(public);
        let origin = public.strip_suffix(&*base).unwrap_or(public);
        Some(format!("{origin}{METADATA}{base}/a2a/{agent}"))
    }

    /// Returns the `Vary` headers: the documents differ by the caller's credentials.
    fn vary(&self) -> Headers {
        let key = self.authenticator.key_header().cloned();
        let shown = [Some(AUTHORIZATION), key].into_iter().flatten();
        shown.map(|name: HeaderName| (VARY, HeaderValue::from(name))).collect()
    }
}

fn listed<'a>(
    (found, status): &'a (AgentMatch<'_>, Reachability),
    known: Option<&'a ResolvedAgent>,
    spoken: Vec<Dialect>,
    base: &str,
) -> ListedAgent<'a> {
    let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
    ListedAgent {
        name: found.name,
        title: found.profile.and_then(|profile| text(&profile.title)),
        description: found.profile.and_then(|profile| text(&profile.description)),
        version: known.and_then(|known| text(&known.card.version)),
        url: url(base, found.name),
        card: card(base, found.name),
        status: *status,
        bindings: if spoken.is_empty() { &[] } else { bindings(&spoken) },
        protocol_versions: spoken.into_iter().map(Dialect::version).collect(),
        capabilities: known.map(|known| AgentCapabilities {
            streaming: known.card.streaming,
            push_notifications: known.card.push_notifications,
        }),
        skills: found.skills.iter().map(|skill| (*skill).into()).collect(),
        extensions: known.into_iter().flat_map(|known| &known.card.extensions).map(Into::into).collect(),
    }
}

fn url(base: &str, agent: &str) -> String {
    format!("{base}/a2a/{agent}")
}

fn card(base: &str, agent: &str) -> String {
    format!("{base}/a2a/{agent}/.well-known/agent-card.json")
}

/// Returns true if a link of a card is one that people can open.
fn is_http_url(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
}

impl ListQuery {
    fn read(request: &RequestHeader) -> Result<Self, Fault> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<ListQuery, Fault> {
        let path = format!("/a2a?{query}");
        ListQuery::read(&RequestHeader::build("GET", path.as_bytes(), None).unwrap())
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
