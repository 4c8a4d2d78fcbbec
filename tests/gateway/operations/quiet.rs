//! A gateway without requests: nothing wakes it many times a second.

use serde_json::json;

use crate::support::certs::client_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// The thread that fires the timers of Pingora: it wakes 100 times a second from the first timer on.
const TIMERS_OF_PINGORA: &str = "Timer thread";

/// The names of the threads of a gateway.
fn threads(gateway: &TestGateway) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.process_id())).unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default().trim().to_owned()
    };
    tasks.map(name).collect()
}

#[tokio::test]
async fn requests_leave_no_thread_that_wakes_all_the_time() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let (card, ours) = (agent.card_url(), Authority::new("ours"));
    let gateway = TestGateway::start(|ports| {
        ours.server().write(&ports.directory, "server");
        format!(
            "listeners:\n  - address: 127.0.0.1:{}\n  - {{ address: 127.0.0.1:{}, tls: {{ certificate: server.crt, key: \
             server.key }} }}\nadmin: {{ address: 127.0.0.1:{} }}\nagents: {{ bard: {{ card: \"{card}\" }} }}\n",
            ports.main, ports.other, ports.admin
        )
    })
    .await;
    let call = json!({"name": "bard_sing", "arguments": {"text": "hi"}});
    let over_tls = |protocols: &[&str]| {
        McpClient::new(&format!("https://localhost:{}/mcp", gateway.ports().other))
            .tls(client_config(&ours, None, protocols))
    };
    let (http1, http2) = (gateway.client(), gateway.client().http2());
    for client in [http1, http2, over_tls(&["http/1.1"]), over_tls(&["h2"])] {
        for _ in 0..2 {
            let result = client.modern("tools/call", call.clone()).await.result().await;
            assert_eq!(result["content"][0]["text"], "la", "{result}");
        }
    }
    let threads = threads(&gateway);
    assert!(threads.iter().any(|name| name == "handshakes"), "{threads:?}");
    assert!(threads.iter().all(|name| name != TIMERS_OF_PINGORA), "{threads:?}");
}
