//! The end of the process while agents work on: every call gets an answer that its protocol knows.
//!
//! Out of scope: calls that end in time, and what is cut by a second signal (see `shutdown`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::a2a_scene::{Stage, call, saying};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::{
    Answer, Card, LegacySession, McpClient, Ports, Reply, ScriptedAgent, Signal, TestGateway, in_time,
};

const SETTINGS: &str =
    "shutdown: { grace: 1s, drain: 5s }\ncalls: { budget: 50s, round_timeout: 50s, task_after: 40s }\n";
/// The whole of it, and time for a machine under load.
const BOUND: Duration = Duration::from_secs(9);

/// An agent that names its tasks and works for ever; a blocking message gets no answer.
async fn stage() -> Stage {
    let stage = Stage::with(Card::v1().skill("sing"), SETTINGS, "").await;
    stage.agent.on_stream(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    stage.agent.on("SendMessage", |_| Reply::silence());
    stage.agent.on_subscribe(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    stage.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    stage
}

/// The params of a call that hears of progress.
fn singing() -> Value {
    json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } })
}

async fn begun(mut answer: Answer) -> Answer {
    answer.next_message().await;
    answer
}

/// A session, and a core task in it.
async fn with_task(client: &McpClient) -> (LegacySession, String) {
    let session = client.legacy().await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap().to_owned();
    (session, handle)
}

#[tokio::test]
async fn drain_gives_every_call_an_answer() {
    let mut stage = stage().await;
    let client = stage.gateway.client();
    let (session, task) = with_task(&client).await;
    let extended = client.capabilities(json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
    let legacy = begun(session.call("tools/call", singing()).await).await;
    let modern = begun(client.with_rounds().modern("tools/call", singing()).await).await;
    let extension = begun(extended.modern("tools/call", singing()).await).await;
    let listens = begun(call(&stage.client(), "SendStreamingMessage", saying("x")).await).await;
    // These get no byte before the end.
    let result = tokio::spawn({
        let (session, task) = (session.clone(), task.clone());
        async move { session.task("tasks/result", &task).await.finish().await.response }
    });
    let waits = tokio::spawn({
        let params = json!({ "name": "subagent_wait", "arguments": { "taskId": task } });
        let session = session.clone();
        async move { session.call("tools/call", params).await.finish().await.response }
    });
    let plain = tokio::spawn({
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let session = session.clone();
        async move { session.call("tools/call", params).await.finish().await.response }
    });
    let blocking = tokio::spawn({
        let client = stage.client();
        async move { call(&client, "SendMessage", saying("x")).await.finish().await.response }
    });
    stage.agent.wait_for_call("SendMessage").await;
    stage.agent.wait_for("every call", |log| log.calls("SendStreamingMessage").len() == 6).await;
    let since = Instant::now();
    stage.gateway.signal("TERM");

    task_of(&legacy.finish().await.response["result"]);
    let round = modern.finish().await.response["result"].clone();
    assert_eq!(round["resultType"], "input_required", "{round}");
    assert!(round["requestState"].is_string(), "{round}");
    let created = extension.finish().await.response["result"].clone();
    assert_eq!(created["resultType"], "task", "{created}");
    listens.until_end().await;
    task_of(&plain.await.unwrap()["result"]);
    let waited = waits.await.unwrap();
    assert_eq!(
        (&waited["result"]["isError"], waited["result"]["structuredContent"]["taskId"].is_string()),
        (&json!(false), true),
        "{waited}"
    );
    // The task has not failed, and there is no result of it: the request alone fails.
    let result = result.await.unwrap();
    assert_eq!(result["error"]["code"], -32603, "{result}");
    assert!(result["error"]["message"].as_str().unwrap().contains("goes on"), "{result}");
    let refused = blocking.await.unwrap();
    assert_eq!(refused["error"]["code"], -32603, "{refused}");

    assert_eq!(stage.gateway.ended().await, Some(0));
    let took = since.elapsed();
    let output = stage.gateway.output();
    let logged = output.lines().filter(|line| line.contains("rpc=") && line.contains(" agent=bard")).count();
    assert_eq!(logged, 9, "one line for each call, and that of the task");
    println!("8 calls under way, 8 answered, 0 cut; {logged} access lines; the process ended after {took:?}");
    assert!(took < BOUND, "{took:?}");
    assert!(output.contains("requests=0"), "none is cut: {output}");
}

/// Two replicas with one seal key, and an agent that completes its task when told.
async fn replicas() -> (ScriptedAgent, Signal, [TestGateway; 2]) {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let done = agent.works_for((RAW_TASK, RAW_CONTEXT), "la");
    let card = agent.card_url();
    let config = |ports: &Ports| {
        let seal = "seal_key: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";
        format!("{}{seal}{SETTINGS}agents: {{ bard: {{ card: \"{card}\" }} }}\n", ports.listeners())
    };
    let gateways = [TestGateway::start(config).await, TestGateway::start(config).await];
    (agent, done, gateways)
}

#[tokio::test]
async fn drained_call_ends_at_other_replica() {
    let (agent, done, [mut first, second]) = replicas().await;
    let session = first.client().legacy().await;
    let extension = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let rounds = begun(first.client().with_rounds().modern("tools/call", singing()).await).await;
    let extended =
        begun(first.client().capabilities(extension.clone()).modern("tools/call", singing()).await).await;
    let legacy = begun(session.call("tools/call", singing()).await).await;
    first.signal("TERM");
    let handle = task_of(&legacy.finish().await.response["result"]);
    let round = rounds.finish().await.response["result"].clone();
    let created = extended.finish().await.response["result"].clone();
    assert_eq!(first.ended().await, Some(0));
    done.open();
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    agent.on_subscribe(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    // Each client goes on at the other replica, in the form that it was given.
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "requestState": round["requestState"], "inputResponses": {} });
    let again = second.client().with_rounds().modern("tools/call", params).await.result().await;
    assert_eq!(words(&again), "la", "{again}");
    let client = second.client().capabilities(extension);
    let task = client.task_until(created["taskId"].as_str().unwrap(), "completed").await;
    assert!(task.to_string().contains("la"), "{task}");
    let session = second.client().legacy().await;
    let waited = session.call_tool("subagent_wait", json!({ "taskId": handle })).await.result().await;
    assert!(words(&waited).contains("la"), "{waited}");
    assert!(!first.output().contains(" ERROR "), "{}", first.output());
}

/// Calls that wait for a task are answered with its state until the very end: their clients go on
/// elsewhere. Others have not begun, and are refused.
#[tokio::test]
async fn waits_are_answered_when_responses_are_due() {
    let settings = "shutdown: { grace: 8s, drain: 0s }\ncalls: { budget: 50s, round_timeout: 50s }\n";
    let mut stage = Stage::with(Card::v1().skill("sing"), settings, "").await;
    stage.agent.on_stream(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    stage.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    stage.agent.on_subscribe(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let client = stage.gateway.client().with_rounds();
    let session = stage.gateway.client().legacy().await;
    let handle = begun(session.call("tools/call", singing()).await).await;
    let round = begun(client.modern("tools/call", singing()).await).await;
    stage.gateway.signal("TERM");
    // Both end when responses are due, which is before the listener closes.
    let handle = task_of(&handle.finish().await.response["result"]);
    let round = round.finish().await.response["result"].clone();
    for tool in ["subagent_wait", "subagent_get"] {
        let told = session.call_tool(tool, json!({ "taskId": handle })).await.result().await;
        assert_eq!(task_of(&told), handle, "{tool}: {told}");
    }
    let again = json!({ "name": TOOL, "arguments": { "text": "x" }, "requestState": round["requestState"], "inputResponses": {} });
    let again = client.modern("tools/call", again).await.result().await;
    assert!(again["requestState"].is_string(), "{again}");
    let refused = session.call("tools/call", singing()).await.finish().await.response;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert_eq!(stage.gateway.ended().await, Some(0));
}

/// A connection with a response that began before the drain ends with it: its client makes the
/// next request of another process.
#[tokio::test]
async fn connection_of_earlier_stream_ends_with_it() {
    let settings = "shutdown: { grace: 300s, drain: 10s }\n";
    let mut stage = Stage::with(Card::v1().skill("sing"), settings, "").await;
    let done = Signal::new();
    let wait = done.clone();
    stage.agent.on_stream(move |_| {
        let stream = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait);
        stream.event(v1::completed(RAW_TASK, RAW_CONTEXT, "la"))
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": saying("x") })
        .to_string();
    let request = format!(
        "POST /a2a/bard HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n\
         Accept: text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut wire = tokio::net::TcpStream::connect(stage.gateway.address()).await.unwrap();
    wire.write_all(request.as_bytes()).await.unwrap();
    stage.agent.wait_for_call("SendStreamingMessage").await;
    let mut begin = [0; 64];
    in_time("the head of the response", wire.read_exact(&mut begin)).await.unwrap();
    assert!(begin.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&begin));
    stage.gateway.signal("TERM");
    stage.gateway.wait_for_output("received end signal").await;
    done.open();
    let mut rest = String::new();
    in_time("the end of the connection", wire.read_to_string(&mut rest)).await.unwrap();
    assert!(!rest.to_ascii_lowercase().contains("connection: close"), "{rest}");
    assert!(rest.contains("la") && rest.ends_with("0\r\n\r\n"), "{rest}");
    stage.gateway.terminate().await;
}
