//! Limits of clients that are known by name: `calls.clients`, with the built-in entries.
//!
//! A client is known by its `clientInfo.name`, else by its `User-Agent`. Limits in a URL take
//! precedence (see `endpoint_limits`).

use sha2::{Digest as _, Sha256};

use super::endpoint_limits::EndpointLimits;
use crate::auth::fits_pattern;
use crate::config::KnownClient;

/// Longest part of a client's name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Fingerprint of the name of a table entry. A session carries the fingerprint instead of the
/// client's name, so that the limits of a session follow the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientMark([u8; 4]);

impl ClientMark {
    fn of(entry: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(entry.as_bytes()).into();
        Self(digest.first_chunk().copied().unwrap_or_default())
    }

    /// Encodes a mark for a session id; zeros mean none.
    pub(super) fn to_bytes(mark: Option<Self>) -> [u8; 4] {
        mark.map_or([0; 4], |Self(bytes)| bytes)
    }

    /// Returns the mark in these bytes, unless they are zeros.
    pub(super) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        (bytes != [0; 4]).then_some(Self(bytes))
    }
}

/// Table of the known clients. The first entry that matches counts.
pub(super) struct ClientTable {
    entries: Vec<ClientEntry>,
}

struct ClientEntry {
    mark: ClientMark,
    limits: EndpointLimits,
    names: Vec<String>,
    user_agents: Vec<String>,
}

impl ClientTable {
    /// Creates the table of these clients, in the order in which they are compared.
    pub(super) fn new(clients: &[KnownClient]) -> Self {
        let lower = |patterns: &[String]| patterns.iter().map(|each| each.to_ascii_lowercase()).collect();
        let entries = clients.iter().map(|client| ClientEntry {
            mark: ClientMark::of(&client.name),
            limits: EndpointLimits { budget: client.budget, rounds: client.rounds },
            names: lower(&client.client_names),
            user_agents: lower(&client.user_agents),
        });
        Self { entries: entries.collect() }
    }

    /// Returns the mark of the client with this name.
    pub(super) fn mark_of(&self, name: &str) -> Option<ClientMark> {
        self.find(name, |entry| &entry.names).map(|entry| entry.mark)
    }

    /// Returns the limits of a client: those of its mark, else those of its `User-Agent`.
    pub(super) fn limits(&self, mark: Option<ClientMark>, user_agent: Option<&str>) -> EndpointLimits {
        let named = mark.and_then(|mark| self.entries.iter().find(|entry| entry.mark == mark));
        let found = named.or_else(|| self.find(user_agent?, |entry| &entry.user_agents));
        found.map_or_else(EndpointLimits::default, |entry| entry.limits)
    }

    fn find(&self, text: &str, patterns: impl Fn(&ClientEntry) -> &Vec<String>) -> Option<&ClientEntry> {
        // Most tables have no pattern of this kind, and every request comes here.
        if self.entries.iter().all(|entry| patterns(entry).is_empty()) {
            return None;
        }
        let mut text = text.to_owned();
        text.truncate(text.floor_char_boundary(MAX_NAME_BYTES));
        text.make_ascii_lowercase();
        let fits = |entry: &&ClientEntry| patterns(entry).iter().any(|pattern| fits_pattern(pattern, &text));
        self.entries.iter().find(fits)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn client(name: &str, client_name: &str, user_agent: &str, seconds: u64) -> KnownClient {
        KnownClient {
            name: name.into(),
            client_names: vec![client_name.into()],
            user_agents: vec![user_agent.into()],
            budget: Some(Duration::from_secs(seconds)),
            rounds: None,
        }
    }

    #[test]
    fn the_name_goes_before_the_user_agent_and_the_first_entry_counts() {
        let table = ClientTable::new(&[
            client("one", "Host-A*", "a/*", 1),
            client("two", "host*", "*beta*", 2),
            client("three", "host-a", "b/*", 3),
        ]);
        let seconds = |name: Option<&str>, agent| {
            let limits = table.limits(name.and_then(|name| table.mark_of(name)), agent);
            limits.budget.map(|budget| budget.as_secs())
        };
        for (name, agent, expected) in [
            (Some("host-a"), None, Some(1)),
            (Some("HOST-A 2"), Some("b/1"), Some(1)),
            (Some("host"), None, Some(2)),
            (Some("mcp"), Some("b/1"), Some(3)),
            (None, Some("b/1 Beta"), Some(2)),
            (None, Some("c/1"), None),
            (Some("mcp"), None, None),
        ] {
            assert_eq!(seconds(name, agent), expected, "{name:?} {agent:?}");
        }
        let long = format!("host{}", "é".repeat(1000));
        assert_eq!(seconds(Some(&long), None), Some(2));
    }

    #[test]
    fn a_session_carries_a_mark_and_zeros_are_none() {
        let mark = ClientMark::of("agno");
        assert_eq!(ClientMark::from_bytes(ClientMark::to_bytes(Some(mark))), Some(mark));
        assert_eq!(ClientMark::from_bytes(ClientMark::to_bytes(None)), None);
    }
}
