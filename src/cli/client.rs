//! The gateway of the command `call`, and the client of MCP 2026-07-28 that calls it.
//!
//! Without `--url` the gateway is one of this process: on loopback, on a free port, with a random
//! key. Reads docs/spec/mcp.md §1.4, §2.12 and §2.14. One request is one exchange: its
//! notifications, then its result. Out of scope: the course of a call (see `call`).

use std::collections::VecDeque;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use clap::Args;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use rand::RngCore as _;
use rand::rngs::OsRng;
use rustls::ClientConfig;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::questions::UserConsole;
use super::{CONFIG_VARIABLE, ConfigArgument, KEY_BYTES, free, start_log};
use crate::auth::TlsIdentity;
use crate::config::{
    self, Agent, AgentTls, ApiKeyOwner, ApiKeys, Auth, Listener, Mechanism, Pem, ReloadableSecret, Require,
    RequireRule, Settings, expand_argument,
};
use crate::gateway::{AgentSummary, Gateway};
use crate::mcp::Version;
use crate::server::prepare_without_signals;
use crate::sse::Decoder;
use crate::transport::{
    AddressPolicy, ClientLimits, ExchangeTimeouts, HttpClient, Response, TargetSettings, TransportError,
    Upstream,
};

/// The maximum size of one message of the gateway, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of messages that are decoded and not handled yet.
const MAX_QUEUED_MESSAGES: usize = 64 * 1024;
/// The timeouts of an exchange. The gateway sends at least a comment every minute while it works;
/// the whole call is bounded by `--timeout`.
const TIMEOUTS: ExchangeTimeouts = ExchangeTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(3700),
    idle: Duration::from_secs(180),
    total: Duration::from_secs(7 * 24 * 3600),
};

/// The longest wait for the cards of the agents of an own gateway.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// The header of the key of an own gateway: no agent gets a header of this name.
const KEY_HEADER: &str = "x-mcp-a2a-gateway-call";
/// The name of the agent of `--agent-url`.
const AGENT_NAME: &str = "agent";

/// The gateway that a call goes to.
#[derive(Debug, Args)]
pub(super) struct TargetArguments {
    /// Call this agent without a configuration: the URL of its card, or its base URL.
    #[arg(long, value_name = "URL", conflicts_with_all = ["url", "config"])]
    agent_url: Option<String>,
    /// Call a gateway that runs: the URL of its MCP endpoint.
    #[arg(long, value_name = "MCP", conflicts_with = "config")]
    pub(super) url: Option<String>,
    #[command(flatten)]
    config: ConfigArgument,
    /// A header of the requests to the gateway, or of those to the agent of --agent-url; can be given several
    /// times. Write secrets as ${env:NAME} or ${file:PATH} (in single quotes), or the whole value as @FILE:
    /// other users of this machine can read the arguments of a process.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    #[command(flatten)]
    tls: TlsArguments,
}

/// Trust in a server, and the certificate for it.
#[derive(Debug, Default, Args)]
pub(super) struct TlsArguments {
    /// Trust the certificate authorities in this PEM file and no others. Without it: those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Authenticate with this certificate: a PEM file, with those that lead to its root.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of --certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

impl TlsArguments {
    /// Returns true if the command line has one of these options.
    pub(super) fn is_given(&self) -> bool {
        self.ca.is_some() || self.certificate.is_some()
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The option with an unusable file, as text.
    fn read(&self) -> Result<AgentTls, String> {
        let read = |option: &str, path: &Option<PathBuf>| {
            let read = |path: &PathBuf| {
                Pem::from_file(path, "").read_again().map_err(|problem| format!("--{option}: {problem}"))
            };
            path.as_ref().map(read).transpose()
        };
        Ok(AgentTls {
            ca: read("ca", &self.ca)?,
            certificate: read("certificate", &self.certificate)?,
            key: read("key", &self.key)?,
            ..AgentTls::default()
        })
    }

    /// Returns the configuration of connections to a server by https.
    ///
    /// # Errors
    ///
    /// The unusable file, as text.
    pub(super) fn client_config(&self) -> Result<Option<Arc<ClientConfig>>, String> {
        TlsIdentity::new(&self.read()?, false).map(|identity| identity.tls(true))
    }
}

/// The reason for which there is no gateway.
pub(super) enum TargetError {
    /// The arguments cannot be used.
    Usage(String),
    /// The gateway cannot be started.
    Failed(String),
}

/// The gateway of a call.
pub(super) struct CallTarget {
    url: String,
    headers: HeaderMap,
    tls: Option<Arc<ClientConfig>>,
    /// The gateway of this process, if there is one.
    pub(super) own: Option<Gateway>,
}

impl CallTarget {
    pub(super) fn open(arguments: &TargetArguments, console: &UserConsole) -> Result<Self, TargetError> {
        let headers = arguments.headers.iter().map(|header| parse_header(header));
        let headers = headers.collect::<Result<Vec<_>, _>>().map_err(TargetError::Usage)?;
        if let Some(url) = &arguments.agent_url {
            let mut agent = Agent::new(AGENT_NAME, url);
            agent.headers = headers;
            agent.tls = arguments.tls.read().map_err(TargetError::Usage)?;
            return Self::start(Settings::new(vec![agent]), Vec::new());
        }
        if let Some(url) = &arguments.url {
            let tls = match url.starts_with("https:") {
                true => arguments.tls.client_config().map_err(TargetError::Usage)?,
                false => None,
            };
            return Ok(Self { url: url.clone(), headers: header_map(headers)?, tls, own: None });
        }
        if arguments.tls.is_given() {
            let problem = "--ca and --certificate need --url or --agent-url (the configuration has those of its agents)";
            return Err(TargetError::Usage(problem.to_owned()));
        }
        let found = arguments.config.find().map_err(|problem| {
            TargetError::Usage(format!(
                "{problem}. Or call an agent with --agent-url, a running gateway with --url"
            ))
        })?;
        if !found.is_named {
            console.note(&format!("configuration: {}", found.path.display()));
        }
        let settings = config::load_for_stdio(&found.path).map_err(|problems| {
            let hint = if found.is_named { String::new() } else { format!(" (see {CONFIG_VARIABLE})") };
            TargetError::Failed(format!("{problems}{hint}"))
        })?;
        Self::start(settings, headers)
    }

    /// Starts a gateway of this process on a free port of loopback, for this command alone.
    fn start(mut settings: Settings, headers: Vec<AgentHeader>) -> Result<Self, TargetError> {
        let failed = |problem: String| TargetError::Failed(problem);
        let address = free(Some(0)).map_err(|error| failed(format!("cannot listen: {error}")))?;
        let mut random = [0; KEY_BYTES];
        OsRng.fill_bytes(&mut random);
        let key = URL_SAFE_NO_PAD.encode(random);
        let owner =
            ApiKeyOwner { name: "call".to_owned(), hashes: vec![Sha256::digest(key.as_bytes()).into()] };
        let header = HeaderName::from_static(KEY_HEADER);
        let keys = ApiKeys { header: header.clone(), holders: vec![owner] };
        let mut listener = Listener::new(address);
        listener.require = Require { rule: RequireRule::Any, of: vec![Mechanism::ApiKey] };
        // Callers, rules, state and sockets are those of `serve`, not of its operator.
        settings.auth = Auth { api_keys: Some(keys), ..Auth::default() };
        settings.rules = Vec::new();
        (settings.listeners, settings.admin, settings.public_url) = (vec![listener], None, None);
        settings.health = None;
        (settings.tasks.data_dir, settings.upgrade.directory, settings.push.enabled) = (None, None, false);
        settings.threads = 1;
        settings.log.level = "error".to_owned();
        start_log(&settings);
        let ready = prepare_without_signals(settings).map_err(|problem| failed(problem.to_string()))?;
        let gateway = ready.gateway.clone();
        std::thread::spawn(move || {
            ready.run();
        });
        let until = Instant::now() + START_TIMEOUT;
        while !(gateway.is_ready() && TcpStream::connect(address).is_ok()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut headers = header_map(headers)?;
        let key = HeaderValue::from_str(&key).map_err(|error| failed(error.to_string()))?;
        headers.insert(header, key);
        Ok(Self { url: format!("http://{address}/mcp"), headers, tls: None, own: Some(gateway) })
    }

    /// Returns a client of the gateway.
    pub(super) fn client(&self) -> Result<McpClient, TargetError> {
        McpClient::new(self).map_err(|error| TargetError::Usage(error.to_string()))
    }

    /// Returns the agents without a card, with the reasons.
    pub(super) fn troubles(&self) -> Vec<String> {
        let AgentSummary { awaited, .. } = match &self.own {
            Some(gateway) => gateway.agent_summary(),
            None => return Vec::new(),
        };
        awaited.into_iter().map(|agent| agent.with_problem()).collect()
    }
}

/// A header with its value.
type AgentHeader = (HeaderName, ReloadableSecret);

fn header_map(headers: Vec<AgentHeader>) -> Result<HeaderMap, TargetError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| TargetError::Usage(format!("--header {name}: the value cannot be a header")))?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}

/// Reads `NAME: VALUE`. An error never quotes the value.
fn parse_header(text: &str) -> Result<AgentHeader, String> {
    let (name, value) = text.split_once(':').ok_or("--header: write NAME: VALUE")?;
    let value = value.trim();
    let name: HeaderName = name
        .trim()
        .parse()
        .map_err(|_| format!("--header {:?}: is not the name of a header", name.trim()))?;
    let file = value.strip_prefix('@').map(|path| format!("${{file:{path}}}"));
    let value = expand_argument(file.as_deref().unwrap_or(value));
    value.map(|value| (name.clone(), value)).map_err(|problem| format!("--header {name}: {problem}"))
}

/// The reason for which a request has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The URL, or a part of the request, cannot be used.
    #[error("{0}")]
    Request(String),
    /// The gateway cannot be reached.
    #[error("the gateway cannot be reached at {url}: {error}{remedy}", remedy = reach_remedy(error))]
    Unreachable {
        /// The URL of the MCP endpoint.
        url: String,
        /// The reason.
        error: TransportError,
    },
    /// The connection broke.
    #[error("{0}")]
    Transport(#[from] TransportError),
    /// The gateway asks for credentials, or for others.
    #[error("the gateway answered HTTP {0}: {1} (give credentials with --header)")]
    Credentials(u16, String),
    /// The response is not one of MCP.
    #[error("the gateway answered HTTP {0} without a message of MCP; is this the URL of an MCP endpoint?")]
    Status(u16),
    /// The response ends without a result, or is too large.
    #[error("{0}")]
    Protocol(&'static str),
    /// The gateway rejects the request.
    #[error("{message} (code {code})")]
    Rejected {
        /// The code of JSON-RPC.
        code: i64,
        /// The reason.
        message: String,
    },
}

/// The abilities that a request declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredAbilities {
    /// Questions and tasks.
    All,
    /// None: the gateway answers with a handle of unfinished work.
    None,
}

/// One request.
pub(super) struct McpRequest<'a> {
    pub(super) method: &'a str,
    /// The value of `Mcp-Name`, for methods that have one.
    pub(super) name: Option<&'a str>,
    pub(super) params: Map<String, Value>,
    pub(super) abilities: DeclaredAbilities,
}

/// The MCP endpoint of a gateway. Clones share the connections.
#[derive(Clone)]
pub(super) struct McpClient {
    http: HttpClient,
    target: Upstream,
    url: Arc<str>,
    path: String,
    headers: HeaderMap,
    next_id: Arc<AtomicU64>,
}

impl McpClient {
    /// Creates the client of the endpoint of this gateway.
    fn new(gateway: &CallTarget) -> Result<Self, ClientError> {
        let CallTarget { url, headers, tls, .. } = gateway;
        let unusable = |problem: &str| ClientError::Request(format!("{url}: {problem}"));
        let uri: Uri = url.parse().map_err(|_| unusable("is not a URL (write http:// or https://)"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let mut settings = TargetSettings::new(uri, AddressPolicy::Trusted);
        settings.tls.clone_from(tls);
        settings.timeouts = TIMEOUTS;
        let target = Upstream::new(settings).map_err(|problem| unusable(&problem.to_string()))?;
        let http = HttpClient::new(ClientLimits::default());
        Ok(Self {
            http,
            target,
            url: shown_url(url).into(),
            path,
            headers: headers.clone(),
            next_id: Arc::new(AtomicU64::new(1)),
        })
    }

    /// Sends a request and waits for the header of the response.
    pub(super) async fn send(&self, request: McpRequest<'_>) -> Result<McpExchange, ClientError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = self.message(&request, id)?;
        let sent = self.http.send(&self.target, message).await;
        let response = sent.map_err(|error| ClientError::Unreachable { url: self.url.to_string(), error })?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let decoder = is_stream.then(|| Decoder::new(MAX_MESSAGE_BYTES));
        Ok(McpExchange { id, response, decoder, queue: VecDeque::new() })
    }

    /// Returns the result of a request that has no notifications, or ignores them.
    pub(super) async fn result(&self, request: McpRequest<'_>) -> Result<Value, ClientError> {
        let mut exchange = self.send(request).await?;
        loop {
            if let McpEvent::Result(result) = exchange.next().await? {
                return Ok(result);
            }
        }
    }

    fn message(&self, request: &McpRequest<'_>, id: u64) -> Result<Request<Bytes>, ClientError> {
        let version = Version::V2026_07_28.as_str();
        let capabilities = match request.abilities {
            DeclaredAbilities::All => json!({
                "elicitation": { "form": {}, "url": {} },
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            }),
            DeclaredAbilities::None => json!({}),
        };
        let mut params = request.params.clone();
        params.insert(
            "_meta".to_owned(),
            json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/clientInfo": {
                    "name": "mcp-a2a-gateway call", "version": env!("CARGO_PKG_VERSION"),
                },
                "progressToken": id,
            }),
        );
        let body =
            json!({ "jsonrpc": "2.0", "id": id, "method": request.method, "params": params }).to_string();
        let unusable = |_| ClientError::Request("a name cannot be a header".to_owned());
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(HeaderName::from_static("mcp-protocol-version"), HeaderValue::from_static(version));
        let method = HeaderValue::from_str(request.method).map_err(unusable)?;
        headers.insert(HeaderName::from_static("mcp-method"), method);
        if let Some(name) = request.name {
            let name = HeaderValue::from_str(&header_name(name)).map_err(unusable)?;
            headers.insert(HeaderName::from_static("mcp-name"), name);
        }
        let mut message = Request::new(Bytes::from(body));
        *message.method_mut() = Method::POST;
        *message.uri_mut() =
            self.path.parse().map_err(|_| ClientError::Request("the path cannot be called".to_owned()))?;
        *message.headers_mut() = headers;
        Ok(message)
    }
}

/// Returns what the user can do, if the cause shows it.
fn reach_remedy(error: &TransportError) -> &'static str {
    match error {
        TransportError::Connect(_) | TransportError::ConnectTimeout | TransportError::Resolve(_) => {
            "; start the gateway with `mcp-a2a-gateway serve`, or give the URL of its MCP endpoint with --url"
        }
        TransportError::Tls(_) => "; give the https URL with the host name of its certificate",
        _ => "",
    }
}

/// Returns a URL without its query, which may be a secret.
fn shown_url(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Returns a name in the form of `Mcp-Name`.
fn header_name(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.starts_with("=?base64?");
    if is_plain { name.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(name)) }
}

/// A message of the gateway.
pub(super) enum McpEvent {
    /// A notification: its method and its params.
    Notification {
        /// The method.
        method: String,
        /// The params.
        params: Value,
    },
    /// The result, which is the last message.
    Result(Value),
}

/// A request that was sent. Dropping it closes the connection, which cancels the request.
pub(super) struct McpExchange {
    id: u64,
    response: Response,
    /// The decoder of an event stream; `None` if the body is one message.
    decoder: Option<Decoder>,
    queue: VecDeque<Value>,
}

impl McpExchange {
    /// Waits for the next message. Cancel-safe on an event stream.
    pub(super) async fn next(&mut self) -> Result<McpEvent, ClientError> {
        if self.decoder.is_none() {
            let body = self.response.collect(MAX_MESSAGE_BYTES).await?;
            let status = self.response.status();
            let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
            return self.event(message)?.ok_or(ClientError::Status(status.as_u16()));
        }
        loop {
            while let Some(message) = self.queue.pop_front() {
                if let Some(event) = self.event(message)? {
                    return Ok(event);
                }
            }
            let chunk = self.response.chunk().await?;
            let chunk =
                chunk.ok_or(ClientError::Protocol("the gateway ended the stream without a result"))?;
            self.decode(&chunk)?;
        }
    }

    fn decode(&mut self, chunk: &[u8]) -> Result<(), ClientError> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let events = decoder.push(chunk);
        let events = events.map_err(|_| ClientError::Protocol("a message of the gateway is too large"))?;
        self.queue.extend(events.iter().filter_map(|event| serde_json::from_slice(&event.data).ok()));
        if self.queue.len() > MAX_QUEUED_MESSAGES {
            return Err(ClientError::Protocol("the gateway sends too many messages"));
        }
        Ok(())
    }

    /// Returns the event of a message; `None` if it is not about this request.
    fn event(&self, mut message: Value) -> Result<Option<McpEvent>, ClientError> {
        if let Some(error) = message.get("error") {
            let text = error
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or("the gateway gives no reason")
                .to_owned();
            let status = self.response.status();
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Err(ClientError::Credentials(status.as_u16(), text));
            }
            let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
            return Err(ClientError::Rejected { code, message: text });
        }
        let is_answer = message.get("id").and_then(Value::as_u64) == Some(self.id);
        if let Some(result) = message.get_mut("result").filter(|_| is_answer) {
            return Ok(Some(McpEvent::Result(result.take())));
        }
        let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
        let params = message.get_mut("params").map(Value::take).unwrap_or_default();
        Ok(method.map(|method| McpEvent::Notification { method, params }))
    }
}
