//! The address of an agent, and the permission to send the gateway's credentials there.
//!
//! A card is a statement of the agent, and the credentials belong to the operator: they are sent to
//! the origin that the configuration names, and elsewhere only with the operator's permission. See
//! `a2a::card` for the choice of the interface.

use std::sync::Arc;

use http::Uri;

use crate::config::{AllowList, Host, effective_port, is_loopback_host};
use crate::transport::{AddressClass, AddressPolicy};

/// The reason for which an interface of a card is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedInterface {
    /// Not an absolute http or https URL.
    #[error("the card's interface URL {0:?} is not an http(s) URL")]
    NotAUrl(String),
    /// A host that could be read in two ways.
    #[error("the host of the card's interface URL {0:?} {1}")]
    OddHost(String, &'static str),
    /// The card came by https and the interface is http.
    #[error("the card came by https and its interface {0:?} is http: credentials would travel in the open")]
    Downgrade(String),
    /// Another host than the card's.
    #[error(
        "the card's interface is at {found:?}{}, the card at {expected:?}; if that is right, list {found:?} under allow_hosts, or \
         under outbound.allow for all agents; if the card is wrong, give the right URL under endpoints", class.map(|class| format!(" ({class})")).unwrap_or_default()
    )]
    OtherHost {
        /// The origin of the interface.
        found: String,
        /// The class of that address, if it is an IP address.
        class: Option<AddressClass>,
        /// The origin of the card.
        expected: String,
    },
}

impl UntrustedInterface {
    /// Returns the label for metrics; one of a closed set.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::NotAUrl(_) => "not_a_url",
            Self::OddHost(..) => "odd_host",
            Self::Downgrade(_) => "downgrade",
            Self::OtherHost { class: Some(class), .. } => class.label(),
            Self::OtherHost { class: None, .. } => "other_host",
        }
    }
}

/// The address of an agent's interface.
#[derive(Debug, Clone)]
pub(super) struct AgentAddress {
    pub(super) uri: Uri,
    /// The addresses that its host may have.
    pub(super) policy: AddressPolicy,
}

/// The operator's permissions for cards.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardPolicy<'a> {
    /// Hosts that this agent's card may name.
    pub(super) hosts: &'a [String],
    /// Hosts and addresses that any card may name.
    pub(super) outbound: &'a Arc<AllowList>,
}

/// Checks the interface URL of a card against the origin that the card came from (`None` for a card
/// from a file, which the operator wrote), and returns which addresses its host may have.
///
/// A loopback address and another of the same port are one origin, and `0.0.0.0` on a card means
/// the host of the card.
///
/// # Errors
///
/// [`UntrustedInterface`] names the reason and the remedy.
pub(super) fn trusted(
    interface: &str,
    card: Option<&Uri>,
    leave: CardPolicy<'_>,
) -> Result<AgentAddress, UntrustedInterface> {
    let uri: Uri = interface.parse().map_err(|_| UntrustedInterface::NotAUrl(shown(interface)))?;
    let (Some(host), Some("http" | "https")) = (uri.host(), uri.scheme_str()) else {
        return Err(UntrustedInterface::NotAUrl(shown(interface)));
    };
    let read = Host::read(host).map_err(|problem| UntrustedInterface::OddHost(shown(interface), problem))?;
    let Some(card) = card else { return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted }) };
    if card.scheme_str() == Some("https") && uri.scheme_str() == Some("http") {
        return Err(UntrustedInterface::Downgrade(shown(interface)));
    }
    let expected_host = card.host().unwrap_or_default();
    let expected = origin(expected_host, effective_port(card));
    let found = origin(host, effective_port(&uri));
    if found == expected
        || (is_loopback_host(host)
            && is_loopback_host(expected_host)
            && effective_port(&uri) == effective_port(card))
    {
        return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted });
    }
    if is_unspecified(host) && effective_port(&uri) == effective_port(card) {
        let moved =
            rebase(&uri, expected_host).ok_or_else(|| UntrustedInterface::NotAUrl(shown(interface)))?;
        return Ok(AgentAddress { uri: moved, policy: AddressPolicy::Trusted });
    }
    let has_leave = leave.hosts.iter().any(|allowed| *allowed == found || allowed.eq_ignore_ascii_case(host));
    if has_leave || leave.outbound.has_host(host, &found) {
        return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted });
    }
    match (read, leave.outbound) {
        (Host::Address(address), outbound) if outbound.network_of(address).is_none() => {
            Err(UntrustedInterface::OtherHost { found, class: Some(AddressClass::of(address)), expected })
        }
        // The address of a name is checked when it is connected to.
        (Host::Name(_), outbound) if outbound.networks().next().is_none() => {
            Err(UntrustedInterface::OtherHost { found, class: None, expected })
        }
        (_, outbound) => Ok(AgentAddress { uri, policy: AddressPolicy::Listed(outbound.clone()) }),
    }
}

/// Returns a URL for the log: without user and query, which may be secrets.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let shown = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => url.to_owned(),
    };
    shown.chars().take(200).collect()
}

fn origin(host: &str, port: u16) -> String {
    format!("{}:{port}", host.to_ascii_lowercase())
}

fn is_unspecified(host: &str) -> bool {
    matches!(host, "0.0.0.0" | "[::]")
}

fn rebase(uri: &Uri, host: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(origin(host, effective_port(uri)).parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Allowed;

    fn judged(interface: &str, card: &str, allowed: &[&str]) -> Result<String, UntrustedInterface> {
        let hosts: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let outbound = Arc::default();
        let leave = CardPolicy { hosts: &hosts, outbound: &outbound };
        trusted(interface, Some(&card.parse().unwrap()), leave).map(|address| {
            assert!(matches!(address.policy, AddressPolicy::Trusted), "{:?}", address.policy);
            address.uri.to_string()
        })
    }

    /// Checks an interface of an agent at `a.example`, where any card may lead to these.
    fn listed(interface: &str, allow: &[Allowed]) -> Result<AddressPolicy, UntrustedInterface> {
        let outbound = Arc::new(AllowList(allow.to_vec()));
        let card = "http://a.example/c.json".parse().unwrap();
        trusted(interface, Some(&card), CardPolicy { hosts: &[], outbound: &outbound })
            .map(|address| address.policy)
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
        for elsewhere in [
            "https://b.example/",
            "https://a.example:8443/",
            "https://a.example./",
            "https://a.example@b.example/",
            "https://127.0.0.1/",
            "https://[::ffff:169.254.169.254]/",
        ] {
            let distrust = judged(elsewhere, card, &["a.example:9"]).unwrap_err();
            assert!(matches!(distrust, UntrustedInterface::OtherHost { .. }), "{elsewhere}: {distrust}");
        }
        assert!(matches!(
            judged("http://a.example/", card, &["a.example"]),
            Err(UntrustedInterface::Downgrade(_))
        ));
        assert!(matches!(judged("file:///etc/passwd", card, &[]), Err(UntrustedInterface::NotAUrl(_))));
        assert!(judged("https://b.example/", card, &["b.example"]).is_ok());
        assert!(judged("https://b.example:9/", card, &["b.example:9"]).is_ok());
    }

    #[test]
    fn odd_spellings_are_not_even_compared() {
        let card = "http://127.0.0.1:99/c.json";
        for odd in
            ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.", "%31%32%37.0.0.1", "[fe80::1%25lo]"]
        {
            let judged = judged(&format!("http://{odd}:99/"), card, &[odd, &format!("{odd}:99")]);
            assert!(
                matches!(judged, Err(UntrustedInterface::OddHost(..) | UntrustedInterface::NotAUrl(_))),
                "{odd}: {judged:?}"
            );
        }
    }

    #[test]
    fn an_address_is_told_by_its_kind_and_with_the_remedy() {
        let told =
            judged("http://169.254.169.254/latest?token=CANARY", "http://a.example/c.json", &[]).unwrap_err();
        let told = told.to_string();
        for part in [
            "169.254.169.254:80",
            "a metadata service".trim_start_matches("a "),
            "allow_hosts",
            "outbound.allow",
            "under endpoints",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("CANARY"), "{told}");
    }

    #[test]
    fn a_list_for_all_agents_opens_hosts_and_networks() {
        let network = |text: &str| Allowed::Network(text.parse().unwrap());
        let host = |text: &str| Allowed::Host(text.to_owned());
        assert!(matches!(listed("http://b.example/", &[host("b.example")]), Ok(AddressPolicy::Trusted)));
        assert!(matches!(listed("http://b.example:8/", &[host("b.example:8")]), Ok(AddressPolicy::Trusted)));
        assert!(listed("http://b.example:9/", &[host("b.example:8")]).is_err());
        assert!(matches!(listed("http://10.0.0.9/", &[network("10.0.0.0/8")]), Ok(AddressPolicy::Listed(_))));
        assert!(listed("http://11.0.0.9/", &[network("10.0.0.0/8")]).is_err());
        // It may lead there; that is checked when it is connected to.
        assert!(matches!(
            listed("http://b.example/", &[network("10.0.0.0/8")]),
            Ok(AddressPolicy::Listed(_))
        ));
    }
}
