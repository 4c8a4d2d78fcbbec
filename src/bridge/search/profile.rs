//! The searched text of an agent, and the data shown in a match.

use super::super::catalogue::ToolPlan;
use super::query::AgentQuery;
use crate::a2a::{AgentCard, AgentSkill};

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
