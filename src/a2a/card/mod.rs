//! The Agent Card of every version, read as untrusted text.
//!
//! Text for models is cleaned and capped; invalid members are left out and noted in
//! [`AgentCard::problems`], so that one bad skill does not disable an agent. Out of scope: fetching
//! and caching, the mapping of skills (see `bridge`).

mod interface;
mod security;
mod signature;
mod wire;

use std::borrow::Cow;

use serde_json::value::RawValue;

pub use self::interface::AgentInterface;
pub use self::interface::{InterfaceCandidate, InterfacePin};
pub use self::security::{ApiKeyLocation, SchemeKind, SecurityRequirement, SecurityScheme};
pub use self::signature::{CanonicalForm, CardSignature, SignedCard, SignedContent, VerifiedSignature};
use self::wire::CardIn;
pub(crate) use self::wire::skill_id;
use super::lenient::LenientObject;
use super::lenient::{MAX_DEPTH, depth_within};
use super::operation::PathSegmentError;
use super::sanitize::visible_json;

/// Maximum size of a card, in bytes.
pub(crate) const MAX_CARD_BYTES: usize = 1024 * 1024;
/// Maximum number of skills that are used from one card.
pub const MAX_SKILLS: usize = 256;

/// An agent's description of itself.
#[derive(Debug, Clone)]
pub struct AgentCard {
    /// The agent's name, at most 128 bytes; empty if it has none.
    pub name: String,
    /// The agent's description, at most 4096 bytes.
    pub description: String,
    /// The version of the agent itself, not of A2A.
    pub version: String,
    /// The organization that runs the agent, if declared.
    pub provider: Option<String>,
    /// URL of the documentation, unchanged; never fetched.
    pub documentation_url: Option<String>,
    /// URL of the icon, unchanged; never fetched.
    pub icon_url: Option<String>,
    /// True if the agent supports streaming.
    pub streaming: bool,
    /// True if the agent supports push notifications.
    pub push_notifications: bool,
    /// True if the agent has another card for authenticated clients.
    pub extended_card: bool,
    /// True if the card is signed. The signature is not verified.
    pub signed: bool,
    /// The signature that was verified, if there is one: then the card has only the content that
    /// the signature covers.
    pub proof: Option<VerifiedSignature>,
    /// Media types of the input, unless a skill declares others.
    pub default_input_modes: Vec<String>,
    /// Media types of the output, unless a skill declares others.
    pub default_output_modes: Vec<String>,
    /// The skills.
    pub skills: Vec<AgentSkill>,
    /// The supported extensions.
    pub extensions: Vec<AgentExtension>,
    /// Authentication schemes, by name.
    pub security_schemes: Vec<SecurityScheme>,
    /// The required schemes: any one entry is enough; none means anonymous.
    pub security: Vec<SecurityRequirement>,
    /// The interfaces in the agent's order of preference; those of A2A 1.0 if the card has any.
    pub interfaces: Vec<InterfaceCandidate>,
    /// The card unchanged, except that invisible characters are written as escapes.
    pub raw: Box<RawValue>,
    /// Omitted or invalid members, for the operator. At most 32 entries.
    pub problems: Vec<String>,
    signs: interface::VersionMarkers,
}

/// One skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSkill {
    /// Id, unique in the card, at most 128 bytes.
    pub id: String,
    /// Name, at most 128 bytes; the id if it has none.
    pub name: String,
    /// Description, at most 4096 bytes.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Example inputs.
    pub examples: Vec<String>,
    /// Media types of the input; empty means the card's.
    pub input_modes: Vec<String>,
    /// Media types of the output; empty means the card's.
    pub output_modes: Vec<String>,
    /// Requirements beyond the card's own security; empty means none.
    pub security: Vec<SecurityRequirement>,
}

/// An A2A extension that an agent supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentExtension {
    /// URI of the extension.
    pub uri: String,
    /// The agent's use of it.
    pub description: String,
    /// True if the agent rejects clients that do not name it.
    pub required: bool,
}

/// The reason why a card cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The card is larger than `MAX_CARD_BYTES`.
    #[error("card has {bytes} bytes, more than the {MAX_CARD_BYTES} that are read")]
    TooLarge {
        /// The size of the card.
        bytes: usize,
    },
    /// The card is not JSON, or nested too deeply.
    #[error("card is not JSON: {0}; check the address of the card")]
    NotJson(String),
    /// The card is JSON, but no Agent Card.
    #[error("not an Agent Card: {0}; check the address of the card")]
    NotACard(String),
    /// The agent offers no binding that the gateway supports.
    #[error(
        "agent offers none of JSON-RPC, HTTP+JSON and gRPC in a version that the gateway speaks, only: {}; it must enable one of them", offered.join(", ")
    )]
    UnsupportedBinding {
        /// The bindings that it offers.
        offered: Vec<String>,
    },
    /// The agent does not offer the binding that the operator requires.
    #[error("agent does not offer {binding}, which its setting binding requires, only: {}", offered.join(", "))]
    PinnedBinding {
        /// The required binding.
        binding: &'static str,
        /// The bindings that it offers.
        offered: Vec<String>,
    },
    /// The agent supports no version that the gateway supports.
    #[error("agent speaks A2A {}; the gateway speaks 0.1, 0.2, 0.3 and 1.0", offered.join(", "))]
    UnsupportedVersion {
        /// The versions that it offers.
        offered: Vec<String>,
    },
    /// The URL in the card cannot be called.
    #[error("card gives the address {url:?}, which is not an absolute http or https URL; fix the card")]
    BadUrl {
        /// The URL.
        url: String,
    },
    /// The tenant cannot go into a path, as HTTP+JSON requires.
    #[error("card gives the tenant {tenant:?}: {}; fix the card", PathSegmentError::TEXT)]
    BadTenant {
        /// The tenant.
        tenant: String,
    },
    /// The card shows no version: ask the agent (see [`ProbeRequest`](super::ProbeRequest)), then
    /// pin the outcome.
    #[error("card shows no A2A version; probe {url} or set the agent's protocol")]
    Ambiguous {
        /// URL for the probe.
        url: String,
    },
}

impl AgentCard {
    /// Reads a card of any version.
    ///
    /// # Errors
    ///
    /// [`CardError`] if it is too large, not JSON, or has no interface.
    pub fn parse(json: &[u8]) -> Result<Self, CardError> {
        if json.len() > MAX_CARD_BYTES {
            return Err(CardError::TooLarge { bytes: json.len() });
        }
        if !depth_within(json, MAX_DEPTH) {
            return Err(CardError::NotJson("nested too deeply".to_owned()));
        }
        let text = str::from_utf8(json).map_err(|_| CardError::NotJson("not UTF-8".to_owned()))?;
        let raw: &RawValue =
            serde_json::from_str(text.trim_start_matches('\u{FEFF}')).map_err(|error| not_json(&error))?;
        let LenientObject(card) = serde_json::from_str::<LenientObject<Box<CardIn>>>(raw.get())
            .map_err(|error| not_json(&error))?;
        let card = card.ok_or_else(|| CardError::NotACard("not a JSON object".to_owned()))?;
        let shown = match visible_json(raw.get()) {
            Cow::Borrowed(_) => raw.to_owned(),
            Cow::Owned(shown) => RawValue::from_string(shown).map_err(|error| not_json(&error))?,
        };
        card.into_card(shown)
    }

    /// Chooses the interface; `pin` is the dialect, or dialect and binding, that the operator or a probe
    /// requires.
    ///
    /// # Errors
    ///
    /// [`CardError`] if there is none, or none that is certain: then probe and pin.
    pub fn interface(&self, pin: impl Into<InterfacePin>) -> Result<AgentInterface, CardError> {
        interface::choose(&self.interfaces, &self.signs, pin.into())
    }

    /// Returns the other supported interfaces, at other URLs than `first`, in the order of preference.
    #[must_use]
    pub(crate) fn other_interfaces(&self, first: &AgentInterface, pin: InterfacePin) -> Vec<AgentInterface> {
        interface::others(&self.interfaces, &self.signs, first, pin)
    }
}

fn not_json(error: &serde_json::Error) -> CardError {
    CardError::NotJson(super::sanitize::clean_line(&error.to_string(), 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_bounded_in_every_direction() {
        let large = vec![b' '; MAX_CARD_BYTES + 1];
        assert_eq!(AgentCard::parse(&large).unwrap_err(), CardError::TooLarge { bytes: MAX_CARD_BYTES + 1 });
        let deep = format!("{{\"x\":{}", "[".repeat(1000));
        assert_eq!(
            AgentCard::parse(deep.as_bytes()).unwrap_err(),
            CardError::NotJson("nested too deeply".to_owned())
        );

        let long = "x".repeat(10_000);
        let skill = |id: usize| format!(r#"{{"id":"{id}","name":"{long}"}}"#);
        let skills: Vec<String> =
            (0..10).map(skill).chain((10..300).map(|id| format!(r#"{{"id":"{id}"}}"#))).collect();
        let bad = ["{}"; 100].join(",");
        let card = format!(
            r#"{{"name":"{long}","description":"{long}","url":"http://h/","skills":[{bad},{}],"x":"é"}}"#,
            skills.join(",")
        );
        let card = AgentCard::parse(card.as_bytes()).unwrap();
        assert_eq!((card.name.len(), card.description.len()), (128, 4096));
        assert_eq!((card.skills.len(), card.skills[0].name.len()), (MAX_SKILLS, 128));
        assert_eq!(card.problems.len(), 32);
    }

    #[test]
    fn a_byte_order_mark_does_no_harm() {
        let card = AgentCard::parse("\u{FEFF}{\"url\":\"http://h/\"}".as_bytes()).unwrap();
        assert_eq!(card.raw.get(), "{\"url\":\"http://h/\"}");
    }
}
