//! `state`: the engine for state that several replicas share.
//!
//! See also `shared_state`, which uses it.

use std::time::Duration;

use super::agent::AgentTls;
use super::forms::{Form, HumanDuration, choice};
use super::reference::{Secret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, OneOrMany, Spanned};

/// Longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 64;
/// The schemes of URLs, with and without TLS.
const SCHEMES: [&str; 4] = ["redis://", "valkey://", "rediss://", "valkeys://"];

section! {
    /// State that several replicas share through Valkey or Redis, 7.0 or later: tasks, answers,
    /// sessions, rates, memory. Needs `seal_key`, the same at all of them. Without this section each
    /// replica works alone.
    keys StateKeys("State") {
        /// The URL of the engine, `redis://` or `valkey://`, with TLS `rediss://` or `valkeys://`,
        /// then `[USER:PASSWORD@]HOST[:PORT][/DATABASE]`. For a cluster some of its nodes, for
        /// sentinels all of them.
        url: OneOrMany<Spanned<Template>> [required "write the URL of the engine" example "redis://valkey.internal:6379"],
        /// Kind of the engine: `single`, a `cluster`, or one behind `sentinel`.
        topology: StateTopology => StateTopology = single,
        /// The name that sentinels give the engine.
        master: String => String = mymaster,
        /// The user (ACL). Without it: that of the URL, or the default user.
        username: String => Option<String> = none [example gateway],
        /// The password. Without it: that of the URL.
        password: Template => Option<Secret> = none [example "${file:/run/secrets/valkey}"],
        /// Trust in the engine, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Longest wait for the engine. No request waits longer for it; then this replica decides
        /// alone.
        timeout: HumanDuration => Duration = 500ms in 10ms..=10s,
        /// What the names of all keys begin with. Gateways with another prefix share nothing.
        prefix: String => String = gateway,
    }
}

/// Kind of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateTopology {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// One server, which sentinels name.
    Sentinel,
}

choice! {
    /// Kind of the engine.
    StateTopology as "StateTopology" { "single" => Self::Single, "cluster" => Self::Cluster, "sentinel" => Self::Sentinel, }
}

/// The engine for state that several replicas share.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// URLs; at least one.
    pub nodes: Vec<Secret>,
    /// Kind of the engine.
    pub topology: StateTopology,
    /// The name that sentinels give it.
    pub master: String,
    /// The user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// Trust in the engine, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// Longest wait for it.
    pub timeout: Duration,
    /// What the names of all keys begin with.
    pub prefix: String,
}

impl Form<State> for StateKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<State> {
        self.section = place.clone();
        let prefix_place = self.prefix.place().unwrap_or(place).clone();
        let hint = "write the URL of the engine, such as redis://valkey.internal:6379";
        let written = context.required(std::mem::take(&mut self.url), place, "url", hint);
        let prefix = self.prefix(context);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_name) {
            let problem = format!("is not a prefix (1 to {MAX_PREFIX} letters, digits, `-`, `_` and `.`)");
            context.problem(&prefix_place, problem);
        }
        let topology = self.topology(context);
        let (url_place, OneOrMany(written)) = written?;
        let mut nodes = Vec::new();
        for url in written {
            let Some((place, url)) = url.resolve::<Secret>(context) else { continue };
            match SCHEMES.iter().any(|scheme| url.expose().starts_with(scheme)) {
                true => nodes.push(url),
                // Not quoted: it may hold a password.
                false => context.problem(&place, "is not the URL of an engine (write redis://HOST:PORT, or rediss:// for TLS)"),
            }
        }
        if nodes.len() > 1 && topology == StateTopology::Single {
            context.problem(&url_place, "has several URLs (set topology to cluster or sentinel)");
        }
        if nodes.is_empty() {
            return None;
        }
        Some(State {
            nodes,
            topology,
            master: self.master(context),
            username: self.username(context),
            password: self.password(context),
            tls: self.tls(context),
            timeout: self.timeout(context),
            prefix,
        })
    }
}
