//! `init`: writes a commented configuration from the cards of agents.
//!
//! A file is written as a whole or not at all, and never over another one without `--force`. Text of
//! cards is only in comments, a line each, so that no card can add a key. Credentials are comments
//! too: they are references to the environment for the operator to fill in.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::{counted, failed, print_bytes, print_error, program};
use crate::a2a::{AgentCard, SchemeKind, SecurityScheme};
use crate::agents::{Directory, ResolvedAgent};
use crate::config::{Agent, Settings};
use crate::discovery::tools_of_cards;
use crate::telemetry::log::is_hidden;
use crate::telemetry::metrics::Metrics;
use crate::tls::install_provider;
use crate::transport::{ClientLimits, HttpClient};

/// The longest wait for the first byte of a card.
const CARD_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum length of the name of an agent.
const MAX_NAME_CHARS: usize = 32;
/// The maximum length of a text of a card in a comment, in characters.
const MAX_COMMENT_CHARS: usize = 160;
/// The name of an agent with a card that has no usable one.
const FALLBACK_NAME: &str = "agent";

/// The arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct InitArguments {
    /// The URLs of the cards, or the base URLs of the agents.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// The file to write; - is standard output.
    #[arg(long, value_name = "FILE", default_value = "gateway.yaml")]
    output: PathBuf,
    /// Write over a file that exists.
    #[arg(long)]
    force: bool,
    /// Leave out the agents without a usable card, instead of writing nothing.
    #[arg(long)]
    keep_going: bool,
}

/// An agent of the new configuration.
struct NewAgent {
    agent: Agent,
    url: String,
    known: Arc<ResolvedAgent>,
    /// The credentials that the card demands, in words.
    demands: Vec<String>,
}

pub(super) fn run(arguments: &InitArguments) -> ExitCode {
    install_provider();
    let is_printed = arguments.output == Path::new("-");
    if !is_printed && !arguments.force && arguments.output.exists() {
        return failed(&format!("{} exists (write over it with --force)", arguments.output.display()));
    }
    let mut seen = BTreeSet::new();
    let urls: Vec<&String> = arguments.urls.iter().filter(|url| seen.insert(*url)).collect();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    let mut names = BTreeSet::new();
    let (mut agents, mut problems) = (Vec::new(), 0_usize);
    for url in urls {
        match runtime.block_on(fetch(url, &mut names)) {
            Ok(agent) => agents.push(agent),
            Err(problem) => {
                print_error(&format!("{url}: {problem}"));
                problems += 1;
            }
        }
    }
    if agents.is_empty() || (problems > 0 && !arguments.keep_going) {
        return failed("nothing was written");
    }
    let text = configuration(&agents);
    if is_printed {
        return print_bytes(text.as_bytes());
    }
    if let Err(error) = write(arguments, &text) {
        return failed(&format!("{}: {error}", arguments.output.display()));
    }
    let (file, program) = (arguments.output.display(), program());
    print_error(&format!("{file}: {}. Next:", counted(agents.len(), "agent")));
    print_error(&format!("  {program} check --config {file}\n  {program} serve --config {file}"));
    ExitCode::SUCCESS
}

fn write(arguments: &InitArguments, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    match arguments.force {
        true => options.create(true).truncate(true),
        // The file may have appeared meanwhile.
        false => options.create_new(true),
    };
    options.write(true).open(&arguments.output)?.write_all(text.as_bytes())
}

/// Fetches a card, and gives its agent a name that no other has.
async fn fetch(url: &str, names: &mut BTreeSet<String>) -> Result<NewAgent, String> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("is not the URL of a card or an agent (write http:// or https://)".to_owned());
    }
    let mut agent = Agent::new(FALLBACK_NAME, url);
    agent.timeouts.first_byte = CARD_TIMEOUT;
    let metrics = Metrics::new().map_err(|error| error.to_string())?;
    let client = HttpClient::new(ClientLimits::default());
    let directory = Directory::new(&Settings::new(vec![agent.clone()]), client, &metrics);
    let directory = directory.map_err(|problem| problem.to_string())?;
    let found = directory.agents().first().ok_or("no agent")?;
    directory.refresh_once(found).await.map_err(|problem| problem.to_string())?;
    let known = found.known().ok_or("no card")?;
    let demands = found.credential_problems(&known.card);
    agent.name = unique_name(&known.card.name, names);
    names.insert(agent.name.clone());
    Ok(NewAgent { agent, url: url.to_owned(), known, demands })
}

/// Returns the name of a card in the form of the configuration, with a number if it is taken.
fn unique_name(title: &str, taken: &BTreeSet<String>) -> String {
    let mut name = String::new();
    for c in title.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let shortened = |most: usize| {
        let short: String = name.chars().take(most).collect();
        let short = short.trim_matches('-').to_owned();
        if short.is_empty() { FALLBACK_NAME.to_owned() } else { short }
    };
    let whole = shortened(MAX_NAME_CHARS);
    let numbered = (2..).map(|number: usize| {
        let suffix = format!("-{number}");
        format!("{}{suffix}", shortened(MAX_NAME_CHARS.saturating_sub(suffix.len())))
    });
    std::iter::once(whole).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Returns the text of the configuration.
fn configuration(agents: &[NewAgent]) -> String {
    let mut text = String::from(
        "# Written by mcp-a2a-gateway init. `mcp-a2a-gateway check` reports every problem of this file,\n\
         # `mcp-a2a-gateway schema` prints its JSON Schema for editors.\n\
         listeners:\n  - address: 127.0.0.1:8080        # MCP clients: http://127.0.0.1:8080/mcp\n\
         admin:\n  address: 127.0.0.1:9090          # health, metrics\nagents:\n",
    );
    let cards: Vec<(Agent, Arc<AgentCard>)> =
        agents.iter().map(|new| (new.agent.clone(), new.known.card.clone())).collect();
    let catalogue = tools_of_cards(&cards);
    for new in agents {
        let tools = catalogue.all().of_agents().filter(|tool| *tool.agent == *new.agent.name);
        let tools = tools.map(|tool| (tool.skill.as_deref().unwrap_or_default(), tool.name.as_str()));
        // Writing into a string cannot fail.
        write_agent(&mut text, new, tools).unwrap_or_default();
    }
    text + "log: { format: text }\n"
}

fn write_agent<'t>(
    text: &mut String,
    new: &NewAgent,
    tools: impl Iterator<Item = (&'t str, &'t str)>,
) -> std::fmt::Result {
    let card = &new.known.card;
    let interface = &new.known.interface;
    let streams = if card.streaming { ", streaming" } else { "" };
    writeln!(text, "  # {}", comment(&format!("{} {}: {}", card.name, card.version, card.description)))?;
    writeln!(text, "  # A2A {}, {}{streams}", interface.version_name(), interface.binding.name())?;
    writeln!(text, "  {}:", new.agent.name)?;
    // A JSON string is one of YAML.
    writeln!(text, "    card: {}", serde_json::Value::from(new.url.as_str()))?;
    writeln!(text, "    # Skills, each with its tool:")?;
    for (id, tool) in tools {
        let skill = card.skills.iter().find(|skill| skill.id == id);
        let about = skill.map_or(card.description.as_str(), |skill| skill.description.as_str());
        writeln!(text, "    #   {} -> {tool}: {}", comment(id), comment(about))?;
    }
    for problem in &card.problems {
        writeln!(text, "    # The card is incorrect: {}", comment(problem))?;
    }
    write_credentials(text, new)
}

/// Writes the credentials that the card demands as comments.
fn write_credentials(text: &mut String, new: &NewAgent) -> std::fmt::Result {
    let card = &new.known.card;
    if new.demands.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "    # The agent needs credentials; calls fail without them. Remove `# ` before those of one"
    )?;
    writeln!(text, "    # line below, and set the variables:")?;
    for demand in &new.demands {
        writeln!(text, "    #   {}", comment(demand))?;
    }
    let variable = new.agent.name.to_ascii_uppercase().replace('-', "_");
    let of_skills = card.skills.iter().flat_map(|skill| &skill.security);
    let named: BTreeSet<&str> = card
        .security
        .iter()
        .chain(of_skills)
        .flat_map(|requirement| &requirement.schemes)
        .map(|(name, _)| name.as_str())
        .collect();
    for scheme in card.security_schemes.iter().filter(|scheme| named.contains(scheme.name.as_str())) {
        for line in credential_lines(scheme, &variable) {
            writeln!(text, "    # {line}")?;
        }
    }
    Ok(())
}

/// Returns the keys of the configuration for a scheme; none for one that is not supported.
fn credential_lines(scheme: &SecurityScheme, variable: &str) -> Vec<String> {
    let line = match &scheme.kind {
        SchemeKind::ApiKey { .. } => {
            let name = serde_json::Value::from(scheme.name.as_str());
            format!("auth: {{ api_key: {{ value: \"${{env:{variable}_KEY}}\", scheme: {name} }} }}")
        }
        SchemeKind::Http { scheme } if scheme == "basic" => {
            format!("auth: {{ basic: {{ user: gateway, password: \"${{env:{variable}_PASSWORD}}\" }} }}")
        }
        SchemeKind::Http { scheme } if scheme == "bearer" => {
            format!("auth: {{ bearer: \"${{env:{variable}_TOKEN}}\" }}")
        }
        SchemeKind::OAuth2 | SchemeKind::OpenIdConnect => format!(
            "auth: {{ oauth2: {{ token_url: \"https://login.example.com/token\", client_id: gateway, client_secret: \
             \"${{env:{variable}_CLIENT_SECRET}}\" }} }}"
        ),
        SchemeKind::MutualTls => "tls: { certificate: client.crt, key: client.key }".to_owned(),
        SchemeKind::Http { .. } | SchemeKind::Unknown(_) => return Vec::new(),
    };
    vec![line]
}

/// Returns a text of a card for a comment: one line without hidden characters.
fn comment(text: &str) -> String {
    let visible = text.chars().map(|c| if is_hidden(c) { ' ' } else { c });
    let words = visible.collect::<String>();
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_COMMENT_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cards_become_keys() {
        let mut taken = BTreeSet::new();
        for (title, name) in [
            ("Demo Agent", "demo-agent"),
            ("demo  agent!", "demo-agent-2"),
            ("-- Ünïcode --", "n-code"),
            ("", "agent"),
            ("日本", "agent-2"),
            ("a name that is far too long for a key", "a-name-that-is-far-too-long-for"),
            ("a name that is far too long for a thing", "a-name-that-is-far-too-long-fo-2"),
        ] {
            let given = unique_name(title, &taken);
            assert_eq!(given, name, "{title}");
            assert!(given.len() <= MAX_NAME_CHARS);
            taken.insert(given);
        }
    }

    #[test]
    fn comment_is_one_line() {
        assert_eq!(comment("a\nlisteners: []\u{2028}\u{202e}b\r\u{85}c"), "a listeners: [] b c");
        assert_eq!(comment(&"x".repeat(500)).chars().count(), MAX_COMMENT_CHARS + 1);
    }
}
