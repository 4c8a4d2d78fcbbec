//! Validates the user's answers to a question and makes the message to the agent from them.
//!
//! Follows `docs/spec/mcp.md` §2.12, §3.5. The message to the agent has the same id each time that
//! the same answer is given to the same question. Questions are in `elicitation`; `tasks` knows the
//! answers that were accepted already.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

use super::arguments::schema_errors;
use super::arguments::validator;
use super::elicitation::{AgentQuestion, InputField};
use crate::a2a::{AnswerForm, Fingerprint, Part, PartBody, TaskState, canonical, clean, uuid};
use crate::jsonrpc::object::UniqueObject;
use crate::mcp::Version;
use crate::mcp::elicitation::adapt;
use crate::mcp::elicitation::{ElicitAction, ElicitResult};

/// Maximum length of an agent's schema quoted in a text for the model, in bytes.
const MAX_SCHEMA_BYTES: usize = 8 * 1024;

/// The user's answers, as far as the client has sent them.
#[derive(Debug, Clone, Default)]
pub struct UserResponse {
    /// Answers by key; each is an object that fits its schema.
    pub accepted: BTreeMap<String, Box<RawValue>>,
    /// True if at least one input was declined.
    pub declined: bool,
    /// True if at least one input was closed without an answer.
    pub cancelled: bool,
    /// Keys without an answer.
    pub missing: Vec<String>,
}

impl AgentQuestion {
    /// Returns the state before any answer.
    pub fn empty(&self) -> UserResponse {
        UserResponse {
            missing: self.inputs.iter().map(|input| input.key.clone()).collect(),
            ..UserResponse::default()
        }
    }

    /// Reads `inputResponses`. Unknown keys are ignored; absent answers are in `missing`.
    ///
    /// # Errors
    ///
    /// The problem of an answer, in words.
    pub fn read_responses(&self, responses: Option<&RawValue>) -> Result<UserResponse, String> {
        let json = responses.map(RawValue::get).filter(|json| *json != "null").unwrap_or("{}");
        let wrong = |error: serde_json::Error| format!("Invalid inputResponses: {error}.");
        serde_json::from_str::<UniqueObject<'_>>(json).map_err(wrong)?;
        let responses: BTreeMap<String, &RawValue> = serde_json::from_str(json).map_err(wrong)?;
        let mut given = self.empty();
        for InputField { key, .. } in &self.inputs {
            if let Some(json) = responses.get(key) {
                let answer = ElicitResult::read(json).ok_or_else(|| no_answer(key))?;
                self.take(&mut given, key, answer)?;
            }
        }
        Ok(given)
    }

    /// Adds one answer; an answer with an unknown key is ignored.
    ///
    /// # Errors
    ///
    /// The problem of the answer, in words; then nothing was added.
    pub fn take(&self, given: &mut UserResponse, key: &str, answer: ElicitResult) -> Result<(), String> {
        let Some(input) = self.inputs.iter().find(|input| input.key == key) else { return Ok(()) };
        match answer.action {
            ElicitAction::Decline => given.declined = true,
            ElicitAction::Cancel => given.cancelled = true,
            ElicitAction::Accept => {
                // Content that comes with an authorization is not forwarded: it could be a secret.
                let asked = self.state != TaskState::AuthRequired;
                let content = answer.content.filter(|_| asked);
                let content = content.or_else(|| RawValue::from_string("{}".into()).ok());
                let content = content.ok_or_else(|| no_answer(key))?;
                if asked {
                    input.validate(&content)?;
                }
                given.accepted.insert(key.to_owned(), content);
            }
        }
        given.missing.retain(|missing| missing != key);
        Ok(())
    }

    /// Returns the message to the agent: the text of a lone reply, else the answers as data; in the
    /// form of the agent's framework, if it has one.
    pub fn message(&self, accepted: &BTreeMap<String, Box<RawValue>>) -> Vec<Part> {
        if self.has_forms() {
            let answers = self.inputs.iter().filter_map(|input| Some((input, accepted.get(&input.key)?)));
            let parts = answers.filter_map(|(input, content)| {
                let text = reply(content).filter(|_| input.schema.is_none());
                match text.and_then(|text| to_raw_value(&text).ok()) {
                    Some(text) => input.form.part(&text),
                    None => input.form.part(content),
                }
            });
            return parts.collect();
        }
        let told = match self.inputs.as_slice() {
            [input] => accepted.get(&input.key).map(|content| {
                let text = reply(content).filter(|_| input.schema.is_none());
                text.map_or_else(|| PartBody::Data(content.clone()), |text| PartBody::Text(text.into()))
            }),
            _ => to_raw_value(accepted).ok().map(PartBody::Data),
        };
        told.map(Part::new).into_iter().collect()
    }

    /// Returns true if the agent accepts answers only in the form of its framework.
    pub(crate) fn has_forms(&self) -> bool {
        self.inputs.iter().any(|input| input.form != AnswerForm::Plain)
    }

    /// Returns a free answer of a model in the form that the agent accepts: that of its framework,
    /// if it has one.
    ///
    /// # Errors
    ///
    /// The required form of the answer, for the model.
    pub fn answer(&self, parts: Vec<Part>) -> Result<Vec<Part>, String> {
        if !self.has_forms() {
            return Ok(parts);
        }
        let how = || format!("Invalid answer. {}, and nothing beside it.", self.answer_hint());
        if parts.len() != 1 {
            // The form has no room for more, and no part of the answer may be lost.
            return Err(how());
        }
        let data = parts.iter().find_map(|part| match &part.body {
            PartBody::Data(json) => Some(json.as_ref()),
            PartBody::Text(_) | PartBody::Raw(_) | PartBody::Url(_) | PartBody::Unknown(_) => None,
        });
        let text = parts.iter().find_map(|part| match &part.body {
            PartBody::Text(text) => to_raw_value(text).ok(),
            PartBody::Data(_) | PartBody::Raw(_) | PartBody::Url(_) | PartBody::Unknown(_) => None,
        });
        let mut keyed = BTreeMap::new();
        if let [only] = self.inputs.as_slice() {
            let given = data.map(ToOwned::to_owned).or(text.filter(|_| !only.form.is_confirmation()));
            keyed.insert(only.key.clone(), given.ok_or_else(how)?);
        } else {
            keyed = serde_json::from_str(data.ok_or_else(how)?.get()).map_err(|_| how())?;
        }
        let part = |input: &InputField| {
            let given = keyed.get(&input.key)?;
            if input.form.is_confirmation() {
                input.validate(given).ok()?;
            }
            input.form.part(given)
        };
        self.inputs.iter().map(part).collect::<Option<Vec<_>>>().ok_or_else(how)
    }

    /// Returns the way to give an answer as an argument of a tool: a sentence without its full
    /// stop.
    pub(crate) fn answer_hint(&self) -> String {
        let value = |input: &InputField| match (input.form.is_confirmation(), &input.schema) {
            (true, _) => r#"{"confirmed": true} or {"confirmed": false}"#.to_owned(),
            // The schema is the agent's, the sentence the gateway's.
            (false, Some(schema)) => {
                format!("an object of this JSON Schema: {}", clean(schema.get(), MAX_SCHEMA_BYTES))
            }
            (false, None) => "the answer".to_owned(),
        };
        match self.inputs.as_slice() {
            [only] if only.form.is_confirmation() || only.schema.is_some() => {
                format!("Give the answer as data: {}", value(only))
            }
            [_] => "Give the answer as text".to_owned(),
            several => {
                let all = several.iter().map(|input| format!("{:?}: {}", input.key, value(input)));
                format!("Give the answers as data, an object with {}", all.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Returns the fingerprint that names one input: that of the question itself, unless the
    /// question has several inputs.
    pub fn question_fingerprint(&self, key: &str) -> [u8; 16] {
        match self.inputs.as_slice() {
            [_] => self.turn.to_bytes(),
            _ => {
                let turn = hashed(&[&self.turn.to_bytes(), key.as_bytes()]);
                Fingerprint::from_bytes(turn).in_round(self.turn.round()).to_bytes()
            }
        }
    }

    /// Returns this question in the round in which [`AgentQuestion::question_fingerprint`] named an
    /// input of it; `None` if that was another question.
    pub(crate) fn in_round_of(&self, turn: [u8; 16]) -> Option<Fingerprint> {
        let mut named = self.clone();
        named.turn = self.turn.in_round(Fingerprint::from_bytes(turn).round());
        named.key_of(turn).map(|_| named.turn)
    }

    /// Returns the input that [`AgentQuestion::question_fingerprint`] named; `None` if another
    /// question is open now.
    pub fn key_of(&self, turn: [u8; 16]) -> Option<&str> {
        self.inputs.iter().map(|input| input.key.as_str()).find(|key| self.question_fingerprint(key) == turn)
    }
}

impl InputField {
    /// Validates an answer against the agent's full schema, or against the form if the schema does
    /// not compile.
    fn validate(&self, content: &RawValue) -> Result<(), String> {
        let wrong = |what: String| format!("Invalid answer to {:?}: {what}.", self.key);
        // The validated content must be the sent content: each name once.
        serde_json::from_str::<UniqueObject<'_>>(content.get()).map_err(|error| wrong(error.to_string()))?;
        let value: Value = serde_json::from_str(content.get()).map_err(|error| wrong(error.to_string()))?;
        let compiled = |schema: &RawValue| {
            serde_json::from_str(schema.get()).ok().and_then(|schema| validator(&schema).ok())
        };
        let form = || adapt(self.answer_schema(), Version::V2026_07_28).and_then(|form| compiled(&form));
        let judge = compiled(self.answer_schema())
            .or_else(form)
            .ok_or_else(|| wrong("it cannot be judged".into()))?;
        schema_errors(&judge, &value).map_or(Ok(()), |what| Err(wrong(what)))
    }
}

fn no_answer(key: &str) -> String {
    format!(
        "Invalid answer to {key:?}: it needs an action (accept, decline or cancel), and content is an object."
    )
}

fn reply(content: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Reply {
        reply: String,
    }
    serde_json::from_str::<Reply>(content.get()).ok().map(|content| content.reply)
}

/// Returns a digest of a set of answers that does not depend on how each is written.
pub fn digest(accepted: &BTreeMap<String, Box<RawValue>>) -> [u8; 16] {
    let pieces = accepted.iter().flat_map(|(key, content)| [key.clone(), canonical(content)]);
    let pieces: Vec<String> = pieces.collect();
    hashed(&pieces.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// Returns such a digest of a free answer, which is not a form.
pub(crate) fn digest_of_parts(parts: &[Part]) -> [u8; 16] {
    let pieces = parts.iter().map(|part| match &part.body {
        PartBody::Text(text) => text.to_str().into_owned(),
        PartBody::Raw(text) | PartBody::Url(text) => text.clone(),
        PartBody::Data(json) | PartBody::Unknown(json) => canonical(json),
    });
    let pieces: Vec<String> = pieces.collect();
    hashed(&pieces.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// Returns the id of the message with these answers, by which an agent recognizes a repetition.
pub fn message_id(task_id: &str, turn: Fingerprint, digest: [u8; 16]) -> String {
    let mut id = uuid(hashed(&[task_id.as_bytes(), &turn.to_bytes(), &digest]));
    // Version 8: made from a hash, where version 4 is random.
    id.replace_range(14..15, "8");
    id
}

fn hashed(pieces: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    }
    hash.finalize().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;
    use crate::bridge::output::AgentOutput;
    use proptest::prelude::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    fn question(state: &str, metadata: &str) -> AgentQuestion {
        let task =
            format!(r#"{{"id":"t","status":{{"state":"{state}","message":{{"metadata":{metadata}}}}}}}"#);
        AgentQuestion::of(&AgentOutput::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap())
            .unwrap()
    }

    fn form() -> AgentQuestion {
        let schema = r#"{"type":"object","properties":{"user_name":{"type":"string","pattern":"^[a-z]+$"}},"required":["user_name"]}"#;
        question("input-required", &format!(r#"{{"mcp.inputKey":"k","mcp.requestedSchema":{schema}}}"#))
    }

    fn several() -> AgentQuestion {
        question("input-required", r#"{"mcp.inputRequests":{"a":{},"b":{}}}"#)
    }

    fn data(parts: &[Part]) -> std::borrow::Cow<'_, str> {
        match parts {
            [Part { body: PartBody::Data(json), .. }] => json.get().into(),
            [Part { body: PartBody::Text(text), .. }] => text.to_str(),
            _ => "nothing".into(),
        }
    }

    #[test]
    fn answers_are_judged_by_what_was_asked() {
        let accept =
            |content: &str| format!(r#"{{"k":{{"action":"accept","content":{content}}},"other":7}}"#);
        for (responses, wrong) in [
            (accept(r#"{"user_name":"bob"}"#), None),
            (accept(r#"{"user_name":12345}"#), Some("/user_name: 12345 is not of type \"string\"")),
            (accept(r#"{"user_name":"B2"}"#), Some("/user_name")),
            (accept("null"), Some("\"user_name\" is a required property")),
            (accept(r#"{"user_name":"a","user_name":"b"}"#), Some("twice")),
            (accept("[]"), Some("content is an object")),
            (r#"{"k":null}"#.into(), Some("needs an action")),
            (r#"{"k":{"action":"accept"},"k":{"action":"decline"}}"#.into(), Some("twice")),
            ("[]".into(), Some("Invalid inputResponses")),
            (r#"{"k":{"action":"decline"}}"#.into(), None),
        ] {
            let given = form().read_responses(Some(&raw(&responses)));
            match (given, wrong) {
                (Ok(given), None) => assert!(given.missing.is_empty(), "{responses}"),
                (Err(told), Some(wrong)) => assert!(told.contains(wrong), "{responses}: {told}"),
                (given, _) => panic!("{responses}: {given:?}"),
            }
        }
    }

    #[test]
    fn a_schema_that_goes_round_in_circles_judges_and_ends() {
        for (member, beside) in [
            (r##"{"type":"string","$ref":"#/properties/a"}"##, ""),
            (r#"{"type":"string"}"#, r##","allOf":[{"$ref":"#"}]"##),
            (
                r#"{"type":"string"}"#,
                r##","anyOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"not":{"$ref":"#"}}}"##,
            ),
        ] {
            let schema = format!(r#"{{"type":"object","properties":{{"a":{member}}}{beside}}}"#);
            let question = question(
                "input-required",
                &format!(r#"{{"mcp.inputKey":"k","mcp.requestedSchema":{schema}}}"#),
            );
            assert!(question.inputs[0].schema.is_some(), "{schema} is a form");
            let answer = |content: &str| {
                let answers = format!(r#"{{"k":{{"action":"accept","content":{content}}}}}"#);
                question.read_responses(Some(&raw(&answers)))
            };
            assert!(answer(r#"{"a":7}"#).is_err(), "{schema}");
            drop(answer(r#"{"a":"b"}"#));
        }
    }

    #[test]
    fn unanswered_members_are_missing() {
        let read = |json: &str| several().read_responses(Some(&raw(json))).unwrap();
        let given = read(r#"{"b":{"action":"accept","content":{"reply":"x"}}}"#);
        assert_eq!((given.missing, given.accepted.len()), (vec!["a".to_owned()], 1));
        let given = read(r#"{"a":{"action":"decline"},"b":{"action":"cancel"}}"#);
        assert!(given.declined && given.cancelled && given.missing.is_empty() && given.accepted.is_empty());
        for nothing in [None, Some("null"), Some("{}"), Some(r#"{"z":{"action":"accept"}}"#)] {
            let given = several().read_responses(nothing.map(raw).as_deref()).unwrap();
            assert_eq!(given.missing, ["a", "b"]);
        }
    }

    #[test]
    fn the_agent_is_told_in_the_way_it_asked() {
        let told = |question: &AgentQuestion, json: &str| {
            let given = question.read_responses(Some(&raw(json))).unwrap();
            data(&question.message(&given.accepted)).into_owned()
        };
        let plain = question("input-required", r#"{"mcp.inputKey":"k"}"#);
        let accept = |content: &str| format!(r#"{{"action":"accept","content":{content}}}"#);
        let reply = accept(r#"{"reply":"tomorrow"}"#);
        assert_eq!(told(&plain, &format!(r#"{{"k":{reply}}}"#)), "tomorrow");
        let filled = accept(r#"{"user_name":"bob"}"#);
        assert_eq!(told(&form(), &format!(r#"{{"k":{filled}}}"#)), r#"{"user_name":"bob"}"#);
        let both = format!(r#"{{"b":{reply},"a":{}}}"#, accept(r#"{"reply":"now"}"#));
        assert_eq!(told(&several(), &both), r#"{"a":{"reply":"now"},"b":{"reply":"tomorrow"}}"#);
        assert_eq!(told(&form(), "{}"), "nothing");
    }

    #[test]
    fn content_of_an_authorization_is_dropped() {
        let question = question("auth-required", r#"{"mcp.inputKey":"k"}"#);
        let given = r#"{"k":{"action":"accept","content":{"password":"p"}}}"#;
        let given = question.read_responses(Some(&raw(given))).unwrap();
        assert_eq!(given.accepted.get("k").map(|content| content.get()), Some("{}"));
    }

    #[test]
    fn an_input_is_found_by_its_turn_while_its_question_is_open() {
        for question in [form(), several()] {
            for InputField { key, .. } in &question.inputs {
                assert_eq!(question.key_of(question.question_fingerprint(key)), Some(key.as_str()));
            }
        }
        assert_eq!(form().question_fingerprint("k"), form().turn.to_bytes());
        assert_eq!(form().key_of(several().question_fingerprint("a")), None);
    }

    #[test]
    fn a_message_id_says_which_answer_to_which_question() {
        let (turn, other) = (Fingerprint::from_bytes([1; 16]), Fingerprint::from_bytes([2; 16]));
        let id = message_id("t", turn, [3; 16]);
        assert_eq!(id, message_id("t", turn, [3; 16]));
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert_eq!(id.chars().nth(14), Some('8'));
        for changed in
            [message_id("u", turn, [3; 16]), message_id("t", other, [3; 16]), message_id("t", turn, [4; 16])]
        {
            assert_ne!(id, changed);
        }
    }

    proptest! {
        #[test]
        fn a_digest_is_about_values_and_not_about_spelling(
            members in prop::collection::btree_map("[a-c]{1,2}", any::<i32>(), 0..4),
            other in prop::collection::btree_map("[a-c]{1,2}", any::<i32>(), 0..4),
        ) {
            let one = |json: String| digest(&BTreeMap::from([("k".to_owned(), raw(&json))]));
            let tight = one(serde_json::to_string(&members).unwrap());
            let backwards: Vec<String> = members.iter().rev().map(|(name, n)| format!(" {name:?} : {n}")).collect();
            prop_assert_eq!(tight, one(format!("{{{} }}", backwards.join(","))));
            prop_assert_eq!(tight == one(serde_json::to_string(&other).unwrap()), members == other);
        }

        #[test]
        fn no_answer_breaks_the_reader(json in any::<String>(), content in any::<String>()) {
            for text in [json.clone(), format!(r#"{{"k":{{"action":"accept","content":{}}}}}"#, serde_json::json!({json: content}))] {
                if let Ok(raw) = RawValue::from_string(text) {
                    let given = form().read_responses(Some(&raw));
                    prop_assert!(given.is_err() || given.is_ok_and(|given| given.accepted.is_empty()));
                }
            }
        }
    }
}
