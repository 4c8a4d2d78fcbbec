//! Structured content of results that say more than one piece of data: the same as their text.
//!
//! Several clients show their model only `structuredContent` where a result has it. So the envelope
//! `{text, data, files, …}` says all that the text blocks say.

use serde::Serialize;
use serde_json::value::RawValue;

use super::content::named_url;
use crate::a2a::{Part, PartBody};

/// The pieces of a result, as data.
#[derive(Debug, Default, Serialize)]
pub(super) struct StructuredEnvelope<'a> {
    /// All text, and the URLs of files.
    text: String,
    /// The data parts, in order.
    data: Vec<&'a RawValue>,
    /// The files, without their bytes: those are in `content`.
    files: Vec<FileNote<'a>>,
}

/// A file that a result holds or names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileNote<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    /// Where it is, unless `content` holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
}

impl<'a> StructuredEnvelope<'a> {
    /// Begins with a text of the gateway.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A text of the gateway, and a piece of data.
    pub(super) fn with_data(text: impl Into<String>, data: &'a RawValue) -> Self {
        Self { text: text.into(), data: vec![data], files: Vec::new() }
    }

    /// Adds the parts of one message or artifact. Texts that follow each other in an artifact are
    /// one text; others stand on lines of their own.
    pub(super) fn add(&mut self, parts: &'a [Part], is_artifact: bool) {
        let mut open = false;
        for part in parts.iter().filter(|part| !part.is_thought()) {
            let is_text = matches!(part.body, PartBody::Text(_));
            match &part.body {
                PartBody::Text(text) if is_artifact && open => self.text.push_str(text),
                PartBody::Text(text) => self.say(text),
                PartBody::Data(json) => self.data.push(json),
                PartBody::Unknown(json) => self.say(json.get()),
                PartBody::Url(url) => {
                    self.say(&named_url(part, url));
                    self.files.push(FileNote::of(part, Some(url)));
                }
                PartBody::Raw(_) => self.files.push(FileNote::of(part, None)),
            }
            open = is_text;
        }
    }

    /// Adds the parts of a question without its text, which a sentence of the gateway says.
    pub(super) fn add_beside_text(&mut self, parts: &'a [Part]) {
        let beside = |part: &&Part| !part.is_thought() && !matches!(part.body, PartBody::Text(_));
        for part in parts.iter().filter(beside) {
            self.add(std::slice::from_ref(part), false);
        }
    }

    /// Adds a line of text.
    fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Returns the only data of the pieces, if nothing else stands beside it.
    pub(super) fn only_data(&self) -> Option<&'a RawValue> {
        match self.data.as_slice() {
            [only] if self.files.is_empty() && self.text.trim().is_empty() => Some(only),
            _ => None,
        }
    }

    /// Returns whether data and something else stand beside each other.
    pub(super) fn is_mixed(&self) -> bool {
        !self.data.is_empty() && (!self.text.trim().is_empty() || !self.files.is_empty())
    }

    /// Returns the data, if it is exactly one piece. `null` is none: some clients take it for nothing
    /// and then miss what was promised.
    pub(super) fn single_data(&self) -> Option<&'a RawValue> {
        match self.data.as_slice() {
            [only] => Some(*only).filter(|only| only.get() != "null"),
            _ => None,
        }
    }
}

impl<'a> FileNote<'a> {
    fn of(part: &'a Part, url: Option<&'a str>) -> Self {
        Self { name: part.filename.as_deref(), mime_type: part.media_type.as_deref(), url }
    }
}
