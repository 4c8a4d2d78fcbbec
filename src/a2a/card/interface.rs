//! Chooses the interface of a card, and its dialect.
//!
//! The version is detected from the members of a card, because cards with members of several
//! versions are common. If the card shows no version, a probe asks the agent (see `dialect`).

use http::Uri;

use super::super::dialect::Dialect;
use super::super::route::{Binding, segment};
use super::super::sanitize::clean_line;
use super::CardError;

/// One interface of an agent, as its card declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCandidate {
    /// URL of the interface.
    pub url: String,
    /// Binding: `JSONRPC`, `GRPC`, `HTTP+JSON`, or a custom URI.
    pub binding: String,
    /// Tenant (A2A 1.0).
    pub tenant: Option<String>,
    /// The version of A2A, if declared.
    pub version: Option<String>,
}

/// The chosen interface of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInterface {
    /// URL for requests, absolute, `http` or `https`. Other modules check if it may be called.
    pub url: String,
    /// The dialect.
    pub dialect: Dialect,
    /// The binding.
    pub binding: Binding,
    /// Tenant for every request (A2A 1.0).
    pub tenant: Option<String>,
    /// The version that the card declares for it.
    pub version: Option<String>,
}

impl AgentInterface {
    /// Returns the version of A2A for people: that of the dialect, unless the card declares 0.2,
    /// which has the dialect of 0.3.
    pub fn version_name(&self) -> &'static str {
        let declared = self.version.as_deref().unwrap_or_default().trim_start_matches(['v', 'V']);
        match self.dialect {
            Dialect::V0_3 if declared == "0.2" || declared.starts_with("0.2.") => "0.2",
            dialect => dialect.version(),
        }
    }
}

/// The members of a card that reveal its version.
#[derive(Debug, Clone, Default)]
pub(super) struct VersionMarkers {
    /// True if `supportedInterfaces` is present: A2A 1.0, regardless of other members.
    pub(super) modern: bool,
    /// The interfaces in the members from before 1.0; also present beside those of 1.0 in cards
    /// made for both.
    pub(super) old: Vec<InterfaceCandidate>,
    /// True if the card has a member that only A2A 0.2 and 0.3 have.
    pub(super) slash: bool,
    /// True if the card has, or lacks, a member as only A2A 0.1 does.
    pub(super) v0_1: bool,
}

impl InterfaceCandidate {
    fn is_json_rpc(&self) -> bool {
        self.binding.eq_ignore_ascii_case("JSONRPC")
    }

    /// Returns true if the routes of A2A 1.0 apply; those of 0.3 differ.
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

/// Classifies a version. Only major and minor count; a patch number must not matter.
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

/// Applies the rules of detection.
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
    // Agents of early 1.0 SDKs declare no version, and the one at the top of their card is wrong.
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

/// Chooses the interface of an agent without JSON-RPC.
fn by_route(offers: &[InterfaceCandidate], signs: &VersionMarkers) -> Result<AgentInterface, CardError> {
    let offer = offers.iter().find(|offer| signs.modern && offer.is_http_json());
    offer.ok_or_else(|| no_binding(offers))?.interface(Dialect::V1)
}

/// Chooses the dialect of a card from before 1.0, which declares its version or shows it.
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

/// Uses the operator's dialect instead of the detected one; the URL still comes from the card.
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

/// Returns the other supported interfaces, one per URL.
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
