//! The agent: A2A 1.0 over HTTP/1.1, and gRPC at the same port, with the same response for each
//! caller, at once.
//!
//! A plain one (`/plain`) and one by gRPC (`/remote` is its card) answer with a finished task, one for many tasks (`/many`) with another
//! one each time, a streaming one (`/flowing`) with [`EVENTS`] events and a pause before each, so that
//! no proxy gets two of them at once, and one that is slow (`/waiting`) with the first event of a task
//! that never ends. One more streaming one (`/stamped`) writes the time into each event. With certificates the port takes TLS too.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future as _;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mcp_a2a_gateway::a2a::grpc::{response_to_protobuf, write_frame};
use mcp_a2a_gateway::a2a::{Dialect, Operation};
use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;

use super::keys::server_config;
use super::mcp::{GRPC_SEND, text};
use super::options::AgentRole;

/// Number of events in a response of the streaming agent, the finished task included.
pub(crate) const EVENTS: u32 = 10;

/// Runs until the process ends.
pub(crate) fn run(role: &AgentRole) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tls = role.keys.as_deref().map(|keys| TlsAcceptor::from(server_config(keys, role.is_http2)));
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, role.port)).await.unwrap();
        let script: &Script = Box::leak(Box::new(Script::new(role)));
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    Some(tls) => {
                        // A broken connection ends; the peer knows.
                        let Ok(stream) = tls.accept(socket).await else { return };
                        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        serve(script, stream, is_http2).await;
                    }
                    None => {
                        let is_http2 = is_http2(&socket).await;
                        serve(script, socket, is_http2).await;
                    }
                }
            });
        }
    });
}

async fn serve<S>(script: &'static Script, stream: S, is_http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |request| script.answer(request));
    let stream = TokioIo::new(stream);
    match is_http2 {
        true => drop(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await),
        false => drop(http1::Builder::new().serve_connection(stream, answer).await),
    }
}

/// Returns true if a connection begins as one of HTTP/2: no method of this agent begins with `PRI`.
async fn is_http2(socket: &TcpStream) -> bool {
    let mut first = [0; 3];
    socket.peek(&mut first).await.is_ok() && first == *b"PRI"
}

/// The method of A2A 1.0 that asks for the state of a task.
const GET_TASK: &[u8] = b"\"GetTask\"";

struct Script {
    card: Bytes,
    many_card: Bytes,
    /// Number of tasks of `/many` and `/waiting` so far.
    made: AtomicU64,
    flowing_card: Bytes,
    remote_card: Bytes,
    waiting_card: Bytes,
    task: Bytes,
    /// The same by gRPC, in its frame.
    message: Bytes,
    stamped_card: Bytes,
    events: [Bytes; EVENTS as usize],
    /// The same, with room for the time.
    stamped_events: [Bytes; EVENTS as usize],
    /// Pause before each of them.
    apart: Duration,
    finished: Value,
}

impl Script {
    fn new(role: &AgentRole) -> Self {
        let (port, finished) = (role.port, finished(&text(role.text_bytes)));
        Self {
            card: card(port, "plain"),
            many_card: card(port, "many"),
            made: AtomicU64::new(0),
            flowing_card: card(port, "flowing"),
            remote_card: card(port, "remote"),
            waiting_card: card(port, if role.keys.is_some() { "waiting-tls" } else { "waiting" }),
            task: answer(&json!({ "task": finished })).into(),
            message: message(&finished),
            stamped_card: card(port, "stamped"),
            events: std::array::from_fn(|number| event(number, &finished, "")),
            stamped_events: std::array::from_fn(|number| event(number, &finished, &no_stamp())),
            apart: role.apart,
            finished,
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Either<Full<Bytes>, Either<Events, Unary>>>, hyper::Error> {
        let remote = request.uri().path().starts_with("/remote");
        let by_grpc = request.uri().path() == GRPC_SEND;
        let stamped = request.uri().path().starts_with("/stamped");
        let flowing = stamped || request.uri().path().starts_with("/flowing");
        let many = request.uri().path().starts_with("/many");
        let waiting = request.uri().path().starts_with("/waiting");
        let wants_card = request.method() == http::Method::GET;
        let asked = request.into_body().collect().await?;
        // Not put together for the others, which are measured.
        let asked = if waiting { asked.to_bytes() } else { Bytes::new() };
        let is_look = asked.windows(GET_TASK.len()).any(|some| some == GET_TASK);
        let whole = |text: &Bytes| Either::Left(Full::new(text.clone()));
        let (kind, body) = match (wants_card, flowing) {
            (true, _) if remote => ("application/json", whole(&self.remote_card)),
            (false, _) if by_grpc => (
                "application/grpc",
                Either::Right(Either::Right(Unary { message: Some(self.message.clone()) })),
            ),
            (true, _) if waiting => ("application/json", whole(&self.waiting_card)),
            (false, _) if is_look => ("application/json", whole(&begun_task_of(&asked))),
            (false, _) if waiting => ("text/event-stream", Either::Right(Either::Left(self.begun_task()))),
            (true, _) if many => ("application/json", whole(&self.many_card)),
            (false, _) if many => ("application/json", whole(&self.another_task())),
            (true, false) => ("application/json", whole(&self.card)),
            (true, true) if stamped => ("application/json", whole(&self.stamped_card)),
            (true, true) => ("application/json", whole(&self.flowing_card)),
            (false, false) => ("application/json", whole(&self.task)),
            (false, true) if stamped => {
                let events = Events::new(&self.stamped_events, self.apart);
                ("text/event-stream", Either::Right(Either::Left(Events { is_stamped: true, ..events })))
            }
            (false, true) => ("text/event-stream", Either::Right(Either::Left(self.all_events()))),
        };
        Ok(Response::builder().header(header::CONTENT_TYPE, kind).body(body).expect("a good response"))
    }
}

impl Script {
    fn another_task(&self) -> Bytes {
        let mut task = self.finished.clone();
        task["id"] = self.next_id();
        answer(&json!({ "task": task })).into()
    }

    /// Begins a task of its own, and nothing more happens.
    fn begun_task(&self) -> Events {
        let event = format!("data: {}\r\n\r\n", answer(&json!({ "task": begun(&self.next_id()) })));
        Events { is_endless: true, ..Events::new(&[event.into()], self.apart) }
    }

    fn all_events(&self) -> Events {
        Events::new(&self.events, self.apart)
    }

    fn next_id(&self) -> Value {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        json!(format!("0195f2a4-7c11-7f3e-9d55-{number:012x}"))
    }
}

/// Answers the request for the state of such a task, which a gateway sends when its stream is silent.
fn begun_task_of(asked: &[u8]) -> Bytes {
    let asked: Value = serde_json::from_slice(asked).expect("JSON");
    answer(&begun(&asked["params"]["id"])).into()
}

fn begun(id: &Value) -> Value {
    json!({"id": id, "contextId": CONTEXT, "status": {"state": "TASK_STATE_WORKING"}})
}

/// Events that are written one by one: the connection flushes whenever it has to wait.
struct Events {
    left: VecDeque<Bytes>,
    apart: Duration,
    pause: Pin<Box<Sleep>>,
    /// The stream stays open after its events.
    is_endless: bool,
    /// Each event has the time at which it is sent.
    is_stamped: bool,
}

impl Events {
    fn new(events: &[Bytes], apart: Duration) -> Self {
        Self {
            left: events.iter().cloned().collect(),
            apart,
            pause: Box::pin(sleep(apart)),
            is_endless: false,
            is_stamped: false,
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        waiting: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_endless && self.left.is_empty() {
            return Poll::Pending;
        }
        ready!(self.pause.as_mut().poll(waiting));
        let next = Instant::now() + self.apart;
        self.pause.as_mut().reset(next);
        let event = self.left.pop_front();
        Poll::Ready(event.map(|event| Ok(Frame::data(if self.is_stamped { stamp(&event) } else { event }))))
    }
}

/// Before the time in an event.
pub(crate) const STAMP_MARK: &str = "sent at @";
/// Number of digits of the time.
pub(crate) const STAMP_DIGITS: usize = 20;

/// The time by the clock of the machine, in nanoseconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_nanos()).expect("a clock before 2554")
}

/// Returns the room for the time in the text of an event.
fn no_stamp() -> String {
    format!(", {STAMP_MARK}{}", "0".repeat(STAMP_DIGITS))
}

/// Returns an event with the time in it, if it has room for that.
fn stamp(event: &Bytes) -> Bytes {
    let Some(at) = memmem::find(event, STAMP_MARK.as_bytes()) else { return event.clone() };
    let mut event = event.to_vec();
    let begin = at + STAMP_MARK.len();
    event[begin..begin + STAMP_DIGITS].copy_from_slice(format!("{:020}", now()).as_bytes());
    event.into()
}

/// One message, and then the status in trailers.
struct Unary {
    /// `None` once it is sent.
    message: Option<Bytes>,
}

impl Body for Unary {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let trailers = || HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
        Poll::Ready(match self.message.take() {
            Some(message) if !message.is_empty() => {
                // Only the trailers are left.
                self.message = Some(Bytes::new());
                Some(Ok(Frame::data(message)))
            }
            Some(_) => Some(Ok(Frame::trailers(trailers()))),
            None => None,
        })
    }
}

const STATUS: header::HeaderName = header::HeaderName::from_static("grpc-status");

fn message(finished: &Value) -> Bytes {
    let task = json!({ "task": finished }).to_string();
    let message = response_to_protobuf(Operation::Send, Dialect::V1, task.as_bytes()).unwrap();
    let mut frame = Vec::new();
    assert!(write_frame(&mut frame, &message));
    frame.into()
}

fn card(port: u16, name: &str) -> Bytes {
    let (url, binding) = match name {
        "remote" => (format!("127.0.0.1:{port}"), "GRPC"),
        "waiting-tls" => (format!("https://localhost:{port}/waiting"), "JSONRPC"),
        name => (format!("http://127.0.0.1:{port}/{name}"), "JSONRPC"),
    };
    let has_streams = ["flowing", "stamped", "waiting", "waiting-tls"].contains(&name);
    let card = json!({
        "name": name, "description": "Says the same to everyone.", "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}],
        "capabilities": {"streaming": has_streams},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "say", "name": "Say", "description": "Says something.", "tags": ["bench"]}],
    });
    card.to_string().into()
}

const TASK: &str = "0195f2a4-7c11-7f3e-9d55-3f0c8f6b2a10";
const CONTEXT: &str = "0195f2a4-7c11-7f3e-9d55-4b1d7e2c9f33";

/// Returns working, working …, and then the finished task. The text of an event ends with `more`.
fn event(number: usize, finished: &Value, more: &str) -> Bytes {
    let last = EVENTS as usize - 1;
    let result = if number == last {
        json!({"task": finished})
    } else {
        let message = json!({"messageId": format!("m-{number}"), "role": "ROLE_AGENT",
                             "parts": [{"text": format!("Asking weather station {number} of {last}{more}")}]});
        let status = json!({"state": "TASK_STATE_WORKING", "message": message,
                            "timestamp": "2026-11-20T23:28:35.481174Z"});
        json!({"statusUpdate": {"taskId": TASK, "contextId": CONTEXT, "status": status}})
    };
    format!("data: {}\r\n\r\n", answer(&result)).into()
}

fn finished(text: &str) -> Value {
    json!({
        "id": TASK, "contextId": CONTEXT,
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-20T23:28:35.481174Z"},
        "artifacts": [{"artifactId": "answer", "name": "answer", "parts": [{"text": text}]}],
        "history": [{"messageId": "m-2", "contextId": CONTEXT, "taskId": TASK, "role": "ROLE_USER",
                     "parts": [{"text": "What will the weather be like in Lisbon next weekend?"}]}],
    })
}

fn answer(result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string()
}
