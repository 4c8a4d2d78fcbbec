//! `agents.NAME`: an agent with its card, headers, TLS, timeouts and skills.
//!
//! See also `credentials` for its other credentials, `endpoints` for load balancing, and `manifest`
//! for agents that are described in a file of their own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use jsonwebtoken::jwk::JwkSet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::agent_defaults::AgentDefaultSource;
use super::credentials::AgentAuthKeys;
use super::credentials::{is_forbidden, is_reserved};
use super::endpoints::{AgentBinding, AgentTimeouts, Breaker, Health, LoadBalancing, Queue};
use super::forms::{Form, KeyForm, checked_text, choice};
use super::host::{check_host, web_url};
use super::manifest::{self, ManifestAgent};
use super::outbound::ProxyChoice;
use super::pem::card_keys;
use super::pem::{self, CertificatePem, KeyPem, Pem};
use super::reference::{ReloadableSecret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, Spanned, TEMPLATE, TemplateVisitor};
use super::{AgentAuth, AgentSource, MethodSettings, PerMethod};

/// Largest file of a card, in bytes.
const MAX_CARD_BYTES: usize = 1 << 20;
/// Largest file of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Most memory that one pattern of a schema may take when compiled, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Longest name of an agent.
pub(super) const MAX_NAME_BYTES: usize = 32;
/// Most names in `forward_headers`.
const MAX_FORWARDED_NAMES: usize = 32;

section! {
    /// One A2A agent behind the gateway.
    keys AgentKeys("Agent") with { "anyOf": [{ "required": ["card"] }, { "required": ["manifest"] }] } {
        /// Location of the agent's card: its URL; the base URL of the agent (no `.json` at its end,
        /// no `/.well-known/`, no query), below which `/.well-known/agent-card.json` and
        /// `/.well-known/agent.json` are tried; or the path of a file. Required without a
        /// `manifest`.
        card: String [example "https://weather.internal/.well-known/agent-card.json"],
        /// Path of an ARDF manifest (`subagent@v0.1`) with the location of the card, and more. The
        /// keys here win over it.
        manifest: String [example "weather-subagent.json"],
        /// Signature that the card must have. Without it: `cards.signature`.
        signature: CardSignatureKeys,
        /// Headers for every request to this agent. Headers that the gateway writes itself (`Host`,
        /// `Content-Type`, `Accept` …) are refused.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:WEATHER_TOKEN}" }],
        /// Other credentials for this agent: API keys, HTTP Basic, a bearer token, OAuth 2.
        auth: AgentAuthKeys,
        /// Names of headers that are copied from a client's request to the requests that it causes
        /// at this agent; at most 32. Headers that frame the request, `Authorization` and `Mcp-*`
        /// are refused.
        forward_headers: Vec<Spanned<String>> = [] [example [baggage, X-Tenant]],
        /// Trust in this agent, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Unit that becomes a tool: each skill on the card (`per_skill`), or the agent as a whole
        /// (`per_agent`).
        tools: ToolGranularity => ToolGranularity = per_skill,
        /// The whole name of the tool with `tools: per_agent`: letters, digits, `-` and `_`, at
        /// most 64. Without it: made from the agent's name.
        tool_name: ToolName => Option<String>
            [example ask_weather schema { "pattern": "^[A-Za-z0-9_-]{1,64}$" }],
        /// Replaces the description on the card, for `tools: per_agent` and cards without skills.
        description: String => Option<String> [example "Knows the weather of every city."],
        /// Overrides for skills, by their id on the card.
        skills: BTreeMap<String, Spanned<KeysOf<SkillOverride>>> => BTreeMap<String, SkillOverride>,
        /// The A2A version to speak: `auto` (the one that the card names), `"0.1"`, `"0.3"` (0.2
        /// too) or `"1.0"`.
        protocol: Protocol => Protocol = auto,
        /// The binding of A2A to call the agent by: `auto` (the order of its card), `jsonrpc`,
        /// `http_json` or `grpc`. An agent that does not offer it is not called.
        binding: AgentBinding => AgentBinding = auto,
        /// Media types to ask for. Without it: those of the card.
        output_modes: Vec<Spanned<MediaType>> => Option<Vec<String>>
            [example ["text/plain", "application/json"]],
        /// URIs of A2A extensions to activate.
        extensions: Vec<Spanned<ExtensionUri>> => Vec<String> = []
            [example ["https://example.com/ext/units/v1"]],
        /// Hosts (`name` or `name:port`) besides the card's own to which the card may send this
        /// agent's credentials.
        allow_hosts: Vec<Spanned<HostText>> => Vec<String> = [] [example ["weather-eu.internal"]],
        /// HTTP proxy for the connections to this agent, in place of `outbound.proxy.url` and without
        /// its `no_proxy`: a URL, or `none`.
        proxy: Template => ProxyChoice = none [example none],
        /// Timeouts of requests to this agent.
        timeouts: KeysOf<AgentTimeouts> => AgentTimeouts,
        /// True if the streaming method is used where the card offers it.
        streaming: bool => bool = true,
        /// True if its push notifications are used where the card offers them and `push.enabled` is
        /// set.
        push: bool => bool = true,
        /// Access of A2A clients, where a listener serves `a2a`.
        a2a: AgentA2aKeys,
        /// URLs over which its calls are spread, in place of the one on its card; at most 32. The
        /// card still names version and abilities.
        endpoints: Vec<Spanned<String>> = [],
        /// Circuit breaker of each endpoint.
        breaker: KeysOf<Breaker> => Breaker,
        /// Health checks of its endpoints. Without it only calls show their state.
        health: KeysOf<Health> => Option<Health>,
        /// Concurrent calls of its tools and requests of A2A clients; 0 is any number. More wait in
        /// the `queue`, or are refused with 503.
        max_calls: u64 => usize = 0 in 0..=1000000,
        /// Queue of the calls beyond `max_calls`.
        queue: KeysOf<Queue> => Queue,
        /// Calls of its tools and requests of A2A clients in a second; 0 is any number. More are
        /// refused with 503.
        rate: u64 => usize = 0 in 0..=1000000,
        /// Use of its tools with tasks, for clients that support tasks: `optional` (if the client
        /// requests a task, or the work takes long), `required` or `never`. A skill may differ.
        task: TaskMode => TaskMode = optional,
    }
}

section! {
    /// Access of A2A clients to an agent.
    keys AgentA2aKeys("A2a") {
        /// True if clients of another A2A version than the agent's are served: their messages and
        /// the agent's are translated. Otherwise they are refused.
        translate: bool => bool = true,
        /// Host (`name` or `name:port`) at which clients reach this agent over gRPC; no other agent has
        /// it. Clients of A2A 0.3 need it where they see several agents, as their messages name none.
        host: HostText => Option<String> [example "weather.agents.example.com"],
    }
}

/// One A2A agent behind the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Its name: a lower-case letter or digit, then up to 31 lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// The location of its card.
    pub card: CardSource,
    /// The keys that must have signed its card; `None`: no signature is needed.
    pub signature: Option<CardSignature>,
    /// Headers for every request to this agent.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Other credentials for every request to this agent.
    pub auth: AgentAuth,
    /// Headers of a client's request that are forwarded to this agent. Default: none.
    pub forward_headers: Vec<HeaderName>,
    /// Trust in this agent, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// The unit that becomes a tool.
    pub tools: ToolGranularity,
    /// The tool's name with [`ToolGranularity::Agent`]; `None`: made from the agent's name.
    pub tool_name: Option<String>,
    /// Replaces the description in the card.
    pub description: Option<String>,
    /// Overrides for skills, by their id in the card.
    pub skills: BTreeMap<String, SkillOverride>,
    /// The A2A version to speak. Default: the one that the card names.
    pub protocol: Protocol,
    /// The binding to call it by. Default: by the order of the card.
    pub binding: AgentBinding,
    /// Media types to ask for. `None`: those of the card.
    pub output_modes: Option<Vec<String>>,
    /// URIs of A2A extensions to activate.
    pub extensions: Vec<String>,
    /// Hosts (`name` or `name:port`) besides the card's own that get this agent's credentials. Default: none.
    pub allow_hosts: Vec<String>,
    /// The proxy of connections to this agent. Default: that of all connections.
    pub proxy: ProxyChoice,
    /// Timeouts of this agent.
    pub timeouts: AgentTimeouts,
    /// True if the streaming method is used where the card offers it. Default: true.
    pub streaming: bool,
    /// True if its push notifications are used where the card offers them and the gateway asks for
    /// any. Default: true.
    pub push: bool,
    /// True if A2A clients of another version than the agent's are served. Default: true.
    pub translate: bool,
    /// Host at which A2A clients reach it over gRPC. Default: that of the gateway.
    pub a2a_host: Option<String>,
    /// URLs at which it is called in place of the URL on its card. Empty: that one. Default: none.
    pub endpoints: Vec<String>,
    /// Circuit breaker of each endpoint.
    pub breaker: Breaker,
    /// Health checks of its endpoints. Default: none.
    pub health: Option<Health>,
    /// Concurrent calls of it; 0: any number. Default: 0.
    pub max_calls: usize,
    /// Queue of the calls beyond that.
    pub queue: Queue,
    /// Calls of it in a second; 0: any number. Default: 0.
    pub rate: usize,
    /// Use of its tools with tasks; a skill may differ (see [`Agent::task_of`]).
    pub task: TaskMode,
    /// The manifest that it came from, if any.
    pub manifest: Option<Manifest>,
    /// The source that named it; `None`: the configuration has it.
    pub source: Option<AgentSource>,
    /// Overrides for single methods. Default: none.
    pub methods: PerMethod<MethodSettings>,
}

impl Agent {
    /// Returns an agent with every default and a card at a URL.
    pub fn new(name: impl Into<String>, card_url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            card: CardSource::Url(card_url.into()),
            signature: None,
            headers: Vec::new(),
            auth: AgentAuth::default(),
            forward_headers: Vec::new(),
            tls: AgentTls::default(),
            tools: ToolGranularity::default(),
            tool_name: None,
            description: None,
            skills: BTreeMap::new(),
            protocol: Protocol::default(),
            binding: AgentBinding::default(),
            output_modes: None,
            extensions: Vec::new(),
            allow_hosts: Vec::new(),
            timeouts: AgentTimeouts::default(),
            streaming: true,
            methods: PerMethod::default(),
            push: true,
            translate: true,
            a2a_host: None,
            endpoints: Vec::new(),
            breaker: Breaker::default(),
            proxy: ProxyChoice::default(),
            health: None,
            max_calls: 0,
            queue: Queue::default(),
            rate: 0,
            task: TaskMode::default(),
            manifest: None,
            source: None,
        }
    }

    /// Returns true if the task tool of this name accepts the agent and its tasks: its manifest
    /// decides for `subagent_start`, `subagent_send` and `subagent_cancel`.
    pub fn accepts_tool(&self, tool: &str) -> bool {
        let named = self.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref());
        named.is_none_or(|named| {
            !manifest::BRIDGED_TOOLS.contains(&tool) || named.iter().any(|name| name == tool)
        })
    }

    /// Returns the use of the tool of this skill with tasks.
    pub fn task_of(&self, skill: &str) -> TaskMode {
        self.skills.get(skill).and_then(|skill| skill.task).unwrap_or(self.task)
    }
}

/// Location of an agent's card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardSource {
    /// An `http` or `https` URL.
    Url(String),
    /// A file.
    File(PathBuf),
}

impl CardSource {
    /// Returns the URL or the path for operators. The query of a URL is left out, and its user:
    /// they may be secrets.
    pub(crate) fn without_secrets(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Url(url) => {
                let url = url.split(['?', '#']).next().unwrap_or_default();
                match url.split_once("://") {
                    Some((scheme, rest)) => {
                        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                        let host = authority.rsplit('@').next().unwrap_or_default();
                        format!("{scheme}://{host}{path}")
                    }
                    None => url.to_owned(),
                }
            }
        }
    }
}

section! {
    /// Trust in an agent, and the gateway's certificate for it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AgentTls {
        /// The only roots to trust. Without it: the system's.
        ca: Option<Pem> as CertificatePem [example "/etc/gateway/internal-ca.pem"],
        /// The gateway's client certificate, followed by those that lead to its root.
        certificate: Option<Pem> as CertificatePem [example "/etc/gateway/client.crt"],
        /// The private key of `certificate`.
        key: Option<Pem> as KeyPem [example "/etc/gateway/client.key"],
        /// The name that the agent's certificate must have, and that is sent as SNI. Without it:
        /// the host of the URL.
        server_name: Option<String> as CertificateHost [example "weather.internal"],
    }
    check check_agent_tls
}

fn check_agent_tls(tls: AgentTls, keys: KeysOf<AgentTls>, context: &mut ResolveContext<'_>) -> AgentTls {
    match (keys.certificate.place(), keys.key.place()) {
        (Some(_), None) => {
            context.problem(&keys.section.child("key"), "is missing (the certificate needs its key)");
        }
        (None, Some(_)) => {
            let place = keys.section.child("certificate");
            context.problem(&place, "is missing (the key needs its certificate)");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let place = keys.certificate.place().unwrap_or(&keys.section);
    let (certificate, key) = pem::pair(tls.certificate, tls.key, place, context).unzip();
    AgentTls { certificate, key, ..tls }
}

checked_text!(CertificateHost as "text", |name: &str| {
    match rustls::pki_types::ServerName::try_from(name) {
        Ok(_) => Ok(()),
        Err(_) => Err("is not a name that a certificate can have"),
    }
});

section! {
    /// Overrides for one skill.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SkillOverride {
        /// The whole name of its tool, without the agent's before it: letters, digits, `-` and `_`,
        /// at most 64. Without it: `{agent}_{skill}`.
        tool_name: Option<String> as ToolName
            [example get_forecast schema { "pattern": "^[A-Za-z0-9_-]{1,64}$" }],
        /// Replaces the description on the card.
        description: Option<String> [example "The forecast for a city."],
        /// The JSON Schema (2020-12) of its tool's arguments, which are sent to the agent as data:
        /// an object with `type: object`, or the path of a JSON file. Remote references are
        /// refused.
        input_schema: Option<Value> as InputSchema [example "forecast.schema.json"],
        /// True if no tool is made of it, and no client finds it on the card or in the manifest.
        hidden: bool = false,
        /// Use of its tool with tasks: `optional`, `required` or `never`. Without it: as the
        /// agent's `task`.
        task: Option<TaskMode> [example never],
    }
}

/// Unit that becomes a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolGranularity {
    /// Each skill on the card.
    #[default]
    Skill,
    /// The agent as a whole.
    Agent,
}

choice! {
    /// Unit that becomes a tool.
    ToolGranularity as "Tools" { "per_skill" => Self::Skill, "per_agent" => Self::Agent, }
}

/// Use of a tool with tasks, for a client that supports tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskMode {
    /// If the client wants one, or the work takes long.
    #[default]
    Optional,
    /// Always.
    Required,
    /// Never.
    Never,
}

choice! {
    /// Use of a tool with tasks.
    TaskMode as "TaskUse" {
        "optional" => Self::Optional,
        "required" => Self::Required,
        "never" => Self::Never,
    }
}

/// The A2A version of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The one that its card names.
    #[default]
    Auto,
    /// A2A 0.1.
    V0_1,
    /// A2A 0.3 (and 0.2).
    V0_3,
    /// A2A 1.0.
    V1,
}

choice! {
    /// The A2A version of an agent.
    Protocol as "Protocol" {
        "auto" => Self::Auto,
        "0.1" => Self::V0_1,
        "0.3" => Self::V0_3,
        "1.0" => Self::V1,
    }
}

/// An ARDF manifest (`subagent@v0.1`) as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its file.
    pub path: PathBuf,
    /// The `id` that it gives its agent.
    pub id: String,
    /// The `name` that it gives its agent, for people.
    pub name: String,
    /// The names in `mcpBridge.tools`; `None`: it has no such list, and the agent has every tool.
    pub tools: Option<Vec<String>>,
    /// True if the gateway's client certificate for the agent is that of the manifest.
    pub has_certificate: bool,
    /// Its text as written: references are not resolved, so it holds no secret.
    pub text: String,
}

/// The keys by which cards are signed.
#[derive(Debug, Clone, PartialEq)]
pub struct CardSignature {
    /// Public keys; each has an id and can be used.
    pub keys: JwkSet,
    /// The file that they come from.
    pub file: PathBuf,
    /// True if a card without a valid signature is rejected. Default: true.
    pub required: bool,
}

impl CardSignature {
    /// Reads the keys from the file again. Blocks.
    ///
    /// # Errors
    ///
    /// The defect of the file, with its name.
    pub fn read_again(&self) -> Result<JwkSet, String> {
        card_keys(&self.file)
    }
}

section! {
    /// Signature that a card must have.
    keys CardSignatureKeys("CardSignature") {
        /// Path of a JWKS file with the public keys that sign cards, each with its `kid`: EC
        /// (P-256, P-384), OKP (Ed25519) or RSA. The file is read again when it changes.
        keys: String => Option<String>
            [required "write the path of a JWKS file with the public keys that sign the card" example "agents.jwks"],
        /// True if a card without a valid signature is refused; otherwise it is used, and the
        /// operator is told.
        required: bool => bool = true,
    }
}

impl CardSignatureKeys {
    pub(super) fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<CardSignature> {
        let path = self.keys(context)?;
        let file = context.path(&path);
        let required = self.required(context);
        match card_keys(&file) {
            Ok(keys) => Some(CardSignature { keys, file, required }),
            Err(problem) => context.report_conflict(self.keys.place()?, problem),
        }
    }
}

impl AgentKeys {
    pub(super) fn resolve(
        mut self,
        name: String,
        defaults: Option<&mut AgentDefaultSource>,
        context: &mut ResolveContext<'_>,
    ) -> Option<Agent> {
        let described = match std::mem::take(&mut self.manifest).take() {
            // Without its manifest the agent cannot be checked any further.
            Some((place, file)) => Some(manifest::load(context.path(&file), &place, context)?),
            None => None,
        };
        self.with(name, described, defaults, context)
    }

    /// Returns the agent, with the values of its manifest, and else the defaults of all agents, for
    /// keys that are absent.
    pub(super) fn with(
        mut self,
        name: String,
        described: Option<ManifestAgent>,
        defaults: Option<&mut AgentDefaultSource>,
        context: &mut ResolveContext<'_>,
    ) -> Option<Agent> {
        if let Some(defaults) = defaults {
            defaults.complete(&mut self, &name, described.as_ref());
        }
        let before = context.problem_count();
        let (card, section) = (std::mem::take(&mut self.card), self.section.clone());
        let agent = self.settings(name, described, context);
        context.name_agent(before, &agent.name);
        let is_described = agent.manifest.is_some();
        if is_described && card.place().is_none() {
            return Some(agent);
        }
        let hint = "write the URL of the agent's card";
        let (place, written) = context.required(card, &section, "card", hint)?;
        match self::card(&written, context) {
            Ok(card) => Some(Agent { card, ..agent }),
            Err(problem) => context.report_conflict(&place, problem),
        }
    }

    /// Returns the settings of the agent; its card is that of its manifest.
    pub(super) fn settings(
        mut self,
        name: String,
        described: Option<ManifestAgent>,
        context: &mut ResolveContext<'_>,
    ) -> Agent {
        let balance = LoadBalancing::read(&mut self, context);
        let tools = self.tools(context);
        if let Some(place) = self.tool_name.place().filter(|_| tools == ToolGranularity::Skill) {
            let problem = "is only for `tools: per_agent` (write it below skills.ID for a skill's tool)";
            context.problem(place, problem);
        }
        let headers = headers(std::mem::take(&mut self.headers), context);
        let forwarded = forwarded_headers(std::mem::take(&mut self.forward_headers), &headers, context);
        let tls = self.tls(context);
        let has_identity =
            tls.certificate.is_some() || described.as_ref().is_some_and(ManifestAgent::has_identity);
        let auth = std::mem::take(&mut self.auth).open();
        let signature = std::mem::take(&mut self.signature).open();
        let streaming = match described.as_ref().and_then(|described| described.streaming) {
            Some(described) if self.streaming.place().is_none() => described,
            _ => self.streaming(context),
        };
        let binding = match described.as_ref().and_then(|described| described.binding) {
            Some(described) if self.binding.place().is_none() => described,
            _ => self.binding(context),
        };
        let mut a2a = std::mem::take(&mut self.a2a).open();
        let mut agent = Agent {
            signature: signature.and_then(|signature| signature.resolve(context)),
            auth: auth.map(|auth| auth.resolve(&headers, has_identity, context)).unwrap_or_default(),
            forward_headers: forwarded,
            headers,
            tls,
            tools,
            tool_name: self.tool_name(context),
            description: self.description(context),
            skills: self.skills(context),
            protocol: self.protocol(context),
            binding,
            output_modes: self.output_modes(context),
            extensions: self.extensions(context),
            allow_hosts: self.allow_hosts(context),
            proxy: self.proxy(context),
            timeouts: self.timeouts(context),
            streaming,
            push: self.push(context),
            translate: a2a.as_mut().is_none_or(|a2a| a2a.translate(context)),
            a2a_host: a2a.as_mut().and_then(|a2a| a2a.host(context)),
            rate: self.rate(context),
            task: self.task(context),
            ..Agent::new(name, "")
        };
        if let Some(described) = described {
            agent.card = described.card.clone();
            described.complete(&mut agent);
        }
        balance.complete(&mut agent, context);
        agent
    }
}

/// Returns the defect of an agent's name, if any.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    let head = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit());
    let rest = |each: u8| each.is_ascii_lowercase() || each.is_ascii_digit() || matches!(each, b'-' | b'_');
    (!head || name.len() > MAX_NAME_BYTES || !name.bytes().all(rest)).then_some(
        "is not a name for an agent (a lower-case letter or digit, then up to 31 lower-case letters, digits, - and _)",
    )
}

checked_text!(ToolName as "text", |name: &str| {
    // The form that every MCP client accepts.
    let fits = |each: u8| each.is_ascii_alphanumeric() || matches!(each, b'-' | b'_');
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err("is not a name for a tool (1 to 64 letters, digits, - and _)")
});

checked_text!(HostText as "host", check_host);

/// Reads the location of a card: a URL, or a file that contains JSON.
pub(super) fn card(written: &str, context: &ResolveContext<'_>) -> Result<CardSource, String> {
    if written.contains("://") || written.contains("${") {
        return web_url(written).map(|_| CardSource::Url(written.to_owned()));
    }
    let path = context.path(written);
    let hint = "(for a URL write https:// before it)";
    let text = context.file(&path, MAX_CARD_BYTES).map_err(|problem| format!("{problem} {hint}"))?;
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(card) if card.is_object() => Ok(CardSource::File(path)),
        Ok(_) => Err(format!("{} holds no agent card (a JSON object)", path.display())),
        Err(error) => Err(format!("{} is not JSON: {error}", path.display())),
    }
}

checked_text!(MediaType as "media type", check_media_type);
checked_text!(ExtensionUri as "URI", check_extension);

fn check_media_type(text: &str) -> Result<(), String> {
    let parts = text.split_once('/').filter(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    match parts {
        Some(_) if text.bytes().all(|each| each.is_ascii_graphic() || each == b' ') => Ok(()),
        _ => Err("is not a media type (write type/subtype, such as text/plain)".to_owned()),
    }
}

fn check_extension(text: &str) -> Result<(), String> {
    // They travel in a header, separated by commas.
    let plain = text.bytes().all(|each| each.is_ascii_graphic() && each != b',');
    if plain && text.contains(':') { Ok(()) } else { Err("is not the URI of an extension".to_owned()) }
}

/// A JSON Schema, or the path of its file.
#[derive(Clone)]
pub(super) struct InputSchema(Value);

impl<'de> Deserialize<'de> for InputSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `${file:PATH}` stays: it names the file of the schema.
        deserializer.deserialize_newtype_struct(TEMPLATE, TemplateVisitor(PhantomData)).map(Self)
    }
}

impl JsonSchema for InputSchema {
    fn schema_name() -> Cow<'static, str> {
        "InputSchema".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A JSON Schema that says `type: object`, or the path of a JSON file that holds one.",
            "anyOf": [
                { "type": "string" },
                { "type": "object", "properties": { "type": { "const": "object" } }, "required": ["type"] },
            ],
        })
    }
}

impl KeyForm for InputSchema {
    fn describe() -> String {
        "JSON Schema, or its path".to_owned()
    }
}

impl Form<Value> for InputSchema {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Value> {
        let schema = match self.0 {
            Value::String(written) => {
                let reference = written.strip_prefix("${file:").and_then(|rest| rest.strip_suffix('}'));
                let path = match reference {
                    Some(path) => path.to_owned(),
                    None => Template::new(written).expand(context, place)?.expose().to_owned(),
                };
                match schema_file(&path, context) {
                    Ok(schema) => schema,
                    Err(problem) => return context.report_conflict(place, problem),
                }
            }
            inline => inline,
        };
        match check_schema(&schema) {
            Ok(()) => Some(schema),
            Err(problem) => context.report_conflict(place, problem),
        }
    }
}

fn schema_file(written: &str, context: &ResolveContext<'_>) -> Result<Value, String> {
    let path = context.path(written);
    let text = context.file(&path, MAX_SCHEMA_BYTES)?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))
}

/// Checks that this is a schema for arguments: an object, with references and patterns that cost
/// the gateway little.
fn check_schema(schema: &Value) -> Result<(), String> {
    let object =
        schema.as_object().ok_or("is not a JSON Schema (write an object that says `type: object`)")?;
    if object.get("type").and_then(Value::as_str) != Some("object") {
        return Err("a tool's arguments are an object (write `type: object` in the schema)".to_owned());
    }
    // This engine runs in linear time; the default one can be made to run without an end.
    let patterns = jsonschema::PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
    match jsonschema::options().with_pattern_options(patterns).build(schema) {
        Ok(_) => Ok(()),
        Err(error) => {
            let inside = error.instance_path().to_string();
            let inside = if inside.is_empty() { String::new() } else { format!(" at {inside}") };
            Err(format!("is not a valid JSON Schema{inside}: {error}"))
        }
    }
}

/// Returns the headers that can be sent; problems of the others are reported.
pub(super) fn headers(
    written: Spanned<BTreeMap<String, Spanned<Template>>>,
    context: &mut ResolveContext<'_>,
) -> Vec<(HeaderName, ReloadableSecret)> {
    let mut headers = Vec::new();
    for (name, value) in written.value().unwrap_or_default() {
        add_header(&name, value, &mut headers, context);
    }
    headers
}

/// Adds a header to the others, or reports its defect.
pub(super) fn add_header(
    written_name: &str,
    value: Spanned<Template>,
    headers: &mut Vec<(HeaderName, ReloadableSecret)>,
    context: &mut ResolveContext<'_>,
) {
    let Some(place) = value.place().cloned() else { return };
    let name = HeaderName::from_bytes(written_name.as_bytes());
    match &name {
        Err(_) => context.problem(&place, "is not the name of a header"),
        Ok(name) if is_reserved(name) => {
            context.problem(&place, "is a header that the gateway writes itself (remove it)");
        }
        Ok(name) if headers.iter().any(|(other, _)| other == name) => {
            context.problem(&place, "is there twice (upper and lower case are the same)");
        }
        Ok(_) => {}
    }
    let Some((place, value)) = value.resolve::<ReloadableSecret>(context) else { return };
    if HeaderValue::from_str(value.expose()).is_err() {
        context.problem(&place, "has a character that no header may have");
    } else if let Ok(name) = name {
        headers.push((name, value));
    }
}

/// Returns the headers that may be forwarded; problems of the others are reported.
fn forwarded_headers(
    written: Spanned<Vec<Spanned<String>>>,
    shown: &[(HeaderName, ReloadableSecret)],
    context: &mut ResolveContext<'_>,
) -> Vec<HeaderName> {
    let Some((place, names)) = written.take() else { return Vec::new() };
    if names.len() > MAX_FORWARDED_NAMES {
        context.problem(&place, format!("has more than {MAX_FORWARDED_NAMES} names"));
    }
    let mut forwarded: Vec<HeaderName> = Vec::new();
    for (place, name) in names.into_iter().filter_map(Spanned::take) {
        match name.parse::<HeaderName>() {
            Err(_) => context.problem(&place, "is not the name of a header"),
            Ok(name) => match forward_problem(&name, shown) {
                Some(problem) => context.problem(&place, problem),
                None if forwarded.contains(&name) => context.problem(&place, "is there twice"),
                None => forwarded.push(name),
            },
        }
    }
    forwarded
}

fn forward_problem(name: &HeaderName, shown: &[(HeaderName, ReloadableSecret)]) -> Option<&'static str> {
    let text = name.as_str();
    if text == "authorization" {
        return Some(
            "cannot be forwarded: a client's token is for the gateway alone, and MCP forbids passing it on (use auth.oauth2 with \
             grant: token_exchange)",
        );
    }
    if text.starts_with("proxy-") {
        return Some("cannot be forwarded: it is for the next hop alone");
    }
    if is_forbidden(name) {
        return Some("cannot be forwarded: the gateway writes the agent's request itself");
    }
    shown.iter().any(|(other, _)| other == name).then_some("is under headers too (remove one of them)")
}
