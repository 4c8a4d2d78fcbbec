//! Which question of a piece of work is open, and how it reads.
//!
//! Agents ask in text, in data (tool confirmations of Google ADK), or with an artifact and no message (interrupts of LangGraph).
//! Not here: what makes two questions the same (see `a2a::question`), how one is put to a client (see `bridge::question`).

use serde_json::Value;
use serde_json::value::RawValue;

use super::Work;
use crate::a2a::{Fingerprint, Part, PartBody, clean, fingerprint_of, is_wording, wordless_of};

/// Most bytes of a question that a client is shown.
const MAX_QUESTION_BYTES: usize = 8 * 1024;

impl Work {
    /// Which question is open, if one is.
    pub fn question_turn(&self) -> Option<Fingerprint> {
        fingerprint_of(self.task_id.as_deref()?, self.state?, self.status.as_ref(), self.timestamp.as_deref())
    }

    /// Returns the message of the status as readable text: its words, and data as indented JSON.
    pub fn status_text(&self) -> String {
        let parts = self.status.iter().flat_map(|message| &message.parts);
        readable(parts)
    }

    /// Returns what was made in this turn as readable text.
    pub fn made_text(&self) -> String {
        readable(self.artifacts_of_turn().flat_map(|artifact| &artifact.parts))
    }

    /// How the open question looks once its words have gone into the history (see [`crate::a2a::wordless`]).
    pub fn wordless(&self) -> Option<Fingerprint> {
        wordless_of(self.task_id.as_deref()?, self.state?, self.status.as_ref(), self.timestamp.as_deref())
    }
}

/// Returns parts as text for a person: a part a line, cut to what a client is shown.
fn readable<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let mut text = String::new();
    for part in parts.filter(|part| !part.is_thought()) {
        let line = match &part.body {
            PartBody::Text(text) => text.clone(),
            PartBody::Data(json) if is_wording(json) => continue,
            PartBody::Data(json) => indented(json),
            PartBody::Url(url) => url.clone(),
            PartBody::Raw(_) | PartBody::Unknown(_) => continue,
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
        if text.len() > MAX_QUESTION_BYTES {
            break;
        }
    }
    clean(&text, MAX_QUESTION_BYTES)
}

fn indented(json: &RawValue) -> String {
    let value: Option<Value> = serde_json::from_str(json.get()).ok();
    let pretty = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
    pretty.unwrap_or_else(|| json.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;

    fn asked(status: &str) -> Work {
        let task = format!(r#"{{"id":"t","status":{{"state":"input-required",{status}}}}}"#);
        Work::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap()
    }

    #[test]
    fn a_question_is_another_one_when_its_message_is() {
        let turn =
            |id: &str| asked(&format!(r#""message":{{"messageId":"{id}","parts":[]}}"#)).question_turn();
        assert!(turn("1").is_some() && turn("1") != turn("2"));
    }

    #[test]
    fn what_is_left_of_a_question_is_known_by_its_task_and_time() {
        let words = r#""message":{"messageId":"1","parts":[]}"#;
        let question = asked(&format!(r#"{words},"timestamp":"1""#));
        assert!(question.wordless().is_some());
        assert_eq!(question.wordless(), asked(r#""timestamp":"1""#).question_turn());
        assert_ne!(question.wordless(), asked(r#""timestamp":"2""#).question_turn());
        assert_eq!(asked(words).wordless(), None, "nothing would tell it from the next one");
    }
}
