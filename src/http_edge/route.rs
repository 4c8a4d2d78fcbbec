//! Routes of request paths.
//!
//! Paths are compared byte for byte: no decoding, no dots, no doubled slashes.

use crate::auth::{Endpoint, ServedProtocol};
use crate::config::Services;

/// Route of a path that the gateway serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `/mcp`: all agents.
    AllAgents,
    /// `/mcp/{agent}`: one agent.
    OneAgent(&'a str),
    /// `/a2a/{agent}` and the paths below: an agent for A2A clients, and the rest of the path.
    A2a(&'a str, &'a str),
    /// `/lf.a2a.v1.A2AService/…`, `/a2a.v1.A2AService/…`: agents for A2A clients, over gRPC.
    Grpc,
    /// `/a2a`: the list of agents, for A2A clients.
    Agents,
    /// `/.well-known/api-catalog`: the same list as a catalog (RFC 9727).
    ApiCatalog,
    /// `/healthz`.
    Health,
    /// `/push/{token}`: for agents.
    Push(&'a str),
    /// `/.well-known/oauth-protected-resource{path}`: the metadata of a resource (RFC 9728).
    Metadata(&'a str),
}

impl<'a> Route<'a> {
    /// Returns the agent of the route; `None` if the route is not for one agent.
    pub(crate) fn agent(self) -> Option<&'a str> {
        match self {
            Self::OneAgent(agent) | Self::A2a(agent, _) => Some(agent),
            Self::AllAgents
            | Self::Grpc
            | Self::Agents
            | Self::ApiCatalog
            | Self::Health
            | Self::Push(_)
            | Self::Metadata(_) => None,
        }
    }

    /// Returns the endpoint of the route as token issuers know it.
    pub(crate) fn endpoint(self) -> Endpoint<'a> {
        let service = match self {
            Self::A2a(..) | Self::Grpc | Self::Agents | Self::ApiCatalog => ServedProtocol::A2a,
            Self::AllAgents | Self::OneAgent(_) | Self::Health | Self::Push(_) | Self::Metadata(_) => {
                ServedProtocol::Mcp
            }
        };
        Endpoint { service, agent: self.agent() }
    }
}

/// Prefix of the paths for push notifications of agents.
pub(crate) const PUSH: &str = "/push/";

/// Path of the list of agents, and prefix of the paths of the A2A server.
const AGENTS: &str = "/a2a";
const A2A: &str = "/a2a/";

/// Prefixes of the paths of gRPC, in 1.0 and 0.3.
const SERVICES: [&str; 2] = ["/lf.a2a.v1.A2AService/", "/a2a.v1.A2AService/"];

/// Path of the API catalog.
pub(crate) const API_CATALOG: &str = "/.well-known/api-catalog";

/// Prefix of the metadata of protected resources.
pub(crate) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Returns the route of a path; `None` if the path is not the gateway's.
pub(crate) fn parse(path: &str) -> Option<Route<'_>> {
    match path {
        "/mcp" | "/mcp/" => Some(Route::AllAgents),
        "/healthz" => Some(Route::Health),
        AGENTS | A2A => Some(Route::Agents),
        API_CATALOG => Some(Route::ApiCatalog),
        _ if is_service(path) => Some(Route::Grpc),
        _ if path.starts_with(METADATA) => path.strip_prefix(METADATA).map(Route::Metadata),
        _ if path.starts_with(PUSH) => {
            let token = path.strip_prefix(PUSH)?;
            (!token.is_empty() && !token.contains('/')).then_some(Route::Push(token))
        }
        _ if path.starts_with(A2A) => {
            let below = path.strip_prefix(A2A)?;
            let (agent, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
            (!agent.is_empty()).then_some(Route::A2a(agent, rest))
        }
        _ => {
            let agent = path.strip_prefix("/mcp/")?;
            (!agent.is_empty() && !agent.contains('/')).then_some(Route::OneAgent(agent))
        }
    }
}

fn is_service(path: &str) -> bool {
    SERVICES.iter().any(|service| path.starts_with(service))
}

/// Returns true if a listener with these services serves a path. A path without a route counts as
/// MCP, which rejects it.
pub(crate) fn is_served(path: &str, services: Services) -> bool {
    match path {
        "/healthz" => services.health,
        AGENTS | API_CATALOG => services.a2a,
        _ if path.starts_with(PUSH) => services.push,
        _ if is_service(path) => services.a2a && services.grpc,
        _ if path.starts_with(A2A) => services.a2a,
        _ if path.starts_with(METADATA) => services.mcp || services.a2a,
        _ => services.mcp,
    }
}

/// Returns the part of a path that may be logged: push tokens and task handles are secret.
pub(crate) fn loggable_path(path: &str) -> &str {
    const TASKS: &str = "/tasks/";
    if path.starts_with(PUSH) {
        return PUSH;
    }
    let tasks = if path.starts_with(A2A) { path.find(TASKS) } else { None };
    tasks.and_then(|at| path.get(..at + TASKS.len())).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_told_apart() {
        for (path, found) in [
            ("/mcp", Some(Route::AllAgents)),
            ("/mcp/", Some(Route::AllAgents)),
            ("/mcp/weather", Some(Route::OneAgent("weather"))),
            ("/mcp/weather/x", None),
            ("/mcp/../healthz", None),
            ("//mcp", None),
            ("/mcpx", None),
            ("/a2a/weather", Some(Route::A2a("weather", ""))),
            ("/a2a/weather/", Some(Route::A2a("weather", "/"))),
            ("/a2a/weather/tasks/1:cancel", Some(Route::A2a("weather", "/tasks/1:cancel"))),
            ("/a2a//weather", None),
            ("/healthz", Some(Route::Health)),
            ("/push/abc", Some(Route::Push("abc"))),
            ("/push/", None),
            ("/push/a/b", None),
            ("/push", None),
            ("/metrics", None),
            ("/a2a", Some(Route::Agents)),
            ("/a2a/", Some(Route::Agents)),
            ("/a2ax", None),
            ("/.well-known/api-catalog", Some(Route::ApiCatalog)),
            ("/.well-known/api-catalog/", None),
            ("/.well-known/oauth-protected-resource", Some(Route::Metadata(""))),
            ("/.well-known/oauth-protected-resource/mcp/a", Some(Route::Metadata("/mcp/a"))),
            ("/.well-known/other", None),
            ("/lf.a2a.v1.A2AService/GetTask", Some(Route::Grpc)),
            ("/a2a.v1.A2AService/GetTask", Some(Route::Grpc)),
            ("/grpc.health.v1.Health/Check", None),
        ] {
            assert_eq!(parse(path), found, "{path}");
        }
    }

    #[test]
    fn task_handles_are_not_logged() {
        for (path, logged) in [
            ("/push/secret", "/push/"),
            ("/a2a/weather/tasks/secret:cancel", "/a2a/weather/tasks/"),
            ("/a2a/weather", "/a2a/weather"),
            ("/mcp/weather", "/mcp/weather"),
        ] {
            assert_eq!(loggable_path(path), logged, "{path}");
        }
    }

    #[test]
    fn a_listener_serves_its_faces_only() {
        let none = Services { mcp: false, a2a: false, grpc: true, health: false, push: false };
        for (path, services) in [
            ("/mcp", Services { mcp: true, ..none }),
            ("/mcp/a", Services { mcp: true, ..none }),
            ("/a2a", Services { a2a: true, ..none }),
            ("/lf.a2a.v1.A2AService/GetTask", Services { a2a: true, ..none }),
            ("/a2a/a", Services { a2a: true, ..none }),
            ("/.well-known/api-catalog", Services { a2a: true, ..none }),
            ("/healthz", Services { health: true, ..none }),
            ("/push/x", Services { push: true, ..none }),
        ] {
            assert!(is_served(path, services), "{path}");
            let others = Services {
                mcp: !services.mcp,
                a2a: !services.a2a,
                grpc: true,
                health: !services.health,
                push: !services.push,
            };
            assert!(!is_served(path, others), "{path}");
        }
        assert!(is_served("/.well-known/oauth-protected-resource/a2a/a", Services { a2a: true, ..none }));
        assert!(!is_served("/.well-known/oauth-protected-resource", Services { push: true, ..none }));
        let without_grpc = Services { a2a: true, grpc: false, ..none };
        assert!(!is_served("/lf.a2a.v1.A2AService/GetTask", without_grpc));
        assert!(is_served("/a2a/a", without_grpc));
    }
}
