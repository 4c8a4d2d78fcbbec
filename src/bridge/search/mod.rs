//! Search for agents by their abilities: index, ranking, and visibility to a caller.
//!
//! Pure. The searched text is written once per catalogue, in lower case and bounded; a search
//! compares a few words with it. A skill that is hidden from a caller does not match for that
//! caller. The tool `find_agent` is in `tool`, the list of agents and the API catalog in
//! `documents`. Out of scope: authorization.

pub mod documents;
mod profile;
mod query;
pub mod tool;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::catalogue::{CatalogueView, ToolPlan};
use crate::a2a::AgentCard;
use profile::FoldedText;
pub use profile::{AgentProfile, SkillProfile};
pub use query::{AgentQuery, BadQuery, MAX_QUERY_BYTES};

/// The agents with known cards, ready to be searched.
#[derive(Debug, Default)]
pub struct AgentIndex {
    profiles: HashMap<String, AgentProfile>,
}

/// A matching agent.
#[derive(Debug)]
pub struct AgentMatch<'i> {
    /// The agent's name in the configuration.
    pub name: &'i str,
    /// The agent's description of itself; `None` until its card has been seen.
    pub profile: Option<&'i AgentProfile>,
    /// The visible skills that match, the best first.
    pub skills: Vec<&'i SkillProfile>,
    /// The score: a word that is a name or an id counts 1000, one in a tag 100, one that begins a
    /// word of a name 10, one anywhere else 1. Zero for an empty query.
    pub score: u32,
}

impl AgentIndex {
    /// Builds the index; `all` contains the names of the tools.
    pub(super) fn build(agents: &[(ToolPlan, Arc<AgentCard>)], all: &CatalogueView) -> Self {
        let tools: HashMap<(&str, Option<&str>), &str> =
            all.of_agents().map(|tool| ((&*tool.agent, tool.skill.as_deref()), tool.name.as_str())).collect();
        let profiles = agents.iter().map(|(plan, card)| {
            let tool = |skill: Option<&str>| tools.get(&(plan.agent.as_str(), skill)).copied();
            (plan.agent.clone(), AgentProfile::new(plan, card, tool))
        });
        Self { profiles: profiles.collect() }
    }

    /// Returns the matching ones of `agents`, the best first, and by name within equal scores.
    /// `may` returns true if the caller may use a tool of an agent, by its names in the rules: the
    /// id of the skill and the name of its tool; or the agent as a whole. An agent without any
    /// usable tool does not match.
    pub fn search<'i>(
        &'i self,
        query: &AgentQuery,
        agents: impl Iterator<Item = &'i str>,
        may: impl Fn(&str, Option<(&str, &str)>) -> bool,
    ) -> Vec<AgentMatch<'i>> {
        let mut found: Vec<AgentMatch<'i>> = agents
            .filter_map(|name| match self.profiles.get(name) {
                Some(profile) => matches(query, (name, profile), |tool| may(name, tool)),
                None => match_by_name(query, name).filter(|_| may(name, None)),
            })
            .collect();
        found.sort_by_key(|found| (Reverse(found.score), found.name));
        found
    }
}

fn matches<'i>(
    query: &AgentQuery,
    (name, profile): (&'i str, &'i AgentProfile),
    may: impl Fn(Option<(&str, &str)>) -> bool,
) -> Option<AgentMatch<'i>> {
    let shown: Vec<&SkillProfile> = profile.skills.iter().filter(|skill| may(Some(skill.names()))).collect();
    if shown.is_empty() && !may(profile.tool.as_deref().map(|tool| ("", tool))) && !may(None) {
        return None;
    }
    let texts = || std::iter::once(&profile.text).chain(shown.iter().map(|skill| &skill.text));
    let score = score(query, texts)?;
    let worth = |skill: &SkillProfile| query.words().map(|word| skill.text.score(query, word)).sum::<u32>();
    let mut skills: Vec<(Reverse<u32>, &SkillProfile)> = shown
        .iter()
        .filter(|skill| query.matches_skill(&skill.text))
        .map(|skill| (Reverse(worth(skill)), *skill))
        .collect();
    if query.names_skill() && skills.is_empty() {
        return None;
    }
    // Stable: equal scores keep the order of the card.
    skills.sort_by_key(|(worth, _)| *worth);
    let skills = skills.into_iter().map(|(_, skill)| skill).collect();
    Some(AgentMatch { name, profile: Some(profile), skills, score })
}

/// Matches an agent of which only the name is known.
fn match_by_name<'i>(query: &AgentQuery, name: &'i str) -> Option<AgentMatch<'i>> {
    let text = FoldedText::of_name(name);
    let score = score(query, || std::iter::once(&text)).filter(|_| !query.names_skill())?;
    Some(AgentMatch { name, profile: None, skills: Vec::new(), score })
}

/// Returns the score of all words together; `None` if one of them does not occur.
fn score<'t, T: Iterator<Item = &'t FoldedText>>(query: &AgentQuery, texts: impl Fn() -> T) -> Option<u32> {
    let mut sum = 0;
    for word in query.words() {
        let best = texts().map(|text| text.score(query, word)).max().filter(|best| *best > 0)?;
        sum += best;
    }
    Some(sum)
}

#[cfg(test)]
mod tests;
