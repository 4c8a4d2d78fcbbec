//! Which door a request knocks at.
//!
//! Paths are compared byte for byte: no decoding, no dots, no doubled slashes. Not here: what is behind the door.

/// A path that the bridge serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door<'a> {
    /// `/mcp`: all agents.
    AllAgents,
    /// `/mcp/{agent}`: one agent.
    OneAgent(&'a str),
    /// `/healthz`.
    Health,
}

/// The door of a path; `None` if it is not the bridge's.
pub(super) fn door(path: &str) -> Option<Door<'_>> {
    match path {
        "/mcp" | "/mcp/" => Some(Door::AllAgents),
        "/healthz" => Some(Door::Health),
        _ => {
            let agent = path.strip_prefix("/mcp/")?;
            (!agent.is_empty() && !agent.contains('/')).then_some(Door::OneAgent(agent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_told_apart() {
        for (path, found) in [
            ("/mcp", Some(Door::AllAgents)),
            ("/mcp/", Some(Door::AllAgents)),
            ("/mcp/weather", Some(Door::OneAgent("weather"))),
            ("/mcp/weather/x", None),
            ("/mcp/../healthz", None),
            ("//mcp", None),
            ("/mcpx", None),
            ("/healthz", Some(Door::Health)),
            ("/metrics", None),
        ] {
            assert_eq!(door(path), found, "{path}");
        }
    }
}
