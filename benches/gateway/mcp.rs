//! The clients' requests, as bytes, and the messages before the first call.

use std::time::{Duration, Instant};

use mcp_a2a_gateway::a2a::grpc::{request_to_protobuf, write_frame};
use mcp_a2a_gateway::a2a::{Dialect, Operation};
use serde_json::{Value, json};

use super::connection::Connection;

/// The path of the gateway's MCP server.
pub(crate) const FACE: &str = "/mcp";
/// The beginning of the text of the message.
const TEXT: &str = "What will the weather be like in Lisbon next weekend? Please say whether to bring an umbrella, \
                    and what to wear in the evening. We arrive on Friday at noon, and leave on Sunday night. ";
const PATIENCE: Duration = Duration::from_secs(20);

/// A text of so many bytes.
pub(crate) fn text(bytes: usize) -> String {
    TEXT.chars().cycle().take(bytes).collect()
}

/// Waits until the tool is listed, opens a session, and returns the request that calls the tool in
/// it.
pub(crate) async fn call_in_session(port: u16, tool: &str, text: &str, with_progress: bool) -> Vec<u8> {
    post(FACE, Some(&session_with(port, tool).await), &call(tool, text, with_progress))
}

/// Waits until the tool is listed, and returns the request of a client of 2026-07-28 that calls it.
pub(crate) async fn modern_call(port: u16, tool: &str, text: &str) -> Vec<u8> {
    session_with(port, tool).await;
    let mut call = call(tool, text, false);
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
    });
    let headers =
        format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n");
    with_headers(&post(FACE, None, &call), &headers)
}

/// Opens a session and returns a request in it that the gateway answers alone.
pub(crate) async fn ping(port: u16, tool: &str) -> Vec<u8> {
    post(FACE, Some(&session_with(port, tool).await), &request("ping", &json!({})))
}

/// Opens a session and waits until the tool is listed.
pub(crate) async fn session_with(port: u16, tool: &str) -> String {
    let mut connection = Connection::open(port).await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                       "clientInfo": {"name": "bench", "version": "1.0.0"}});
    let answer = say(&mut connection, None, &request("initialize", &hello)).await;
    let session = header(&answer, "mcp-session-id").unwrap_or_else(|| panic!("no session in: {answer}"));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    say(&mut connection, Some(&session), &initialized).await;
    let until = Instant::now() + PATIENCE;
    loop {
        let list = say(&mut connection, Some(&session), &request("tools/list", &json!({}))).await;
        if list.contains(&format!("\"{tool}\"")) {
            return session;
        }
        assert!(Instant::now() < until, "no tool {tool} in: {list}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the tool is listed, and returns the request with the same message for the A2A
/// server.
pub(crate) async fn message_past(
    port: u16,
    path: &str,
    tool: &str,
    (text, with_stream): (&str, bool),
) -> Vec<u8> {
    session_with(port, tool).await;
    message(&format!("/a2a{path}"), text, with_stream)
}

/// Returns the same request, for any path of the agent.
pub(crate) fn message(path: &str, text: &str, with_stream: bool) -> Vec<u8> {
    let method = if with_stream { "SendStreamingMessage" } else { "SendMessage" };
    let message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]});
    with_headers(&post(path, None, &request(method, &json!({"message": message}))), "a2a-version: 1.0\r\n")
}

/// Adds lines of headers to a request.
fn with_headers(request: &[u8], headers: &str) -> Vec<u8> {
    // After the first line.
    let at = request.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    [&request[..at], headers.as_bytes(), &request[at..]].concat()
}

/// The method by which messages are sent by gRPC.
pub(crate) const GRPC_SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";

/// Returns the same message by gRPC, for the agent that this tenant names: what follows the head of a request is
/// the body of one in HTTP/2.
pub(crate) fn grpc_message(tenant: &str, text: &str) -> Vec<u8> {
    let message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]});
    let params = json!({"tenant": tenant, "message": message}).to_string();
    let message = request_to_protobuf(Operation::Send, Dialect::V1, params.as_bytes()).unwrap();
    let headers =
        "content-type: application/grpc\r\nte: trailers\r\nuser-agent: bench/1.0\r\na2a-version: 1.0\r\n";
    let mut request = format!("POST {GRPC_SEND} HTTP/1.1\r\n{headers}\r\n").into_bytes();
    let mut frame = Vec::new();
    assert!(write_frame(&mut frame, &message));
    request.append(&mut frame);
    request
}

fn call(tool: &str, text: &str, with_progress: bool) -> Value {
    let mut params = json!({"name": tool, "arguments": {"text": text}});
    if with_progress {
        params["_meta"] = json!({"progressToken": 7});
    }
    request("tools/call", &params)
}

pub(crate) fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn say(connection: &mut Connection, session: Option<&str>, body: &Value) -> String {
    String::from_utf8_lossy(connection.exchange(&post(FACE, session, body)).await).into_owned()
}

pub(crate) fn post(path: &str, session: Option<&str>, body: &Value) -> Vec<u8> {
    let session = session.map_or_else(String::new, |id| {
        format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n")
    });
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench/1.0\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n{session}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn header(answer: &str, wanted: &str) -> Option<String> {
    let mut headers =
        answer.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_owned())
}
