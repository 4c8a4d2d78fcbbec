//! Which interface of a card is called, and in which dialect.
//!
//! The versions are told by what a card has, because cards of several versions in one are common. Not here: asking the
//! agent when its card shows nothing (see `probe`).

use http::Uri;

use super::super::binding::{Binding, segment};
use super::super::dialect::Dialect;
use super::super::sanitize::clean_line;
use super::CardError;
use super::wire::CardIn;

/// Most interfaces that are looked at.
const MAX_OFFERS: usize = 64;
/// Longest address or tenant, in bytes.
const MAX_URL: usize = 2048;
/// Longest name of a binding or a version, in bytes.
const MAX_WORD: usize = 64;

/// One way to call an agent, as its card gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCandidate {
    /// Where.
    pub url: String,
    /// How: `JSONRPC`, `GRPC`, `HTTP+JSON`, or a URI of somebody's own.
    pub binding: String,
    /// For which tenant (A2A 1.0).
    pub tenant: Option<String>,
    /// The version of A2A, where it is given.
    pub version: Option<String>,
}

/// How an agent is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInterface {
    /// Where requests go, absolute, `http` or `https`. Whether that place may be called is for others to check.
    pub url: String,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// How requests travel.
    pub binding: Binding,
    /// What must go with every request (A2A 1.0).
    pub tenant: Option<String>,
    /// The version that the card gives for it.
    pub version: Option<String>,
}

/// What in a card tells its version.
#[derive(Debug, Clone, Default)]
pub(super) struct VersionMarkers {
    /// `supportedInterfaces` is there: A2A 1.0, whatever else there is.
    modern: bool,
    /// What the members of before 1.0 offer; also present beside those of 1.0 in cards made for both.
    old: Vec<InterfaceCandidate>,
    /// Has a member that only A2A 0.2 and 0.3 have.
    slash: bool,
    /// Has, or lacks, what only A2A 0.1 has, or lacks.
    v0_1: bool,
}

impl InterfaceCandidate {
    fn is_json_rpc(&self) -> bool {
        self.binding.eq_ignore_ascii_case("JSONRPC")
    }

    /// Whether it can be called by the routes of A2A 1.0; those of 0.3 are others.
    fn is_http_json(&self) -> bool {
        self.binding.eq_ignore_ascii_case("HTTP+JSON")
            && matches!(self.speaks(), ProtocolVersion::V1 | ProtocolVersion::NotSaid)
    }

    fn speaks(&self) -> ProtocolVersion {
        self.version.as_deref().map_or(ProtocolVersion::NotSaid, spoken)
    }

    fn interface(&self, dialect: Dialect) -> Result<AgentInterface, CardError> {
        let absolute = self.url.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !absolute {
            return Err(CardError::BadUrl { url: clean_line(&self.url, 200) });
        }
        let tenant = match dialect {
            Dialect::V0_1 | Dialect::V0_3 => None,
            Dialect::V1 => self.tenant.clone(),
        };
        let binding = if self.is_json_rpc() { Binding::JsonRpc } else { Binding::HttpJson };
        if let Some(tenant) = tenant.as_deref().filter(|_| binding == Binding::HttpJson)
            && segment(tenant).is_err()
        {
            return Err(CardError::BadTenant { tenant: clean_line(tenant, 200) });
        }
        Ok(AgentInterface { url: self.url.clone(), dialect, binding, tenant, version: self.version.clone() })
    }
}

/// A protocol version, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProtocolVersion {
    V1,
    Slash,
    V0_1,
    Other,
    NotSaid,
}

/// Only major and minor count; a patch number must not matter.
fn spoken(version: &str) -> ProtocolVersion {
    let mut numbers =
        version.trim_start_matches(['v', 'V']).split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(1), _) => ProtocolVersion::V1,
        (Some(0), Some(2 | 3)) => ProtocolVersion::Slash,
        (Some(0), Some(1)) => ProtocolVersion::V0_1,
        _ => ProtocolVersion::Other,
    }
}

/// Takes the ways to call the agent out of a card, and what tells its version.
pub(super) fn offers(card: &mut CardIn) -> (Vec<InterfaceCandidate>, VersionMarkers) {
    let slash = card.has_slash_members();
    let v0_1 = card.has_or_lacks_like_v0_1();
    let offers = std::mem::take(&mut card.supported_interfaces).items().take(MAX_OFFERS);
    let modern: Vec<InterfaceCandidate> = offers
        .filter_map(|offer| offer.0)
        .map(|offer| InterfaceCandidate {
            url: cut(offer.url.filled()).unwrap_or_default(),
            binding: word(offer.protocol_binding.filled()).unwrap_or_default(),
            tenant: cut(offer.tenant.filled()),
            version: word(offer.protocol_version.0),
        })
        .collect();
    let old = old_offers(card);
    let signs = VersionMarkers { modern: !modern.is_empty(), old: old.clone(), slash, v0_1 };
    (if modern.is_empty() { old } else { modern }, signs)
}

/// What the members of before 1.0 offer: the address itself, then the others.
fn old_offers(card: &mut CardIn) -> Vec<InterfaceCandidate> {
    let Some(url) = cut(std::mem::take(&mut card.url).filled()) else { return Vec::new() };
    let version = word(std::mem::take(&mut card.protocol_version).0);
    let binding = word(std::mem::take(&mut card.preferred_transport).filled());
    let first = InterfaceCandidate {
        url,
        binding: binding.unwrap_or_else(|| "JSONRPC".to_owned()),
        tenant: None,
        version: version.clone(),
    };
    let others = std::mem::take(&mut card.additional_interfaces).items().take(MAX_OFFERS);
    let others = others.filter_map(|offer| offer.0).map(|offer| InterfaceCandidate {
        url: cut(offer.url.filled()).unwrap_or_default(),
        binding: word(offer.transport.filled()).unwrap_or_default(),
        tenant: None,
        version: version.clone(),
    });
    std::iter::once(first).chain(others).collect()
}

fn word(text: Option<String>) -> Option<String> {
    text.map(|text| clean_line(&text, MAX_WORD)).filter(|text| !text.is_empty())
}

/// Addresses are used as they are or not at all: one that was cut would be another.
fn cut(text: Option<String>) -> Option<String> {
    text.filter(|text| text.len() <= MAX_URL)
}

/// The rules of detection.
pub(super) fn choose(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    pin: Option<Dialect>,
) -> Result<AgentInterface, CardError> {
    if let Some(dialect) = pin {
        return pinned(offers, signs, dialect);
    }
    let json_rpc = || offers.iter().filter(|offer| offer.is_json_rpc());
    let Some(first) = json_rpc().next() else { return by_route(offers, signs) };
    if !signs.modern {
        return by_markers(first, signs);
    }
    // Agents of early 1.0 SDKs give no version, and what then stands at the top of the card is wrong.
    if let Some(offer) =
        json_rpc().find(|offer| matches!(offer.speaks(), ProtocolVersion::V1 | ProtocolVersion::NotSaid))
    {
        return offer.interface(Dialect::V1);
    }
    if let Some(offer) = json_rpc().find(|offer| offer.speaks() == ProtocolVersion::Slash) {
        return offer.interface(Dialect::V0_3);
    }
    if let Some(offer) = json_rpc().find(|offer| offer.speaks() == ProtocolVersion::V0_1) {
        return offer.interface(Dialect::V0_1);
    }
    by_route(offers, signs).map_err(|_| unsupported(json_rpc()))
}

/// An agent that cannot be called by JSON-RPC.
fn by_route(offers: &[InterfaceCandidate], signs: &VersionMarkers) -> Result<AgentInterface, CardError> {
    let offer = offers.iter().find(|offer| signs.modern && offer.is_http_json());
    offer.ok_or_else(|| no_binding(offers))?.interface(Dialect::V1)
}

/// A card of before 1.0 tells its version, or shows it.
fn by_markers(offer: &InterfaceCandidate, signs: &VersionMarkers) -> Result<AgentInterface, CardError> {
    match offer.speaks() {
        ProtocolVersion::V1 => offer.interface(Dialect::V1),
        ProtocolVersion::Slash => offer.interface(Dialect::V0_3),
        ProtocolVersion::V0_1 => offer.interface(Dialect::V0_1),
        ProtocolVersion::Other => Err(unsupported(std::iter::once(offer))),
        ProtocolVersion::NotSaid if signs.slash => offer.interface(Dialect::V0_3),
        ProtocolVersion::NotSaid if signs.v0_1 => offer.interface(Dialect::V0_1),
        ProtocolVersion::NotSaid => Err(CardError::Ambiguous { url: offer.interface(Dialect::V0_1)?.url }),
    }
}

/// The operator knows better than the card; the card still says where.
fn pinned(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    dialect: Dialect,
) -> Result<AgentInterface, CardError> {
    let wanted = match dialect {
        Dialect::V0_1 => ProtocolVersion::V0_1,
        Dialect::V0_3 => ProtocolVersion::Slash,
        Dialect::V1 => ProtocolVersion::V1,
    };
    let json_rpc = || offers.iter().filter(|offer| offer.is_json_rpc());
    let fitting = json_rpc().find(|offer| offer.speaks() == wanted);
    let old = signs.old.iter().find(|offer| offer.is_json_rpc() && dialect != Dialect::V1);
    let unsaid = json_rpc().find(|offer| offer.speaks() == ProtocolVersion::NotSaid);
    let by_route = offers.iter().find(|offer| signs.modern && dialect == Dialect::V1 && offer.is_http_json());
    let offer = fitting.or(old).or(unsaid).or(by_route).or_else(|| json_rpc().next());
    offer.ok_or_else(|| no_binding(offers))?.interface(dialect)
}

/// The interfaces besides the chosen one that can be called; one for each address.
pub(super) fn others(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    first: &AgentInterface,
    pin: Option<Dialect>,
) -> Vec<AgentInterface> {
    let mut others: Vec<AgentInterface> = Vec::new();
    for offer in offers {
        let dialect = match offer.speaks() {
            ProtocolVersion::V1 => Dialect::V1,
            ProtocolVersion::Slash => Dialect::V0_3,
            ProtocolVersion::V0_1 => Dialect::V0_1,
            ProtocolVersion::NotSaid => first.dialect,
            ProtocolVersion::Other => continue,
        };
        let is_callable =
            offer.is_json_rpc() || (signs.modern && dialect == Dialect::V1 && offer.is_http_json());
        let is_known = offer.url == first.url || others.iter().any(|other| other.url == offer.url);
        if is_callable && !is_known && pin.is_none_or(|pin| pin == dialect) {
            others.extend(offer.interface(dialect));
        }
    }
    others
}

fn no_binding(offers: &[InterfaceCandidate]) -> CardError {
    let mut offered: Vec<String> = offers.iter().map(|offer| offer.binding.clone()).collect();
    offered.dedup();
    offered.truncate(8);
    CardError::UnsupportedBinding { offered }
}

fn unsupported<'a>(offers: impl Iterator<Item = &'a InterfaceCandidate>) -> CardError {
    let mut offered: Vec<String> = offers.filter_map(|offer| offer.version.clone()).collect();
    offered.dedup();
    offered.truncate(8);
    CardError::UnsupportedVersion { offered }
}
