//! Card rewriting for A2A clients: the card names the URLs and the security of the gateway, and the
//! skills that the caller may use. Unknown members stay.
//!
//! If clients of every version are served, each of them can read the card: it has the members of
//! all versions side by side, like the cards of SDKs that speak two. A signature is valid for the
//! original card only, so signatures are removed. Out of scope: fetching the card (see `agents`),
//! serving it (see `cards`).

mod filling;
mod security;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::a2a::{Dialect, skill_id};
use crate::gateway::json_object::RawObject;

pub(super) use security::CardSecurity;

/// Rewriter of an agent's card for one caller.
pub(super) struct CardRewriter<'a> {
    /// URL of the agent at the gateway.
    pub(super) url: String,
    /// Dialect of the agent.
    pub(super) dialect: Dialect,
    /// Version in the agent's card.
    pub(super) version: Option<&'a str>,
    /// Dialects of the clients that read the card, in order of preference.
    pub(super) clients: Vec<Dialect>,
    /// Authentication that the caller needs.
    pub(super) security: CardSecurity,
    /// True if push notifications reach this caller.
    pub(super) has_push: bool,
    /// Returns true if the caller may use a skill.
    pub(super) shows: Box<dyn Fn(&str) -> bool + Send + Sync + 'a>,
}

/// Members about calling the agent, or private to the agent, in every version.
const OWN: [&str; 11] = [
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "supportedInterfaces",
    "tenant",
    "signatures",
    "authentication",
    "securitySchemes",
    "security",
    "securityRequirements",
];

/// Members of a skill that are private to the agent.
const SKILLS_OWN: [&str; 2] = ["security", "securityRequirements"];

/// Returns true if a reader may take a member for `known`: protobuf readers accept two names for
/// each member.
fn is_readable_by(name: &str, known: &str) -> bool {
    let letters = name.chars().filter(|letter| *letter != '_');
    letters.flat_map(char::to_lowercase).eq(known.chars().flat_map(char::to_lowercase))
}

/// Returns the dialects of the clients that an agent of this dialect serves, its own first.
pub(in crate::gateway) fn served(agent: Dialect, translate: bool) -> Vec<Dialect> {
    let others = [Dialect::V1, Dialect::V0_3, Dialect::V0_1].into_iter().filter(|other| *other != agent);
    std::iter::once(agent).chain(others.filter(|_| translate)).collect()
}

/// Returns the bindings for clients of these versions. HTTP+JSON of 0.3 is a different one, which
/// the gateway does not have.
pub(in crate::gateway) fn bindings(served: &[Dialect]) -> &'static [&'static str] {
    if served.contains(&Dialect::V1) { &["JSONRPC", "HTTP+JSON"] } else { &["JSONRPC"] }
}

impl CardRewriter<'_> {
    /// Returns true if clients of other dialects read the card.
    fn has_others(&self) -> bool {
        self.clients.iter().any(|client| *client != self.dialect)
    }

    /// Returns the card for the caller; `None` if it is not an object.
    pub(super) fn rewrite(&self, card: &str) -> Option<String> {
        let mut card = RawObject::read(card)?;
        card.remove_all(|name| OWN.iter().any(|own| is_readable_by(name, own)));
        self.interfaces(&mut card);
        self.security.write(&mut card, &self.clients);
        if self.has_others() {
            filling::complete(&mut card);
            filling::fit_capabilities(&mut card, self.dialect, &self.clients);
        }
        if !self.has_push
            && let Some(mut can) = card.find("capabilities").and_then(|can| RawObject::read(can.get()))
        {
            can.insert_or_replace("pushNotifications", &false);
            card.set("capabilities", can.written());
        }
        if let Some(skills) = card.find("skills") {
            let skills: Vec<&RawValue> = serde_json::from_str(skills.get()).ok()?;
            let shown: Vec<Box<RawValue>> =
                skills.into_iter().filter_map(|skill| self.skill(skill)).collect();
            card.insert_or_replace("skills", &shown);
        }
        Some(card.written().get().to_owned())
    }

    fn interfaces(&self, card: &mut RawObject) {
        let clients = &self.clients;
        if clients.contains(&Dialect::V1) {
            let each: Vec<Value> = clients.iter().flat_map(|version| self.interfaces_of(*version)).collect();
            card.insert_or_replace("supportedInterfaces", &each);
        }
        if clients.iter().any(|version| *version != Dialect::V1) {
            card.insert_or_replace("url", &self.url);
        }
        if clients.contains(&Dialect::V0_3) {
            card.insert_or_replace("preferredTransport", &"JSONRPC");
            // An agent of 0.2 is served to clients of 0.3, which require that version in the card.
            let own = self.version.filter(|own| !self.has_others() || own.starts_with("0.3"));
            card.insert_or_replace("protocolVersion", &own.unwrap_or("0.3.0"));
        }
    }

    /// Returns the interfaces of a version, in order of preference for SDKs without one. 0.1 has
    /// none.
    fn interfaces_of(&self, version: Dialect) -> Vec<Value> {
        let bindings = match version {
            Dialect::V1 | Dialect::V0_3 => bindings(&[version]),
            Dialect::V0_1 => &[],
        };
        let of = |binding: &&str| json!({ "url": self.url, "protocolBinding": binding, "protocolVersion": version.version() });
        bindings.iter().map(of).collect()
    }

    /// Returns a skill without its own security requirements, if the caller may use it.
    fn skill(&self, skill: &RawValue) -> Option<Box<RawValue>> {
        let mut members = RawObject::read(skill.get())?;
        // Under the name that the rules and the settings use.
        let id = skill_id(&members.text("id")?);
        if id.is_empty() || !(self.shows)(&id) {
            return None;
        }
        members.remove_all(|name| SKILLS_OWN.iter().any(|own| is_readable_by(name, own)));
        if self.has_others() {
            filling::complete_skill(&mut members)?;
        }
        Some(members.written())
    }
}

#[cfg(test)]
mod tests;
