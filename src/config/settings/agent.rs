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
    /// Where its card is.
    pub card: CardSource,
    /// Whose signature its card must bear; `None`: nobody's.
    pub signature: Option<CardSignature>,
    /// Headers for every request to this agent.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Other credentials for every request to this agent.
    pub auth: AgentAuth,
    /// Headers of a client's request that go along to this agent. Default: none.
    pub forward_headers: Vec<HeaderName>,
    /// How the gateway trusts this agent, and what it shows it.
    pub tls: AgentTls,
    /// What becomes a tool.
    pub tools: ToolGranularity,
    /// The tool's name with [`ToolsPer::Agent`]; `None`: made from the agent's name.
    pub tool_name: Option<String>,
    /// Stands in for the description in the card.
    pub description: Option<String>,
    /// What is different for a skill, by its id in the card.
    pub skills: BTreeMap<String, SkillOverride>,
    /// The A2A version to speak. Default: what the card says.
    pub protocol: Protocol,
    /// Media types to ask for. `None`: what the card says.
    pub output_modes: Option<Vec<String>>,
    /// URIs of A2A extensions to activate.
    pub extensions: Vec<String>,
    /// Hosts (`name` or `name:port`) besides the card's own that get this agent's credentials. Default: none.
    pub allow_hosts: Vec<String>,
    /// How long the gateway waits for this agent.
    pub timeouts: AgentTimeouts,
    /// Whether to use the streaming method where the card offers it. Default: yes.
    pub streaming: bool,
    /// Whether its push notifications are used where the card offers them and the gateway asks for any. Default: yes.
    pub push: bool,
    /// Whether A2A clients of another version than the agent's are served. Default: yes.
    pub translate: bool,
    /// Where it is called in place of the URL on its card. Empty: there. Default: none.
    pub endpoints: Vec<String>,
    /// When an endpoint that fails is left alone.
    pub breaker: Breaker,
    /// How endpoints are asked whether they are there. Default: they are not.
    pub health: Option<Health>,
    /// Calls of it under way at once; 0: any number. Default: 0.
    pub max_calls: usize,
    /// Where more calls than that wait.
    pub queue: Queue,
    /// Calls of it in a second; 0: any number. Default: 0.
    pub rate: usize,
    /// How its tools go with tasks; a skill may differ (see [`Agent::task_of`]).
    pub task: TaskMode,
    /// The manifest that it came from, if it came from one.
    pub manifest: Option<Manifest>,
    /// What is different for single methods. Default: nothing.
    pub methods: PerMethod<MethodSettings>,
}

impl Agent {
    /// An agent with every default, whose card is at a URL.
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

    /// How the tool of this skill goes with tasks.
    pub fn task_of(&self, skill: &str) -> TaskMode {
        self.skills.get(skill).and_then(|skill| skill.task).unwrap_or(self.task)
    }
}

/// Where an agent's card is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardSource {
    /// An `http` or `https` URL.
    Url(String),
    /// A file.
    File(PathBuf),
}

/// How the gateway trusts an agent, and what it shows it.
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

/// What becomes a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolGranularity {
    /// Each skill on the card.
    #[default]
    Skill,
    /// The agent as a whole.
    Agent,
}

/// Whether a call of a tool becomes a task for a client that knows tasks.
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

/// The A2A version that an agent speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// What its card says.
    #[default]
    Auto,
    /// A2A 0.1.
    V0_1,
    /// A2A 0.3 (and 0.2).
    V0_3,
    /// A2A 1.0.
    V1,
}

/// What is different for one skill.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillOverride {
    /// The whole name of its tool: letters, digits, `-` and `_`, at most 64.
    pub tool_name: Option<String>,
    /// Stands in for the description in the card.
    pub description: Option<String>,
    /// The JSON Schema of its tool's arguments: an object that says `"type": "object"`, compiled once already.
    pub input_schema: Option<serde_json::Value>,
    /// Whether no tool is made of it, and A2A clients do not find it on the card.
    pub hidden: bool,
    /// How its tool goes with tasks; `None`: as the agent's others.
    pub task: Option<TaskMode>,
}

/// How long the gateway waits for an agent.
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
