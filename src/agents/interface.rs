//! Where an agent is called, and whether its card may send the gateway's credentials there.
//!
//! A card is the agent's word, and the credentials are the operator's: they go to the place that the configuration names, and
//! elsewhere only with the operator's leave. Not here: how the interface is chosen from the card (see `a2a::card`).

use http::Uri;

/// Why an interface of a card is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Not an absolute http or https URL.
    #[error("the card's interface URL {0:?} is not an http(s) URL")]
    NotAUrl(String),
    /// The card came by https and the interface is http.
    #[error("the card came by https and its interface {0:?} is http: credentials would travel in the open")]
    Downgrade(String),
    /// Another host than the card's.
    #[error(
        "the card's interface is at {found:?}, the card at {expected:?}; if that is right, list {found:?} under allow_hosts"
    )]
    OtherHost {
        /// Where the interface is.
        found: String,
        /// Where the card is.
        expected: String,
    },
}

/// Checks the interface URL of a card against the place that the card came from; `None` for a card from a file, which is the
/// operator's own word.
///
/// A loopback address and another of the same port are one place, and `0.0.0.0` on a card means wherever the card is.
///
/// # Errors
///
/// [`Distrust`] says why it is not used and how it could be.
pub(super) fn trusted(interface: &str, card: Option<&Uri>, allowed: &[String]) -> Result<Uri, Distrust> {
    let uri: Uri = interface.parse().map_err(|_| Distrust::NotAUrl(shown(interface)))?;
    let (Some(host), Some(scheme)) = (uri.host(), uri.scheme_str()) else {
        return Err(Distrust::NotAUrl(shown(interface)));
    };
    if scheme != "http" && scheme != "https" {
        return Err(Distrust::NotAUrl(shown(interface)));
    }
    let Some(card) = card else { return Ok(uri) };
    if card.scheme_str() == Some("https") && scheme == "http" {
        return Err(Distrust::Downgrade(shown(interface)));
    }
    let expected_host = card.host().unwrap_or_default();
    let expected = place(expected_host, port(card));
    let found = place(host, port(&uri));
    if found == expected || (is_loopback(host) && is_loopback(expected_host) && port(&uri) == port(card)) {
        return Ok(uri);
    }
    if is_unspecified(host) && port(&uri) == port(card) {
        return moved(&uri, expected_host).ok_or_else(|| Distrust::NotAUrl(shown(interface)));
    }
    let leave = allowed.iter().any(|allowed| *allowed == found || allowed.eq_ignore_ascii_case(host));
    if leave { Ok(uri) } else { Err(Distrust::OtherHost { found, expected }) }
}

/// A URL for the log: without user and query, which may be secrets.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let shown = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => url.to_owned(),
    };
    shown.chars().take(200).collect()
}

fn place(host: &str, port: u16) -> String {
    format!("{}:{port}", host.to_ascii_lowercase())
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn is_unspecified(host: &str) -> bool {
    matches!(host, "0.0.0.0" | "[::]")
}

fn moved(uri: &Uri, host: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(place(host, port(uri)).parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(interface: &str, card: &str, allowed: &[&str]) -> Result<String, Distrust> {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        trusted(interface, Some(&card.parse().unwrap()), &allowed).map(|uri| uri.to_string())
    }

    #[test]
    fn the_cards_own_place_is_trusted() {
        for (interface, card) in [
            ("https://a.example/rpc", "https://a.example/.well-known/agent-card.json"),
            ("https://A.example:443/rpc", "https://a.example/c.json"),
            ("http://localhost:9999/", "http://127.0.0.1:9999/c.json"),
        ] {
            assert!(judged(interface, card, &[]).is_ok(), "{interface}");
        }
        assert_eq!(
            judged("http://0.0.0.0:99/x", "http://a.example:99/c", &[]).unwrap(),
            "http://a.example:99/x"
        );
    }

    #[test]
    fn credentials_go_nowhere_else_without_leave() {
        let card = "https://a.example/c.json";
        assert!(matches!(judged("https://b.example/", card, &[]), Err(Distrust::OtherHost { .. })));
        assert!(matches!(judged("https://a.example:8443/", card, &[]), Err(Distrust::OtherHost { .. })));
        assert!(matches!(judged("http://a.example/", card, &["a.example"]), Err(Distrust::Downgrade(_))));
        assert!(matches!(judged("file:///etc/passwd", card, &[]), Err(Distrust::NotAUrl(_))));
        assert!(judged("https://b.example/", card, &["b.example"]).is_ok());
        assert!(judged("https://b.example:9/", card, &["b.example:9"]).is_ok());
    }
}
