//! Batches of calls over several agents: concurrency, priorities, failures, progress, cancellation.

use serde_json::{Value, json};

use super::memory_bank::expires_under_rate;
use crate::auth::rules::{auth, key_of};
use crate::kit::scene::complaint;
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time};

const CALLS: usize = 50;
const CONCURRENCY: usize = 8;
const SETTINGS: &str = "resources: { batchtools: { max_concurrency: 8 } }\n";

/// Four agents, of which the last fails, behind one gateway.
struct Town {
    agents: Vec<ScriptedAgent>,
    gateway: TestGateway,
    /// Agents answer once this is open.
    gate: Signal,
}

impl Town {
    async fn new(settings: &str) -> Self {
        let gate = Signal::new();
        let mut agents = Vec::new();
        for number in 0..4 {
            let agent = ScriptedAgent::start(Card::v1().name(&format!("Agent {number}")).skill("work")).await;
            let gate = gate.clone();
            agent.on_stream(move |request| match number {
                3 => Reply::error(-32603, "broken").after(&gate),
                _ => Reply::events([v1::message(&format!("done {}", request.text()))]).after(&gate),
            });
            agents.push(agent);
        }
        let gateway = TestGateway::start(|ports| {
            let agents = agents.iter().enumerate();
            let agents: String = agents
                .map(|(number, agent)| format!("  a{number}:\n    card: {}\n", agent.card_url()))
                .collect();
            format!("{}{settings}agents:\n{agents}", ports.listeners())
        })
        .await;
        Self { agents, gateway, gate }
    }

    /// The texts of all calls that have arrived.
    fn arrived(&self) -> Vec<String> {
        let calls = self.agents.iter().flat_map(|agent| agent.calls("SendStreamingMessage"));
        calls.map(|request| request.text()).collect()
    }

    /// Waits until so many calls have arrived at all agents.
    async fn wait_for_calls(&self, count: usize) {
        let arrived = async {
            while self.arrived().len() < count {
                tokio::task::yield_now().await;
            }
        };
        in_time("the calls", arrived).await;
    }
}

/// Calls of all agents in turn: the low ones first, the high ones last.
fn calls(count: usize) -> Vec<Value> {
    let call = |number: usize| {
        let priority = match number {
            _ if number < 10 => "low",
            _ if number >= count - 10 => "high",
            _ => "normal",
        };
        let text = format!("{priority} {number}");
        json!({ "tool": format!("a{}_work", number % 4), "arguments": { "text": text }, "priority": priority })
    };
    (0..count).map(call).collect()
}

fn starting(arguments: Value) -> Value {
    json!({ "name": "batch_start", "arguments": arguments, "_meta": { "progressToken": "p" } })
}

async fn tool(client: &McpClient, name: &str, arguments: Value) -> Value {
    client.modern("tools/call", json!({ "name": name, "arguments": arguments })).await.result().await
}

async fn read(client: &McpClient, uri: &str) -> Value {
    let result = client.modern("resources/read", json!({ "uri": uri })).await.result().await;
    let text = result["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{uri}: {result}"));
    serde_json::from_str(text).unwrap()
}

/// Reads a resource until it is so.
async fn until(client: &McpClient, uri: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let reads = async {
        loop {
            let value = read(client, uri).await;
            if is_so(&value) {
                return value;
            }
        }
    };
    in_time(uri, reads).await
}

#[tokio::test]
async fn policy_of_batches_filters_and_expires() {
    let policy = "policy: { rate: 3, redact: [/thresholds/queueSize], max_age: 2s }";
    let town = Town::new(&format!("resources: {{ batchtools: {{ {policy} }} }}\n")).await;
    let client = town.gateway.client();
    let uri = "batchtools://config/settings";
    let changed = tool(&client, "batch_configure", json!({ "maxConcurrency": 2 })).await;
    assert_eq!(changed["isError"], false, "{changed}");
    let settings = read(&client, uri).await;
    assert_eq!(
        (&settings["maxConcurrency"], &settings["thresholds"]["queueSize"]),
        (&json!(2), &json!("***"))
    );
    expires_under_rate(&client, uri).await;
}

#[tokio::test]
async fn batch_runs_over_all_agents() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    let starter = client.clone();
    let batch = tokio::spawn(async move {
        starter.modern("tools/call", starting(json!({ "calls": calls(CALLS) }))).await.finish().await
    });
    town.wait_for_calls(CONCURRENCY).await;
    let queue = read(&client, "batchtools://queue/status").await;
    assert_eq!((&queue["queueSize"], &queue["activeBatches"]), (&json!(CALLS - CONCURRENCY), &json!(1)));
    assert_eq!(queue["maxConcurrency"], CONCURRENCY);
    let operation = &queue["operations"][0];
    assert_eq!((&operation["id"], &operation["priority"]), (&json!("batch_001"), &json!("high")));
    assert_eq!((&operation["running"], &operation["estimatedDuration"]), (&json!(CONCURRENCY), &Value::Null));
    assert!(operation["startTime"].as_str().unwrap().ends_with('Z'));
    let first = town.arrived();
    assert_eq!(first.len(), CONCURRENCY, "no more than that at once");
    assert!(first.iter().all(|text| text.starts_with("high")), "{first:?}");
    town.gate.open();
    let finished = in_time("the batch", batch).await.unwrap();

    let report = &finished.response["result"]["structuredContent"];
    assert_eq!((&report["status"], &report["total"]), (&json!("completed"), &json!(CALLS)), "{report}");
    assert_eq!(report["peakConcurrency"], CONCURRENCY);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), CALLS);
    for (number, result) in results.iter().enumerate() {
        let text = calls(CALLS)[number]["arguments"]["text"].as_str().unwrap().to_owned();
        assert_eq!(result["index"], number);
        match number % 4 {
            3 => assert_eq!(result["status"], "failed", "{result}"),
            _ => assert_eq!(result["result"]["content"][0]["text"], format!("done {text}"), "{result}"),
        }
    }
    let failed = CALLS / 4;
    assert_eq!((&report["failed"], &report["completed"]), (&json!(failed), &json!(CALLS - failed)));
    assert_eq!(report["successRate"], json!(0.76));
    assert!(report["speedup"].as_f64().unwrap() > 1.0, "{report}");
    assert_eq!(town.arrived().len(), CALLS, "each call once");

    let told: Vec<f64> = finished
        .notifications
        .iter()
        .filter(|told| told["method"] == "notifications/progress")
        .map(|told| told["params"]["progress"].as_f64().unwrap())
        .collect();
    assert!(!told.is_empty() && told.is_sorted() && told.last() == Some(&50.0), "{told:?}");

    let performance = read(&client, "batchtools://metrics/performance").await;
    assert_eq!(performance["overall"]["optimizationsApplied"], 1);
    assert_eq!(performance["overall"]["averageSpeedup"], report["speedup"]);
    assert_eq!(performance["overall"]["memoryReduction"], Value::Null);
    assert_eq!(performance["byType"]["concurrent_processing"]["successRate"], json!(0.76));
    assert_eq!(performance["byType"]["parallel_content_processing"]["count"], 0);
    let queue = read(&client, "batchtools://queue/status").await;
    assert_eq!((&queue["queueSize"], &queue["operations"]), (&json!(0), &json!([])));
    assert!(queue["throughput"]["operationsPerSecond"].as_f64().unwrap() > 0.0);
    assert!(queue["throughput"]["averageLatency"].is_u64());
    assert_eq!(read(&client, "batchtools://batches/batch_001").await["results"], report["results"]);
}

#[tokio::test]
async fn client_cancels_its_batch() {
    let town = Town::new(SETTINGS).await;
    let session = town.gateway.client().legacy().await;
    let params = json!({ "name": "batch_start", "arguments": { "calls": calls(20) } });
    let request = json!({ "jsonrpc": "2.0", "id": "b-1", "method": "tools/call", "params": params });
    let caller = session.clone();
    let batch = tokio::spawn(async move { caller.post(&request).await.text().await });
    town.wait_for_calls(CONCURRENCY).await;
    session.notify("notifications/cancelled", json!({ "requestId": "b-1" })).await;
    let body = in_time("the end of the request", batch).await.unwrap();
    assert!(!body.contains("result"), "a cancelled request has no response: {body}");
    let client = town.gateway.client();
    let uri = "batchtools://batches/batch_001";
    let report = until(&client, uri, |report| report["status"] != "running").await;
    assert_eq!((&report["status"], &report["cancelled"]), (&json!("cancelled"), &json!(20)), "{report}");
    assert_eq!((&report["speedup"], &report["pending"]), (&Value::Null, &json!(0)));
    assert_eq!(town.arrived().len(), CONCURRENCY, "the others never began");
}

#[tokio::test]
async fn batch_goes_on_without_its_client() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    let begun = tool(&client, "batch_start", json!({ "calls": calls(12), "wait": false })).await;
    let report = &begun["structuredContent"];
    assert_eq!((&report["status"], &report["batchId"]), (&json!("running"), &json!("batch_001")));
    let uri = report["resource"].as_str().unwrap();
    town.gate.open();
    let report = until(&client, uri, |report| report["status"] == "completed").await;
    assert_eq!((&report["completed"], &report["failed"]), (&json!(9), &json!(3)));
    let cancelled = tool(&client, "batch_cancel", json!({ "batchId": "batch_001" })).await;
    assert_eq!(cancelled["structuredContent"]["canceled"], false, "it has ended");
    let unknown = tool(&client, "batch_cancel", json!({ "batchId": "batch_002" })).await;
    assert!(complaint(&unknown).contains("no batch"));
}

#[tokio::test]
async fn settings_of_batches_are_changed_by_tool() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    town.gate.open();
    let uri = "batchtools://config/settings";
    let settings = read(&client, uri).await;
    assert_eq!((&settings["enabled"], &settings["maxConcurrency"]), (&json!(true), &json!(CONCURRENCY)));
    assert_eq!(settings["thresholds"]["queueSize"], 1000);
    let change = json!({ "maxConcurrency": 2, "thresholds": { "queueSize": 5 } });
    assert_eq!(tool(&client, "batch_configure", change).await["structuredContent"]["maxConcurrency"], 2);
    assert_eq!(read(&client, uri).await["thresholds"]["queueSize"], 5);
    let refused = tool(&client, "batch_configure", json!({ "maxConcurrency": 9 })).await;
    assert!(complaint(&refused).contains("resources.batchtools.max_concurrency allows 8"), "{refused}");
    let refused = tool(&client, "batch_start", json!({ "calls": calls(20) })).await;
    assert!(complaint(&refused).contains("thresholds.queueSize allows 5"), "{refused}");
    let done = tool(&client, "batch_start", json!({ "calls": &calls(20)[..5] })).await;
    assert_eq!(done["structuredContent"]["maxConcurrency"], 2, "{done}");
    tool(&client, "batch_configure", json!({ "enabled": false })).await;
    let refused = tool(&client, "batch_start", json!({ "calls": &calls(20)[..2] })).await;
    assert!(complaint(&refused).contains("switched off"), "{refused}");
}

#[tokio::test]
async fn batches_belong_to_their_caller() {
    let rules = "rules:\n  - deny: true\n    callers: [\"key:ben\"]\n    tools: batch_configure\n  - callers: [\"key:*\"]\n";
    let town = Town::new(&format!("{SETTINGS}{}{rules}", auth(&["ann", "ben"]))).await;
    town.gate.open();
    let by = |name| town.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    tool(&ann, "batch_start", json!({ "calls": &calls(20)[..4] })).await;
    tool(&ann, "batch_configure", json!({ "maxConcurrency": 1 })).await;
    let unseen = ben.modern("resources/read", json!({ "uri": "batchtools://batches/batch_001" })).await;
    assert!(unseen.json().await["error"].is_object());
    let refused = tool(&ben, "batch_cancel", json!({ "batchId": "batch_001" })).await;
    assert!(complaint(&refused).contains("no batch"));
    let performance = read(&ben, "batchtools://metrics/performance").await;
    assert_eq!(performance["byType"]["concurrent_processing"]["count"], 0);
    assert_eq!(read(&ben, "batchtools://config/settings").await["maxConcurrency"], CONCURRENCY);
    let params = json!({ "name": "batch_configure", "arguments": { "maxConcurrency": 1 } });
    let refused = ben.modern("tools/call", params).await.json().await;
    assert!(refused["error"].is_object(), "{refused}");
    let settings = ben.modern("resources/read", json!({ "uri": "batchtools://config/settings" })).await;
    assert_eq!(settings.result().await["contents"][0]["_meta"]["permissions"], json!(["read"]));
    let list = ben.modern("resources/list", json!({})).await.result().await.to_string();
    assert!(list.contains("batchtools://queue/status") && !list.contains("batch_001"), "{list}");
    let unknown = tool(&ben, "batch_start", json!({ "calls": [{ "tool": "none" }] })).await;
    let result = &unknown["structuredContent"]["results"][0];
    assert_eq!(result["status"], "failed", "{unknown}");
    assert!(result["error"].as_str().unwrap().contains("none"), "{unknown}");
}

/// Calls of the agents in turn, with texts of this length.
fn long_calls(count: usize, length: usize) -> Vec<Value> {
    let call = |number: usize| {
        let arguments = json!({ "text": "x".repeat(length) });
        json!({ "tool": format!("a{}_work", number % 3), "arguments": arguments })
    };
    (0..count).map(call).collect()
}

#[tokio::test]
async fn tool_cancels_running_batch() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    let starter = client.clone();
    let batch = tokio::spawn(async move {
        starter.modern("tools/call", starting(json!({ "calls": calls(20) }))).await.finish().await
    });
    town.wait_for_calls(CONCURRENCY).await;
    let cancelled = tool(&client, "batch_cancel", json!({ "batchId": "batch_001" })).await;
    assert_eq!(cancelled["structuredContent"], json!({ "batchId": "batch_001", "canceled": true }));
    let finished = in_time("the result for the client that waits", batch).await.unwrap();
    let report = &finished.response["result"]["structuredContent"];
    assert_eq!((&report["status"], &report["cancelled"]), (&json!("cancelled"), &json!(20)), "{report}");
    let never_began = "the batch was cancelled before this call began";
    let waited = report["results"].as_array().unwrap().iter();
    let waited = waited.filter(|result| result["error"] == never_began).count();
    assert_eq!((waited, town.arrived().len()), (20 - CONCURRENCY, CONCURRENCY));
    let queue = read(&client, "batchtools://queue/status").await;
    assert_eq!((&queue["queueSize"], &queue["activeBatches"]), (&json!(0), &json!(0)));
    town.gate.open();
    let next = tool(&client, "batch_start", json!({ "calls": &calls(20)[..2] })).await;
    assert_eq!(next["structuredContent"]["completed"], 2, "the room is free again: {next}");
}

#[tokio::test]
async fn waiting_calls_of_all_batches_count() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    let change = json!({ "maxConcurrency": 1, "thresholds": { "queueSize": 5 } });
    tool(&client, "batch_configure", change).await;
    let start = |count: usize| json!({ "calls": &calls(20)[..count], "wait": false });
    let first = tool(&client, "batch_start", start(4)).await;
    assert_eq!(first["structuredContent"]["status"], "running");
    town.wait_for_calls(1).await;
    let refused = tool(&client, "batch_start", start(3)).await;
    assert!(complaint(&refused).contains("6 calls of yours would wait"), "{refused}");
    let second = tool(&client, "batch_start", start(2)).await;
    assert_eq!(
        second["structuredContent"]["batchId"], "batch_002",
        "the refused one has no number: {second}"
    );
    town.gate.open();
    for uri in ["batchtools://batches/batch_001", "batchtools://batches/batch_002"] {
        let report = until(&client, uri, |report| report["status"] == "completed").await;
        assert_eq!((&report["peakConcurrency"], &report["pending"]), (&json!(1), &json!(0)));
    }
    assert_eq!(town.arrived().len(), 6);
}

#[tokio::test]
async fn memory_pressure_holds_calls_back() {
    let town = Town::new(SETTINGS).await;
    let client = town.gateway.client();
    tool(&client, "batch_configure", json!({ "thresholds": { "memoryUsage": 0 } })).await;
    // A request that the gateway holds in memory until its agent answers.
    let (other, text) = (client.clone(), "x".repeat(100_000));
    let held = tokio::spawn(async move { tool(&other, "a0_work", json!({ "text": text })).await });
    town.wait_for_calls(1).await;
    let start = json!({ "calls": &calls(20)[..6], "wait": false });
    tool(&client, "batch_start", start.clone()).await;
    town.wait_for_calls(2).await;
    let uri = "batchtools://batches/batch_001";
    let report = read(&client, uri).await;
    assert_eq!((&report["peakConcurrency"], &report["pending"]), (&json!(1), &json!(6)), "{report}");
    town.gate.open();
    in_time("the held request", held).await.unwrap();
    let report = until(&client, uri, |report| report["status"] == "completed").await;
    assert_eq!(
        (&report["completed"], &report["failed"]),
        (&json!(5), &json!(1)),
        "nothing is lost: {report}"
    );
    let performance = read(&client, "batchtools://metrics/performance").await;
    let held = &performance["byType"]["resource_optimization"];
    assert_eq!((&held["count"], &held["memoryReduction"]), (&json!(1), &Value::Null), "{performance}");
    assert_eq!(performance["overall"]["optimizationsApplied"], 1);
    // Without monitoring the threshold holds no call back.
    tool(&client, "batch_configure", json!({ "resourceMonitoring": false })).await;
    tool(&client, "batch_start", start).await;
    until(&client, "batchtools://batches/batch_002", |report| report["status"] == "completed").await;
    let performance = read(&client, "batchtools://metrics/performance").await;
    assert_eq!(performance["byType"]["resource_optimization"]["count"], 1, "{performance}");
}

#[tokio::test]
async fn bytes_of_batches_are_bounded() {
    let settings = "resources: { batchtools: { caller_bytes: 16KiB } }\n";
    let town = Town::new(settings).await;
    let client = town.gateway.client();
    town.gate.open();
    let refused = tool(&client, "batch_start", json!({ "calls": long_calls(2, 9000) })).await;
    assert!(complaint(&refused).contains("resources.batchtools.caller_bytes allows (16384)"), "{refused}");
    assert_eq!(town.arrived().len(), 0, "no call of a refused batch is made");
    // The agents send the text back: there is room for the arguments, and not for both results.
    let kept = tool(&client, "batch_start", json!({ "calls": long_calls(2, 4500) })).await;
    let report = &kept["structuredContent"];
    assert_eq!((&report["completed"], &report["failed"]), (&json!(1), &json!(1)), "{report}");
    let error = report["results"].as_array().unwrap().iter().find_map(|result| result["error"].as_str());
    let error = error.unwrap_or_default();
    assert!(error.contains("not kept") && error.contains("caller_bytes"), "{report}");
    // A finished batch makes room for a new one.
    let next = tool(&client, "batch_start", json!({ "calls": long_calls(1, 5000) })).await;
    assert_eq!(next["structuredContent"]["completed"], 1, "{next}");
    let gone = client.modern("resources/read", json!({ "uri": "batchtools://batches/batch_001" })).await;
    assert!(gone.json().await["error"].is_object());
}

#[tokio::test]
async fn batches_of_all_callers_share_bytes() {
    let settings = format!("resources: {{ batchtools: {{ max_bytes: 16KiB }} }}\n{}", auth(&["ann", "ben"]));
    let town = Town::new(&settings).await;
    let by = |name| town.gateway.client().header("X-Api-Key", &key_of(name));
    let start = json!({ "calls": long_calls(1, 9000), "wait": false });
    assert_eq!(tool(&by("ann"), "batch_start", start.clone()).await["isError"], false);
    town.wait_for_calls(1).await;
    let refused = tool(&by("ben"), "batch_start", start.clone()).await;
    assert!(complaint(&refused).contains("resources.batchtools.max_bytes allows (16384)"), "{refused}");
    let cancelled = tool(&by("ann"), "batch_cancel", json!({ "batchId": "batch_001" })).await;
    assert_eq!(cancelled["structuredContent"]["canceled"], true);
    let uri = "batchtools://batches/batch_001";
    until(&by("ann"), uri, |report| report["status"] == "cancelled").await;
    // A finished batch of another caller makes room.
    let start = json!({ "calls": long_calls(1, 7000), "wait": false });
    assert_eq!(tool(&by("ben"), "batch_start", start).await["isError"], false);
    let gone = by("ann").modern("resources/read", json!({ "uri": uri })).await;
    assert!(gone.json().await["error"].is_object());
    town.gate.open();
    until(&by("ben"), uri, |report| report["status"] == "completed").await;
}
