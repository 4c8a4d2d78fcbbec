//! An embedded A2A 1.0 agent, so that the gateway can be tried without one.
//!
//! Real: an HTTP server on its own socket, tasks that outlive their client, timers that take their
//! time. It is a peer, not a part of the gateway, and shares no code with it, so that a mistake in
//! the gateway's A2A cannot hide here. Reads and writes A2A 1.0 over JSON-RPC: each method returns one
//! response or one stream, errors have `ErrorInfo`, bodies a limit. Skills: `echo`, `countdown`,
//! `ask`.
//!
//! Out of scope: authentication, push notifications, `ListTasks`, TLS.

mod skills;
mod task;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use skills::{DemoSkill, IncomingMessage};
use task::{DemoTask, Tasks};

/// Connections served at once; others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 256;
/// Longest wait for a request's headers, which is also how long an idle connection is kept.
const HEADER_PATIENCE: Duration = Duration::from_secs(60);
/// Pause after an accept that failed for want of file descriptors: trying at once would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The demonstration agent, bound and ready to run.
#[derive(Debug)]
pub(crate) struct DemoAgent {
    listener: TcpListener,
    address: SocketAddr,
}

impl DemoAgent {
    /// Binds `address`; port 0 takes any free port. Clients can connect from now on and are served
    /// by [`Self::run`].
    ///
    /// # Errors
    ///
    /// Any error of the system about binding.
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the URL of the agent's card.
    pub(crate) fn card_url(&self) -> String {
        format!("{}.well-known/agent-card.json", skills::base_url(self.address))
    }

    /// Serves until dropped; dropping closes every connection. Tasks that are running end on their own.
    pub(crate) async fn run(self) {
        let agent =
            Arc::new(SharedAgent { card: skills::DemoCard::new(self.address), tasks: Tasks::default() });
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    let agent = Arc::clone(&agent);
                    connections.spawn(async move {
                        serve(socket, agent).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "demo agent failed to accept a connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// State that all connections share.
struct SharedAgent {
    card: skills::DemoCard,
    tasks: Tasks,
}

async fn serve(socket: TcpStream, agent: Arc<SharedAgent>) {
    // The chunks of a stream are small and the client shows them as they arrive.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "demo agent failed to set TCP_NODELAY");
    }
    let service = service_fn(move |request| answer(Arc::clone(&agent), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "demo agent lost a connection");
    }
}

/// A request with a valid envelope.
#[derive(Debug)]
struct RpcCall {
    /// A string, a number or null; returned as it came.
    id: Value,
    method: String,
    /// Always an object.
    params: Value,
}

/// Reason for which a call fails (A2A 1.0 §5.4 and JSON-RPC 2.0 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
enum DemoError {
    NotJson,
    NotARequest,
    NoSuchMethod,
    /// The field in question and its defect.
    BadParams(&'static str, String),
    NoSuchTask,
    NotCancelable,
    NoPush,
    Unsupported(&'static str),
    NoExtendedCard,
    WrongVersion,
}

impl DemoError {
    /// Returns code, text, and the reason for `ErrorInfo` where A2A defines one.
    fn facts(&self) -> (i32, String, Option<&'static str>) {
        match self {
            Self::NotJson => (-32700, "Invalid JSON payload".into(), None),
            Self::NotARequest => (-32600, "Request payload validation error".into(), None),
            Self::NoSuchMethod => (-32601, "Method not found".into(), None),
            Self::BadParams(field, problem) => {
                (-32602, format!("Invalid parameters: {field}: {problem}"), None)
            }
            Self::NoSuchTask => (-32001, "Task not found".into(), Some("TASK_NOT_FOUND")),
            Self::NotCancelable => (-32002, "Task cannot be canceled".into(), Some("TASK_NOT_CANCELABLE")),
            Self::NoPush => {
                let text = "Push Notification is not supported".into();
                (-32003, text, Some("PUSH_NOTIFICATION_NOT_SUPPORTED"))
            }
            Self::Unsupported(what) => (-32004, (*what).into(), Some("UNSUPPORTED_OPERATION")),
            Self::NoExtendedCard => {
                let text = "Extended Agent Card is not configured".into();
                (-32007, text, Some("EXTENDED_AGENT_CARD_NOT_CONFIGURED"))
            }
            Self::WrongVersion => {
                let text = "A2A-Version must be 1.0".into();
                (-32009, text, Some("VERSION_NOT_SUPPORTED"))
            }
        }
    }

    fn details(&self) -> Option<Value> {
        if let Self::BadParams(field, problem) = self {
            return Some(json!([{
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": problem }],
            }]));
        }
        let (_, _, reason) = self.facts();
        Some(json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason?,
            "domain": "a2a-protocol.org",
            "metadata": {},
        }]))
    }
}

/// Reads the envelope; an error comes with the id of its response.
fn read_call(body: &[u8]) -> Result<RpcCall, (Value, DemoError)> {
    let whole: Value = serde_json::from_slice(body).map_err(|_| (Value::Null, DemoError::NotJson))?;
    let id = whole.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
    let method = whole.get("method").and_then(Value::as_str);
    let version = whole.get("jsonrpc").and_then(Value::as_str);
    let (Some(method), Some("2.0")) = (method, version) else { return Err((id, DemoError::NotARequest)) };
    let params = match whole.get("params") {
        None => json!({}),
        Some(params) if params.is_object() => params.clone(),
        Some(_) => return Err((id, DemoError::BadParams("params", "must be an object".into()))),
    };
    Ok(RpcCall { id, method: method.to_owned(), params })
}

/// Encodes a successful response.
fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Encodes an error response.
fn error(id: &Value, refusal: &DemoError) -> Value {
    let (code, message, _) = refusal.facts();
    let mut error = json!({ "code": code, "message": message });
    if let (Some(details), Some(error)) = (refusal.details(), error.as_object_mut()) {
        error.insert("data".into(), details);
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Outcome of a call.
enum CallOutcome {
    /// One result.
    Result(Value),
    /// Results, one per event: the first one, and a receiver of the others.
    Stream(Value, Option<mpsc::Receiver<Value>>),
}

/// Performs a call.
async fn perform(tasks: &Tasks, call: &RpcCall) -> Result<CallOutcome, DemoError> {
    match call.method.as_str() {
        "SendMessage" => send(tasks, skills::read_message(&call.params)?).await,
        "SendStreamingMessage" => stream(tasks, &skills::read_message(&call.params)?),
        "GetTask" => {
            let history = skills::history_length(Some(&call.params))?;
            Ok(CallOutcome::Result(named(tasks, call)?.snapshot(history)))
        }
        "CancelTask" => Ok(CallOutcome::Result(named(tasks, call)?.cancel()?)),
        "SubscribeToTask" => {
            let (snapshot, events) = named(tasks, call)?.resubscribe()?;
            Ok(CallOutcome::Stream(json!({ "task": snapshot }), Some(events)))
        }
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => Err(DemoError::NoPush),
        "GetExtendedAgentCard" => Err(DemoError::NoExtendedCard),
        _ => Err(DemoError::NoSuchMethod),
    }
}

async fn send(tasks: &Tasks, incoming: IncomingMessage) -> Result<CallOutcome, DemoError> {
    let Some(turn) = turn(tasks, &incoming)? else {
        return Ok(CallOutcome::Result(json!({ "message": skills::echo(&incoming) })));
    };
    let (_, mut events) = turn.task.watch();
    turn.go(&incoming.text);
    if !incoming.return_immediately {
        while events.recv().await.is_some() {}
    }
    Ok(CallOutcome::Result(json!({ "task": turn.task.snapshot(incoming.history) })))
}

fn stream(tasks: &Tasks, incoming: &IncomingMessage) -> Result<CallOutcome, DemoError> {
    let Some(turn) = turn(tasks, incoming)? else {
        return Ok(CallOutcome::Stream(json!({ "message": skills::echo(incoming) }), None));
    };
    let (snapshot, events) = turn.task.watch();
    turn.go(&incoming.text);
    Ok(CallOutcome::Stream(json!({ "task": snapshot }), Some(events)))
}

/// One message to a task: its first, or the answer to its question.
struct TaskTurn {
    task: Arc<DemoTask>,
    is_first: bool,
}

impl TaskTurn {
    /// Starts the work; watch the task before, or its first events are missed.
    fn go(&self, text: &str) {
        if self.is_first {
            skills::begin(Arc::clone(&self.task), text);
        } else {
            skills::resume(&self.task, text);
        }
    }
}

/// Returns the task that this message begins or continues; `None` if the response is a bare
/// message.
fn turn(tasks: &Tasks, incoming: &IncomingMessage) -> Result<Option<TaskTurn>, DemoError> {
    if let Some(id) = &incoming.task {
        let task = tasks.find(id)?;
        if incoming.context.as_ref().is_some_and(|context| *context != task.context) {
            let problem = "is not the context of this task".into();
            return Err(DemoError::BadParams("message.context_id", problem));
        }
        task.resume(&incoming.message)?;
        return Ok(Some(TaskTurn { task, is_first: false }));
    }
    match incoming.skill {
        DemoSkill::Echo => Ok(None),
        DemoSkill::Countdown | DemoSkill::Ask => {
            let task = tasks.begin(incoming.skill, incoming.context.clone(), &incoming.message);
            Ok(Some(TaskTurn { task, is_first: true }))
        }
    }
}

fn named(tasks: &Tasks, call: &RpcCall) -> Result<Arc<DemoTask>, DemoError> {
    let id = skills::message_id(&call.params, "id", "id")?;
    tasks.find(&id.ok_or_else(|| DemoError::BadParams("id", "Field is required.".into()))?)
}

/// Largest request body, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// Longest wait for a request body.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
const VERSION: HeaderName = HeaderName::from_static("a2a-version");

type HttpReply = Response<ResponseStream>;

/// Answers one HTTP request.
async fn answer(agent: Arc<SharedAgent>, request: Request<Incoming>) -> Result<HttpReply, Infallible> {
    let reply = match (request.uri().path(), request.method()) {
        ("/.well-known/agent-card.json", &Method::GET | &Method::HEAD) => card(&agent, &request),
        ("/.well-known/agent-card.json", _) => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD"),
        ("/", &Method::POST) => call(&agent, request).await,
        ("/", _) => refuse(StatusCode::METHOD_NOT_ALLOWED, "POST"),
        _ => status(StatusCode::NOT_FOUND),
    };
    Ok(reply)
}

fn card(agent: &SharedAgent, request: &Request<Incoming>) -> HttpReply {
    let known =
        request.headers().get(IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|tag| tag.trim() == agent.card.etag);
    let mut reply = if is_known {
        status(StatusCode::NOT_MODIFIED)
    } else {
        typed(StatusCode::OK, "application/json", ResponseStream::Whole(Some(agent.card.body.clone())))
    };
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
    if let Ok(etag) = HeaderValue::from_str(&agent.card.etag) {
        reply.headers_mut().insert(ETAG, etag);
    }
    reply
}

async fn call(agent: &SharedAgent, request: Request<Incoming>) -> HttpReply {
    let version = request.headers().get(VERSION).map(|version| version.as_bytes().trim_ascii().to_vec());
    let body = match timeout(BODY_PATIENCE, Limited::new(request.into_body(), MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return status(StatusCode::PAYLOAD_TOO_LARGE);
        }
        Ok(Err(_)) => return status(StatusCode::BAD_REQUEST),
        Err(_) => return status(StatusCode::REQUEST_TIMEOUT),
    };
    let call = match read_call(&body) {
        Ok(call) => call,
        Err((id, refusal)) => return json(&error(&id, &refusal)),
    };
    // Without the header a client speaks 0.3 (A2A 1.0 §3.6.2), which this agent does not.
    if version.as_deref() != Some(b"1.0") {
        return json(&error(&call.id, &DemoError::WrongVersion));
    }
    respond(agent, call).await
}

async fn respond(agent: &SharedAgent, call: RpcCall) -> HttpReply {
    match perform(&agent.tasks, &call).await {
        Ok(CallOutcome::Result(value)) => json(&result(&call.id, value)),
        Ok(CallOutcome::Stream(first, events)) => {
            let mut reply = typed(StatusCode::OK, "text/event-stream", event_stream(call.id, first, events));
            reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            reply
        }
        Err(refusal) => json(&error(&call.id, &refusal)),
    }
}

fn json(value: &Value) -> HttpReply {
    typed(StatusCode::OK, "application/json", ResponseStream::Whole(Some(Bytes::from(value.to_string()))))
}

fn typed(status: StatusCode, content_type: &'static str, body: ResponseStream) -> HttpReply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

fn status(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(ResponseStream::Whole(None));
    *reply.status_mut() = status;
    reply
}

fn refuse(code: StatusCode, allowed: &'static str) -> HttpReply {
    let mut reply = status(code);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// Silence after which a comment is sent, so that no proxy takes the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Frames that wait for a slow reader.
const QUEUE: usize = 16;

/// The body of a response.
enum ResponseStream {
    /// Known in full.
    Whole(Option<Bytes>),
    /// Written as it comes.
    Flowing(mpsc::Receiver<Bytes>),
}

impl Body for ResponseStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Flowing(frames) => {
                frames.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    /// A complete body gets a `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Flowing(_) => SizeHint::default(),
        }
    }
}

/// Returns an event stream: `first`, then each of `events`, as results of call `id`.
fn event_stream(id: Value, first: Value, events: Option<mpsc::Receiver<Value>>) -> ResponseStream {
    let (sender, frames) = mpsc::channel(QUEUE);
    tokio::spawn(write(sender, id, first, events));
    ResponseStream::Flowing(frames)
}

/// Ends when the events do, or when the client is gone. The task is not affected.
async fn write(sender: mpsc::Sender<Bytes>, id: Value, first: Value, events: Option<mpsc::Receiver<Value>>) {
    let mut next = sender.send(frame(&id, first)).await;
    let Some(mut events) = events else { return };
    while next.is_ok() {
        let bytes = match timeout(HEARTBEAT, events.recv()).await {
            Ok(Some(event)) => frame(&id, event),
            Ok(None) => return,
            Err(_) => Bytes::from_static(b": still here\n\n"),
        };
        next = sender.send(bytes).await;
    }
}

fn frame(id: &Value, event: Value) -> Bytes {
    Bytes::from(format!("data: {}\n\n", result(id, event)))
}

/// The agent over a real socket, as a client sees it.
#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    async fn agent() -> SocketAddr {
        let agent = DemoAgent::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = agent.address;
        tokio::spawn(agent.run());
        address
    }

    /// Returns the whole response to one request, as text.
    async fn exchange(address: SocketAddr, head: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let request =
            format!("{head}\r\nHost: demo\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        let read = timeout(Duration::from_secs(10), socket.read_to_string(&mut reply)).await;
        read.expect("an answer in time").unwrap();
        reply
    }

    async fn rpc(address: SocketAddr, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    async fn events(address: SocketAddr, method: &str, params: Value) -> Vec<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": "s", "method": method, "params": params }).to_string();
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
        assert!(reply.contains("content-type: text/event-stream"), "{reply}");
        let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].clone()).collect()
    }

    fn say(text: &str) -> Value {
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
    }

    #[tokio::test]
    async fn the_card_is_served_once_and_then_confirmed() {
        let address = agent().await;
        let reply = exchange(address, "GET /.well-known/agent-card.json HTTP/1.1", "").await;
        let card: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("http://{address}/"));
        let etag = reply.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let again = format!("GET /.well-known/agent-card.json HTTP/1.1\r\nIf-None-Match: {etag}");
        assert!(exchange(address, &again, "").await.starts_with("HTTP/1.1 304"));
    }

    #[tokio::test]
    async fn echo_answers_with_a_message() {
        let answer = rpc(agent().await, "SendMessage", say("echo hello")).await;
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["message"]["parts"], json!([{ "text": "hello" }]));
        let streamed = events(agent().await, "SendStreamingMessage", say("hello")).await;
        assert_eq!(streamed.len(), 1);
        assert_eq!(streamed[0]["message"]["role"], "ROLE_AGENT");
    }

    #[tokio::test]
    async fn countdown_streams_a_task_to_its_end() {
        let address = agent().await;
        let events = events(address, "SendStreamingMessage", say("countdown 1")).await;
        let id = &events[0]["task"]["id"];
        assert_eq!(events[1]["statusUpdate"]["status"]["message"]["parts"][0]["text"], "1 s left");
        assert_eq!(events[2]["artifactUpdate"]["append"], Value::Null);
        assert_eq!(events[3]["artifactUpdate"]["lastChunk"], true);
        assert_eq!(events[4]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(events.len(), 5);
        let task = rpc(address, "GetTask", json!({ "id": id, "historyLength": 0 })).await;
        assert_eq!(task["result"]["artifacts"][0]["parts"][0]["text"], "1 liftoff");
        assert_eq!(task["result"]["history"], Value::Null);
    }

    #[tokio::test]
    async fn a_task_goes_on_when_its_client_leaves() {
        let address = agent().await;
        let mut params = say("countdown 1");
        params["configuration"] = json!({ "returnImmediately": true });
        let task = rpc(address, "SendMessage", params).await["result"]["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
        let events = events(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
        assert_eq!(events[0]["task"]["id"], task["id"]);
        assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        let refused = rpc(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
        assert_eq!(refused["error"]["code"], -32004);
    }

    #[tokio::test]
    async fn ask_waits_for_its_answer() {
        let address = agent().await;
        let asked = rpc(address, "SendMessage", say("ask about lunch")).await["result"]["task"].clone();
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        let mut params = say("soup");
        params["message"]["taskId"] = asked["id"].clone();
        params["message"]["contextId"] = json!("another");
        let wrong = rpc(address, "SendMessage", params.clone()).await;
        assert_eq!(wrong["error"]["code"], -32602);
        params["message"]["contextId"] = asked["contextId"].clone();
        let done = rpc(address, "SendMessage", params.clone()).await["result"]["task"].clone();
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(done["artifacts"][0]["parts"][0]["text"], "You said: soup");
        assert_eq!(rpc(address, "SendMessage", params).await["error"]["code"], -32004);
    }

    #[tokio::test]
    async fn cancel_ends_a_task_at_once() {
        let address = agent().await;
        let mut params = say("countdown 60");
        params["configuration"] = json!({ "returnImmediately": true });
        let id = rpc(address, "SendMessage", params).await["result"]["task"]["id"].clone();
        let canceled = rpc(address, "CancelTask", json!({ "id": id })).await;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(rpc(address, "CancelTask", json!({ "id": id })).await["error"]["code"], -32002);
    }

    #[tokio::test]
    async fn unsupported_methods_have_a_code() {
        let address = agent().await;
        for (method, params, code) in [
            ("message/send", json!({}), -32601),
            ("ListTasks", json!({}), -32601),
            ("GetTask", json!({}), -32602),
            ("GetTask", json!({ "id": "nobody" }), -32001),
            ("SendStreamingMessage", json!({}), -32602),
            ("CreateTaskPushNotificationConfig", json!({}), -32003),
            ("GetExtendedAgentCard", json!({}), -32007),
        ] {
            assert_eq!(rpc(address, method, params).await["error"]["code"], code, "{method}");
        }
        for version in ["0.3", "2.0", ""] {
            let head = format!("POST / HTTP/1.1\r\nA2A-Version: {version}");
            let reply = exchange(address, &head, r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"}"#).await;
            assert!(reply.contains("-32009"), "{reply}");
        }
        for (head, status) in [
            ("GET / HTTP/1.1", "405"),
            ("POST /.well-known/agent-card.json HTTP/1.1", "405"),
            ("GET /nowhere HTTP/1.1", "404"),
        ] {
            let reply = exchange(address, head, "").await;
            assert_eq!(reply.split(' ').nth(1).unwrap(), status, "{head}");
        }
        let huge = "x".repeat(1024 * 1024 + 1);
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &huge).await;
        assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    }

    #[test]
    fn each_broken_envelope_has_its_code_and_keeps_its_id() {
        for (body, id, code) in [
            ("{", Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":7}"#, json!(7), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"x"}"#, json!("a"), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","method":"x","params":[1]}"#, json!("a"), -32602),
            (r#"{"jsonrpc":"2.0","id":{"a":1},"method":3}"#, Value::Null, -32600),
        ] {
            let (read_id, refusal) = read_call(body.as_bytes()).unwrap_err();
            let answer = error(&read_id, &refusal);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{body}");
        }
    }

    #[test]
    fn an_a2a_error_names_its_reason() {
        let answer = error(&json!(1), &DemoError::WrongVersion);
        assert_eq!(answer["error"]["code"], -32009);
        assert_eq!(answer["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
        assert_eq!(answer["error"]["data"][0]["domain"], "a2a-protocol.org");
    }
}
