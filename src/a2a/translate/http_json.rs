//! Converts the params of JSON-RPC to HTTP+JSON of A2A 1.0, and its responses to JSON-RPC (A2A 1.0
//! §11).
//!
//! So a request to an agent that supports only HTTP+JSON takes the same path as any other. The
//! gateway's own requests are in `a2a::binding`, the routes in `a2a::route`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::binding::BoundRequest;
use super::super::card::AgentInterface;
use super::super::decode;
use super::super::dialect::Dialect;
use super::super::error::RpcError;
use super::super::error::{AgentError, ErrorKind};
use super::super::operation::Operation;
use super::super::route::{PathSegmentError, percent_encoded, segment};
use super::request::BadParams;
use crate::jsonrpc::{Id, Object, Text, write_error};

/// The params that go into paths and queries.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RouteParams<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    task_id: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    context_id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    page_size: Option<&'a RawValue>,
    #[serde(borrow)]
    page_token: Option<&'a RawValue>,
    #[serde(borrow)]
    history_length: Option<&'a RawValue>,
    #[serde(borrow)]
    status_timestamp_after: Option<&'a RawValue>,
    #[serde(borrow)]
    include_artifacts: Option<&'a RawValue>,
}

/// The response of an agent that is only an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestErrorBody<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// The content of such an error (AIP-193).
#[derive(Default, Deserialize)]
struct RestError<'a> {
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
}

impl AgentInterface {
    /// Encodes an operation with these params of A2A 1.0 as requests of HTTP+JSON, of which the
    /// first that the agent has a route for counts. The tenant of the interface is in the path, not
    /// in the params.
    ///
    /// # Errors
    ///
    /// [`BadParams`] if a required id is missing, or cannot go into a path.
    pub(crate) fn to_http(&self, operation: Operation, params: &str) -> Result<Vec<BoundRequest>, BadParams> {
        let given: RouteParams<'_> =
            serde_json::from_str(params).map_err(|_| BadParams("not as expected"))?;
        let param = |name: &str| {
            let (given, missing) = match (name, operation) {
                ("id", Operation::GetPush | Operation::DeletePush) => {
                    (&given.id, "the id of the push configuration is missing")
                }
                ("id", _) => (&given.id, "the task's id is missing"),
                _ => (&given.task_id, "the task's id is missing"),
            };
            given.as_ref().map(Text::as_str).filter(|id| !id.is_empty()).ok_or(BadParams(missing))
        };
        let mut request = match operation {
            Operation::Subscribe => return Ok(self.http_subscribe(param("id")?)?),
            Operation::Send | Operation::Stream | Operation::SetPush => {
                self.http_request(operation, param, params.as_bytes().to_vec())?
            }
            Operation::Cancel => {
                let metadata = given.metadata.map(|metadata| format!("{{\"metadata\":{}}}", metadata.get()));
                let body = metadata.unwrap_or_else(|| "{}".to_owned());
                self.http_request(operation, param, body.into_bytes())?
            }
            Operation::Get
            | Operation::List
            | Operation::ListPush
            | Operation::GetPush
            | Operation::DeletePush
            | Operation::ExtendedCard => self.http_request(operation, param, Vec::new())?,
        };
        match operation {
            Operation::SetPush => {
                // The id is in the body here, and in the path of all later requests about it.
                let hook = given.id.as_ref().map(Text::as_str).filter(|id| !id.is_empty());
                hook.map(segment).transpose()?;
            }
            Operation::Get | Operation::List | Operation::ListPush | Operation::ExtendedCard => {
                given.add_query(&mut request.route);
            }
            Operation::Send
            | Operation::Stream
            | Operation::Cancel
            | Operation::Subscribe
            | Operation::GetPush
            | Operation::DeletePush => {}
        }
        Ok(vec![request])
    }
}

impl From<PathSegmentError> for BadParams {
    fn from(_: PathSegmentError) -> Self {
        Self(PathSegmentError::TEXT)
    }
}

impl RouteParams<'_> {
    /// Adds the other params to a path, as its query.
    fn add_query(&self, path: &mut String) {
        let each = [
            ("contextId", self.context_id),
            ("status", self.status),
            ("pageSize", self.page_size),
            ("pageToken", self.page_token),
            ("historyLength", self.history_length),
            ("statusTimestampAfter", self.status_timestamp_after),
            ("includeArtifacts", self.include_artifacts),
        ];
        let mut separator = '?';
        for (name, value) in each.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let text = serde_json::from_str::<Text<'_>>(value.get());
            let text = text.as_ref().map_or(value.get(), Text::as_str);
            path.push(std::mem::replace(&mut separator, '&'));
            path.push_str(name);
            path.push('=');
            path.extend(percent_encoded(text));
        }
    }
}

/// Converts a response of HTTP+JSON with this status to a JSON-RPC response: the body becomes the
/// `result`, or its error the `error`. `None` if it is a failure that does not come from the agent.
///
/// # Errors
///
/// [`AgentError`] if it is no JSON.
pub(crate) fn to_json_rpc(id: &Id, status: u16, json: &str) -> Result<Option<String>, AgentError> {
    let is_success = (200..300).contains(&status);
    let failed = serde_json::from_str::<Object<RestErrorBody<'_>>>(json).ok().map(|Object(said)| said.error);
    if let Some(error) = failed.filter(|error| error.get() != "null") {
        let Some(RpcError { code, message, data }) =
            failure(json, error, if is_success { 500 } else { status })
        else {
            return Ok(None);
        };
        let code = i32::try_from(code).unwrap_or(-32603);
        return Ok(String::from_utf8(write_error(Some(id), code, &message, data.as_deref())).ok());
    }
    if !is_success {
        return Ok(None);
    }
    let result = if json.trim().is_empty() { "null" } else { json };
    let result: &RawValue = serde_json::from_str(result)
        .map_err(|error| AgentError::invalid_response(&format!("not JSON: {error}")))?;
    Ok(Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{}}}", id.as_json(), result.get())))
}

/// Decodes an error of HTTP+JSON. Without an A2A reason it comes from the agent if it names a gRPC
/// status.
fn failure(json: &str, error: &RawValue, status: u16) -> Option<RpcError> {
    let said = serde_json::from_str::<Object<RestError<'_>>>(error.get())
        .map(|Object(said)| said)
        .unwrap_or_default();
    let known = decode::refusal(json.as_bytes(), status).map(|error| RpcError::of(&error, Dialect::V1));
    let mut refusal = match (known, said.status, said.message) {
        (Some(known), ..) => known,
        (None, Some(_), Some(message)) => {
            RpcError::new(ErrorKind::Internal, -32603, message.as_str(), Dialect::V1)
        }
        _ => return None,
    };
    refusal.data =
        said.details.filter(|details| details.get().starts_with('[')).map(ToOwned::to_owned).or(refusal.data);
    Some(refusal)
}

#[cfg(test)]
mod tests {
    use super::super::super::route::Binding;
    use super::*;

    fn interface(tenant: Option<&str>) -> AgentInterface {
        AgentInterface {
            url: "http://h/".to_owned(),
            dialect: Dialect::V1,
            binding: Binding::HttpJson,
            tenant: tenant.map(str::to_owned),
            version: None,
        }
    }

    fn told(operation: Operation, params: &str) -> Vec<String> {
        let routed = interface(None).to_http(operation, params).unwrap();
        let told = |outgoing: &BoundRequest| {
            let body = String::from_utf8_lossy(&outgoing.body).into_owned();
            format!("{} {} {body}", outgoing.verb, outgoing.route).trim_end().to_owned()
        };
        routed.iter().map(told).collect()
    }

    #[test]
    fn every_operation_has_its_route() {
        for (operation, params, expected) in [
            (Operation::Send, r#"{"message": {}}"#, r#"POST /message:send {"message": {}}"#),
            (Operation::Stream, "{}", "POST /message:stream {}"),
            (Operation::Get, r#"{"id":"a b","historyLength":2}"#, "GET /tasks/a%20b?historyLength=2"),
            (
                Operation::List,
                r#"{"contextId":"c/d","status":"TASK_STATE_WORKING","pageSize":5,"includeArtifacts":true,"x":1}"#,
                "GET /tasks?contextId=c%2Fd&status=TASK_STATE_WORKING&pageSize=5&includeArtifacts=true",
            ),
            (Operation::Cancel, r#"{"id":"t"}"#, "POST /tasks/t:cancel {}"),
            (
                Operation::Cancel,
                r#"{"id":"t","metadata":{"a":1.0}}"#,
                r#"POST /tasks/t:cancel {"metadata":{"a":1.0}}"#,
            ),
            (
                Operation::SetPush,
                r#"{"taskId":"t","url":"u"}"#,
                r#"POST /tasks/t/pushNotificationConfigs {"taskId":"t","url":"u"}"#,
            ),
            (
                Operation::ListPush,
                r#"{"taskId":"t","pageSize":1}"#,
                "GET /tasks/t/pushNotificationConfigs?pageSize=1",
            ),
            (Operation::GetPush, r#"{"taskId":"t","id":"p"}"#, "GET /tasks/t/pushNotificationConfigs/p"),
            (
                Operation::DeletePush,
                r#"{"taskId":"t","id":"p q"}"#,
                "DELETE /tasks/t/pushNotificationConfigs/p%20q",
            ),
            (Operation::ExtendedCard, "{}", "GET /extendedAgentCard"),
        ] {
            assert_eq!(told(operation, params), [expected], "{operation:?}");
        }
        assert_eq!(
            told(Operation::Subscribe, r#"{"id":"t"}"#),
            ["POST /tasks/t:subscribe {}", "GET /tasks/t:subscribe"]
        );
        let routed = interface(Some("acme")).to_http(Operation::Get, r#"{"id":"t"}"#).unwrap();
        assert_eq!(routed.first().unwrap().route, "/acme/tasks/t");
    }

    #[test]
    fn requests_without_a_subject_have_no_route() {
        for (operation, params) in [
            (Operation::Get, "{}"),
            (Operation::Get, r#"{"id":""}"#),
            (Operation::Get, r#"{"id":7}"#),
            (Operation::GetPush, r#"{"taskId":"t"}"#),
            (Operation::ListPush, r#"{"id":"t"}"#),
            (Operation::Get, r#"{"id":"a/b"}"#),
            (Operation::Subscribe, r#"{"id":".."}"#),
            (Operation::DeletePush, r#"{"taskId":"t","id":"../p"}"#),
            (Operation::DeletePush, r#"{"taskId":"../t","id":"p"}"#),
            (Operation::SetPush, r#"{"taskId":"t","id":"a:b","url":"u"}"#),
        ] {
            assert!(interface(None).to_http(operation, params).is_err(), "{operation:?} {params}");
        }
    }

    #[test]
    fn an_answer_is_a_result_or_an_error() {
        let id: Id = serde_json::from_str("\"x\"").unwrap();
        let said = |status, json: &str| to_json_rpc(&id, status, json).unwrap();
        assert_eq!(
            said(200, r#"{"task": 1.0}"#).unwrap(),
            r#"{"jsonrpc":"2.0","id":"x","result":{"task": 1.0}}"#
        );
        assert_eq!(said(204, "").unwrap(), r#"{"jsonrpc":"2.0","id":"x","result":null}"#);
        let task = r#"{"id":"t","error":{"code":1}}"#;
        assert!(said(200, task).unwrap().contains("result"), "a task may have a member of that name");
        let error = r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}"#;
        for status in [404, 200] {
            let told = said(status, error).unwrap();
            assert!(
                told.starts_with(
                    r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32001,"message":"no","data":[{"#
                ),
                "{told}"
            );
        }
        let broken = r#"{"error":{"code":500,"status":"INTERNAL","message":"boom","details":[{"x":1}]}}"#;
        for status in [500, 200] {
            let told = said(status, broken).unwrap();
            assert!(
                told.ends_with(r#""error":{"code":-32603,"message":"boom","data":[{"x":1}]}}"#),
                "{told}"
            );
        }
        assert!(said(500, r#"{"error":{"message":"of a proxy"}}"#).is_none());
        assert!(said(502, "<html>").is_none() && said(404, r#"{"detail":"Not Found"}"#).is_none());
        assert!(to_json_rpc(&id, 200, "{").is_err());
    }
}
