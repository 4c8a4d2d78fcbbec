//! Bodies of clients and agents in the measurements.
//!
//! Shaped like the captures under `tests/golden`: the small ones are of the size of a real call, the large ones 64 KiB.

use serde_json::{Value, json};

/// Size of the large bodies, in bytes.
const LARGE: usize = 64 * 1024;

const QUESTION: &str = "What will the weather be like in Lisbon next weekend? Please say whether to bring \
     an umbrella, and what to wear in the evening. We arrive on Friday at noon, and leave on Sunday night. If \
     the sea is too cold for the children, name two museums that are open on Saturday, and how to get there.";

/// Returns the card of the agent.
pub(crate) fn card() -> Value {
    json!({
        "name": "Weather", "description": "Knows the weather of every city.", "version": "1.0.0",
        "supportedInterfaces": [
            {"url": "http://127.0.0.1:9/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": true},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [
            {"id": "forecast", "name": "Forecast", "description": "What is to come.", "tags": ["weather"]},
            {"id": "history", "name": "History", "description": "What has been.", "tags": ["weather"]}
        ],
    })
}

/// Returns a legacy `tools/call` with a short text.
pub(crate) fn small_call() -> Vec<u8> {
    call(&json!({"text": QUESTION}), &json!({"progressToken": 7}))
}

/// Returns the same from a modern client.
pub(crate) fn modern_call() -> Vec<u8> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
        "progressToken": 7,
    });
    call(&json!({"text": QUESTION}), &meta)
}

/// Returns a call with a text of 64 KiB, in lines.
pub(crate) fn text_call() -> Vec<u8> {
    call(&json!({"text": prose()}), &json!({"progressToken": 7}))
}

/// Returns a call with 64 KiB of nested data.
pub(crate) fn data_call() -> Vec<u8> {
    call(&json!({"text": QUESTION, "data": table()}), &json!({"progressToken": 7}))
}

fn call(arguments: &Value, meta: &Value) -> Vec<u8> {
    let body = json!({
        "jsonrpc": "2.0", "id": 42, "method": "tools/call",
        "params": {"name": "weather_forecast", "arguments": arguments, "_meta": meta},
    });
    body.to_string().into_bytes()
}

/// Returns a finished task of A2A 1.0 with a short response.
pub(crate) fn small_task() -> Vec<u8> {
    answer(&json!({"task": task("TASK_STATE_COMPLETED", "ROLE_USER", &json!([{"text": QUESTION}]))}))
}

/// Returns the same of A2A 0.3.
pub(crate) fn old_task() -> Vec<u8> {
    let mut task = task("completed", "user", &json!([{"kind": "text", "text": QUESTION}]));
    task["kind"] = json!("task");
    answer(&task)
}

/// Returns a finished task with a text of 64 KiB.
pub(crate) fn text_task() -> Vec<u8> {
    answer(&json!({"task": task("TASK_STATE_COMPLETED", "ROLE_USER", &json!([{"text": prose()}]))}))
}

/// Returns a finished task with 64 KiB of nested data.
pub(crate) fn data_task() -> Vec<u8> {
    answer(&json!({"task": task("TASK_STATE_COMPLETED", "ROLE_USER", &json!([{"data": table()}]))}))
}

fn task(state: &str, asker: &str, parts: &Value) -> Value {
    let question = json!([{"text": "What will the weather be like in Lisbon?"}]);
    json!({
        "id": "0195f2a4-7c11-7f3e-9d55-3f0c8f6b2a10", "contextId": "0195f2a4-7c11-7f3e-9d55-4b1d7e2c9f33",
        "status": {"state": state, "timestamp": "2026-11-20T23:28:35.481174Z"},
        "artifacts": [{"artifactId": "answer", "name": "answer", "parts": parts}],
        "history": [{"messageId": "m-2", "contextId": "0195f2a4-7c11-7f3e-9d55-4b1d7e2c9f33", "role": asker,
                     "parts": question}],
    })
}

/// Returns two events with different progress, for use in turn: a repeated status causes no
/// notification.
pub(crate) fn status_events() -> [Vec<u8>; 2] {
    [("m-1", "Asking the weather station"), ("m-2", "Waiting for the satellites")].map(|(id, text)| {
        let message = json!({"messageId": id, "role": "ROLE_AGENT", "parts": [{"text": text}]});
        let status = json!({"state": "TASK_STATE_WORKING", "message": message,
                            "timestamp": "2026-11-20T23:28:35.481174Z"});
        event(&json!({"statusUpdate": {"taskId": "0195f2a4-7c11-7f3e-9d55-3f0c8f6b2a10",
                                       "contextId": "0195f2a4-7c11-7f3e-9d55-4b1d7e2c9f33", "status": status}}))
    })
}

/// Returns an event that adds a piece of text to an artifact.
pub(crate) fn chunk_event() -> Vec<u8> {
    let artifact =
        json!({"artifactId": "answer", "name": "answer", "parts": [{"text": "It will rain on Saturday, "}]});
    event(&json!({"artifactUpdate": {"taskId": "0195f2a4-7c11-7f3e-9d55-3f0c8f6b2a10",
                                     "contextId": "0195f2a4-7c11-7f3e-9d55-4b1d7e2c9f33",
                                     "artifact": artifact, "append": true, "lastChunk": false}}))
}

fn event(result: &Value) -> Vec<u8> {
    [b"data: ".as_slice(), &answer(result), b"\r\n\r\n"].concat()
}

fn answer(result: &Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string().into_bytes()
}

/// Returns text as people and models write it: lines, quotes, a few letters beyond ASCII.
fn prose() -> String {
    let line = "The forecast for \"São Pedro de Moel\" says: wind from the north, 20 to 30 km/h, no rain.\n";
    line.chars().cycle().take(LARGE).collect()
}

/// Returns rows of a table: a realistic number of objects, keys and numbers.
fn table() -> Value {
    let row = |number: usize| {
        json!({"station": format!("PT-{number:04}"), "at": {"lat": 38.72, "lon": -9.14},
               "readings": [{"t": 17.5, "wind": [21, 350]}, {"t": 16.25, "wind": [19, 355]}], "ok": true})
    };
    let size = row(1000).to_string().len() + 1;
    json!({"rows": (0..LARGE / size).map(row).collect::<Vec<_>>()})
}
