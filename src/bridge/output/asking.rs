//! The open question of a task, and its text.
//!
//! Agents ask in text, in data (tool confirmations of Google ADK), or with an artifact and no
//! message (interrupts of LangGraph). `a2a::input_request` decides if two questions are the same,
//! `bridge::elicitation` puts one to a client.

use serde_json::Value;
use serde_json::value::RawValue;

use super::AgentOutput;
use crate::a2a::{Fingerprint, Part, PartBody, StreamResponse, TaskState, TaskStatus, clean, is_wording};

/// Maximum length of a question for a client, in bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;

impl AgentOutput {
    /// Returns the fingerprint of the open question, if there is one.
    pub fn question_turn(&self) -> Option<Fingerprint> {
        Some(self.question?.fingerprint(self.task_id.as_deref()?).in_round(self.round))
    }

    /// Returns the stamp that distinguishes the status of the question from any other (see
    /// [`crate::a2a::stamp_of`]).
    pub fn stamp(&self) -> Option<[u8; 16]> {
        self.stamp
    }

    /// Sets how often the open question was answered before.
    pub fn set_round(&mut self, round: u8) {
        self.round = round;
    }

    /// Returns the state in which the agent asks, and true if it asks with a message.
    pub fn asking(&self) -> Option<(TaskState, bool)> {
        self.state.filter(|state| state.is_interrupted()).map(|state| (state, self.status.is_some()))
    }

    /// Records that the agent has accepted an answer to the open question: later output belongs to
    /// the next turn.
    pub fn question_answered(&mut self) {
        if self.question.is_some() {
            self.is_answered = true;
            self.artifacts.begin_turn();
        }
    }

    /// Clears the question because the agent is about to ask again, in the same words or not.
    pub fn leave_question(&mut self) {
        if self.question.take().is_some() {
            (self.state, self.status, self.is_answered) = (Some(TaskState::Working), None, false);
            self.artifacts.begin_turn();
        }
    }

    /// Returns true if an event shows the rest of the question after its message has moved into the
    /// history. A server of the official Python SDK moves it the moment an answer arrives, and
    /// leaves the state as it is until the agent sends more.
    pub fn has_taken_words_in(&self, event: &StreamResponse) -> bool {
        match event {
            StreamResponse::Task(task) => self.is_without_words(&task.status),
            StreamResponse::Status { status, .. } => self.is_without_words(status),
            StreamResponse::Message(_) | StreamResponse::Artifact { .. } | StreamResponse::Unknown => false,
        }
    }

    /// Returns true if a status equals that of the question except for its message.
    pub(super) fn is_without_words(&self, status: &TaskStatus) -> bool {
        let is_same = status.state.is_interrupted() && self.state == Some(status.state);
        is_same && status.message.is_none() && self.status.is_some()
    }

    /// Returns the message of the status as readable text: its text, and data as indented JSON.
    pub fn status_text(&self) -> String {
        let parts = self.status.iter().flat_map(|message| &message.parts);
        readable(parts)
    }

    /// Returns the output of this turn as readable text.
    pub fn made_text(&self) -> String {
        readable(self.artifacts_of_turn().flat_map(|artifact| &artifact.parts))
    }
}

/// Returns parts as text for a person: one line per part, cut to the limit for a client.
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

    fn asked(status: &str) -> AgentOutput {
        let task = format!(r#"{{"id":"t","status":{{"state":"input-required",{status}}}}}"#);
        AgentOutput::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap()
    }

    fn turn(status: &str) -> Option<Fingerprint> {
        asked(status).question_turn()
    }

    #[test]
    fn question_is_another_one_when_its_words_are() {
        let one = turn(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"a"}]}"#);
        let again = turn(r#""timestamp":"2","message":{"messageId":"2","parts":[{"text":"a"}]}"#);
        let other = turn(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"b"}]}"#);
        assert!(one.is_some() && one == again && one != other);
    }

    #[test]
    fn question_keeps_its_words_until_the_agent_says_more() {
        let mut work = asked(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"a"}]}"#);
        let (turn, left) = (work.question_turn(), r#"{"id":"t","status":{"state":"input-required"}}"#);
        let left = StreamResponse::Task(read_task(left.as_bytes()).unwrap());
        assert!(work.has_taken_words_in(&left));
        assert_eq!(work.apply(left.clone()), Ok(None));
        assert_eq!((work.question_turn(), work.status_text().as_str()), (turn, "a"));
        work.leave_question();
        assert!(!work.has_taken_words_in(&left) && work.question_turn().is_none());
        assert!(work.apply(left).unwrap().is_some());
        assert!(work.question_turn().is_some() && work.question_turn() != turn);
    }
}
