//! Any event of an agent becomes good JSON for clients of every revision, and the same in every
//! dialect.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::LazyLock;

use mcp_a2a_gateway::a2a::{AgentError, Dialect};
use mcp_a2a_gateway::bridge::output::{AgentOutput, OutputState};
use mcp_a2a_gateway::bridge::task_status::ProgressNotifier;
use mcp_a2a_gateway::bridge::tool_result::{ResultContext, TaskTools, result};
use mcp_a2a_gateway::jsonrpc::Id;
use mcp_a2a_gateway::mcp::tools::ResourceLinks;
use mcp_a2a_gateway::mcp::lifecycle::Implementation;
use mcp_a2a_gateway::mcp::notifications::LoggingLevel;
use mcp_a2a_gateway::mcp::result_writer::ResultWriter;
use mcp_a2a_gateway::mcp::{Era, Version};
use mcp_a2a_gateway::seal::Sealer;
use mcp_a2a_gateway::sse::Decoder;
use serde_json::Value;

fuzz::program!(answers);

/// Small, so that it is reached.
const ARTIFACTS: usize = 4096;

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new([b"fuzz".as_slice()]).expect("a key"));
static ID: LazyLock<Id> = LazyLock::new(|| serde_json::from_str("7").expect("an id"));

/// Each line is what the agent says next.
fn answers(bytes: &[u8]) {
    let [oldest, old, new] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1].map(|dialect| told(bytes, dialect));
    assert!(oldest == new && old == new, "the dialects differ");
}

/// Everything that clients would see.
fn told(bytes: &[u8], dialect: Dialect) -> Vec<Vec<u8>> {
    let mut work = AgentOutput::new(ARTIFACTS);
    let mut teller = ProgressNotifier::new(Some(ID.clone()), Some(LoggingLevel::Debug), "agent");
    let mut told = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let was_finished = work.state() == OutputState::Finished;
        match dialect.event(line) {
            Ok(event) => {
                let Ok(note) = work.apply(event) else { break };
                assert!(note.is_none() || !was_finished, "finished work has news");
                let mut events = Vec::new();
                note.iter().for_each(|note| teller.write_events(note, &mut events));
                let events = Decoder::new(events.len()).push(&events).expect("events of any size");
                told.extend(events.into_iter().map(|event| event.data.into_owned()));
            }
            Err(AgentError::Refused { .. }) => break,
            Err(AgentError::NotA2a(_)) => {}
        }
        assert!(!was_finished || work.state() == OutputState::Finished, "finished work goes on");
    }
    told.extend(Version::LEGACY.into_iter().chain(Version::MODERN).map(|version| outcome(&work, version)));
    for json in &told {
        // Numbers that no parser holds are passed on as they came.
        let value: Result<Value, _> = serde_json::from_slice(json);
        let out_of_range = |error: &serde_json::Error| error.to_string().contains("out of range");
        assert!(
            value.as_ref().map_or_else(out_of_range, Value::is_object),
            "{}",
            String::from_utf8_lossy(json)
        );
    }
    told
}

fn outcome(work: &AgentOutput, version: Version) -> Vec<u8> {
    let extensions = &["https://example.test/ext/trace/v1".to_owned()];
    let audience = ResultContext {
        version,
        caller: "me",
        sealer: &SEALER,
        agent: "agent",
        task_tools: TaskTools::default(),
        extensions,
        links: ResourceLinks::All,
    };
    let result = result(work, &audience, [1; 16]);
    assert!(!result.content.is_empty(), "a result that says nothing");
    let era = if version >= Version::V2026_07_28 { Era::Modern } else { Era::Legacy };
    let server = Implementation { name: "fuzz", version: "0" };
    ResultWriter { era, server, ttl_ms: 1 }.uncacheable(&ID, &result)
}
