//! OAuth metadata and challenges: the resource for which tokens are issued, the issuers, and
//! missing scopes.
//!
//! Reads RFC 9728 and docs/spec/mcp.md §5. The gateway is a resource server only; it issues no
//! tokens. `auth` verifies them.

use std::collections::BTreeSet;

use http::{Method, StatusCode, Uri};
use pingora::proxy::Session;
use serde::Serialize;

use super::Inner;
use super::response::{ClientGone, json};
use super::route::METADATA;
use crate::auth::{Endpoint, ServedProtocol};
use crate::config::Settings;
use crate::fault::Fault;

/// Endpoint that a challenge is about.
pub(super) struct ChallengeContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) endpoint: Endpoint<'a>,
}

/// Metadata of a protected resource (RFC 9728 §2).
#[derive(Serialize)]
struct ProtectedResource<'a> {
    resource: String,
    authorization_servers: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    scopes_supported: BTreeSet<&'a str>,
    bearer_methods_supported: [&'static str; 1],
    resource_name: &'a str,
}

impl Inner {
    /// Handles a request for the metadata of a resource. The response is the same for known and
    /// unknown agents.
    pub(super) async fn serve_metadata(
        &self,
        http: &mut Session,
        path: &str,
    ) -> Result<(), Result<Fault, ClientGone>> {
        if http.req_header().method != Method::GET {
            return Err(Ok(Fault::MethodNotAllowed("GET, OPTIONS")));
        }
        let public = self.settings.public_url.as_deref().ok_or(Ok(Fault::NoSuchPath))?;
        if self.settings.auth.tokens.is_empty() {
            return Err(Ok(Fault::NoSuchPath));
        }
        let endpoint = endpoint_of(path, public_base_url(public)).ok_or(Ok(Fault::NoSuchPath))?;
        let auth = &self.settings.auth;
        let scopes = auth.scopes.iter().map(String::as_str).chain(self.rules.scopes());
        let protected = ProtectedResource {
            resource: resource(public, endpoint),
            authorization_servers: auth.tokens.iter().map(|issuer| issuer.issuer.as_str()).collect(),
            scopes_supported: scopes.collect(),
            bearer_methods_supported: ["header"],
            resource_name: &self.settings.mcp.server_name,
        };
        let body = serde_json::to_vec(&protected).map_err(|_| Ok(Fault::Internal))?;
        json(http, StatusCode::OK, body, None).await.map_err(Err)
    }
}

/// Returns the value of `WWW-Authenticate`, with the scopes that are needed beyond those of every
/// token. Empty if only a client certificate helps.
pub(super) fn challenge(at: &ChallengeContext<'_>, error: Option<&str>, needed: &[String]) -> String {
    let auth = &at.settings.auth;
    if auth.tokens.is_empty() {
        let header = auth.api_keys.as_ref().map(|keys| &keys.header);
        return header.map_or_else(String::new, |header| format!("ApiKey header=\"{header}\""));
    }
    let mut parts = Vec::new();
    if let Some(error) = error {
        parts.push(format!("error=\"{error}\""));
    }
    if let Some(public) = &at.settings.public_url {
        parts.push(format!("resource_metadata=\"{}\"", metadata_url(public, at.endpoint)));
    }
    let scopes: BTreeSet<&str> = auth.scopes.iter().chain(needed).map(String::as_str).collect();
    if !scopes.is_empty() {
        parts.push(format!("scope=\"{}\"", scopes.into_iter().collect::<Vec<_>>().join(" ")));
    }
    if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) }
}

fn resource(public: &str, Endpoint { service, agent }: Endpoint<'_>) -> String {
    let service = service.path();
    agent.map_or_else(|| format!("{public}{service}"), |agent| format!("{public}{service}/{agent}"))
}

/// Returns the path of a URL, without a slash at its end.
pub(super) fn public_base_url(public: &str) -> String {
    public.parse::<Uri>().map(|uri| uri.path().trim_end_matches('/').to_owned()).unwrap_or_default()
}

/// The well-known path comes between host and path (RFC 9728 §3.1).
fn metadata_url(public: &str, endpoint: Endpoint<'_>) -> String {
    let base = public_base_url(public);
    let origin = public.strip_suffix(&*base).unwrap_or(public);
    format!("{origin}{METADATA}{}", resource(&base, endpoint))
}

/// Returns the endpoint for a path after the well-known prefix. A proxy before the gateway may have
/// removed the base path.
fn endpoint_of(path: &str, base: String) -> Option<Endpoint<'_>> {
    let path = path.strip_prefix(&*base).unwrap_or(path);
    if matches!(path, "" | "/") {
        return Some(Endpoint::default());
    }
    let at = |service: ServedProtocol| path.strip_prefix(service.path()).map(|rest| (service, rest));
    let (service, rest) = at(ServedProtocol::Mcp).or_else(|| at(ServedProtocol::A2a))?;
    if matches!(rest, "" | "/") {
        return Some(Endpoint { service, agent: None });
    }
    let agent = rest.strip_prefix('/')?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (agent.len() <= 32 && agent.bytes().all(fits)).then_some(Endpoint { service, agent: Some(agent) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_has_its_document() {
        for (path, base, expected) in [
            ("", "", Some((ServedProtocol::Mcp, None))),
            ("/mcp", "", Some((ServedProtocol::Mcp, None))),
            ("/a2a", "", Some((ServedProtocol::A2a, None))),
            ("/mcp/weather", "", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/gw/mcp/weather", "/gw", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/mcp/weather", "/gw", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/gw/a2a/weather", "/gw", Some((ServedProtocol::A2a, Some("weather")))),
            ("/gw/mcp", "", None),
            ("/mcp/a/b", "", None),
            ("/mcp/A\"", "", None),
            ("/mcpx", "", None),
            ("x", "", None),
        ] {
            let found = endpoint_of(path, base.to_owned()).map(|found| (found.service, found.agent));
            assert_eq!(found, expected, "{path} {base}");
        }
    }

    #[test]
    fn the_well_known_place_stands_between_host_and_path() {
        let weather = Endpoint { service: ServedProtocol::Mcp, agent: Some("weather") };
        let url = metadata_url("https://gw.example.com/base", weather);
        assert_eq!(url, "https://gw.example.com/.well-known/oauth-protected-resource/base/mcp/weather");
        let url = metadata_url("https://gw.example.com", Endpoint::default());
        assert_eq!(url, "https://gw.example.com/.well-known/oauth-protected-resource/mcp");
    }
}
