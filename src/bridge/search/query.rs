//! A query for agents: words, a skill, a tag.

use super::profile::{FoldedText, lowercased};

/// Maximum length of a text in a query, in bytes.
pub const MAX_QUERY_BYTES: usize = 256;
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
