//! An agent's card as an A2A client reads it: it leads to the gateway, asks for what the gateway asks for, and shows what the caller may
//! use. What the gateway does not know stays in it.
//!
//! Where clients of every version are served, it is one that each of them can read: the members of all versions side by side, as in the
//! cards of SDKs that speak two. Whoever signed the card signed another one, so signatures are left out. Not here: fetching it (see
//! `agents`), serving it (see `cards`).

mod filling;
mod security;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::a2a::{Dialect, skill_id};
use crate::gateway::json_object::RawObject;

pub(super) use security::CardSecurity;

/// How cards of an agent are shown to a caller.
pub(super) struct CardRewriter<'a> {
    /// Where the agent is, for the caller.
    pub(super) url: String,
    /// What it speaks.
    pub(super) dialect: Dialect,
    /// The version by its card's own word.
    pub(super) version: Option<&'a str>,
    /// The versions of the clients that read them, in the order in which they are to choose.
    pub(super) clients: Vec<Dialect>,
    /// What the caller has to prove.
    pub(super) security: CardSecurity,
    /// Whether push notifications reach this caller.
    pub(super) has_push: bool,
    /// Whether the caller may use a skill.
    pub(super) shows: Box<dyn Fn(&str) -> bool + Send + Sync + 'a>,
}

/// Members that say how the agent is called, or that are the agent's own affair; in every version.
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

/// The same of a skill.
const SKILLS_OWN: [&str; 2] = ["security", "securityRequirements"];

/// Whether some reader may take a member for the one of this name: those of protobuf know each by two names.
fn is_readable_by(name: &str, known: &str) -> bool {
    let letters = name.chars().filter(|letter| *letter != '_');
    letters.flat_map(char::to_lowercase).eq(known.chars().flat_map(char::to_lowercase))
}

/// The versions whose clients are served before an agent of this one, its own first.
pub(in crate::gateway) fn served(agent: Dialect, translate: bool) -> Vec<Dialect> {
    let others = [Dialect::V1, Dialect::V0_3, Dialect::V0_1].into_iter().filter(|other| *other != agent);
    std::iter::once(agent).chain(others.filter(|_| translate)).collect()
}

/// The bindings that clients of these versions may use. HTTP+JSON of 0.3 is another one, which the gateway does not have.
pub(in crate::gateway) fn bindings(served: &[Dialect]) -> &'static [&'static str] {
    if served.contains(&Dialect::V1) { &["JSONRPC", "HTTP+JSON"] } else { &["JSONRPC"] }
}

impl CardRewriter<'_> {
    /// Whether clients read it that do not speak the agent's version.
    fn has_others(&self) -> bool {
        self.clients.iter().any(|client| *client != self.dialect)
    }

    /// The card as the caller reads it; `None` if it is no object.
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
            // An agent of 0.2 is served to clients of 0.3, which ask for that.
            let own = self.version.filter(|own| !self.has_others() || own.starts_with("0.3"));
            card.insert_or_replace("protocolVersion", &own.unwrap_or("0.3.0"));
        }
    }

    /// The interfaces of a version in the order in which SDKs without a preference are to take them. 0.1 has none.
    fn interfaces_of(&self, version: Dialect) -> Vec<Value> {
        let bindings = match version {
            Dialect::V1 | Dialect::V0_3 => bindings(&[version]),
            Dialect::V0_1 => &[],
        };
        let of = |binding: &&str| json!({ "url": self.url, "protocolBinding": binding, "protocolVersion": version.version() });
        bindings.iter().map(of).collect()
    }

    /// A skill without what it asked for itself, if the caller may use it.
    fn skill(&self, skill: &RawValue) -> Option<Box<RawValue>> {
        let mut members = RawObject::read(skill.get())?;
        // By the name that the rules and the settings have for it.
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
