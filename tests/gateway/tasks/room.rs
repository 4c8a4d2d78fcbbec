//! Tasks in memory: their size and lifetime, and the environment variables that set both where the
//! file does not.
//!
//! Out of scope: when a task is forgotten altogether (see `task_life`), tasks that survive a
//! restart in full (see `restart`).

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::quiz::begun;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);

fn call() -> Value {
    json!({ "name": TOOL, "arguments": { "text": "x" } })
}

/// Calls until the gateway makes a task of it; its handle.
async fn begin(client: &McpClient) -> String {
    let task = client.modern("tools/call", call()).await.result().await;
    task["taskId"].as_str().unwrap_or_else(|| panic!("not a task: {task}")).to_owned()
}

/// The result of a task that is over.
async fn result(client: &McpClient, task: &str) -> Value {
    let done = client.task("tasks/get", task).await.result().await;
    assert_eq!(done["status"], "completed", "{done}");
    done["result"].clone()
}

/// A figure on the metrics page.
async fn figure(gateway: &TestGateway, name: &str) -> u64 {
    let metrics = gateway.metrics().await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {metrics}")).trim().parse().unwrap()
}

/// The gateway before this agent, with these variables and lines.
async fn gateway_with(agent: &ScriptedAgent, variables: &[(&str, &str)], settings: &str) -> TestGateway {
    let card = agent.card_url();
    let lines = format!("{settings}\nagents:\n  bard:\n    card: {card}\n");
    TestGateway::start_with(variables, |ports| format!("{}{lines}", ports.listeners())).await
}

#[tokio::test]
async fn large_result_is_evicted_and_read_again() {
    let settings = "calls: { task_after: 0s, round_grace: 100ms }\ntasks: { keep_artifacts: 1KiB, sweep_interval: 50ms }";
    let scene = Scene::tuned(settings).await;
    let large = "la ".repeat(100_000);
    let go = scene.agent.works_for(RAW, &large);
    let client = scene.gateway.client().with_tasks();
    let task = begin(&client).await;
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "kept by the agent")));
    go.fire();
    // The gateway asks the agent only before it evicts the artifacts.
    scene.agent.wait_for_call("GetTask").await;
    let held = async || figure(&scene.gateway, "mcp_a2a_gateway_task_bytes ").await;
    in_time("the artifacts to be let go of", async { while held().await > 10_000 {} }).await;
    assert_eq!(words(&result(&client, &task).await), "kept by the agent");
}

#[tokio::test]
async fn lost_large_result_is_kept() {
    let settings = "calls: { task_after: 0s, round_grace: 100ms }\ntasks: { keep_artifacts: 1KiB, sweep_interval: 50ms }";
    let scene = Scene::tuned(settings).await;
    let large = "la ".repeat(10_000);
    let go = scene.agent.works_for(RAW, &large);
    let client = scene.gateway.client().with_tasks();
    let task = begin(&client).await;
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    go.fire();
    scene.agent.wait_for_call("GetTask").await;
    client.task_until(&task, "completed").await;
    assert_eq!(words(&result(&client, &task).await), large);
}

#[tokio::test]
async fn idle_result_is_compressed_and_read_again() {
    let settings = "calls: { task_after: 0s, round_grace: 100ms }\ntasks: { compress_after: 10ms, sweep_interval: 50ms }";
    let scene = Scene::tuned(settings).await;
    let song = "Row, row, row your boat, \"gently\" down the stream. ".repeat(100);
    let go = scene.agent.works_for(RAW, &song);
    let client = scene.gateway.client().with_tasks();
    let task = begin(&client).await;
    go.fire();
    client.task_until(&task, "completed").await;
    let compressed = async || figure(&scene.gateway, "mcp_a2a_gateway_compressed_tasks ").await;
    for _ in 0..2 {
        in_time("the task to be compressed", async { while compressed().await == 0 {} }).await;
        let held = figure(&scene.gateway, "mcp_a2a_gateway_task_bytes ").await;
        assert!(held < 2_000, "{held} bytes");
        assert_eq!(words(&result(&client, &task).await), song);
    }
    assert!(scene.agent.calls("GetTask").is_empty(), "nothing is read again from the agent");
}

#[tokio::test]
async fn results_over_total_are_read_again() {
    let scene = Scene::tuned("calls: { task_after: 0s }\ntasks: { max_bytes: 100KiB }").await;
    scene.agent.on_send(|request| {
        let task = format!("raw-{}", request.number);
        let begun = Reply::stream().event(v1::task(&task, RAW_CONTEXT, "working"));
        begun.event(v1::completed(&task, RAW_CONTEXT, &"la ".repeat(20_000)))
    });
    scene.agent.on_get(|request| {
        let task = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_completed(&task, RAW_CONTEXT, "kept by the agent"))
    });
    let told = async |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        scene.gateway.client().modern("tools/call", params).await.result().await
    };
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let begun = told("subagent_start", json!({ "subagentUri": "a2a-agent://bard", "text": "x" })).await;
        let task = begun["structuredContent"]["taskId"].as_str().unwrap().to_owned();
        told("subagent_wait", json!({ "taskId": task })).await;
        tasks.push(task);
    }
    // A client that asks at the right moment reads a result a moment before others are evicted for it.
    let evicted = async || figure(&scene.gateway, "mcp_a2a_gateway_tasks_evicted_total ").await;
    in_time("two tasks to be evicted", async { while evicted().await < 2 {} }).await;
    assert_eq!(evicted().await, 2);
    assert!(figure(&scene.gateway, "mcp_a2a_gateway_task_bytes ").await <= 100 << 10);
    assert!(scene.agent.calls("GetTask").is_empty());
    let newest = told("subagent_wait", json!({ "taskId": tasks[2] })).await;
    assert!(words(&newest).contains("la la"), "it is here");
    let oldest = told("subagent_wait", json!({ "taskId": tasks[0] })).await;
    assert_eq!(words(&oldest), "kept by the agent");
}

#[tokio::test]
async fn abandoned_leg_lasts_for_its_grace() {
    for (grace, holds) in [("10m", true), ("100ms", false)] {
        // One is followed, the other one is polled: nothing but the grace holds it.
        let settings = format!(
            "calls: {{ round_timeout: 100ms, round_grace: {grace} }}\nbackground: {{ max: 1 }}\ntasks: {{ max: 2 }}"
        );
        let scene = Scene::tuned(&settings).await;
        scene.agent.on_send(|request| {
            Reply::stream()
                .event(v1::task(&format!("raw-{}", request.number), RAW_CONTEXT, "working"))
                .stall()
        });
        scene.agent.on_get(|request| {
            let task = request.params()["id"].as_str().unwrap().to_owned();
            Reply::result(v1::bare_task(&task, RAW_CONTEXT, "working"))
        });
        for _ in 0..2 {
            let round =
                scene.gateway.client().with_rounds().modern("tools/call", call()).await.result().await;
            assert_eq!(round["resultType"], "input_required", "{round}");
        }
        let session = scene.session().await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        let refused = async || {
            let third = session.call("tools/call", params.clone()).await.json().await;
            third["error"]["code"] == -32603
        };
        assert!(!holds || refused().await, "{grace}");
        if !holds {
            in_time("the place of whoever did not come back", async { while refused().await {} }).await;
        }
    }
}

#[tokio::test]
async fn task_lifetime_comes_from_environment() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let variables = [("TASK_TTL_MS", "1000"), ("TASK_CLEANUP_INTERVAL_MS", "100")];
    let gateway = gateway_with(&agent, &variables, "calls: { task_after: 0s }").await;
    let go = agent.works_for(RAW, "the song");
    let client = gateway.client().with_tasks();
    let task = begin(&client).await;
    go.fire();
    assert_eq!(client.task_until(&task, "completed").await["ttlMs"], 1000);
    let forgotten = async { while figure(&gateway, "mcp_a2a_gateway_tasks ").await > 0 {} };
    in_time("the task to be forgotten", forgotten).await;
}

#[tokio::test]
async fn task_folder_comes_from_environment() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let folder = TempDir::new().unwrap();
    let variables = [("DATA_DIR", folder.path().to_str().unwrap())];
    let gateway = gateway_with(&agent, &variables, "calls: { task_after: 0s }").await;
    let go = agent.works_for(RAW, "the song");
    let client = gateway.client().with_tasks();
    let task = begin(&client).await;
    go.fire();
    client.task_until(&task, "completed").await;
    // Another one gets its handle: everything before is on disk.
    agent.on_send(|_| Reply::stream().event(v1::task("raw-other", RAW_CONTEXT, "working")).stall());
    begin(&client).await;
    drop(gateway);
    agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let gateway = gateway_with(&agent, &variables, "calls: { task_after: 0s }").await;
    let client = gateway.client().with_tasks();
    assert_eq!(words(&result(&client, &task).await), "the song");
}

#[tokio::test]
async fn silence_check_comes_from_environment() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let variables = [("SSE_IDLE_TIMEOUT_MS", "100"), ("SSE_RETRY_BASE_MS", "50"), ("SSE_RETRY_MAX_MS", "60")];
    let gateway = gateway_with(&agent, &variables, "").await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let told = gateway.client().modern("tools/call", call()).await.result().await;
    assert_eq!(words(&told), "the song");
}

#[tokio::test]
async fn attempt_limit_comes_from_environment() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let variables = [("SSE_MAX_ATTEMPTS", "3"), ("SSE_RETRY_BASE_MS", "20"), ("SSE_RETRY_MAX_MS", "20")];
    let gateway = gateway_with(&agent, &variables, "").await;
    agent.on_send(|_| Reply::stream().event(begun()).cut());
    agent.on_get(|_| Reply::hang_up());
    agent.on_subscribe(|_| Reply::hang_up());
    let told = gateway.client().modern("tools/call", call()).await.result().await;
    assert_eq!(told["isError"], true, "{told}");
    assert_eq!(agent.calls("GetTask").len(), 3);
}
