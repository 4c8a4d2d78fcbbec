//! Serving of an agent's card to A2A clients at the well-known paths, with validation of cached
//! cards.
//!
//! See also `card` for the content.

use http::header::{CACHE_CONTROL, ETAG, HOST, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use pingora::proxy::Session;
use sha2::{Digest as _, Sha256};

use super::card::{CardRewriter, CardSecurity, served};
use super::error::A2aError;
use super::{AgentScope, JSON, write};
use crate::a2a::Dialect;
use crate::agents::ResolvedAgent;
use crate::fault::AgentFailure;
use crate::gateway::Inner;
use crate::gateway::access_record::AccessRecord;
use crate::gateway::host_policy::authority_with_port;
use crate::gateway::lookup::resolved_agent;
use crate::gateway::response::{ClientGone, Headers, empty};
use crate::telemetry::label;

/// Caching of a card, which is specific to the caller.
const FRESH: HeaderValue = HeaderValue::from_static("private, max-age=60");
/// Header that a card depends on besides the agent. Not `A2A-Version`: one card serves clients of
/// every version.
const VARIES: HeaderValue = HeaderValue::from_static("authorization");

impl Inner {
    /// Sends the agent's card.
    pub(super) async fn serve_card(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        visit: &AgentScope<'_>,
    ) -> Result<(), ClientGone> {
        exchange.method = label::Method::AgentCard;
        let shown = resolved_agent(&visit.agent, exchange.along.as_ref())
            .map(ResolvedAgent::in_effect)
            .and_then(|known| {
                let clients = served(known.interface.dialect, visit.agent.settings.translate);
                let front = self.card_rewriter(http, exchange, visit, (&known, clients));
                front
                    .rewrite(known.card.raw.get())
                    .ok_or_else(|| AgentFailure::ProtocolViolation("its card is no card".into()))
            });
        let held = shown.and_then(|card| {
            exchange.hold(&self.shares, None, card.len())?;
            Ok(card)
        });
        let card = match held {
            Ok(card) => card,
            Err(trouble) => {
                let refusal = A2aError::Trouble(trouble);
                self.record_operation(exchange, &refusal);
                let said = visit.error_reply(&refusal).unavailable();
                let headers = refusal.headers(StatusCode::SERVICE_UNAVAILABLE);
                return write(http, StatusCode::SERVICE_UNAVAILABLE, headers, (JSON, said)).await;
            }
        };
        let etag = etag(&card);
        let is_known = is_not_modified(&http.req_header().headers, &etag);
        let Ok(etag) = HeaderValue::from_str(&etag) else { return Err(ClientGone) };
        let mut headers: Headers = vec![(ETAG, etag), (CACHE_CONTROL, FRESH), (VARY, VARIES)];
        if let Some(header) = self.authenticator.key_header()
            && let Ok(header) = HeaderValue::from_str(header.as_str())
        {
            headers.push((VARY, header));
        }
        if self.settings.public_url.is_none() {
            headers.push((VARY, HeaderValue::from(HOST)));
        }
        if is_known {
            return empty(http, StatusCode::NOT_MODIFIED, headers).await;
        }
        write(http, StatusCode::OK, headers, (JSON, card)).await
    }

    /// Returns the rewriter of the agent's card for the caller and clients of these versions. If
    /// only clients of 1.0 read a card, it has no known member of other versions: some readers of
    /// extended cards reject unknown members.
    pub(super) fn card_rewriter<'a>(
        &'a self,
        http: &Session,
        exchange: &AccessRecord,
        visit: &'a AgentScope<'_>,
        (known, clients): (&'a ResolvedAgent, Vec<Dialect>),
    ) -> CardRewriter<'a> {
        let seen = self.seen_skills(&exchange.caller, &visit.agent);
        CardRewriter {
            url: format!("{}/a2a/{}", self.base(http), visit.name()),
            dialect: known.interface.dialect,
            version: known.interface.version.as_deref(),
            clients,
            security: CardSecurity::new(&self.settings.auth, visit.require),
            has_push: self.require.of.is_empty() || self.passes_pushes(&visit.agent),
            shows: Box::new(move |skill: &str| seen.has(skill)),
        }
    }

    /// Returns the URL of the gateway for this client, without a slash at its end.
    pub(in crate::gateway) fn base(&self, http: &Session) -> String {
        if let Some(public) = &self.settings.public_url {
            return public.trim_end_matches('/').to_owned();
        }
        let is_tls = http.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        // The host policy has accepted the host.
        let place = authority_with_port(http.req_header()).unwrap_or_default();
        format!("{}://{place}", if is_tls { "https" } else { "http" })
    }
}

fn etag(card: &str) -> String {
    let digest = Sha256::digest(card.as_bytes());
    let half: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{half}\"")
}

/// Returns true if the client has the version with this validator.
fn is_not_modified(headers: &HeaderMap, etag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    let mut each = lists.flat_map(|list| list.split(',')).map(str::trim);
    each.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validator_is_known_in_every_way_of_writing_it() {
        let etag = etag("{}");
        for (value, known) in [
            (etag.clone(), true),
            (format!("W/{etag}"), true),
            (format!("\"x\", {etag}"), true),
            ("*".to_owned(), true),
            ("\"x\"".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, value.parse().unwrap());
            assert_eq!(is_not_modified(&headers, &etag), known, "{value}");
        }
    }
}
