//! Any task that is read is kept and read back as it was: its JSON, the state of the work, the open
//! question.

#![cfg_attr(feature = "libfuzzer", no_main)]

use mcp_a2a_gateway::a2a::{Task, read_task, task_json};
use mcp_a2a_gateway::bridge::output::AgentOutput;
use serde_json::value::RawValue;

fuzz::program!(kept);

/// Small, so that it is reached.
const ARTIFACTS: usize = 4096;

fn kept(bytes: &[u8]) {
    let Ok(task) = read_task(bytes) else { return };
    let written = task_json(&task);
    assert!(serde_json::from_slice::<&RawValue>(&written).is_ok(), "{}", String::from_utf8_lossy(&written));
    let again = read(&written);
    assert_eq!(format!("{again:?}"), format!("{task:?}"));
    assert_eq!(task_json(&again), written);
    let Ok(work) = AgentOutput::from_task(task, ARTIFACTS) else { return };
    let Some(kept) = work.to_task() else { return };
    let back =
        AgentOutput::from_task(read(&task_json(&kept)), ARTIFACTS).expect("what had room has room again");
    assert_eq!(format!("{back:?}"), format!("{work:?}"));
    assert_eq!(back.question_turn(), work.question_turn());
}

fn read(json: &[u8]) -> Task {
    read_task(json).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(json)))
}
