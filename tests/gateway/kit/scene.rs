//! The scene of most journeys: the agent `bard` with the skill `sing`, behind a gateway.

use serde_json::{Value, json};

use crate::support::client::Finished;
use crate::support::{Answer, Card, LegacySession, ScriptedAgent, TestGateway};

/// The tool that most journeys call, as `/mcp` names it.
pub(crate) const TOOL: &str = "bard_sing";
/// Ids that no client may ever see.
pub(crate) const RAW_TASK: &str = "raw-task-7";
pub(crate) const RAW_CONTEXT: &str = "raw-context-7";

pub(crate) struct Scene {
    pub(crate) agent: ScriptedAgent,
    pub(crate) gateway: TestGateway,
}

impl Scene {
    /// A streaming 1.0 agent, and the gateway with its defaults.
    pub(crate) async fn new() -> Self {
        Self::of(Card::v1().skill("sing"), "", "").await
    }

    /// The same, with more lines at the top of the configuration.
    pub(crate) async fn tuned(settings: &str) -> Self {
        Self::of(Card::v1().skill("sing"), "", settings).await
    }

    /// An agent with this card, with `own` lines under `agents.bard` and `settings` lines at the
    /// top.
    pub(crate) async fn of(card: Card, own: &str, settings: &str) -> Self {
        let agent = ScriptedAgent::start(card).await;
        let gateway = TestGateway::start(|ports| {
            let (listeners, card) = (ports.listeners(), agent.card_url());
            format!("{listeners}{}agents:\n  bard:\n    card: {card}\n{}", lines(settings, 0), lines(own, 4))
        })
        .await;
        Self { agent, gateway }
    }

    /// A call of the modern era.
    pub(crate) async fn call(&self, arguments: Value) -> Answer {
        self.call_with(arguments, json!({})).await
    }

    /// A call of the modern era with more in `_meta`.
    pub(crate) async fn call_with(&self, arguments: Value, meta: Value) -> Answer {
        let params = json!({ "name": TOOL, "arguments": arguments, "_meta": meta });
        self.gateway.client().modern("tools/call", params).await
    }

    /// The result of a call that says only this.
    pub(crate) async fn said(&self, text: &str) -> Value {
        self.call(json!({ "text": text })).await.result().await
    }

    /// A call that wants to hear of progress, and all that came of it.
    pub(crate) async fn followed(&self, text: &str) -> Finished {
        self.call_with(json!({ "text": text }), json!({ "progressToken": "p" })).await.finish().await
    }

    /// A session of the newest legacy revision.
    pub(crate) async fn session(&self) -> LegacySession {
        self.gateway.client().legacy().await
    }
}

/// These lines, each with so many spaces before it, and none if there are none.
fn lines(text: &str, indent: usize) -> String {
    text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// The text of the first block.
pub(crate) fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text first: {result}"))
}

/// The first block's text of a result that must be an error.
pub(crate) fn complaint(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    words(result)
}

/// The handle of a result that must be one.
pub(crate) fn task_of(result: &Value) -> String {
    let handle = &result["structuredContent"];
    let task = handle["taskId"].as_str().unwrap_or_else(|| panic!("not a handle result: {result}"));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(handle["taskUri"], format!("a2a://task/{task}"));
    assert!(words(result).contains(task), "the text names the handle: {result}");
    task.to_owned()
}
