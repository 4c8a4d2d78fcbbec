//! Agent Cards as each A2A version writes them.

use serde_json::{Value, json};

/// A card to serve. `{url}` in any text becomes the agent's own URL.
#[derive(Clone, Debug)]
pub struct Card {
    pub json: Value,
    pub path: &'static str,
    pub etag: Option<String>,
    pub cache_control: Option<String>,
}

impl Card {
    /// A 1.0 card: streaming, no skill yet.
    pub fn v1() -> Self {
        Self::of(
            "/.well-known/agent-card.json",
            json!({
                "name": "Scripted Agent",
                "description": "Plays what the test wrote",
                "version": "1.2.3",
                "supportedInterfaces": [{ "url": "{url}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
                "capabilities": { "streaming": true, "pushNotifications": false },
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }),
        )
    }

    /// A 1.0 card that offers only HTTP+JSON, at `base` below the agent's URL, for this tenant.
    pub fn http_json(base: &str, tenant: &str) -> Self {
        let url = format!("{{url}}{base}");
        let interface =
            json!({ "url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": tenant });
        Self::v1().set("supportedInterfaces", json!([interface]))
    }

    /// A 1.0 card that offers only gRPC, at this target.
    pub fn grpc(target: &str) -> Self {
        let interface = json!({ "url": target, "protocolBinding": "GRPC", "protocolVersion": "1.0" });
        Self::v1().set("supportedInterfaces", json!([interface]))
    }

    /// A 0.3 card that offers only gRPC, at this target.
    pub fn grpc_0_3(target: &str) -> Self {
        Self::v0_3().set("url", target).set("preferredTransport", "GRPC")
    }

    /// A 0.3 card: streaming, no skill yet.
    pub fn v0_3() -> Self {
        Self::of(
            "/.well-known/agent-card.json",
            json!({
                "protocolVersion": "0.3.0",
                "name": "Scripted Agent",
                "description": "Plays what the test wrote",
                "version": "1.2.3",
                "url": "{url}",
                "preferredTransport": "JSONRPC",
                "capabilities": { "streaming": true, "pushNotifications": false },
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }),
        )
    }

    /// A 0.3 card that offers only HTTP+JSON.
    pub fn http_json_0_3() -> Self {
        Self::v0_3().set("preferredTransport", "HTTP+JSON")
    }

    /// A 0.1 card: streaming, no skill yet, at the old path.
    pub fn v0_1() -> Self {
        Self::of(
            "/.well-known/agent.json",
            json!({
                "name": "Scripted Agent",
                "description": "Plays what the test wrote",
                "version": "1.2.3",
                "url": "{url}",
                "capabilities": { "streaming": true, "pushNotifications": false, "stateTransitionHistory": false },
                "defaultInputModes": ["text"],
                "defaultOutputModes": ["text"],
                "skills": [],
            }),
        )
    }

    fn of(path: &'static str, json: Value) -> Self {
        Self { json, path, etag: None, cache_control: None }
    }

    pub fn skill(self, id: &str) -> Self {
        let description = format!("Does {id}");
        self.skill_with(json!({ "id": id, "name": id, "description": description, "tags": ["test"] }))
    }

    /// A skill with just these members.
    pub fn skill_with(mut self, skill: Value) -> Self {
        self.json["skills"].as_array_mut().unwrap().push(skill);
        self
    }

    pub fn streaming(mut self, streaming: bool) -> Self {
        self.json["capabilities"]["streaming"] = streaming.into();
        self
    }

    pub fn name(self, name: &str) -> Self {
        self.set("name", name)
    }

    pub fn set(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.json[member] = value.into();
        self
    }

    pub fn remove(mut self, member: &str) -> Self {
        self.json.as_object_mut().unwrap().remove(member);
        self
    }

    /// Served with this (unquoted) validator, and 304 to a client that has it.
    pub fn etag(mut self, etag: &str) -> Self {
        self.etag = Some(format!("\"{etag}\""));
        self
    }

    pub fn cache_control(mut self, value: &str) -> Self {
        self.cache_control = Some(value.into());
        self
    }

    pub fn body(&self, url: &str) -> Vec<u8> {
        self.json.to_string().replace("{url}", url).into_bytes()
    }
}
