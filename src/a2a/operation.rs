//! The operations of A2A, their names in each version, the bindings of requests, and the routes of HTTP+JSON
//! (A2A 1.0 §11, 0.3 §3.2.3).
//!
//! One table has the path and the HTTP methods of each operation. Requests to agents are built from
//! it (see `binding` and `translate`), requests of clients are matched against it. The routes of 0.3
//! are the same below `/v1`, except that of the card. Methods of gRPC are in `grpc`; `translate` reads the
//! parameters.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::dialect::Dialect;

/// An operation, independent of its name in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Send a message, and wait for the result.
    Send,
    /// Send a message, and receive events.
    Stream,
    /// Get a task.
    Get,
    /// List tasks.
    List,
    /// Cancel a task.
    Cancel,
    /// Subscribe to a task.
    Subscribe,
    /// Register a webhook for events of a task.
    SetPush,
    /// Get such a registration.
    GetPush,
    /// List all of them.
    ListPush,
    /// Delete one.
    DeletePush,
    /// Get the card for authenticated clients.
    ExtendedCard,
}

/// The reason why a method is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The version is not supported, or does not have this method: -32009, as in the SDKs of 1.0.
    #[error("this A2A version is not supported for this method")]
    Version,
    /// The version has no such method: -32601, as in servers of both versions.
    #[error("this A2A version has no such method")]
    Method,
}

/// The dialect that a version implies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DialectHint {
    /// 0.1.
    Oldest,
    /// 0.2, 0.3, or none given.
    Old,
    /// 1.x.
    New,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 11] = [
        Self::Send,
        Self::Stream,
        Self::Get,
        Self::List,
        Self::Cancel,
        Self::Subscribe,
        Self::SetPush,
        Self::GetPush,
        Self::ListPush,
        Self::DeletePush,
        Self::ExtendedCard,
    ];

    /// Returns the operation of a method and its dialect; nothing if no version has the method.
    ///
    /// `version` is the value of `A2A-Version`. If absent, it is 0.3, as specified.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if method and version do not fit together.
    pub fn of(method: &str, version: Option<&str>) -> Result<Option<(Dialect, Self)>, OperationError> {
        let named = |dialect| Self::ALL.into_iter().find(|operation| operation.name(dialect) == Some(method));
        let [oldest, old, new] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1].map(named);
        if oldest.or(old).or(new).is_none() {
            return Ok(None);
        }
        // Some methods are the same in 0.1 and 0.3: then it is 0.3, unless the version says
        // otherwise.
        let (first, second) =
            match spoken(version.unwrap_or_default().trim()).ok_or(OperationError::Version)? {
                DialectHint::Oldest => ((Dialect::V0_1, oldest), (Dialect::V0_3, old)),
                DialectHint::Old => ((Dialect::V0_3, old), (Dialect::V0_1, oldest)),
                DialectHint::New => {
                    return new.map(|operation| Some((Dialect::V1, operation))).ok_or(OperationError::Method);
                }
            };
        let known = |(dialect, found): (Dialect, Option<Self>)| found.map(|operation| (dialect, operation));
        known(first).or_else(|| known(second)).map(Some).ok_or(OperationError::Version)
    }

    /// Returns the name in a dialect; nothing if the dialect does not have the operation.
    pub fn name(self, dialect: Dialect) -> Option<&'static str> {
        match dialect {
            Dialect::V0_1 => self.oldest(),
            Dialect::V0_3 => self.v0_name(),
            Dialect::V1 => Some(self.as_str()),
        }
    }

    /// Returns the name in A2A 1.0, which has all operations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "SendMessage",
            Self::Stream => "SendStreamingMessage",
            Self::Get => "GetTask",
            Self::List => "ListTasks",
            Self::Cancel => "CancelTask",
            Self::Subscribe => "SubscribeToTask",
            Self::SetPush => "CreateTaskPushNotificationConfig",
            Self::GetPush => "GetTaskPushNotificationConfig",
            Self::ListPush => "ListTaskPushNotificationConfigs",
            Self::DeletePush => "DeleteTaskPushNotificationConfig",
            Self::ExtendedCard => "GetExtendedAgentCard",
        }
    }

    fn oldest(self) -> Option<&'static str> {
        match self {
            Self::Send => Some("tasks/send"),
            Self::Stream => Some("tasks/sendSubscribe"),
            Self::Get => Some("tasks/get"),
            Self::Cancel => Some("tasks/cancel"),
            Self::Subscribe => Some("tasks/resubscribe"),
            Self::SetPush => Some("tasks/pushNotification/set"),
            Self::GetPush => Some("tasks/pushNotification/get"),
            Self::List | Self::ListPush | Self::DeletePush | Self::ExtendedCard => None,
        }
    }

    fn v0_name(self) -> Option<&'static str> {
        match self {
            Self::Send => Some("message/send"),
            Self::Stream => Some("message/stream"),
            Self::Get => Some("tasks/get"),
            Self::List => None,
            Self::Cancel => Some("tasks/cancel"),
            Self::Subscribe => Some("tasks/resubscribe"),
            Self::SetPush => Some("tasks/pushNotificationConfig/set"),
            Self::GetPush => Some("tasks/pushNotificationConfig/get"),
            Self::ListPush => Some("tasks/pushNotificationConfig/list"),
            Self::DeletePush => Some("tasks/pushNotificationConfig/delete"),
            Self::ExtendedCard => Some("agent/getAuthenticatedExtendedCard"),
        }
    }

    /// Returns true if the response is a stream of events.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }

    /// Returns true if it sends a message to the agent, and so may start a task.
    pub(crate) fn sends_message(self) -> bool {
        matches!(self, Self::Send | Self::Stream)
    }
}

/// Classifies a version. Only major and minor count; of 1.x every minor is accepted, as in the
/// Python SDK.
fn spoken(version: &str) -> Option<DialectHint> {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some(""), None) | (Some("0"), Some("2" | "3")) => Some(DialectHint::Old),
        (Some("0"), Some("1")) => Some(DialectHint::Oldest),
        (Some("1"), Some(minor)) if minor.parse::<u8>().is_ok() => Some(DialectHint::New),
        _ => None,
    }
}

/// The transport form of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC: one URL, and the method in the body.
    JsonRpc,
    /// HTTP+JSON: a route for each operation. A2A 0.3 and 1.0.
    HttpJson,
    /// gRPC: a method for each operation, and protobuf in place of JSON. A2A 0.3 and 1.0.
    Grpc,
}

impl Binding {
    /// Every binding, in the order in which the gateway prefers them.
    pub(crate) const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// Returns the binding of this name in a card; nothing if the gateway does not have it.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|binding| binding.name().eq_ignore_ascii_case(name))
    }

    /// Returns true if agents of this dialect can be called by the binding.
    pub(super) fn speaks(self, dialect: Dialect) -> bool {
        match (self, dialect) {
            (Self::JsonRpc, _) | (Self::HttpJson | Self::Grpc, Dialect::V0_3 | Dialect::V1) => true,
            (Self::HttpJson | Self::Grpc, Dialect::V0_1) => false,
        }
    }

    /// Returns the name of the binding in cards.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }

    /// Returns true if responses are results without an envelope.
    pub(crate) fn is_bare(self) -> bool {
        match self {
            Self::JsonRpc => false,
            Self::HttpJson | Self::Grpc => true,
        }
    }
}

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

/// Path of the extended card in A2A 0.2, which has no method for it: below the agent's URL.
pub(crate) const EXTENDED_CARD_OF_0_2: &str = "/agent/authenticatedExtendedCard";

/// Every character that is not unreserved in a URI (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const DELETE: &[Method] = &[Method::DELETE];

/// The route of an operation in HTTP+JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpRoute {
    /// The HTTP methods. The text of the specification has one of them, its protobuf the other.
    pub(super) methods: &'static [Method],
    /// The path below the URL of the interface. A name in braces stands for the param with that
    /// name.
    path: &'static str,
    /// The methods of all operations with this path, for `Allow`.
    allow: &'static str,
}

impl Operation {
    /// Returns the route in HTTP+JSON.
    pub(super) fn route(self) -> HttpRoute {
        let route = |methods, path, allow| HttpRoute { methods, path, allow };
        match self {
            Self::Send => route(POST, "/message:send", "POST, OPTIONS"),
            Self::Stream => route(POST, "/message:stream", "POST, OPTIONS"),
            Self::Get => route(GET, "/tasks/{id}", "GET, OPTIONS"),
            Self::List => route(GET, "/tasks", "GET, OPTIONS"),
            Self::Cancel => route(POST, "/tasks/{id}:cancel", "POST, OPTIONS"),
            Self::Subscribe => {
                route(&[Method::POST, Method::GET], "/tasks/{id}:subscribe", "GET, POST, OPTIONS")
            }
            Self::SetPush => route(POST, "/tasks/{taskId}/pushNotificationConfigs", "GET, POST, OPTIONS"),
            Self::ListPush => route(GET, "/tasks/{taskId}/pushNotificationConfigs", "GET, POST, OPTIONS"),
            Self::GetPush => {
                route(GET, "/tasks/{taskId}/pushNotificationConfigs/{id}", "GET, DELETE, OPTIONS")
            }
            Self::DeletePush => {
                route(DELETE, "/tasks/{taskId}/pushNotificationConfigs/{id}", "GET, DELETE, OPTIONS")
            }
            Self::ExtendedCard => route(GET, "/extendedAgentCard", "GET, OPTIONS"),
        }
    }
}

impl HttpRoute {
    /// The extended card in 0.3.
    pub(super) const CARD_OF_0_3: Self = Self { methods: GET, path: "/card", allow: "GET, OPTIONS" };

    /// Appends the path to `path`; `param` returns the param with a name.
    ///
    /// # Errors
    ///
    /// The error of `param`, or [`PathSegmentError`] if a param cannot go into a path.
    pub(super) fn write<'a, E: From<PathSegmentError>>(
        self,
        path: &mut String,
        param: impl Fn(&str) -> Result<&'a str, E>,
    ) -> Result<(), E> {
        let mut rest = self.path;
        while let Some((fixed, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or_default();
            path.push_str(fixed);
            path.extend(segment(param(name)?)?);
            rest = after;
        }
        path.push_str(rest);
        Ok(())
    }

    /// Returns the params in a path of this route, still encoded; `None` if it is another path.
    fn params<'a>(self, path: &'a str) -> Option<Vec<RouteParam<'a>>> {
        let mut params = Vec::new();
        let (mut known, mut given) = (self.path.split('/'), path.split('/'));
        loop {
            let (known, given) = match (known.next(), given.next()) {
                (None, None) => return Some(params),
                (known, given) => (known?, given?),
            };
            let Some((name, suffix)) = known.strip_prefix('{').and_then(|name| name.split_once('}')) else {
                if known != given {
                    return None;
                }
                continue;
            };
            params.push(RouteParam { name, value: given.strip_suffix(suffix)? });
        }
    }
}

/// A param in the path of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteParam<'a> {
    /// The name of the param.
    pub name: &'static str,
    /// The value, still percent-encoded.
    pub value: &'a str,
}

/// The meaning of a path of HTTP+JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteMatch<'a> {
    /// The operation; `None` if the path has none with this HTTP method.
    pub operation: Option<Operation>,
    /// The params in the path.
    pub params: Vec<RouteParam<'a>>,
    /// The HTTP methods of the path, for `Allow`.
    pub allow: &'static str,
}

impl<'a> RouteMatch<'a> {
    /// Matches a request of a client; `None` if no operation has this path.
    pub(crate) fn find(method: &Method, path: &'a str) -> Option<Self> {
        let path = if path == EXTENDED_CARD_OF_0_2 { Operation::ExtendedCard.route().path } else { path };
        let mut found: Option<Self> = None;
        for operation in Operation::ALL {
            let route = operation.route();
            let Some(params) = route.params(path) else { continue };
            let has_method = route.methods.contains(method);
            match &mut found {
                // An id may end like the path of another operation: the path with the shorter id is
                // meant.
                Some(known) if known.length() < length(&params) => {}
                Some(known) if known.length() == length(&params) => {
                    known.operation = known.operation.or(has_method.then_some(operation));
                }
                _ => {
                    let operation = has_method.then_some(operation);
                    found = Some(Self { operation, params, allow: route.allow });
                }
            }
        }
        found
    }

    fn length(&self) -> usize {
        length(&self.params)
    }
}

fn length(params: &[RouteParam<'_>]) -> usize {
    params.iter().map(|param| param.value.len()).sum()
}

/// Encodes one segment of a path. The only way for an id into a path.
///
/// # Errors
///
/// [`PathSegmentError`] if a server or proxy could read several segments in it, or none.
pub(super) fn segment(id: &str) -> Result<PercentEncode<'_>, PathSegmentError> {
    // Some servers remove parameters (`;`) from a segment before they check for dots.
    let name = id.split(';').next().unwrap_or_default();
    let is_unsafe = |letter: char| letter.is_control() || "/\\?#%:".contains(letter);
    match matches!(name, "" | "." | "..") || id.contains(is_unsafe) {
        true => Err(PathSegmentError),
        false => Ok(percent_encoded(id)),
    }
}

/// Percent-encodes text as one segment of a path, or one value of a query.
pub(crate) fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_and_version_are_judged_together() {
        use Dialect::{V0_1, V0_3, V1};
        for (method, version, expected) in [
            ("message/send", None, Ok(Some((V0_3, Operation::Send)))),
            ("message/send", Some(""), Ok(Some((V0_3, Operation::Send)))),
            ("message/stream", Some("0.3"), Ok(Some((V0_3, Operation::Stream)))),
            ("tasks/get", Some(" 0.2.5 "), Ok(Some((V0_3, Operation::Get)))),
            ("SendMessage", Some("1.0"), Ok(Some((V1, Operation::Send)))),
            ("ListTasks", Some("1.2"), Ok(Some((V1, Operation::List)))),
            ("tasks/send", None, Ok(Some((V0_1, Operation::Send)))),
            ("tasks/send", Some("0.3"), Ok(Some((V0_1, Operation::Send)))),
            ("tasks/get", Some("0.1"), Ok(Some((V0_1, Operation::Get)))),
            ("message/send", Some("0.1"), Ok(Some((V0_3, Operation::Send)))),
            ("tasks/send", Some("1.0"), Err(OperationError::Method)),
            ("SendMessage", None, Err(OperationError::Version)),
            ("SendMessage", Some("0.3"), Err(OperationError::Version)),
            ("SendMessage", Some("2.0"), Err(OperationError::Version)),
            ("SendMessage", Some("1"), Err(OperationError::Version)),
            ("message/send", Some("2.0"), Err(OperationError::Version)),
            ("message/send", Some("1.0"), Err(OperationError::Method)),
            ("tasks/get", Some("1.0"), Err(OperationError::Method)),
            ("acme/custom", Some("1.0"), Ok(None)),
            ("acme/custom", Some("9"), Ok(None)),
            ("", None, Ok(None)),
        ] {
            assert_eq!(Operation::of(method, version), expected, "{method} {version:?}");
        }
    }

    #[test]
    fn every_name_leads_back_to_its_operation() {
        for (dialect, version) in
            [(Dialect::V0_1, Some("0.1")), (Dialect::V0_3, None), (Dialect::V1, Some("1.0"))]
        {
            for operation in Operation::ALL {
                let Some(name) = operation.name(dialect) else { continue };
                assert_eq!(Operation::of(name, version), Ok(Some((dialect, operation))), "{name}");
            }
        }
    }
}
