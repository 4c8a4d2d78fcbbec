//! The command line.
//!
//! Out of scope: the implementation of the commands (see `server`, `config`).

mod agents;
mod call;
mod check;
mod client;
mod health;
mod init;
mod questions;

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use data_encoding::HEXLOWER;
use rand::RngCore;
use rand::rngs::OsRng;
use serde_json::json;
use sha2::{Digest, Sha256};

use client::TlsArguments;
use health::Probe;

use crate::config::certificate::CertificateSummary;
use crate::config::{self, Admin, Agent, CardSource, Listener, LogFormat, Problems, Settings, agents_at};
use crate::demo::DemoAgent;
use crate::gateway::{AgentSummary, AwaitedAgent, Gateway};
use crate::server::{ReloadSource, prepare};
use crate::stdio;
use crate::telemetry::log;
use crate::telemetry::log::{EscapeStyle, visible};

/// Any MCP client calls any A2A agent.
#[derive(Debug, Parser)]
#[command(name = "mcp-a2a-gateway", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start an embedded A2A agent and the gateway before it, and print how to call it.
    Demo {
        /// Port of the gateway on 127.0.0.1; without it 8080, or any free one if that is taken.
        #[arg(long)]
        port: Option<u16>,
        /// Start the agent alone, for a gateway with a configuration of its own.
        #[arg(long, conflicts_with = "port")]
        agent_only: bool,
        /// Port of the agent on 127.0.0.1; without it any free one, with --agent-only 9999.
        #[arg(long)]
        agent_port: Option<u16>,
    },
    /// Fetch the cards of agents and write a commented configuration for them.
    Init(init::InitArguments),
    /// Run the gateway.
    Serve {
        #[command(flatten)]
        config: ConfigArgument,
        /// Take over the sockets of a running gateway, which hands them over on SIGQUIT.
        #[arg(long)]
        upgrade: bool,
    },
    /// Serve the MCP client that starts this process, over standard input and output.
    Stdio(StdioSource),
    /// Read a configuration and everything that it names, and report every problem.
    Check {
        #[command(flatten)]
        config: ConfigArgument,
        /// Check it for `stdio`, which needs no `listeners`.
        #[arg(long)]
        stdio: bool,
        /// Report in JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        peers: Box<check::PeerQuery>,
        #[command(flatten)]
        question: check::AccessQuery,
    },
    /// Ask a running gateway whether it is ready, for health checks of containers: exit code 0 if it
    /// is, else 1.
    Health {
        /// The URL to ask. Without it: `/readyz` of `health`, or of `admin`, in the configuration.
        #[arg(long, conflicts_with = "config")]
        url: Option<String>,
        #[command(flatten)]
        config: ConfigArgument,
        /// Ask whether it has started (`/startupz`) or lives (`/livez`), in place of whether it is
        /// ready.
        #[arg(long, value_enum, default_value = "ready", conflicts_with = "url")]
        probe: Probe,
        #[command(flatten)]
        tls: TlsArguments,
    },
    /// Make an API key, and the hash of it for `auth.api_keys`.
    Key {
        /// Print them in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch the card of each agent and show its tools, endpoints and problems.
    ///
    /// An agent is printed as soon as it answers, its problems first. The summary and the JSON begin with the
    /// agents that have problems; with one the exit code is 1.
    Agents {
        #[command(flatten)]
        config: ConfigArgument,
        /// Show it in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Call a tool, follow its work, and answer the questions that its agent asks.
    Call(Box<call::CallArguments>),
    /// Print the JSON Schema of the configuration.
    Schema {
        /// Print that of ARDF manifests (`subagent@v0.1`) instead.
        #[arg(long)]
        manifest: bool,
    },
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual in roff, for man(1).
    Man {
        /// Write one page for each command to this folder instead.
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

/// The environment variable that names the configuration file.
const CONFIG_VARIABLE: &str = "MCP_A2A_GATEWAY_CONFIG";
/// The configuration files that are looked for, in this order.
const CONFIG_FILES: [&str; 2] = ["./gateway.yaml", "/etc/mcp-a2a-gateway/gateway.yaml"];

/// The option that names the configuration file.
#[derive(Debug, Args)]
struct ConfigArgument {
    /// The configuration file (YAML or JSON). Without it: the file that MCP_A2A_GATEWAY_CONFIG
    /// names, ./gateway.yaml, or /etc/mcp-a2a-gateway/gateway.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The configuration file of a command.
struct ConfigPath {
    path: PathBuf,
    /// True if the command line names it.
    is_named: bool,
}

impl ConfigArgument {
    /// Finds the configuration file.
    ///
    /// # Errors
    ///
    /// The places that were searched, if none of them has a file.
    fn find(&self) -> Result<ConfigPath, String> {
        if let Some(path) = &self.config {
            return Ok(ConfigPath { path: path.clone(), is_named: true });
        }
        let of_environment = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty());
        find_config(of_environment, &CONFIG_FILES.map(Path::new))
    }

    /// Finds the configuration file and prints its path, unless the command line names it; or
    /// prints that there is none.
    fn locate(&self) -> Result<PathBuf, ExitCode> {
        let found = self.find().map_err(|problem| {
            print_error(&problem);
            ExitCode::FAILURE
        })?;
        if !found.is_named {
            print_error(&format!("configuration: {}", found.path.display()));
        }
        Ok(found.path)
    }
}

/// Returns the file that the environment names, or else the first of `files` that exists.
fn find_config(of_environment: Option<OsString>, files: &[&Path]) -> Result<ConfigPath, String> {
    if let Some(path) = of_environment {
        return Ok(ConfigPath { path: path.into(), is_named: false });
    }
    if let Some(path) = files.iter().find(|path| path.exists()) {
        return Ok(ConfigPath { path: path.to_path_buf(), is_named: false });
    }
    let searched: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    Err(format!(
        "no configuration file: {CONFIG_VARIABLE} is not set, and {} do not exist. Name a file with --config, or write \
         one from the card of an agent: mcp-a2a-gateway init URL",
        searched.join(" and ")
    ))
}

/// The agents of `stdio`.
#[derive(Debug, Args)]
struct StdioSource {
    #[command(flatten)]
    config: ConfigArgument,
    /// Base URL of an agent, or the URL of its card, in place of a configuration; repeatable.
    #[arg(long = "agent", value_name = "URL", conflicts_with = "config")]
    agents: Vec<String>,
}

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    let Cli { command } = Cli::parse();
    let code = run_command(command);
    log::flush();
    code
}

fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Demo { agent_only: true, agent_port, .. } => run_demo_agent(agent_port),
        Command::Demo { port, agent_port, .. } => run_demo(port, agent_port),
        Command::Init(arguments) => init::run(&arguments),
        Command::Serve { config, upgrade } => with_config(&config, |path| serve(path, upgrade)),
        Command::Stdio(StdioSource { config, agents }) if agents.is_empty() => match config.locate() {
            Ok(path) => serve_stdio(Some(&path), &agents),
            Err(code) => {
                print_error("or name agents in place of a configuration: stdio --agent URL");
                code
            }
        },
        Command::Stdio(StdioSource { agents, .. }) => serve_stdio(None, &agents),
        Command::Check { config, stdio, json, peers, question } => {
            let load = if stdio { config::load_for_stdio } else { config::load };
            with_config(&config, |path| {
                check::run(path, load, json, &check::CheckQuery { peers: *peers, question })
            })
        }
        Command::Health { url, config, probe, tls } => health::run(url, &config, probe, &tls),
        Command::Key { json } => make_key(json),
        Command::Agents { config, json } => with_config(&config, |path| agents::run(path, json)),
        Command::Call(arguments) => call::run(*arguments),
        Command::Schema { manifest } => {
            let schema = if manifest { config::manifest_schema().to_owned() } else { config::schema() };
            print_line(schema.trim_end());
            ExitCode::SUCCESS
        }
        Command::Completions { shell } => print_completions(shell),
        Command::Man { output } => print_manual(output.as_deref()),
    }
}

fn with_config(config: &ConfigArgument, command: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    match config.locate() {
        Ok(path) => command(&path),
        Err(code) => code,
    }
}

/// Returns a number with its noun, in the plural unless it is one.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The name of the binary in completions and in the manual.
const BINARY: &str = env!("CARGO_PKG_NAME");

/// Returns the program as it was called, for commands to paste.
fn program() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    std::env::args().next().filter(|name| name.chars().all(is_plain)).unwrap_or_else(|| BINARY.to_owned())
}

fn print_completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), BINARY, &mut script);
    print_bytes(&script)
}

/// Prints the manual of the whole command: its own page, followed by one for each subcommand.
fn print_manual(output: Option<&Path>) -> ExitCode {
    if let Some(folder) = output {
        let written = std::fs::create_dir_all(folder);
        return match written.and_then(|()| clap_mangen::generate_to(Cli::command(), folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&format!("{}: {error}", folder.display())),
        };
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let subcommands = command.get_subcommands().cloned();
    let rendered = std::iter::once(command.clone())
        .chain(subcommands)
        .try_for_each(|command| Man::new(command).render(&mut pages));
    match rendered {
        Ok(()) => print_bytes(&pages),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(line: &str) -> ExitCode {
    print_error(line);
    ExitCode::FAILURE
}

/// Prints bytes to stdout. A closed stdout is not an error.
fn print_bytes(bytes: &[u8]) -> ExitCode {
    if std::io::stdout().write_all(bytes).is_err() {
        tracing::trace!("stdout closed");
    }
    ExitCode::SUCCESS
}

/// Prints a line to stdout. A closed stdout is not an error.
fn print_line(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        tracing::trace!("stdout closed");
    }
}

fn print_error(line: &str) {
    // Problems quote files of other parties: manifests, cards.
    if writeln!(std::io::stderr(), "{}", visible(line, EscapeStyle::Text)).is_err() {
        tracing::trace!("stderr closed");
    }
}

/// Reads the configuration, or prints every problem with it.
fn load(path: &Path) -> Result<Settings, ExitCode> {
    printed(config::load(path))
}

/// Reads a configuration that needs no listeners, or prints every problem with it.
fn load_for_stdio(path: &Path) -> Result<Settings, ExitCode> {
    printed(config::load_for_stdio(path))
}

fn printed(loaded: Result<Settings, Problems>) -> Result<Settings, ExitCode> {
    loaded.map_err(|problems| {
        print_error(&problems.to_string());
        ExitCode::FAILURE
    })
}

fn serve(path: &Path, upgrade: bool) -> ExitCode {
    let settings = match load(path) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    start_log(&settings);
    log_warnings(&settings);
    if let Err(code) = judge_client_certificates(path, &settings) {
        return code;
    }
    let lines: Vec<String> = settings
        .listeners
        .iter()
        .map(|listener| {
            let scheme = if listener.tls.is_some() { "https" } else { "http" };
            format!("listening on {scheme}://{}", listener.address)
        })
        .chain(settings.admin.iter().map(|admin| format!("admin on {}", admin_url(admin))))
        .chain(settings.health.iter().map(|health| format!("health on http://{}", health.address)))
        .collect();
    let endpoints = endpoints(&settings);
    let source = ReloadSource { file: path.to_owned(), load: Arc::new(check::loader(path)) };
    match prepare(settings, upgrade, Some(source)) {
        Ok(ready) => {
            lines.iter().for_each(|line| print_line(line));
            let (gateway, is_serving) = (ready.gateway.clone(), ready.is_serving.clone());
            let manager = ready.manager.clone();
            std::thread::spawn(move || {
                let AgentSummary { agents_ready, tools, .. } = log_start(&gateway, &is_serving, &endpoints);
                manager.notify_serving(&format!("agents ready: {agents_ready}, tools: {tools}"));
            });
            ready.run()
        }
        Err(problem) => {
            print_error(&format!("{}: {problem}", path.display()));
            ExitCode::FAILURE
        }
    }
}

/// The longest wait of the start line for the first card of each agent.
const START_LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait of the start line for the sockets of another process, which may take a minute.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which the start line checks for cards.
const START_LINE_POLL_INTERVAL: Duration = Duration::from_millis(20);

fn admin_url(admin: &Admin) -> String {
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", admin.address)
}

/// Returns the URLs that clients and operators use.
fn endpoints(settings: &Settings) -> String {
    let of_listener = |listener: &Listener| {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let paths = [("mcp", listener.serve.mcp), ("a2a", listener.serve.a2a), ("push", listener.serve.push)];
        let address = listener.address;
        let served = paths.into_iter().filter(|(_, is_served)| *is_served);
        served.map(|(path, _)| format!("{scheme}://{address}/{path}")).collect::<Vec<_>>()
    };
    let admin = settings.admin.iter().map(admin_url);
    settings.listeners.iter().flat_map(of_listener).chain(admin).collect::<Vec<_>>().join(" ")
}

/// Logs the end of the start, once the card of each agent was fetched or tried, or after
/// [`START_LINE_TIMEOUT`], and returns the agents. The process that takes sockets over has them by
/// then, or has ended.
fn log_start(gateway: &Gateway, is_serving: &AtomicBool, endpoints: &str) -> AgentSummary {
    let until = Instant::now() + TAKEOVER_TIMEOUT;
    while !is_serving.load(Ordering::Acquire) && Instant::now() < until {
        std::thread::sleep(START_LINE_POLL_INTERVAL);
    }
    let until = Instant::now() + START_LINE_TIMEOUT;
    while !gateway.is_ready() && Instant::now() < until {
        std::thread::sleep(START_LINE_POLL_INTERVAL);
    }
    let summary = gateway.agent_summary();
    let AgentSummary { agents_ready, tools, awaited } = &summary;
    if awaited.is_empty() {
        tracing::info!(agents_ready, tools, endpoints, "gateway started");
    } else {
        let awaited = awaited.iter().map(AwaitedAgent::place).collect::<Vec<_>>().join(", ");
        tracing::info!(agents_ready, tools, awaited, endpoints, "gateway started, agents are awaited");
    }
    summary
}

/// Serves the client at the other end of the standard streams. Standard output carries its messages
/// alone.
fn serve_stdio(path: Option<&Path>, agents: &[String]) -> ExitCode {
    let loaded = match path {
        Some(path) => load_for_stdio(path),
        None => agents_at(agents).map(Settings::new).map_err(|problem| {
            print_error(&format!("--agent: {problem}"));
            ExitCode::FAILURE
        }),
    };
    let settings = match loaded {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    start_log(&settings);
    log_warnings(&settings);
    match path {
        Some(path) => {
            if let Err(code) = judge_client_certificates(path, &settings) {
                return code;
            }
        }
        None => settings.agents.iter().for_each(|agent| {
            if let CardSource::Url(card) = &agent.card {
                tracing::info!(agent = agent.name, card, "named agent");
            }
        }),
    }
    let Err(problem) = stdio::run(settings) else { return ExitCode::SUCCESS };
    let file = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
    print_error(&format!("{file}{problem}"));
    ExitCode::FAILURE
}

/// Logs the client certificates for agents. One of a manifest that is not valid now ends the
/// start, as the manifest demands; another is only warned of, since other agents can be called.
fn judge_client_certificates(path: &Path, settings: &Settings) -> Result<(), ExitCode> {
    let findings = check::dates(settings, SystemTime::now());
    for certificate in &findings.certificates {
        let [not_before, not_after] = certificate.dates();
        let CertificateSummary { subject, issuer, key, .. } = &certificate.summary;
        let at = &certificate.at;
        tracing::info!(at, subject, issuer, not_before, not_after, key, "read agent client certificate");
    }
    for warning in findings.problems.iter().chain(&findings.warnings) {
        if warning.at.starts_with("agents.") {
            tracing::warn!(
                at = warning.at,
                error = warning.problem,
                "agent client certificate must be renewed"
            );
        }
    }
    for problem in &findings.of_manifests {
        print_error(&format!("{}: {problem}", path.display()));
    }
    if findings.of_manifests.is_empty() { Ok(()) } else { Err(ExitCode::FAILURE) }
}

/// Logs the values of a configuration that are accepted and probably wrong.
fn log_warnings(settings: &Settings) {
    for config::Problem { line, at, problem, .. } in &settings.warnings {
        tracing::warn!(line, at, reason = problem, "configuration has a doubtful value");
    }
}

fn start_log(settings: &Settings) {
    let format = match settings.log.format {
        LogFormat::Text => log::LogFormat::Text,
        LogFormat::Json => log::LogFormat::Json,
    };
    let wanted = log::LogSettings { format, filter: Some(settings.log.level.clone()) };
    if let Err(problem) = log::init(&wanted) {
        print_error(&problem.to_string());
    }
}

/// Random bytes of a key.
const KEY_BYTES: usize = 32;

/// Creates an API key and the hash that goes into the configuration, and prints both. The key is
/// stored nowhere.
fn make_key(as_json: bool) -> ExitCode {
    let mut random = [0; KEY_BYTES];
    OsRng.fill_bytes(&mut random);
    let key = URL_SAFE_NO_PAD.encode(random);
    let hex = HEXLOWER.encode(&Sha256::digest(key.as_bytes()));
    if as_json {
        print_line(&json!({ "key": key, "hash": format!("sha256:{hex}") }).to_string());
    } else {
        print_line(&format!("key (for the caller, shown once):   {key}"));
        print_line(&format!("hash (for auth.api_keys.keys):      sha256:{hex}"));
    }
    ExitCode::SUCCESS
}

/// The port of the demo that is tried first.
const DEMO_PORT: u16 = 8080;
/// Time that the demo has to start.
const DEMO_START_TIMEOUT: Duration = Duration::from_secs(30);
/// The port of the agent alone, as `examples/weather.yaml` expects.
const DEMO_AGENT_PORT: u16 = 9999;

/// Runs the agent alone until the process ends.
fn run_demo_agent(port: Option<u16>) -> ExitCode {
    let agent = match start_agent(port.unwrap_or(DEMO_AGENT_PORT)) {
        Ok(agent) => agent,
        Err(error) => return failed(&agent_problem(&error)),
    };
    print_line(&format!("A2A agent      {}", agent.card));
    print_line("\nIn another terminal, a gateway in front of it:\n");
    print_line(&format!("{} init {}", program(), agent.card));
    print_line(&format!("{} serve", program()));
    print_line("\nCtrl-C ends the agent.");
    if agent.thread.join().is_err() {
        return failed("the demo agent ended");
    }
    ExitCode::SUCCESS
}

fn agent_problem(error: &std::io::Error) -> String {
    format!("the demo agent cannot start: {error}; choose another --agent-port")
}

/// Runs the main use case on an embedded agent, without preparation.
fn run_demo(port: Option<u16>, agent_port: Option<u16>) -> ExitCode {
    let card = match start_agent(agent_port.unwrap_or(0)) {
        Ok(agent) => agent.card,
        Err(error) => return failed(&agent_problem(&error)),
    };
    let mut agent = Agent::new("demo", card.clone());
    agent.timeouts.idle = Duration::from_secs(60);
    let mut settings = Settings::new(vec![agent]);
    let address = match free(port) {
        Ok(address) => address,
        Err(error) => return failed(&format!("cannot listen: {error}; choose another --port")),
    };
    settings.listeners = vec![Listener::new(address)];
    settings.admin = free(Some(0)).ok().map(Admin::new);
    settings.log.level = "warn".to_owned();
    let admin = settings.admin.clone();
    start_log(&settings);
    match prepare(settings, false, None) {
        Ok(ready) => {
            let gateway = ready.gateway.clone();
            std::thread::spawn(move || {
                announce_demo(&gateway, address, admin.map(|admin| admin.address), &card)
            });
            ready.run()
        }
        Err(problem) => failed(&problem.to_string()),
    }
}

/// An agent that runs on a thread of its own.
struct RunningAgent {
    /// The URL of its card.
    card: String,
    thread: JoinHandle<()>,
}

/// Starts the agent on a thread of its own: it is a peer, not a part of the gateway.
fn start_agent(port: u16) -> std::io::Result<RunningAgent> {
    let (told, hears) = mpsc::channel();
    let thread = std::thread::Builder::new().name("demo-agent".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let serve = |runtime: tokio::runtime::Runtime| {
            runtime.block_on(async {
                let agent = DemoAgent::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
                let url = agent.card_url();
                if told.send(Ok(url)).is_ok() {
                    agent.run().await;
                }
                Ok(())
            })
        };
        if let Err(error) = runtime.and_then(serve)
            && told.send(Err(error)).is_err()
        {
            tracing::trace!("demo start was abandoned");
        }
    })?;
    let card = hears.recv().unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")))?;
    Ok(RunningAgent { card, thread })
}

/// Returns the requested address; else the usual one, or any if that is taken.
fn free(port: Option<u16>) -> std::io::Result<SocketAddr> {
    let at = |port| {
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .and_then(|socket| socket.local_addr())
    };
    match port {
        Some(port) => at(port),
        None => at(DEMO_PORT).or_else(|_| at(0)),
    }
}

/// Prints instructions once the gateway can be used.
fn announce_demo(gateway: &Gateway, address: SocketAddr, admin: Option<SocketAddr>, card: &str) {
    let until = Instant::now() + DEMO_START_TIMEOUT;
    while !(gateway.is_ready() && TcpStream::connect(address).is_ok()) {
        if Instant::now() > until {
            return print_error("the demo did not start in time");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let url = format!("http://{address}/mcp");
    let call = |tool: &str, text: &str, extra: &str| {
        format!(
            "curl -sN {url} -H 'Content-Type: application/json'{extra} -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\
             \"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"text\":\"{text}\"}},\
             \"_meta\":{{\"progressToken\":1}}}}}}'"
        )
    };
    let stream = " -H 'Accept: application/json, text/event-stream'";
    print_line(&format!("MCP endpoint   {url}"));
    print_line(&format!("A2A agent      {card}"));
    if let Some(admin) = admin {
        print_line(&format!("admin          http://{admin}/metrics"));
    }
    print_line("\nPaste this to call the agent:\n");
    print_line(&call("demo_echo", "Hello, agent", ""));
    print_line("\nand this to watch a task that takes several seconds:\n");
    print_line(&call("demo_countdown", "5", stream));
    let program = program();
    print_line(
        "\nTry next, in another terminal: live progress; a question; a configuration for your own agent:\n",
    );
    print_line(&format!("{program} call demo_countdown --text 5 --url {url}"));
    print_line(&format!("{program} call demo_ask --text tea --url {url}"));
    print_line(&format!("{program} init URL"));
    print_line("\nCtrl-C ends the demo.");
}
