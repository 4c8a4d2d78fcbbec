//! The settings of one agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::{AgentAuth, Breaker, CardSignature, Health, Manifest, MethodSettings, Pem, PerMethod, Queue};
use crate::config::ReloadableSecret;

/// One A2A agent behind the gateway.
#[derive(Debug, Clone)]
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
    /// Media types to ask for. `None`: those of the card.
    pub output_modes: Option<Vec<String>>,
    /// URIs of A2A extensions to activate.
    pub extensions: Vec<String>,
    /// Hosts (`name` or `name:port`) besides the card's own that get this agent's credentials. Default: none.
    pub allow_hosts: Vec<String>,
    /// Timeouts of this agent.
    pub timeouts: AgentTimeouts,
    /// True if the streaming method is used where the card offers it. Default: true.
    pub streaming: bool,
    /// True if its push notifications are used where the card offers them and the gateway asks for
    /// any. Default: true.
    pub push: bool,
    /// True if A2A clients of another version than the agent's are served. Default: true.
    pub translate: bool,
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
            output_modes: None,
            extensions: Vec::new(),
            allow_hosts: Vec::new(),
            timeouts: AgentTimeouts::default(),
            streaming: true,
            methods: PerMethod::default(),
            push: true,
            translate: true,
            endpoints: Vec::new(),
            breaker: Breaker::default(),
            health: None,
            max_calls: 0,
            queue: Queue::default(),
            rate: 0,
            task: TaskMode::default(),
            manifest: None,
        }
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

/// Trust in an agent, and the gateway's certificate for it.
#[derive(Debug, Clone, Default)]
pub struct AgentTls {
    /// The only roots to trust; `None`: the system's.
    pub ca: Option<Pem>,
    /// The gateway's client certificate, followed by those that lead to its root. Set together with `key`.
    pub certificate: Option<Pem>,
    /// The private key of `certificate`.
    pub key: Option<Pem>,
    /// The name that the agent's certificate must have, and that is sent as SNI; `None`: the host of the URL.
    pub server_name: Option<String>,
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

/// Overrides for one skill.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillOverride {
    /// The whole name of its tool: letters, digits, `-` and `_`, at most 64.
    pub tool_name: Option<String>,
    /// Replaces the description in the card.
    pub description: Option<String>,
    /// The JSON Schema of its tool's arguments: an object with `"type": "object"`, compiled once
    /// already.
    pub input_schema: Option<serde_json::Value>,
    /// True if no tool is made of it, and A2A clients do not find it on the card.
    pub hidden: bool,
    /// Use of its tool with tasks; `None`: as the agent's others.
    pub task: Option<TaskMode>,
}

/// Timeouts of requests to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentTimeouts {
    /// For a connection, TLS included. Default: 5 s.
    pub connect: Duration,
    /// For the first byte of a response. Default: 120 s.
    pub first_byte: Duration,
    /// For the next byte of a response. Default: 120 s.
    pub idle: Duration,
    /// For one exchange as a whole. Default: 1 h.
    pub total: Duration,
}

impl Default for AgentTimeouts {
    fn default() -> Self {
        let [connect, first_byte, idle, total] = [5, 120, 120, 3600].map(Duration::from_secs);
        Self { connect, first_byte, idle, total }
    }
}
