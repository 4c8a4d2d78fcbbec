//! Agents that move: to another address of their card, to another interface of it, to another of
//! their endpoints.
//!
//! Out of scope: endpoints that fail and come back where they were (see `ejection`).

use serde_json::{Value, json};

use crate::kit::cluster::{HASTY, call, endpoints, say};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, free_port, in_time};

/// Cards that are read often.
const FRESH: &str = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }";
/// How many calls are counted after a move.
const CALLS: usize = 20;

/// A card that names these interfaces.
fn card_at(interfaces: &[(&str, &str)]) -> Card {
    let offer = |(binding, url): &(&str, &str)| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
    Card::v1().skill("sing").set("supportedInterfaces", Value::Array(interfaces.iter().map(offer).collect()))
}

/// An agent that answers, and begins a task that goes on when it is asked for one.
async fn worker(port: u16) -> ScriptedAgent {
    let agent = ScriptedAgent::start_at(([127, 0, 0, 1], port).into(), Card::v1()).await;
    agent.on_send(|request| match request.text().as_str() {
        "task" => Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall(),
        text => Reply::events([v1::message(text)]),
    });
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    agent.on_subscribe(|_| Reply::error(-32004, "not now"));
    agent
}

/// A gateway before the agent of this card, with `own` lines.
async fn before(registrar: &ScriptedAgent, own: &str) -> TestGateway {
    let card = registrar.card_url();
    TestGateway::start(|ports| {
        let listeners = ports.listeners();
        format!("{listeners}{FRESH}\n{HASTY}\nagents:\n  bard:\n    card: {card}\n    allow_hosts: [\"127.0.0.1\"]\n{own}")
    })
    .await
}

/// Counts the calls that fail, and prints the figure.
async fn failures(gateway: &TestGateway, fault: &str) -> usize {
    let mut failures = 0;
    for number in 0..CALLS {
        let text = format!("song {number}");
        let result = say(gateway, &text).await;
        failures += usize::from(result["isError"] == true || words(&result) != text);
    }
    println!("{fault}: {CALLS} calls, {failures} failures");
    failures
}

/// Calls until one succeeds.
async fn until_reached(gateway: &TestGateway) {
    in_time("the first call", async { while say(gateway, "x").await["isError"] == true {} }).await;
}

/// Waits for the result of a task, through any other results of its tool.
async fn end_of(gateway: &TestGateway, task: &str) -> Value {
    in_time("the end of the task", async {
        loop {
            let result = call(gateway, json!({ "taskId": task })).await;
            if result["isError"] == false && result["structuredContent"].is_null() {
                return result;
            }
        }
    })
    .await
}

fn is_done(agent: &ScriptedAgent) {
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
}

/// The breaker of the old address is open for longer than the test lasts.
#[tokio::test]
async fn moved_agent_is_called_by_new_card() {
    let registrar = ScriptedAgent::start(Card::v1()).await;
    let (old, new) = (worker(free_port()).await, worker(free_port()).await);
    registrar.set_card(card_at(&[("JSONRPC", &old.url())]));
    let gateway = before(&registrar, "    breaker: { failures: 2, base: 10m, max: 10m }\n").await;
    let task = task_of(&say(&gateway, "task").await);
    old.stop().await;
    gateway.wait_for_output("endpoint ejected").await;
    registrar.set_card(card_at(&[("JSONRPC", &new.url())]));
    in_time("the card", async {
        while endpoints(&gateway).await[0]["url"] != json!(new.url()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(failures(&gateway, "an agent that moved by its card").await, 0);
    new.wait_for_call("GetTask").await;
    is_done(&new);
    assert_eq!(words(&end_of(&gateway, &task).await), "the song");
    assert_eq!(endpoints(&gateway).await[0]["up"], true);
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("mcp_a2a_gateway_endpoint_up{agent=\"bard\",endpoint=\"0\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn agent_is_found_at_another_interface() {
    let registrar = ScriptedAgent::start(Card::v1()).await;
    let (first, port) = (worker(free_port()).await, free_port());
    let second = format!("http://127.0.0.1:{port}/");
    registrar.set_card(card_at(&[("JSONRPC", &first.url()), ("GRPC", &second), ("JSONRPC", &second)]));
    let gateway = before(&registrar, "    breaker: { failures: 2, base: 300ms, max: 300ms }\n").await;
    let task = task_of(&say(&gateway, "task").await);
    first.stop().await;
    gateway.wait_for_output("endpoint ejected").await;
    let second = worker(port).await;
    until_reached(&gateway).await;
    assert_eq!(failures(&gateway, "an agent at another interface").await, 0);
    second.wait_for_call("GetTask").await;
    is_done(&second);
    assert_eq!(words(&end_of(&gateway, &task).await), "the song");
}

/// The second interface has another binding.
#[tokio::test]
async fn agent_is_found_at_another_binding() {
    let registrar = ScriptedAgent::start(Card::v1()).await;
    let (first, second) = (worker(free_port()).await, worker(free_port()).await);
    registrar.set_card(card_at(&[("JSONRPC", &first.url()), ("HTTP+JSON", &second.url())]));
    second.on_path("/message:stream", |_| Reply::stream().bare_event(&v1::message("la")));
    let done = v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song");
    second.on_path(&format!("/tasks/{RAW_TASK}"), move |_| Reply::json(&done));
    let gateway = before(&registrar, "    breaker: { failures: 2, base: 10m, max: 10m }\n").await;
    let task = task_of(&say(&gateway, "task").await);
    assert!(second.requests().is_empty(), "the first interface is preferred");
    first.stop().await;
    assert_eq!(words(&end_of(&gateway, &task).await), "the song");
    for _ in 0..CALLS {
        assert_eq!(words(&say(&gateway, "x").await), "la");
    }
}

#[tokio::test]
async fn agent_is_found_at_another_endpoint() {
    let registrar = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let (first, port) = (worker(free_port()).await, free_port());
    let own = format!(
        "    endpoints: [\"{}\", \"http://127.0.0.1:{port}/\"]\n    breaker: {{ failures: 2, base: 300ms, max: 300ms }}\n",
        first.url()
    );
    let gateway = before(&registrar, &own).await;
    let task = task_of(&say(&gateway, "task").await);
    first.stop().await;
    gateway.wait_for_output("endpoint ejected").await;
    // The second is asked for the task, in vain, more than once.
    in_time("both are left alone", async {
        while endpoints(&gateway).await.iter().any(|endpoint| endpoint["up"] == true) {
            say(&gateway, "x").await;
        }
    })
    .await;
    let second = worker(port).await;
    until_reached(&gateway).await;
    assert_eq!(failures(&gateway, "an agent at another endpoint").await, 0);
    second.wait_for_call("GetTask").await;
    is_done(&second);
    assert_eq!(words(&end_of(&gateway, &task).await), "the song");
}

/// The wish to stop a task goes where the agent is now.
#[tokio::test]
async fn moved_task_is_cancelled_where_it_is() {
    let registrar = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let (first, second) = (worker(free_port()).await, worker(free_port()).await);
    registrar.set_card(card_at(&[("JSONRPC", &first.url()), ("JSONRPC", &second.url())]));
    let gateway = before(&registrar, "    breaker: { failures: 2, base: 10m, max: 10m }\n").await;
    let task = task_of(&say(&gateway, "task").await);
    second.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    first.stop().await;
    let params = json!({ "name": "subagent_cancel", "arguments": { "taskId": task } });
    let client = gateway.client();
    let stopped = client.modern("tools/call", params).await.result().await;
    second.wait_for_call("CancelTask").await;
    assert_eq!(stopped["isError"], false, "{stopped}");
}
