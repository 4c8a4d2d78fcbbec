//! The syntax of the configuration file. Its documentation is the manual: the JSON Schema is made
//! from it.
//!
//! Each section converts itself to its settings and reports its problems.
//!
//! Out of scope: reading YAML (`yaml`, `deserializer`).

mod agent;
mod auth;
mod balance;
mod calls;
mod clients;
mod credentials;
mod forward;
mod gateway;
mod headers;
mod limits;
mod listener;
pub(super) mod manifest;
mod oauth;
mod operation;
mod outbound;
mod rules;
mod signature;
mod skill;
mod tasks;
mod tls;
mod url;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use self::agent::AgentFile;
use self::auth::AuthFile;
use self::calls::CallsFile;
use self::gateway::{CardsFile, McpFile, SessionsFile};
use self::limits::LimitsFile;
use self::listener::{AdminFile, ListenerFile};
use self::operation::{LogFile, ShutdownFile, UpgradeFile};
use self::outbound::OutboundFile;
use self::rules::RuleFile;
use self::tasks::{BackgroundFile, PushFile, StreamsFile, TasksFile};
use super::reference::{self, Template};
use super::resolve::ResolveContext;
use super::spanned::{Location, OneOrMany, Spanned};
use super::{Admin, Agent, Listener, Mechanism, Secret, Settings};

/// The configuration of mcp-a2a-gateway.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "mcp-a2a-gateway",
    extend("anyOf" = [{ "required": ["agents"] }, { "required": ["manifests"] }])
)]
pub(super) struct ConfigFile {
    /// The URL under which clients reach the gateway, for example `https://gateway.example.com`. Needed when a proxy
    /// stands before it.
    #[serde(default)]
    public_url: Spanned<String>,
    /// Where the gateway listens for clients. At least one.
    #[schemars(length(min = 1))]
    listeners: Spanned<Vec<Spanned<ListenerFile>>>,
    /// The operator's own listener: health, readiness, metrics, state. Without this key there is none.
    #[serde(default)]
    admin: Spanned<AdminFile>,
    /// The key that seals task handles and session ids: at least 32 characters, or a list of such keys, of which the
    /// first seals and all open. Replicas share it. Without it the key is kept in `tasks.data_dir`; without that
    /// handles end with the process. References are accepted.
    #[serde(default)]
    seal_key: Spanned<OneOrMany<Spanned<Template>>>,
    /// The A2A agents, each under its name: a lower-case letter or digit, then up to 31 lower-case letters, digits,
    /// `-` and `_`. At least one, here or in `manifests`.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1, "propertyNames" = { "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$" }))]
    agents: Spanned<BTreeMap<String, Spanned<AgentFile>>>,
    /// The path of a folder in which every `*.json` is an ARDF manifest (`subagent@v0.1`) of one more agent, named by its
    /// `id`: in lower case, other characters as `-`, cut to 32.
    #[serde(default)]
    manifests: Spanned<String>,
    /// Where cards may send the gateway.
    #[serde(default)]
    outbound: Spanned<OutboundFile>,
    /// How the gateway speaks MCP.
    #[serde(default)]
    mcp: Spanned<McpFile>,
    /// How long calls may take.
    #[serde(default)]
    calls: Spanned<CallsFile>,
    /// How agent cards are kept fresh.
    #[serde(default)]
    cards: Spanned<CardsFile>,
    /// MCP sessions.
    #[serde(default)]
    sessions: Spanned<SessionsFile>,
    /// Limits for what peers send.
    #[serde(default)]
    limits: Spanned<LimitsFile>,
    /// Tasks that the gateway keeps.
    #[serde(default)]
    tasks: Spanned<TasksFile>,
    /// How agents' streams are kept up.
    #[serde(default)]
    streams: Spanned<StreamsFile>,
    /// Work that goes on after its client has left.
    #[serde(default)]
    background: Spanned<BackgroundFile>,
    /// Push notifications of agents.
    #[serde(default)]
    push: Spanned<PushFile>,
    /// Worker threads per service; 0 is one per core.
    #[serde(default)]
    #[schemars(range(max = 1024), extend("default" = 0))]
    threads: Spanned<u64>,
    /// The log.
    #[serde(default)]
    log: Spanned<LogFile>,
    /// How the gateway ends.
    #[serde(default)]
    shutdown: Spanned<ShutdownFile>,
    /// How another process takes over (`serve --upgrade`).
    #[serde(default)]
    upgrade: Spanned<UpgradeFile>,
    /// How clients prove who they are. Without it all of them are anonymous.
    #[serde(default)]
    auth: Spanned<AuthFile>,
    /// Rules of authorization. Without a rule every caller may do everything.
    #[serde(default)]
    rules: Spanned<Vec<Spanned<RuleFile>>>,
}

impl ConfigFile {
    /// Converts the file to settings. A default replaces each value with a problem.
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Settings {
        let root = Location { line: 1, at: String::new() };
        let has_url = self.public_url.place().is_some();
        let public_url = self.public_url.take().and_then(|(place, text)| url::public(&text, &place, reading));
        let auth = self.auth.take().map(|(place, file)| file.resolve(&place, public_url.as_deref(), reading));
        let auth = auth.unwrap_or_default();
        let listeners = listeners(self.listeners, (&root, &auth.mechanisms()), reading);
        let admin = admin(self.admin, &listeners, reading);
        let seal_keys = seal_keys(self.seal_key, reading);
        let cards = self.cards.value().unwrap_or_default();
        let (cards, signature) = cards.resolve(reading);
        let mut agents = agents(self.agents, self.manifests, &root, reading);
        agents.iter_mut().for_each(|agent| agent.signature = agent.signature.take().or(signature.clone()));
        if let Some(keys) = &auth.api_keys {
            for agent in agents.iter().filter(|agent| agent.forward_headers.contains(&keys.header)) {
                let place = root.child("agents").child(&agent.name).child("forward_headers");
                let what = format!(
                    "{} cannot be forwarded: it carries the callers' keys to the gateway",
                    keys.header
                );
                reading.problem(&place, what);
            }
        }
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        let rules = rules::resolve(self.rules, (&auth, &names), reading);
        let has_door = listeners.iter().any(|(_, listener)| listener.serve.push);
        let push = self.push.value().unwrap_or_default().resolve(has_url, has_door, reading);
        Settings {
            public_url,
            listeners: listeners.into_iter().map(|(_, listener)| listener).collect(),
            admin,
            seal_keys,
            auth,
            rules,
            outbound: self.outbound.value().unwrap_or_default().resolve(reading),
            mcp: self.mcp.value().unwrap_or_default().resolve(reading),
            calls: self.calls.value().unwrap_or_default().resolve(reading),
            cards,
            sessions: self.sessions.value().unwrap_or_default().resolve(reading),
            limits: self.limits.value().unwrap_or_default().resolve(reading),
            tasks: self.tasks.value().unwrap_or_default().resolve(reading),
            streams: self.streams.value().unwrap_or_default().resolve(reading),
            background: self.background.value().unwrap_or_default().resolve(reading),
            push,
            threads: reading.count(self.threads, 0..=1024, 0),
            log: self.log.value().unwrap_or_default().resolve(reading),
            shutdown: self.shutdown.value().unwrap_or_default().resolve(reading),
            upgrade: self.upgrade.value().unwrap_or_default().resolve(reading),
            ..Settings::new(agents)
        }
    }
}

fn listeners(
    written: Spanned<Vec<Spanned<ListenerFile>>>,
    (root, mechanisms): (&Location, &[Mechanism]),
    reading: &mut ResolveContext<'_>,
) -> Vec<(Location, Listener)> {
    let hint = "write `listeners:` and below it `  - address: 127.0.0.1:8080`";
    let Some((place, written)) = reading.required(written, root, "listeners", hint) else {
        return Vec::new();
    };
    if written.is_empty() {
        reading.problem(&place, format!("is empty ({hint})"));
    }
    let mut listeners: Vec<(Location, Listener)> = Vec::new();
    for (place, listener) in written.into_iter().filter_map(Spanned::take) {
        let Some((place, listener)) = listener.resolve(&place, mechanisms, reading) else { continue };
        if taken(&listeners, listener.address) {
            reading.problem(&place, format!("{} is there twice", listener.address));
        }
        listeners.push((place, listener));
    }
    listeners
}

fn taken(listeners: &[(Location, Listener)], address: std::net::SocketAddr) -> bool {
    address.port() != 0 && listeners.iter().any(|(_, listener)| listener.address == address)
}

fn admin(
    written: Spanned<AdminFile>,
    listeners: &[(Location, Listener)],
    reading: &mut ResolveContext<'_>,
) -> Option<Admin> {
    let (place, admin) = written.take()?;
    let (place, admin) = admin.resolve(&place, reading);
    if taken(listeners, admin.address) {
        reading.problem(&place, format!("{} is a listener for clients already", admin.address));
    }
    Some(admin)
}

fn seal_keys(
    written: Spanned<OneOrMany<Spanned<Template>>>,
    reading: &mut ResolveContext<'_>,
) -> Vec<Secret> {
    let Some((place, OneOrMany(written))) = written.take() else { return Vec::new() };
    if written.is_empty() {
        reading.problem(&place, "is an empty list (write a key, or remove it)");
    }
    let mut keys: Vec<Secret> = Vec::new();
    for key in written {
        let Some((place, key)) = reference::one_line(key, reading) else { continue };
        if key.expose().chars().count() < 32 {
            reading.problem(&place, "is shorter than 32 characters (make one with `openssl rand -hex 32`)");
        } else if keys.contains(&key) {
            reading.problem(&place, "is there twice");
        }
        keys.push(key);
    }
    keys
}

fn agents(
    written: Spanned<BTreeMap<String, Spanned<AgentFile>>>,
    manifests: Spanned<String>,
    root: &Location,
    reading: &mut ResolveContext<'_>,
) -> Vec<Agent> {
    let hint = "write `agents:`, below it a name, and below that `card: URL`";
    let may_be_absent = manifests.place().is_some();
    let agents = if may_be_absent { written.take() } else { reading.required(written, root, "agents", hint) };
    let Some((place, agents)) = agents else { return manifest::agents(manifests, Vec::new(), reading) };
    if agents.is_empty() && !may_be_absent {
        reading.problem(&place, format!("is empty ({hint})"));
    }
    let names = agents.keys().cloned().collect();
    let mut resolved = Vec::new();
    for (name, written) in agents {
        if let Some(problem) = written.place().and(agent::name_problem(&name))
            && let Some(place) = written.place()
        {
            reading.problem(place, problem);
        }
        let Some((place, agent)) = written.take() else { continue };
        resolved.extend(agent.resolve(name, &place, reading));
    }
    resolved.extend(manifest::agents(manifests, names, reading));
    resolved
}
