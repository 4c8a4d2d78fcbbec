//! Converts the params of JSON-RPC to HTTP+JSON of the same A2A version, and its responses to JSON-RPC
//! (A2A 1.0 §11, 0.3 §3.2.3).
//!
//! So a request to an agent that supports only HTTP+JSON takes the same path as any other. In 1.0 both
//! bindings have one form, in 0.3 each has its own (see `a2a::proto_json`). The gateway's own requests
//! are in `a2a::binding`, the routes in `a2a::route`. In 0.3 messages of gRPC have the form of HTTP+JSON: those of
//! clients are converted to JSON-RPC, and the results back.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::binding::BoundRequest;
use super::super::card::AgentInterface;
use super::super::decode;
use super::super::dialect::Dialect;
use super::super::encode::to_json;
use super::super::error::{AgentError, ErrorKind, RestError, RpcError};
use super::super::lenient::{LenientBool, LenientInteger, LenientList, LenientObject, LenientString};
use super::super::model::StreamResponse;
use super::super::operation::Operation;
use super::super::operation::{Binding, PathSegmentError, percent_encoded, segment};
use super::super::proto_json::{self, ResourceName};
use super::super::push::{PushIn, PushOut};
use super::request::{BadParams, ClientRequest, RequestParams, SendMessageRequest};
use super::response::{AgentResponse, ResponseBody, ResponseTranslator};
use crate::jsonrpc::object::RawObject;
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

impl AgentInterface {
    /// Encodes an operation with these params of the interface's version as requests of HTTP+JSON, of
    /// which the first that the agent has a route for counts, or as one of gRPC. The tenant of the
    /// interface is in the path of HTTP+JSON, not in the params.
    ///
    /// # Errors
    ///
    /// [`BadParams`] if a required id is missing, or cannot go into a path.
    pub(crate) fn to_http(&self, operation: Operation, params: &str) -> Result<Vec<BoundRequest>, BadParams> {
        match (self.binding, self.dialect) {
            (Binding::Grpc, Dialect::V0_1 | Dialect::V0_3) => self.to_grpc_0_3(operation, params),
            (Binding::Grpc, Dialect::V1) => {
                Ok(vec![self.grpc_request(operation, params.as_bytes().to_vec())])
            }
            (_, Dialect::V0_1 | Dialect::V0_3) => self.to_http_0_3(operation, params),
            (_, Dialect::V1) => self.to_http_1_0(operation, params),
        }
    }

    /// Encodes params of 0.3 as the message of gRPC, in its JSON form.
    fn to_grpc_0_3(&self, operation: Operation, params: &str) -> Result<Vec<BoundRequest>, BadParams> {
        let raw: &RawValue = serde_json::from_str(params).map_err(|_| BadParams("not as expected"))?;
        let request = ClientRequest::read(Dialect::V0_3, operation, Some(raw))?;
        let task_id = request.task_id().unwrap_or_default();
        let task = ResourceName { task_id, config_id: None };
        let body = match &request.asked {
            RequestParams::Say(said) => request.proto_send(said),
            RequestParams::SetPush { config: webhook, .. } => {
                let config_id = webhook.id.as_deref().unwrap_or(task_id);
                proto_json::named("name", &ResourceName { task_id, config_id: Some(config_id) }, None)?;
                let webhook = PushOut::new(webhook, Dialect::V0_3);
                proto_json::register_push(task_id, config_id, webhook.with_id(config_id))
            }
            RequestParams::Push { .. } if operation == Operation::ListPush => {
                proto_json::named("parent", &task, None)?
            }
            RequestParams::Push { config_id, .. } => {
                let config_id = Some(config_id.as_deref().unwrap_or(task_id));
                proto_json::named("name", &ResourceName { task_id, config_id }, None)?
            }
            RequestParams::Task(_) if operation == Operation::ListPush => {
                proto_json::named("parent", &task, None)?
            }
            RequestParams::Task(_) => {
                let history = request.history.filter(|_| operation == Operation::Get);
                proto_json::named("name", &task, history)?
            }
            RequestParams::Nothing => b"{}".to_vec(),
        };
        if operation.grpc_path(Dialect::V0_3).is_none() {
            return Err(BadParams("the agent has no such operation by gRPC"));
        }
        Ok(vec![self.grpc_request(operation, body)])
    }

    /// Encodes params of 0.3: decoded, and encoded in the form of the binding.
    fn to_http_0_3(&self, operation: Operation, params: &str) -> Result<Vec<BoundRequest>, BadParams> {
        let raw: &RawValue = serde_json::from_str(params).map_err(|_| BadParams("not as expected"))?;
        let request = ClientRequest::read(Dialect::V0_3, operation, Some(raw))?;
        let task_id = request.task_id().unwrap_or_default();
        // An agent that is given no id of a configuration uses that of the task.
        let config = |id: Option<&'_ str>| id.unwrap_or(task_id).to_owned();
        let (mut config_id, mut body) = (String::new(), Vec::new());
        match &request.asked {
            RequestParams::Say(said) => body = request.proto_send(said),
            RequestParams::SetPush { config: webhook, .. } => {
                config_id = config(webhook.id.as_deref());
                segment(&config_id)?;
                let webhook = PushOut::new(webhook, Dialect::V0_3);
                body = proto_json::register_push(task_id, &config_id, webhook.with_id(&config_id));
            }
            RequestParams::Push { config_id: id, .. } => config_id = config(id.as_deref()),
            RequestParams::Task(_) if operation == Operation::Subscribe => {
                return Ok(self.http_subscribe(task_id)?);
            }
            RequestParams::Task(_) if operation == Operation::Cancel => body = b"{}".to_vec(),
            RequestParams::Task(_) | RequestParams::Nothing => {}
        }
        let of_path = |name: &str| {
            let is_config = name == "id" && matches!(operation, Operation::GetPush | Operation::DeletePush);
            Ok::<_, BadParams>(if is_config { config_id.as_str() } else { task_id })
        };
        let mut written = self.http_request(operation, of_path, body)?;
        if let Some(length) = request.history.filter(|_| operation == Operation::Get) {
            written.route.push_str(&format!("?historyLength={length}"));
        }
        Ok(vec![written])
    }

    fn to_http_1_0(&self, operation: Operation, params: &str) -> Result<Vec<BoundRequest>, BadParams> {
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

impl ClientRequest {
    /// Encodes a message in the form of HTTP+JSON of 0.3.
    fn proto_send(&self, said: &SendMessageRequest) -> Vec<u8> {
        let configuration = proto_json::SendMessageConfiguration {
            accepted_output_modes: &said.modes,
            push_notification: said.push.as_ref().map(|push| PushOut::new(push, Dialect::V0_3)),
            history_length: self.history,
            blocking: !said.at_once,
        };
        let metadata = self.metadata.as_deref();
        to_json(&proto_json::SendMessageRequest::new(&said.message, configuration, metadata), 512)
    }
}

/// A request of gRPC of 0.3 without a message: resource names in place of ids.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NamedRequest {
    name: LenientString,
    parent: LenientString,
    config_id: LenientString,
    config: LenientObject<PushIn>,
    history_length: LenientInteger,
}

/// The members of a message's configuration that JSON-RPC of 0.3 has under another name, or with another default.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProtoSend {
    configuration: LenientObject<ProtoConfiguration>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProtoConfiguration {
    push_notification: LenientObject<PushIn>,
    blocking: LenientBool,
}

/// Converts a request of a client over gRPC of 0.3, as ProtoJSON, to the params of JSON-RPC.
///
/// # Errors
///
/// [`BadParams`] if a required member is missing.
pub(crate) fn from_proto_json(operation: Operation, json: &str) -> Result<String, BadParams> {
    let unreadable = |_| BadParams("not as expected");
    let request = if operation.sends_message() {
        let params = with_parts(json).ok_or(BadParams("message is missing"))?;
        let mut request = ClientRequest::read(Dialect::V0_3, operation, Some(&params))?;
        if let RequestParams::Say(said) = &mut request.asked {
            let LenientObject::<ProtoSend>(proto) = serde_json::from_str(json).map_err(unreadable)?;
            let proto = proto.unwrap_or_default().configuration.0.unwrap_or_default();
            // Without a value it is false, as everywhere in protobuf.
            said.at_once = !proto.blocking.is_set();
            said.message.parts.iter_mut().for_each(decode::unwrap_proto_data);
            said.push = proto.push_notification.0.and_then(PushIn::config);
        }
        request
    } else {
        let LenientObject::<NamedRequest>(named) = serde_json::from_str(json).map_err(unreadable)?;
        let named = named.unwrap_or_default();
        let history = named.history_length.0.and_then(|length| u32::try_from(length).ok());
        let history = history.filter(|length| *length > 0);
        ClientRequest { operation, asked: named.params(operation)?, history, metadata: None }
    };
    String::from_utf8(request.write(Dialect::V0_3, None)).map_err(|_| BadParams("not as expected"))
}

/// Returns the request with the parts of its message under the name of JSON-RPC.
fn with_parts(json: &str) -> Option<Box<RawValue>> {
    let mut request = RawObject::read(json)?;
    let mut message = RawObject::read(request.find("message")?.get())?;
    if let Some(content) = message.find("content").map(ToOwned::to_owned) {
        message.remove("content");
        message.set("parts", content);
    }
    request.set("message", message.written());
    Some(request.written())
}

impl NamedRequest {
    fn params(self, operation: Operation) -> Result<RequestParams, BadParams> {
        let missing = BadParams("the task's name is missing (tasks/ID)");
        let name = self.name.filled().unwrap_or_default();
        let parent = self.parent.filled().unwrap_or_default();
        let task = |name: &str| {
            let task = name.strip_prefix("tasks/").filter(|task| !task.is_empty());
            task.map(str::to_owned).ok_or(missing)
        };
        Ok(match operation {
            Operation::Get | Operation::Cancel | Operation::Subscribe => RequestParams::Task(task(&name)?),
            Operation::SetPush => {
                let config = self.config.0.and_then(PushIn::registered);
                let mut config = config.ok_or(BadParams("the webhook has no url"))?.config;
                config.id = self.config_id.filled().or(config.id);
                let parent = parent.strip_suffix("/pushNotificationConfigs").unwrap_or(&parent);
                RequestParams::SetPush { task_id: task(parent)?, config }
            }
            Operation::ListPush => {
                let parent = parent.strip_suffix("/pushNotificationConfigs").unwrap_or(&parent);
                RequestParams::Push { task_id: task(parent)?, config_id: None }
            }
            Operation::GetPush | Operation::DeletePush => {
                let (of_task, config) = name.split_once("/pushNotificationConfigs/").ok_or(BadParams(
                    "the name of the push configuration is missing (tasks/ID/pushNotificationConfigs/ID)",
                ))?;
                let config_id = Some(config.to_owned()).filter(|config| !config.is_empty());
                RequestParams::Push { task_id: task(of_task)?, config_id }
            }
            Operation::ExtendedCard => RequestParams::Nothing,
            Operation::Send | Operation::Stream | Operation::List => {
                return Err(BadParams("not as expected"));
            }
        })
    }
}

/// Converts the result of JSON-RPC of 0.3, or an event of a stream, to the ProtoJSON of a response over gRPC.
///
/// # Errors
///
/// [`AgentError`] if it is not the result of the operation.
pub(crate) fn to_proto_json(operation: Operation, result: &str) -> Result<Vec<u8>, AgentError> {
    match operation {
        Operation::Send | Operation::Stream | Operation::Subscribe | Operation::Get | Operation::Cancel => {
            let event = decode::plain(result.as_bytes(), Dialect::V0_3)?.take_event()?;
            if operation.is_stream() && matches!(event, StreamResponse::Unknown) {
                // An event without a form in this version is an empty message.
                return Ok(b"{}".to_vec());
            }
            let is_bare = matches!(operation, Operation::Get | Operation::Cancel);
            proto_json::encode_event(&event, is_bare)
                .ok_or_else(|| AgentError::invalid_response("the answer holds neither a task nor a message"))
        }
        Operation::SetPush | Operation::GetPush => match AgentResponse::of_push(result.as_bytes())?.0 {
            ResponseBody::Push(push) => Ok(proto_json::encode_push(&push)),
            _ => Err(AgentError::invalid_response("the answer holds no webhook")),
        },
        Operation::ListPush => {
            let LenientList::<LenientObject<PushIn>>(list) = serde_json::from_str(result)
                .map_err(|error| AgentError::invalid_response(&format!("not JSON: {error}")))?;
            let all = list.into_iter().flatten().filter_map(|push| push.0.and_then(PushIn::registered));
            Ok(proto_json::encode_pushes(&all.collect::<Vec<_>>()))
        }
        Operation::DeletePush => Ok(b"{}".to_vec()),
        Operation::ExtendedCard => {
            proto_json::encode_card(result).ok_or_else(|| AgentError::invalid_response("its card is no card"))
        }
        Operation::List => Err(AgentError::invalid_response("this answer is not translated")),
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

/// A response of HTTP+JSON, or an event of its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpAnswer<'a> {
    /// The dialect of the agent.
    pub agent: Dialect,
    /// The operation; `None` for a method of an extension.
    pub operation: Option<Operation>,
    /// The HTTP status.
    pub status: u16,
    /// The body, or the data of the event.
    pub json: &'a str,
}

/// Converts a response of HTTP+JSON to a JSON-RPC response: the body becomes the `result`, or its error the
/// `error`. `None` if it is a failure that does not come from the agent.
///
/// # Errors
///
/// [`AgentError`] if it is no JSON.
pub(crate) fn to_json_rpc(id: &Id, answer: HttpAnswer<'_>) -> Result<Option<String>, AgentError> {
    match answer.agent {
        Dialect::V0_1 | Dialect::V0_3 => answer.of_0_3(id),
        Dialect::V1 => answer.of_1_0(id),
    }
}

impl HttpAnswer<'_> {
    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn of_1_0(&self, id: &Id) -> Result<Option<String>, AgentError> {
        let Self { status, json, .. } = *self;
        let failed =
            serde_json::from_str::<Object<RestErrorBody<'_>>>(json).ok().map(|Object(said)| said.error);
        if let Some(error) = failed.filter(|error| error.get() != "null") {
            let status = if self.is_success() { 500 } else { status };
            return Ok(failure(json, error, status).and_then(|error| rpc_failure(id, &error)));
        }
        if !self.is_success() {
            return Ok(None);
        }
        self.as_it_is(id).map(Some)
    }

    /// Returns a response with the body as its result.
    fn as_it_is(&self, id: &Id) -> Result<String, AgentError> {
        let result = if self.json.trim().is_empty() { "null" } else { self.json };
        let result: &RawValue = serde_json::from_str(result)
            .map_err(|error| AgentError::invalid_response(&format!("not JSON: {error}")))?;
        Ok(rpc_result(id, result.get()))
    }

    /// Decodes a response of 0.3, and encodes it in the form of JSON-RPC.
    fn of_0_3(&self, id: &Id) -> Result<Option<String>, AgentError> {
        let failed = |error: &AgentError| rpc_failure(id, &RpcError::of(error, Dialect::V0_3));
        if !self.is_success() {
            let json = self.json.as_bytes();
            let words = || proto_json::error_text(json).filter(|_| self.status == 500);
            let no_route = || {
                let text = "agent has no such operation by HTTP+JSON";
                (self.status == 405).then(|| AgentError::from_code(ErrorKind::Unsupported, -32004, text))
            };
            let error = proto_json::refusal(json, self.status)
                .or_else(no_route)
                .or_else(|| Some(AgentError::from_code(ErrorKind::Internal, -32603, &words()?)));
            return Ok(error.as_ref().and_then(failed));
        }
        let answer = match self.operation {
            Some(
                Operation::Send
                | Operation::Stream
                | Operation::Get
                | Operation::Cancel
                | Operation::Subscribe,
            ) => {
                match proto_json::event(self.json.as_bytes()) {
                    // It has no form in JSON-RPC, and the reader has the words for it.
                    Ok(StreamResponse::Unknown) => return self.as_it_is(id).map(Some),
                    Ok(event) => AgentResponse::event(event, Dialect::V0_3),
                    Err(error @ AgentError::Refused { .. }) => return Ok(failed(&error)),
                    Err(error) => return Err(error),
                }
            }
            Some(Operation::SetPush | Operation::GetPush) => self.push()?,
            Some(Operation::ListPush) => self.pushes()?,
            Some(Operation::DeletePush) => return Ok(Some(rpc_result(id, "null"))),
            Some(Operation::List | Operation::ExtendedCard) | None => return self.as_it_is(id).map(Some),
        };
        let result = ResponseTranslator::without_request(Dialect::V0_3).event_or_result(answer)?;
        Ok(String::from_utf8(result).ok().map(|result| rpc_result(id, &result)))
    }

    /// Decodes a push configuration of 0.3.
    fn push(&self) -> Result<AgentResponse, AgentError> {
        let json = proto_json::with_json_names(self.json.as_bytes())?;
        AgentResponse::of_push(&json)
    }

    /// Decodes a list of them.
    fn pushes(&self) -> Result<AgentResponse, AgentError> {
        let json = proto_json::with_json_names(self.json.as_bytes())?;
        AgentResponse::of_pushes(&json)
    }
}

fn rpc_result(id: &Id, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.as_json())
}

fn rpc_failure(id: &Id, error: &RpcError) -> Option<String> {
    let code = i32::try_from(error.code).unwrap_or(-32603);
    String::from_utf8(write_error(Some(id), code, &error.message, error.data.as_deref())).ok()
}

/// Decodes an error of HTTP+JSON. Without an A2A reason it comes from the agent if it names a gRPC
/// status.
fn failure(json: &str, error: &RawValue, status: u16) -> Option<RpcError> {
    let said = RestError::read(error);
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
    use proptest::prelude::*;
    use serde_json::Value;

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

    /// Returns a value without the members that protobuf leaves out.
    fn without_defaults(value: Value) -> Value {
        match value {
            Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (name, without_defaults(value)));
                let is_set = |value: &Value| {
                    !matches!(value, Value::Bool(false)) && *value != Value::Array(Vec::new())
                };
                members.filter(|(_, value)| is_set(value)).collect()
            }
            Value::Array(items) => items.into_iter().map(without_defaults).collect(),
            other => other,
        }
    }

    /// The results of JSON-RPC of 0.3 that were made from ProtoJSON become the same again.
    #[test]
    fn results_of_0_3_become_proto_json() {
        let id: Id = serde_json::from_str("7").unwrap();
        let status = r#"{"state":"TASK_STATE_CANCELLED","message":{"messageId":"m","role":"ROLE_AGENT","content":[{"text":"x","metadata":{"a":1}}]},"timestamp":"2025-01-01T00:00:00Z"}"#;
        let artifact = r#"{"artifactId":"a","name":"n","parts":[{"data":{"data":{"b":[1]}}},{"file":{"fileWithUri":"u","mimeType":"x/y","name":"f"}},{"file":{"fileWithBytes":"WVdKag=="}}]}"#;
        let task = format!(
            r#"{{"id":"t","contextId":"c","status":{status},"artifacts":[{artifact}],"history":[{{"messageId":"h","role":"ROLE_USER","content":[{{"text":"q"}}]}}],"metadata":{{"k":1}}}}"#
        );
        let push = r#"{"name":"tasks/t/pushNotificationConfigs/p","pushNotificationConfig":{"id":"p","url":"https://h","token":"s","authentication":{"schemes":["Bearer"],"credentials":"c"}}}"#;
        for (operation, json) in [
            (Operation::Send, format!(r#"{{"task":{task}}}"#)),
            (Operation::Send, r#"{"message":{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_AGENT","content":[{"text":"x"}]}}"#.to_owned()),
            (Operation::Stream, format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{status},"final":true}}}}"#)),
            (Operation::Subscribe, format!(r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact},"append":true,"lastChunk":true}}}}"#)),
            (Operation::Get, task.clone()),
            (Operation::Cancel, task.clone()),
            (Operation::SetPush, push.to_owned()),
            (Operation::ListPush, format!(r#"{{"configs":[{push}]}}"#)),
            (Operation::DeletePush, "{}".to_owned()),
        ] {
            let answer =
                HttpAnswer { agent: Dialect::V0_3, operation: Some(operation), status: 200, json: &json };
            let response: Value = serde_json::from_str(&to_json_rpc(&id, answer).unwrap().unwrap()).unwrap();
            let again = to_proto_json(operation, &response["result"].to_string()).unwrap();
            let read = |json: &[u8]| without_defaults(serde_json::from_slice(json).unwrap());
            assert_eq!(read(&again), read(json.as_bytes()), "{operation:?}");
        }
        for result in ["[]", "{", r#"{"kind":"new"}"#, r#"{"id":"t"}"#] {
            assert!(to_proto_json(Operation::Get, result).is_err(), "{result}");
        }
        let nameless = r#"{"taskId":"t","pushNotificationConfig":{"url":"https://h"}}"#;
        let named: Value =
            serde_json::from_slice(&to_proto_json(Operation::GetPush, nameless).unwrap()).unwrap();
        assert_eq!(named["name"], "tasks/t/pushNotificationConfigs/t", "an empty id is no name");
    }

    #[test]
    fn card_of_0_3_has_security_of_protobuf() {
        let card = r#"{"name":"x","securitySchemes":{"key":{"type":"apiKey","in":"header","name":"k"},"id":{"type":"openIdConnect","openIdConnectUrl":"u"},"new":{"type":"new"}},"security":[{"key":[],"id":["a"]}]}"#;
        let card: Value =
            serde_json::from_slice(&to_proto_json(Operation::ExtendedCard, card).unwrap()).unwrap();
        let schemes = &card["securitySchemes"];
        assert_eq!(schemes["key"]["apiKeySecurityScheme"]["location"], "header");
        assert_eq!(schemes["id"]["openIdConnectSecurityScheme"]["openIdConnectUrl"], "u");
        assert!(schemes.get("new").is_none());
        assert_eq!(card["security"][0]["schemes"]["id"]["list"][0], "a");
    }

    #[test]
    fn requests_of_0_3_become_params() {
        let push = r#"{"id":"p","url":"https://h","token":"s"}"#;
        for (operation, json, expected) in [
            (
                Operation::Send,
                format!(
                    r#"{{"message":{{"messageId":"m","role":"ROLE_USER","content":[{{"text":"x"}},{{"data":{{"data":{{"a":1}}}}}}]}},"configuration":{{"blocking":true,"historyLength":2,"pushNotification":{push}}}}}"#
                ),
                format!(
                    r#"{{"message":{{"kind":"message","messageId":"m","role":"user","parts":[{{"kind":"text","text":"x"}},{{"kind":"data","data":{{"a":1}}}}]}},"configuration":{{"blocking":true,"historyLength":2,"pushNotificationConfig":{push}}}}}"#
                ),
            ),
            (
                Operation::Get,
                r#"{"name":"tasks/t","historyLength":2}"#.to_owned(),
                r#"{"id":"t","historyLength":2}"#.to_owned(),
            ),
            (Operation::Cancel, r#"{"name":"tasks/t"}"#.to_owned(), r#"{"id":"t"}"#.to_owned()),
            (Operation::Subscribe, r#"{"name":"tasks/t"}"#.to_owned(), r#"{"id":"t"}"#.to_owned()),
            (
                Operation::SetPush,
                format!(
                    r#"{{"parent":"tasks/t","configId":"p","config":{{"name":"tasks/t/pushNotificationConfigs/p","pushNotificationConfig":{push}}}}}"#
                ),
                format!(r#"{{"taskId":"t","pushNotificationConfig":{push}}}"#),
            ),
            (
                Operation::GetPush,
                r#"{"name":"tasks/t/pushNotificationConfigs/p"}"#.to_owned(),
                r#"{"id":"t","pushNotificationConfigId":"p"}"#.to_owned(),
            ),
            (Operation::ListPush, r#"{"parent":"tasks/t"}"#.to_owned(), r#"{"id":"t"}"#.to_owned()),
            (Operation::ExtendedCard, "{}".to_owned(), "{}".to_owned()),
        ] {
            let params: Value = serde_json::from_str(&from_proto_json(operation, &json).unwrap()).unwrap();
            assert_eq!(params, serde_json::from_str::<Value>(&expected).unwrap(), "{operation:?}");
        }
        // Without a value it does not wait.
        let json = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]}}"#;
        assert!(from_proto_json(Operation::Send, json).unwrap().contains(r#""blocking":false"#));
        for (operation, json) in [
            (Operation::Send, "{}"),
            (Operation::Get, r#"{"name":"t"}"#),
            (Operation::GetPush, r#"{"name":"tasks/t"}"#),
            (Operation::SetPush, r#"{"parent":"tasks/t"}"#),
            (Operation::List, "{}"),
        ] {
            assert!(from_proto_json(operation, json).is_err(), "{json}");
        }
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

    /// Encodes params of 0.3 for an agent of HTTP+JSON.
    fn of_0_3(operation: Operation, params: &str) -> Result<Vec<String>, BadParams> {
        let interface = AgentInterface { dialect: Dialect::V0_3, ..interface(None) };
        let told = |outgoing: &BoundRequest| {
            let body = String::from_utf8_lossy(&outgoing.body).into_owned();
            format!("{} {} {body}", outgoing.verb, outgoing.route).trim_end().to_owned()
        };
        Ok(interface.to_http(operation, params)?.iter().map(told).collect())
    }

    #[test]
    fn operations_of_0_3_have_their_form() {
        let message =
            r#""kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]"#;
        let proto = r#""messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]"#;
        let push = r#"{"url":"https://c/x","token":"s","authentication":{"schemes":["Bearer"]}}"#;
        for (operation, params, expected) in [
            (
                Operation::Send,
                format!(r#"{{"message":{{{message},"referenceTaskIds":["t"]}},"metadata":{{"a":1.0}}}}"#),
                format!(
                    r#"POST /v1/message:send {{"message":{{{proto}}},"configuration":{{"blocking":true}},"metadata":{{"a":1.0}}}}"#
                ),
            ),
            (
                Operation::Stream,
                format!(
                    r#"{{"message":{{{message}}},"configuration":{{"blocking":false,"historyLength":3,"pushNotificationConfig":{push}}}}}"#
                ),
                format!(
                    r#"POST /v1/message:stream {{"message":{{{proto}}},"configuration":{{"pushNotification":{push},"historyLength":3,"blocking":false}}}}"#
                ),
            ),
            (
                Operation::Get,
                r#"{"id":"a b","historyLength":2}"#.to_owned(),
                "GET /v1/tasks/a%20b?historyLength=2".to_owned(),
            ),
            (
                Operation::Cancel,
                r#"{"id":"t","metadata":{"a":1}}"#.to_owned(),
                "POST /v1/tasks/t:cancel {}".to_owned(),
            ),
            (Operation::ExtendedCard, "{}".to_owned(), "GET /v1/card".to_owned()),
        ] {
            assert_eq!(of_0_3(operation, &params).unwrap(), [expected], "{operation:?}");
        }
        assert_eq!(
            of_0_3(Operation::Subscribe, r#"{"id":"t"}"#).unwrap(),
            ["POST /v1/tasks/t:subscribe {}", "GET /v1/tasks/t:subscribe"]
        );
    }

    #[test]
    fn push_configs_of_0_3_have_resource_names() {
        let push = r#"{"url":"https://c/x","token":"s","authentication":{"schemes":["Bearer"]}}"#;
        for (operation, params, expected) in [
            (
                Operation::SetPush,
                format!(r#"{{"taskId":"t","pushNotificationConfig":{push}}}"#),
                r#"POST /v1/tasks/t/pushNotificationConfigs {"parent":"tasks/t","configId":"t","config":{"name":"tasks/t/pushNotificationConfigs/t","pushNotificationConfig":{"id":"t","url":"https://c/x","token":"s","authentication":{"schemes":["Bearer"]}}}}"#.to_owned(),
            ),
            (
                Operation::GetPush,
                r#"{"id":"t","pushNotificationConfigId":"p"}"#.to_owned(),
                "GET /v1/tasks/t/pushNotificationConfigs/p".to_owned(),
            ),
            (
                Operation::GetPush,
                r#"{"id":"t"}"#.to_owned(),
                "GET /v1/tasks/t/pushNotificationConfigs/t".to_owned(),
            ),
            (
                Operation::ListPush,
                r#"{"id":"t"}"#.to_owned(),
                "GET /v1/tasks/t/pushNotificationConfigs".to_owned(),
            ),
            (
                Operation::DeletePush,
                r#"{"id":"t","pushNotificationConfigId":"p"}"#.to_owned(),
                "DELETE /v1/tasks/t/pushNotificationConfigs/p".to_owned(),
            ),
        ] {
            assert_eq!(of_0_3(operation, &params).unwrap(), [expected], "{operation:?}");
        }
    }

    #[test]
    fn requests_of_0_3_need_their_subject() {
        for (operation, params) in [
            (Operation::Get, "{}"),
            (Operation::Get, r#"{"id":"a/b"}"#),
            (Operation::Send, "{}"),
            (Operation::DeletePush, r#"{"id":"t","pushNotificationConfigId":"../p"}"#),
            (Operation::SetPush, r#"{"taskId":"t","pushNotificationConfig":{"id":"a:b","url":"u"}}"#),
            (Operation::SetPush, r#"{"taskId":"../t","pushNotificationConfig":{"url":"u"}}"#),
        ] {
            assert!(of_0_3(operation, params).is_err(), "{operation:?} {params}");
        }
    }

    #[test]
    fn answers_of_0_3_become_json_rpc() {
        let id: Id = serde_json::from_str("7").unwrap();
        let said = |operation, status, json: &str| {
            let answer = HttpAnswer { agent: Dialect::V0_3, operation: Some(operation), status, json };
            to_json_rpc(&id, answer)
        };
        let task = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"history":[{"messageId":"m","role":"ROLE_USER","content":[{"data":{"data":{"a":1}}}]}]}"#;
        let told = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"},"history":[{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"a":1}}]}]}"#;
        let push = r#"{"name":"tasks/t/pushNotificationConfigs/p","pushNotificationConfig":{"id":"p","url":"https://c/x"}}"#;
        let push_told = r#"{"taskId":"t","pushNotificationConfig":{"id":"p","url":"https://c/x"}}"#;
        for (operation, status, json, result) in [
            (Operation::Get, 200, task.to_owned(), told.to_owned()),
            (Operation::Cancel, 202, task.to_owned(), told.to_owned()),
            (Operation::Send, 201, format!(r#"{{"task":{task}}}"#), told.to_owned()),
            (
                Operation::Stream,
                200,
                r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"final":true}}"#.to_owned(),
                r#"{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"completed"},"final":true}"#.to_owned(),
            ),
            (
                Operation::Subscribe,
                200,
                r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"lastChunk":true}}"#.to_owned(),
                r#"{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]},"lastChunk":true}"#.to_owned(),
            ),
            (Operation::SetPush, 201, push.to_owned(), push_told.to_owned()),
            (Operation::GetPush, 200, push.replace("pushNotificationConfig\"", "push_notification_config\""), push_told.to_owned()),
            (Operation::ListPush, 200, format!(r#"{{"configs":[{push}],"nextPageToken":""}}"#), format!("[{push_told}]")),
            (Operation::DeletePush, 204, String::new(), "null".to_owned()),
            (Operation::DeletePush, 200, "{}".to_owned(), "null".to_owned()),
            (Operation::ExtendedCard, 200, r#"{"name": "n"}"#.to_owned(), r#"{"name": "n"}"#.to_owned()),
        ] {
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
            assert_eq!(said(operation, status, &json).unwrap().as_deref(), Some(expected.as_str()), "{operation:?} {json}");
        }
    }

    /// Generates JSON, mostly with names that mean something in HTTP+JSON of 0.3.
    fn any_json() -> impl Strategy<Value = Value> {
        const NAMES: &[&str] = &[
            "task",
            "message",
            "msg",
            "statusUpdate",
            "artifact_update",
            "id",
            "taskId",
            "task_id",
            "status",
            "state",
            "update",
            "parts",
            "content",
            "text",
            "data",
            "file",
            "fileWithBytes",
            "configs",
            "name",
            "url",
            "code",
            "error",
            "pushNotificationConfig",
            "configuration",
            "history",
            "artifacts",
            "artifact",
            "role",
            "metadata",
        ];
        let text = prop_oneof![
            Just("tasks/t/pushNotificationConfigs/p"),
            Just("ROLE_USER"),
            Just("YWJj"),
            Just("a/b")
        ];
        let leaf =
            prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(6, 48, 6, |inner| {
            let name = prop::sample::select(NAMES).prop_map(str::to_owned);
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                4 => prop::collection::vec((name, inner), 1..6).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// Whatever an agent or a client writes, the other form of it is JSON, or there is an error.
        #[test]
        fn any_json_of_0_3_converts_or_fails(json in any_json(), status in 200_u16..600) {
            let id: Id = serde_json::from_str("7").unwrap();
            let text = json.to_string();
            for operation in Operation::ALL {
                let answer = HttpAnswer { agent: Dialect::V0_3, operation: Some(operation), status, json: &text };
                if let Ok(Some(response)) = to_json_rpc(&id, answer) {
                    let response: Value = serde_json::from_str(&response).unwrap();
                    prop_assert!(response["error"].is_object() || response.get("result").is_some(), "{response}");
                }
                if let Ok(proto) = to_proto_json(operation, &text) {
                    prop_assert!(serde_json::from_slice::<Value>(&proto).is_ok());
                }
                if let Ok(params) = from_proto_json(operation, &text) {
                    prop_assert!(serde_json::from_str::<Value>(&params).is_ok());
                }
                for written in of_0_3(operation, &text).unwrap_or_default() {
                    let body = written.splitn(3, ' ').nth(2).unwrap_or("null");
                    prop_assert!(serde_json::from_str::<Value>(body).is_ok(), "{written}");
                }
            }
        }
    }

    #[test]
    fn errors_of_0_3_have_their_meaning() {
        let id: Id = serde_json::from_str("7").unwrap();
        let said = |operation, status, json: &str| {
            let answer = HttpAnswer { agent: Dialect::V0_3, operation: Some(operation), status, json };
            to_json_rpc(&id, answer)
        };
        for (status, json, code) in [
            (404, r#"{"message":"Task not found"}"#, Some(-32001)),
            (404, r#"{"message":"Authenticated card not supported"}"#, Some(-32007)),
            (409, r#"{"message":"Task cannot be canceled"}"#, Some(-32002)),
            (422, r#"{"message":"bad"}"#, Some(-32602)),
            (415, r#"{"message":"only text"}"#, Some(-32005)),
            (501, r#"{"message":"Push notifications are not supported by the agent"}"#, Some(-32003)),
            (501, r#"{"message":"Streaming is not supported by the agent"}"#, Some(-32004)),
            (500, r#"{"message":"unknown exception"}"#, Some(-32603)),
            (404, r#"{"code":-32001,"message":"Task not found: t"}"#, Some(-32001)),
            (400, r#"{"code":-32004,"message":"no"}"#, Some(-32004)),
            (200, r#"{"code":-32603,"message":"broke"}"#, Some(-32603)),
            (404, r#"{"error":"io.a2a.spec.TaskNotFoundError","message":"Task not found"}"#, Some(-32001)),
            (500, r#"{"error":"io.a2a.spec.InternalError","message":"broke"}"#, Some(-32603)),
            (404, r#"{"message":"no Route matched with those values"}"#, None),
            (404, r#"{"code":404,"message":"Not found"}"#, None),
            (404, r#"{"detail":"Not Found"}"#, None),
            (405, r#"{"detail":"Method Not Allowed"}"#, Some(-32004)),
            (503, r#"{"message":"Service Unavailable"}"#, None),
            (502, "<html>", None),
        ] {
            let told = said(Operation::Get, status, json).unwrap();
            let told =
                told.map(|told| serde_json::from_str::<Value>(&told).unwrap()["error"]["code"].clone());
            assert_eq!(told, code.map(Value::from), "{status} {json}");
        }
        for json in ["{", "[]", "<html>", r#"{"task":{"id":"t"}}"#, r#"{"pushNotificationConfig":{}}"#] {
            let operation = if json.contains("push") { Operation::GetPush } else { Operation::Get };
            assert!(said(operation, 200, json).is_err(), "{json}");
        }
    }

    #[test]
    fn an_answer_is_a_result_or_an_error() {
        let id: Id = serde_json::from_str("\"x\"").unwrap();
        fn answer(status: u16, json: &str) -> HttpAnswer<'_> {
            HttpAnswer { agent: Dialect::V1, operation: Some(Operation::Get), status, json }
        }
        let said = |status, json: &str| to_json_rpc(&id, answer(status, json)).unwrap();
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
        assert!(to_json_rpc(&id, answer(200, "{")).is_err());
    }
}
