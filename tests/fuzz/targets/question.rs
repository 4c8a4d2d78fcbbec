//! Any question of an agent is put to clients of every revision as a form that they know, and any
//! response is refused with words or fits the question.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::HashSet;

use mcp_a2a_gateway::a2a::{Dialect, Message, OperationRequest, Role, TaskState, read_task};
use mcp_a2a_gateway::bridge::arguments::validator;
use mcp_a2a_gateway::bridge::elicitation::{AgentQuestion, InputField};
use mcp_a2a_gateway::bridge::output::AgentOutput;
use mcp_a2a_gateway::bridge::user_response::{UserResponse, digest};
use mcp_a2a_gateway::mcp::elicitation::ElicitRequest;
use mcp_a2a_gateway::mcp::elicitation::{adapt, is_form, requests_secret};
use mcp_a2a_gateway::mcp::{ClientCapabilities, Version};
use serde_json::Value;
use serde_json::value::RawValue;

fuzz::program!(asked);

const LONGEST: usize = 8 * 1024;
const MOST_INPUTS: usize = 16;

/// The first line is the message of an agent that asks, each other one is what a client says.
fn asked(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let message = lines.next().unwrap_or_default();
    let responses: Vec<&str> = lines.take(8).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    for state in ["input-required", "auth-required"] {
        let Some(question) = question(state, message) else { continue };
        let mut keys = HashSet::new();
        for InputField { key, message, .. } in &question.inputs {
            assert!(!key.is_empty() && keys.insert(key.as_str()), "{key:?} names nothing, or two things");
            assert!(!message.is_empty() && message.len() <= LONGEST, "{} bytes are asked", message.len());
            assert_eq!(question.key_of(question.question_fingerprint(key)), Some(key.as_str()));
        }
        assert!((1..=MOST_INPUTS).contains(&keys.len()), "{} things are asked", keys.len());
        put(&question, &keys);
        for json in &responses {
            let Ok(raw) = serde_json::from_str::<&RawValue>(json) else { continue };
            match question.read_responses(Some(raw)) {
                Ok(given) => answered(&question, &given),
                Err(words) => assert!(!words.is_empty()),
            }
        }
    }
}

fn question(state: &str, message: &[u8]) -> Option<AgentQuestion> {
    let mut task = format!(r#"{{"id":"t","status":{{"state":"{state}","message":"#).into_bytes();
    task.extend_from_slice(message);
    task.extend_from_slice(b"}}");
    AgentQuestion::of(&AgentOutput::from_task(read_task(&task).ok()?, 1000).ok()?)
}

/// How clients of every revision, with all that they can do, are asked.
fn put(question: &AgentQuestion, keys: &HashSet<&str>) {
    for version in Version::LEGACY.into_iter().chain(Version::MODERN) {
        for bits in [ClientCapabilities::FORM.bits(), ClientCapabilities::URL.bits(), u16::MAX] {
            let Some(asks) = question.asks(version, ClientCapabilities::from_bits(bits)) else { continue };
            let asked: HashSet<&str> = asks.iter().map(|(key, _)| key).collect();
            assert_eq!(&asked, keys, "half of a question");
            for (_, ask) in asks.iter() {
                match ask {
                    ElicitRequest::Form { schema, .. } => {
                        assert!(question.state == TaskState::InputRequired && is_form(schema), "{schema}");
                        assert!(!requests_secret(schema), "{schema}");
                        let again = adapt(schema, version).expect("a form is a form");
                        assert_eq!(again.get(), schema.get(), "{version:?}");
                    }
                    ElicitRequest::Url { url, .. } => {
                        assert!(
                            question.state == TaskState::AuthRequired && url.starts_with("https://"),
                            "{url}"
                        );
                        assert!(version >= Version::V2025_11_25, "{version:?} knows no links");
                    }
                }
            }
            let json = asks.input_requests().expect("JSON");
            let entries: Value = match serde_json::from_str(json.get()) {
                Ok(entries) => entries,
                // Numbers that no parser holds are passed on as they came.
                Err(error) => {
                    assert!(error.to_string().contains("out of range"), "{error}: {json}");
                    continue;
                }
            };
            assert_eq!(entries.as_object().map(serde_json::Map::len), Some(keys.len()), "{json}");
        }
    }
}

fn answered(question: &AgentQuestion, given: &UserResponse) {
    for (key, content) in &given.accepted {
        let input = question.inputs.iter().find(|input| input.key == *key).expect("what was asked");
        let value: Value = serde_json::from_str(content.get()).expect("JSON");
        assert!(value.is_object() && !given.missing.contains(key), "{content}");
        if question.state == TaskState::AuthRequired {
            assert_eq!(content.get(), "{}", "what came with an authorization stays here");
            continue;
        }
        let Some(schema) = &input.schema else {
            let reply = value["reply"].as_str().map(|reply| reply.chars().count());
            assert!(reply.is_some_and(|length| (1..=10_000).contains(&length)), "{content}");
            continue;
        };
        let judge = serde_json::from_str(schema.get()).ok().and_then(|schema| validator(&schema).ok());
        assert!(judge.is_none_or(|judge| judge.is_valid(&value)), "{content} against {schema}");
    }
    assert_eq!(digest(&given.accepted), digest(&given.clone().accepted));
    if given.missing.is_empty() && !given.accepted.is_empty() && !given.declined && !given.cancelled {
        sent(question, given);
    }
}

fn sent(question: &AgentQuestion, given: &UserResponse) {
    let parts = question.message(&given.accepted);
    assert_eq!(parts.len(), 1, "the agent is told something");
    let message = Message {
        message_id: Some("m".into()),
        role: Role::User,
        parts,
        task_id: Some("t".into()),
        context_id: None,
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: None,
    };
    for dialect in [Dialect::V0_1, Dialect::V0_3, Dialect::V1] {
        let body = dialect
            .send(&OperationRequest { message: &message, accepted_output_modes: &[], tenant: None }, true);
        let value: Value = serde_json::from_slice(&body).expect("what was judged is JSON");
        assert!(value.pointer("/params/message/parts/0").is_some(), "{value}");
    }
}
