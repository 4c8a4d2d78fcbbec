//! Limits of one client in the query of its endpoint URL: `/mcp?budget=4s&rounds=off`.
//!
//! Many hosts abandon a call after a few seconds and do not announce this in the protocol. See also
//! `client_table` for clients that are known by name.

use std::time::Duration;

use crate::config::parse_duration;
use crate::fault::Fault;

/// Shortest and longest budget that a URL may set.
const MIN_BUDGET: Duration = Duration::from_millis(100);
const MAX_BUDGET: Duration = Duration::from_secs(3600);

/// Limits of one client; the configuration applies where a limit is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndpointLimits {
    /// Longest wait of the client for a response.
    pub(super) budget: Option<Duration>,
    /// True if the client repeats a call by itself when the result asks for it.
    pub(super) rounds: Option<bool>,
}

impl EndpointLimits {
    /// Reads the query of a URL. Other names are ignored: they may be for a proxy before the
    /// gateway.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for a value that cannot be read.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Fault> {
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
    pub(super) fn or(self, less: Self) -> Self {
        Self { budget: self.budget.or(less.budget), rounds: self.rounds.or(less.rounds) }
    }

    /// Returns how long the client waits, at most `most`.
    pub(super) fn budget(self, most: Duration) -> Duration {
        self.budget.map_or(most, |budget| budget.min(most))
    }
}

fn wrong(name: &str, expected: &str) -> Fault {
    Fault::InvalidParams(format!("{name} in the URL of this endpoint must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_gives_limits() {
        let limits =
            |budget: Option<u64>, rounds| EndpointLimits { budget: budget.map(Duration::from_secs), rounds };
        for (query, expected) in [
            (None, Some(limits(None, None))),
            (Some("budget=4s&rounds=off"), Some(limits(Some(4), Some(false)))),
            (Some("key=x&rounds=on&"), Some(limits(None, Some(true)))),
            (Some("budget=4"), None),
            (Some("budget=2h"), None),
            (Some("budget"), None),
            (Some("rounds=maybe"), None),
        ] {
            assert_eq!(EndpointLimits::read(query).ok(), expected, "{query:?}");
        }
        let most = Duration::from_secs(45);
        assert_eq!(limits(Some(4), None).budget(most), Duration::from_secs(4));
        assert_eq!((limits(Some(60), None).budget(most), limits(None, None).budget(most)), (most, most));
    }
}
