//! Tests of the gateway in process: a scripted agent, clients in memory, and a paused clock.
//!
//! [`TestGateway`] holds the services without listeners. Its clock jumps to the next timer when
//! nothing else can run, so that a wait of minutes takes no time.

mod edge;
mod questions;
mod subscriptions;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::dispatch::RequestGuard;
use super::{Gateway, Requirement};
use crate::agents::{ScriptedAgent, ScriptedExchange};
use crate::auth::Caller;
use crate::config::{Agent, Settings};
use crate::fault::ClientGone;
use crate::http_edge::{AccessRecord, BodyStep, TestClient, TestConnection, WrittenResponse, give_up, parse};
use crate::telemetry::label::Outcome;
use crate::telemetry::trace::RequestScope;

/// The tool of the scripted agent.
const TOOL: &str = "bard_sing";
/// The agent's own id of the task of most tests.
const RAW_TASK: &str = "raw-task-7";
const MODERN: &str = "2026-07-28";

/// Gateway with one scripted agent, and its background loops.
struct TestGateway {
    gateway: Gateway,
    agent: Arc<ScriptedAgent>,
    _background: JoinSet<()>,
}

impl TestGateway {
    /// Creates a gateway with the default settings.
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Creates a gateway with changed settings.
    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(vec![Agent::new("bard", "http://bard.example/card")]);
        change(&mut settings);
        let (gateway, _) = Gateway::new(settings).unwrap();
        let agent = Arc::new(ScriptedAgent::default());
        let dispatcher = gateway.current();
        dispatcher.discovery.directory.script("bard", &card(&["sing"]), &agent);
        let mut background = JoinSet::new();
        let catalogue = dispatcher.discovery.catalogue.clone();
        background.spawn(async move { catalogue.run().await });
        let engine = dispatcher.mcp_server.engine.clone();
        background.spawn(engine.lookup.followers.clone().run());
        background.spawn(async move { engine.cancelled_calls.clone().run(&engine.drain).await });
        while !dispatcher.discovery.catalogue.is_current() {
            tokio::task::yield_now().await;
        }
        Self { gateway, agent, _background: background }
    }

    /// Changes the skills on the agent's card.
    fn set_skills(&self, skills: &[&str]) {
        self.gateway.current().discovery.directory.script("bard", &card(skills), &self.agent);
    }

    /// Begins a request.
    fn send(&self, request: TestRequest) -> Exchange {
        let TestRequest { method, uri, headers, body, network } = request;
        let (mut head, ()) = http::Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, uri.parse::<Uri>().unwrap(), headers);
        let (mut connection, client) = TestConnection::new(head, body, network);
        let gateway = self.gateway.clone();
        let served = tokio::spawn(async move {
            let dispatcher = gateway.current();
            let _counted = RequestGuard::enter(&gateway.state.lasting.open_requests);
            let mut record = AccessRecord::new(Caller::anonymous(), Arc::new(RequestScope::bare()));
            let path = uri.split('?').next().unwrap_or_default();
            let route = parse(path).unwrap();
            let require = dispatcher.settings.require.clone();
            let mut moved = None;
            let mut served =
                dispatcher.handle(&mut connection, &mut record, route, &require, &mut moved).await;
            if moved.is_some() {
                drop(dispatcher);
                served = gateway
                    .go_on(&mut connection, &mut record, Requirement::Default, Some(path), moved)
                    .await;
            }
            if let Err(ClientGone) = served {
                give_up(&mut connection).await;
            }
            ServedRequest {
                is_gone: served.is_err(),
                outcome: record.outcome,
                agent_took: record.agent_took,
                ended: Instant::now(),
            }
        });
        Exchange { client, since: Instant::now(), served, read: 0 }
    }

    /// Sends a request and waits for the end of its response.
    async fn respond(&self, request: TestRequest) -> TestResponse {
        self.send(request).response().await
    }

    /// Begins a session of a legacy client with these capabilities.
    async fn session(&self, version: &str, capabilities: Value) -> TestSession {
        self.session_as(version, capabilities, |request| request).await
    }

    /// Begins a session like [`Self::session`]; `dress` changes each of its requests.
    async fn session_as(
        &self,
        version: &str,
        capabilities: Value,
        dress: fn(TestRequest) -> TestRequest,
    ) -> TestSession {
        let client = json!({ "name": "test-client", "version": "1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
        let begun = self.respond(dress(TestRequest::legacy("initialize", params))).await;
        assert_eq!(begun.status, 200, "{begun:?}");
        TestSession { id: begun.header("mcp-session-id").to_owned(), version: version.to_owned(), dress }
    }

    /// Begins a call of the agent that a test answers through the exchange.
    fn call(&self, request: TestRequest) -> (Exchange, ScriptedExchange) {
        let exchange = self.agent.expect();
        (self.send(request), exchange)
    }
}

/// Session of a legacy client.
#[derive(Clone)]
struct TestSession {
    id: String,
    version: String,
    dress: fn(TestRequest) -> TestRequest,
}

impl TestSession {
    fn request(&self, method: &str, params: Value) -> TestRequest {
        self.own(TestRequest::legacy(method, params))
    }

    fn post(&self, body: &Value) -> TestRequest {
        self.own(TestRequest::post(body))
    }

    /// Returns the call of a tool under this id.
    fn call(&self, id: &str, tool: &str, arguments: Value) -> TestRequest {
        let params = json!({ "name": tool, "arguments": arguments });
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
    }

    /// Returns the notification that cancels the request with this id.
    fn cancel(&self, id: &str) -> TestRequest {
        let params = json!({ "requestId": id });
        self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
    }

    /// Returns a request as one of this session.
    fn own(&self, request: TestRequest) -> TestRequest {
        let request = (self.dress)(request).header("mcp-session-id", &self.id);
        request.header("mcp-protocol-version", &self.version)
    }
}

/// Request of a client.
#[derive(Clone)]
struct TestRequest {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Vec<BodyStep>,
    network: Option<IpAddr>,
}

impl TestRequest {
    fn new(method: Method, uri: &str) -> Self {
        let (headers, network) = (HeaderMap::new(), Some(IpAddr::from([192, 0, 2, 1])));
        Self { method, uri: uri.to_owned(), headers, body: Vec::new(), network }
            .header("host", "localhost:8080")
    }

    fn get(uri: &str) -> Self {
        Self::new(Method::GET, uri)
    }

    fn post(body: &Value) -> Self {
        Self::new(Method::POST, "/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(vec![BodyStep::Bytes(Bytes::from(body.to_string()))])
    }

    /// Creates a request of a legacy client.
    fn legacy(method: &str, params: Value) -> Self {
        Self::post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    /// Creates a request of a modern client with these capabilities.
    fn modern(capabilities: &Value, method: &str, params: Value) -> Self {
        let mut params = params;
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": { "name": "test-client", "version": "1" },
        });
        if let Some(own) = params["_meta"].as_object() {
            meta.as_object_mut().unwrap().extend(own.clone());
        }
        params["_meta"] = meta;
        let name = ["name", "uri", "taskId"].iter().find_map(|member| params[*member].as_str());
        let name = name.map(str::to_owned);
        let request = Self::post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", method);
        match name {
            Some(name) => request.header("mcp-name", &name),
            None => request,
        }
    }

    /// Creates a call of the agent by a modern client with these capabilities.
    fn sing(capabilities: &Value) -> Self {
        Self::modern(capabilities, "tools/call", json!({ "name": TOOL, "arguments": { "text": "sing" } }))
    }

    /// Creates a call of a tool by a modern client without capabilities.
    fn tool(name: &str, arguments: Value) -> Self {
        Self::modern(&json!({}), "tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// Returns the request with this header in place of earlier ones of its name.
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    fn at(self, uri: &str) -> Self {
        Self { uri: uri.to_owned(), ..self }
    }

    fn body(self, body: Vec<BodyStep>) -> Self {
        Self { body, ..self }
    }

    /// Returns the request of a client that takes no event stream.
    fn json_only(self) -> Self {
        self.header("accept", "application/json")
    }
}

struct ServedRequest {
    is_gone: bool,
    outcome: Outcome,
    agent_took: Option<Duration>,
    ended: Instant,
}

/// Request that is being served.
struct Exchange {
    client: TestClient,
    since: Instant,
    served: JoinHandle<ServedRequest>,
    /// Number of messages that were read.
    read: usize,
}

impl Exchange {
    /// Waits for the end of the response.
    async fn response(self) -> TestResponse {
        let written = self.client.wait_for(|written| written.ended.is_some()).await;
        let served = self.served.await.unwrap();
        let client = self.client.written();
        TestResponse::new(WrittenResponse { closes: client.closes, ..written }, self.since, &served)
    }

    /// Disconnects the client; the gateway must notice at once.
    async fn disconnect(self) -> Outcome {
        self.client.disconnect();
        let since = Instant::now();
        let served = self.gone().await;
        assert_at(served.ended - since, Duration::ZERO);
        served.outcome
    }

    /// Waits until the gateway has noticed that the client is gone.
    async fn gone(self) -> ServedRequest {
        let served = tokio::time::timeout(seconds(3600), self.served).await.unwrap().unwrap();
        assert!(served.is_gone, "{:?}", self.client.written());
        served
    }

    /// Waits for the next message on the stream.
    async fn next_message(&mut self) -> TestMessage {
        let next = self.read;
        let parsed = |written: &WrittenResponse| messages(written, self.since).nth(next);
        let written = self.client.wait_for(|written| parsed(written).is_some()).await;
        self.read += 1;
        parsed(&written).unwrap()
    }
}

/// Message on a stream, with the time since the request.
#[derive(Debug, Clone)]
struct TestMessage {
    at: Duration,
    json: Value,
}

/// Response of the gateway, with the times since the request.
#[derive(Debug)]
struct TestResponse {
    status: u16,
    headers: HeaderMap,
    began: Duration,
    ended: Duration,
    messages: Vec<TestMessage>,
    /// Times of the keep-alive comments.
    comments: Vec<Duration>,
    text: String,
    closes: bool,
    outcome: Outcome,
    agent_took: Option<Duration>,
}

impl TestResponse {
    fn new(written: WrittenResponse, since: Instant, served: &ServedRequest) -> Self {
        let at = |time: Option<Instant>| time.unwrap() - since;
        let comments = written.pieces.iter().filter(|piece| piece.bytes.starts_with(b": "));
        Self {
            status: written.status.unwrap().as_u16(),
            began: at(written.began),
            ended: at(written.ended),
            messages: messages(&written, since).collect(),
            comments: comments.map(|piece| piece.at - since).collect(),
            text: written.text(),
            closes: written.closes,
            headers: written.headers,
            outcome: served.outcome,
            agent_took: served.agent_took,
        }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn is_stream(&self) -> bool {
        self.header("content-type") == "text/event-stream"
    }

    /// Returns the JSON of the body, or of the last message of the stream.
    fn json(&self) -> Value {
        match self.messages.last() {
            Some(last) => last.json.clone(),
            None => serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}")),
        }
    }

    fn result(&self) -> Value {
        let json = self.json();
        assert!(json.get("result").is_some(), "{json}");
        json["result"].clone()
    }

    /// Returns the status and the code of the error.
    fn refusal(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap_or_default())
    }

    /// Returns the texts of the result.
    fn words(&self) -> String {
        words(&self.result())
    }

    /// Returns the handle in the result.
    fn handle(&self) -> String {
        let result = self.result();
        result["structuredContent"]["taskId"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    }
}

/// Returns the texts of the result of a tool.
fn words(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap_or_else(|| panic!("no content: {result}"));
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

fn messages(written: &WrittenResponse, since: Instant) -> impl Iterator<Item = TestMessage> {
    let events = written.pieces.iter().flat_map(|piece| {
        let text = String::from_utf8(piece.bytes.to_vec()).unwrap();
        let data = |block: &str| block.strip_prefix("data: ").map(|json| serde_json::from_str(json).unwrap());
        let found: Vec<Value> = text.split("\n\n").filter_map(data).collect();
        found.into_iter().map(|json| TestMessage { at: piece.at - since, json }).collect::<Vec<_>>()
    });
    events.collect::<Vec<_>>().into_iter()
}

fn card(skills: &[&str]) -> Value {
    let skill = |id: &&str| json!({ "id": id, "name": id, "description": format!("Does {id}"), "tags": [] });
    json!({
        "name": "Bard",
        "description": "Sings",
        "version": "1.0.0",
        "supportedInterfaces": [
            { "url": "http://bard.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        ],
        "capabilities": { "streaming": true, "pushNotifications": false },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": skills.iter().map(skill).collect::<Vec<_>>(),
    })
}

/// Returns the event of a task in this state, with a text of the agent.
fn in_state(state: &str, text: &str) -> Value {
    let message =
        json!({ "messageId": format!("m-{text}"), "role": "ROLE_AGENT", "parts": [{ "text": text }] });
    let status = json!({ "state": format!("TASK_STATE_{state}"), "message": message });
    json!({ "task": { "id": RAW_TASK, "contextId": "raw-context-7", "status": status } })
}

fn working() -> Value {
    in_state("WORKING", "on it")
}

fn asking(question: &str) -> Value {
    in_state("INPUT_REQUIRED", question)
}

/// Returns the event of a completed task with this output.
fn completed(text: &str) -> Value {
    json!({ "task": {
        "id": RAW_TASK, "contextId": "raw-context-7", "status": { "state": "TASK_STATE_COMPLETED" },
        "artifacts": [{ "artifactId": "answer", "parts": [{ "text": text }] }],
    } })
}

/// Returns the event as one of the task with this id.
fn of_task(id: &str, mut event: Value) -> Value {
    event["task"]["id"] = json!(id);
    event
}

/// Returns a message of the agent that ends the call without a task.
fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_AGENT", "parts": [{ "text": text }] } })
}

/// Capabilities of a client that shows forms.
fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// Capabilities of a client that knows the tasks extension.
fn tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asserts that something happened at this time, as exactly as timers are.
fn assert_at(actual: Duration, expected: Duration) {
    let late = actual.saturating_sub(expected);
    assert!(actual >= expected && late < Duration::from_millis(20), "{actual:?}, not {expected:?}");
}

/// Lets this time pass; all that is ready runs before.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets all run that needs no time.
async fn settle() {
    pass(Duration::from_millis(1)).await;
}
