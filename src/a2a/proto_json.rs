//! HTTP+JSON of A2A 0.3: the ProtoJSON of its protobuf file, as the official SDKs take and send it.
//!
//! It is a third form of the same content, besides JSON-RPC of 0.3 and that of 1.0: `content` in place of `parts`,
//! kinds as names of members, states and roles as in 1.0, resource names of push configurations. Servers refuse
//! members that the protobuf file does not have, such as `referenceTaskIds`: these are left out.
//! Responses may also have the names of the protobuf file itself (`context_id`). Paths are in `route`, the
//! conversion from and to JSON-RPC of 0.3 in `translate::http_json`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use memchr::memmem;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::decode;
use super::dialect::Dialect;
use super::encode::{HistoryOut, LegacyForm, LegacyParts, to_json};
use super::error::{AgentError, ErrorKind};
use super::lenient::{LenientInteger, LenientObject, LenientString, MAX_DEPTH, RawObject, depth_within};
use super::model::{Artifact, Message, Part, Role, StreamResponse, Task, TaskHistory, TaskState, TaskStatus};
use super::operation::PathSegmentError;
use super::push::{PushNotificationConfig, PushOut, TaskPushNotificationConfig as RegisteredPush};

/// `SendMessageRequest` of the protobuf file.
#[derive(Serialize)]
pub(super) struct SendMessageRequest<'a> {
    message: ProtoMessage<'a>,
    configuration: SendMessageConfiguration<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

/// `SendMessageConfiguration` of the protobuf file.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendMessageConfiguration<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) push_notification: Option<PushOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) history_length: Option<u32>,
    /// Servers of this binding do not wait unless they are asked to.
    pub(super) blocking: bool,
}

impl<'a> SendMessageRequest<'a> {
    pub(super) fn new(
        message: &'a Message,
        configuration: SendMessageConfiguration<'a>,
        metadata: Option<&'a RawValue>,
    ) -> Self {
        Self { message: ProtoMessage(message), configuration, metadata }
    }
}

struct ProtoMessage<'a>(&'a Message);

impl Serialize for ProtoMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(message) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messageId", message.message_id.as_deref().unwrap_or_default())?;
        for (name, id) in [("contextId", &message.context_id), ("taskId", &message.task_id)] {
            if let Some(id) = id {
                map.serialize_entry(name, id)?;
            }
        }
        let role = match message.role {
            Role::User => "ROLE_USER",
            Role::Agent => "ROLE_AGENT",
        };
        map.serialize_entry("role", role)?;
        map.serialize_entry("content", &LegacyParts { parts: &message.parts, form: LegacyForm::Proto })?;
        if let Some(metadata) = &message.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        if !message.extensions.is_empty() {
            map.serialize_entry("extensions", &message.extensions)?;
        }
        map.end()
    }
}

/// Encodes the body of a request that sends a message, and waits for the task to end or to ask.
pub(super) fn send(message: &Message, accepted_output_modes: &[String]) -> Vec<u8> {
    let configuration = SendMessageConfiguration {
        accepted_output_modes,
        blocking: true,
        ..SendMessageConfiguration::default()
    };
    to_json(&SendMessageRequest::new(message, configuration, None), 512)
}

/// Encodes the body of a request that registers a webhook of the gateway.
pub(super) fn set_push(task_id: &str, webhook: &PushNotificationConfig<'_>) -> Vec<u8> {
    let config = PushOut::of_gateway(webhook, Dialect::V0_3);
    register_push(task_id, webhook.id, config)
}

/// Encodes the body of a request that registers a webhook under this id.
pub(super) fn register_push(task_id: &str, config_id: &str, config: PushOut<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CreateTaskPushNotificationConfigRequest<'a> {
        parent: &'a str,
        config_id: &'a str,
        config: TaskPushNotificationConfig<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TaskPushNotificationConfig<'a> {
        name: &'a str,
        push_notification_config: PushOut<'a>,
    }
    let parent = format!("tasks/{task_id}");
    let name = format!("{parent}/pushNotificationConfigs/{config_id}");
    let config = TaskPushNotificationConfig { name: &name, push_notification_config: config };
    to_json(&CreateTaskPushNotificationConfigRequest { parent: &parent, config_id, config }, 512)
}

/// Encodes a request of gRPC about a resource: a task, or a push configuration of it.
///
/// # Errors
///
/// [`PathSegmentError`] if an id would end the name of its resource.
pub(super) fn named(
    member: &str,
    name: &ResourceName<'_>,
    history: Option<u32>,
) -> Result<Vec<u8>, PathSegmentError> {
    let ResourceName { task_id, config_id } = *name;
    if [Some(task_id), config_id].into_iter().flatten().any(|id| id.is_empty() || id.contains('/')) {
        return Err(PathSegmentError);
    }
    let config = config_id.map(|id| format!("/pushNotificationConfigs/{id}")).unwrap_or_default();
    let mut map = serde_json::Map::new();
    map.insert(member.to_owned(), format!("tasks/{task_id}{config}").into());
    map.extend(history.map(|length| ("historyLength".to_owned(), length.into())));
    Ok(to_json(&map, 64 + task_id.len()))
}

/// The resource of a request of gRPC.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceName<'a> {
    pub(super) task_id: &'a str,
    /// The push configuration of the task; `None`: the task itself.
    pub(super) config_id: Option<&'a str>,
}

/// Encodes a result or an event; a task alone if `is_bare`. `None` if it has no form here.
pub(super) fn encode_event(event: &StreamResponse, is_bare: bool) -> Option<Vec<u8>> {
    Some(match event {
        StreamResponse::Task(task) => {
            let history = task.history.messages();
            let task = ProtoTask::new(task, &history);
            if is_bare { to_json(&task, 512) } else { to_json(&Payload::Task(task), 512) }
        }
        _ if is_bare => return None,
        StreamResponse::Message(message) => to_json(&Payload::Message(ProtoMessage(message)), 512),
        StreamResponse::Status { task_id, context_id, status, last, metadata } => {
            let update = ProtoStatusUpdate {
                task_id: task_id.as_deref(),
                context_id: context_id.as_deref(),
                status: ProtoStatus::new(status),
                last: *last,
                metadata: metadata.as_deref(),
            };
            to_json(&Payload::StatusUpdate(update), 512)
        }
        StreamResponse::Artifact { task_id, context_id, artifact, append, last_chunk, metadata } => {
            let update = ProtoArtifactUpdate {
                task_id: task_id.as_deref(),
                context_id: context_id.as_deref(),
                artifact: ProtoArtifact::new(artifact),
                append: *append,
                last_chunk: *last_chunk,
                metadata: metadata.as_deref(),
            };
            to_json(&Payload::ArtifactUpdate(update), 512)
        }
        StreamResponse::Unknown => return None,
    })
}

/// `SendMessageResponse` and `StreamResponse` of the protobuf file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Payload<'a> {
    Task(ProtoTask<'a>),
    Message(ProtoMessage<'a>),
    StatusUpdate(ProtoStatusUpdate<'a>),
    ArtifactUpdate(ProtoArtifactUpdate<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProtoTask<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    status: ProtoStatus<'a>,
    artifacts: Vec<ProtoArtifact<'a>>,
    history: Vec<ProtoMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> ProtoTask<'a> {
    fn new(task: &'a Task, history: &'a [Message]) -> Self {
        Self {
            id: &task.id,
            context_id: task.context_id.as_deref(),
            status: ProtoStatus::new(&task.status),
            artifacts: task.artifacts.iter().map(ProtoArtifact::new).collect(),
            history: history.iter().map(ProtoMessage).collect(),
            metadata: task.metadata.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct ProtoStatus<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ProtoMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Cow<'a, str>>,
}

impl<'a> ProtoStatus<'a> {
    fn new(status: &'a TaskStatus) -> Self {
        let state = match status.state {
            TaskState::Submitted => "TASK_STATE_SUBMITTED",
            TaskState::Working => "TASK_STATE_WORKING",
            TaskState::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            TaskState::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
            TaskState::Completed => "TASK_STATE_COMPLETED",
            TaskState::Failed => "TASK_STATE_FAILED",
            // With two letters: 1.0 has one.
            TaskState::Canceled => "TASK_STATE_CANCELLED",
            TaskState::Rejected => "TASK_STATE_REJECTED",
            TaskState::Unknown => "TASK_STATE_UNSPECIFIED",
        };
        Self {
            state,
            message: status.message.as_deref().map(ProtoMessage),
            timestamp: status.timestamp.as_deref().map(with_zone),
        }
    }
}

/// Returns a time with its zone: without one it means UTC, and protobuf requires one.
fn with_zone(timestamp: &str) -> Cow<'_, str> {
    match timestamp.split_once('T') {
        Some((_, time)) if !time.contains(['Z', 'z', '+', '-']) => Cow::Owned(format!("{timestamp}Z")),
        Some(_) | None => Cow::Borrowed(timestamp),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProtoArtifact<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: LegacyParts<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> ProtoArtifact<'a> {
    fn new(artifact: &'a Artifact) -> Self {
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: LegacyParts { parts: &artifact.parts, form: LegacyForm::Proto },
            extensions: &artifact.extensions,
            metadata: artifact.metadata.as_deref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProtoStatusUpdate<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    status: ProtoStatus<'a>,
    #[serde(rename = "final")]
    last: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProtoArtifactUpdate<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    artifact: ProtoArtifact<'a>,
    append: bool,
    last_chunk: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

/// `TaskPushNotificationConfig` of the protobuf file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProtoPush<'a> {
    name: String,
    push_notification_config: PushOut<'a>,
}

impl<'a> ProtoPush<'a> {
    fn new(push: &'a RegisteredPush) -> Self {
        let task = push.task_id.as_deref().unwrap_or_default();
        // An agent that is given no id uses that of the task; one of 0.1 has none.
        let config = push.config.id.as_deref().filter(|id| !id.is_empty()).unwrap_or(task);
        Self {
            name: format!("tasks/{task}/pushNotificationConfigs/{config}"),
            push_notification_config: PushOut::new(&push.config, Dialect::V0_3),
        }
    }
}

/// Encodes a push configuration with its task.
pub(super) fn encode_push(push: &RegisteredPush) -> Vec<u8> {
    to_json(&ProtoPush::new(push), 256)
}

/// Encodes a list of them.
pub(super) fn encode_pushes(pushes: &[RegisteredPush]) -> Vec<u8> {
    #[derive(Serialize)]
    struct ListTaskPushNotificationConfigResponse<'a> {
        configs: Vec<ProtoPush<'a>>,
    }
    to_json(
        &ListTaskPushNotificationConfigResponse { configs: pushes.iter().map(ProtoPush::new).collect() },
        256,
    )
}

/// Encodes a card of 0.3: only its security has another form. `None` if it is no card.
pub(super) fn encode_card(card: &str) -> Option<Vec<u8>> {
    let mut card = crate::jsonrpc::object::RawObject::read(card)?;
    if let Some(schemes) = card.find("securitySchemes") {
        let schemes: BTreeMap<String, Map<String, Value>> = serde_json::from_str(schemes.get()).ok()?;
        let schemes = schemes.into_iter().filter_map(|(name, scheme)| Some((name, proto_scheme(scheme)?)));
        card.insert_or_replace("securitySchemes", &schemes.collect::<Map<_, _>>());
    }
    if let Some(security) = card.find("security") {
        let security: Vec<BTreeMap<String, Vec<String>>> = serde_json::from_str(security.get()).ok()?;
        let alternatives = security.into_iter().map(|alternative| {
            let schemes = alternative.into_iter().map(|(name, scopes)| (name, json!({ "list": scopes })));
            json!({ "schemes": schemes.collect::<Map<_, _>>() })
        });
        card.insert_or_replace("security", &alternatives.collect::<Vec<_>>());
    }
    Some(card.written().get().as_bytes().to_vec())
}

/// Returns a security scheme in the form of the protobuf file; `None` if its type is unknown.
fn proto_scheme(mut scheme: Map<String, Value>) -> Option<Value> {
    let kind = scheme.remove("type")?;
    let name = match kind.as_str()? {
        "apiKey" => {
            if let Some(location) = scheme.remove("in") {
                scheme.insert("location".to_owned(), location);
            }
            "apiKeySecurityScheme"
        }
        "http" => "httpAuthSecurityScheme",
        "oauth2" => "oauth2SecurityScheme",
        "openIdConnect" => "openIdConnectSecurityScheme",
        "mutualTLS" => "mtlsSecurityScheme",
        _ => return None,
    };
    Some(json!({ name: scheme }))
}

/// Returns the task in the resource name of a push configuration.
pub(super) fn task_of_push(name: &str) -> Option<&str> {
    let (task, _) = name.strip_prefix("tasks/")?.split_once("/pushNotificationConfigs/")?;
    Some(task).filter(|task| !task.is_empty())
}

/// Decodes an event of a stream, or a response that is a task or a message.
///
/// # Errors
///
/// [`AgentError`] if it is an error, or not an object.
pub(super) fn event(json: &[u8]) -> Result<StreamResponse, AgentError> {
    let json = with_json_names(json)?;
    match decode::plain(&json, Dialect::V0_3)?.take_event()? {
        StreamResponse::Unknown => match BareError::read(&json).and_then(|error| error.refused(200)) {
            Some(error) => Err(error),
            None => Ok(StreamResponse::Unknown),
        },
        event => Ok(canonical(event)),
    }
}

/// Decodes an error response with this status; `None` if it is not from the agent, or says no more than the
/// status.
pub(super) fn refusal(json: &[u8], status: u16) -> Option<AgentError> {
    let own = BareError::read(json).and_then(|error| error.refused(status));
    own.or_else(|| decode::refusal(json, status))
}

/// Returns the words of an agent in an error response with this status, without their meaning.
pub(super) fn error_text(json: &[u8]) -> Option<String> {
    BareError::read(json)?.message.filled()
}

/// Returns the event with parts as in the other forms.
fn canonical(mut event: StreamResponse) -> StreamResponse {
    let each = |parts: &mut Vec<Part>| parts.iter_mut().for_each(decode::unwrap_proto_data);
    match &mut event {
        StreamResponse::Task(task) => {
            task.status.message.iter_mut().for_each(|message| each(&mut message.parts));
            task.artifacts.iter_mut().for_each(|artifact| each(&mut artifact.parts));
            if task.history.raw().is_some() {
                let mut messages = task.history.messages();
                messages.iter_mut().for_each(|message| each(&mut message.parts));
                task.history = TaskHistory::new(to_raw_value(&HistoryOut::new(&messages, Dialect::V1)).ok());
            }
        }
        StreamResponse::Message(message) => each(&mut message.parts),
        StreamResponse::Status { status, .. } => {
            status.message.iter_mut().for_each(|message| each(&mut message.parts));
        }
        StreamResponse::Artifact { artifact, .. } => each(&mut artifact.parts),
        StreamResponse::Unknown => {}
    }
    event
}

/// An error of a server of 0.3: the message beside the code of JSON-RPC (JavaScript), beside the name of a class
/// (Java), or alone (Python).
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct BareError {
    code: LenientInteger,
    error: LenientString,
    message: LenientString,
}

impl BareError {
    fn read(json: &[u8]) -> Option<Self> {
        if !depth_within(json, MAX_DEPTH) {
            return None;
        }
        let LenientObject(error) = serde_json::from_slice::<LenientObject<Self>>(json).ok()?;
        error.filter(|error| error.message.0.is_some())
    }

    /// Returns the error with this HTTP status, if it says more than the status.
    fn refused(self, status: u16) -> Option<AgentError> {
        let message = self.message.0.unwrap_or_default();
        // Codes of JSON-RPC; proxies repeat the status.
        let own = self.code.0.filter(|code| *code < 0);
        let (code, kind) = match (own, self.error.0.as_deref().and_then(kind_of_class)) {
            (Some(code), _) => (code, ErrorKind::of(code, Dialect::V0_3)),
            (None, Some(kind)) => (status.into(), kind),
            (None, None) => (status.into(), kind_of_status(status, &message)?),
        };
        Some(AgentError::from_code(kind, code, &message))
    }
}

/// Returns the meaning of the name of a class: `io.a2a.spec.TaskNotFoundError`.
fn kind_of_class(name: &str) -> Option<ErrorKind> {
    let class = name.rsplit(['.', '$']).next().unwrap_or_default();
    Some(match class.split_once("Error")?.0 {
        "TaskNotFound" => ErrorKind::TaskNotFound,
        "TaskNotCancelable" => ErrorKind::TaskNotCancelable,
        "PushNotificationNotSupported" => ErrorKind::PushNotSupported,
        "UnsupportedOperation" => ErrorKind::Unsupported,
        "ContentTypeNotSupported" => ErrorKind::ContentType,
        "InvalidAgentResponse" => ErrorKind::InvalidAgentResponse,
        "AuthenticatedExtendedCardNotConfigured" => ErrorKind::ExtendedCard,
        "MethodNotFound" => ErrorKind::MethodNotFound,
        "InvalidParams" => ErrorKind::InvalidParams,
        "InvalidRequest" | "JSONParse" => ErrorKind::InvalidRequest,
        "Internal" => ErrorKind::Internal,
        _ => return None,
    })
}

/// Returns the meaning of a status beside the words of the agent, as the official SDK for Python maps them. Proxies
/// write such messages too: a 404 counts only if its words are about a task or a card, and a 5xx does not.
fn kind_of_status(status: u16, message: &str) -> Option<ErrorKind> {
    let is_about = |word: &str| message.to_ascii_lowercase().contains(word);
    match status {
        400 | 422 => Some(ErrorKind::InvalidParams),
        404 if is_about("task") => Some(ErrorKind::TaskNotFound),
        404 if is_about("card") => Some(ErrorKind::ExtendedCard),
        409 => Some(ErrorKind::TaskNotCancelable),
        415 => Some(ErrorKind::ContentType),
        501 if is_about("push") => Some(ErrorKind::PushNotSupported),
        501 => Some(ErrorKind::Unsupported),
        _ => None,
    }
}

/// Names of the protobuf file in quotes, and those of its JSON in their place.
const PROTO_NAMES: [(&str, &str); 13] = [
    (r#""msg""#, "message"),
    (r#""update""#, "message"),
    (r#""status_update""#, "statusUpdate"),
    (r#""artifact_update""#, "artifactUpdate"),
    (r#""task_id""#, "taskId"),
    (r#""context_id""#, "contextId"),
    (r#""message_id""#, "messageId"),
    (r#""artifact_id""#, "artifactId"),
    (r#""last_chunk""#, "lastChunk"),
    (r#""file_with_uri""#, "fileWithUri"),
    (r#""file_with_bytes""#, "fileWithBytes"),
    (r#""mime_type""#, "mimeType"),
    (r#""push_notification_config""#, "pushNotificationConfig"),
];

/// The number of objects and lists around the innermost of these names: the file of a part of a message of a
/// status of an event, or of a history.
const NAMES_DEPTH: usize = 8;

/// Returns the text with the names of JSON, if it has those of the protobuf file: servers may choose.
///
/// # Errors
///
/// [`AgentError`] if it is nested too deeply to be read.
pub(super) fn with_json_names(json: &[u8]) -> Result<Cow<'_, [u8]>, AgentError> {
    if !depth_within(json, MAX_DEPTH) {
        return Err(AgentError::invalid_response("nested too deeply"));
    }
    // A response without such a name, as of every official SDK, is not read twice.
    let has = |quoted: &str| memmem::find(json, quoted.as_bytes()).is_some();
    if !PROTO_NAMES.iter().any(|(quoted, _)| has(quoted)) {
        return Ok(Cow::Borrowed(json));
    }
    Ok(match serde_json::from_slice::<&RawValue>(json) {
        Ok(value) => Cow::Owned(to_json(&Renamed { value, depth: NAMES_DEPTH }, json.len())),
        // The reader has the words for it.
        Err(_) => Cow::Borrowed(json),
    })
}

/// A value with the names of JSON, down to this depth; free content stays as it is.
struct Renamed<'a> {
    value: &'a RawValue,
    depth: usize,
}

impl Serialize for Renamed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value, depth } = *self;
        let Some(depth) = depth.checked_sub(1) else { return value.serialize(serializer) };
        if value.get().starts_with('{') {
            let members = RawObject::read(value);
            let mut map = serializer.serialize_map(None)?;
            for (name, value) in members.iter() {
                let known = PROTO_NAMES.iter().find(|(quoted, _)| quoted.trim_matches('"') == name);
                let name = match known {
                    // The member is there under both names.
                    Some((_, json)) if members.get(json).is_some() => continue,
                    Some((_, json)) => json,
                    None => name,
                };
                match name {
                    "metadata" | "data" => map.serialize_entry(name, value)?,
                    _ => map.serialize_entry(name, &Self { value, depth })?,
                }
            }
            return map.end();
        }
        let list =
            value.get().starts_with('[').then(|| serde_json::from_str::<Vec<&RawValue>>(value.get()).ok());
        let Some(list) = list.flatten() else { return value.serialize(serializer) };
        let mut written = serializer.serialize_seq(Some(list.len()))?;
        for value in list {
            written.serialize_element(&Self { value, depth })?;
        }
        written.end()
    }
}
