//! Limits of one client: how long it waits for a response, and whether it repeats calls by itself.
//!
//! They are in the query of its endpoint URL (`/mcp?budget=4s`), or in the table of the clients that
//! are known by name (`calls.clients`, with the built-in entries). A client is known by its
//! `clientInfo.name`, else by its `User-Agent`. Many hosts abandon a call after a few seconds and do
//! not announce this in the protocol.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::auth::fits_pattern;
use crate::config::{KnownClient, parse_duration};
use crate::fault::Fault;

/// Shortest and longest budget that a URL may set.
const MIN_BUDGET: Duration = Duration::from_millis(100);
const MAX_BUDGET: Duration = Duration::from_secs(3600);

/// Limits of one client; the configuration applies where a limit is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    /// Longest wait of the client for a response.
    pub(crate) budget: Option<Duration>,
    /// True if the client repeats a call by itself when the result asks for it.
    pub(crate) rounds: Option<bool>,
}

impl ClientLimits {
    /// Reads the query of a URL. Other names are ignored: they may be for a proxy before the
    /// gateway.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for a value that cannot be read.
    pub(crate) fn read(query: Option<&str>) -> Result<Self, Fault> {
        let mut limits = Self::default();
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("budget", value) => {
                    let budget = parse_duration(value).filter(|it| (MIN_BUDGET..=MAX_BUDGET).contains(it));
                    let budget =
                        budget.ok_or_else(|| wrong("budget", "a duration of 100ms to 1h, such as 4s"))?;
                    limits.budget = Some(budget);
                }
                ("rounds", "on") => limits.rounds = Some(true),
                ("rounds", "off") => limits.rounds = Some(false),
                ("rounds", _) => return Err(wrong("rounds", "on or off")),
                _ => {}
            }
        }
        Ok(limits)
    }

    /// Returns these limits, with those of `less` where they are absent.
    pub(crate) fn or(self, less: Self) -> Self {
        Self { budget: self.budget.or(less.budget), rounds: self.rounds.or(less.rounds) }
    }

    /// Returns how long the client waits, at most `most`.
    pub(crate) fn budget(self, most: Duration) -> Duration {
        self.budget.map_or(most, |budget| budget.min(most))
    }
}

fn wrong(name: &str, expected: &str) -> Fault {
    Fault::InvalidParams(format!("{name} in the URL of this endpoint must be {expected}"))
}

/// Longest part of a client's name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Fingerprint of the name of a table entry. A session carries the fingerprint instead of the
/// client's name, so that the limits of a session follow the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientMark([u8; 4]);

impl ClientMark {
    fn of(entry: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(entry.as_bytes()).into();
        Self(digest.first_chunk().copied().unwrap_or_default())
    }

    /// Encodes a mark for a session id; zeros mean none.
    pub(crate) fn to_bytes(mark: Option<Self>) -> [u8; 4] {
        mark.map_or([0; 4], |Self(bytes)| bytes)
    }

    /// Returns the mark in these bytes, unless they are zeros.
    pub(crate) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        (bytes != [0; 4]).then_some(Self(bytes))
    }
}

/// Table of the known clients. The first entry that matches counts.
pub(crate) struct ClientLimitTable {
    entries: Vec<ClientEntry>,
}

struct ClientEntry {
    mark: ClientMark,
    limits: ClientLimits,
    names: Vec<String>,
    user_agents: Vec<String>,
}

impl ClientLimitTable {
    /// Creates the table of these clients, in the order in which they are compared.
    pub(crate) fn new(clients: &[KnownClient]) -> Self {
        let lower = |patterns: &[String]| patterns.iter().map(|each| each.to_ascii_lowercase()).collect();
        let entries = clients.iter().map(|client| ClientEntry {
            mark: ClientMark::of(&client.name),
            limits: ClientLimits { budget: client.budget, rounds: client.rounds },
            names: lower(&client.client_names),
            user_agents: lower(&client.user_agents),
        });
        Self { entries: entries.collect() }
    }

    /// Returns the mark of the client with this name.
    pub(crate) fn mark_of(&self, name: &str) -> Option<ClientMark> {
        self.find(name, |entry| &entry.names).map(|entry| entry.mark)
    }

    /// Returns the limits of a client: those of its mark, else those of its `User-Agent`.
    pub(crate) fn limits(&self, mark: Option<ClientMark>, user_agent: Option<&str>) -> ClientLimits {
        let named = mark.and_then(|mark| self.entries.iter().find(|entry| entry.mark == mark));
        let found = named.or_else(|| self.find(user_agent?, |entry| &entry.user_agents));
        found.map_or_else(ClientLimits::default, |entry| entry.limits)
    }

    fn find(&self, text: &str, patterns: impl Fn(&ClientEntry) -> &Vec<String>) -> Option<&ClientEntry> {
        // Every request comes here, and nearly none is of a known client.
        if !self.entries.iter().any(|entry| patterns(entry).iter().any(|pattern| may_fit(pattern, text))) {
            return None;
        }
        let mut text = text.to_owned();
        text.truncate(text.floor_char_boundary(MAX_NAME_BYTES));
        text.make_ascii_lowercase();
        let fits = |entry: &&ClientEntry| patterns(entry).iter().any(|pattern| fits_pattern(pattern, &text));
        self.entries.iter().find(fits)
    }
}

/// Returns false if the start of the text differs from that of the pattern, which has lower case: it does not fit then.
fn may_fit(pattern: &str, text: &str) -> bool {
    let mut text = text.bytes().map(|byte| byte.to_ascii_lowercase());
    // Most texts differ in the first character.
    pattern.bytes().take_while(|byte| *byte != b'*').all(|expected| text.next() == Some(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_gives_limits() {
        let limits =
            |budget: Option<u64>, rounds| ClientLimits { budget: budget.map(Duration::from_secs), rounds };
        for (query, expected) in [
            (None, Some(limits(None, None))),
            (Some("budget=4s&rounds=off"), Some(limits(Some(4), Some(false)))),
            (Some("key=x&rounds=on&"), Some(limits(None, Some(true)))),
            (Some("budget=4"), None),
            (Some("budget=2h"), None),
            (Some("budget"), None),
            (Some("rounds=maybe"), None),
        ] {
            assert_eq!(ClientLimits::read(query).ok(), expected, "{query:?}");
        }
        let most = Duration::from_secs(45);
        assert_eq!(limits(Some(4), None).budget(most), Duration::from_secs(4));
        assert_eq!((limits(Some(60), None).budget(most), limits(None, None).budget(most)), (most, most));
    }

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
        let table = ClientLimitTable::new(&[
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
