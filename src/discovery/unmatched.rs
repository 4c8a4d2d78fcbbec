//! Settings that fit nothing: a skill, a rule, a tool or a phase that no card has.
//!
//! Such a setting is no problem: a card may change. It is a warning, because a rule or a `hidden`
//! without effect protects nothing. Only agents with a known card are judged.

use std::collections::HashMap;
use std::sync::Arc;

use super::tools_of_cards;
use crate::a2a::AgentCard;
use crate::agents::{self, Directory, ResolvedAgent};
use crate::auth::fits_pattern;
use crate::bridge::provider_tools::ProviderTool;
use crate::bridge::search::tool as find_agent;
use crate::bridge::task_tools::TaskTool;
use crate::config::{Agent, Problem, Rule, Settings, SkillOverride};

/// Most ids of skills in one warning.
const MAX_NAMED_SKILLS: usize = 10;

/// Returns a warning for each setting that fits nothing on the cards that are known. A rule or a
/// phase is judged once the cards of all agents that it is about are known.
pub(crate) fn unmatched_settings(settings: &Settings, directory: &Directory) -> Vec<Problem> {
    let tools = match settings.rules.iter().any(|rule| rule.tools.is_some()) {
        true => tools_by_agent(directory),
        false => HashMap::new(),
    };
    let known = |agent: &Arc<agents::Agent>| (agent.clone(), agent.known());
    let known: Vec<_> = directory.agents().iter().map(known).collect();
    let agents: Vec<KnownAgent<'_>> = known
        .iter()
        .map(|(agent, card)| KnownAgent {
            settings: &agent.settings,
            card: card.as_ref(),
            tools: tools.get(&agent.settings.name).map_or(&[], Vec::as_slice),
        })
        .collect();
    let of_agents = agents.iter().flat_map(|agent| {
        agent.card.map(|card| unmatched_skills(agent.settings, &card.card)).unwrap_or_default()
    });
    let mut warnings: Vec<Problem> = of_agents.collect();
    for (index, rule) in settings.rules.iter().enumerate() {
        warnings.extend(unmatched_tools(index, rule, &agents));
    }
    let phases = settings.resources.sparc.iter().flat_map(|sparc| &sparc.phases);
    for (phase, patterns) in phases {
        let at = format!("resources.sparc.phases.{phase}");
        let fits = |pattern: &String| agents.iter().any(|agent| agent.has_skill(pattern));
        let about: Vec<&KnownAgent<'_>> = agents.iter().collect();
        warnings.extend(unmatched(&at, patterns, &about, fits, "fits no skill of any agent"));
    }
    warnings
}

/// Returns a warning for each key of `skills` of an agent that is no skill on its card.
pub(crate) fn unmatched_skills(agent: &Agent, card: &AgentCard) -> Vec<Problem> {
    let unknown = agent.skills.iter().filter(|(id, _)| !card.skills.iter().any(|skill| skill.id == **id));
    let warning = |(id, skill): (&String, &SkillOverride)| {
        let known: Vec<&str> =
            card.skills.iter().take(MAX_NAMED_SKILLS).map(|skill| skill.id.as_str()).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
        let effect = if skill.hidden { "hides nothing" } else { "has no effect" };
        let problem = format!("{effect}: the card has no skill of this id (its skills: {known})");
        Problem { file: None, line: None, at: format!("agents.{}.skills.{id}", agent.name), problem }
    };
    unknown.map(warning).collect()
}

/// Returns the names of the tools of each agent with a known card, on `/mcp` and on `/mcp/AGENT`.
fn tools_by_agent(directory: &Directory) -> HashMap<String, Vec<String>> {
    let known = directory.agents().iter().filter_map(|agent| Some((agent, agent.known()?)));
    let cards: Vec<_> = known.map(|(agent, known)| (agent.settings.clone(), known.card.clone())).collect();
    let catalogue = tools_of_cards(&cards);
    let alone = cards.iter().flat_map(|(agent, _)| catalogue.of(&agent.name).of_agents());
    let mut tools: HashMap<String, Vec<String>> = HashMap::new();
    for tool in catalogue.all().of_agents().chain(alone) {
        tools.entry(tool.agent.to_string()).or_default().push(tool.name.clone());
    }
    tools
}

/// An agent of the directory, with its card as it is known now.
struct KnownAgent<'a> {
    settings: &'a Agent,
    card: Option<&'a Arc<ResolvedAgent>>,
    /// The names of its tools.
    tools: &'a [String],
}

impl KnownAgent<'_> {
    fn has_skill(&self, pattern: &str) -> bool {
        let skills = self.card.iter().flat_map(|known| &known.card.skills);
        skills.into_iter().any(|skill| fits_pattern(pattern, &skill.id))
    }

    fn has_tool(&self, pattern: &str) -> bool {
        self.has_skill(pattern) || self.tools.iter().any(|tool| fits_pattern(pattern, tool))
    }
}

/// Returns the warnings for the tools of a rule.
fn unmatched_tools(index: usize, rule: &Rule, agents: &[KnownAgent<'_>]) -> Vec<Problem> {
    let Some(patterns) = &rule.tools else { return Vec::new() };
    let is_about = |agent: &&KnownAgent<'_>| {
        let fits = |named: &Vec<String>| named.iter().any(|one| fits_pattern(one, &agent.settings.name));
        rule.agents.as_ref().is_none_or(fits)
    };
    let about: Vec<&KnownAgent<'_>> = agents.iter().filter(is_about).collect();
    let is_builtin = |pattern: &String| {
        let of_tasks = TaskTool::ALL.into_iter().map(TaskTool::name);
        let provided = ProviderTool::MEMORY.into_iter().chain(ProviderTool::BATCH).map(ProviderTool::name);
        of_tasks.chain(provided).chain([find_agent::NAME]).any(|name| fits_pattern(pattern, name))
    };
    let fits = |pattern: &String| is_builtin(pattern) || about.iter().any(|agent| agent.has_tool(pattern));
    let problem = match rule.deny {
        true => "fits no skill and no tool of these agents: it denies nothing",
        false => "fits no skill and no tool of these agents: it allows nothing",
    };
    unmatched(&format!("rules[{index}].tools"), patterns, &about, fits, problem)
}

/// Returns a warning for each pattern that fits nothing; none while an agent that it is about has no
/// card, or is not there yet: sources may add it.
fn unmatched(
    at: &str,
    patterns: &[String],
    about: &[&KnownAgent<'_>],
    fits: impl Fn(&String) -> bool,
    problem: &str,
) -> Vec<Problem> {
    if about.is_empty() || about.iter().any(|agent| agent.card.is_none()) {
        return Vec::new();
    }
    let idle = patterns.iter().filter(|pattern| !fits(pattern));
    let warning = |pattern: &String| {
        let problem = format!("{pattern:?} {problem}");
        Problem { file: None, line: None, at: at.to_owned(), problem }
    };
    idle.map(warning).collect()
}
