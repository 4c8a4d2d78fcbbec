//! An agent, the gateway with the A2A endpoint before it, and clients of that endpoint.

use serde_json::{Value, json};

use crate::auth::rules::key_of;
use crate::support::{Answer, Card, McpClient, ScriptedAgent, TestGateway};

/// One agent, `bard`, behind the A2A endpoint.
pub(crate) struct Stage {
    pub(crate) agent: ScriptedAgent,
    pub(crate) gateway: TestGateway,
}

impl Stage {
    /// With nothing more than the A2A endpoint.
    pub(crate) async fn new() -> Self {
        Self::with(Card::v1().skill("sing"), "", "").await
    }

    /// The same with other settings, and others of the agent.
    pub(crate) async fn with(card: Card, settings: &str, of_agent: &str) -> Self {
        let agent = ScriptedAgent::start(card).await;
        let gateway = TestGateway::start(|ports| {
            let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
            format!("{listeners}{settings}agents:\n  bard:\n    card: {}\n{of_agent}", agent.card_url())
        })
        .await;
        Self { agent, gateway }
    }

    /// An anonymous client of the agent.
    pub(crate) fn client(&self) -> McpClient {
        self.gateway.client().at("/a2a/bard")
    }

    /// A client that shows its key.
    pub(crate) fn by(&self, name: &str) -> McpClient {
        self.client().header("X-Api-Key", &key_of(name))
    }
}

/// Calls a method of A2A 1.0.
pub(crate) async fn call(client: &McpClient, method: &str, params: Value) -> Answer {
    let request = json!({ "jsonrpc": "2.0", "id": "call-1", "method": method, "params": params });
    client.post(&request, &[("A2A-Version", "1.0")]).await
}

/// The params of a message of A2A 1.0.
pub(crate) fn saying(text: &str) -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// The same in a task.
pub(crate) fn saying_in(task: &Value, context: &Value, text: &str) -> Value {
    let mut params = saying(text);
    params["message"]["taskId"] = task.clone();
    params["message"]["contextId"] = context.clone();
    params
}
