//! Answers of the scripted agent: head, framing, and the steps of the body.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::signal::Signal;
use super::wire::Request;

/// One answer. Build it from a constructor, then add to it; steps are played in order.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) before: Vec<Signal>,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    pub(super) steps: Vec<Step>,
    pub(super) close: bool,
    pub(super) id: Option<Value>,
    line_end: &'static str,
    piece: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length,
    Chunked,
    UntilClose,
    /// The steps are everything that goes onto the wire.
    Raw,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Bytes(Vec<u8>),
    /// A JSON-RPC answer with this member (`result` or `error`), as the whole body.
    Envelope(&'static str, Value),
    /// The same as one SSE event, cut into pieces of this many bytes (0: in one).
    Event {
        name: Option<&'static str>,
        member: &'static str,
        value: Value,
        line_end: &'static str,
        piece: usize,
    },
    Wait(Signal),
    /// These bytes again and again, until the client leaves.
    Flood(Vec<u8>),
    /// Nothing more until the client leaves.
    Stall,
    /// The connection ends here, without the end of the body.
    Cut,
}

impl Reply {
    fn of(status: u16, content_type: &str, framing: Framing, steps: Vec<Step>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Self {
            before: Vec::new(),
            status,
            headers,
            framing,
            steps,
            close: false,
            id: None,
            line_end: "\n",
            piece: 0,
        }
    }

    /// A JSON-RPC result under the request's id.
    pub fn result(result: Value) -> Self {
        Self::of(200, "application/json", Framing::Length, vec![Step::Envelope("result", result)])
    }

    /// A JSON-RPC error under the request's id.
    pub fn error(code: i32, message: &str) -> Self {
        let error = json!({ "code": code, "message": message });
        Self::of(200, "application/json", Framing::Length, vec![Step::Envelope("error", error)])
    }

    /// This JSON, without an envelope.
    pub fn json(value: &Value) -> Self {
        Self::bytes_of("application/json", value.to_string().as_bytes())
    }

    pub fn bytes_of(content_type: &str, body: &[u8]) -> Self {
        Self::of(200, content_type, Framing::Length, vec![Step::Bytes(body.to_vec())])
    }

    /// An HTTP status with a page, as a proxy in between would send it.
    pub fn status(status: u16, page: &str) -> Self {
        Self::of(status, "text/html", Framing::Length, vec![Step::Bytes(page.as_bytes().to_vec())])
    }

    /// An SSE stream: add events and other steps.
    pub fn stream() -> Self {
        Self::of(200, "text/event-stream", Framing::Chunked, Vec::new())
    }

    /// An SSE stream of these results, then its clean end.
    pub fn events(results: impl IntoIterator<Item = Value>) -> Self {
        results.into_iter().fold(Self::stream(), Self::event)
    }

    /// Bytes instead of an HTTP response; the connection closes after them.
    pub fn raw(bytes: &[u8]) -> Self {
        Self::of(0, "", Framing::Raw, vec![Step::Bytes(bytes.to_vec())]).close()
    }

    /// Bytes instead of an HTTP response, again and again until the client leaves.
    pub fn flood(bytes: &[u8]) -> Self {
        Self::of(0, "", Framing::Raw, vec![Step::Flood(bytes.to_vec())])
    }

    /// Closes the connection without an answer.
    pub fn hang_up() -> Self {
        Self::raw(b"")
    }

    /// Never answers; the connection stays open until the client leaves.
    pub fn silence() -> Self {
        Self::of(0, "", Framing::Raw, vec![Step::Stall])
    }

    /// Waits for the signal before the first byte.
    pub fn after(mut self, signal: &Signal) -> Self {
        self.before.push(signal.clone());
        self
    }

    /// The same with another HTTP status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// One more header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn content_type(mut self, value: &str) -> Self {
        self.headers.retain(|(name, _)| name != "Content-Type");
        self.header("Content-Type", value)
    }

    /// Answers under this id instead of the request's.
    pub fn id(mut self, id: impl Into<Value>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// `Connection: close`, and closes.
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }

    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunked;
        self
    }

    /// No length and no chunks: the body ends with the connection.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self.close()
    }

    /// SSE lines of the following events end in CRLF, as Python agents write them.
    pub fn crlf(mut self) -> Self {
        self.line_end = "\r\n";
        self
    }

    /// The following events are written and flushed in pieces of so many bytes.
    pub fn in_pieces(mut self, bytes: usize) -> Self {
        self.piece = bytes;
        self
    }

    /// One SSE event: a JSON-RPC result under the request's id.
    pub fn event(self, result: Value) -> Self {
        self.sse(None, "result", result)
    }

    /// One SSE event: a JSON-RPC error under the request's id, named `error` as official SDKs do.
    pub fn error_event(self, code: i32, message: &str) -> Self {
        self.sse(Some("error"), "error", json!({ "code": code, "message": message }))
    }

    fn sse(self, name: Option<&'static str>, member: &'static str, value: Value) -> Self {
        let (line_end, piece) = (self.line_end, self.piece);
        self.step(Step::Event { name, member, value, line_end, piece })
    }

    /// One SSE event with this JSON as it is, as HTTP+JSON sends it.
    pub fn bare_event(self, value: &Value) -> Self {
        self.bytes(format!("data: {value}\n\n").as_bytes())
    }

    /// The same over several lines, as the official SDK of 0.3 for Python writes it.
    pub fn long_event(self, value: &Value) -> Self {
        let text = serde_json::to_string_pretty(value).expect("JSON");
        let lines: String = text.lines().map(|line| format!("data: {line}\r\n")).collect();
        self.bytes(format!("{lines}\r\n").as_bytes())
    }

    /// An SSE comment.
    pub fn comment(self, text: &str) -> Self {
        self.bytes(format!(": {text}\n\n").as_bytes())
    }

    /// Bytes of the body, as they are, in one write.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.step(Step::Bytes(bytes.to_vec()))
    }

    /// Bytes of the body, again and again until the client leaves.
    pub fn flooding(self, bytes: &[u8]) -> Self {
        self.step(Step::Flood(bytes.to_vec()))
    }

    /// Goes on when the signal is given; everything before has been sent.
    pub fn wait(self, signal: &Signal) -> Self {
        self.step(Step::Wait(signal.clone()))
    }

    /// Nothing more, but the connection stays open until the client leaves.
    pub fn stall(self) -> Self {
        self.step(Step::Stall)
    }

    /// The connection ends in the middle of the body.
    pub fn cut(self) -> Self {
        self.step(Step::Cut)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// A handler that gives these replies in order, and the last one again and again.
pub fn in_order(replies: impl IntoIterator<Item = Reply>) -> impl Fn(&Request) -> Reply + Send + Sync {
    let mut replies: Vec<Reply> = replies.into_iter().collect();
    replies.reverse();
    let left = Mutex::new(replies);
    move |_| {
        let mut left = left.lock().unwrap();
        if left.len() > 1 { left.pop() } else { left.last().cloned() }.expect("at least one reply")
    }
}
