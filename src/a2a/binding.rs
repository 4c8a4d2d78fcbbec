//! Requests to the interface of an agent, in its dialect and its binding: JSON-RPC, HTTP+JSON with an
//! HTTP route for each operation, or gRPC.
//!
//! In 1.0 the content is the same: a body of HTTP+JSON is the `params` of JSON-RPC, and its response is
//! the `result`. In 0.3 it has a form of its own (see `proto_json`). A request of gRPC is its JSON here,
//! with all params in it: the carrier turns it into protobuf (see `grpc`, and `agents`). The routes are
//! in `route`; `card` chooses the binding of an agent.

use bytes::Bytes;
use http::Method;

use super::card::AgentInterface;
use super::decode;
use super::dialect::Dialect;
use super::encode::to_json;
use super::error::AgentError;
use super::model::{Message, StreamResponse, Task};
use super::operation::Operation;
use super::operation::{Binding, HttpRoute, PathSegmentError, segment};
use super::proto_json::{self, ResourceName};
use super::push::{PushNotificationConfig, PushOut, RegisteredOut};
use super::request::{OperationRequest, SendMessageParams, TaskParams};

/// The path before every route of HTTP+JSON in 0.3.
const PREFIX_OF_0_3: &str = "/v1";

/// The body of a request without params.
const EMPTY_OBJECT: &[u8] = b"{}";

/// One request in the form of its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundRequest {
    /// HTTP method: `POST`, except for some requests of HTTP+JSON.
    pub verb: Method,
    /// The path after that of the interface: `/tasks/7`, the method of gRPC, or empty.
    pub route: String,
    /// JSON, or empty. For gRPC the message in its JSON form.
    pub body: Bytes,
}

impl From<Bytes> for BoundRequest {
    /// Wraps a JSON-RPC request.
    fn from(body: Bytes) -> Self {
        Self { verb: Method::POST, route: String::new(), body }
    }
}

impl From<Vec<u8>> for BoundRequest {
    /// Wraps a JSON-RPC request.
    fn from(body: Vec<u8>) -> Self {
        Bytes::from(body).into()
    }
}

impl AgentInterface {
    /// Encodes the request that sends a message, and waits for the task to end or to ask; as a
    /// stream if `streaming`. See [`Dialect::send`](super::Dialect::send).
    ///
    /// # Errors
    ///
    /// [`PathSegmentError`], here and below: an id, or the tenant, cannot go into the path.
    pub fn send(
        &self,
        message: &Message,
        accepted_output_modes: &[String],
        streaming: bool,
    ) -> Result<BoundRequest, PathSegmentError> {
        let ask = OperationRequest { message, accepted_output_modes, tenant: self.tenant.as_deref() };
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.send(&ask, streaming).into()),
            Binding::HttpJson => {
                let body = match self.dialect {
                    Dialect::V0_1 | Dialect::V0_3 => proto_json::send(message, accepted_output_modes),
                    Dialect::V1 => {
                        to_json(&SendMessageParams::new(&OperationRequest { tenant: None, ..ask }), 512)
                    }
                };
                let operation = if streaming { Operation::Stream } else { Operation::Send };
                self.http_request(operation, |_| Err(PathSegmentError), body)
            }
            Binding::Grpc => {
                let body = match self.dialect {
                    Dialect::V0_1 | Dialect::V0_3 => proto_json::send(message, accepted_output_modes),
                    Dialect::V1 => to_json(&SendMessageParams::new(&ask), 512),
                };
                Ok(self.grpc_request(if streaming { Operation::Stream } else { Operation::Send }, body))
            }
        }
    }

    /// Encodes the request for the current state of a task.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub fn get_task(&self, task_id: &str) -> Result<BoundRequest, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.get_task(task_id, self.tenant.as_deref()).into()),
            Binding::HttpJson => self.task_request(Operation::Get, task_id, b""),
            Binding::Grpc => self.grpc_task_request(Operation::Get, task_id),
        }
    }

    /// Encodes the request to cancel a task.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub(crate) fn cancel_task(&self, task_id: &str) -> Result<BoundRequest, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.cancel_task(task_id, self.tenant.as_deref()).into()),
            Binding::HttpJson => self.task_request(Operation::Cancel, task_id, EMPTY_OBJECT),
            Binding::Grpc => self.grpc_task_request(Operation::Cancel, task_id),
        }
    }

    /// Encodes the requests to attach to a task's stream again, of which the first that the agent
    /// has a route for counts; none where that is not safe.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub fn subscribe(&self, task_id: &str) -> Result<Vec<BoundRequest>, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => {
                let body = self.dialect.subscribe(task_id, self.tenant.as_deref());
                Ok(body.into_iter().map(BoundRequest::from).collect())
            }
            // As by JSON-RPC: see `Dialect::subscribe`.
            Binding::HttpJson | Binding::Grpc if self.dialect != Dialect::V1 => Ok(Vec::new()),
            Binding::HttpJson => self.http_subscribe(task_id),
            Binding::Grpc => Ok(vec![self.grpc_task_request(Operation::Subscribe, task_id)?]),
        }
    }

    /// Encodes the request to send push notifications about a task to this webhook.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub(crate) fn set_push(
        &self,
        task_id: &str,
        webhook: &PushNotificationConfig<'_>,
    ) -> Result<BoundRequest, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.set_push(task_id, webhook, self.tenant.as_deref()).into()),
            Binding::HttpJson => {
                let body = match self.dialect {
                    Dialect::V0_1 | Dialect::V0_3 => proto_json::set_push(task_id, webhook),
                    Dialect::V1 => {
                        let push = PushOut::of_gateway(webhook, Dialect::V1);
                        to_json(&RegisteredOut::new(Some(task_id), push, None, Dialect::V1), 256)
                    }
                };
                self.task_request(Operation::SetPush, task_id, &body)
            }
            Binding::Grpc => {
                let body = match self.dialect {
                    Dialect::V0_1 | Dialect::V0_3 => proto_json::set_push(task_id, webhook),
                    Dialect::V1 => {
                        let push = PushOut::of_gateway(webhook, Dialect::V1);
                        let registered = RegisteredOut::new(Some(task_id), push, self.tenant(), Dialect::V1);
                        to_json(&registered, 256)
                    }
                };
                Ok(self.grpc_request(Operation::SetPush, body))
            }
        }
    }

    /// Decodes the data of a stream's event, or the response to a send. See
    /// [`Dialect::event`](super::Dialect::event).
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the bytes are no response.
    pub fn event(&self, json: &[u8]) -> Result<StreamResponse, AgentError> {
        match self.binding {
            Binding::JsonRpc => self.dialect.event(json),
            Binding::HttpJson | Binding::Grpc => match self.dialect {
                Dialect::V0_1 | Dialect::V0_3 => proto_json::event(json),
                Dialect::V1 => decode::plain(json, Dialect::V1)?.take_event(),
            },
        }
    }

    /// Decodes the response to a request for a task, or to its cancellation.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the response contains no task.
    pub fn task(&self, json: &[u8]) -> Result<Task, AgentError> {
        self.event(json).and_then(StreamResponse::into_task)
    }

    /// Decodes the response to the registration of a webhook.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the registration or did not respond.
    pub(crate) fn webhook_is_set(&self, json: &[u8]) -> Result<(), AgentError> {
        match self.binding {
            Binding::JsonRpc => self.dialect.webhook_id(json).map(drop),
            Binding::HttpJson | Binding::Grpc => decode::plain(json, self.dialect).map(drop),
        }
    }

    /// Decodes an error response of HTTP+JSON with this status, or of gRPC in that form. `None` if it is not from the agent,
    /// or says no more than the status.
    pub fn refusal(&self, status: u16, json: &[u8]) -> Option<AgentError> {
        match self.binding {
            Binding::JsonRpc => None,
            Binding::HttpJson | Binding::Grpc => match self.dialect {
                Dialect::V0_1 | Dialect::V0_3 => proto_json::refusal(json, status),
                Dialect::V1 => decode::refusal(json, status),
            },
        }
    }

    /// Returns the tenant, if requests name one.
    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }

    /// Encodes an operation of gRPC with this message in its JSON form.
    pub(super) fn grpc_request(&self, operation: Operation, body: Vec<u8>) -> BoundRequest {
        let route = operation.grpc_path(self.dialect).unwrap_or_default().to_owned();
        BoundRequest { verb: Method::POST, route, body: body.into() }
    }

    /// Encodes a request of gRPC about a task.
    fn grpc_task_request(
        &self,
        operation: Operation,
        task_id: &str,
    ) -> Result<BoundRequest, PathSegmentError> {
        let body = match self.dialect {
            Dialect::V0_1 | Dialect::V0_3 => {
                proto_json::named("name", &ResourceName { task_id, config_id: None }, None)?
            }
            Dialect::V1 => {
                to_json(&TaskParams { id: task_id, history_length: None, tenant: self.tenant() }, 128)
            }
        };
        Ok(self.grpc_request(operation, body))
    }

    /// Encodes an operation with one HTTP method; `param` returns the params in its path, which is
    /// below that of the tenant.
    pub(super) fn http_request<'a, E: From<PathSegmentError>>(
        &self,
        operation: Operation,
        param: impl Fn(&str) -> Result<&'a str, E>,
        body: Vec<u8>,
    ) -> Result<BoundRequest, E> {
        let mut path = String::with_capacity(64);
        let route = match (self.dialect, operation) {
            (Dialect::V0_1 | Dialect::V0_3, Operation::ExtendedCard) => HttpRoute::CARD_OF_0_3,
            _ => operation.route(),
        };
        if self.dialect != Dialect::V1 {
            path.push_str(PREFIX_OF_0_3);
        }
        if let Some(tenant) = self.tenant() {
            path.push('/');
            path.extend(segment(tenant)?);
        }
        route.write(&mut path, param)?;
        let verb = route.methods.first().cloned().unwrap_or(Method::POST);
        Ok(BoundRequest { verb, route: path, body: body.into() })
    }

    /// Encodes the requests to subscribe to a task by HTTP+JSON, of which the first that the agent
    /// has a route for counts.
    pub(super) fn http_subscribe(&self, task_id: &str) -> Result<Vec<BoundRequest>, PathSegmentError> {
        let request = self.task_request(Operation::Subscribe, task_id, EMPTY_OBJECT)?;
        let each = Operation::Subscribe.route().methods.iter().map(|verb| {
            let body = if *verb == Method::GET { Bytes::new() } else { request.body.clone() };
            BoundRequest { verb: verb.clone(), route: request.route.clone(), body }
        });
        Ok(each.collect())
    }

    /// Encodes a request of HTTP+JSON about a task.
    fn task_request(
        &self,
        operation: Operation,
        task_id: &str,
        body: &[u8],
    ) -> Result<BoundRequest, PathSegmentError> {
        self.http_request(operation, |_| Ok::<_, PathSegmentError>(task_id), body.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::ErrorKind;

    fn interface(tenant: Option<&str>) -> AgentInterface {
        AgentInterface {
            url: "http://h/".to_owned(),
            dialect: Dialect::V1,
            binding: Binding::HttpJson,
            tenant: tenant.map(str::to_owned),
            version: None,
        }
    }

    fn told(outgoing: &BoundRequest) -> String {
        let body = String::from_utf8_lossy(&outgoing.body);
        format!("{} {} {body}", outgoing.verb, outgoing.route).trim_end().to_owned()
    }

    #[test]
    fn every_method_has_its_route() {
        let own = interface(None);
        let hook = PushNotificationConfig { id: "w", url: "https://gw/x", token: "s" };
        for (outgoing, expected) in [
            (own.get_task("t-1").unwrap(), "GET /tasks/t-1"),
            (own.cancel_task("t-1").unwrap(), "POST /tasks/t-1:cancel {}"),
            (
                own.set_push("t", &hook).unwrap(),
                r#"POST /tasks/t/pushNotificationConfigs {"taskId":"t","id":"w","url":"https://gw/x","token":"s","authentication":{"scheme":"Bearer","credentials":"s"}}"#,
            ),
            (interface(Some("a b")).get_task("t").unwrap(), "GET /a%20b/tasks/t"),
            (interface(Some("")).get_task("t").unwrap(), "GET /tasks/t"),
        ] {
            assert_eq!(told(&outgoing), expected);
        }
        let subscribe: Vec<_> = own.subscribe("t").unwrap().iter().map(told).collect();
        assert_eq!(subscribe, ["POST /tasks/t:subscribe {}", "GET /tasks/t:subscribe"]);
    }

    #[test]
    fn path_ids_are_one_segment_or_refused() {
        for (id, segment) in [
            ("é ü", "%C3%A9%20%C3%BC"),
            ("a..b", "a..b"),
            ("...", "..."),
            ("a;b", "a%3Bb"),
            ("a&b=c+d@e", "a%26b%3Dc%2Bd%40e"),
        ] {
            let route = interface(None).get_task(id).unwrap().route;
            assert_eq!(route, format!("/tasks/{segment}"), "{id:?}");
        }
        for id in
            ["", ".", "..", "..;x", ";", "a/b", "a\\b", "a?b", "a#b", "%2e", "a:b", "a\r\nb", "\0", "\u{9f}"]
        {
            let own = interface(None);
            let hook = PushNotificationConfig { id: "w", url: "https://gw/x", token: "s" };
            let refused = Err(PathSegmentError);
            assert_eq!(own.get_task(id), refused, "{id:?}");
            assert_eq!(own.cancel_task(id), refused, "{id:?}");
            assert_eq!(own.set_push(id, &hook), refused, "{id:?}");
            assert_eq!(own.subscribe(id), Err(PathSegmentError), "{id:?}");
            let of_tenant = interface(Some(id)).get_task("t");
            assert_eq!(of_tenant.is_err(), !id.is_empty(), "{id:?}");
        }
    }

    #[test]
    fn a_failure_is_the_agents_word_only_if_it_is_in_the_agents_words() {
        let error = |code: u16, reason: &str| {
            let details = format!(
                r#"[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"{reason}","domain":"a2a-protocol.org"}}]"#
            );
            format!(r#"{{"error":{{"code":{code},"status":"X","message":"no","details":{details}}}}}"#)
        };
        for (status, body, kind) in [
            (404, error(404, "TASK_NOT_FOUND"), Some(ErrorKind::TaskNotFound)),
            (400, error(400, "TASK_NOT_CANCELABLE"), Some(ErrorKind::TaskNotCancelable)),
            (500, error(500, "INVALID_AGENT_RESPONSE"), Some(ErrorKind::InvalidAgentResponse)),
            (400, error(400, "SOMETHING_ELSE"), Some(ErrorKind::InvalidParams)),
            (404, error(404, "SOMETHING_ELSE"), None),
            (503, error(503, "SOMETHING_ELSE"), None),
            (404, r#"{"detail":"Not Found"}"#.to_owned(), None),
            (400, "<html>".to_owned(), None),
            (404, String::new(), None),
        ] {
            let refusal = interface(None).refusal(status, body.as_bytes());
            let found = refusal.map(|refusal| match refusal {
                AgentError::Refused { kind, .. } => kind,
                AgentError::NotA2a(what) => panic!("{what}"),
            });
            assert_eq!(found, kind, "{status} {body}");
        }
    }
}
