//! An MCP client without an SDK: it sends exactly the request of the test, and shows exactly the
//! answer.
//!
//! Each request has a connection of its own; dropping its [`Answer`] closes it, as a client does
//! that leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::events::{Events, SseEvent};
use super::{PATIENCE, in_time};

/// The newest version of the modern era.
pub const MODERN: &str = "2026-07-28";

/// Cheap to clone; the builder methods return a changed copy.
#[derive(Clone)]
pub struct McpClient {
    authority: String,
    path: String,
    headers: Vec<(String, String)>,
    capabilities: Value,
    name: String,
    tls: Option<Arc<rustls::ClientConfig>>,
    /// Speaks HTTP/2 without TLS.
    has_prior_knowledge: bool,
    /// The authority of its requests over HTTP/2, if it is not that of its connection.
    other_authority: Option<String>,
    next_id: Arc<AtomicU64>,
}

/// An answer that may still have its body on the way.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    events: Events,
    connection: AbortHandle,
}

/// One JSON-RPC answer and what came before it on its stream.
#[derive(Clone, Debug)]
pub struct Finished {
    pub notifications: Vec<Value>,
    pub response: Value,
}

impl McpClient {
    /// For a URL like `http://127.0.0.1:1234/mcp`. Takes `https` too, once [`Self::tls`] says how.
    pub fn new(url: &str) -> Self {
        let (_, rest) = url.split_once("://").expect("an absolute URL");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        Self {
            authority: authority.to_owned(),
            path: format!("/{path}"),
            headers: Vec::new(),
            capabilities: json!({}),
            name: "test-client".to_owned(),
            tls: None,
            has_prior_knowledge: false,
            other_authority: None,
            next_id: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same server, another path.
    pub fn at(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// Makes a call again by itself when the result says so, and says that in its URL.
    pub fn with_rounds(&self) -> Self {
        self.at("/mcp?rounds=on")
    }

    /// One more header line with every request.
    pub fn header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    pub fn bearer(&self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// The capabilities that the client declares.
    pub fn capabilities(&self, capabilities: Value) -> Self {
        Self { capabilities, ..self.clone() }
    }

    /// The client's name of itself.
    pub fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Speaks TLS; HTTP/2 if both sides agree on it (see [`super::certs::client_config`]).
    pub fn tls(&self, config: rustls::ClientConfig) -> Self {
        Self { tls: Some(Arc::new(config)), ..self.clone() }
    }

    /// Speaks HTTP/2 with prior knowledge, without TLS.
    pub fn http2(&self) -> Self {
        Self { has_prior_knowledge: true, ..self.clone() }
    }

    /// Names another authority in its requests over HTTP/2 than it connects to.
    pub fn for_authority(&self, authority: &str) -> Self {
        Self { other_authority: Some(authority.to_owned()), ..self.clone() }
    }

    pub(super) fn declared(&self) -> &Value {
        &self.capabilities
    }

    /// A fresh JSON-RPC id.
    pub fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A JSON-RPC request with a fresh id.
    pub fn request(&self, method: &str, params: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id(), "method": method, "params": params })
    }

    /// Posts a body with the headers that every MCP client sends, then `headers`.
    pub async fn post(&self, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let mut all =
            vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        all.retain(|(name, _)| !headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
        all.extend_from_slice(headers);
        self.send("POST", &all, body.to_string().into_bytes()).await
    }

    /// A request of the modern era, with its `_meta` and its mirror headers.
    pub async fn modern(&self, method: &str, params: Value) -> Answer {
        let name = ["name", "uri", "taskId"].iter().find_map(|member| params[member].as_str());
        let mut headers = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        let mirrored = name.map(mirror);
        let has_name =
            ["tools/call", "prompts/get", "resources/read", "tasks/get", "tasks/update", "tasks/cancel"];
        if let (Some(name), true) = (&mirrored, has_name.contains(&method)) {
            headers.push(("Mcp-Name", name));
        }
        self.post(&self.request(method, &self.with_meta(params.clone())), &headers).await
    }

    /// These params with the `_meta` of the modern era; members that are there already stay.
    pub fn with_meta(&self, mut params: Value) -> Value {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": { "name": self.name, "version": "1" },
        });
        if let Some(own) = params["_meta"].as_object() {
            meta.as_object_mut().unwrap().extend(own.clone());
        }
        params["_meta"] = meta;
        params
    }

    pub async fn get(&self, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", headers, Vec::new()).await
    }

    pub async fn delete(&self, headers: &[(&str, &str)]) -> Answer {
        self.send("DELETE", headers, Vec::new()).await
    }

    /// Sends any request; fails the test unless an answer begins in time.
    pub async fn send(&self, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let sent = self.try_send(method, headers, body);
        in_time(&format!("an answer to {method} {}", self.path), sent).await.expect("an HTTP answer")
    }

    /// Sends any request.
    ///
    /// # Errors
    ///
    /// What went wrong with the connection, the TLS handshake or the response's head.
    pub async fn try_send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let socket = TcpStream::connect(&self.authority).await?;
        socket.set_nodelay(true)?;
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = own.chain(headers.iter().copied()).collect();
        let Some(tls) = &self.tls else {
            if self.has_prior_knowledge {
                return self.over_http2(socket, method, &headers, body).await;
            }
            return self.over_http1(socket, method, &headers, body).await;
        };
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        let socket = TlsConnector::from(Arc::clone(tls)).connect(name, socket).await?;
        if socket.get_ref().1.alpn_protocol() == Some(b"h2") {
            return self.over_http2(socket, method, &headers, body).await;
        }
        self.over_http1(socket, method, &headers, body).await
    }

    async fn over_http1(
        &self,
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let connection = tokio::spawn(connection).abort_handle();
        let mut request = build(method, &self.path, headers, body)?;
        request.headers_mut().insert("host", self.authority.parse()?);
        Ok(Answer::new(sender.send_request(request).await?, connection))
    }

    async fn over_http2(
        &self,
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
        let (mut sender, connection) = handshake.await?;
        let connection = tokio::spawn(connection).abort_handle();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let authority = self.other_authority.as_ref().unwrap_or(&self.authority);
        let url = format!("{scheme}://{authority}{}", self.path);
        Ok(Answer::new(sender.send_request(build(method, &url, headers, body)?).await?, connection))
    }
}

fn build(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<hyper::Request<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let mut request = hyper::Request::builder().method(method).uri(url).body(Full::new(body.into()))?;
    for (name, value) in headers {
        // Appended, not set: some tests send a header twice.
        request.headers_mut().append(name.parse::<HeaderName>()?, HeaderValue::from_bytes(value.as_bytes())?);
    }
    Ok(request)
}

/// The value of `Mcp-Name` for this name: itself, or its base64 form where a header cannot carry
/// it.
pub fn mirror(name: &str) -> String {
    use base64::Engine as _;
    let is_plain = name.bytes().all(|byte| (0x20..0x7F).contains(&byte)) && name.trim() == name;
    if is_plain && !name.starts_with("=?base64?") {
        return name.to_owned();
    }
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(name))
}

impl Answer {
    fn new(response: hyper::Response<Incoming>, connection: AbortHandle) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            events: Events::default(),
            connection,
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a text header"))
    }

    pub fn header_values(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().expect("a text header")).collect()
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|value| value.starts_with("text/event-stream"))
    }

    /// The next event that is not a comment; `None` at the end of the stream.
    pub async fn next_event(&mut self) -> Option<SseEvent> {
        loop {
            match self.next_piece().await {
                Some(piece) if piece.comment.is_some() => {}
                piece => return piece,
            }
        }
    }

    /// The next event or comment; `None` at the end of the stream.
    pub async fn next_piece(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.events.next() {
                return Some(event);
            }
            let frame = in_time("the next event", self.body.frame()).await?.expect("the stream goes on");
            if let Ok(data) = frame.into_data() {
                self.events.push(&data);
            }
        }
    }

    /// The next frame of the body: data or trailers.
    pub async fn next_frame(&mut self) -> Option<Result<hyper::body::Frame<Bytes>, hyper::Error>> {
        in_time("the next frame", self.body.frame()).await
    }

    /// The next JSON-RPC message of the stream.
    pub async fn next_message(&mut self) -> Value {
        loop {
            let event = self.next_event().await.expect("another message before the end of the stream");
            if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
                return event.json();
            }
        }
    }

    /// The whole body.
    pub async fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(frame) = in_time("the body", self.body.frame()).await {
            if let Ok(data) = frame.expect("the body goes on").into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        bytes
    }

    pub async fn text(self) -> String {
        String::from_utf8(self.bytes().await).expect("UTF-8")
    }

    /// The JSON-RPC answer, as JSON or as an event, and the notifications before it.
    pub async fn finish(mut self) -> Finished {
        if !self.is_stream() {
            let (status, text) = (self.status, self.text().await);
            let response =
                serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON ({status}): {text}"));
            return Finished { notifications: Vec::new(), response };
        }
        let mut notifications = Vec::new();
        loop {
            let message = self.next_message().await;
            if message.get("method").is_none() {
                return Finished { notifications, response: message };
            }
            notifications.push(message);
        }
    }

    /// The JSON-RPC answer, as JSON or as an event.
    pub async fn json(self) -> Value {
        self.finish().await.response
    }

    /// The result; fails on an error.
    pub async fn result(self) -> Value {
        let response = self.json().await;
        assert!(response.get("result").is_some(), "an error where a result was due: {response}");
        response["result"].clone()
    }

    /// The error's code; fails on a result.
    pub async fn error_code(self) -> i64 {
        let response = self.json().await;
        response["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("a result where an error was due: {response}"))
    }

    /// Waits until the stream ends, cleanly or not, and ignores its events.
    pub async fn until_cut(mut self) {
        while let Some(Ok(_)) = self.body.frame().await {}
    }

    /// Waits until the server ends the stream, and ignores its events.
    pub async fn until_end(mut self) {
        let drained = async { while self.next_piece().await.is_some() {} };
        tokio::time::timeout(PATIENCE, drained).await.expect("the stream ends");
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
