//! Finding agents by what they can do: what is searched, how it is ranked, what of it a caller may see.
//!
//! Pure. What is searched is written once a catalogue, in small letters and bounded; a search compares a few words with it. A skill
//! that is not shown to a caller finds nothing for it. Not here: the tool `find_agent` (see `tool`), the list of agents and the
//! API catalog (see `listing`), who may see what.

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

/// The agents whose cards are known, ready to be searched.
#[derive(Debug, Default)]
pub struct AgentIndex {
    profiles: HashMap<String, AgentProfile>,
}

/// An agent that fits.
#[derive(Debug)]
pub struct AgentMatch<'i> {
    /// Its name here.
    pub name: &'i str,
    /// What it says of itself; `None` until its card has been seen.
    pub profile: Option<&'i AgentProfile>,
    /// Those of its skills that fit and are shown, the best first.
    pub skills: Vec<&'i SkillProfile>,
    /// How well it fits: a word that is a name or an id counts a thousand, one in a tag a hundred, one that begins a word of a
    /// name ten, one anywhere else one. Zero where nothing was asked for.
    pub score: u32,
}

impl AgentIndex {
    /// Writes down what is searched; `all` knows the names of the tools.
    pub(super) fn build(agents: &[(ToolPlan, Arc<AgentCard>)], all: &CatalogueView) -> Self {
        let tools: HashMap<(&str, Option<&str>), &str> =
            all.of_agents().map(|tool| ((&*tool.agent, tool.skill.as_deref()), tool.name.as_str())).collect();
        let profiles = agents.iter().map(|(plan, card)| {
            let tool = |skill: Option<&str>| tools.get(&(plan.agent.as_str(), skill)).copied();
            (plan.agent.clone(), AgentProfile::new(plan, card, tool))
        });
        Self { profiles: profiles.collect() }
    }

    /// Those of `agents` that fit, the best first, and of the same worth by name. `may` says whether a tool of an agent may be used,
    /// by what rules know it by: the id of the skill and the name of its tool; or the agent as a whole. An agent of which nothing may
    /// be used is not found.
    pub fn search<'i>(
        &'i self,
        query: &AgentQuery,
        agents: impl Iterator<Item = &'i str>,
        may: impl Fn(&str, Option<(&str, &str)>) -> bool,
    ) -> Vec<AgentMatch<'i>> {
        let mut found: Vec<AgentMatch<'i>> = agents
            .filter_map(|name| match self.profiles.get(name) {
                Some(profile) => matches(query, (name, profile), |tool| may(name, tool)),
                None => hidden_skills(query, name).filter(|_| may(name, None)),
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
        .filter(|skill| query.filters_skill(&skill.text))
        .map(|skill| (Reverse(worth(skill)), *skill))
        .collect();
    if query.names_skill() && skills.is_empty() {
        return None;
    }
    // Stable: what is of the same worth stays in the card's order.
    skills.sort_by_key(|(worth, _)| *worth);
    let skills = skills.into_iter().map(|(_, skill)| skill).collect();
    Some(AgentMatch { name, profile: Some(profile), skills, score })
}

/// An agent of which nothing but its name is known.
fn hidden_skills<'i>(query: &AgentQuery, name: &'i str) -> Option<AgentMatch<'i>> {
    let text = FoldedText::of_name(name);
    let score = score(query, || std::iter::once(&text)).filter(|_| !query.names_skill())?;
    Some(AgentMatch { name, profile: None, skills: Vec::new(), score })
}

/// The worth of all words together; `None` if one of them is nowhere.
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
