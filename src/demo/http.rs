//! HTTP: paths and methods, headers, the limit on bodies.

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
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::rpc::{CallOutcome, DemoError, RpcCall};
use super::{SharedAgent, rpc};

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
    let call = match rpc::read(&body) {
        Ok(call) => call,
        Err((id, refusal)) => return json(&rpc::error(&id, &refusal)),
    };
    // Without the header a client speaks 0.3 (A2A 1.0 §3.6.2), which this agent does not.
    if version.as_deref() != Some(b"1.0") {
        return json(&rpc::error(&call.id, &DemoError::WrongVersion));
    }
    perform(agent, call).await
}

async fn perform(agent: &SharedAgent, call: RpcCall) -> HttpReply {
    match rpc::perform(&agent.tasks, &call).await {
        Ok(CallOutcome::Result(result)) => json(&rpc::result(&call.id, result)),
        Ok(CallOutcome::Stream(first, events)) => {
            let mut reply = typed(StatusCode::OK, "text/event-stream", event_stream(call.id, first, events));
            reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            reply
        }
        Err(refusal) => json(&rpc::error(&call.id, &refusal)),
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
    Bytes::from(format!("data: {}\n\n", rpc::result(id, event)))
}
