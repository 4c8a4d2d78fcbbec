//! HTTP and JSON-RPC 2.0 of the demonstration agent: paths and methods, the limit on bodies, errors with A2A
//! 1.0 `ErrorInfo`; and the methods of A2A 1.0 that the agent has, each of which returns one response
//! or one stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::skills::{DemoSkill, IncomingMessage};
use super::task::{DemoTask, Tasks};
use super::{SharedAgent, skills};

/// A request with a valid envelope.
#[derive(Debug)]
pub(super) struct RpcCall {
    /// A string, a number or null; returned as it came.
    pub(super) id: Value,
    pub(super) method: String,
    /// Always an object.
    pub(super) params: Value,
}

/// Reason for which a call fails (A2A 1.0 §5.4 and JSON-RPC 2.0 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DemoError {
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
pub(super) fn read_call(body: &[u8]) -> Result<RpcCall, (Value, DemoError)> {
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
pub(super) fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Encodes an error response.
pub(super) fn error(id: &Value, refusal: &DemoError) -> Value {
    let (code, message, _) = refusal.facts();
    let mut error = json!({ "code": code, "message": message });
    if let (Some(details), Some(error)) = (refusal.details(), error.as_object_mut()) {
        error.insert("data".into(), details);
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Outcome of a call.
pub(super) enum CallOutcome {
    /// One result.
    Result(Value),
    /// Results, one per event: the first one, and a receiver of the others.
    Stream(Value, Option<mpsc::Receiver<Value>>),
}

/// Performs a call.
pub(super) async fn perform(tasks: &Tasks, call: &RpcCall) -> Result<CallOutcome, DemoError> {
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
pub(super) async fn answer(
    agent: Arc<SharedAgent>,
    request: Request<Incoming>,
) -> Result<HttpReply, Infallible> {
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
pub(super) enum ResponseStream {
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

#[cfg(test)]
mod tests {
    use super::*;

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
