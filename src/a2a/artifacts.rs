//! Assembles artifacts from the pieces of a stream (A2A 1.0 §4.2.2), within a limit.
//!
//! Keyed by artifact id: a piece without `append` replaces the parts, one with it adds to them or
//! begins the artifact; a task replaces everything. Returns the new text, so that a stream to a
//! client repeats nothing.

use std::collections::BTreeMap;

use super::lenient::reserve_first;
use super::model::{Artifact, Part, PartBody};
use crate::jsonrpc::JsonText;

/// Maximum number of artifacts per task.
const MAX_ARTIFACTS: usize = 1024;
/// Bytes that an artifact or a part counts beyond its content: many empty ones must not be free.
const OVERHEAD: usize = 128;

/// The artifacts of one task so far.
#[derive(Debug, Clone)]
pub struct Artifacts {
    artifacts: Vec<Artifact>,
    bytes: usize,
    max_bytes: usize,
    /// The artifacts of earlier turns, with their sizes then: one that grew or was replaced since
    /// belongs to this turn.
    earlier: BTreeMap<String, usize>,
    /// The same for the turn that pauses with a question.
    paused: BTreeMap<String, usize>,
}

/// The change of the text that a piece caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextChange {
    /// The artifact grew by this text; if the text is empty, only by other content.
    Added(JsonText),
    /// The artifact was replaced; this is all of its text.
    Replaced(JsonText),
    /// The piece repeats the content.
    Nothing,
}

/// The error for artifacts beyond the limit. The earlier content stays unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("artifacts of one task exceed {max_bytes} bytes or {MAX_ARTIFACTS} in number")]
pub struct ArtifactLimitExceeded {
    /// The limit.
    pub max_bytes: usize,
}

impl Artifacts {
    /// Creates an empty collection with at most `max_bytes`, counting content and an allowance per
    /// part.
    pub fn new(max_bytes: usize) -> Self {
        Self { artifacts: Vec::new(), bytes: 0, max_bytes, earlier: BTreeMap::new(), paused: BTreeMap::new() }
    }

    /// Applies an artifact or a piece of one.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if it does not fit.
    pub fn apply(&mut self, artifact: Artifact, append: bool) -> Result<TextChange, ArtifactLimitExceeded> {
        // The newest first: a stream sends one artifact at a time.
        let known = self.artifacts.iter_mut().rposition(|known| known.artifact_id == artifact.artifact_id);
        match known {
            Some(at) if append => self.append(at, artifact),
            Some(at) => self.replace(at, artifact),
            None => self.begin(artifact),
        }
    }

    /// Replaces all artifacts with those of the agent's task.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if they do not fit.
    pub fn replace_all(&mut self, artifacts: Vec<Artifact>) -> Result<(), ArtifactLimitExceeded> {
        let bytes = artifacts.iter().map(weight).fold(0, usize::saturating_add);
        if artifacts.len() > MAX_ARTIFACTS || bytes > self.max_bytes {
            return Err(self.too_much());
        }
        self.artifacts = artifacts;
        self.bytes = bytes;
        Ok(())
    }

    /// Returns the artifacts in the order in which they began.
    pub fn iter(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.iter()
    }

    /// Records that the turn pauses: once the next one begins, the artifacts so far belong to
    /// earlier turns.
    pub(crate) fn pause_turn(&mut self) {
        self.paused = self.artifacts.iter().map(|known| (known.artifact_id.clone(), weight(known))).collect();
    }

    /// Begins the next turn, if the last one has paused.
    pub(crate) fn begin_turn(&mut self) {
        if !self.paused.is_empty() {
            self.earlier = std::mem::take(&mut self.paused);
        }
    }

    /// Returns the artifacts that were made or changed in this turn.
    pub(crate) fn of_turn(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.iter().filter(|known| self.earlier.get(&known.artifact_id) != Some(&weight(known)))
    }

    /// Returns true if all artifacts belong to one turn that has no question.
    pub(crate) fn is_one_turn(&self) -> bool {
        self.earlier.is_empty() && self.paused.is_empty()
    }

    /// Returns the used part of the limit, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the limit, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    fn begin(&mut self, artifact: Artifact) -> Result<TextChange, ArtifactLimitExceeded> {
        if self.artifacts.len() >= MAX_ARTIFACTS {
            return Err(self.too_much());
        }
        self.account(0, weight(&artifact))?;
        let text = text_of(&artifact.parts);
        reserve_first(&mut self.artifacts);
        self.artifacts.push(artifact);
        Ok(TextChange::Added(text))
    }

    fn append(&mut self, at: usize, piece: Artifact) -> Result<TextChange, ArtifactLimitExceeded> {
        if piece.parts.is_empty() {
            return Ok(TextChange::Nothing);
        }
        self.account(0, piece.parts.iter().map(part_weight).fold(0, usize::saturating_add))?;
        let text = text_of(&piece.parts);
        if let Some(artifact) = self.artifacts.get_mut(at) {
            artifact.parts.extend(piece.parts);
        }
        Ok(TextChange::Added(text))
    }

    fn replace(&mut self, at: usize, artifact: Artifact) -> Result<TextChange, ArtifactLimitExceeded> {
        let Some(old) = self.artifacts.get(at) else { return self.begin(artifact) };
        let (before, now) = (text_of(&old.parts), text_of(&artifact.parts));
        let change = match now.to_str().strip_prefix(&*before.to_str()) {
            Some("") if same_parts(&old.parts, &artifact.parts) => TextChange::Nothing,
            Some(added) => TextChange::Added(added.into()),
            None => TextChange::Replaced(now.clone()),
        };
        self.account(weight(old), weight(&artifact))?;
        if let Some(old) = self.artifacts.get_mut(at) {
            *old = artifact;
        }
        Ok(change)
    }

    fn account(&mut self, freed: usize, taken: usize) -> Result<(), ArtifactLimitExceeded> {
        let bytes = self.bytes.saturating_sub(freed).saturating_add(taken);
        if bytes > self.max_bytes {
            return Err(self.too_much());
        }
        self.bytes = bytes;
        Ok(())
    }

    fn too_much(&self) -> ArtifactLimitExceeded {
        ArtifactLimitExceeded { max_bytes: self.max_bytes }
    }
}

/// Returns the text of the parts, joined: agents split it anywhere.
fn text_of(parts: &[Part]) -> JsonText {
    let mut texts = parts.iter().filter_map(|part| part.body.text());
    match (texts.next(), texts.next()) {
        (None, _) => JsonText::default(),
        // Nearly always: its JSON is passed on.
        (Some(only), None) => only.clone(),
        (Some(first), Some(second)) => {
            [first, second].into_iter().chain(texts).map(JsonText::to_str).collect::<String>().into()
        }
    }
}

fn same_parts(one: &[Part], other: &[Part]) -> bool {
    let content = |parts: &[Part]| parts.iter().filter(|part| part.body.text().is_none()).count();
    content(one) == content(other)
        && one
            .iter()
            .filter(|part| part.body.text().is_none())
            .zip(other.iter().filter(|part| part.body.text().is_none()))
            .all(|(one, other)| same_content(&one.body, &other.body))
}

fn same_content(one: &PartBody, other: &PartBody) -> bool {
    match (one, other) {
        (PartBody::Text(one), PartBody::Text(other)) => one == other,
        (PartBody::Raw(one), PartBody::Raw(other)) | (PartBody::Url(one), PartBody::Url(other)) => {
            one == other
        }
        (PartBody::Data(one), PartBody::Data(other)) | (PartBody::Unknown(one), PartBody::Unknown(other)) => {
            one.get() == other.get()
        }
        _ => false,
    }
}

fn weight(artifact: &Artifact) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let head = OVERHEAD
        + artifact.artifact_id.len()
        + text(&artifact.name)
        + text(&artifact.description)
        + artifact.extensions.iter().map(String::len).sum::<usize>()
        + artifact.metadata.as_ref().map_or(0, |raw| raw.get().len());
    artifact.parts.iter().map(part_weight).fold(head, usize::saturating_add)
}

fn part_weight(part: &Part) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    OVERHEAD
        + part.body.bytes()
        + text(&part.filename)
        + text(&part.media_type)
        + part.metadata.as_ref().map_or(0, |raw| raw.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(id: &str, texts: &[&str]) -> Artifact {
        let parts = texts.iter().map(|text| Part::new(PartBody::Text((*text).into()))).collect();
        Artifact {
            artifact_id: id.to_owned(),
            name: None,
            description: None,
            parts,
            extensions: Vec::new(),
            metadata: None,
        }
    }

    fn all_text(artifacts: &Artifacts) -> String {
        artifacts.iter().map(|artifact| text_of(&artifact.parts).into_string()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn a_piece_says_what_is_new() {
        let added = |text: &str| TextChange::Added(text.into());
        let mut artifacts = Artifacts::new(10_000);
        for (id, texts, append, change, after) in [
            ("a", &["chunk-1 "][..], true, added("chunk-1 "), "chunk-1 "),
            ("a", &["chunk-2 "], true, added("chunk-2 "), "chunk-1 chunk-2 "),
            ("b", &["other"], false, added("other"), "chunk-1 chunk-2 |other"),
            ("a", &["chunk-1 chunk-2 ", "chunk-3"], false, added("chunk-3"), "chunk-1 chunk-2 chunk-3|other"),
            (
                "a",
                &["chunk-1 ", "chunk-2 chunk-3"],
                false,
                TextChange::Nothing,
                "chunk-1 chunk-2 chunk-3|other",
            ),
            ("a", &["fresh"], false, TextChange::Replaced("fresh".into()), "fresh|other"),
            ("a", &[], true, TextChange::Nothing, "fresh|other"),
            ("a", &[], false, TextChange::Replaced(JsonText::default()), "|other"),
        ] {
            assert_eq!(artifacts.apply(piece(id, texts), append), Ok(change), "{id} {texts:?} {append}");
            assert_eq!(all_text(&artifacts), after);
        }
    }

    #[test]
    fn the_bound_holds_and_a_refusal_changes_nothing() {
        let mut artifacts = Artifacts::new(1000);
        assert!(artifacts.apply(piece("a", &["x"]), false).is_ok());
        let before = artifacts.bytes();
        let large = "y".repeat(1000);
        assert!(artifacts.apply(piece("a", &[&large]), true).is_err());
        assert!(artifacts.apply(piece("a", &[&large]), false).is_err());
        assert!(artifacts.apply(piece("b", &[&large]), false).is_err());
        assert!(artifacts.replace_all(vec![piece("c", &[&large])]).is_err());
        assert_eq!((all_text(&artifacts).as_str(), artifacts.bytes()), ("x", before));
        let many = (0..10).find(|_| artifacts.apply(piece("a", &[""]), true).is_err());
        assert!(many.is_some(), "empty parts are not free");
        assert_eq!(artifacts.replace_all(Vec::new()), Ok(()));
        assert_eq!(artifacts.bytes(), 0);
    }

    #[test]
    fn other_content_counts_as_new_unless_it_is_the_same() {
        let file = |base64: &str| {
            let mut artifact = piece("f", &[]);
            artifact.parts.push(Part::new(PartBody::Raw(base64.to_owned())));
            artifact
        };
        let mut artifacts = Artifacts::new(10_000);
        for (base64, change) in [
            ("AA==", TextChange::Added(JsonText::default())),
            ("AA==", TextChange::Nothing),
            ("BB==", TextChange::Added(JsonText::default())),
        ] {
            assert_eq!(artifacts.apply(file(base64), false), Ok(change));
        }
    }
}
