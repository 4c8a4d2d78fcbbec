//! Search for agents by their abilities: index, ranking, and visibility to a caller.
//!
//! Pure. The searched text is written once per catalogue, in lower case and bounded; a search
//! compares a few words with it. A skill that is hidden from a caller does not match for that
//! caller. The tool `find_agent` is in `tool`, the list of agents and the API catalog in
//! `documents`. Out of scope: authorization.

pub(crate) mod documents;
#[cfg(test)]
mod tests;
pub(crate) mod tool;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::response_mode::ToolPlan;
use crate::a2a::{AgentCard, AgentSkill};

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

/// The name of a tool of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentToolName<'a> {
    /// The agent's name in the configuration.
    pub(super) agent: &'a str,
    /// The id of the skill; `None` if the tool stands for the whole agent.
    pub(super) skill: Option<&'a str>,
    /// The name of the tool.
    pub(super) tool: &'a str,
}

impl AgentIndex {
    /// Builds the index of the agents; `names` are the names of their tools.
    pub(super) fn build<'a>(
        agents: &[(ToolPlan, Arc<AgentCard>)],
        names: impl Iterator<Item = AgentToolName<'a>>,
    ) -> Self {
        let tools: HashMap<(&str, Option<&str>), &str> =
            names.map(|name| ((name.agent, name.skill), name.tool)).collect();
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
                Some(profile) => matches(query, name, profile, |tool| may(name, tool)),
                None => match_by_name(query, name).filter(|_| may(name, None)),
            })
            .collect();
        found.sort_by_key(|found| (Reverse(found.score), found.name));
        found
    }
}

fn matches<'i>(
    query: &AgentQuery,
    name: &'i str,
    profile: &'i AgentProfile,
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

/// Maximum length of a text in a query, in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 256;
/// Maximum number of words. So many matches of one kind count less than one match of the next kind.
const MOST_WORDS: usize = 8;

/// A query, in lower case. An empty one matches all agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentQuery {
    whole: String,
    words: Vec<String>,
    skill: Option<String>,
    tag: Option<String>,
}

/// The reason why a query is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// A text is longer than [`MAX_QUERY_BYTES`].
    #[error("a text to look for has at most {MAX_QUERY_BYTES} bytes")]
    TooLong,
    /// The query has too many words.
    #[error("at most {MOST_WORDS} words can be looked for at once: use fewer")]
    TooMany,
}

impl AgentQuery {
    /// Creates a query for agents in which all words of `text` occur, with a skill that has `skill`
    /// in its name or id, and this tag.
    ///
    /// # Errors
    ///
    /// [`BadQuery`] if the query exceeds a limit.
    pub fn new(text: &str, skill: Option<&str>, tag: Option<&str>) -> Result<Self, BadQuery> {
        if [Some(text), skill, tag].into_iter().flatten().any(|text| text.len() > MAX_QUERY_BYTES) {
            return Err(BadQuery::TooLong);
        }
        let whole = lowercased(text);
        let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_owned();
        let words: Vec<String> = whole.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
        if words.len() > MOST_WORDS {
            return Err(BadQuery::TooMany);
        }
        let wanted = |text: Option<&str>| text.map(lowercased).filter(|text| !text.is_empty());
        Ok(Self { whole, words, skill: wanted(skill), tag: wanted(tag) })
    }

    /// Returns the words that must all occur.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns the whole query as one text.
    pub(super) fn whole(&self) -> &str {
        &self.whole
    }

    /// Returns true if the query names a skill, so that agents without one do not match.
    pub(super) fn names_skill(&self) -> bool {
        self.skill.is_some() || self.tag.is_some()
    }

    /// Returns true if a skill matches the query's skill and tag.
    pub(super) fn matches_skill(&self, text: &FoldedText) -> bool {
        self.skill.as_ref().is_none_or(|skill| text.name_matches(skill))
            && self.tag.as_ref().is_none_or(|tag| text.has_tag(tag))
    }
}

/// Searched length of a description, in bytes.
const SEARCHED: usize = 1024;
/// Maximum number of tags per skill that are searched and shown.
const MOST_TAGS: usize = 16;

/// An agent's description of itself.
#[derive(Debug)]
pub struct AgentProfile {
    /// The agent's name on its card.
    pub title: String,
    /// The agent's description.
    pub description: String,
    pub(super) skills: Vec<SkillProfile>,
    /// The one tool of the agent, if its skills have none of their own.
    pub(super) tool: Option<String>,
    pub(super) text: FoldedText,
}

/// One skill of an agent.
#[derive(Debug)]
pub struct SkillProfile {
    /// Id on the card.
    pub id: String,
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// The skill's tool in the catalogue of all agents, if there is one.
    pub tool: Option<String>,
    is_called_alone: bool,
    pub(super) text: FoldedText,
}

impl SkillProfile {
    fn new(skill: &AgentSkill, description: &str, tool: Option<&str>, is_called_alone: bool) -> Self {
        let tags: Vec<String> = skill.tags.iter().take(MOST_TAGS).cloned().collect();
        let text = FoldedText::new(&[&skill.id, &skill.name, tool.unwrap_or_default()], &tags, description);
        Self {
            id: skill.id.clone(),
            name: skill.name.clone(),
            description: description.to_owned(),
            tags,
            tool: tool.map(str::to_owned),
            is_called_alone,
            text,
        }
    }

    /// Returns the names used in rules: the id of the skill, which the one tool of a whole agent
    /// does not have, and the name of the tool.
    pub(super) fn names(&self) -> (&str, &str) {
        let id = if self.is_called_alone { self.id.as_str() } else { "" };
        (id, self.tool.as_deref().unwrap_or_default())
    }
}

impl AgentProfile {
    /// Creates the profile; `tool` returns the name of the tool of a skill, or of the whole agent.
    pub(super) fn new<'t>(
        plan: &ToolPlan,
        card: &AgentCard,
        tool: impl Fn(Option<&str>) -> Option<&'t str>,
    ) -> Self {
        let whole = tool(None);
        let skills = card.skills.iter().filter_map(|skill| {
            let plan = plan.skills.get(&skill.id);
            if plan.is_some_and(|plan| plan.hidden) {
                return None;
            }
            let description = plan.and_then(|plan| plan.description.as_deref());
            let description = description.unwrap_or(&skill.description);
            let own = tool(Some(&skill.id));
            Some(SkillProfile::new(skill, description, own.or(whole), whole.is_none()))
        });
        let description = plan.description.as_deref().unwrap_or(&card.description);
        Self {
            title: card.name.clone(),
            description: description.to_owned(),
            skills: skills.collect(),
            tool: whole.map(str::to_owned),
            text: FoldedText::new(&[&plan.agent, &card.name], &[], description),
        }
    }
}

/// Searchable text, in lower case.
#[derive(Debug)]
pub(super) struct FoldedText {
    names: Vec<String>,
    tags: Vec<String>,
    prose: String,
}

impl FoldedText {
    fn new(names: &[&str], tags: &[String], description: &str) -> Self {
        let end = description.floor_char_boundary(SEARCHED);
        Self {
            names: names.iter().filter(|name| !name.is_empty()).map(|name| lowercased(name)).collect(),
            tags: tags.iter().map(|tag| lowercased(tag)).collect(),
            prose: lowercased(description.get(..end).unwrap_or_default()),
        }
    }

    /// Returns the text of an agent of which only the name is known.
    pub(super) fn of_name(name: &str) -> Self {
        Self::new(&[name], &[], "")
    }

    /// Returns the score of one word of a query; 0 if it does not occur.
    pub(super) fn score(&self, query: &AgentQuery, word: &str) -> u32 {
        let is = |text: &String| text == word || text == query.whole();
        if self.names.iter().any(is) {
            return 1000;
        }
        if self.tags.iter().any(|tag| is(tag) || pieces(tag).any(|piece| piece == word)) {
            return 100;
        }
        if self.names.iter().any(|name| pieces(name).any(|piece| piece.starts_with(word))) {
            return 10;
        }
        let occurs = |text: &String| text.contains(word);
        u32::from(occurs(&self.prose) || self.names.iter().any(occurs) || self.tags.iter().any(occurs))
    }

    /// Returns true if a name or an id contains `part`.
    pub(super) fn name_matches(&self, part: &str) -> bool {
        self.names.iter().any(|name| name.contains(part))
    }

    /// Returns true if `wanted` is one of the tags.
    pub(super) fn has_tag(&self, wanted: &str) -> bool {
        self.tags.iter().any(|tag| tag == wanted)
    }
}

/// Returns text in the form in which it is compared.
pub(super) fn lowercased(text: &str) -> String {
    text.trim().to_lowercase()
}

/// Returns the words of a text; an id is split too.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|piece| !piece.is_empty())
}
