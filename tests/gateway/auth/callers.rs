//! Callers: API keys, and the rights and tasks of a caller. Out of scope: tokens (see `tokens`),
//! certificates, rules.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// The keys of two holders; the first has two, as while keys are exchanged.
pub(crate) const OLD: &str = "CANARY_key-old-0123456789abcdef0123";
pub(crate) const NEW: &str = "CANARY_key-new-0123456789abcdef0123";
pub(crate) const EVE: &str = "CANARY_key-eve-0123456789abcdef0123";

fn hash(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// `auth` with the keys of `ci` and `eve`, and more lines at the top.
pub(crate) fn keys(more: &str) -> String {
    let (old, new, eve) = (hash(OLD), hash(NEW), hash(EVE));
    format!("auth:\n  api_keys:\n    keys:\n      ci: [\"{old}\", \"{new}\"]\n      eve: \"{eve}\"\n{more}")
}

pub(crate) struct Keyed {
    pub(crate) agent: ScriptedAgent,
    pub(crate) gateway: TestGateway,
}

impl Keyed {
    pub(crate) async fn new(more: &str) -> Self {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        let gateway = TestGateway::start(|ports| {
            let (listeners, card) = (ports.listeners(), agent.card_url());
            format!("{listeners}{}agents:\n  bard:\n    card: {card}\n", keys(more))
        })
        .await;
        Self { agent, gateway }
    }

    pub(crate) fn by(&self, key: &str) -> McpClient {
        self.gateway.client().header("X-Api-Key", key)
    }
}

async fn list(client: &McpClient) -> u16 {
    client.modern("tools/list", json!({})).await.status
}

#[tokio::test]
async fn only_keys_get_in() {
    let scene = Keyed::new("").await;
    for key in [OLD, NEW, EVE] {
        assert_eq!(list(&scene.by(key)).await, 200);
    }
    let refused = async |client: McpClient| {
        let answer = client.modern("tools/list", json!({})).await;
        let challenge = answer.header("www-authenticate").map(str::to_owned);
        (answer.status, challenge, answer.text().await)
    };
    let missing = refused(scene.gateway.client()).await;
    assert_eq!((missing.0, missing.1.as_deref()), (401, Some("ApiKey header=\"x-api-key\"")));
    let long = "x".repeat(4000);
    for wrong in ["wrong", "", NEW.trim_end_matches('3'), &long, &hash(NEW)] {
        assert_eq!(refused(scene.by(wrong)).await, missing, "{wrong}");
    }
    assert_eq!(refused(scene.gateway.client().bearer(NEW)).await, missing, "not where keys go");
    assert_eq!(refused(scene.gateway.client().at(&format!("/mcp?x-api-key={NEW}"))).await, missing);
    assert_eq!(scene.by(OLD).header("X-Api-Key", NEW).modern("tools/list", json!({})).await.status, 400);
}

#[tokio::test]
async fn key_can_follow_the_word_bearer() {
    let scene = Keyed::new("").await;
    let agent = scene.agent.card_url();
    let gateway = TestGateway::start(|ports| {
        let keys = keys("").replace("    keys:", "    header: Authorization\n    keys:");
        format!("{}{keys}agents:\n  bard:\n    card: {agent}\n", ports.listeners())
    })
    .await;
    assert_eq!(list(&gateway.client().bearer(NEW)).await, 200);
    for wrong in
        [gateway.client().bearer("x"), gateway.client().header("Authorization", NEW), gateway.client()]
    {
        assert_eq!(list(&wrong).await, 401);
    }
}

#[tokio::test]
async fn caller_is_checked_before_body_is_read() {
    let scene = Keyed::new("").await;
    // It says that more comes, and waits.
    let mut wire = tokio::net::TcpStream::connect(scene.gateway.address()).await.unwrap();
    let request = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    wire.write_all(request).await.unwrap();
    let mut begin = [0; 12];
    crate::support::in_time("the refusal", wire.read_exact(&mut begin)).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 401");
    for (method, path) in [("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/mcp/bard"), ("POST", "/mcp/nobody")]
    {
        assert_eq!(scene.gateway.client().at(path).send(method, &[], Vec::new()).await.status, 401, "{path}");
    }
}

/// Python SDK CVE-2026-52870, a2a-java GHSA-qw47-mcm5-934w.
#[tokio::test]
async fn task_belongs_to_caller_of_any_key() {
    let scene = Keyed::new("calls: { task_after: 0s }\n").await;
    scene.agent.on_stream(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let mine = scene.by(OLD).with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let made = mine.modern("tools/call", call).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let again = scene.by(NEW).with_tasks();
    assert_eq!(again.task("tasks/get", &task).await.result().await["status"], "working");
    let foreign = scene.by(EVE).with_tasks();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let of = |task: &str| json!({ "taskId": task, "inputResponses": {} });
        let theirs = foreign.modern(method, of(&task)).await.json().await;
        let unknown = foreign.modern(method, of("unknown")).await.json().await;
        assert_eq!(theirs["error"], unknown["error"], "{method}");
        assert_eq!(theirs["error"]["code"], -32602, "{method}");
    }
    let uri = json!({ "uri": format!("a2a://task/{task}") });
    assert_eq!(foreign.modern("resources/read", uri.clone()).await.error_code().await, -32602);
    assert!(again.modern("resources/read", uri).await.result().await["contents"].is_array());
}

/// Tasks of 2025-11-25 are listed to authenticated callers, and only their own.
#[tokio::test]
async fn caller_lists_only_its_own_tasks() {
    let scene = Keyed::new("mcp: { page_size: 2 }\n").await;
    let numbers = std::sync::atomic::AtomicUsize::new(0);
    scene.agent.on_stream(move |_| {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let task = format!("raw-{number}");
        Reply::stream().event(v1::task(&task, RAW_CONTEXT, "working")).stall()
    });
    let (mine, foreign) = (scene.by(NEW).legacy().await, scene.by(EVE).legacy().await);
    assert_eq!(mine.initialized["capabilities"]["tasks"]["list"], json!({}));
    let mut made = Vec::new();
    for _ in 0..3 {
        let task = mine.begin_task(TOOL, json!({ "text": "x" })).await;
        made.push(task["taskId"].as_str().unwrap().to_owned());
    }
    foreign.begin_task(TOOL, json!({ "text": "x" })).await;
    let listed = async |session: &crate::support::LegacySession| {
        let (mut all, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let page = session.call("tasks/list", params).await.result().await;
            let tasks = page["tasks"].as_array().unwrap().clone();
            assert!(tasks.len() <= 2, "{page}");
            assert!(tasks.iter().all(|task| task["status"] == "working"), "{page}");
            all.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                all.sort();
                return all;
            }
        }
    };
    made.sort();
    assert_eq!(listed(&mine).await, made);
    let theirs = listed(&foreign).await;
    assert!(theirs.len() == 1 && !made.contains(&theirs[0]));
    // A place in one caller's list is none in another's.
    let page = mine.call("tasks/list", json!({})).await.result().await;
    let params = json!({ "cursor": page["nextCursor"] });
    assert_eq!(foreign.call("tasks/list", params).await.error_code().await, -32602);
    let resources = mine.call("resources/list", json!({})).await.result().await.to_string();
    assert!(!resources.contains(&theirs[0]), "{resources}");
}

/// Ruby SDK CVE-2026-33946, Python SDK CVE-2026-52869.
#[tokio::test]
async fn session_is_bound_to_its_caller() {
    let scene = Keyed::new("").await;
    let session = scene.by(OLD).legacy().await;
    let answer = session.stolen_by(&scene.by(EVE)).call("tools/list", json!({})).await;
    assert_eq!(answer.status, 404);
    assert_eq!(session.stolen_by(&scene.by(NEW)).call("tools/list", json!({})).await.status, 200);
    assert_eq!(session.stolen_by(&scene.gateway.client()).call("tools/list", json!({})).await.status, 401);
}

#[tokio::test]
async fn missing_key_may_be_anonymous() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners().replace("\nadmin:", "\n    require: none\nadmin:");
        format!("{listeners}{}agents:\n  bard:\n    card: {}\n", keys(""), agent.card_url())
    })
    .await;
    agent.on_stream(|_| Reply::events([v1::message("la")]));
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", call).await.result().await), "la");
    assert_eq!(list(&gateway.client().header("X-Api-Key", NEW)).await, 200);
    assert_eq!(list(&gateway.client().header("X-Api-Key", "wrong")).await, 401, "what is shown must be good");
}

/// The identity of a caller does not depend on the connection.
#[tokio::test]
async fn one_connection_can_have_two_callers() {
    let scene = Keyed::new("").await;
    let mut wire = tokio::net::TcpStream::connect(scene.gateway.address()).await.unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let mut statuses = Vec::new();
    for key in [NEW, "wrong"] {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, \
             text/event-stream\r\nX-Api-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        wire.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = crate::support::in_time("an answer", wire.read(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer[..read]).into_owned();
        statuses.push(text.split(' ').nth(1).unwrap_or_default().to_owned());
    }
    assert_eq!(statuses, ["200", "401"]);
}

#[tokio::test]
async fn no_key_is_ever_printed() {
    let scene = Keyed::new("log: { level: trace }\n").await;
    for client in [scene.by(NEW), scene.by(EVE), scene.by("CANARY_wrong"), scene.gateway.client()] {
        list(&client).await;
        client.initialize("2025-11-25").await;
    }
    let metrics = scene.gateway.metrics().await;
    let agents = scene.gateway.admin().at("/agents").get(&[]).await.text().await;
    for told in [scene.gateway.output(), metrics, agents] {
        assert!(!told.contains("CANARY_"), "{told}");
    }
}
