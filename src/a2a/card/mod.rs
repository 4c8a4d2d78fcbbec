//! The Agent Card of every version, read as untrusted text.
//!
//! What models will read is cleaned and capped; what is odd is left out and noted in [`Card::problems`], so that one bad
//! skill does not cost an agent. Not here: fetching and caching, signatures, what a skill becomes (see `bridge`).

mod interface;
mod schema;
mod security;
mod signature;
mod wire;

use std::borrow::Cow;

use serde_json::value::RawValue;

pub use self::interface::{AgentInterface, InterfaceCandidate};
pub use self::security::{ApiKeyLocation, SchemeKind, SecurityRequirement, SecurityScheme};
pub use self::signature::{CanonicalForm, CardSignature, SignedCard, SignedContent, VerifiedSignature};
use self::wire::CardIn;
pub use self::wire::skill_id;
use super::binding::PathSegmentError;
use super::depth::{MAX_DEPTH, depth_within};
use super::lenient::LenientObject;
use super::sanitize::visible_json;

/// Largest card that is read, in bytes.
pub const MAX_CARD_BYTES: usize = 1024 * 1024;
/// Most skills that are taken from one card.
pub const MAX_SKILLS: usize = 256;

/// What an agent says about itself.
#[derive(Debug, Clone)]
pub struct AgentCard {
    /// Its name, at most 128 bytes; empty if it gives none.
    pub name: String,
    /// What it does, at most 4096 bytes.
    pub description: String,
    /// The version of the agent itself, not of A2A.
    pub version: String,
    /// Who runs it, where it says so.
    pub provider: Option<String>,
    /// Where its documentation is, as it came; never fetched.
    pub documentation_url: Option<String>,
    /// Where its icon is, as it came; never fetched.
    pub icon_url: Option<String>,
    /// Whether it can stream.
    pub streaming: bool,
    /// Whether it can send push notifications.
    pub push_notifications: bool,
    /// Whether it has another card for those who authenticate.
    pub extended_card: bool,
    /// Whether the card is signed. Nobody has checked the signature.
    pub signed: bool,
    /// Which signature was checked and is good, if one was: then the card has only what that covers.
    pub proof: Option<VerifiedSignature>,
    /// Media types that it takes, unless a skill says otherwise.
    pub default_input_modes: Vec<String>,
    /// Media types that it makes, unless a skill says otherwise.
    pub default_output_modes: Vec<String>,
    /// What it can do.
    pub skills: Vec<AgentSkill>,
    /// Extensions that it knows.
    pub extensions: Vec<AgentExtension>,
    /// Ways to authenticate, by name.
    pub security_schemes: Vec<SecurityScheme>,
    /// Which of them it requires: any one entry is enough; none means anonymous.
    pub security: Vec<SecurityRequirement>,
    /// Where and how it can be called, in its order of preference; of A2A 1.0 if the card has any such.
    pub interfaces: Vec<InterfaceCandidate>,
    /// The card as it came, but that what a reader would not see is written as escapes.
    pub raw: Box<RawValue>,
    /// What was left out or is odd, for the operator. At most 32 entries.
    pub problems: Vec<String>,
    signs: interface::VersionMarkers,
}

/// One thing that an agent can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSkill {
    /// Its id, unique in the card, at most 128 bytes.
    pub id: String,
    /// Its name, at most 128 bytes; the id if it has none.
    pub name: String,
    /// What it does, at most 4096 bytes.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// What one may say to it.
    pub examples: Vec<String>,
    /// Media types that it takes; empty means the card's.
    pub input_modes: Vec<String>,
    /// Media types that it makes; empty means the card's.
    pub output_modes: Vec<String>,
    /// What it requires beyond the card's own security; empty means nothing.
    pub security: Vec<SecurityRequirement>,
}

/// An extension of A2A that an agent knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentExtension {
    /// Its identity.
    pub uri: String,
    /// What the agent uses it for.
    pub description: String,
    /// Whether the agent refuses those who do not name it.
    pub required: bool,
}

/// Why a card cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// More than [`MAX_CARD_BYTES`].
    #[error("card has {bytes} bytes, more than the {MAX_CARD_BYTES} that are read")]
    TooLarge {
        /// What came.
        bytes: usize,
    },
    /// Not JSON, or nested too deeply.
    #[error("card is not JSON: {0}; check the address of the card")]
    NotJson(String),
    /// JSON, but no Agent Card.
    #[error("not an Agent Card: {0}; check the address of the card")]
    NotACard(String),
    /// The agent cannot be called by a binding that the gateway has.
    #[error(
        "agent offers neither JSON-RPC nor the HTTP+JSON of A2A 1.0, only: {}; it must enable one of the two", offered.join(", ")
    )]
    UnsupportedBinding {
        /// What it offers.
        offered: Vec<String>,
    },
    /// The agent speaks no version that the gateway speaks.
    #[error("agent speaks A2A {}; the gateway speaks 0.1, 0.2, 0.3 and 1.0", offered.join(", "))]
    UnsupportedVersion {
        /// What it speaks.
        offered: Vec<String>,
    },
    /// The address in the card cannot be called.
    #[error("card gives the address {url:?}, which is not an absolute http or https URL; fix the card")]
    BadUrl {
        /// The address.
        url: String,
    },
    /// The tenant cannot go into a path, which is where HTTP+JSON has it.
    #[error("card gives the tenant {tenant:?}: {}; fix the card", PathSegmentError::TEXT)]
    BadTenant {
        /// The tenant.
        tenant: String,
    },
    /// The card shows no version: ask the agent (see [`Question`](super::Question)), then pin the outcome.
    #[error("card shows no A2A version; probe {url} or set the agent's protocol")]
    Ambiguous {
        /// Where to ask.
        url: String,
    },
}

impl AgentCard {
    /// Reads a card of any version.
    ///
    /// # Errors
    ///
    /// [`CardError`], if it is too large, not JSON, or has nothing that says how to call the agent.
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

    /// Chooses how to call the agent; `pin` is the dialect that the operator or a probe insists on.
    ///
    /// # Errors
    ///
    /// [`CardError`], if there is no way, or none that is certain: then probe and pin.
    pub fn interface(&self, pin: Option<super::Dialect>) -> Result<AgentInterface, CardError> {
        interface::choose(&self.interfaces, &self.signs, pin)
    }

    /// Returns the other interfaces that the agent can be called by, at other addresses than `first`, in the order of the card.
    #[must_use]
    pub fn other_interfaces(
        &self,
        first: &AgentInterface,
        pin: Option<super::Dialect>,
    ) -> Vec<AgentInterface> {
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
