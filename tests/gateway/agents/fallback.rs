//! An agent that does not speak what its card promises: it is spoken to in the other version, and
//! nothing is said twice.

use serde_json::json;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, complaint, words};
use crate::support::payload::v0_3;
use crate::support::{Card, Reply};

#[tokio::test]
async fn other_version_is_tried() {
    for code in [-32601, -32009] {
        let scene = Scene::new().await;
        scene.agent.on("SendStreamingMessage", move |_| Reply::error(code, "what?"));
        scene.agent.on("message/stream", |_| {
            Reply::events([v0_3::completed(RAW_TASK, RAW_CONTEXT, "in the old tongue")])
        });
        assert_eq!(words(&scene.said("hello").await), "in the old tongue");
        assert_eq!(scene.agent.calls("message/stream").len(), 1);
    }
}

#[tokio::test]
async fn pinned_version_is_kept() {
    let scene = Scene::of(Card::v1().skill("sing"), "protocol: \"1.0\"", "").await;
    scene.agent.on("SendStreamingMessage", |_| Reply::error(-32601, "what?"));
    assert!(complaint(&scene.said("hello").await).contains("what?"));
    assert!(scene.agent.calls("message/stream").is_empty());
}

#[tokio::test]
async fn other_errors_cause_no_second_try() {
    for code in [-32603, -32602, -32004, -32000] {
        let scene = Scene::new().await;
        scene.agent.on("SendStreamingMessage", move |_| Reply::error(code, "no"));
        complaint(&scene.said("hello").await);
        let sent = scene.agent.requests().iter().filter(|request| request.method == "POST").count();
        assert_eq!(sent, 1, "{code}");
    }
}

#[tokio::test]
async fn no_get_task_means_no_second_try() {
    let scene = Scene::new().await;
    scene.agent.on("SendStreamingMessage", |_| {
        Reply::result(json!({ "task": { "id": RAW_TASK, "status": { "state": "TASK_STATE_WORKING" } } }))
    });
    scene.agent.on("GetTask", |_| Reply::error(-32601, "no such method"));
    complaint(&scene.said("hello").await);
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
    assert!(scene.agent.calls("message/stream").is_empty());
}
