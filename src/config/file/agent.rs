//! `agents.NAME` as written.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::balance::{self, BreakerFile, HealthFile, LoadBalancing, QueueFile};
use super::credentials::AgentAuthFile;
use super::forward;
use super::gateway::checked;
use super::headers;
use super::manifest::{self, ManifestAgent};
use super::signature::SignatureFile;
use super::skill::{SkillFile, TaskFile};
use super::url;
use crate::config::pem::{self, PemFile, PemKind};
use crate::config::reference::Template;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::units::HumanDuration;
use crate::config::{Agent, AgentTimeouts, AgentTls, CardSource, Protocol, TaskMode, ToolGranularity};

/// Largest file of a card, in bytes.
const CARD_FILE: usize = 1 << 20;

/// One A2A agent behind the gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Agent", extend("anyOf" = [{ "required": ["card"] }, { "required": ["manifest"] }]))]
pub(super) struct AgentFile {
    /// Where the agent's card is: a URL, for example `https://agent.example/.well-known/agent-card.json`, or the path
    /// of a file. With a `manifest` it may be left out.
    card: Spanned<String>,
    /// The path of an ARDF manifest (`subagent@v0.1`) that says where the card is, and more. The keys here win over it.
    manifest: Spanned<String>,
    /// Whose signature the card must bear. Without it: what `cards.signature` says.
    signature: Spanned<SignatureFile>,
    /// Headers for every request to this agent, for example `Authorization: Bearer ${env:AGENT_TOKEN}`. References are
    /// accepted in the values.
    headers: Spanned<BTreeMap<String, Spanned<Template>>>,
    /// Other credentials for this agent: API keys, HTTP Basic, a bearer token, OAuth 2.
    auth: Spanned<AgentAuthFile>,
    /// Names of headers that are copied from a client's request to those that it causes at this agent. Anything that frames the
    /// request, `Authorization` and `Mcp-*` cannot be named.
    #[schemars(extend("default" = []))]
    forward_headers: Spanned<Vec<Spanned<String>>>,
    /// How the gateway trusts this agent, and what it shows it.
    tls: Spanned<AgentTlsFile>,
    /// Unit that becomes a tool: each skill on the card (`per_skill`), or the agent as a whole (`per_agent`).
    #[schemars(extend("default" = "per_skill"))]
    tools: Spanned<ToolsFile>,
    /// The whole name of the tool with `tools: per_agent`: letters, digits, `-` and `_`, at most 64. Without it: made
    /// from the agent's name.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    tool_name: Spanned<String>,
    /// Stands in for the description in the card.
    description: Spanned<String>,
    /// Settings that differ for a skill, by its id in the card.
    skills: Spanned<BTreeMap<String, Spanned<SkillFile>>>,
    /// The A2A version to speak: `auto` (what the card says), `"0.1"`, `"0.3"` or `"1.0"`.
    #[schemars(extend("default" = "auto"))]
    protocol: Spanned<ProtocolFile>,
    /// Media types to ask for, for example `[text/plain, application/json]`. Without it: what the card says.
    output_modes: Spanned<Vec<Spanned<String>>>,
    /// URIs of A2A extensions to activate.
    #[schemars(extend("default" = []))]
    extensions: Spanned<Vec<Spanned<String>>>,
    /// Hosts (`name` or `name:port`) besides the card's own to which the card may send this agent's credentials.
    #[schemars(extend("default" = []))]
    allow_hosts: Spanned<Vec<Spanned<String>>>,
    /// How long the gateway waits for this agent.
    timeouts: Spanned<TimeoutsFile>,
    /// Whether to use the streaming method where the card offers it.
    #[schemars(extend("default" = true))]
    streaming: Spanned<bool>,
    /// Whether its push notifications are used where the card offers them and `push.enabled` is set.
    #[schemars(extend("default" = true))]
    push: Spanned<bool>,
    /// How it is served to A2A clients, where a listener serves `a2a`.
    a2a: Spanned<A2aFile>,
    /// URLs at which the agent is called in place of the one on its card, at most 32; calls are spread over them. The card still
    /// says which version and what it can do.
    #[schemars(extend("default" = []))]
    endpoints: Spanned<Vec<Spanned<String>>>,
    /// When an endpoint that fails is left alone.
    breaker: Spanned<BreakerFile>,
    /// How endpoints are asked whether they are there. Without it only calls show that.
    health: Spanned<HealthFile>,
    /// Calls of its tools under way at once; 0 is any number. More wait in the `queue`, or are refused with 503.
    #[schemars(range(max = 1_000_000), extend("default" = 0))]
    max_calls: Spanned<u64>,
    /// Where calls wait that are more than `max_calls`.
    queue: Spanned<QueueFile>,
    /// Calls of its tools in a second; 0 is any number. More are refused with 503.
    #[schemars(range(max = 1_000_000), extend("default" = 0))]
    rate: Spanned<u64>,
    /// Whether calls of its tools become tasks for a client that knows tasks: `optional`, `required` or `never`. A skill may
    /// say otherwise.
    #[schemars(extend("default" = "optional"))]
    task: Spanned<TaskFile>,
}

/// How an agent is served to A2A clients.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "A2a")]
struct A2aFile {
    /// Whether clients of another A2A version than the agent's are served: what they and the agent say is translated. Without it
    /// they are refused.
    #[schemars(extend("default" = true))]
    translate: Spanned<bool>,
}

/// How the gateway trusts an agent, and what it shows it.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentTls")]
struct AgentTlsFile {
    /// The only roots to trust. Without it: the system's.
    ca: Spanned<PemFile>,
    /// The gateway's client certificate, followed by those that lead to its root.
    certificate: Spanned<PemFile>,
    /// The private key of `certificate`.
    key: Spanned<PemFile>,
    /// The name that the agent's certificate must have, and that is sent as SNI. Without it: the host of the URL.
    server_name: Spanned<String>,
}

/// Unit that becomes a tool.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Tools")]
enum ToolsFile {
    PerSkill,
    PerAgent,
}

/// The A2A version that an agent speaks.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[schemars(rename = "Protocol")]
enum ProtocolFile {
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "0.1")]
    V0_1,
    #[serde(rename = "0.3")]
    V0_3,
    #[serde(rename = "1.0")]
    V1,
}

/// How long the gateway waits for an agent.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentTimeouts")]
struct TimeoutsFile {
    /// For a connection, TLS included.
    #[schemars(extend("default" = "5s"))]
    connect: Spanned<HumanDuration>,
    /// For the first byte of a response.
    #[schemars(extend("default" = "120s"))]
    first_byte: Spanned<HumanDuration>,
    /// For the next byte of a response.
    #[schemars(extend("default" = "120s"))]
    idle: Spanned<HumanDuration>,
    /// For one exchange as a whole.
    #[schemars(extend("default" = "1h"))]
    total: Spanned<HumanDuration>,
}

impl AgentFile {
    pub(super) fn resolve(
        mut self,
        name: String,
        section: &Location,
        reading: &mut ResolveContext<'_>,
    ) -> Option<Agent> {
        let described = match std::mem::take(&mut self.manifest).take() {
            // Without its manifest the agent cannot be checked any further.
            Some((place, file)) => Some(manifest::load(reading.path(&file), &place, reading)?),
            None => None,
        };
        self.with(name, described, section, reading)
    }

    /// Returns the agent, with the values of its manifest where this file has none.
    pub(super) fn with(
        mut self,
        name: String,
        described: Option<ManifestAgent>,
        section: &Location,
        reading: &mut ResolveContext<'_>,
    ) -> Option<Agent> {
        let balance = self.balance(reading);
        let tools = match self.tools.value() {
            Some(ToolsFile::PerAgent) => ToolGranularity::Agent,
            Some(ToolsFile::PerSkill) | None => ToolGranularity::Skill,
        };
        if let Some(place) = self.tool_name.place().filter(|_| tools == ToolGranularity::Skill) {
            reading.problem(
                place,
                "is only for `tools: per_agent` (write it below skills.ID for a skill's tool)",
            );
        }
        let streams = described.as_ref().and_then(|described| described.streaming);
        let headers = headers::resolve(self.headers, reading);
        let tls = self.tls.take().map(|(place, tls)| tls.resolve(&place, reading)).unwrap_or_default();
        let has_identity =
            tls.certificate.is_some() || described.as_ref().is_some_and(ManifestAgent::has_identity);
        let auth = self.auth.take();
        let auth = auth.map(|(place, auth)| auth.resolve(&place, (&headers, has_identity), reading));
        let mut agent = Agent {
            signature: self.signature.take().and_then(|(place, file)| file.resolve(&place, reading)),
            auth: auth.unwrap_or_default(),
            forward_headers: forward::resolve(self.forward_headers, &headers, reading),
            headers,
            tls,
            tools,
            tool_name: tool_name(self.tool_name, reading),
            description: self.description.value(),
            skills: skills(self.skills, reading),
            protocol: match self.protocol.value() {
                Some(ProtocolFile::Auto) | None => Protocol::Auto,
                Some(ProtocolFile::V0_1) => Protocol::V0_1,
                Some(ProtocolFile::V0_3) => Protocol::V0_3,
                Some(ProtocolFile::V1) => Protocol::V1,
            },
            output_modes: checked(self.output_modes, media_type, reading),
            extensions: checked(self.extensions, extension, reading).unwrap_or_default(),
            allow_hosts: checked(self.allow_hosts, url::host, reading).unwrap_or_default(),
            timeouts: self.timeouts.value().unwrap_or_default().resolve(reading),
            streaming: self.streaming.value().or(streams).unwrap_or(true),
            push: self.push.value().unwrap_or(true),
            translate: self.a2a.value().and_then(|a2a| a2a.translate.value()).unwrap_or(true),
            rate: reading.count(self.rate, 0..=1_000_000, 0),
            task: self.task.value().map(TaskMode::from).unwrap_or_default(),
            ..Agent::new(name, "")
        };
        let only_described = described.is_some() && self.card.place().is_none();
        if let Some(described) = described {
            agent.card = described.card.clone();
            described.complete(&mut agent);
        }
        balance.complete(&mut agent, reading);
        if only_described {
            return Some(agent);
        }
        let hint = "write the URL of the agent's card";
        let (place, written) = reading.required(self.card, section, "card", hint)?;
        match card(&written, reading) {
            Ok(card) => Some(Agent { card, ..agent }),
            Err(problem) => reading.report_conflict(&place, problem),
        }
    }
}

impl AgentFile {
    /// Takes out the settings of load balancing and of the queue.
    fn balance(&mut self, reading: &mut ResolveContext<'_>) -> LoadBalancing {
        let max_calls = reading.count(std::mem::take(&mut self.max_calls), 0..=1_000_000, 0);
        let queue = std::mem::take(&mut self.queue).take();
        LoadBalancing {
            at: self.endpoints.place().cloned(),
            endpoints: balance::endpoints(std::mem::take(&mut self.endpoints), reading),
            breaker: std::mem::take(&mut self.breaker).value().unwrap_or_default().resolve(reading),
            health: std::mem::take(&mut self.health).value().map(|health| health.resolve(reading)),
            max_calls,
            queue: queue.map(|(place, queue)| queue.resolve(&place, max_calls, reading)).unwrap_or_default(),
        }
    }
}

/// Returns the defect of an agent's name, if any.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    let head = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit());
    let rest = |each: u8| each.is_ascii_lowercase() || each.is_ascii_digit() || matches!(each, b'-' | b'_');
    (!head || name.len() > 32 || !name.bytes().all(rest)).then_some(
        "is not a name for an agent (a lower-case letter or digit, then up to 31 lower-case letters, digits, - and _)",
    )
}

/// Reads the name of a tool: the form that every MCP client accepts.
pub(super) fn tool_name(written: Spanned<String>, reading: &mut ResolveContext<'_>) -> Option<String> {
    let (place, name) = written.take()?;
    let fits = |each: u8| each.is_ascii_alphanumeric() || matches!(each, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
        return reading
            .report_conflict(&place, "is not a name for a tool (1 to 64 letters, digits, - and _)");
    }
    Some(name)
}

/// Reads the location of a card: a URL, or a file that contains JSON.
pub(super) fn card(written: &str, reading: &ResolveContext<'_>) -> Result<CardSource, String> {
    if written.contains("://") || written.contains("${") {
        return url::web(written).map(|_| CardSource::Url(written.to_owned()));
    }
    let path = reading.path(written);
    let hint = "(for a URL write https:// before it)";
    let text = reading.file(&path, CARD_FILE).map_err(|problem| format!("{problem} {hint}"))?;
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(card) if card.is_object() => Ok(CardSource::File(path)),
        Ok(_) => Err(format!("{} holds no agent card (a JSON object)", path.display())),
        Err(error) => Err(format!("{} is not JSON: {error}", path.display())),
    }
}

fn skills(
    written: Spanned<BTreeMap<String, Spanned<SkillFile>>>,
    reading: &mut ResolveContext<'_>,
) -> BTreeMap<String, crate::config::SkillOverride> {
    let written = written.value().unwrap_or_default();
    written.into_iter().filter_map(|(id, skill)| Some((id, skill.value()?.resolve(reading)))).collect()
}

fn media_type(text: &str) -> Result<(), String> {
    let parts = text.split_once('/').filter(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    match parts {
        Some(_) if text.bytes().all(|each| each.is_ascii_graphic() || each == b' ') => Ok(()),
        _ => Err("is not a media type (write type/subtype, such as text/plain)".to_owned()),
    }
}

fn extension(text: &str) -> Result<(), String> {
    // They travel in a header, separated by commas.
    let plain = text.bytes().all(|each| each.is_ascii_graphic() && each != b',');
    if plain && text.contains(':') { Ok(()) } else { Err("is not the URI of an extension".to_owned()) }
}

impl AgentTlsFile {
    fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> AgentTls {
        match (self.certificate.place(), self.key.place()) {
            (Some(_), None) => {
                reading.problem(&section.child("key"), "is missing (the certificate needs its key)")
            }
            (None, Some(_)) => {
                reading.problem(&section.child("certificate"), "is missing (the key needs its certificate)");
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        let ca = pem::resolve(self.ca, PemKind::Certificates, reading).map(|(_, ca)| ca);
        let certificate = pem::resolve(self.certificate, PemKind::Certificates, reading);
        let key = pem::resolve(self.key, PemKind::Key, reading);
        let (certificate, key) = pem::pair(certificate, key, reading).unzip();
        let server_name = self.server_name.take().and_then(|(place, name)| {
            match rustls::pki_types::ServerName::try_from(name.as_str()) {
                Ok(_) => Some(name),
                Err(_) => reading.report_conflict(&place, "is not a name that a certificate can have"),
            }
        });
        AgentTls { ca, certificate, key, server_name }
    }
}

impl TimeoutsFile {
    fn resolve(self, reading: &mut ResolveContext<'_>) -> AgentTimeouts {
        const MIN_TIMEOUT: Duration = Duration::from_millis(10);
        const DAY: Duration = Duration::from_secs(86_400);
        let default = AgentTimeouts::default();
        let whole = self.total.place().or(self.first_byte.place()).cloned();
        let timeouts = AgentTimeouts {
            connect: reading.wait(self.connect, MIN_TIMEOUT..=DAY, default.connect),
            first_byte: reading.wait(self.first_byte, MIN_TIMEOUT..=DAY, default.first_byte),
            idle: reading.wait(self.idle, MIN_TIMEOUT..=DAY, default.idle),
            total: reading.wait(self.total, MIN_TIMEOUT..=7 * DAY, default.total),
        };
        let (first, total) = (HumanDuration(timeouts.first_byte), HumanDuration(timeouts.total));
        if let Some(place) = whole.filter(|_| timeouts.first_byte > timeouts.total) {
            reading.problem(&place, format!("total ({total}) is shorter than first_byte ({first})"));
        }
        timeouts
    }
}
