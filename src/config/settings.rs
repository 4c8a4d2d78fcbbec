//! The root of the configuration: all settings of one gateway, and the sections `limits`, `log`,
//! `shutdown` and `upgrade`.
//!
//! Made by [`load`](super::load), or in code by a program that embeds the gateway. Settings from
//! `load` are valid.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::agent::{Agent, AgentKeys, CardSignature, name_problem};
use super::agent_defaults::{AgentDefaultKeys, AgentDefaultSource, AgentDefaults};
use super::auth::{Auth, AuthKeys, Mechanism};
use super::auth::{Rule, RuleKeys, rules};
use super::calls::Calls;
use super::calls::{Background, Push, Streams, TASKS_FILE, Tasks};
use super::forms::{ByteSize, checked_text, choice};
use super::host::check_public_url;
use super::include::ConfigDocument;
use super::listener::{Admin, HealthListener, Listener, ListenerKeys, ReadyRule};
use super::mcp::{Cards, Mcp, Resources, Sessions};
use super::outbound::Outbound;
use super::outbound::{State, StateKeys, StateLocation};
use super::outbound::{Tracing, TracingKeys};
use super::prompts::{Prompt, PromptKeys, prompts};
use super::reference::{Secret, Template};
use super::resolve::{Problem, ResolveContext};
use super::section::{KeysOf, section};
use super::sources::{Source, SourceKeys, sources};
use super::yaml::{Location, OneOrMany, Spanned};
use super::{ListenerRule, manifest};

section! {
    /// The configuration of mcp-a2a-gateway.
    keys ConfigKeys("mcp-a2a-gateway") with {
        "title": "mcp-a2a-gateway",
        "anyOf": [{ "required": ["agents"] }, { "required": ["manifests"] }, { "required": ["include"] }, { "required": ["sources"] },
            { "required": ["admin"], "properties": { "admin": { "required": ["agents_file"] } } }]
    } {
        /// Paths of further files of this configuration; `*` in a name is any text. Their keys join
        /// the ones here: lists are appended in the order of the files, sections get the keys of
        /// both, and another key that two files have is a problem. A path without `*` must exist.
        /// At most 1000 files of 1 MiB, 16 MiB in all, which include no others.
        include: Vec<Spanned<String>> [example ["agents.d/*.yaml"]],
        /// The URL under which clients reach the gateway. Needed behind a proxy: its host and its
        /// origin are accepted.
        public_url: String [example "https://gateway.example.com"],
        /// The listeners for clients. At least one, except for the command `stdio`, which uses none.
        listeners: Vec<Spanned<ListenerKeys>> [schema { "minItems": 1 }],
        /// The operator's own listener: health, readiness, metrics, state, changes, and a page for
        /// people. Without this key there is none.
        admin: KeysOf<Admin> => Option<Admin>,
        /// A listener for probes alone. Without this key there is none: the admin listener answers
        /// them too.
        health: KeysOf<HealthListener> => Option<HealthListener>,
        /// The time until the gateway is ready.
        ready: KeysOf<ReadyRule> => ReadyRule,
        /// The key that seals task handles and session ids: at least 32 characters, or a list of
        /// such keys, of which the first seals and all open. Replicas share it. Without it the key
        /// is kept in `tasks.data_dir`; without that handles end with the process.
        seal_key: OneOrMany<Spanned<Template>> [example ["${env:GATEWAY_SEAL_KEY}"]],
        /// The A2A agents, each under its name: a lower-case letter or digit, then up to 31
        /// lower-case letters, digits, `-` and `_`. At least one, here or in `manifests`, or `sources`.
        agents: BTreeMap<String, Spanned<AgentKeys>> [schema {
            "minProperties": 1,
            "propertyNames": { "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$" }
        }],
        /// Settings of all agents that do not state them, of manifests too: the keys of
        /// `agents.NAME` without those that are for one agent (`card`, `manifest`, `endpoints`,
        /// `tool_name`, `description`, `skills`, `headers`, `auth`, `forward_headers`,
        /// `allow_hosts`, the certificate and the name in `tls`) or have a key for all (`signature`,
        /// `proxy`).
        agent_defaults: AgentDefaultKeys [example { timeouts: { total: 10m }, task: never }],
        /// The path of a folder in which every `*.json` is the ARDF manifest (`subagent@v0.1`) of
        /// one more agent, named by its `id`: in lower case, other characters as `-`, cut to 32.
        manifests: String [example subagents],
        /// Sources of further agents, each under a name as of an agent: folders of cards, API
        /// catalogs, other gateways. Their agents never replace one of `agents` or `manifests`, nor
        /// one of a source that is before it by its name. At most 32.
        sources: BTreeMap<String, Spanned<SourceKeys>>,
        /// Destinations of the gateway that cards and clients may choose.
        outbound: KeysOf<Outbound> => Outbound,
        /// MCP.
        mcp: KeysOf<Mcp> => Mcp,
        /// The families of MCP resources.
        resources: KeysOf<Resources> => Resources,
        /// Prompts besides those that the gateway makes of the examples of skills, each under its
        /// name: at most 64 letters, digits, `-`, `_` and `.`.
        prompts: BTreeMap<String, Spanned<PromptKeys>>,
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
        /// State that several replicas share. Without this key each replica works alone.
        state: StateKeys => Option<State>,
        /// The log.
        log: KeysOf<Log> => Log,
        /// Export of traces over OTLP. Without this key there is none.
        tracing: TracingKeys => Option<Tracing>,
        /// The end of the gateway.
        shutdown: KeysOf<Shutdown> => Shutdown,
        /// The takeover by another process (`serve --upgrade`).
        upgrade: KeysOf<Upgrade> => Upgrade,
        /// Changes of the configuration while the gateway runs.
        reload: KeysOf<Reload> => Reload,
        /// Authentication of clients. Without it all of them are anonymous.
        auth: AuthKeys,
        /// Rules of authorization. Without a rule every caller may do everything.
        rules: Vec<Spanned<RuleKeys>>,
    }
}

/// All settings of one gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The URL under which clients reach the gateway, without a slash at the end.
    pub public_url: Option<String>,
    /// The listeners for clients.
    pub listeners: Vec<Listener>,
    /// The operator's own listener; `None`: there is none.
    pub admin: Option<Admin>,
    /// The listener for probes alone; `None`: there is none.
    pub health: Option<HealthListener>,
    /// The time until the gateway is ready.
    pub ready: ReadyRule,
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
    /// Settings of all agents that do not state them.
    pub agent_defaults: AgentDefaults,
    /// Sources of further agents, sorted by name; names are unique. The commands `serve` and `stdio`
    /// read them.
    pub sources: Vec<Source>,
    /// Hosts and networks to which cards may send the gateway.
    pub outbound: Outbound,
    /// MCP settings of the gateway.
    pub mcp: Mcp,
    /// The families of MCP resources.
    pub resources: Resources,
    /// Prompts of the operator, sorted by name; names are unique.
    pub prompts: Vec<Prompt>,
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
    /// State that several replicas share; `None`: each works alone.
    pub state: Option<State>,
    /// The log.
    pub log: Log,
    /// Export of traces; `None`: there is none.
    pub tracing: Option<Tracing>,
    /// The end of the gateway.
    pub shutdown: Shutdown,
    /// The takeover by another process.
    pub upgrade: Upgrade,
    /// Changes of the configuration while the gateway runs.
    pub reload: Reload,
    /// The files that the configuration was read from.
    pub files: Vec<PathBuf>,
    /// Values of the configuration that are accepted and probably wrong.
    pub warnings: Vec<Problem>,
    /// The keys of the file and the files that it names, for comparisons.
    pub document: ConfigDocument,
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
            health: None,
            ready: ReadyRule::default(),
            seal_keys: Vec::new(),
            auth: Auth::default(),
            rules: Vec::new(),
            agents,
            agent_defaults: AgentDefaults::default(),
            sources: Vec::new(),
            outbound: Outbound::default(),
            mcp: Mcp::default(),
            resources: Resources::default(),
            prompts: Vec::new(),
            calls: Calls::default(),
            cards: Cards::default(),
            sessions: Sessions::default(),
            limits: Limits::default(),
            tasks: Tasks::default(),
            streams: Streams::default(),
            background: Background::default(),
            push: Push::default(),
            threads: 0,
            state: None,
            log: Log::default(),
            tracing: None,
            shutdown: Shutdown::default(),
            upgrade: Upgrade::default(),
            reload: Reload::default(),
            files: Vec::new(),
            warnings: Vec::new(),
            document: ConfigDocument::default(),
        }
    }
}

impl ConfigKeys {
    /// Converts the file to settings. A default replaces each value with a problem.
    pub(super) fn resolve(mut self, needed: ListenerRule, context: &mut ResolveContext<'_>) -> Settings {
        self.section = Location { line: 1, at: String::new() };
        let has_url = self.public_url.place().is_some();
        let public_url = std::mem::take(&mut self.public_url).take();
        let public_url = public_url.and_then(|(place, text)| check_public_url(&text, &place, context));
        let auth = std::mem::take(&mut self.auth).open();
        let auth = auth.map(|keys| keys.resolve(public_url.as_deref(), context)).unwrap_or_default();
        let listeners = self.resolve_listeners(needed, &auth.mechanisms(), context);
        let admin = self.resolve_admin(&listeners, context);
        let health = self.resolve_health(&listeners, admin.as_ref(), context);
        let has_agents_file = admin.as_ref().is_some_and(|admin| admin.agents_file.is_some());
        let has_seal_key = self.seal_key.place().is_some();
        let seal_keys = seal_keys(std::mem::take(&mut self.seal_key), context);
        let signature = self.card_signature(context);
        let mut defaults = AgentDefaultKeys::resolve(std::mem::take(&mut self.agent_defaults), context);
        let mut agents = self.resolve_agents(has_agents_file, defaults.as_mut(), context);
        agents.iter_mut().for_each(|agent| agent.signature = agent.signature.take().or(signature.clone()));
        let agent_defaults = AgentDefaultSource::finish(defaults, signature);
        let has_sources = self.sources.place().is_some();
        let sources = sources(std::mem::take(&mut self.sources), context);
        check_forwarded_keys(&self.section, &auth, &agents, context);
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        // Sources may have any other.
        let names = Some(&*names).filter(|_| !has_sources);
        let rules = rules(std::mem::take(&mut self.rules), &auth, names, context);
        let prompts = prompts(std::mem::take(&mut self.prompts), names, context);
        // Without listeners there is none to which agents could send.
        let can_be_reached = (needed == ListenerRule::Required)
            .then(|| (has_url, listeners.iter().any(|listener| listener.serve.push)));
        let push = self.resolve_push(can_be_reached, context);
        let (tasks, state) = self.resolve_kept(has_seal_key, context);
        Settings {
            public_url,
            listeners,
            admin,
            health,
            ready: self.ready(context),
            seal_keys,
            auth,
            rules,
            agent_defaults,
            sources,
            outbound: self.outbound(context),
            mcp: self.mcp(context),
            resources: self.resources(context),
            prompts,
            calls: self.calls(context),
            cards: self.cards(context),
            sessions: self.sessions(context),
            limits: self.limits(context),
            tasks,
            streams: self.streams(context),
            background: self.background(context),
            push,
            threads: self.threads(context),
            state,
            log: self.log(context),
            tracing: self.tracing(context),
            shutdown: self.shutdown(context),
            upgrade: self.upgrade(context),
            reload: self.reload(context),
            ..Settings::new(agents)
        }
    }

    fn resolve_listeners(
        &mut self,
        needed: ListenerRule,
        mechanisms: &[Mechanism],
        context: &mut ResolveContext<'_>,
    ) -> Vec<Listener> {
        let hint = "write `listeners:` and below it `  - address: 127.0.0.1:8080`; only `stdio` needs none";
        let written = std::mem::take(&mut self.listeners);
        if needed == ListenerRule::Optional && written.place().is_none() {
            return Vec::new();
        }
        let Some((place, written)) = context.required(written, &self.section, "listeners", hint) else {
            return Vec::new();
        };
        if needed == ListenerRule::Required && written.is_empty() {
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

    fn resolve_health(
        &mut self,
        listeners: &[Listener],
        admin: Option<&Admin>,
        context: &mut ResolveContext<'_>,
    ) -> Option<HealthListener> {
        let place = self.health.get().and_then(|keys| keys.address.place().cloned());
        let health = self.health(context)?;
        let place = place.or(self.health.place().cloned());
        let is_admin =
            admin.is_some_and(|admin| admin.address == health.address && health.address.port() != 0);
        if let Some(place) = place.filter(|_| is_admin || is_taken(listeners, health.address)) {
            context.problem(&place, format!("{} is another listener already", health.address));
        }
        Some(health)
    }

    /// Returns the signature that the card of every agent must have without one of its own.
    fn card_signature(&mut self, context: &mut ResolveContext<'_>) -> Option<CardSignature> {
        let keys = self.cards.get_mut().map(|cards| std::mem::take(&mut cards.signature));
        keys.and_then(Spanned::open).and_then(|keys| keys.resolve(context))
    }

    fn resolve_agents(
        &mut self,
        has_agents_file: bool,
        mut defaults: Option<&mut AgentDefaultSource>,
        context: &mut ResolveContext<'_>,
    ) -> Vec<Agent> {
        let hint = "write `agents:`, below it a name, and below that `card: URL`";
        let (written, manifests) = (std::mem::take(&mut self.agents), std::mem::take(&mut self.manifests));
        let may_be_absent = manifests.place().is_some() || self.sources.place().is_some() || has_agents_file;
        let agents = match may_be_absent {
            true => written.take(),
            false => context.required(written, &self.section, "agents", hint),
        };
        let Some((place, agents)) = agents else {
            return manifest::agents(manifests, Vec::new(), defaults, context);
        };
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
            let host = keys.a2a.get().and_then(|keys| keys.host.place().cloned());
            let agent = keys.resolve(name, defaults.as_deref_mut(), context);
            if let (Some(place), Some(agent)) = (host, &agent) {
                check_host_is_free(&place, agent, &resolved, context);
            }
            resolved.extend(agent);
        }
        resolved.extend(manifest::agents(manifests, names, defaults, context));
        resolved
    }

    /// Returns the tasks, and the engine for shared state. What one replica seals the others must open.
    fn resolve_kept(
        &mut self,
        has_seal_key: bool,
        context: &mut ResolveContext<'_>,
    ) -> (Tasks, Option<State>) {
        let place = self.state.place().cloned();
        let (tasks, state) = (self.tasks(context), self.state(context));
        let file = tasks.data_dir.as_ref().map(|folder| StateLocation::File(folder.join(TASKS_FILE)));
        let is_one_file = file.is_some() && file.as_ref() == state.as_ref().map(|state| &state.location);
        if let Some(place) = place.as_ref().filter(|_| is_one_file) {
            context.problem(&place.child("url"), "is the file of tasks.data_dir (name another file)");
        }
        if let Some(place) = place.filter(|_| !has_seal_key) {
            context.problem(&place, "needs seal_key, the same at all replicas");
        }
        (tasks, state)
    }

    /// Checks the conditions for agents to reach the gateway, if they are asked for push
    /// notifications: a URL, and a listener that serves `push`.
    fn resolve_push(&mut self, reached: Option<(bool, bool)>, context: &mut ResolveContext<'_>) -> Push {
        let place = self.push.get().and_then(|keys| keys.enabled.place().cloned());
        let push = self.push(context);
        if let Some((place, (has_url, serves_push))) = place.filter(|_| push.enabled).zip(reached) {
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

/// Checks that no other agent has the host of an agent for A2A clients.
fn check_host_is_free(place: &Location, agent: &Agent, others: &[Agent], context: &mut ResolveContext<'_>) {
    let Some(host) = &agent.a2a_host else { return };
    let has_host = |other: &&Agent| other.a2a_host.as_ref().is_some_and(|of| of.eq_ignore_ascii_case(host));
    if let Some(other) = others.iter().find(has_host) {
        context.problem(place, format!("is the host of the agent {} already", other.name));
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

section! {
    /// The log.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Log {
        /// Format of a line on standard error: `text` for people, `json` for machines.
        format: LogFormat = text,
        /// Level of the log: `error`, `warn`, `info`, `debug` or `trace`, or directives such as
        /// `info,access=off`.
        level: String as LogLevel = info,
        /// True if the audit log contains the arguments of calls, up to 2 KiB of each call.
        audit_arguments: bool = false,
        /// JSON pointers (RFC 6901) into arguments, such as `/card/number`; the audit log contains
        /// `***` in place of the values that they point to.
        redact: Vec<String> as Vec<Spanned<JsonPointer>> = [] [example ["/card/number"]],
    }
}

/// Format of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

choice! {
    /// Format of a line of the log.
    LogFormat as "LogFormat" { "text" => Self::Text, "json" => Self::Json, }
}

checked_text!(LogLevel as "text", |text: &str| {
    let problem = "is not a level (write error, warn, info, debug or trace, or info,pingora=warn)";
    if is_level(text) { Ok(()) } else { Err(problem) }
});

/// Returns true if the filter understands every directive. It would take a misspelt level for the
/// name of a module.
fn is_level(text: &str) -> bool {
    let bare = |directive: &str| directive.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let directives = text.split(',').map(str::trim);
    let named = |directive: &str| directive.contains(['=', '[']) || bare(directive);
    !text.trim().is_empty() && directives.into_iter().all(named) && EnvFilter::builder().parse(text).is_ok()
}

checked_text!(JsonPointer as "JSON pointer", |text: &str| {
    // RFC 6901 §3; the empty pointer would be the whole.
    let mut rest = text.split('~').skip(1);
    if text.starts_with('/') && rest.all(|after| after.starts_with(['0', '1'])) {
        return Ok(());
    }
    Err("is not a JSON pointer (write /name or /list/0/name; ~0 is ~, ~1 is /)")
});

section! {
    /// The end of the gateway.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Shutdown {
        /// Time for which new requests are still accepted after SIGTERM, so that load balancers
        /// notice.
        grace: Duration = 5s in 0s..=1h,
        /// Time for which requests in progress are then awaited. Shortly before its end, each that
        /// its agent has not answered receives a handle.
        drain: Duration = 20s in 0s..=1h,
    }
}

section! {
    /// The takeover of the sockets by another process (`serve --upgrade`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Upgrade {
        /// Directory of the sockets for the takeover, with mode 0700 and of the gateway's user;
        /// made if it does not exist. Each gateway of a user needs its own. Without it:
        /// `mcp-a2a-gateway-UID` in the temporary directory.
        directory: Option<PathBuf> [example "gateway-upgrade"],
    }
}

section! {
    /// Changes of the configuration while the gateway runs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Reload {
        /// True if the configuration is applied when its file, or a file that it names, has
        /// changed. SIGHUP and `POST /reload` on the admin listener apply it in any case.
        watch: bool = false,
    }
}

section! {
    /// Limits for what peers send. Sizes are in bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// A request's body.
        body: usize as ByteSize = 4MiB in 1KiB..=1GiB,
        /// Nesting of JSON in a request's body.
        depth: usize = 64 in 8..=120,
        /// An agent's response that is not a stream.
        response: usize as ByteSize = 16MiB in 1KiB..=1GiB,
        /// One event of an agent's stream.
        event: usize as ByteSize = 4MiB in 1KiB..=1GiB,
        /// Total size of one task's artifacts.
        artifacts: usize as ByteSize = 16MiB in 1KiB..=1GiB,
        /// Messages in a JSON-RPC batch.
        batch: usize = 32 in 1..=1000,
        /// Time that a client has to send its request's headers.
        header_read: Duration = 10s in 1s..=1h,
        /// Time that a client has to send its request's body.
        body_read: Duration = 30s in 1s..=1h,
        /// Time for which a client may leave a response unread; then its connection is closed, and
        /// the rest of the response is dropped.
        write_stall: Duration = 30s in 1s..=1h,
        /// Time for which an idle client connection is kept; the header of its next request must be
        /// complete by then.
        keep_alive: Duration = 75s in 1s..=1h,
        /// Open GET, `subscriptions/listen` and `SubscribeToTask` streams.
        streams: usize = 1024 in 1..=1000000,
        /// Concurrent calls of all callers. More are refused with 503.
        calls: usize = 10000 in 1..=1000000,
        /// Requests of one caller in a second; 0 is any number. More are refused with 429 and
        /// `Retry-After`. Here and below, anonymous callers are distinguished by their address.
        caller_rate: usize = 0 in 0..=1000000,
        /// Requests that one caller may send at once after a pause; 0 is as many as in a second.
        caller_burst: usize = 0 in 0..=1000000,
        /// Concurrent calls of one caller. More are refused with 429.
        caller_calls: usize = 1000 in 1..=1000000,
        /// Open streams of one caller; at most three quarters of `streams`. More are refused with
        /// 429.
        caller_streams: usize = 256 in 1..=1000000,
        /// Live tasks of one caller; those of all anonymous callers count together. Core tasks and
        /// `subagent_start` beyond the limit are refused with 429; a plain call never is.
        caller_tasks: usize = 1000 in 1..=1000000,
        /// Bytes that requests and responses of all callers hold in memory, beyond 16 KiB each.
        /// Beyond the limit requests are refused with 503, and responses of agents fail.
        bytes: usize as ByteSize = 256MiB in 1MiB..=1024GiB,
        /// Bytes that requests and responses of one caller hold; at most three quarters of `bytes`.
        /// Beyond the limit requests are refused with 429.
        caller_bytes: usize as ByteSize = 32MiB in 1MiB..=1024GiB,
        /// Bad credentials from one address in a second, and failed TLS handshakes, which count
        /// separately; ten times as many at once. Beyond the limit, for a while, credentials that
        /// are not known to be good are refused with 429 without a check, and connections are
        /// closed before a handshake. 0 is any number: for a gateway behind a proxy that hides
        /// addresses.
        auth_failures: usize = 10 in 0..=1000000,
        /// A request's header: its path and all lines. Longer ones are refused with 431. Over
        /// HTTP/2 each line counts 32 bytes more (RFC 9113 §6.5.2).
        header: usize as ByteSize = 32KiB in 1KiB..=1MiB,
        /// Connections of clients, on each listener. More are closed at once. With `stdio`: the
        /// messages that are handled at once; no more are read.
        connections: usize = 10000 in 1..=1000000,
    }
    keys {
        /// Of these, connections from one address (of IPv6 from one /64 network). More are closed
        /// at once. 0 is any number: for a gateway behind a proxy or a load balancer, which is one
        /// address. Without it: a tenth of `connections`, at least 16.
        address_connections: u64 => Option<usize> = none in 0..=1000000 [example 1000],
    }
    fields {
        /// Of these, connections from one address (of IPv6 from one /64 network); 0: any number.
        /// Default: a tenth, at least [`Limits::LEAST_ADDRESS_CONNECTIONS`].
        address_connections: usize = 1000,
    }
    check check_limits
}

impl Limits {
    /// The fewest connections that one address may have by default: as many as a client with a
    /// pool.
    pub const LEAST_ADDRESS_CONNECTIONS: usize = 16;
}

fn check_limits(limits: Limits, mut keys: KeysOf<Limits>, context: &mut ResolveContext<'_>) -> Limits {
    let tenth = (limits.connections / 10).max(Limits::LEAST_ADDRESS_CONNECTIONS);
    Limits { address_connections: keys.address_connections(context).unwrap_or(tenth), ..limits }
}
