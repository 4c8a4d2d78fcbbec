//! `agents`: fetches each card and prints the result.
//!
//! See also the module `agents` at the root, which fetches and parses cards.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::{load_for_stdio, print_error, print_line};
use crate::a2a::AgentCard;
use crate::agents::{Agent, DeclaredExtension, Directory};
use crate::gateway::tools_of;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::visible::{EscapeStyle, visible};
use crate::tls::install_provider;
use crate::transport::{ClientLimits, HttpClient};

#[derive(Serialize)]
struct AgentRow {
    agent: String,
    protocol: String,
    binding: &'static str,
    streaming: bool,
    tools: Vec<(String, String)>,
    endpoints: Vec<EndpointRow>,
    auth: Vec<String>,
    extensions: Vec<String>,
    signed: String,
    problems: Vec<String>,
}

/// An endpoint from the configuration, and its reachability.
#[derive(Serialize)]
struct EndpointRow {
    url: String,
    up: bool,
}

/// Findings about an agent besides its card.
struct AgentFindings {
    problems: Vec<String>,
    endpoints: Vec<EndpointRow>,
}

pub(super) fn run(path: &Path, json: bool) -> ExitCode {
    install_provider();
    let settings = match load_for_stdio(path) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let directory = Metrics::new().map_err(|error| error.to_string()).and_then(|metrics| {
        let client = HttpClient::new(ClientLimits::default());
        Directory::new(&settings, client, &metrics).map_err(|problem| problem.to_string())
    });
    let rows = match (runtime, directory) {
        (Ok(runtime), Ok(directory)) => runtime.block_on(look(&directory)),
        (Err(error), _) => return failed(&error.to_string()),
        (_, Err(problem)) => return failed(&format!("{}: {problem}", path.display())),
    };
    if json {
        print_line(&visible(&serde_json::to_string_pretty(&rows).unwrap_or_default(), EscapeStyle::Json));
    } else {
        table(&rows).iter().for_each(|line| print_line(&visible(line, EscapeStyle::Text)));
    }
    match rows.iter().all(|row| row.problems.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn failed(line: &str) -> ExitCode {
    print_error(line);
    ExitCode::FAILURE
}

async fn look(directory: &Directory) -> Vec<AgentRow> {
    let mut found = Vec::new();
    for agent in directory.agents() {
        let card = directory.refresh_once(agent).await.err().map(|problem| problem.to_string());
        let endpoints = directory.check_once(agent).await;
        let gone =
            endpoints.iter().filter(|(_, up)| !up).map(|(url, _)| format!("endpoint {url} is not there"));
        found.push(AgentFindings {
            problems: card.into_iter().chain(agent.token_problem().await).chain(gone).collect(),
            endpoints: endpoints.into_iter().map(|(url, up)| EndpointRow { url, up }).collect(),
        });
    }
    let agents = directory.agents().iter().zip(found);
    agents.map(|(agent, found)| row(directory, agent, found)).collect()
}

fn row(directory: &Directory, agent: &Agent, found: AgentFindings) -> AgentRow {
    let AgentFindings { mut problems, endpoints } = found;
    let known = agent.known();
    let card = known.as_ref().map(|known| &*known.card);
    problems.extend(card.iter().flat_map(|card| card.problems.clone()));
    problems.extend(card.into_iter().flat_map(|card| agent.credential_problems(card)));
    problems.extend(card.and_then(|card| agent.obstacle_of(card)));
    problems.extend(card.into_iter().flat_map(|card| agent.idle_extensions(card)));
    AgentRow {
        agent: agent.settings.name.clone(),
        protocol: known.as_ref().map_or("-", |known| known.interface.dialect.version()).to_owned(),
        binding: known.as_ref().map_or("-", |known| known.interface.binding.name()),
        streaming: card.is_some_and(|card| card.streaming),
        tools: tools_of(directory, &agent.settings.name),
        endpoints,
        auth: card
            .map(|card| card.security_schemes.iter().map(|scheme| scheme.name.clone()).collect())
            .unwrap_or_default(),
        extensions: card.into_iter().flat_map(|card| agent.declared(card)).map(extension).collect(),
        signed: card.map(signed).unwrap_or_default(),
        problems,
    }
}

/// Describes an extension and its use.
fn extension(DeclaredExtension { uri, required, active }: DeclaredExtension<'_>) -> String {
    match (required, active) {
        (true, true) => format!("{uri} (required, active)"),
        (true, false) => format!("{uri} (required)"),
        (false, true) => format!("{uri} (active)"),
        (false, false) => uri.to_owned(),
    }
}

/// Describes the signer of a card, as far as that was verified.
fn signed(card: &AgentCard) -> String {
    match &card.proof {
        Some(proof) => proof.key.clone(),
        None if card.signed => "not verified".to_owned(),
        None => "no".to_owned(),
    }
}

fn table(rows: &[AgentRow]) -> Vec<String> {
    let head = [
        "AGENT",
        "A2A",
        "BINDING",
        "STREAMS",
        "SKILL → TOOL",
        "ENDPOINTS",
        "AUTH",
        "EXTENSIONS",
        "SIGNED",
        "PROBLEMS",
    ];
    let head = head.map(str::to_owned);
    let mut cells = vec![head];
    for row in rows {
        let streams = if row.streaming { "yes" } else { "no" };
        let tools = row.tools.iter().map(|(skill, tool)| format!("{skill} → {tool}")).collect::<Vec<_>>();
        cells.push([
            row.agent.clone(),
            row.protocol.clone(),
            row.binding.to_owned(),
            streams.to_owned(),
            tools.join(", "),
            match row.endpoints.as_slice() {
                [] => "-".to_owned(),
                all => format!("{} of {}", all.iter().filter(|each| each.up).count(), all.len()),
            },
            row.auth.join(", "),
            row.extensions.join(", "),
            row.signed.clone(),
            row.problems.join("; "),
        ]);
    }
    let mut widths = [0; 10];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; 10]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            format!("{cell}{gap}")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}
