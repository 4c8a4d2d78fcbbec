//! `calls.clients` as in the file: limits of clients that are recognized by name.
//!
//! See also `gateway::client_table`, which selects the entry of a client.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::KnownClient;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::units::HumanDuration;

const SHORTEST: Duration = Duration::from_millis(100);
/// Most entries of an operator, and most patterns of one entry: each request is compared with them.
const MAX_CLIENTS: usize = 100;
const MAX_PATTERNS: usize = 16;
/// Longest name of an entry, and longest pattern.
const MAX_NAME_BYTES: usize = 64;
const MAX_PATTERN_BYTES: usize = 128;

/// A client that is known by its name, and its limits.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "KnownClient")]
pub(super) struct ClientFile {
    /// What the client says in `clientInfo.name`: a pattern, in which `*` is any text, or a list of them. Case does not matter.
    /// Without this and `user_agent`: as the gateway ships it, or exactly the name of the entry.
    client_name: Spanned<OneOrMany<Spanned<String>>>,
    /// What the client says in `User-Agent`, written likewise. It counts where the client's name fits no entry.
    user_agent: Spanned<OneOrMany<Spanned<String>>>,
    /// How long the client waits for an answer at most: its own limit, less a margin. At most `calls.budget`.
    budget: Spanned<HumanDuration>,
    /// Whether the client makes a call again by itself when the result says so: `on` or `off`. Without it: if it declares
    /// elicitation.
    rounds: Spanned<RoundsFile>,
}

/// Whether a client makes rounds.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ClientRounds")]
enum RoundsFile {
    On,
    Off,
}

/// Returns the entries as written, then those of the gateway that they do not replace.
pub(super) fn resolve(
    written: Spanned<BTreeMap<String, Spanned<ClientFile>>>,
    budget: Duration,
    reading: &mut ResolveContext<'_>,
) -> Vec<KnownClient> {
    let shipped = KnownClient::shipped();
    let Some((place, written)) = written.take() else { return shipped };
    if written.len() > MAX_CLIENTS {
        reading.problem(&place, format!("has more than {MAX_CLIENTS} entries (use patterns with *)"));
    }
    let (mut own, mut replaced) = (Vec::new(), Vec::new());
    for (name, file) in written {
        let shipped = shipped.iter().find(|client| client.name == name);
        if let Some((place, file)) = file.take() {
            let entry = Entry { name: &name, shipped, budget, place: &place };
            own.extend(entry.resolve(file, reading));
        }
        replaced.push(name);
    }
    own.extend(shipped.into_iter().filter(|client| !replaced.contains(&client.name)));
    own
}

/// An entry that is being read.
struct Entry<'a> {
    name: &'a str,
    /// The entry of the gateway that it replaces.
    shipped: Option<&'a KnownClient>,
    /// `calls.budget`.
    budget: Duration,
    place: &'a Location,
}

impl Entry<'_> {
    /// Returns the client, unless the entry only removes one that the gateway ships.
    fn resolve(&self, file: ClientFile, reading: &mut ResolveContext<'_>) -> Option<KnownClient> {
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES {
            reading.problem(self.place, format!("is not a name (1 to {MAX_NAME_BYTES} bytes)"));
        }
        let is_wish = file.budget.place().is_some() || file.rounds.place().is_some();
        let is_pattern = file.client_name.place().is_some() || file.user_agent.place().is_some();
        if !is_wish {
            if self.shipped.is_none() || is_pattern {
                reading.problem(self.place, "gives no limit (write budget: 4s, or rounds: off)");
            }
            return None;
        }
        let budget = file.budget.place().cloned();
        let limit = reading.wait(file.budget, SHORTEST..=Duration::from_secs(3600), self.budget);
        if let Some(place) = budget.as_ref().filter(|_| limit > self.budget) {
            let (limit, most) = (HumanDuration(limit), HumanDuration(self.budget));
            reading.problem(place, format!("{limit} is longer than calls.budget ({most}); raise that"));
        }
        let rounds = file.rounds.value().map(|rounds| match rounds {
            RoundsFile::On => true,
            RoundsFile::Off => false,
        });
        let (mut client_names, mut user_agents) =
            (patterns(file.client_name, reading), patterns(file.user_agent, reading));
        if !is_pattern {
            client_names =
                self.shipped.map_or_else(|| vec![self.name.to_owned()], |it| it.client_names.clone());
            user_agents = self.shipped.map_or_else(Vec::new, |it| it.user_agents.clone());
        }
        let name = self.name.to_owned();
        Some(KnownClient { name, client_names, user_agents, budget: budget.map(|_| limit), rounds })
    }
}

fn patterns(written: Spanned<OneOrMany<Spanned<String>>>, reading: &mut ResolveContext<'_>) -> Vec<String> {
    let Some((place, OneOrMany(written))) = written.take() else { return Vec::new() };
    if written.is_empty() || written.len() > MAX_PATTERNS {
        reading.problem(&place, format!("needs 1 to {MAX_PATTERNS} patterns"));
    }
    let mut patterns = Vec::new();
    for (place, pattern) in written.into_iter().filter_map(Spanned::take) {
        if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
            reading.problem(&place, format!("is not a pattern (1 to {MAX_PATTERN_BYTES} bytes)"));
        } else if pattern.bytes().all(|byte| byte == b'*') {
            reading.problem(&place, "fits every client (set calls.budget instead)");
        }
        patterns.push(pattern);
    }
    patterns
}
