//! Tasks of both protocols as their clients use them, and an agent that takes as long as the test
//! wants.

use std::time::Duration;

use serde_json::{Value, json};

use super::payload::v1;
use super::{Answer, LegacySession, McpClient, PATIENCE, Reply, ScriptedAgent, Signal};

/// The capability that the gateway declares, and a client must, to get tasks of the extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Between two looks at a task without notifications.
const POLL: Duration = Duration::from_millis(20);

impl McpClient {
    /// The same client, with the tasks extension.
    pub fn with_tasks(&self) -> Self {
        self.capabilities(json!({ "extensions": { EXTENSION: {} } }))
    }

    /// `tasks/get`, `tasks/cancel` of the extension.
    pub async fn task(&self, method: &str, task: &str) -> Answer {
        self.modern(method, json!({ "taskId": task })).await
    }

    /// Asks for a task until it stands as wanted; fails if it ends otherwise.
    pub async fn task_until(&self, task: &str, status: &str) -> Value {
        until(status, async || self.task("tasks/get", task).await.result().await).await
    }
}

impl LegacySession {
    /// A call that is to run as a task; the task that was created.
    pub async fn begin_task(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "task": {} });
        let created = self.call("tools/call", params).await.result().await;
        assert!(created["task"]["taskId"].is_string(), "not a task: {created}");
        created["task"].clone()
    }

    /// `tasks/get`, `tasks/result`, `tasks/cancel` of the core.
    pub async fn task(&self, method: &str, task: &str) -> Answer {
        self.call(method, json!({ "taskId": task })).await
    }

    /// Asks for a task until it stands as wanted; fails if it ends otherwise.
    pub async fn task_until(&self, task: &str, status: &str) -> Value {
        until(status, async || self.task("tasks/get", task).await.result().await).await
    }
}

async fn until(status: &str, look: impl AsyncFn() -> Value) -> Value {
    let mut last = Value::Null;
    let reached = async {
        loop {
            last = look().await;
            if last["status"] == status {
                return;
            }
            let is_over = ["completed", "failed", "cancelled"].iter().any(|over| last["status"] == *over);
            assert!(!is_over, "{status} will not come: {last}");
            tokio::time::sleep(POLL).await;
        }
    };
    let is_reached = tokio::time::timeout(PATIENCE, reached).await.is_ok();
    assert!(is_reached, "not {status} within {PATIENCE:?}: {last}");
    last
}

impl ScriptedAgent {
    /// Every message begins this task; it is worked on until the signal, then comes what is `last`.
    pub fn works(&self, (task, context): (&str, &str), last: impl IntoIterator<Item = Value>) -> Signal {
        let go = Signal::new();
        let begun = Reply::stream().event(v1::task(task, context, "working")).wait(&go);
        let whole = last.into_iter().fold(begun, Reply::event);
        self.on_send(move |_| whole.clone());
        let bare = v1::bare_task(task, context, "working");
        self.on_get(move |_| Reply::result(bare.clone()));
        go
    }

    /// The same, with an end as agents have it: an artifact, then `completed`.
    pub fn works_for(&self, (task, context): (&str, &str), text: &str) -> Signal {
        let made = v1::artifact_update(task, context, text, false, true);
        self.works((task, context), [made, v1::status_update(task, context, "completed", None)])
    }
}
