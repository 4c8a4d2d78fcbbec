//! An agent that pushes, the gateway with an A2A and a push endpoint before it, and a client's
//! webhook.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::support::payload::{v0_1, v0_3, v1};
use crate::support::{Answer, Card, McpClient, Reply, Request, ScriptedAgent, TestGateway};
use crate::tasks::push::pushing;

const KEY: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const RAW: &str = "agent-task-1";
pub(crate) const CONTEXT: &str = "agent-context-1";
/// The client's own secrets.
pub(crate) const TOKEN: &str = "token-of-the-client";
pub(crate) const SECRET: &str = "secret-of-the-client";
/// Where the webhook may be in a test.
pub(crate) const LOCAL: &str = "outbound: { webhooks: { allow: [127.0.0.1], http: true } }\n";

/// A version, and what it calls things.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spoken {
    Oldest,
    Old,
    New,
}

impl Spoken {
    pub(crate) const ALL: [Self; 3] = [Self::Oldest, Self::Old, Self::New];

    fn pick<T>(self, [oldest, old, new]: [T; 3]) -> T {
        match self {
            Self::Oldest => oldest,
            Self::Old => old,
            Self::New => new,
        }
    }

    pub(crate) fn card(self) -> Card {
        let oldest = Card::v0_1().set("protocolVersion", "0.1");
        pushing(self.pick([oldest, Card::v0_3(), Card::v1()]))
    }

    pub(crate) fn send(self) -> &'static str {
        self.pick(["tasks/send", "message/send", "SendMessage"])
    }

    pub(crate) fn set(self) -> &'static str {
        let old = "tasks/pushNotificationConfig/set";
        self.pick(["tasks/pushNotification/set", old, "CreateTaskPushNotificationConfig"])
    }

    pub(crate) fn get(self) -> &'static str {
        let old = "tasks/pushNotificationConfig/get";
        self.pick(["tasks/pushNotification/get", old, "GetTaskPushNotificationConfig"])
    }

    /// The task that an agent says a send has begun.
    pub(crate) fn begun(self, request: &Request) -> Value {
        match self {
            Self::Oldest => v0_1::task(request.params()["id"].as_str().unwrap(), "working"),
            Self::Old => v0_3::task(RAW, CONTEXT, "working"),
            Self::New => v1::task(RAW, CONTEXT, "working"),
        }
    }

    /// The event that an agent pushes at the end.
    pub(crate) fn pushed(self, task: &str) -> Value {
        match self {
            Self::Oldest => v0_1::completed(task, "the song"),
            Self::Old => v0_3::completed(task, CONTEXT, "the song"),
            Self::New => v1::status_update(task, CONTEXT, "completed", Some("the song")),
        }
    }

    /// The params of a message; `config` comes with it.
    pub(crate) fn saying(self, config: Option<Value>) -> Value {
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] });
        let old = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "x" }] });
        let oldest = json!({ "role": "user", "parts": [{ "type": "text", "text": "x" }] });
        let Some(config) = config else {
            let [oldest, old] = [json!({ "id": "my-task", "message": oldest }), json!({ "message": old })];
            return self.pick([oldest, old, json!({ "message": message })]);
        };
        self.pick([
            json!({ "id": "my-task", "message": oldest, "pushNotification": config }),
            json!({ "message": old, "configuration": { "pushNotificationConfig": config } }),
            json!({ "message": message, "configuration": { "taskPushNotificationConfig": config } }),
        ])
    }

    /// A webhook with all that may go with it.
    pub(crate) fn config(self, url: &str) -> Value {
        let schemes = json!({ "schemes": ["Bearer"], "credentials": SECRET });
        let scheme = json!({ "scheme": "Bearer", "credentials": SECRET });
        let authentication = self.pick([schemes.clone(), schemes, scheme]);
        let mut config = json!({ "url": url, "token": TOKEN, "authentication": authentication });
        if self != Self::Oldest {
            config["id"] = "mine".into();
        }
        config
    }

    /// The same for a task.
    pub(crate) fn registration(self, task: &Value, config: Value) -> Value {
        if self == Self::New {
            let mut flat = config;
            flat["taskId"] = task.clone();
            return flat;
        }
        let name = self.pick(["id", "taskId", ""]);
        json!({ name: task, "pushNotificationConfig": config })
    }

    /// The params that ask for a registration.
    pub(crate) fn naming(self, task: &Value, config: &str) -> Value {
        self.pick([
            json!({ "id": task }),
            json!({ "id": task, "pushNotificationConfigId": config }),
            json!({ "taskId": task, "id": config }),
        ])
    }
}

/// Where an agent is to push, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Hook {
    /// Reads the webhook from the request that the agent got, in any of its forms.
    pub(crate) fn of(params: &Value) -> Self {
        let places =
            ["/pushNotificationConfig", "/pushNotification", "/configuration/pushNotificationConfig"];
        let places = places.into_iter().chain(["/configuration/taskPushNotificationConfig", ""]);
        let config = places.into_iter().find_map(|place| params.pointer(place)).unwrap();
        let text =
            |name: &str| config[name].as_str().unwrap_or_else(|| panic!("no {name}: {params}")).to_owned();
        Self { url: text("url"), token: text("token") }
    }

    /// Sends it to the push endpoint of a gateway.
    pub(crate) async fn send(&self, gateway: &TestGateway, headers: &[(&str, &str)], body: &Value) -> Answer {
        let path = self.url.split_once("/push/").expect("an address of the gateway").1;
        let at = format!("http://127.0.0.1:{}/push/{path}", gateway.ports().other);
        McpClient::new(&at).send("POST", headers, body.to_string().into_bytes()).await
    }

    /// The same as the agent does it.
    pub(crate) async fn push(&self, gateway: &TestGateway, body: &Value) -> u16 {
        self.send(gateway, &[("X-A2A-Notification-Token", &self.token)], body).await.status
    }
}

/// The agent `bard` and a webhook.
pub(crate) struct PushStage {
    /// The version that its clients speak.
    pub(crate) spoken: Spoken,
    /// The version that the agent speaks.
    agents: Spoken,
    pub(crate) agent: ScriptedAgent,
    pub(crate) hook: ScriptedAgent,
    pub(crate) gateway: TestGateway,
}

/// The gateway before this agent, with two listeners.
pub(crate) async fn gateway(agent: &ScriptedAgent, settings: &str) -> TestGateway {
    gateway_with(agent, settings, "").await
}

/// The same with more settings of the agent's.
pub(crate) async fn gateway_with(agent: &ScriptedAgent, settings: &str, of_agent: &str) -> TestGateway {
    TestGateway::start(|ports| {
        let (other, auth) = (ports.other, auth(&["ann", "ben"]));
        let second = format!("    serve: [mcp, a2a]\n  - address: 127.0.0.1:{other}\n    serve: [push]\nadmin:");
        let listeners = ports.listeners().replacen("admin:", &second, 1);
        format!(
            "{listeners}public_url: http://127.0.0.1:{other}\nseal_key: {KEY}\npush: {{ enabled: true }}\n{auth}{settings}agents:\n  \
             bard:\n    card: {}\n{of_agent}",
            agent.card_url()
        )
    })
    .await
}

impl PushStage {
    pub(crate) async fn new(spoken: Spoken) -> Self {
        Self::with(spoken, LOCAL).await
    }

    pub(crate) async fn with(spoken: Spoken, settings: &str) -> Self {
        Self::between(spoken, spoken, settings).await
    }

    /// For clients of one version before an agent of another.
    pub(crate) async fn between(spoken: Spoken, agents: Spoken, settings: &str) -> Self {
        let agent = ScriptedAgent::start(agents.card()).await;
        agent.on(agents.send(), move |request| Reply::result(agents.begun(request)));
        agent.on(agents.set(), |request| Reply::result(request.params()));
        let hook = ScriptedAgent::start(Card::v1()).await;
        hook.on_path("/hook?of=client", |_| Reply::status(200, "thanks"));
        let gateway = gateway(&agent, settings).await;
        Self { spoken, agents, agent, hook, gateway }
    }

    /// The client's webhook.
    pub(crate) fn url(&self) -> String {
        format!("{}hook?of=client", self.hook.url())
    }

    /// Calls a method as this caller.
    pub(crate) async fn call(&self, name: &str, method: &str, params: Value) -> Answer {
        let client = self.gateway.client().at("/a2a/bard").header("X-Api-Key", &key_of(name));
        let request = json!({ "jsonrpc": "2.0", "id": "call-1", "method": method, "params": params });
        let version = self.spoken.pick(["0.1", "0.3", "1.0"]);
        client.post(&request, &[("A2A-Version", version)]).await
    }

    /// Begins a task; its id for this caller.
    pub(crate) async fn begun(&self, name: &str) -> Value {
        let result = self.call(name, self.spoken.send(), self.spoken.saying(None)).await.result().await;
        let task = if result["task"].is_object() { &result["task"] } else { &result };
        task["id"].clone()
    }

    /// Registers the webhook for a task that ann has begun: her id of the task, the answer to her,
    /// and the request to the agent.
    pub(crate) async fn registered(&self) -> (Value, Value, Value) {
        let task = self.begun("ann").await;
        let params = self.spoken.registration(&task, self.spoken.config(&self.url()));
        let shown = self.call("ann", self.spoken.set(), params).await.result().await;
        (task, shown, self.agent.wait_for_call(self.agents.set()).await.params())
    }

    /// The agent's own id of the task that ann has begun.
    pub(crate) fn raw(&self, told: &Value) -> String {
        told["taskId"].as_str().or(told["id"].as_str()).unwrap().to_owned()
    }

    /// The pushes that have come to the webhook.
    pub(crate) fn pushes(&self) -> Vec<Request> {
        self.hook.requests()
    }
}
