//! The command line.
//!
//! Out of scope: the implementation of the commands (see `server`, `config`).

mod agents;
mod check;
mod demo;
mod explain;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, Parser, Subcommand};
use rand::RngCore;
use rand::rngs::OsRng;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::certificate::CertificateSummary;
use crate::config::{self, CardSource, LogFormat, Problems, Settings, agents_at};
use crate::server::prepare;
use crate::stdio;
use crate::telemetry::log;
use crate::telemetry::visible::{EscapeStyle, visible};

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
    /// Run the gateway.
    Serve {
        /// The configuration file (YAML or JSON).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Take over the sockets of a running gateway, which hands them over on SIGQUIT.
        #[arg(long)]
        upgrade: bool,
    },
    /// Serve the MCP client that starts this process, over standard input and output.
    Stdio(StdioSource),
    /// Read a configuration and everything that it names, and report every problem.
    Check {
        /// The configuration file (YAML or JSON).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Check it for `stdio`, which needs no `listeners`.
        #[arg(long)]
        stdio: bool,
        /// Report in JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        question: explain::AccessQuery,
    },
    /// Make an API key, and the hash of it for `auth.api_keys`.
    Key {
        /// Print them in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch the card of each agent and show its tools, endpoints and problems.
    Agents {
        /// The configuration file (YAML or JSON).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Show it in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration.
    Schema {
        /// Print that of ARDF manifests (`subagent@v0.1`) instead.
        #[arg(long)]
        manifest: bool,
    },
}

/// The agents of `stdio`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct StdioSource {
    /// The configuration file (YAML or JSON); it needs no `listeners`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Base URL of an agent, or the URL of its card, in place of a configuration; repeatable.
    #[arg(long = "agent", value_name = "URL")]
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
        Command::Demo { agent_only: true, agent_port, .. } => demo::run_agent(agent_port),
        Command::Demo { port, agent_port, .. } => demo::run(port, agent_port),
        Command::Serve { config, upgrade } => serve(&config, upgrade),
        Command::Stdio(StdioSource { config, agents }) => serve_stdio(config.as_deref(), &agents),
        Command::Check { config, stdio, json, question } => {
            let load = if stdio { config::load_for_stdio } else { config::load };
            check::run(&config, load, json, &question)
        }
        Command::Key { json } => make_key(json),
        Command::Agents { config, json } => agents::run(&config, json),
        Command::Schema { manifest } => {
            let schema = if manifest { config::manifest_schema().to_owned() } else { config::schema() };
            print_line(schema.trim_end());
            ExitCode::SUCCESS
        }
    }
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

fn done(line: &str) -> ExitCode {
    print_line(line);
    ExitCode::SUCCESS
}

fn serve(path: &Path, upgrade: bool) -> ExitCode {
    let settings = match load(path) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    start_log(&settings);
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
        .chain(settings.admin.iter().map(|admin| format!("admin on http://{}", admin.address)))
        .collect();
    match prepare(settings, upgrade) {
        Ok(ready) => {
            lines.iter().for_each(|line| print_line(line));
            ready.run()
        }
        Err(problem) => {
            print_error(&format!("{}: {problem}", path.display()));
            ExitCode::FAILURE
        }
    }
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
    let hex: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    if as_json {
        print_line(&json!({ "key": key, "hash": format!("sha256:{hex}") }).to_string());
    } else {
        print_line(&format!("key (for the caller, shown once):   {key}"));
        print_line(&format!("hash (for auth.api_keys.keys):      sha256:{hex}"));
    }
    ExitCode::SUCCESS
}
