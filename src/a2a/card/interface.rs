//! Chooses the interface of a card, its dialect and its binding.
//!
//! The version is detected from the members of a card, because cards with members of several
//! versions are common. If the card shows no version, a probe asks the agent (see `dialect`).

use http::Uri;
use http::uri::Authority;

use super::super::dialect::Dialect;
use super::super::operation::{Binding, segment};
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
    /// URL for requests, absolute, `http` or `https`; for gRPC also `//host:port`, where the card shows
    /// no scheme. Other modules check if it may be called.
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
    /// Returns true if the card declares the dialect for it: another may be tried by JSON-RPC, which has one URL for
    /// all, but not by the paths of HTTP+JSON.
    pub(crate) fn is_declared(&self) -> bool {
        let declared = self.version.as_deref().map(spoken);
        match self.dialect {
            Dialect::V0_1 => declared == Some(ProtocolVersion::V0_1),
            Dialect::V0_3 => declared == Some(ProtocolVersion::Slash),
            Dialect::V1 => declared == Some(ProtocolVersion::V1),
        }
    }

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

/// The dialect and the binding that the operator or a probe requires; absent: any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterfacePin {
    /// The dialect.
    pub dialect: Option<Dialect>,
    /// The binding.
    pub binding: Option<Binding>,
}

impl From<Option<Dialect>> for InterfacePin {
    fn from(dialect: Option<Dialect>) -> Self {
        Self { dialect, binding: None }
    }
}

impl InterfacePin {
    /// Returns the binding of an offer, if the pin and the dialect permit it.
    fn binding_of(self, offer: &InterfaceCandidate, dialect: Dialect) -> Option<Binding> {
        let binding = Binding::of_name(&offer.binding).filter(|binding| binding.speaks(dialect))?;
        self.binding.is_none_or(|pin| pin == binding).then_some(binding)
    }
}

impl InterfaceCandidate {
    fn speaks(&self) -> ProtocolVersion {
        self.version.as_deref().map_or(ProtocolVersion::NotSaid, spoken)
    }

    fn interface(&self, dialect: Dialect, binding: Binding) -> Result<AgentInterface, CardError> {
        let bad_url = || CardError::BadUrl { url: clean_line(&self.url, 200) };
        let url = match binding {
            Binding::JsonRpc | Binding::HttpJson => is_web_url(&self.url).then(|| self.url.clone()),
            Binding::Grpc => grpc_url(&self.url),
        };
        let url = url.ok_or_else(bad_url)?;
        let tenant = match dialect {
            Dialect::V0_1 | Dialect::V0_3 => None,
            Dialect::V1 => self.tenant.clone(),
        };
        if let Some(tenant) = tenant.as_deref().filter(|_| binding == Binding::HttpJson)
            && segment(tenant).is_err()
        {
            return Err(CardError::BadTenant { tenant: clean_line(tenant, 200) });
        }
        Ok(AgentInterface { url, dialect, binding, tenant, version: self.version.clone() })
    }
}

fn is_web_url(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// Returns the URL of a target of gRPC: an `http` or `https` URL; `grpc://` and `grpcs://`, which mean
/// those; or a host and a port as official SDKs write them, also as `dns:///host:port`, which becomes
/// `//host:port`.
fn grpc_url(target: &str) -> Option<String> {
    let url = match target.split_once("://") {
        Some(("http" | "https", _)) => target.to_owned(),
        Some(("grpc", place)) => format!("http://{place}"),
        Some(("grpcs", place)) => format!("https://{place}"),
        // The part before the last slash is the name server of the client.
        Some(("dns", place)) => format!("//{}", place.strip_prefix('/')?),
        Some(_) => return None,
        None => format!("//{}", target.strip_prefix("dns:").unwrap_or(target)),
    };
    let is_target = match url.strip_prefix("//") {
        Some(target) => target.parse::<Authority>().is_ok_and(|target| target.port().is_some()),
        None => is_web_url(&url),
    };
    is_target.then_some(url)
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

/// Returns the dialect of a card's offer; nothing if the gateway does not speak it, or if the card does not show
/// it.
fn shown(offer: &InterfaceCandidate, signs: &VersionMarkers) -> Option<Dialect> {
    match offer.speaks() {
        ProtocolVersion::V1 => Some(Dialect::V1),
        ProtocolVersion::Slash => Some(Dialect::V0_3),
        ProtocolVersion::V0_1 => Some(Dialect::V0_1),
        ProtocolVersion::Other => None,
        // Agents of early 1.0 SDKs declare no version, and the one at the top of their card is wrong.
        ProtocolVersion::NotSaid if signs.modern => Some(Dialect::V1),
        // 0.1 has no other binding.
        ProtocolVersion::NotSaid
            if signs.slash || Binding::of_name(&offer.binding).is_some_and(Binding::is_bare) =>
        {
            Some(Dialect::V0_3)
        }
        ProtocolVersion::NotSaid => signs.v0_1.then_some(Dialect::V0_1),
    }
}

/// Returns the offers in the order of preference: that of the card, of which before 1.0 only the first place
/// counts. The others are then in the gateway's order of bindings.
fn preferred<'a>(offers: &'a [InterfaceCandidate], signs: &VersionMarkers) -> Vec<&'a InterfaceCandidate> {
    let mut ordered: Vec<_> = offers.iter().collect();
    if !signs.modern
        && let Some((_, others)) = ordered.split_first_mut()
    {
        let place = |offer: &&InterfaceCandidate| {
            let binding = Binding::of_name(&offer.binding);
            Binding::ALL.iter().position(|known| Some(*known) == binding).unwrap_or(Binding::ALL.len())
        };
        others.sort_by_key(place);
    }
    ordered
}

/// Applies the rules of detection: the newest version that both speak, and of its interfaces the one that the card
/// prefers.
pub(super) fn choose(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    pin: InterfacePin,
) -> Result<AgentInterface, CardError> {
    if let Some(dialect) = pin.dialect {
        return pinned(offers, signs, dialect, pin);
    }
    let ordered = preferred(offers, signs);
    for dialect in NEWEST_FIRST {
        for offer in ordered.iter().filter(|offer| shown(offer, signs) == Some(dialect)) {
            if let Some(binding) = pin.binding_of(offer, dialect) {
                return offer.interface(dialect, binding);
            }
        }
    }
    for offer in ordered.iter().filter(|offer| offer.speaks() == ProtocolVersion::NotSaid) {
        // By JSON-RPC the agent can be asked for its version.
        if let Some(binding) = pin.binding_of(offer, Dialect::V0_1) {
            return Err(CardError::Ambiguous { url: offer.interface(Dialect::V0_1, binding)?.url });
        }
    }
    let of_binding = |offer: &&InterfaceCandidate| {
        let binding = Binding::of_name(&offer.binding);
        binding.is_some() && pin.binding.is_none_or(|pin| Some(pin) == binding)
    };
    match offers.iter().any(|offer| of_binding(&offer)) {
        true => Err(unsupported(offers.iter().filter(of_binding))),
        false => Err(no_binding(offers, pin)),
    }
}

/// Uses the operator's dialect instead of the detected one; the URL still comes from the card.
fn pinned(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    dialect: Dialect,
    pin: InterfacePin,
) -> Result<AgentInterface, CardError> {
    let wanted = match dialect {
        Dialect::V0_1 => ProtocolVersion::V0_1,
        Dialect::V0_3 => ProtocolVersion::Slash,
        Dialect::V1 => ProtocolVersion::V1,
    };
    let ordered = preferred(offers, signs);
    let callable = || ordered.iter().filter(|offer| pin.binding_of(offer, dialect).is_some()).copied();
    let of_version = |version| callable().find(|offer| offer.speaks() == version);
    let old =
        || signs.old.iter().find(|offer| dialect != Dialect::V1 && pin.binding_of(offer, dialect).is_some());
    // An offer of another version: rather by JSON-RPC, which has one URL and no paths.
    let any = |binding| callable().find(|offer| Binding::of_name(&offer.binding) == Some(binding));
    let offer = of_version(wanted)
        .or_else(old)
        .or_else(|| of_version(ProtocolVersion::NotSaid))
        .or_else(|| Binding::ALL.into_iter().find_map(any))
        .ok_or_else(|| no_binding(offers, pin))?;
    offer.interface(dialect, pin.binding_of(offer, dialect).unwrap_or(Binding::JsonRpc))
}

/// The dialects in the order of preference.
const NEWEST_FIRST: [Dialect; 3] = [Dialect::V1, Dialect::V0_3, Dialect::V0_1];

fn age(dialect: Dialect) -> usize {
    NEWEST_FIRST.iter().position(|known| *known == dialect).unwrap_or(NEWEST_FIRST.len())
}

/// Returns the other supported interfaces, one per URL and protocol: of several versions the newest.
pub(super) fn others(
    offers: &[InterfaceCandidate],
    signs: &VersionMarkers,
    first: &AgentInterface,
    pin: InterfacePin,
) -> Vec<AgentInterface> {
    let mut others: Vec<AgentInterface> = Vec::new();
    for offer in preferred(offers, signs) {
        let dialect = match offer.speaks() {
            ProtocolVersion::NotSaid => first.dialect,
            _ => match shown(offer, signs) {
                Some(dialect) => dialect,
                None => continue,
            },
        };
        let Some(binding) = pin.binding_of(offer, dialect) else { continue };
        let Ok(other) = offer.interface(dialect, binding) else { continue };
        // Two connections to one address share its fate, unless one of them is by another protocol.
        let is_same = |known: &AgentInterface| {
            known.url == other.url && (known.binding == Binding::Grpc) == (binding == Binding::Grpc)
        };
        if is_same(first) || pin.dialect.is_some_and(|pin| pin != dialect) {
            continue;
        }
        match others.iter_mut().find(|known| is_same(known)) {
            Some(known) if age(dialect) < age(known.dialect) => *known = other,
            Some(_) => {}
            None => others.push(other),
        }
    }
    others
}

fn no_binding(offers: &[InterfaceCandidate], pin: InterfacePin) -> CardError {
    let mut offered: Vec<String> = offers.iter().map(|offer| offer.binding.clone()).collect();
    offered.dedup();
    offered.truncate(8);
    match pin.binding {
        Some(binding) if offers.iter().any(|offer| Binding::of_name(&offer.binding).is_some()) => {
            CardError::PinnedBinding { binding: binding.name(), offered }
        }
        _ => CardError::UnsupportedBinding { offered },
    }
}

fn unsupported<'a>(offers: impl Iterator<Item = &'a InterfaceCandidate>) -> CardError {
    let mut offered: Vec<String> = offers.filter_map(|offer| offer.version.clone()).collect();
    offered.dedup();
    offered.truncate(8);
    CardError::UnsupportedVersion { offered }
}

#[cfg(test)]
mod tests {
    use super::grpc_url;

    #[test]
    fn target_of_grpc_becomes_url() {
        for (target, url) in [
            ("h:50051", Some("//h:50051")),
            ("dns:h:50051", Some("//h:50051")),
            ("dns:///h:50051", Some("//h:50051")),
            ("[::1]:50051", Some("//[::1]:50051")),
            ("http://h:50051", Some("http://h:50051")),
            ("https://h/base", Some("https://h/base")),
            ("grpc://h:50051", Some("http://h:50051")),
            ("grpcs://h", Some("https://h")),
            ("h", None),
            ("", None),
            ("h:port", None),
            ("h:1/path", None),
            ("dns://1.1.1.1/h:50051", None),
            ("unix:///run/a.sock", None),
            ("ftp://h:1", None),
            ("http://", None),
        ] {
            assert_eq!(grpc_url(target).as_deref(), url, "{target:?}");
        }
    }
}
