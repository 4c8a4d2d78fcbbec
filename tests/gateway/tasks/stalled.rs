//! Agents that end a stream and not its task: their clients are not held, and are told what is
//! known.
//!
//! Out of scope: agents that cannot be reached (see `faults`).

use serde_json::{Value, json};

use crate::kit::quiz::with_tasks;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, task_of, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, ScriptedAgent, in_time};

const SOON: &str = "streams: { stalled_after: 1s }";

/// All texts of a result.
fn texts(result: &Value) -> String {
    result["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// An executor that crashed behind its SDK: the stream ends, and the task is said to be in this
/// state for ever.
fn crashes(agent: &ScriptedAgent, state: &'static str) {
    agent.on_send(move |_| Reply::events([v0_3::task(RAW_TASK, RAW_CONTEXT, state)]));
    agent.on_get(move |_| Reply::result(v0_3::task(RAW_TASK, RAW_CONTEXT, state)));
}

async fn own_tool(scene: &Scene, tool: &str, task: &str) -> Value {
    let params = json!({ "name": tool, "arguments": { "taskId": task } });
    scene.gateway.client().modern("tools/call", params).await.result().await
}

#[tokio::test]
async fn stalled_task_gives_handle() {
    for state in ["submitted", "working"] {
        let scene = Scene::of(Card::v0_3().skill("sing"), "", SOON).await;
        crashes(&scene.agent, state);
        let result = in_time("the handle", scene.said("sing")).await;
        let task = task_of(&result);
        assert!(texts(&result).contains("ended its stream without ending the task"), "{result}");
        let metrics = scene.gateway.metrics().await;
        assert!(metrics.contains("mcp_a2a_gateway_tasks_stalled_total{agent=\"bard\"} 1\n"), "{metrics}");
        let looked = own_tool(&scene, "subagent_get", &task).await;
        assert!(texts(&looked).contains("ended its stream without ending the task"), "{looked}");
        let waited = in_time("the wait", own_tool(&scene, "subagent_wait", &task)).await;
        assert!(texts(&waited).contains("ended its stream without ending the task"), "{waited}");
        scene.agent.on_get(|_| Reply::result(v0_3::completed(RAW_TASK, RAW_CONTEXT, "the song")));
        let done = in_time("the end", async {
            loop {
                let result = own_tool(&scene, "subagent_wait", &task).await;
                if result["structuredContent"]["state"] == "completed" {
                    return result;
                }
            }
        });
        let done = done.await;
        assert_eq!(words(&done), "the song", "it is followed on");
    }
}

#[tokio::test]
async fn stalled_task_of_new_agent_is_reported() {
    let scene = Scene::of(Card::v1().skill("sing"), "", SOON).await;
    scene.agent.on_send(|_| Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "submitted")]));
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "submitted")));
    scene.agent.on_subscribe(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "submitted")).stall());
    let result = in_time("the handle", scene.said("sing")).await;
    task_of(&result);
    assert!(texts(&result).contains("ended its stream without ending the task"), "{result}");
}

/// Each change begins the time anew.
#[tokio::test]
async fn changing_task_is_not_stalled() {
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "streams: { stalled_after: 3s }").await;
    let looks = std::sync::atomic::AtomicUsize::new(0);
    scene.agent.on_send(|_| Reply::events([v0_3::task(RAW_TASK, RAW_CONTEXT, "working")]));
    scene.agent.on_get(move |_| {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if look == 5 {
            return Reply::result(v0_3::completed(RAW_TASK, RAW_CONTEXT, "the song"));
        }
        let mut task = v0_3::task(RAW_TASK, RAW_CONTEXT, "working");
        task["status"]["message"] = json!({
            "kind": "message", "messageId": format!("m-{look}"), "role": "agent",
            "parts": [{ "kind": "text", "text": format!("verse {look}") }],
        });
        Reply::result(task)
    });
    assert_eq!(words(&in_time("the end", scene.said("sing")).await), "the song");
    let metrics = scene.gateway.metrics().await;
    assert!(!metrics.contains("tasks_stalled_total{agent=\"bard\"} 1"), "{metrics}");
}

#[tokio::test]
async fn stalled_extension_task_says_so() {
    let scene =
        Scene::of(Card::v0_3().skill("sing"), "", &format!("calls: {{ task_after: 0s }}\n{SOON}")).await;
    crashes(&scene.agent, "submitted");
    let client = with_tasks(&scene.gateway);
    let params = json!({ "name": "bard_sing", "arguments": { "text": "sing" } });
    let task =
        client.modern("tools/call", params).await.result().await["taskId"].as_str().unwrap().to_owned();
    in_time("the message", async {
        loop {
            let found = client.task("tasks/get", &task).await.result().await;
            assert_eq!(found["status"], "working");
            if found["statusMessage"].as_str().is_some_and(|said| said.contains("ended its stream")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A handle of a task that goes on says whether its agent is there.
#[tokio::test]
async fn working_task_says_agent_is_away() {
    let scene = Scene::tuned(
        "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { retry_base: 50ms, retry_max: 100ms }",
    )
    .await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let task = task_of(&scene.said("sing").await);
    let Scene { agent, gateway } = scene;
    agent.stop().await;
    in_time("the text", async {
        loop {
            let params = json!({ "name": "subagent_get", "arguments": { "taskId": task } });
            let looked = gateway.client().modern("tools/call", params).await.result().await;
            assert_eq!(looked["structuredContent"]["state"], "working", "{looked}");
            if texts(&looked).contains("cannot be reached at present") {
                return;
            }
        }
    })
    .await;
}
