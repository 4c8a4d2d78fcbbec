//! The bindings of A2A requests, and the routes of HTTP+JSON (A2A 1.0 §11, 0.3 §3.2.3).
//!
//! One table has the path and the HTTP methods of each operation. Requests to agents are built from
//! it (see `binding` and `translate`), requests of clients are matched against it. The routes of 0.3
//! are the same below `/v1`, except that of the card.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::dialect::Dialect;
use super::operation::Operation;

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
