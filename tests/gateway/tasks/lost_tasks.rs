//! Tasks that their agent has lost: all ways to ask for one say the same.

use serde_json::{Value, json};

use crate::kit::quiz::with_tasks;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, task_of};
use crate::support::payload::v1;
use crate::support::{Reply, Signal, in_time};

const HASTY: &str =
    "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { retry_base: 50ms, retry_max: 100ms }";
const LOST: &str = "Agent \"bard\" did not complete the call: it does not know this task any more; the task has expired or was lost.";

#[tokio::test]
async fn lost_task_reads_same_in_all_tools() {
    let scene = Scene::tuned(HASTY).await;
    let cut = Signal::new();
    let wait = cut.clone();
    scene.agent.on_send(move |_| {
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait).cut()
    });
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let task = task_of(&scene.said("sing").await);
    cut.fire();
    scene.agent.wait_for_call("GetTask").await;
    let call = async |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        scene.gateway.client().modern("tools/call", params).await.result().await
    };
    // Until the answer has been read.
    in_time("the loss", async { while call(TOOL, json!({ "taskId": task })).await["isError"] == false {} })
        .await;
    for (tool, more) in [
        (TOOL, json!({})),
        (TOOL, json!({ "text": "go on" })),
        ("subagent_get", json!({})),
        ("subagent_wait", json!({})),
        ("subagent_send", json!({ "text": "go on" })),
        ("subagent_cancel", json!({})),
    ] {
        let mut arguments = json!({ "taskId": task });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = call(tool, arguments).await;
        assert_eq!(complaint(&told), LOST, "{tool}: {told}");
    }
    let found = with_tasks(&scene.gateway).task("tasks/get", &task).await.result().await;
    assert_eq!((&found["status"], &found["statusMessage"]), (&json!("failed"), &json!(LOST)), "{found}");
    let session = scene.session().await;
    let found = session.task("tasks/get", &task).await.result().await;
    assert_eq!((&found["status"], &found["statusMessage"]), (&json!("failed"), &json!(LOST)), "{found}");
    assert_eq!(complaint(&session.task("tasks/result", &task).await.result().await), LOST);
}
