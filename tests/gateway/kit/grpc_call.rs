//! A client of the A2A endpoint over gRPC: it sends one message, and shows messages and status.

use bytes::Bytes;
use hyper::header::HeaderMap;
use mcp_a2a_gateway::a2a::Dialect;
use mcp_a2a_gateway::a2a::grpc::{GrpcStatus, request_to_protobuf, response_to_json};
use mcp_a2a_gateway::a2a::translate::Operation;
use serde_json::Value;

use crate::support::{Answer, McpClient};

/// A message in its frame.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Calls a method with this message, as JSON.
pub(crate) async fn call(
    client: &McpClient,
    dialect: Dialect,
    operation: Operation,
    message: Value,
) -> GrpcAnswer {
    let message = request_to_protobuf(operation, dialect, message.to_string().as_bytes()).unwrap();
    let path = operation.grpc_path(dialect).unwrap();
    let answer = send(client, path, &[], frame(&message)).await;
    GrpcAnswer { dialect, operation, ..answer }
}

/// Sends any bytes to any method.
pub(crate) async fn send(
    client: &McpClient,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> GrpcAnswer {
    let all = [&[("content-type", "application/grpc"), ("te", "trailers")], headers].concat();
    let answer = client.http2().at(path).send("POST", &all, body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/grpc")));
    let (dialect, operation) = (Dialect::V1, Operation::Send);
    GrpcAnswer { answer, dialect, operation, read: Vec::new(), trailers: None }
}

/// An answer that may still be on its way.
pub(crate) struct GrpcAnswer {
    pub(crate) answer: Answer,
    dialect: Dialect,
    operation: Operation,
    read: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl GrpcAnswer {
    /// The next message as JSON; `None` after the last one.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            if let Some(length) = self.read.get(1..5) {
                let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.read.len() >= 5 + length {
                    let frame: Vec<u8> = self.read.drain(..5 + length).collect();
                    assert_eq!(frame[0], 0, "not compressed");
                    let json = response_to_json(self.operation, self.dialect, &frame[5..]).unwrap();
                    return Some(serde_json::from_slice(&json).unwrap());
                }
            }
            let next = self.answer.next_frame().await?.expect("the answer goes on");
            match next.into_data() {
                Ok(data) => self.read.extend_from_slice(&data),
                Err(other) => self.trailers = other.into_trailers().ok(),
            }
        }
    }

    /// The status at the end, and the messages before it.
    pub(crate) async fn end(mut self) -> (GrpcStatus, Vec<Value>) {
        let mut messages = Vec::new();
        while let Some(message) = self.message().await {
            messages.push(message);
        }
        assert!(self.read.is_empty(), "a frame is cut off");
        let trailers = self.trailers.take().expect("trailers");
        let text = |name: &str| trailers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let status = GrpcStatus {
            code: text("grpc-status").expect("a status").parse().unwrap(),
            message: text("grpc-message").unwrap_or_default(),
            info: None,
        };
        let status = match text("grpc-status-details-bin") {
            Some(details) => status.with_details(&details),
            None => status,
        };
        (status, messages)
    }

    /// The one message of an answer that is no error.
    pub(crate) async fn only(self) -> Value {
        let (status, mut messages) = self.end().await;
        assert_eq!((status.code, messages.len()), (0, 1), "{status:?}");
        messages.remove(0)
    }

    /// The name of the status of an error, and its reason.
    pub(crate) async fn error(self) -> (&'static str, String) {
        let (status, messages) = self.end().await;
        assert!(messages.is_empty() && status.code != 0, "{messages:?}");
        (status.name(), status.info.map(|info| info.reason).unwrap_or_default())
    }
}

/// The bytes of a message, for requests that are no message.
pub(crate) fn encoded(operation: Operation, message: &Value) -> Bytes {
    request_to_protobuf(operation, Dialect::V1, message.to_string().as_bytes()).unwrap().into()
}
