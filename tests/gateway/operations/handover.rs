//! One gateway takes over from another: the owner of the data directory and of the admin address,
//! later events at the old one, and connections that had just come. Out of scope: permission to
//! take over, and requests meanwhile (see `upgrade`).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::auth::callers::{NEW, keys};
use crate::kit::quiz::KEY;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, task_of, words};
use crate::kit::tls_scene::{Connection, listen};
use crate::support::certs::client_config;
use crate::support::payload::v1;
use crate::support::{
    Authority, Card, LegacySession, McpClient, Ports, Reply, ScriptedAgent, Signal, TestGateway, in_time,
};

/// Said by the process that ends, once the other one has its listeners.
const TAKEN: &str = "successor accepts connections";

/// Two gateways before one agent.
struct Pair {
    agent: ScriptedAgent,
    folder: TempDir,
    /// Lines at the top of both configurations.
    more: String,
}

impl Pair {
    async fn new(more: &str) -> Self {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        Self { agent, folder: TempDir::new().unwrap(), more: more.to_owned() }
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn config(&self, ports: &Ports) -> String {
        let (place, card) = (self.folder.path().join("upgrade"), self.agent.card_url());
        format!(
            "{}upgrade: {{ directory: {} }}\nshutdown: {{ grace: 0s, drain: 20s }}\n{}\nagents:\n  bard:\n    card: {card}\n",
            ports.listeners(),
            place.display(),
            self.more.replace("DATA", &self.data_dir().display().to_string()),
        )
    }

    async fn start(&self) -> TestGateway {
        TestGateway::start(|ports| self.config(ports)).await
    }

    /// Lets another process take over. Returns it when it takes connections.
    async fn hand_over(&self, old: &TestGateway) -> TestGateway {
        let new = old.successor(|ports| self.config(ports));
        new.wait_for_output("waiting for the sockets").await;
        old.signal("QUIT");
        old.wait_for_output(TAKEN).await;
        new
    }
}

/// The agent names its task upon the first signal, and ends it upon the second.
fn slow(agent: &ScriptedAgent) -> (Signal, Signal) {
    let (named, ends) = (Signal::new(), Signal::new());
    let signals = (named.clone(), ends.clone());
    agent.on_send(move |request| {
        let task = format!("{RAW_TASK}-{}", request.message()["parts"][0]["text"].as_str().unwrap());
        let chunk = v1::artifact_update(&task, RAW_CONTEXT, "the song", false, true);
        let done = v1::status_update(&task, RAW_CONTEXT, "completed", None);
        Reply::stream()
            .wait(&named)
            .event(v1::task(&task, RAW_CONTEXT, "working"))
            .wait(&ends)
            .event(chunk)
            .event(done)
    });
    agent.on_get(|_| Reply::error(-32001, "Task not found"));
    agent.on_subscribe(|_| Reply::error(-32001, "Task not found"));
    signals
}

/// A connection that has been accepted by a gateway, and over which nothing has gone.
async fn connected(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).await.unwrap()
}

/// The process that holds the lock of a data directory.
fn owner_of(data_dir: &Path) -> Option<u32> {
    let inode = std::fs::metadata(data_dir.join("tasks.lock")).unwrap().ino();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let line = locks.lines().find(|line| line.contains(&format!(":{inode} ")))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

/// Sends a request of a session over a connection; the status of its answer.
async fn sent_over(stream: &mut TcpStream, method: &str, session: &LegacySession) -> u16 {
    let body = if method == "POST" { r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"# } else { "" };
    let request = format!(
        "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: {NEW}\r\nMcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        session.id.as_deref().unwrap(),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    in_time("an answer", stream.read_exact(&mut head)).await.unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

fn caller(gateway: &TestGateway) -> McpClient {
    gateway.client().header("X-Api-Key", NEW)
}

/// The states of the tasks of the caller. A task that has been named since it was handed out is
/// listed by another handle.
async fn listed(session: &LegacySession) -> Vec<String> {
    let list = session.call("tasks/list", json!({})).await.result().await;
    let tasks = list["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["status"].as_str().unwrap().to_owned()).collect()
}

/// Lists tasks until they are these.
async fn list_becomes(session: &LegacySession, states: &[&str]) {
    let listed = async {
        loop {
            let seen = listed(session).await;
            if seen == states {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(&format!("tasks that are {states:?}"), listed).await;
}

/// With a data directory, and with a key alone.
#[tokio::test]
async fn later_knowledge_of_old_process_moves() {
    for keep in ["tasks: { data_dir: DATA }", ""] {
        let pair = Pair::new(&keys(&format!(
            "{KEY}\n{keep}\ncalls: {{ stream_after: 4s, budget: 4s, max_rounds: 0 }}"
        )))
        .await;
        let mut old = pair.start().await;
        let (named, ends) = slow(&pair.agent);
        let session = caller(&old).legacy().await;
        let create = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        let early = session.call("tools/call", create).await.result().await["task"]["taskId"].clone();
        let (client, params) = (caller(&old), json!({ "name": TOOL, "arguments": { "text": "late" } }));
        let late = tokio::spawn(async move { client.modern("tools/call", params).await.result().await });
        in_time("both calls", async {
            while pair.agent.calls("SendStreamingMessage").len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let new = pair.hand_over(&old).await;
        let session = session.stolen_by(&caller(&new));
        list_becomes(&session, &["working"]).await;
        named.open();
        // Handed out by the process that ends, after it has given the data directory up.
        let late = task_of(&late.await.unwrap());
        list_becomes(&session, &["working", "working"]).await;
        ends.open();
        list_becomes(&session, &["completed", "completed"]).await;
        assert!(pair.agent.calls("GetTask").is_empty(), "the agent is not asked again");
        assert_eq!(old.ended().await, Some(0));
        let wait = json!({ "name": TOOL, "arguments": { "taskId": late } });
        assert_eq!(words(&caller(&new).modern("tools/call", wait.clone()).await.result().await), "the song");
        let early = json!({ "taskId": early });
        let result = session.call("tasks/result", early.clone()).await.result().await;
        assert_eq!(words(&result), "the song", "under the handle of a call that was not named then");
        if keep.is_empty() {
            continue;
        }
        // All of it is on disk: the new process is killed.
        drop(new);
        let third = pair.start().await;
        assert_eq!(words(&caller(&third).modern("tools/call", wait).await.result().await), "the song");
        let session = session.stolen_by(&caller(&third));
        assert_eq!(words(&session.call("tasks/result", early).await.result().await), "the song");
    }
}

#[tokio::test]
async fn data_directory_has_one_owner() {
    let pair = Pair::new(&keys(&format!("{KEY}\ntasks: {{ data_dir: DATA }}"))).await;
    let mut old = pair.start().await;
    let (_, ends) = slow(&pair.agent);
    let [first, second, third] =
        [caller(&old).legacy().await, caller(&old).legacy().await, caller(&old).legacy().await];
    let create = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
    first.call("tools/call", create).await.result().await;
    assert_eq!(owner_of(&pair.data_dir()), Some(old.process_id()));
    let mut connections = Vec::new();
    for _ in 0..20 {
        connections.push(connected(old.ports().main).await);
    }
    // Accepted after those.
    assert_eq!(first.call("ping", json!({})).await.status, 200);
    let new = pair.hand_over(&old).await;
    assert_eq!(owner_of(&pair.data_dir()), Some(new.process_id()));
    let at_new = |session: &LegacySession| session.stolen_by(&caller(&new));
    assert_eq!(at_new(&first).call("ping", json!({})).await.status, 200);
    let mut one = connections.pop().unwrap();
    assert_eq!(sent_over(&mut one, "DELETE", &second).await, 204, "ended at the one that ends");
    assert_eq!(at_new(&second).call("ping", json!({})).await.status, 404);
    assert_eq!(at_new(&third).delete().await.status, 204, "ended at the successor");
    // Each is good for one request of the process that ends, which hears of it a moment later.
    let mut answers = Vec::new();
    for mut connection in connections {
        answers.push(sent_over(&mut connection, "POST", &third).await);
        if answers.last() == Some(&404) {
            break;
        }
    }
    assert_eq!(answers.last(), Some(&404), "{answers:?}");
    ends.open();
    drop(new);
    old.signal("TERM");
    old.ended().await;
    let again = pair.start().await;
    for session in [&second, &third] {
        assert_eq!(session.stolen_by(&caller(&again)).call("ping", json!({})).await.status, 404);
    }
    assert_eq!(first.stolen_by(&caller(&again)).call("ping", json!({})).await.status, 200);
}

/// Streams that never end by themselves: the client hears that its stream is over, and comes to the
/// successor.
#[tokio::test]
async fn listening_client_keeps_its_subscription() {
    for keep in ["tasks: { data_dir: DATA }", ""] {
        let pair = Pair::new(&format!("{KEY}\n{keep}\n")).await;
        let old = pair.start().await;
        let session = old.client().legacy().await;
        let registry = json!({ "uri": "a2a://agents/registry" });
        session.call("resources/subscribe", registry).await.result().await;
        let of_session = session.listen(None).await;
        let wanted = json!({ "notifications": { "resourceSubscriptions": ["a2a://agents/registry"] } });
        let listening = old.client().modern("subscriptions/listen", wanted).await;
        let new = pair.hand_over(&old).await;
        let ended = listening.finish().await;
        assert_eq!(ended.response["result"]["resultType"], "complete", "{}", ended.response);
        of_session.until_end().await;
        let mut stream = session.stolen_by(&new.client()).listen(None).await;
        let mut told = Vec::new();
        new.signal("TERM");
        while let Some(event) = stream.next_event().await {
            told.extend(event.data);
        }
        assert!(!told.concat().contains("notifications/message"), "its subscription is not lost: {told:?}");
    }
}

/// A successor that dies takes nothing with it but what it was not told.
#[tokio::test]
async fn killed_successor_leaves_readable_store() {
    let pair = Pair::new(&keys(&format!("{KEY}\ntasks: {{ data_dir: DATA }}"))).await;
    let mut old = pair.start().await;
    let (named, ends) = slow(&pair.agent);
    named.open();
    let session = caller(&old).legacy().await;
    let create = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
    session.call("tools/call", create).await.result().await;
    list_becomes(&session, &["working"]).await;
    let new = pair.hand_over(&old).await;
    drop(new);
    ends.open();
    assert_eq!(old.ended().await, Some(0), "it ends in time all the same");
    pair.agent
        .on_get(|_| Reply::result(v1::bare_completed(&format!("{RAW_TASK}-x"), RAW_CONTEXT, "the song")));
    let next = pair.start().await;
    list_becomes(&session.stolen_by(&caller(&next)), &["completed"]).await;
}

/// A process that is killed after the handover: the successor listens to its agents itself.
#[tokio::test]
async fn killed_predecessor_leaves_tasks() {
    let pair = Pair::new(&keys(&format!("{KEY}\ntasks: {{ data_dir: DATA }}"))).await;
    let old = pair.start().await;
    let (named, _) = slow(&pair.agent);
    named.open();
    let session = caller(&old).legacy().await;
    let create = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
    session.call("tools/call", create).await.result().await;
    list_becomes(&session, &["working"]).await;
    let new = pair.hand_over(&old).await;
    let done = v1::bare_completed(&format!("{RAW_TASK}-x"), RAW_CONTEXT, "the song");
    pair.agent.on_get(move |_| Reply::result(done.clone()));
    assert!(pair.agent.calls("GetTask").is_empty());
    drop(old);
    list_becomes(&session.stolen_by(&caller(&new)), &["completed"]).await;
}

/// The calls of tools that the process behind an admin address has counted.
async fn counted(gateway: &TestGateway) -> bool {
    let metrics = gateway.metrics().await;
    metrics
        .lines()
        .any(|line| line.starts_with("mcp_a2a_gateway_requests_total") && line.contains("tools/call"))
}

#[tokio::test]
async fn admin_address_moves_at_handover() {
    let pair = Pair::new(KEY).await;
    pair.agent.on_send(|_| Reply::events([v1::message("la")]));
    let old = pair.start().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    old.client().modern("tools/call", params.clone()).await.result().await;
    // A call is counted a moment after its answer.
    in_time("the call to be counted", async { while !counted(&old).await {} }).await;
    // Holds the old process.
    let (named, _) = slow(&pair.agent);
    let mut with_progress = params;
    with_progress["_meta"] = json!({ "progressToken": 1 });
    let mut held = old.client().modern("tools/call", with_progress).await;
    named.open();
    held.next_message().await;
    let (end, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (admin, stop, asked) = (old.admin().at("/readyz"), end.clone(), count.clone());
    let asking = tokio::spawn(async move {
        let mut refused = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match admin.try_send("GET", &[], Vec::new()).await {
                Ok(answer) if answer.status == 200 => {}
                Ok(answer) => refused.push(answer.status.to_string()),
                Err(error) => refused.push(format!("{error:?}")),
            }
            asked.fetch_add(1, Ordering::Relaxed);
        }
        refused
    });
    let new = pair.hand_over(&old).await;
    // Listeners of the old process are told at the line that it logs, and close a moment later. As long as both accept, each
    // has about half of the connections.
    in_time("the successor to have all of the admin address", async {
        let mut in_a_row = 0;
        while in_a_row < 30 {
            in_a_row = if counted(&new).await { 0 } else { in_a_row + 1 };
        }
    })
    .await;
    end.store(true, Ordering::Relaxed);
    let refused = asking.await.unwrap();
    println!(
        "admin address across an upgrade: {} asked, {} not ready or refused",
        count.load(Ordering::Relaxed),
        refused.len()
    );
    assert_eq!(refused, Vec::<String>::new());
}

/// A gateway with TLS on its other port.
fn tls(pair: &Pair, authority: &Authority, ports: &Ports) -> String {
    let place = pair.folder.path().join("upgrade");
    let base = listen(authority, &[], "", ports);
    format!(
        "{base}upgrade: {{ directory: {} }}\nshutdown: {{ grace: 0s, drain: 20s }}\n{KEY}\n",
        place.display()
    )
}

/// Connections that were accepted; their handshake begins only after the listener has closed.
#[tokio::test]
async fn fresh_tls_connection_stays_with_acceptor() {
    let (pair, authority) = (Pair::new("").await, Authority::new("root"));
    let mut old = TestGateway::start(|ports| tls(&pair, &authority, ports)).await;
    let config = Arc::new(client_config(&authority, None, &[]));
    let h2 = client_config(&authority, None, &["h2"]);
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(connected(old.ports().other).await);
    }
    // Accepted after those.
    assert!(Connection::open(&old, &config).await.ask("localhost").await.is_some());
    let new = old.successor(|ports| tls(&pair, &authority, ports));
    new.wait_for_output("waiting for the sockets").await;
    old.signal("QUIT");
    old.wait_for_output(TAKEN).await;
    // Longer than connections without a request were kept after the close; shorter than a handshake
    // may take.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let mut served = 0;
    for (number, socket) in waiting.into_iter().enumerate() {
        let config = if number % 2 == 0 { config.clone() } else { Arc::new(h2.clone()) };
        let connector = tokio_rustls::TlsConnector::from(config);
        let name = "localhost".to_owned().try_into().unwrap();
        let Ok(stream) = in_time("a handshake", connector.connect(name, socket)).await else { continue };
        served += usize::from(match number % 2 {
            0 => Connection::of(stream).ask("localhost").await.is_some(),
            _ => asked_by_http2(stream).await,
        });
    }
    println!("fresh TLS connections of a closed listener: 20, served {served}");
    assert_eq!(served, 20);
    assert_eq!(old.ended().await, Some(0));
}

async fn asked_by_http2(stream: tokio_rustls::client::TlsStream<TcpStream>) -> bool {
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let Ok((mut requests, connection)) = hyper::client::conn::http2::handshake(executor, io).await else {
        return false;
    };
    let driven = tokio::spawn(async move { drop(connection.await) });
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let request = hyper::Request::get("https://localhost/healthz").body(body).unwrap();
    let answer = in_time("an answer", requests.send_request(request)).await;
    driven.abort();
    answer.is_ok_and(|answer| answer.status() == 200)
}

/// Many fresh connections at once, all the time while one process takes over from another.
#[tokio::test]
async fn upgrade_drops_no_fresh_tls_connection() {
    const AT_ONCE: usize = 24;
    let (pair, authority) = (Pair::new("").await, Authority::new("root"));
    let mut old = TestGateway::start(|ports| tls(&pair, &authority, ports)).await;
    let config = client_config(&authority, None, &[]);
    let (end, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let clients: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let url = format!("https://localhost:{}/healthz", old.ports().other);
            let client = McpClient::new(&url).tls(config.clone());
            let (end, count) = (end.clone(), count.clone());
            tokio::spawn(async move {
                let mut dropped = Vec::new();
                while !end.load(Ordering::Relaxed) {
                    match client.try_send("GET", &[], Vec::new()).await {
                        Ok(answer) if answer.status == 200 => drop(answer.text().await),
                        Ok(answer) => dropped.push(answer.status.to_string()),
                        Err(error) => dropped.push(format!("{error:?}")),
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
                dropped
            })
        })
        .collect();
    let new = old.successor(|ports| tls(&pair, &authority, ports));
    new.wait_for_output("waiting for the sockets").await;
    old.signal("QUIT");
    assert_eq!(old.ended().await, Some(0));
    let so_far = count.load(Ordering::Relaxed);
    in_time("more connections", async {
        while count.load(Ordering::Relaxed) < so_far + 100 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    end.store(true, Ordering::Relaxed);
    let mut dropped = Vec::new();
    for client in clients {
        dropped.extend(client.await.unwrap());
    }
    println!(
        "fresh TLS connections across an upgrade: {} in {:.1} s, {} at once, {} dropped",
        count.load(Ordering::Relaxed),
        begun.elapsed().as_secs_f32(),
        AT_ONCE,
        dropped.len()
    );
    assert_eq!(dropped, Vec::<String>::new());
}
