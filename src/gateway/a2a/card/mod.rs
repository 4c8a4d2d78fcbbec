//! An agent's card as an A2A client reads it: it leads to the gateway, asks for what the gateway asks for, and shows what the caller may
//! use. What the gateway does not know stays in it.
//!
//! Whoever signed the card signed another one, so signatures are left out. Not here: fetching it (see `agents`), serving it (see `cards`).

mod security;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::members::Members;
use crate::a2a::Dialect;

pub(super) use security::Security;

/// How cards of an agent are shown to a caller.
pub(super) struct Front<'a> {
    /// Where the agent is, for the caller.
    pub(super) url: String,
    /// What it speaks.
    pub(super) dialect: Dialect,
    /// The version by its card's own word.
    pub(super) version: Option<&'a str>,
    /// What the caller has to prove.
    pub(super) security: Security,
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

impl Front<'_> {
    /// The card as the caller reads it; `None` if it is no object.
    pub(super) fn show(&self, card: &str) -> Option<String> {
        let mut card = Members::read(card)?;
        OWN.iter().for_each(|name| card.remove(name));
        self.interfaces(&mut card);
        self.security.write(&mut card, self.dialect);
        if !self.has_push
            && let Some(mut can) = card.find("capabilities").and_then(|can| Members::read(can.get()))
        {
            can.put("pushNotifications", &false);
            card.set("capabilities", can.written());
        }
        if let Some(skills) = card.find("skills") {
            let skills: Vec<&RawValue> = serde_json::from_str(skills.get()).ok()?;
            let shown: Vec<Box<RawValue>> =
                skills.into_iter().filter_map(|skill| self.skill(skill)).collect();
            card.put("skills", &shown);
        }
        Some(card.written().get().to_owned())
    }

    fn interfaces(&self, card: &mut Members) {
        match self.dialect {
            Dialect::V1 => {
                let of = |binding: &str| -> Value {
                    json!({ "url": self.url, "protocolBinding": binding, "protocolVersion": "1.0" })
                };
                card.put("supportedInterfaces", &[of("JSONRPC"), of("HTTP+JSON")]);
            }
            Dialect::V0_1 => card.put("url", &self.url),
            Dialect::V0_3 => {
                card.put("url", &self.url);
                card.put("preferredTransport", &"JSONRPC");
                card.put("protocolVersion", &self.version.unwrap_or("0.3.0"));
            }
        }
    }

    /// A skill without what it asked for itself, if the caller may use it.
    fn skill(&self, skill: &RawValue) -> Option<Box<RawValue>> {
        let mut members = Members::read(skill.get())?;
        let id = members.text("id").unwrap_or_default();
        if !(self.shows)(&id) {
            return None;
        }
        if members.find("security").is_none() && members.find("securityRequirements").is_none() {
            return Some(skill.to_owned());
        }
        members.remove("security");
        members.remove("securityRequirements");
        Some(members.written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(dialect: Dialect) -> Front<'static> {
        Front {
            url: "https://gw.example/a2a/bard".to_owned(),
            dialect,
            version: None,
            security: Security::default(),
            has_push: false,
            shows: Box::new(|skill| skill != "whisper"),
        }
    }

    const CARD: &str = r#"{"name":"Bard","url":"http://inside/","preferredTransport":"GRPC","protocolVersion":"0.3",
        "additionalInterfaces":[{"url":"http://inside/2","transport":"JSONRPC"}],"x-new":{"n":1.0},"signatures":[{}],
        "supportedInterfaces":[{"url":"http://inside/","protocolBinding":"JSONRPC","tenant":"acme"}],
        "capabilities":{"streaming":true,"pushNotifications":true},"securitySchemes":{"a":{}},"security":[{"a":[]}],
        "skills":[{"id":"sing","security":[{"a":[]}],"n":1e2},{"id":"whisper"}, 7]}"#;

    #[test]
    fn nothing_of_a_card_leads_past_the_gateway() {
        for dialect in [Dialect::V1, Dialect::V0_3, Dialect::V0_1] {
            let shown = front(dialect).show(CARD).unwrap();
            for gone in ["inside", "acme", "signatures", "security", "authentication", "whisper", "GRPC"] {
                assert!(!shown.contains(gone), "{gone}: {shown}");
            }
            assert!(shown.contains(r#""x-new":{"n":1.0}"#) && shown.contains(r#""n":1e2"#), "{shown}");
            assert!(shown.contains(r#""streaming":true,"pushNotifications":false"#), "{shown}");
        }
    }

    #[test]
    fn the_shape_is_that_of_the_version() {
        let new = front(Dialect::V1).show(CARD).unwrap();
        assert!(new.contains(
            r#""supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://gw.example/a2a/bard"}"#
        ), "{new}");
        let old = front(Dialect::V0_3).show(CARD).unwrap();
        assert!(old.contains(
            r#""url":"https://gw.example/a2a/bard","preferredTransport":"JSONRPC","protocolVersion":"0.3.0""#
        ) && !old.contains("supportedInterfaces"), "{old}");
        assert_eq!(front(Dialect::V1).show("[]"), None);
    }
}
