//! The two bindings of A2A requests: JSON-RPC, and HTTP+JSON with an HTTP route for each operation
//! (A2A 1.0 §11).
//!
//! The content is the same: a body of HTTP+JSON is the `params` of JSON-RPC, and its response is
//! the `result`. The dialects are in `dialect`; `card` chooses the binding of an agent.

use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::card::AgentInterface;
use super::dialect::OperationRequest;
use super::error::AgentError;
use super::model::{Message, StreamResponse, Task};
use super::push::PushNotificationConfig;
use super::{decode, v1};

/// The error for an id that cannot be one segment of a path.
///
/// Percent-encoding does not protect it: a proxy before the agent may decode `%2F` and `%2E%2E`
/// before it routes (nginx with a URI in `proxy_pass`), so that the id would name another resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", PathSegmentError::TEXT)]
pub struct PathSegmentError;

impl PathSegmentError {
    /// The error in words.
    pub const TEXT: &'static str = "an agent that is called by paths (HTTP+JSON) has no ids with / \\ ? # % : or control characters, \
                                    and none that are empty or consist of dots";
}

/// The transport form of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC: one URL, and the method in the body.
    JsonRpc,
    /// HTTP+JSON: a route for each operation. A2A 1.0 only.
    HttpJson,
}

/// Path of a task's webhooks, below the task.
pub(super) const HOOKS: &str = "/pushNotificationConfigs";

/// Every character that is not unreserved in a URI (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One request in the form of its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundRequest {
    /// HTTP method: `POST`, except for some requests of HTTP+JSON.
    pub verb: Method,
    /// The path after that of the interface: `/tasks/7`, or empty.
    pub route: String,
    /// JSON, or empty.
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

impl Binding {
    /// Returns the name of the binding in cards.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
        }
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
                let body = written(&v1::SendParams(&OperationRequest { tenant: None, ..ask }));
                self.post(if streaming { "/message:stream" } else { "/message:send" }, body)
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
            Binding::HttpJson => self.about(Method::GET, task_id, ""),
        }
    }

    /// Encodes the request to cancel a task.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub fn cancel_task(&self, task_id: &str) -> Result<BoundRequest, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.cancel_task(task_id, self.tenant.as_deref()).into()),
            Binding::HttpJson => self.about(Method::POST, task_id, ":cancel"),
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
            // The text of the specification has one of them, its protobuf the other.
            Binding::HttpJson => {
                let verbs = [Method::POST, Method::GET].into_iter();
                verbs.map(|verb| self.about(verb, task_id, ":subscribe")).collect()
            }
        }
    }

    /// Encodes the request to send push notifications about a task to this webhook.
    ///
    /// # Errors
    ///
    /// As [`AgentInterface::send`].
    pub fn set_push(
        &self,
        task_id: &str,
        webhook: &PushNotificationConfig<'_>,
    ) -> Result<BoundRequest, PathSegmentError> {
        match self.binding {
            Binding::JsonRpc => Ok(self.dialect.set_push(task_id, webhook, self.tenant.as_deref()).into()),
            Binding::HttpJson => {
                let body = written(&v1::SetPushParams::new(task_id, webhook, None));
                Ok(BoundRequest { body: body.into(), ..self.about(Method::POST, task_id, HOOKS)? })
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
            Binding::HttpJson => decode::plain(json, self.dialect)?.event(),
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
    pub fn webhook_is_set(&self, json: &[u8]) -> Result<(), AgentError> {
        match self.binding {
            Binding::JsonRpc => self.dialect.webhook_id(json).map(drop),
            Binding::HttpJson => decode::plain(json, self.dialect).map(drop),
        }
    }

    /// Decodes an error response of HTTP+JSON with this status. `None` if it is not from the agent,
    /// or says no more than the status.
    pub fn refusal(&self, status: u16, json: &[u8]) -> Option<AgentError> {
        match self.binding {
            Binding::JsonRpc => None,
            Binding::HttpJson => decode::refusal(json, status),
        }
    }

    /// Encodes a request about a task; `what` follows its path.
    pub(super) fn about(
        &self,
        verb: Method,
        task_id: &str,
        what: &str,
    ) -> Result<BoundRequest, PathSegmentError> {
        let body = if verb == Method::GET { Vec::new() } else { b"{}".to_vec() };
        Ok(BoundRequest { verb, ..self.post(&format!("/tasks/{}{what}", segment(task_id)?), body)? })
    }

    /// Encodes a request with a body, below the path of the tenant.
    pub(super) fn post(&self, route: &str, body: Vec<u8>) -> Result<BoundRequest, PathSegmentError> {
        let tenant = self.tenant.as_deref().filter(|tenant| !tenant.is_empty());
        let tenant = tenant.map(segment).transpose()?;
        let tenant = tenant.map(|tenant| format!("/{tenant}")).unwrap_or_default();
        Ok(BoundRequest { verb: Method::POST, route: format!("{tenant}{route}"), body: body.into() })
    }
}

fn written<P: serde::Serialize>(params: &P) -> Vec<u8> {
    // Writing to memory does not fail, and neither does text or JSON that was read before.
    serde_json::to_vec(params).unwrap_or_default()
}

/// Encodes one segment of a path. The only way for an id into a path.
///
/// # Errors
///
/// [`PathSegmentError`] if a server or proxy could read several segments in it, or none.
pub(super) fn segment(id: &str) -> Result<String, PathSegmentError> {
    // Some servers remove parameters (`;`) from a segment before they check for dots.
    let name = id.split(';').next().unwrap_or_default();
    let is_unsafe = |letter: char| letter.is_control() || "/\\?#%:".contains(letter);
    match matches!(name, "" | "." | "..") || id.contains(is_unsafe) {
        true => Err(PathSegmentError),
        false => Ok(percent_encoded(id).to_string()),
    }
}

/// Percent-encodes text as one segment of a path, or one value of a query.
pub(crate) fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, ErrorKind};

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
