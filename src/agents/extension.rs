//! Extensions of A2A: what an agent's card declares, against what the operator activates for it.
//!
//! One that the card requires and nobody activated makes the agent unusable: it would refuse every call, or answer what the gateway
//! does not expect. Not here: how an extension is named to an agent (see `a2a::Dialect::headers`), what it means.

use super::directory::Agent;
use crate::a2a::AgentCard;

/// An extension on an agent's card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredExtension<'a> {
    /// Its identity.
    pub uri: &'a str,
    /// Whether the agent refuses those who do not name it.
    pub required: bool,
    /// Whether the gateway names it.
    pub active: bool,
}

impl Agent {
    /// What this card declares.
    pub fn declared<'a>(&'a self, card: &'a AgentCard) -> impl Iterator<Item = DeclaredExtension<'a>> {
        card.extensions.iter().map(|extension| DeclaredExtension {
            uri: &extension.uri,
            required: extension.required,
            active: self.settings.extensions.contains(&extension.uri),
        })
    }

    /// Why an agent cannot be called although its card is known, if it cannot.
    pub fn unsupported_required(&self) -> Option<String> {
        self.known().and_then(|known| self.obstacle_of(&known.card))
    }

    /// The same, by this card.
    pub fn obstacle_of(&self, card: &AgentCard) -> Option<String> {
        let mut lacking = self.declared(card).filter(|extension| extension.required && !extension.active);
        let first = lacking.next()?;
        let all = lacking.fold(first.uri.to_owned(), |all, extension| format!("{all} and {}", extension.uri));
        let name = &self.settings.name;
        Some(format!(
            "its card requires {all}, which the gateway does not activate (agents.{name}.extensions)"
        ))
    }

    /// Extensions that are activated for nothing, in words.
    pub fn idle_extensions(&self, card: &AgentCard) -> Vec<String> {
        let idle =
            self.settings.extensions.iter().filter(|uri| self.declared(card).all(|known| known.uri != *uri));
        idle.map(|uri| format!("extensions: {uri} is activated, but the card does not declare it")).collect()
    }
}
