//! Agents as resources: `a2a-agent://{agent}` is the agent's card.
//!
//! Not here: tasks as resources.

use crate::mcp::resources::Template;

/// How the URI of an agent begins.
const AGENT: &str = "a2a-agent://";

/// The templates that a client may fill in.
pub const TEMPLATES: &[Template] = &[Template {
    uri_template: "a2a-agent://{agent}",
    name: "agent",
    description: "The card of an A2A agent behind this gateway",
    mime_type: "application/json",
}];

/// The URI of an agent.
pub fn agent_uri(agent: &str) -> String {
    format!("{AGENT}{agent}")
}

/// The agent that a URI names: as host, or as path after an empty host.
pub fn agent_of(uri: &str) -> Option<&str> {
    let rest = uri.strip_prefix(AGENT)?;
    let name = rest.strip_prefix('/').unwrap_or(rest);
    let name = name.strip_suffix('/').unwrap_or(name);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_as_host_or_as_path() {
        for (uri, agent) in [
            ("a2a-agent://weather", Some("weather")),
            ("a2a-agent:///weather", Some("weather")),
            ("a2a-agent://weather/", Some("weather")),
            ("a2a-agent://", None),
            ("http://weather", None),
        ] {
            assert_eq!(agent_of(uri), agent, "{uri}");
        }
        assert_eq!(agent_of(&agent_uri("x")), Some("x"));
    }
}
