//! `tasks.data_dir` on a disk that takes no more.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::scene::{TOOL, words};
use crate::operations::seen::shows;
use crate::support::payload::v1;
use crate::support::{Card, Ports, Reply, ScriptedAgent, TestGateway};

const WARNING: &str = "cannot keep this task on disk";

fn config(ports: &Ports, agent: &ScriptedAgent, data: &TempDir) -> String {
    format!(
        "{}shutdown: {{ grace: 0s, drain: 1s }}\ncalls: {{ budget: 1s, stream_after: 1s }}\ntasks: {{ data_dir: {} }}\nagents:\n  bard:\n    card: {}\n",
        ports.listeners(),
        data.path().join("data").display(),
        agent.card_url()
    )
}

/// The result of a call in a session. The agent begins a task, with an artifact of so many bytes.
async fn called(gateway: &TestGateway, bytes: usize) -> Value {
    let session = gateway.client().legacy().await;
    session.call_tool(TOOL, json!({ "text": bytes.to_string() })).await.result().await
}

/// The limit of file sizes is that of the file as it is now: to the gateway that is a full disk.
#[tokio::test]
async fn handle_warns_of_full_disk() {
    let data = TempDir::new().unwrap();
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|request| {
        let message = request.message();
        let bytes: usize = message["parts"][0]["text"].as_str().unwrap().parse().unwrap();
        let (task, context) = (format!("raw-{}", message["messageId"]), "raw-context");
        let artifact = v1::artifact_update(&task, context, &"x".repeat(bytes), false, true);
        Reply::stream().event(v1::task(&task, context, "working")).event(artifact).stall()
    });
    let mut gateway = TestGateway::start(|ports| config(ports, &agent, &data)).await;
    let kept = called(&gateway, 10).await;
    assert!(!kept.to_string().contains(WARNING), "{kept}");
    assert_eq!(gateway.admin().at("/readyz").get(&[]).await.json().await, json!({ "ready": true }));
    shows(&gateway, "mcp_a2a_gateway_task_store_failing 0").await;
    gateway.terminate().await;

    let size = std::fs::metadata(data.path().join("data/tasks.redb")).unwrap().len();
    let limit = format!("ulimit -f {}", size.div_ceil(512));
    let gateway = TestGateway::start_in_shell(&limit, |ports| config(ports, &agent, &data)).await;
    let mut unkept = 0;
    // More than the file has free, and some after that.
    for _ in 0..8 {
        let handle = called(&gateway, 400_000).await;
        assert_eq!(handle["isError"], false, "{handle}");
        assert!(!words(&handle).is_empty(), "{handle}");
        unkept += usize::from(handle.to_string().contains(WARNING));
    }
    println!("8 tasks begun, {unkept} handles say that the task is not kept");
    assert!(unkept > 1);
    shows(&gateway, "mcp_a2a_gateway_task_store_failing 1").await;
    let ready = gateway.admin().at("/readyz").get(&[]).await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json().await, json!({ "ready": true, "degraded": ["tasks.data_dir"] }));
    let warnings: Vec<_> =
        gateway.output().lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("failed to write store"), "{warnings:?}");
    // A task of the core says it too.
    let session = gateway.client().legacy().await;
    let task = session.begin_task(TOOL, json!({ "text": "10" })).await;
    assert!(task["statusMessage"].as_str().is_some_and(|told| told.contains(WARNING)), "{task}");
}
