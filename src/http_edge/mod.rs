//! The HTTP edge: one request of a client and the response to it.
//!
//! All that sees a Pingora session, apart from the servers: routes, the policy for `Host` and
//! `Origin`, the request body, the response, the access record, and the drain of the process.

mod access_record;
mod body;
mod drain;
mod host_policy;
mod response;
mod route;
mod sink;
#[cfg(test)]
mod test_connection;

pub(crate) use access_record::{AccessRecord, outcome_of};
pub(crate) use body::{BodyReader, has_unambiguous_length, header_fits};
pub(crate) use drain::DrainState;
pub(crate) use host_policy::{HostPolicy, PublicUrl, check_certificate, check_host, preflight};
pub(crate) use response::{
    Accepts, Headers, SseWriter, abort, begin, cacheable_json, empty, events, fault, fault_headers, give_up,
    json, refused, reject_unproven_push, reply, text,
};
pub(crate) use route::{API_CATALOG, METADATA, PUSH, Route, is_served, parse};
pub(crate) use sink::{ClientConnection, ResponseSink};
#[cfg(test)]
pub(crate) use test_connection::{BodyStep, TestClient, TestConnection, WrittenResponse};
