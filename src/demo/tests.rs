//! The demonstration agent over a real socket, as a client sees it.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DemoAgent;

async fn agent() -> SocketAddr {
    let (address, run) = DemoAgent::start(([127, 0, 0, 1], 0).into()).await.unwrap();
    tokio::spawn(run);
    address
}

/// Returns the whole response to one request, as text.
async fn exchange(address: SocketAddr, head: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request =
        format!("{head}\r\nHost: demo\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    let read = timeout(Duration::from_secs(10), socket.read_to_string(&mut reply)).await;
    read.expect("an answer in time").unwrap();
    reply
}

async fn rpc(address: SocketAddr, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
    serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn events(address: SocketAddr, method: &str, params: Value) -> Vec<Value> {
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": method, "params": params }).to_string();
    let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
    assert!(reply.contains("content-type: text/event-stream"), "{reply}");
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].clone()).collect()
}

fn say(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

#[tokio::test]
async fn the_card_is_served_once_and_then_confirmed() {
    let address = agent().await;
    let reply = exchange(address, "GET /.well-known/agent-card.json HTTP/1.1", "").await;
    let card: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("http://{address}/"));
    let etag = reply.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = format!("GET /.well-known/agent-card.json HTTP/1.1\r\nIf-None-Match: {etag}");
    assert!(exchange(address, &again, "").await.starts_with("HTTP/1.1 304"));
}

#[tokio::test]
async fn echo_answers_with_a_message() {
    let answer = rpc(agent().await, "SendMessage", say("echo hello")).await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["message"]["parts"], json!([{ "text": "hello" }]));
    let streamed = events(agent().await, "SendStreamingMessage", say("hello")).await;
    assert_eq!(streamed.len(), 1);
    assert_eq!(streamed[0]["message"]["role"], "ROLE_AGENT");
}

#[tokio::test]
async fn countdown_streams_a_task_to_its_end() {
    let address = agent().await;
    let events = events(address, "SendStreamingMessage", say("countdown 1")).await;
    let id = &events[0]["task"]["id"];
    assert_eq!(events[1]["statusUpdate"]["status"]["message"]["parts"][0]["text"], "1 s left");
    assert_eq!(events[2]["artifactUpdate"]["append"], Value::Null);
    assert_eq!(events[3]["artifactUpdate"]["lastChunk"], true);
    assert_eq!(events[4]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(events.len(), 5);
    let task = rpc(address, "GetTask", json!({ "id": id, "historyLength": 0 })).await;
    assert_eq!(task["result"]["artifacts"][0]["parts"][0]["text"], "1 liftoff");
    assert_eq!(task["result"]["history"], Value::Null);
}

#[tokio::test]
async fn a_task_goes_on_when_its_client_leaves() {
    let address = agent().await;
    let mut params = say("countdown 1");
    params["configuration"] = json!({ "returnImmediately": true });
    let task = rpc(address, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
    let events = events(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
    assert_eq!(events[0]["task"]["id"], task["id"]);
    assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    let refused = rpc(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
    assert_eq!(refused["error"]["code"], -32004);
}

#[tokio::test]
async fn ask_waits_for_its_answer() {
    let address = agent().await;
    let asked = rpc(address, "SendMessage", say("ask about lunch")).await["result"]["task"].clone();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let mut params = say("soup");
    params["message"]["taskId"] = asked["id"].clone();
    params["message"]["contextId"] = json!("another");
    let wrong = rpc(address, "SendMessage", params.clone()).await;
    assert_eq!(wrong["error"]["code"], -32602);
    params["message"]["contextId"] = asked["contextId"].clone();
    let done = rpc(address, "SendMessage", params.clone()).await["result"]["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "You said: soup");
    assert_eq!(rpc(address, "SendMessage", params).await["error"]["code"], -32004);
}

#[tokio::test]
async fn cancel_ends_a_task_at_once() {
    let address = agent().await;
    let mut params = say("countdown 60");
    params["configuration"] = json!({ "returnImmediately": true });
    let id = rpc(address, "SendMessage", params).await["result"]["task"]["id"].clone();
    let canceled = rpc(address, "CancelTask", json!({ "id": id })).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(rpc(address, "CancelTask", json!({ "id": id })).await["error"]["code"], -32002);
}

#[tokio::test]
async fn what_the_agent_does_not_do_is_refused_by_code() {
    let address = agent().await;
    for (method, params, code) in [
        ("message/send", json!({}), -32601),
        ("ListTasks", json!({}), -32601),
        ("GetTask", json!({}), -32602),
        ("GetTask", json!({ "id": "nobody" }), -32001),
        ("SendStreamingMessage", json!({}), -32602),
        ("CreateTaskPushNotificationConfig", json!({}), -32003),
        ("GetExtendedAgentCard", json!({}), -32007),
    ] {
        assert_eq!(rpc(address, method, params).await["error"]["code"], code, "{method}");
    }
    for version in ["0.3", "2.0", ""] {
        let head = format!("POST / HTTP/1.1\r\nA2A-Version: {version}");
        let reply = exchange(address, &head, r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"}"#).await;
        assert!(reply.contains("-32009"), "{reply}");
    }
    for (head, status) in [
        ("GET / HTTP/1.1", "405"),
        ("POST /.well-known/agent-card.json HTTP/1.1", "405"),
        ("GET /nowhere HTTP/1.1", "404"),
    ] {
        let reply = exchange(address, head, "").await;
        assert_eq!(reply.split(' ').nth(1).unwrap(), status, "{head}");
    }
    let huge = "x".repeat(1024 * 1024 + 1);
    let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &huge).await;
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
}
