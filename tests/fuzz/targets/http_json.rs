//! Any response of an agent of 0.3 that is called by HTTP+JSON is read or refused, and a message that was read is
//! the same after it was sent and read again.

#![cfg_attr(feature = "libfuzzer", no_main)]

use mcp_a2a_gateway::a2a::{AgentInterface, Binding, Dialect, Message, StreamResponse};
use serde_json::Value;

fuzz::program!(answered);

/// The first byte has the HTTP status of a refusal.
fn answered(bytes: &[u8]) {
    let Some((status, json)) = bytes.split_first() else { return };
    let (url, dialect, binding) = ("http://h/".to_owned(), Dialect::V0_3, Binding::HttpJson);
    let agent = AgentInterface { url, dialect, binding, tenant: None, version: None };
    agent.refusal(400 + u16::from(*status), json);
    match agent.event(json) {
        Ok(StreamResponse::Message(message)) => {
            let once = sent_and_read(&agent, &message);
            let again = sent_and_read(&agent, &once);
            assert_eq!(format!("{once:?}"), format!("{again:?}"), "it changes each time");
        }
        Ok(StreamResponse::Task(task)) => {
            for message in task.history.messages() {
                sent_and_read(&agent, &message);
            }
        }
        Ok(StreamResponse::Status { .. } | StreamResponse::Artifact { .. } | StreamResponse::Unknown) | Err(_) => {}
    }
}

/// Sends a message, and reads it as if the agent had answered with it.
fn sent_and_read(agent: &AgentInterface, message: &Message) -> Message {
    let sent = agent.send(message, &[], false).expect("a send has no id in its path");
    // Numbers that no parser holds are passed on as they came.
    let value: Result<Value, _> = serde_json::from_slice(&sent.body);
    let is_json = value.map_or_else(|error| error.to_string().contains("out of range"), |value| value.is_object());
    assert!(is_json, "{}", String::from_utf8_lossy(&sent.body));
    // The request that is sent begins with the message, in the member of that name.
    match agent.event(&sent.body) {
        Ok(StreamResponse::Message(message)) => message,
        other => panic!("not a message: {other:?}"),
    }
}
