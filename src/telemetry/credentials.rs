//! Metrics of agents' credentials: tokens that are fetched, files that are read again.
//!
//! Never a secret, nor a text of a token endpoint. See `metrics` for requests.

use prometheus::{IntCounterVec, Registry};

use super::label::{Reload, Token};
use super::metrics::{AgentMetrics, opts, register};

/// The metrics of agents' credentials.
#[derive(Debug)]
pub(super) struct CredentialMetrics {
    tokens: IntCounterVec,
    reloads: IntCounterVec,
}

impl CredentialMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters =
            |name, help| register(registry, IntCounterVec::new(opts(name, help), &["agent", "outcome"])?);
        Ok(Self {
            tokens: counters(
                "tokens_total",
                "Tokens for agents: fetched, not to be had, refused by the agent.",
            )?,
            reloads: counters(
                "credential_reloads_total",
                "Changes of files that hold agents' credentials, by what came of them.",
            )?,
        })
    }
}

impl AgentMetrics {
    /// Counts the outcome of a token.
    pub fn token(&self, outcome: Token) {
        self.all.credentials.tokens.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }

    /// Counts a change of a file that holds credentials.
    pub fn reload(&self, outcome: Reload) {
        self.all.credentials.reloads.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }
}
