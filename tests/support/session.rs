//! A client of the legacy era: `initialize`, a session, everything under its headers.

use serde_json::{Value, json};

use super::client::{Answer, McpClient};

/// The newest version of the legacy era.
pub const LEGACY: &str = "2025-11-25";

/// An initialized session.
#[derive(Clone)]
pub struct LegacySession {
    client: McpClient,
    /// The `Mcp-Session-Id`, if the server gave one.
    pub id: Option<String>,
    /// The negotiated version.
    pub version: String,
    /// The result of `initialize`.
    pub initialized: Value,
}

impl McpClient {
    /// Initializes with the newest legacy version.
    pub async fn legacy(&self) -> LegacySession {
        self.legacy_version(LEGACY).await
    }

    /// Initializes with this version, and sends `notifications/initialized`.
    pub async fn legacy_version(&self, version: &str) -> LegacySession {
        let answer = self.initialize(version).await;
        assert_eq!(answer.status, 200, "initialize");
        let id = answer.header("mcp-session-id").map(str::to_owned);
        let initialized = answer.result().await;
        let version = initialized["protocolVersion"].as_str().expect("a version").to_owned();
        let session = LegacySession { client: self.clone(), id, version, initialized };
        session.notify("notifications/initialized", json!({})).await;
        session
    }

    /// Only the first request of a session.
    pub async fn initialize(&self, version: &str) -> Answer {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.declared(),
            "clientInfo": { "name": self.name(), "version": "1" },
        });
        self.post(&self.request("initialize", &params), &[]).await
    }
}

impl LegacySession {
    /// A request in this session.
    pub async fn call(&self, method: &str, params: Value) -> Answer {
        self.post(&self.client.request(method, &params)).await
    }

    pub async fn call_tool(&self, name: &str, arguments: Value) -> Answer {
        self.call("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    /// A notification; fails unless it is accepted with 202.
    pub async fn notify(&self, method: &str, params: Value) {
        let answer = self.post(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
        assert_eq!(answer.status, 202, "{method}");
    }

    /// The answer to a request of the server's; fails unless it is accepted with 202.
    pub async fn respond(&self, id: &Value, result: Value) {
        let answer = self.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
        assert_eq!(answer.status, 202, "a response to {id}");
    }

    /// Any body under the session's headers.
    pub async fn post(&self, body: &Value) -> Answer {
        self.client.post(body, &self.headers()).await
    }

    /// The GET stream, from the start or after an event.
    pub async fn listen(&self, last_event_id: Option<&str>) -> Answer {
        let mut headers = self.headers();
        headers.push(("Accept", "text/event-stream"));
        headers.extend(last_event_id.map(|id| ("Last-Event-ID", id)));
        self.client.get(&headers).await
    }

    pub async fn delete(&self) -> Answer {
        self.client.delete(&self.headers()).await
    }

    /// The same session, used by another client: its headers and its connection.
    pub fn stolen_by(&self, client: &McpClient) -> Self {
        Self { client: client.clone(), ..self.clone() }
    }

    pub fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![("MCP-Protocol-Version", self.version.as_str())];
        headers.extend(self.id.as_deref().map(|id| ("Mcp-Session-Id", id)));
        headers
    }
}
