//! The log while its reader does not read, and after it reads again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tempfile::TempDir;

use crate::kit::scene::{TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, in_time};

/// Requests with long log lines: far more than a pipe and the gateway keep.
const REQUESTS: usize = 4_000;
const DROPPED: &str = "mcp_a2a_gateway_log_lines_dropped_total ";

/// A gateway with its standard error in a pipe. The reader of that has not read yet.
async fn unread(folder: &TempDir, agent: &ScriptedAgent) -> (TestGateway, File) {
    let pipe = folder.path().join("log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // For both directions: opening it waits for no writer then.
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let card = agent.card_url();
    let gateway = TestGateway::start_in_shell(&format!("exec 2>{}", pipe.display()), |ports| {
        format!(
            "{}shutdown: {{ grace: 0s, drain: 1s }}\nagents:\n  bard:\n    card: {card}\n",
            ports.listeners()
        )
    })
    .await;
    (gateway, reader)
}

async fn singer() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    agent
}

/// Fills pipe and buffer with lines; every request is answered.
async fn fill(gateway: &TestGateway) {
    let client = gateway.client();
    let elsewhere = client.at(&format!("/{}", "x".repeat(300)));
    for _ in 0..REQUESTS {
        assert_eq!(elsewhere.get(&[]).await.status, 404);
    }
    let answer = client.modern("tools/call", json!({ "name": TOOL, "arguments": { "text": "x" } })).await;
    assert_eq!(words(&answer.result().await), "la");
}

async fn dropped(gateway: &TestGateway) -> u64 {
    let page = gateway.metrics().await;
    let count = page.lines().find_map(|line| line.strip_prefix(DROPPED));
    count.unwrap_or_else(|| panic!("no {DROPPED}in {page}")).parse().unwrap()
}

/// Reads the pipe until its writer is gone, which is when this file is the only one that has it
/// open.
fn read(pipe: &Path, reader: File) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (kept, pipe) = (Arc::clone(&lines), pipe.to_owned());
    std::thread::spawn(move || {
        // Without the end for writing, so that the pipe ends with the gateway.
        let only_reader = File::open(pipe).unwrap();
        drop(reader);
        BufReader::new(only_reader).lines().map_while(Result::ok).for_each(|line| {
            kept.lock().unwrap().push(line);
        });
    });
    lines
}

async fn wait_for_line(lines: &Mutex<Vec<String>>, text: &str) -> String {
    in_time(text, async {
        loop {
            if let Some(line) = lines.lock().unwrap().iter().find(|line| line.contains(text)) {
                break line.clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn log_unread_requests_are_answered() {
    let (folder, agent) = (TempDir::new().unwrap(), singer().await);
    let (mut gateway, reader) = unread(&folder, &agent).await;
    in_time("answers", fill(&gateway)).await;
    let count = dropped(&gateway).await;
    println!("{REQUESTS} requests answered, {count} log lines dropped");
    assert!(count > 0);
    let lines = read(&folder.path().join("log"), reader);
    let told = wait_for_line(&lines, "dropped log lines").await;
    assert!(told.contains(&format!("lines={}", dropped(&gateway).await)), "{told}");
    assert_eq!(
        words(
            &gateway
                .client()
                .modern("tools/call", json!({ "name": TOOL, "arguments": { "text": "x" } }))
                .await
                .result()
                .await
        ),
        "la"
    );
    assert_eq!(gateway.terminate().await, Some(0));
    wait_for_line(&lines, "ending").await;
    let lines = lines.lock().unwrap();
    assert!(lines.iter().all(|line| line.starts_with("20")), "every line is whole");
}

#[tokio::test]
async fn log_unread_process_ends() {
    let (folder, agent) = (TempDir::new().unwrap(), singer().await);
    let (mut gateway, _reader) = unread(&folder, &agent).await;
    in_time("answers", fill(&gateway)).await;
    assert_eq!(gateway.terminate().await, Some(0));
}
