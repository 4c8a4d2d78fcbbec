//! The content of the registry: every agent, with all known data.

use serde::Serialize;
use serde_json::value::RawValue;

use super::resource_view::json;

/// One agent of the registry.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEntry<'a> {
    /// The agent's name in the configuration.
    pub name: &'a str,
    /// URL of the agent, or of its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<&'a str>,
    /// The agent's reachability.
    pub status: Reachability,
    /// The reason why the agent cannot be called although its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Time of the last contact, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<&'a str>,
    /// The agent's capabilities, if its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<AgentCapabilities>,
    /// Number of endpoints, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointCount>,
    /// The A2A extensions that its card declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionEntry<'a>>,
    /// The card, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<&'a RawValue>,
}

/// The reachability of an agent at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reachability {
    /// The card is known and usable.
    Ready,
    /// The card could not be fetched.
    Unreachable,
    /// The card requires more than the operator configured.
    Unusable,
    /// The card has not been fetched yet.
    Unknown,
}

/// The number of an agent's endpoints.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EndpointCount {
    /// All endpoints.
    pub total: usize,
    /// Endpoints in use now; the others failed, and are not used for a while.
    pub up: usize,
}

/// An extension that an agent supports.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExtensionEntry<'a> {
    /// The URI of the extension.
    pub uri: &'a str,
    /// True if the agent rejects clients that do not name it.
    pub required: bool,
    /// True if the gateway names it.
    pub active: bool,
}

/// The abilities that an agent declares.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// The agent supports streaming.
    pub streaming: bool,
    /// The agent sends push notifications.
    pub push_notifications: bool,
}

/// Encodes the registry of agents as JSON.
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
