//! `agents`: fetches each card and prints the result.
//!
//! See also the module `agents` at the root, which fetches and parses cards.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::{counted, failed, load_for_stdio, print_error, print_line};
use crate::a2a::AgentCard;
use crate::agents::{Agent, DeclaredExtension, Directory};
use crate::config::{Problem, Settings};
use crate::discovery::{unmatched_settings, unmatched_skills};
use crate::gateway::tools_of;
use crate::telemetry::log::takes_colour;
use crate::telemetry::log::{EscapeStyle, visible};
use crate::telemetry::metrics::Metrics;
use crate::tls::install_provider;
use crate::transport::{ClientLimits, HttpClient};

#[derive(Serialize)]
struct AgentRow {
    agent: String,
    /// The location of its card.
    card: String,
    protocol: String,
    binding: &'static str,
    streaming: bool,
    tools: Vec<(String, String)>,
    endpoints: Vec<EndpointRow>,
    auth: Vec<String>,
    extensions: Vec<String>,
    signed: String,
    problems: Vec<String>,
    /// Settings of the agent that fit nothing on its card.
    warnings: Vec<String>,
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

/// The version and the binding of an agent without a usable card.
const NO_CARD: &str = "-";

/// The number of agents that are contacted at once.
const MAX_CONCURRENT_AGENTS: usize = 32;

pub(super) fn run(path: &Path, json: bool) -> ExitCode {
    install_provider();
    let settings = match load_for_stdio(path) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let (runtime, directory) = match opened(&settings) {
        Ok(opened) => opened,
        Err(problem) => return failed(&format!("{}: {problem}", path.display())),
    };
    let doubtful = settings.warnings.iter();
    doubtful.for_each(|warning| print_error(&format!("{}: warning: {warning}", path.display())));
    let table = AgentTable::new(&directory);
    if !json {
        print_visible(&table.head());
    }
    let mut rows = runtime.block_on(collect(&directory, |row| {
        if !json {
            table.print(row);
        }
    }));
    // Those of agents are in their rows.
    let unmatched = unmatched_settings(&settings, &directory).into_iter();
    for warning in unmatched.filter(|warning| !warning.at.starts_with("agents.")) {
        print_error(&format!("{}: warning: {warning}", path.display()));
    }
    // A stable sort: the order of the configuration within both kinds.
    rows.sort_by_key(|row| row.problems.is_empty());
    if json {
        print_line(&visible(&serde_json::to_string_pretty(&rows).unwrap_or_default(), EscapeStyle::Json));
    } else {
        print_summary(&rows);
    }
    match rows.iter().all(|row| row.problems.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns a runtime, and the agents of a configuration.
fn opened(settings: &Settings) -> Result<(Runtime, Arc<Directory>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let metrics = Metrics::new().map_err(|error| error.to_string())?;
    let client = HttpClient::through(ClientLimits::default(), settings.outbound.proxy.clone());
    let directory = Directory::new(settings, client, &metrics).map_err(|problem| problem.to_string())?;
    Ok((runtime, Arc::new(directory)))
}

/// Findings about the agents of a configuration, which were contacted for it.
pub(super) struct OnlineFindings {
    /// A warning for each agent that has a problem, and for each setting that fits nothing on their cards.
    pub(super) warnings: Vec<Problem>,
    /// The interface of each agent with a usable card.
    pub(super) interfaces: Vec<InterfaceRow>,
}

/// The interface by which an agent is called.
#[derive(Serialize)]
pub(super) struct InterfaceRow {
    pub(super) agent: String,
    pub(super) protocol: String,
    pub(super) binding: &'static str,
}

/// Contacts the agents of a configuration.
///
/// # Errors
///
/// The setting with which no agent can be contacted, as text.
pub(super) fn contact_all(settings: &Settings) -> Result<OnlineFindings, String> {
    let (runtime, directory) = opened(settings)?;
    let rows = runtime.block_on(collect(&directory, |_| {}));
    let warning = |row: &AgentRow, problem: &String| Problem {
        file: None,
        line: None,
        at: format!("agents.{}", row.agent),
        problem: problem.clone(),
    };
    let of_agents = rows.iter().flat_map(|row| row.problems.iter().map(move |problem| warning(row, problem)));
    let warnings = of_agents.chain(unmatched_settings(settings, &directory)).collect();
    let with_card = rows.iter().filter(|row| row.binding != NO_CARD);
    let interface = |row: &AgentRow| InterfaceRow {
        agent: row.agent.clone(),
        protocol: row.protocol.clone(),
        binding: row.binding,
    };
    Ok(OnlineFindings { warnings, interfaces: with_card.map(interface).collect() })
}

/// Prints a line that may quote cards.
fn print_visible(line: &str) {
    print_line(&visible(line, EscapeStyle::Text));
}

/// Contacts all agents at once, passes each row on when it is complete, and returns the rows in the
/// order of the agents.
async fn collect(directory: &Arc<Directory>, mut print: impl FnMut(&AgentRow)) -> Vec<AgentRow> {
    let mut waiting = directory.agents().iter().cloned().enumerate();
    let mut contacted = JoinSet::new();
    let mut rows = Vec::new();
    loop {
        while contacted.len() < MAX_CONCURRENT_AGENTS
            && let Some((place, agent)) = waiting.next()
        {
            let directory = directory.clone();
            contacted.spawn(async move {
                let found = contact(&directory, &agent).await;
                (place, row(&directory, &agent, found))
            });
        }
        match contacted.join_next().await {
            Some(Ok((place, row))) => {
                print(&row);
                rows.push((place, row));
            }
            Some(Err(error)) => print_error(&error.to_string()),
            None => break,
        }
    }
    rows.sort_by_key(|(place, _)| *place);
    rows.into_iter().map(|(_, row)| row).collect()
}

async fn contact(directory: &Directory, agent: &Arc<Agent>) -> AgentFindings {
    let card = directory.refresh_once(agent).await.err().map(|problem| problem.to_string());
    let endpoints = directory.check_once(agent).await;
    let gone = endpoints.iter().filter(|(_, up)| !up).map(|(url, _)| format!("endpoint {url} is not there"));
    AgentFindings {
        problems: card.into_iter().chain(agent.token_problem().await).chain(gone).collect(),
        endpoints: endpoints.into_iter().map(|(url, up)| EndpointRow { url, up }).collect(),
    }
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
        card: agent.settings.card.without_secrets(),
        protocol: known.as_ref().map_or(NO_CARD, |known| known.interface.version_name()).to_owned(),
        binding: known.as_ref().map_or(NO_CARD, |known| known.interface.binding.name()),
        streaming: card.is_some_and(|card| card.streaming),
        tools: tools_of(directory, &agent.settings.name),
        endpoints,
        auth: card
            .map(|card| card.security_schemes.iter().map(|scheme| scheme.name.clone()).collect())
            .unwrap_or_default(),
        extensions: card.into_iter().flat_map(|card| agent.declared(card)).map(extension).collect(),
        signed: card.map(signed).unwrap_or_default(),
        problems,
        warnings: card
            .into_iter()
            .flat_map(|card| unmatched_skills(&agent.settings, card))
            .map(|warning| warning.to_string())
            .collect(),
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

/// The text form of the rows. The widths are known before the first card is there, so that a row is
/// printed as soon as its agent has answered.
struct AgentTable {
    name_width: usize,
    card_width: usize,
}

impl AgentTable {
    fn new(directory: &Directory) -> Self {
        let widest = |least: &str, text: fn(&Agent) -> String| {
            let widths = directory.agents().iter().map(|agent| text(agent).chars().count());
            widths.fold(least.len(), usize::max)
        };
        Self {
            name_width: widest("AGENT", |agent| agent.settings.name.clone()),
            card_width: widest("CARD", |agent| agent.settings.card.without_secrets()),
        }
    }

    fn head(&self) -> String {
        self.line(["AGENT", "A2A", "BINDING", "STREAMS", "ENDPOINTS", "SIGNED", "CARD", "SKILL → TOOL"])
    }

    fn line(&self, cells: [&str; 8]) -> String {
        let [agent, version, binding, streams, endpoints, signed, card, tools] = cells;
        let (names, cards) = (self.name_width, self.card_width);
        let line = format!(
            "{agent:names$}  {version:3}  {binding:9}  {streams:7}  {endpoints:9}  {signed:12}  {card:cards$}  {tools}"
        );
        line.trim_end().to_owned()
    }

    /// Prints a row; below it the problems, then the parts of the card that have no column.
    fn print(&self, row: &AgentRow) {
        let tools: Vec<String> = row.tools.iter().map(|(skill, tool)| format!("{skill} → {tool}")).collect();
        let endpoints = match row.endpoints.as_slice() {
            [] => "-".to_owned(),
            all => format!("{} of {}", all.iter().filter(|each| each.up).count(), all.len()),
        };
        let streams = if row.streaming { "yes" } else { "no" };
        let cells = [
            row.agent.as_str(),
            &row.protocol,
            row.binding,
            streams,
            &endpoints,
            &row.signed,
            &row.card,
            &tools.join(", "),
        ];
        let line = visible(&self.line(cells), EscapeStyle::Text).into_owned();
        print_line(&if row.problems.is_empty() { line } else { emphasized(&line) });
        row.problems.iter().for_each(|problem| print_visible(&format!("  problem: {problem}")));
        row.warnings.iter().for_each(|warning| print_visible(&format!("  warning: {warning}")));
        for (name, values) in [("auth", &row.auth), ("extensions", &row.extensions)] {
            if !values.is_empty() {
                print_visible(&format!("  {name}: {}", values.join(", ")));
            }
        }
    }
}

/// Returns the line in red for a terminal that takes colours.
fn emphasized(line: &str) -> String {
    if takes_colour(&std::io::stdout()) { format!("\x1b[31m{line}\x1b[0m") } else { line.to_owned() }
}

/// Prints the agents with problems, and then the count of agents and tools.
fn print_summary(rows: &[AgentRow]) {
    print_line("");
    let troubled = rows.iter().filter(|row| !row.problems.is_empty());
    let named = troubled.map(|row| format!("{} ({})", row.agent, row.card)).collect::<Vec<_>>();
    if !named.is_empty() {
        let line = format!("with problems: {}", named.join(", "));
        print_line(&emphasized(&visible(&line, EscapeStyle::Text)));
    }
    let tools: usize = rows.iter().map(|row| row.tools.len()).sum();
    let (agents, good) = (rows.len(), rows.len().saturating_sub(named.len()));
    let (agents, tools) = (counted(agents, "agent"), counted(tools, "tool"));
    print_line(&format!("{good} of {agents} without problems, {tools}"));
}
