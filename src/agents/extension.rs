//! Extensions of A2A: declared by an agent's card, activated by the operator.
//!
//! An extension that the card requires and the operator did not activate makes the agent unusable:
//! it would reject every call, or answer in a way that the gateway does not expect. See
//! `a2a::Dialect::headers` for the way an extension is named to an agent.

use super::directory::Agent;
use crate::a2a::AgentCard;

/// An extension on an agent's card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredExtension<'a> {
    /// Its identity.
    pub uri: &'a str,
    /// True if the agent rejects clients that do not name it.
    pub required: bool,
    /// True if the gateway names it.
    pub active: bool,
}

impl Agent {
    /// Returns the extensions that this card declares.
    pub fn declared<'a>(&'a self, card: &'a AgentCard) -> impl Iterator<Item = DeclaredExtension<'a>> {
        card.extensions.iter().map(|extension| DeclaredExtension {
            uri: &extension.uri,
            required: extension.required,
            active: self.settings.extensions.contains(&extension.uri),
        })
    }

    /// Returns the reason for which an agent cannot be called although its card is known, if there
    /// is one.
    pub fn unsupported_required(&self) -> Option<String> {
        self.known().and_then(|known| self.obstacle_of(&known.card))
    }

    /// Returns the same, by this card.
    pub fn obstacle_of(&self, card: &AgentCard) -> Option<String> {
        let mut lacking = self.declared(card).filter(|extension| extension.required && !extension.active);
        let first = lacking.next()?;
        let all = lacking.fold(first.uri.to_owned(), |all, extension| format!("{all} and {}", extension.uri));
        let name = &self.settings.name;
        Some(format!(
            "its card requires {all}, which the gateway does not activate (agents.{name}.extensions)"
        ))
    }

    /// Describes extensions that are activated without effect.
    pub fn idle_extensions(&self, card: &AgentCard) -> Vec<String> {
        let idle =
            self.settings.extensions.iter().filter(|uri| self.declared(card).all(|known| known.uri != *uri));
        idle.map(|uri| format!("extensions: {uri} is activated, but the card does not declare it")).collect()
    }
}
