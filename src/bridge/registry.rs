//! What is in the registry: every agent, with all that is known of it.
//!
//! Not here: its URI (see `resources`), where what is known comes from (see `agents`).

use serde::Serialize;
use serde_json::value::RawValue;

use super::resource_view::json;

/// One agent of the registry.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEntry<'a> {
    /// Its name here.
    pub name: &'a str,
    /// Where it is, or where its card is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<&'a str>,
    /// Whether it can be called.
    pub status: Reachability,
    /// Why it cannot be called although its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// When it was last heard of, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<&'a str>,
    /// What it can do, once its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<AgentCapabilities>,
    /// How many places it is called at, if these are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointCount>,
    /// Extensions of A2A that its card declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionEntry<'a>>,
    /// Its card, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<&'a RawValue>,
}

/// Whether an agent can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reachability {
    /// Its card is known.
    Ready,
    /// Its card cannot be had.
    Unreachable,
    /// Its card asks for more than the operator gives.
    Unusable,
    /// Nobody has looked yet.
    Unknown,
}

/// How many places an agent is called at.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EndpointCount {
    /// All of them.
    pub total: usize,
    /// Those that are asked now: the others failed, and are left alone for a while.
    pub up: usize,
}

/// An extension of A2A that an agent knows.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExtensionEntry<'a> {
    /// Its identity.
    pub uri: &'a str,
    /// Whether the agent refuses those who do not name it.
    pub required: bool,
    /// Whether the gateway names it.
    pub active: bool,
}

/// What an agent says that it can do.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// It streams.
    pub streaming: bool,
    /// It sends push notifications.
    pub push_notifications: bool,
}

/// The registry of agents, as JSON.
pub fn registry(agents: &[AgentEntry<'_>]) -> String {
    #[derive(Serialize)]
    struct Registry<'a> {
        agents: &'a [AgentEntry<'a>],
        totals: Totals,
    }
    #[derive(Serialize)]
    struct Totals {
        agents: usize,
        ready: usize,
        unreachable: usize,
        unusable: usize,
        unknown: usize,
    }
    let count = |status| agents.iter().filter(|agent| agent.status == status).count();
    let totals = Totals {
        agents: agents.len(),
        ready: count(Reachability::Ready),
        unreachable: count(Reachability::Unreachable),
        unusable: count(Reachability::Unusable),
        unknown: count(Reachability::Unknown),
    };
    json(&Registry { agents, totals })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_registry_counts_its_agents() {
        let card = RawValue::from_string(r#"{"name":"A"}"#.into()).unwrap();
        let ready = AgentEntry {
            name: "a",
            url: Some("https://a.test/"),
            status: Reachability::Ready,
            reason: None,
            extensions: vec![ExtensionEntry { uri: "urn:x", required: false, active: true }],
            last_seen: Some("2026-01-01T00:00:00.000Z"),
            capabilities: Some(AgentCapabilities { streaming: true, push_notifications: false }),
            endpoints: Some(EndpointCount { total: 3, up: 2 }),
            card: Some(&card),
        };
        let lost = AgentEntry {
            status: Reachability::Unreachable,
            last_seen: None,
            extensions: Vec::new(),
            capabilities: None,
            endpoints: None,
            card: None,
            ..ready.clone()
        };
        let told: Value = serde_json::from_str(&registry(&[ready, lost])).unwrap();
        assert_eq!(
            told["totals"],
            json!({"agents": 2, "ready": 1, "unreachable": 1, "unusable": 0, "unknown": 0})
        );
        assert_eq!(told["agents"][0]["capabilities"], json!({"streaming": true, "pushNotifications": false}));
        assert_eq!(told["agents"][0]["endpoints"], json!({"total": 3, "up": 2}));
        assert_eq!(
            told["agents"][0]["extensions"],
            json!([{"uri": "urn:x", "required": false, "active": true}])
        );
        assert_eq!(told["agents"][0]["card"], json!({"name": "A"}));
        assert_eq!(
            told["agents"][1],
            json!({"name": "a", "url": "https://a.test/", "status": "unreachable"})
        );
    }
}
