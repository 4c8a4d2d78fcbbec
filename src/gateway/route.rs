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
    /// `/push/{token}`: for agents.
    Push(&'a str),
    /// `/.well-known/oauth-protected-resource{path}`: what tokens are for (RFC 9728).
    Metadata(&'a str),
}

impl<'a> Door<'a> {
    /// The agent that it is the door of; `None` if it is no one agent's.
    pub(super) fn agent(self) -> Option<&'a str> {
        match self {
            Self::OneAgent(agent) => Some(agent),
            Self::AllAgents | Self::Health | Self::Push(_) | Self::Metadata(_) => None,
        }
    }
}

/// What the paths of agents' notifications begin with.
pub(crate) const PUSH: &str = "/push/";

/// Where the metadata of protected resources is.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The door of a path; `None` if it is not the bridge's.
pub(super) fn door(path: &str) -> Option<Door<'_>> {
    match path {
        "/mcp" | "/mcp/" => Some(Door::AllAgents),
        "/healthz" => Some(Door::Health),
        _ if path.starts_with(METADATA) => path.strip_prefix(METADATA).map(Door::Metadata),
        _ if path.starts_with(PUSH) => {
            let token = path.strip_prefix(PUSH)?;
            (!token.is_empty() && !token.contains('/')).then_some(Door::Push(token))
        }
        _ => {
            let agent = path.strip_prefix("/mcp/")?;
            (!agent.is_empty() && !agent.contains('/')).then_some(Door::OneAgent(agent))
        }
    }
}

/// A path as it may be logged: the address of a task is a secret.
pub(super) fn shown(path: &str) -> &str {
    if path.starts_with(PUSH) { PUSH } else { path }
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
            ("/push/abc", Some(Door::Push("abc"))),
            ("/push/", None),
            ("/push/a/b", None),
            ("/push", None),
            ("/metrics", None),
            ("/.well-known/oauth-protected-resource", Some(Door::Metadata(""))),
            ("/.well-known/oauth-protected-resource/mcp/a", Some(Door::Metadata("/mcp/a"))),
            ("/.well-known/other", None),
        ] {
            assert_eq!(door(path), found, "{path}");
        }
    }
}
