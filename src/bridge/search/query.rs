//! What is looked for: words, a skill, a tag.
//!
//! Not here: what they are compared with (see `profile`).

use super::profile::{FoldedText, lowercased};

/// Longest text of a query, in bytes.
pub const MAX_QUERY_BYTES: usize = 256;
/// Most words. So many of one kind are worth less than one of the next.
const MOST_WORDS: usize = 8;

/// What is looked for, in small letters. Empty: everything fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentQuery {
    whole: String,
    words: Vec<String>,
    skill: Option<String>,
    tag: Option<String>,
}

/// Why nothing can be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// A text is longer than [`LONGEST`].
    #[error("a text to look for has at most {MAX_QUERY_BYTES} bytes")]
    TooLong,
    /// There are too many words.
    #[error("at most {MOST_WORDS} words can be looked for at once: use fewer")]
    TooMany,
}

impl AgentQuery {
    /// Looks for agents in which all words of `text` occur, with a skill of which `skill` is a part of the name or id, and which
    /// has this tag.
    ///
    /// # Errors
    ///
    /// [`BadQuery`], if it is more than is looked for.
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

    /// The words that must all occur.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// All that was written, as one text.
    pub(super) fn whole(&self) -> &str {
        &self.whole
    }

    /// Whether it asks for a skill, so that agents without one do not fit.
    pub(super) fn names_skill(&self) -> bool {
        self.skill.is_some() || self.tag.is_some()
    }

    /// Whether a skill is one of those that are asked for.
    pub(super) fn filters_skill(&self, text: &FoldedText) -> bool {
        self.skill.as_ref().is_none_or(|skill| text.name_matches(skill))
            && self.tag.as_ref().is_none_or(|tag| text.has_tag(tag))
    }
}
