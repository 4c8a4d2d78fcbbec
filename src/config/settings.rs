//! The root of the configuration: all settings of one gateway.
//!
//! Made by [`load`](super::load), or in code by a program that embeds the gateway. Settings from
//! `load` are valid.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::agent::{Agent, AgentKeys, name_problem};
use super::auth::{Auth, AuthKeys, Mechanism};
use super::calls::Calls;
use super::host::check_public_url;
use super::limits::Limits;
use super::listener::{Admin, Listener, ListenerKeys};
use super::manifest;
use super::mcp::{Cards, Mcp, Sessions};
use super::operation::{Log, Shutdown, Upgrade};
use super::outbound::Outbound;
use super::reference::{Secret, Template};
use super::resolve::ResolveContext;
use super::rules::{Rule, RuleKeys, rules};
use super::section::{KeysOf, section};
use super::spanned::{Location, OneOrMany, Spanned};
use super::tasks::{Background, Push, Streams, Tasks};

section! {
    /// The configuration of mcp-a2a-gateway.
    keys ConfigKeys("mcp-a2a-gateway") with {
        "title": "mcp-a2a-gateway",
        "required": ["listeners"],
        "anyOf": [{ "required": ["agents"] }, { "required": ["manifests"] }]
    } {
        /// The URL under which clients reach the gateway. Needed behind a proxy: its host and its
        /// origin are accepted.
        public_url: String [example "https://gateway.example.com"],
        /// The listeners for clients. At least one.
        listeners: Vec<Spanned<ListenerKeys>> [schema { "minItems": 1 }],
        /// The operator's own listener: health, readiness, metrics, state. Without this key there
        /// is none.
        admin: KeysOf<Admin> => Option<Admin>,
        /// The key that seals task handles and session ids: at least 32 characters, or a list of
        /// such keys, of which the first seals and all open. Replicas share it. Without it the key
        /// is kept in `tasks.data_dir`; without that handles end with the process.
        seal_key: OneOrMany<Spanned<Template>> [example ["${env:GATEWAY_SEAL_KEY}"]],
        /// The A2A agents, each under its name: a lower-case letter or digit, then up to 31
        /// lower-case letters, digits, `-` and `_`. At least one, here or in `manifests`.
        agents: BTreeMap<String, Spanned<AgentKeys>> [schema {
            "minProperties": 1,
            "propertyNames": { "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$" }
        }],
        /// The path of a folder in which every `*.json` is the ARDF manifest (`subagent@v0.1`) of
        /// one more agent, named by its `id`: in lower case, other characters as `-`, cut to 32.
        manifests: String [example subagents],
        /// Destinations of the gateway that cards and clients may choose.
        outbound: KeysOf<Outbound> => Outbound,
        /// MCP.
        mcp: KeysOf<Mcp> => Mcp,
        /// Duration of calls.
        calls: KeysOf<Calls> => Calls,
        /// Refresh of agent cards.
        cards: KeysOf<Cards> => Cards,
        /// MCP sessions.
        sessions: KeysOf<Sessions> => Sessions,
        /// Limits for what peers send.
        limits: KeysOf<Limits> => Limits,
        /// The memory of tasks.
        tasks: KeysOf<Tasks> => Tasks,
        /// Reconnection of agents' streams.
        streams: KeysOf<Streams> => Streams,
        /// Work that continues after its client has left.
        background: KeysOf<Background> => Background,
        /// Push notifications of agents.
        push: KeysOf<Push> => Push,
        /// Worker threads per service, and as many for TLS handshakes; 0 is one per core.
        threads: u64 => usize = 0 in 0..=1024,
        /// The log.
        log: KeysOf<Log> => Log,
        /// The end of the gateway.
        shutdown: KeysOf<Shutdown> => Shutdown,
        /// The takeover by another process (`serve --upgrade`).
        upgrade: KeysOf<Upgrade> => Upgrade,
        /// Authentication of clients. Without it all of them are anonymous.
        auth: AuthKeys,
        /// Rules of authorization. Without a rule every caller may do everything.
        rules: Vec<Spanned<RuleKeys>>,
    }
}

/// All settings of one gateway.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The URL under which clients reach the gateway, without a slash at the end.
    pub public_url: Option<String>,
    /// The listeners for clients.
    pub listeners: Vec<Listener>,
    /// The operator's own listener; `None`: there is none.
    pub admin: Option<Admin>,
    /// The keys that seal handles: the first seals, all of them open. Empty: the key in [`Tasks::data_dir`]; without
    /// that, a random one per start.
    pub seal_keys: Vec<Secret>,
    /// Authentication of clients.
    pub auth: Auth,
    /// Rules of authorization; the first that matches decides. Empty: every caller may do
    /// everything.
    pub rules: Vec<Rule>,
    /// The agents, sorted by name; names are unique.
    pub agents: Vec<Agent>,
    /// Hosts and networks to which cards may send the gateway.
    pub outbound: Outbound,
    /// MCP settings of the gateway.
    pub mcp: Mcp,
    /// Duration of calls.
    pub calls: Calls,
    /// Refresh of agent cards.
    pub cards: Cards,
    /// MCP sessions.
    pub sessions: Sessions,
    /// Limits for what peers send.
    pub limits: Limits,
    /// The memory of tasks.
    pub tasks: Tasks,
    /// Reconnection of agents' streams.
    pub streams: Streams,
    /// Work that continues after its client has left.
    pub background: Background,
    /// Push notifications of agents.
    pub push: Push,
    /// Worker threads per service; 0: one per core.
    pub threads: usize,
    /// The log.
    pub log: Log,
    /// The end of the gateway.
    pub shutdown: Shutdown,
    /// The takeover by another process.
    pub upgrade: Upgrade,
}

impl Settings {
    /// Returns settings with every default: no listener, no admin listener, a random seal key,
    /// nothing on disk.
    pub fn new(mut agents: Vec<Agent>) -> Self {
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        Self {
            public_url: None,
            listeners: Vec::new(),
            admin: None,
            seal_keys: Vec::new(),
            auth: Auth::default(),
            rules: Vec::new(),
            agents,
            outbound: Outbound::default(),
            mcp: Mcp::default(),
            calls: Calls::default(),
            cards: Cards::default(),
            sessions: Sessions::default(),
            limits: Limits::default(),
            tasks: Tasks::default(),
            streams: Streams::default(),
            background: Background::default(),
            push: Push::default(),
            threads: 0,
            log: Log::default(),
            shutdown: Shutdown::default(),
            upgrade: Upgrade::default(),
        }
    }
}

impl ConfigKeys {
    /// Converts the file to settings. A default replaces each value with a problem.
    pub(super) fn resolve(mut self, context: &mut ResolveContext<'_>) -> Settings {
        self.section = Location { line: 1, at: String::new() };
        let has_url = self.public_url.place().is_some();
        let public_url = std::mem::take(&mut self.public_url).take();
        let public_url = public_url.and_then(|(place, text)| check_public_url(&text, &place, context));
        let auth = std::mem::take(&mut self.auth).open();
        let auth = auth.map(|keys| keys.resolve(public_url.as_deref(), context)).unwrap_or_default();
        let listeners = self.resolve_listeners(&auth.mechanisms(), context);
        let admin = self.resolve_admin(&listeners, context);
        let seal_keys = seal_keys(std::mem::take(&mut self.seal_key), context);
        let signature = self.cards.get_mut().map(|cards| std::mem::take(&mut cards.signature));
        let signature = signature.and_then(Spanned::open).and_then(|keys| keys.resolve(context));
        let cards = self.cards(context);
        let mut agents = self.resolve_agents(context);
        agents.iter_mut().for_each(|agent| agent.signature = agent.signature.take().or(signature.clone()));
        check_forwarded_keys(&self.section, &auth, &agents, context);
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        let rules = rules(std::mem::take(&mut self.rules), &auth, &names, context);
        let serves_push = listeners.iter().any(|listener| listener.serve.push);
        let push = self.resolve_push(has_url, serves_push, context);
        Settings {
            public_url,
            listeners,
            admin,
            seal_keys,
            auth,
            rules,
            outbound: self.outbound(context),
            mcp: self.mcp(context),
            calls: self.calls(context),
            cards,
            sessions: self.sessions(context),
            limits: self.limits(context),
            tasks: self.tasks(context),
            streams: self.streams(context),
            background: self.background(context),
            push,
            threads: self.threads(context),
            log: self.log(context),
            shutdown: self.shutdown(context),
            upgrade: self.upgrade(context),
            ..Settings::new(agents)
        }
    }

    fn resolve_listeners(
        &mut self,
        mechanisms: &[Mechanism],
        context: &mut ResolveContext<'_>,
    ) -> Vec<Listener> {
        let hint = "write `listeners:` and below it `  - address: 127.0.0.1:8080`";
        let written = std::mem::take(&mut self.listeners);
        let Some((place, written)) = context.required(written, &self.section, "listeners", hint) else {
            return Vec::new();
        };
        if written.is_empty() {
            context.problem(&place, format!("is empty ({hint})"));
        }
        let mut listeners: Vec<Listener> = Vec::new();
        for keys in written.into_iter().filter_map(Spanned::open) {
            let place = keys.address.place().cloned();
            let Some(listener) = keys.resolve(mechanisms, context) else { continue };
            if let Some(place) = place.filter(|_| is_taken(&listeners, listener.address)) {
                context.problem(&place, format!("{} is there twice", listener.address));
            }
            listeners.push(listener);
        }
        listeners
    }

    fn resolve_admin(&mut self, listeners: &[Listener], context: &mut ResolveContext<'_>) -> Option<Admin> {
        let place = self.admin.get().and_then(|keys| keys.address.place().cloned());
        let admin = self.admin(context)?;
        let place = place.or(self.admin.place().cloned());
        if let Some(place) = place.filter(|_| is_taken(listeners, admin.address)) {
            context.problem(&place, format!("{} is a listener for clients already", admin.address));
        }
        Some(admin)
    }

    fn resolve_agents(&mut self, context: &mut ResolveContext<'_>) -> Vec<Agent> {
        let hint = "write `agents:`, below it a name, and below that `card: URL`";
        let (written, manifests) = (std::mem::take(&mut self.agents), std::mem::take(&mut self.manifests));
        let may_be_absent = manifests.place().is_some();
        let agents = match may_be_absent {
            true => written.take(),
            false => context.required(written, &self.section, "agents", hint),
        };
        let Some((place, agents)) = agents else { return manifest::agents(manifests, Vec::new(), context) };
        if agents.is_empty() && !may_be_absent {
            context.problem(&place, format!("is empty ({hint})"));
        }
        let names = agents.keys().cloned().collect();
        let mut resolved = Vec::new();
        for (name, written) in agents {
            if let (Some(place), Some(problem)) = (written.place(), name_problem(&name)) {
                context.problem(place, problem);
            }
            let Some(keys) = written.open() else { continue };
            resolved.extend(keys.resolve(name, context));
        }
        resolved.extend(manifest::agents(manifests, names, context));
        resolved
    }

    /// Checks the conditions for agents to reach the gateway, if they are asked for push
    /// notifications: a URL, and a listener that serves `push`.
    fn resolve_push(&mut self, has_url: bool, serves_push: bool, context: &mut ResolveContext<'_>) -> Push {
        let place = self.push.get().and_then(|keys| keys.enabled.place().cloned());
        let push = self.push(context);
        if let Some(place) = place.filter(|_| push.enabled) {
            if !has_url {
                context.problem(&place, "agents could not reach the gateway (set public_url)");
            }
            if !serves_push {
                let problem = "no listener takes them in (add push to `serve` of a listener)";
                context.problem(&place, problem);
            }
        }
        push
    }
}

fn is_taken(listeners: &[Listener], address: SocketAddr) -> bool {
    address.port() != 0 && listeners.iter().any(|listener| listener.address == address)
}

/// Reports agents to which callers' keys would be forwarded.
fn check_forwarded_keys(root: &Location, auth: &Auth, agents: &[Agent], context: &mut ResolveContext<'_>) {
    let Some(keys) = &auth.api_keys else { return };
    for agent in agents.iter().filter(|agent| agent.forward_headers.contains(&keys.header)) {
        let place = root.child("agents").child(&agent.name).child("forward_headers");
        let header = &keys.header;
        let problem = format!("{header} cannot be forwarded: it carries the callers' keys to the gateway");
        context.problem(&place, problem);
    }
}

fn seal_keys(
    written: Spanned<OneOrMany<Spanned<Template>>>,
    context: &mut ResolveContext<'_>,
) -> Vec<Secret> {
    let Some((place, OneOrMany(written))) = written.take() else { return Vec::new() };
    if written.is_empty() {
        context.problem(&place, "is an empty list (write a key, or remove it)");
    }
    let mut keys: Vec<Secret> = Vec::new();
    for key in written {
        let Some((place, key)) = key.resolve::<Secret>(context) else { continue };
        if key.expose().chars().count() < 32 {
            context.problem(&place, "is shorter than 32 characters (make one with `openssl rand -hex 32`)");
        } else if keys.contains(&key) {
            context.problem(&place, "is there twice");
        }
        keys.push(key);
    }
    keys
}
