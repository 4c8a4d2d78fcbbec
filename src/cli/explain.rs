//! `check --as`: evaluates the rules for a caller, without running anything.
//!
//! See also `auth` for the rules.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{print_error, print_line};
use crate::a2a::translate::Operation;
use crate::auth::{Action, Caller, PolicyDecision, Rules};
use crate::bridge::task_tools::TaskTool;
use crate::config::{Settings, check_spiffe_id, is_spiffe_uri};

/// A caller, and the action that it wants.
#[derive(Debug, Args)]
pub(super) struct AccessQuery {
    /// Ask what this caller may do, by its name in the rules: key:NAME, token:ISSUER#SUBJECT,
    /// client:ISSUER#CLIENT_ID, uri:URI, dns:NAME, cn:NAME, local, anonymous.
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// A scope of its token; can be given several times.
    #[arg(long, requires = "caller")]
    scope: Vec<String>,
    /// A group of its token; can be given several times.
    #[arg(long, requires = "caller")]
    group: Vec<String>,
    /// The method that it wants to use: of MCP, or of A2A by its name in 1.0. Without it the agents that it sees are listed.
    #[arg(long, value_name = "METHOD", requires = "caller")]
    may: Option<String>,
    /// The agent that it is about.
    #[arg(long, requires = "may")]
    agent: Option<String>,
    /// The skill, by its id or the name of its tool.
    #[arg(long, requires = "may")]
    tool: Option<String>,
    /// The URI of the resource.
    #[arg(long, requires = "may")]
    resource: Option<String>,
}

impl AccessQuery {
    /// Returns true if the command line contains a query.
    pub(super) fn is_there(&self) -> bool {
        self.caller.is_some()
    }

    /// Prints the decision. Fails if the caller is not allowed to do the action.
    pub(super) fn answer(&self, settings: &Settings, as_json: bool) -> ExitCode {
        let name = self.caller.as_deref().unwrap_or("anonymous");
        if let Some(problem) = unnameable(name) {
            print_error(&format!("--as: {problem}"));
            return ExitCode::FAILURE;
        }
        let caller = Caller::hypothetical(name, self.scope.clone(), self.group.clone());
        let rules = Rules::new(settings.rules.clone());
        let Some(method) = self.may.as_deref() else {
            let all = settings.agents.iter().map(|agent| agent.name.as_str());
            let seen: Vec<&str> = all.filter(|agent| rules.sees(&caller, agent)).collect();
            return list(name, &seen, as_json);
        };
        if let Some(agent) = self.agent.as_deref()
            && !settings.agents.iter().any(|known| known.name == agent)
        {
            print_error(&format!("--agent: there is no agent {agent:?} in this configuration"));
            return ExitCode::FAILURE;
        }
        let tool = self.tool.as_deref().map(|tool| (tool, tool));
        let wanted =
            Action { method, agent: self.agent.as_deref(), tool, resource: self.resource.as_deref() };
        let verdict = judged(&rules, &caller, &wanted);
        if as_json {
            print_line(&written(&verdict).to_string());
        } else {
            print_line(&format!("{name}: {}", words(&verdict)));
        }
        if verdict.is_allowed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Evaluates an action as the gateway does: a message that names no skill is one to the agent as a
/// whole.
fn judged<'r>(rules: &'r Rules, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'r> {
    let is_message = [Operation::Send, Operation::Stream].map(Operation::as_str).contains(&wanted.method);
    match (wanted.agent, wanted.tool) {
        (Some(agent), None) if is_message => rules.evaluate_any(caller, wanted.method, agent),
        (_, Some((tool, _))) if tool == TaskTool::Start.name() => rules.judge_skilless(caller, wanted),
        _ => rules.evaluate(caller, wanted),
    }
}

/// Returns the reason for which no client can have this name.
fn unnameable(name: &str) -> Option<String> {
    let uris = name.split(" & ").filter_map(|part| part.strip_prefix("uri:"));
    uris.filter(|uri| is_spiffe_uri(uri)).find_map(|uri| {
        let error = check_spiffe_id(uri).err()?;
        Some(format!("{uri:?} is not a SPIFFE id: {error}"))
    })
}

fn list(name: &str, seen: &[&str], as_json: bool) -> ExitCode {
    if as_json {
        print_line(&json!({ "caller": name, "agents": seen }).to_string());
    } else {
        let seen = if seen.is_empty() { "no agent".to_owned() } else { seen.join(", ") };
        print_line(&format!("{name} sees {seen}"));
    }
    ExitCode::SUCCESS
}

fn words(verdict: &PolicyDecision<'_>) -> String {
    match verdict {
        PolicyDecision::Allowed(None) => "allowed: there are no rules".to_owned(),
        PolicyDecision::Allowed(Some(rule)) => format!("allowed by rule {rule}"),
        PolicyDecision::Refused(None) => "refused: no rule allows it".to_owned(),
        PolicyDecision::Refused(Some(rule)) => format!("refused by rule {rule}"),
        PolicyDecision::ScopesNeeded(rule, scopes) => {
            format!("refused: rule {rule} would allow it with the scopes {}", scopes.join(" "))
        }
    }
}

fn written(verdict: &PolicyDecision<'_>) -> serde_json::Value {
    let (rule, scopes) = match verdict {
        PolicyDecision::Allowed(rule) | PolicyDecision::Refused(rule) => (*rule, None),
        PolicyDecision::ScopesNeeded(rule, scopes) => (Some(*rule), Some(scopes)),
    };
    json!({ "allowed": verdict.is_allowed(), "rule": rule, "scopesNeeded": scopes })
}
