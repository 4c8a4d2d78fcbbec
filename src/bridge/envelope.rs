//! Structured content of results with more than one data part: the same content as their text.
//!
//! Several clients show their model only `structuredContent` if a result has one. So the envelope
//! `{text, data, files, …}` contains everything that the text blocks contain.

use serde::Serialize;
use serde_json::value::RawValue;

use super::content::named_url;
use crate::a2a::{Part, PartBody};

/// The parts of a result, as data.
#[derive(Debug, Default, Serialize)]
pub(super) struct StructuredEnvelope<'a> {
    /// All text, and the URLs of files.
    text: String,
    /// The data parts, in order.
    data: Vec<&'a RawValue>,
    /// The files, without their bytes, which are in `content`.
    files: Vec<FileNote<'a>>,
}

/// A file that a result contains or names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileNote<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    /// URL of the file, unless `content` contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
}

impl<'a> StructuredEnvelope<'a> {
    /// Creates an envelope with a text of the gateway.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates an envelope with a text of the gateway and a data part.
    pub(super) fn with_data(text: impl Into<String>, data: &'a RawValue) -> Self {
        Self { text: text.into(), data: vec![data], files: Vec::new() }
    }

    /// Adds the parts of one message or artifact. Consecutive texts in an artifact are one text;
    /// others are separate lines.
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

    /// Adds the parts of a question except its text, which is in a sentence of the gateway.
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

    /// Returns the data part, if it is the only content.
    pub(super) fn only_data(&self) -> Option<&'a RawValue> {
        match self.data.as_slice() {
            [only] if self.files.is_empty() && self.text.trim().is_empty() => Some(only),
            _ => None,
        }
    }

    /// Returns true if the envelope contains data and other content.
    pub(super) fn is_mixed(&self) -> bool {
        !self.data.is_empty() && (!self.text.trim().is_empty() || !self.files.is_empty())
    }

    /// Returns the data, if it is exactly one piece. `null` does not count: some clients read it as
    /// absent and then miss the promised data.
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
