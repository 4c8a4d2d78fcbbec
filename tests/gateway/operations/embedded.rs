//! The gateway inside another proxy: `examples/embed.rs` as it is.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, free_port, in_time};

/// The example, running; ended when dropped.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn example() -> std::path::PathBuf {
    // Cargo builds examples beside the folder of the test binaries.
    let deps = std::env::current_exe().unwrap();
    deps.parent().unwrap().parent().unwrap().join("examples").join("embed")
}

#[tokio::test]
async fn host_serves_paths_outside_gateway() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_stream(|_| Reply::events([v1::completed("t", "c", "la la")]));
    let site = ScriptedAgent::start(Card::v1()).await;
    site.on_path("/shop", |_| Reply::json(&json!({ "shop": "open" })));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let listeners = "listeners: [{ address: 127.0.0.1:1 }]";
    std::fs::write(
        &config,
        format!("{listeners}\nagents: {{ bard: {{ card: \"{}\" }} }}\n", agent.card_url()),
    )
    .unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let child = Command::new(example())
        .args([config.to_str().unwrap(), &listen, &site.address().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`cargo test` builds the example");
    let _host = Host(child);
    let client = McpClient::new(&format!("http://{listen}/mcp"));
    let call = || client.modern("tools/call", json!({ "name": "bard_sing", "arguments": { "text": "x" } }));
    let sung = async {
        loop {
            // Until the host listens and the gateway has read the card.
            let listens = client.try_send("OPTIONS", &[], Vec::new()).await.is_ok();
            if listens && call().await.text().await.contains("la la") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time("the gateway to answer a call", sung).await;
    let elsewhere = client.at("/shop").get(&[]).await.text().await;
    assert!(elsewhere.contains("open"), "{elsewhere}");
    assert_eq!(site.log().hits("/shop").len(), 1);
    assert!(
        site.log().hits("/mcp").is_empty(),
        "the host must not pass on a request that the gateway answered"
    );
}
