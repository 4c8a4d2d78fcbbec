//! The A2A extension data in an agent's metadata of a task, within the limit of a result.
//!
//! Only members with names that can be URIs, and no more than one result can show: invisible data
//! must not take room from the agent's output. `bridge::extension` selects the data for a client.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::{RawValue, to_raw_value};

/// Maximum size of names and values that are kept, in bytes; the same for the names of omitted
/// members.
pub const MOST_BYTES: usize = 64 * 1024;

/// Members of metadata by their names, within [`MOST_BYTES`].
#[derive(Debug, Default, Clone)]
pub struct CollectedMetadata {
    members: BTreeMap<String, Box<RawValue>>,
    bytes: usize,
    omitted: BTreeSet<String>,
    omitted_bytes: usize,
}

impl CollectedMetadata {
    /// Returns the members that are kept.
    pub fn members(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.members.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    /// Returns the names of omitted members. Names that did not fit either are missing.
    pub fn omitted(&self) -> impl Iterator<Item = &str> {
        self.omitted.iter().map(String::as_str)
    }

    /// Returns the size of names and values in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.saturating_add(self.omitted_bytes)
    }

    /// Replaces the content with the metadata of a task.
    pub(super) fn replace(&mut self, json: &RawValue) {
        *self = Self::default();
        self.add(json);
    }

    /// Adds the metadata of an event: its members replace older ones with the same names.
    pub(super) fn add(&mut self, json: &RawValue) {
        let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(json.get()).unwrap_or_default();
        for (name, value) in members.into_iter().filter(|(name, _)| name.contains(':')) {
            if let Some(old) = self.members.remove(&name) {
                self.bytes = self.bytes.saturating_sub(size(&name, &old));
            }
            let bytes = self.bytes.saturating_add(size(&name, value));
            if bytes <= MOST_BYTES {
                self.bytes = bytes;
                if self.omitted.remove(&name) {
                    self.omitted_bytes = self.omitted_bytes.saturating_sub(name.len());
                }
                self.members.insert(name, value.to_owned());
            } else {
                self.omit(name);
            }
        }
    }

    /// Records the name of a member that is not kept.
    pub fn omit(&mut self, name: String) {
        let bytes = self.omitted_bytes.saturating_add(name.len());
        if bytes <= MOST_BYTES && !self.omitted.contains(&name) {
            self.omitted_bytes = bytes;
            self.omitted.insert(name);
        }
    }

    /// Returns the kept members as a JSON object; `None` if there are none.
    pub(super) fn written(&self) -> Option<Box<RawValue>> {
        if self.members.is_empty() { None } else { to_raw_value(&self.members).ok() }
    }
}

fn size(name: &str, value: &RawValue) -> usize {
    name.len().saturating_add(value.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn kept(metadata: &CollectedMetadata) -> String {
        metadata.written().map_or_else(String::new, |json| json.get().to_owned())
    }

    #[test]
    fn the_newest_word_on_each_name_is_kept_and_a_task_begins_anew() {
        let mut metadata = CollectedMetadata::default();
        for (is_task, json, expected) in [
            (true, r#"{"urn:a":1,"urn:b":{"x": 1.0},"plain":"x"}"#, r#"{"urn:a":1,"urn:b":{"x": 1.0}}"#),
            (false, r#"{"urn:a":2,"progress":1}"#, r#"{"urn:a":2,"urn:b":{"x": 1.0}}"#),
            (false, "[1]", r#"{"urn:a":2,"urn:b":{"x": 1.0}}"#),
            (true, r#"{"urn:c":3}"#, r#"{"urn:c":3}"#),
            (true, r#"{"plain":3}"#, ""),
        ] {
            match is_task {
                true => metadata.replace(&raw(json)),
                false => metadata.add(&raw(json)),
            }
            assert_eq!(kept(&metadata), expected, "{json}");
            let mut again = CollectedMetadata::default();
            metadata.written().iter().for_each(|json| again.add(json));
            assert_eq!(metadata.bytes(), again.bytes(), "{json}");
        }
    }

    #[test]
    fn what_has_no_room_is_noted_and_takes_none() {
        let large = format!(r#"{:?}"#, "x".repeat(MOST_BYTES));
        let mut metadata = CollectedMetadata::default();
        metadata.add(&raw(&format!(r#"{{"urn:a":1,"urn:b":{large},"plain":{large}}}"#)));
        assert_eq!(
            (kept(&metadata).as_str(), metadata.omitted().collect()),
            (r#"{"urn:a":1}"#, vec!["urn:b"])
        );
        assert!(metadata.bytes() < 20);
        metadata.add(&raw(&format!(r#"{{"urn:a":{large}}}"#)));
        assert_eq!(kept(&metadata), "", "the old word does not stand for the new one");
        metadata.add(&raw(r#"{"urn:a":2,"urn:b":3}"#));
        assert_eq!((kept(&metadata).as_str(), metadata.omitted().count()), (r#"{"urn:a":2,"urn:b":3}"#, 0));
        let many: Vec<String> = (0..3000).map(|at| format!(r#""urn:{at}{}":1"#, "y".repeat(100))).collect();
        metadata.add(&raw(&format!("{{{}}}", many.join(","))));
        assert!((MOST_BYTES..=2 * MOST_BYTES).contains(&metadata.bytes()), "{}", metadata.bytes());
    }
}
