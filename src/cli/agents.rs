//! `agents`: fetches each card and shows what becomes of it.
//!
//! Not here: how cards are fetched and understood (see `agents` at the root).

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::{complain, load, say};
use crate::a2a::Card;
use crate::agents::{Agent, Declared, Directory};
use crate::gateway::tools_of;
use crate::telemetry::metrics::Metrics;
use crate::tls::install_provider;
use crate::transport::{Client, ClientLimits};

#[derive(Serialize)]
struct Row {
    agent: String,
    protocol: String,
    binding: &'static str,
    streaming: bool,
    tools: Vec<(String, String)>,
    auth: Vec<String>,
    extensions: Vec<String>,
    signed: String,
    problems: Vec<String>,
}

pub(super) fn run(path: &Path, json: bool) -> ExitCode {
    install_provider();
    let settings = match load(path) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let directory = Metrics::new().map_err(|error| error.to_string()).and_then(|metrics| {
        let client = Client::new(ClientLimits::default());
        Directory::new(&settings, client, &metrics).map_err(|problem| problem.to_string())
    });
    let rows = match (runtime, directory) {
        (Ok(runtime), Ok(directory)) => runtime.block_on(look(&directory)),
        (Err(error), _) => return failed(&error.to_string()),
        (_, Err(problem)) => return failed(&format!("{}: {problem}", path.display())),
    };
    if json {
        say(&serde_json::to_string_pretty(&rows).unwrap_or_default());
    } else {
        table(&rows).iter().for_each(|line| say(line));
    }
    match rows.iter().all(|row| row.problems.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn failed(line: &str) -> ExitCode {
    complain(line);
    ExitCode::FAILURE
}

async fn look(directory: &Directory) -> Vec<Row> {
    let mut failures = Vec::new();
    for agent in directory.agents() {
        let card = directory.look_once(agent).await.err().map(|problem| problem.to_string());
        failures.push(card.into_iter().chain(agent.token_problem().await).collect());
    }
    let agents = directory.agents().iter().zip(failures);
    agents.map(|(agent, problems)| row(directory, agent, problems)).collect()
}

fn row(directory: &Directory, agent: &Agent, mut problems: Vec<String>) -> Row {
    let known = agent.known();
    let card = known.as_ref().map(|known| &*known.card);
    problems.extend(card.iter().flat_map(|card| card.problems.clone()));
    problems.extend(card.into_iter().flat_map(|card| agent.credential_problems(card)));
    problems.extend(card.and_then(|card| agent.obstacle_of(card)));
    problems.extend(card.into_iter().flat_map(|card| agent.idle_extensions(card)));
    Row {
        agent: agent.settings.name.clone(),
        protocol: known.as_ref().map_or("-", |known| known.interface.dialect.version()).to_owned(),
        binding: known.as_ref().map_or("-", |known| known.interface.binding.name()),
        streaming: card.is_some_and(|card| card.streaming),
        tools: tools_of(directory, &agent.settings.name),
        auth: card
            .map(|card| card.security_schemes.iter().map(|scheme| scheme.name.clone()).collect())
            .unwrap_or_default(),
        extensions: card.into_iter().flat_map(|card| agent.declared(card)).map(extension).collect(),
        signed: card.map(signed).unwrap_or_default(),
        problems,
    }
}

/// An extension, and what becomes of it.
fn extension(Declared { uri, required, active }: Declared<'_>) -> String {
    match (required, active) {
        (true, true) => format!("{uri} (required, active)"),
        (true, false) => format!("{uri} (required)"),
        (false, true) => format!("{uri} (active)"),
        (false, false) => uri.to_owned(),
    }
}

/// By whom a card is signed, as far as that was checked.
fn signed(card: &Card) -> String {
    match &card.proof {
        Some(proof) => proof.key.clone(),
        None if card.signed => "not verified".to_owned(),
        None => "no".to_owned(),
    }
}

fn table(rows: &[Row]) -> Vec<String> {
    let head =
        ["AGENT", "A2A", "BINDING", "STREAMS", "SKILL → TOOL", "AUTH", "EXTENSIONS", "SIGNED", "PROBLEMS"];
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
            row.auth.join(", "),
            row.extensions.join(", "),
            row.signed.clone(),
            row.problems.join("; "),
        ]);
    }
    let mut widths = [0; 9];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; 9]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            format!("{cell}{gap}")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}
