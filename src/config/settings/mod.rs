//! The validated settings: plain values with their defaults.
//!
//! Made by [`load`](super::load), or in code by a program that embeds the gateway.
//!
//! Out of scope: the syntax of the file (`config/file`), and validation: settings from `load` are
//! valid.

mod agent;
mod auth;
mod balance;
mod calls;
mod credentials;
mod listener;
mod manifest;
mod outbound;
mod pem;
mod signature;
mod tasks;

use std::path::PathBuf;
use std::time::Duration;

pub use agent::{
    Agent, AgentTimeouts, AgentTls, CardSource, Protocol, SkillOverride, TaskMode, ToolGranularity,
};
pub use auth::{
    ApiKeyOwner, ApiKeys, Auth, CertificateName, KeySource, Mechanism, Require, RequireRule, Rule,
    TokenIssuer, TokenVerification,
};
pub use balance::{Breaker, Health, Queue};
pub use calls::{Calls, KnownClient, OnDecline, StreamTimeout};
pub use credentials::{
    AgentAuth, AgentMethod, ApiKey, ApiKeyPlace, Authorization, ClientAuthMethod, Grant, MethodSettings,
    OAuth2, PerMethod,
};
pub use listener::{Admin, ClientAuth, Listener, ListenerCertificate, ListenerTls, Services, TlsProfile};
pub use manifest::Manifest;
pub use outbound::{AllowList, Allowed, Network, Outbound, Webhooks};
pub use pem::Pem;
pub use signature::CardSignature;
pub use tasks::{Background, Push, Streams, Tasks};

use super::Secret;

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

/// MCP settings of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mcp {
    /// Accepted values of `Origin` besides the gateway's own; `*` is any. Default: none.
    pub allowed_origins: Vec<String>,
    /// Accepted hosts (`name` or `name:port`) in `Host` besides the gateway's own; `*` is any.
    /// Default: none.
    pub allowed_hosts: Vec<String>,
    /// Items on one page of a list. Default: 100.
    pub page_size: usize,
    /// Time for which clients may cache a list, as sent to them. Default: 60 s.
    pub list_ttl: Duration,
    /// The gateway's description of itself for the client's model. Default: its own text.
    pub instructions: Option<String>,
    /// The gateway's name in `serverInfo`. Default: `mcp-a2a-gateway`.
    pub server_name: String,
    /// True if the `subagent_*` tools are offered. Default: true.
    pub subagent_tools: bool,
    /// True if the tool `find_agent` is offered. Default: true.
    pub find_agent: bool,
    /// The results of tools that contain links to resources. Default: those of `subagent_start`.
    pub resource_links: crate::mcp::content::ResourceLinks,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            page_size: 100,
            list_ttl: Duration::from_secs(60),
            instructions: None,
            server_name: "mcp-a2a-gateway".to_owned(),
            subagent_tools: true,
            find_agent: true,
            resource_links: crate::mcp::content::ResourceLinks::default(),
        }
    }
}

/// Refresh of agent cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cards {
    /// The shortest time between two fetches of a good card. Default: 30 s.
    pub min_refresh: Duration,
    /// The longest time between two fetches of a good card. Default: 1 h.
    pub max_refresh: Duration,
    /// The wait after the first failure; it doubles up to `min_refresh`. Default: 1 s.
    pub retry: Duration,
}

impl Default for Cards {
    fn default() -> Self {
        let [min_refresh, max_refresh, retry] = [30, 3600, 1].map(Duration::from_secs);
        Self { min_refresh, max_refresh, retry }
    }
}

/// MCP sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// Time for which a session id is valid. Default: 30 days.
    pub ttl: Duration,
    /// The number of sessions for which the gateway stores more than their id contains. Default:
    /// 10000.
    pub max_cached: usize,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(30 * 86_400), max_cached: 10_000 }
    }
}

/// Limits for what peers send. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A request's body. Default: 4 MiB.
    pub body: usize,
    /// Nesting of JSON. Default: 64.
    pub depth: usize,
    /// An agent's response that is not a stream. Default: 16 MiB.
    pub response: usize,
    /// One event of an agent's stream. Default: 4 MiB.
    pub event: usize,
    /// Total size of one task's artifacts. Default: 16 MiB.
    pub artifacts: usize,
    /// Messages in a JSON-RPC batch. Default: 32.
    pub batch: usize,
    /// Time that a client has to send its request's headers. Default: 10 s.
    pub header_read: Duration,
    /// Time that a client has to send its request's body. Default: 30 s.
    pub body_read: Duration,
    /// Time for which a client may leave a response unread. Default: 30 s.
    pub write_stall: Duration,
    /// Time for which an idle client connection is kept. Default: 75 s.
    pub keep_alive: Duration,
    /// Open GET and listen streams. Default: 1024.
    pub streams: usize,
    /// Concurrent calls. Default: 10000.
    pub calls: usize,
    /// Requests of one caller in a second; 0: any number. Default: 0.
    pub caller_rate: usize,
    /// Requests that one caller may send at once after a pause; 0: as many as in a second. Default:
    /// 0.
    pub caller_burst: usize,
    /// Concurrent calls of one caller. Default: 1000.
    pub caller_calls: usize,
    /// Open GET and listen streams of one caller; at most three quarters of all. Default: 256.
    pub caller_streams: usize,
    /// Live tasks of one caller; those of anonymous callers count together. Default: 1000.
    pub caller_tasks: usize,
    /// Bytes that requests and responses hold, beyond 16 KiB each. Default: 256 MiB.
    pub bytes: usize,
    /// Those of one caller; at most three quarters of all. Default: 32 MiB.
    pub caller_bytes: usize,
    /// Bad credentials from one address in a second, and failed TLS handshakes; ten times as many
    /// at once. Beyond, further ones are rejected for a while; 0: any number. Default: 10.
    pub auth_failures: usize,
    /// A request's header. Default: 32 KiB.
    pub header: usize,
    /// Connections of clients, on each listener. Default: 10000.
    pub connections: usize,
    /// Of these, connections from one address (of IPv6 from one /64 network); 0: any number.
    /// Default: a tenth, at least [`Limits::LEAST_ADDRESS_CONNECTIONS`].
    pub address_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            depth: 64,
            response: 16 << 20,
            event: 4 << 20,
            artifacts: 16 << 20,
            batch: 32,
            header_read: Duration::from_secs(10),
            body_read: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            streams: 1024,
            calls: 10_000,
            caller_rate: 0,
            caller_burst: 0,
            caller_calls: 1000,
            caller_streams: 256,
            caller_tasks: 1000,
            bytes: 256 << 20,
            caller_bytes: 32 << 20,
            auth_failures: 10,
            header: 32 << 10,
            connections: 10_000,
            address_connections: 1000,
        }
    }
}

impl Limits {
    /// The fewest connections that one address may have by default: as many as a client with a
    /// pool.
    pub const LEAST_ADDRESS_CONNECTIONS: usize = 16;
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Format of a line. Default: text.
    pub format: LogFormat,
    /// Filter of the log: a level, or `tracing` directives. Default: `info`.
    pub level: String,
    /// True if the audit log contains the arguments of calls. Default: false.
    pub audit_arguments: bool,
    /// JSON pointers (RFC 6901) into arguments; the values that they point to are not logged.
    pub redact: Vec<String>,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned(), audit_arguments: false, redact: Vec::new() }
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

/// The end of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// Time for which new requests are still accepted after the signal. Default: 5 s.
    pub grace: Duration,
    /// Time for which requests in progress are then awaited; they get a response before. Default:
    /// 20 s.
    pub drain: Duration,
}

/// The takeover of the sockets by another process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upgrade {
    /// The directory of the sockets for the takeover; `None`: `mcp-a2a-gateway-UID` in the
    /// temporary directory.
    pub directory: Option<PathBuf>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5), drain: Duration::from_secs(20) }
    }
}
