//! HTTP+JSON binding of A2A 1.0: maps a path to an operation and to the params of JSON-RPC.
//!
//! Reads docs/spec/a2a.md §1.2. An agent that speaks 1.0 by JSON-RPC gets the same request in an
//! envelope, and its response loses the envelope again (see `response`). Of older versions only the
//! path of the extended card is served. See also `proxy`.

use http::Method;
use serde_json::value::RawValue;

use super::error::A2aError;
use super::proxy::ProxiedRequest;
use super::request::JsonRpcRequest;
use super::request::ParamMembers;
use super::{A2aServer, AgentScope, TypedBody, version, write};
use crate::a2a::translate::{Operation, RouteMatch, RouteParam};
use crate::a2a::{Binding, Dialect};
use crate::agents::ResolvedAgent;
use crate::bridge::resource_uri::decoded;
use crate::calls::resolved_agent;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ClientConnection};
use crate::jsonrpc::object::RawObject;
use crate::jsonrpc::{Id, Text, well_formed};
use crate::quota::BytePermit;

/// Operation and params of a request.
#[derive(Debug)]
struct RestRoute {
    operation: Operation,
    /// Params in the path and in the query.
    params: RawObject,
    /// True if the body may hold further params.
    has_body: bool,
}

/// Members of a query, with the kind of each value.
const QUERY: [(&str, QueryKind); 8] = [
    ("contextId", QueryKind::Text),
    ("status", QueryKind::Text),
    ("pageSize", QueryKind::Json),
    ("pageToken", QueryKind::Text),
    ("historyLength", QueryKind::Json),
    ("statusTimestampAfter", QueryKind::Text),
    ("includeArtifacts", QueryKind::Json),
    ("tenant", QueryKind::Nothing),
];

#[derive(Debug, Clone, Copy)]
enum QueryKind {
    Text,
    /// A number or a flag.
    Json,
    /// A member that clients may not set.
    Nothing,
}

/// Request with all its params.
struct RestRequest {
    operation: Operation,
    params: RawObject,
    /// Permit for the bytes of the params.
    _permit: Option<BytePermit>,
}

impl A2aServer {
    /// Handles a request of the HTTP+JSON binding.
    pub(super) async fn serve_rest(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        path: &str,
    ) -> Result<(), ClientGone> {
        let (error, is_read) = match self.read_rest(http, record, path).await {
            Err(fault) => (A2aError::Fault(fault), false),
            Ok(request) => match self.handle_rest(http, record, scope, request).await {
                Ok(()) => return Ok(()),
                Err(Abort::ClientGone) => return Err(ClientGone),
                Err(Abort::Rejected(error)) => (error, true),
            },
        };
        self.record_error(record, &error);
        let written = scope.error_body(&error);
        let (status, headers) = (written.rest_status(), error.headers(written.rest_status()));
        if !is_read {
            http.close_after_response();
        }
        write(http, status, headers, TypedBody::json(written.rest())).await?;
        if !is_read {
            self.body.drain_before_close(http).await;
        }
        Ok(())
    }

    /// Reads operation and params of a request.
    async fn read_rest(
        &self,
        http: &mut impl ClientConnection,
        record: &AccessRecord,
        path: &str,
    ) -> Result<RestRequest, Fault> {
        let header = http.head();
        let query = header.uri.query().unwrap_or_default();
        let RestRoute { operation, params, has_body } = route(&header.method, path, query)?;
        if !has_body {
            return Ok(RestRequest { operation, params, _permit: None });
        }
        let owner = record.quota_owner.as_ref();
        let body = match operation.sends_message() || operation == Operation::SetPush {
            true => self.body.read_json(http, owner).await?,
            // A cancellation needs no body, so its content type does not matter.
            false => self.body.read(http, owner, None).await?,
        };
        let params = merged(&body, params, self.settings.json_depth)?;
        Ok(RestRequest { operation, params, _permit: body.into_permit() })
    }

    async fn handle_rest(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        RestRequest { operation, params, _permit }: RestRequest,
    ) -> Result<(), Abort<A2aError>> {
        let resolved =
            resolved_agent(&scope.agent, record.forwarded.as_ref()).map(ResolvedAgent::in_effect)?;
        let agent = resolved.interface.dialect;
        // The card has the same form in this binding.
        if agent != Dialect::V1 && !scope.agent.settings.translate && operation != Operation::ExtendedCard {
            return Err(Fault::NoSuchPath.into());
        }
        if let Some(version) = version(&http.head().headers) {
            Operation::of(operation.as_str(), Some(version)).map_err(|_| A2aError::Version)?;
        }
        let id: Id = serde_json::from_str("1").map_err(|_| Fault::Internal)?;
        let params = params.written();
        let method = Text(operation.as_str().into());
        let request = JsonRpcRequest { id, has_id: true, method, params: Some(&params) };
        let (binding, client, operation) = (Binding::HttpJson, Dialect::V1, Some(operation));
        let members = ParamMembers::of(Some(params.get()));
        let call = ProxiedRequest {
            scope,
            resolved,
            binding,
            is_converted: false,
            client,
            operation,
            request: &request,
            body: None,
            members,
        };
        self.proxy(http, record, call).await
    }
}

/// Returns the operation of a request.
fn route(method: &Method, path: &str, query: &str) -> Result<RestRoute, Fault> {
    let found = RouteMatch::find(method, path).ok_or(Fault::NoSuchPath)?;
    let mut params = RawObject::default();
    for RouteParam { name, value } in &found.params {
        params.insert_or_replace(name, &path_name(value)?);
    }
    let operation = found.operation.ok_or(Fault::MethodNotAllowed(found.allow))?;
    parse_query(query, &mut params)?;
    Ok(RestRoute { operation, params, has_body: *method == Method::POST })
}

/// Decodes a name in a path; an empty name is rejected.
fn path_name(segment: &str) -> Result<String, Fault> {
    let name = decoded(segment).ok_or_else(|| Fault::InvalidParams("the path is not UTF-8".into()))?;
    if name.is_empty() { Err(Fault::NoSuchPath) } else { Ok(name.into_owned()) }
}

/// Adds the members of a query to params. Members that A2A does not know are left out.
fn parse_query(query: &str, params: &mut RawObject) -> Result<(), Fault> {
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let Some((name, kind)) = QUERY.iter().find(|(known, _)| *known == name) else { continue };
        let bad = || Fault::InvalidParams(format!("{name} in the query cannot be read"));
        let value = decoded(value).ok_or_else(bad)?;
        match kind {
            QueryKind::Text => params.insert_or_replace(name, &value),
            QueryKind::Json => {
                let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let raw = RawValue::from_string(value.into_owned()).ok().filter(|_| is_plain);
                params.set(name, raw.ok_or_else(bad)?);
            }
            QueryKind::Nothing => {}
        }
    }
    Ok(())
}

/// Returns the params of a body, with those of the path taking precedence.
fn merged(body: &[u8], path: RawObject, depth: usize) -> Result<RawObject, Fault> {
    if body.is_empty() {
        return Ok(path);
    }
    let text = well_formed(body, depth).map_err(|malformed| Fault::ParseError(malformed.to_string()))?;
    let mut params =
        RawObject::read(text).ok_or_else(|| Fault::ParseError("the body must be an object".into()))?;
    for (name, value) in path.into_each() {
        params.set(&name, value);
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(method: &str, path: &str) -> Result<(Operation, String), Fault> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let route = route(&method.parse().unwrap(), path, query)?;
        Ok((route.operation, route.params.written().get().to_owned()))
    }

    #[test]
    fn every_route_has_its_operation() {
        use Operation::{
            Cancel, DeletePush, ExtendedCard, Get, GetPush, List, ListPush, Send, SetPush, Stream, Subscribe,
        };
        for (method, path, operation, params) in [
            ("POST", "/message:send", Send, "{}"),
            ("POST", "/message:stream", Stream, "{}"),
            ("GET", "/tasks/t%2F1?historyLength=2&x=y", Get, r#"{"id":"t/1","historyLength":2}"#),
            (
                "GET",
                "/tasks?pageSize=5&pageToken=a%20b&tenant=x",
                List,
                r#"{"pageSize":5,"pageToken":"a b"}"#,
            ),
            ("GET", "/tasks/a:b", Get, r#"{"id":"a:b"}"#),
            ("POST", "/tasks/a:b:cancel", Cancel, r#"{"id":"a:b"}"#),
            ("POST", "/tasks/t:subscribe", Subscribe, r#"{"id":"t"}"#),
            ("GET", "/tasks/t:subscribe", Subscribe, r#"{"id":"t"}"#),
            ("POST", "/tasks/t/pushNotificationConfigs", SetPush, r#"{"taskId":"t"}"#),
            ("GET", "/tasks/t/pushNotificationConfigs", ListPush, r#"{"taskId":"t"}"#),
            ("GET", "/tasks/t/pushNotificationConfigs/c", GetPush, r#"{"taskId":"t","id":"c"}"#),
            ("DELETE", "/tasks/t/pushNotificationConfigs/c", DeletePush, r#"{"taskId":"t","id":"c"}"#),
            ("GET", "/extendedAgentCard", ExtendedCard, "{}"),
            ("GET", "/agent/authenticatedExtendedCard", ExtendedCard, "{}"),
        ] {
            assert_eq!(routed(method, path).unwrap(), (operation, params.to_owned()), "{method} {path}");
        }
    }

    #[test]
    fn unknown_routes_are_refused() {
        for (method, path, fault) in [
            ("GET", "/message:send", Fault::MethodNotAllowed("POST, OPTIONS")),
            ("POST", "/tasks", Fault::MethodNotAllowed("GET, OPTIONS")),
            ("DELETE", "/tasks/t", Fault::MethodNotAllowed("GET, OPTIONS")),
            ("GET", "/tasks/", Fault::NoSuchPath),
            ("GET", "/acme/tasks/t", Fault::NoSuchPath),
            ("GET", "/v1/tasks/t", Fault::NoSuchPath),
            ("POST", "/tasks/t/pushNotificationConfigs/c/d", Fault::NoSuchPath),
        ] {
            assert_eq!(routed(method, path).unwrap_err(), fault, "{method} {path}");
        }
        for path in ["/tasks/%ff", "/tasks?pageSize=%7B%7D", "/tasks?pageSize=", "/tasks?pageSize=[1]"] {
            assert!(matches!(routed("GET", path), Err(Fault::InvalidParams(_))), "{path}");
        }
    }

    #[test]
    fn path_wins_over_the_body() {
        let path = || RawObject::read(r#"{"taskId":"t"}"#).unwrap();
        let merged =
            |body: &str| merged(body.as_bytes(), path(), 16).map(|all| all.written().get().to_owned());
        assert_eq!(merged(r#"{"taskId":"other","url":"u"}"#).unwrap(), r#"{"taskId":"t","url":"u"}"#);
        assert_eq!(merged("").unwrap(), r#"{"taskId":"t"}"#);
        assert!(merged("[]").is_err() && merged("{").is_err() && merged(r#"{"a":1,"a":2}"#).is_err());
    }
}
