//! The agent `bard` at several endpoints, each of which knows its own tasks only.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::kit::quiz::KEY;
use crate::kit::scene::TOOL;
use crate::support::payload::v1;
use crate::support::{Card, Reply, Request, ScriptedAgent, TestGateway, free_port};

/// A short budget, and agents that are asked often.
pub(crate) const HASTY: &str = "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { idle_timeout: 200ms, retry_base: 50ms, retry_max: 100ms }";
/// Endpoints that come back soon.
pub(crate) const QUICK: &str = "    breaker: { failures: 2, base: 300ms, max: 300ms }\n";

/// The messages that came to one endpoint. Lives longer than the endpoint.
pub(crate) type Said = Arc<Mutex<Vec<String>>>;

pub(crate) struct Cluster {
    pub(crate) agents: Vec<ScriptedAgent>,
    /// By endpoint.
    pub(crate) said: Vec<Said>,
    /// Serves the card, and nothing else.
    pub(crate) registrar: ScriptedAgent,
}

/// The id of a task that is made at an endpoint for this text.
pub(crate) fn task_at(endpoint: usize, text: &str) -> String {
    format!("raw-task-{endpoint}-{text}")
}

pub(crate) fn context_at(endpoint: usize) -> String {
    format!("raw-context-{endpoint}")
}

impl Cluster {
    /// Endpoints that can die and come back, which answer every message.
    pub(crate) async fn new(count: usize) -> Self {
        let mut cluster = Self {
            agents: Vec::new(),
            said: Vec::new(),
            registrar: ScriptedAgent::start(Card::v1().skill("sing")).await,
        };
        for endpoint in 0..count {
            let agent = ScriptedAgent::start_at(([127, 0, 0, 1], free_port()).into(), Card::v1()).await;
            cluster.said.push(Said::default());
            cluster.agents.push(agent);
            cluster.answers(endpoint);
        }
        cluster
    }

    /// A gateway before them, with `own` lines under the agent and `settings` at the top.
    pub(crate) async fn gateway(&self, own: &str, settings: &str) -> TestGateway {
        let urls: Vec<String> = self.agents.iter().map(ScriptedAgent::url).collect();
        let (card, endpoints) = (self.registrar.card_url(), urls.join(", "));
        TestGateway::start(|ports| {
            let listeners = ports.listeners();
            format!("{listeners}{KEY}\n{settings}\nagents:\n  bard:\n    card: {card}\n    endpoints: [{endpoints}]\n{own}")
        })
        .await
    }

    /// Notes what is said at an endpoint.
    pub(crate) fn on_send(&self, endpoint: usize, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        let said = self.said[endpoint].clone();
        self.agents[endpoint].on_send(move |request| {
            said.lock().unwrap().push(request.text());
            reply(request)
        });
    }

    /// Every message is answered at once.
    pub(crate) fn answers(&self, endpoint: usize) {
        self.on_send(endpoint, |request| Reply::events([v1::message(&request.text())]));
    }

    /// Every message begins a task that is not done until it is asked for, or continued.
    pub(crate) fn works(&self, endpoint: usize) {
        self.on_send(endpoint, move |request| {
            let context = context_at(endpoint);
            match request.message()["taskId"].as_str() {
                Some(task) => Reply::events([v1::completed(task, &context, "thank you")]),
                None => Reply::stream()
                    .event(v1::task(&task_at(endpoint, &request.text()), &context, "working"))
                    .stall(),
            }
        });
        self.agents[endpoint].on_get(move |request| known_at(endpoint, request, "working"));
        self.agents[endpoint].on_subscribe(|_| Reply::error(-32004, "not now"));
    }

    /// Its tasks are done.
    pub(crate) fn is_done(&self, endpoint: usize) {
        self.agents[endpoint].on_get(move |request| known_at(endpoint, request, "completed"));
    }

    /// How many messages each endpoint has had.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.said.iter().map(|said| said.lock().unwrap().len()).collect()
    }

    /// Stops an endpoint; the returned one listens there again.
    pub(crate) async fn kill(&mut self, endpoint: usize) -> Killed {
        Killed { endpoint, address: self.agents.remove(endpoint).stop().await }
    }

    /// Starts an endpoint again, without its tasks. It answers every message.
    pub(crate) async fn revive(&mut self, killed: Killed) {
        let agent = ScriptedAgent::start_at(killed.address, Card::v1()).await;
        self.agents.insert(killed.endpoint, agent);
        self.answers(killed.endpoint);
        self.agents[killed.endpoint].on_get(|_| Reply::error(-32001, "Task not found"));
    }
}

pub(crate) struct Killed {
    endpoint: usize,
    address: std::net::SocketAddr,
}

/// The task that is asked for, if it was made here.
fn known_at(endpoint: usize, request: &Request, state: &str) -> Reply {
    let id = request.params()["id"].as_str().unwrap_or_default().to_owned();
    if !id.starts_with(&task_at(endpoint, "")) {
        return Reply::error(-32001, "Task not found");
    }
    Reply::result(match state {
        "completed" => v1::bare_completed(&id, &context_at(endpoint), &format!("{id} is done")),
        state => v1::bare_task(&id, &context_at(endpoint), state),
    })
}

/// The result of a call.
pub(crate) async fn call(gateway: &TestGateway, arguments: Value) -> Value {
    let params = json!({ "name": TOOL, "arguments": arguments });
    gateway.client().modern("tools/call", params).await.result().await
}

/// The result of a call that says only this.
pub(crate) async fn say(gateway: &TestGateway, text: &str) -> Value {
    call(gateway, json!({ "text": text })).await
}

/// The operator's view of the endpoints.
pub(crate) async fn endpoints(gateway: &TestGateway) -> Vec<Value> {
    let agents = gateway.admin().at("/agents").get(&[]).await.json().await;
    agents[0]["endpoints"].as_array().cloned().unwrap_or_default()
}

/// Waits until the operator sees so many endpoints that are asked.
pub(crate) async fn until_up(gateway: &TestGateway, count: usize) {
    crate::support::in_time(&format!("{count} endpoints to be up"), async {
        while endpoints(gateway).await.iter().filter(|endpoint| endpoint["up"] == true).count() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A count that several tasks add to.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
