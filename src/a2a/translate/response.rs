//! An agent's response in any version: decoded once, its ids replaced, and encoded for the client.
//!
//! A stream is translated event by event, with a state for the members that the client's version
//! omits or adds: 0.1 identifies artifacts by their index and has neither tasks nor messages in
//! streams; 1.0 requires a task first and the conversation in every update. Errors are in
//! `a2a::error`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::decode::{PushResponse, result, take_descriptions};
use super::super::dialect::Dialect;
use super::super::encode::{ArtifactOut, HistoryOut, MessageOut, StatusOut, TaskOut, context, kind, to_json};
use super::super::error::AgentError;
use super::super::lenient::{LenientList, LenientObject};
use super::super::model::{Artifact, Message, StreamResponse, Task, TaskState, TaskStatus};
use super::super::operation::Operation;
use super::super::push::{PushIn, PushOut, RegisteredOut, TaskPushNotificationConfig};
use super::request::{ClientRequest, message_ids};
use super::rewrite_ids::IdKind;

/// An agent's response, or one event of its stream.
pub struct AgentResponse(pub(super) ResponseBody);

/// The kind of a response, with its content.
pub(super) enum ResponseBody {
    /// The messages are those of a task's history.
    Event(Box<StreamResponse>, Vec<Message>),
    Push(TaskPushNotificationConfig),
    Pushes(Vec<TaskPushNotificationConfig>),
    Nothing,
}

#[derive(Deserialize)]
struct PushList {
    #[serde(default)]
    result: LenientList<LenientObject<PushIn>>,
}

#[derive(Deserialize)]
struct PushPage {
    #[serde(default)]
    result: LenientObject<ConfigList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigList {
    configs: LenientList<LenientObject<PushIn>>,
}

impl AgentResponse {
    /// Decodes a JSON-RPC response object: a response, or the data of one event of a stream.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request, or responded with another kind of result.
    pub fn read(from: Dialect, operation: Operation, json: &[u8]) -> Result<Self, AgentError> {
        match operation {
            Operation::Send | Operation::Stream | Operation::Subscribe => match from.event(json)? {
                StreamResponse::Unknown if operation.is_stream() => Ok(Self(ResponseBody::Nothing)),
                StreamResponse::Unknown => {
                    Err(AgentError::invalid_response("the answer holds neither a task nor a message"))
                }
                event => Ok(Self::event(event, from)),
            },
            Operation::Get | Operation::Cancel => {
                Ok(Self::event(StreamResponse::Task(from.task(json)?), from))
            }
            Operation::SetPush | Operation::GetPush => push(from, json),
            Operation::ListPush => pushes(from, json),
            Operation::DeletePush => result(json, from).map(|_| Self(ResponseBody::Nothing)),
            Operation::List | Operation::ExtendedCard => {
                Err(AgentError::invalid_response("this answer is not translated"))
            }
        }
    }

    /// Decodes a push configuration without an envelope.
    pub(super) fn of_push(json: &[u8]) -> Result<Self, AgentError> {
        let LenientObject(push) = serde_json::from_slice(json).map_err(|error| broken(&error))?;
        registered(push)
    }

    /// Decodes a list of push configurations without an envelope.
    pub(super) fn of_pushes(json: &[u8]) -> Result<Self, AgentError> {
        let LenientObject::<ConfigList>(list) =
            serde_json::from_slice(json).map_err(|error| broken(&error))?;
        Ok(all_registered(list.unwrap_or_default().configs))
    }

    /// Returns true if a stream ends with this event: the task has ended, or the agent marks the
    /// event as the last. An interrupted task may continue, and the task at the beginning of a
    /// stream may still wait for the message that is being sent.
    pub fn is_final(&self) -> bool {
        match &self.0 {
            ResponseBody::Event(event, _) => match event.as_ref() {
                StreamResponse::Message(_) => true,
                StreamResponse::Task(task) => task.status.state.is_terminal(),
                StreamResponse::Status { status, last, .. } => *last || status.state.is_terminal(),
                StreamResponse::Artifact { .. } | StreamResponse::Unknown => false,
            },
            ResponseBody::Push(_) | ResponseBody::Pushes(_) | ResponseBody::Nothing => false,
        }
    }

    /// Passes every id of a task or a conversation to `exchange`, which may replace it.
    ///
    /// # Errors
    ///
    /// The first error of `exchange`.
    pub fn ids_mut<R>(
        &mut self,
        mut exchange: impl FnMut(IdKind, &mut String) -> Result<(), R>,
    ) -> Result<(), R> {
        let exchange = &mut exchange;
        match &mut self.0 {
            ResponseBody::Event(event, history) => {
                event_ids(event, exchange)?;
                history.iter_mut().try_for_each(|message| message_ids(message, exchange))
            }
            ResponseBody::Push(push) => push.task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id)),
            ResponseBody::Pushes(pushes) => {
                let mut ids = pushes.iter_mut().filter_map(|push| push.task_id.as_mut());
                ids.try_for_each(|id| exchange(IdKind::Task, id))
            }
            ResponseBody::Nothing => Ok(()),
        }
    }

    pub(super) fn event(mut event: StreamResponse, from: Dialect) -> Self {
        let mut history = Vec::new();
        let mut described = |message: &mut Message| take_descriptions(&mut message.parts, from);
        match &mut event {
            StreamResponse::Task(task) => {
                history = std::mem::take(&mut task.history).messages();
                history.iter_mut().for_each(&mut described);
                task.artifacts.iter_mut().for_each(|artifact| take_descriptions(&mut artifact.parts, from));
                normalize(&mut task.status, from);
            }
            StreamResponse::Message(message) => described(message),
            StreamResponse::Status { status, .. } => normalize(status, from),
            StreamResponse::Artifact { artifact, .. } => take_descriptions(&mut artifact.parts, from),
            StreamResponse::Unknown => {}
        }
        Self(ResponseBody::Event(Box::new(event), history))
    }
}

/// Encodes an event as A2A 1.0 JSON, for [`read_event`]; `None` if it has no form.
pub(crate) fn event_json(event: StreamResponse) -> Option<Vec<u8>> {
    let event = AgentResponse::event(event, Dialect::V1);
    ResponseTranslator::without_request(Dialect::V1).events(event).pop()
}

/// Decodes the output of [`event_json`].
///
/// # Errors
///
/// [`AgentError`] if it is no event.
pub(crate) fn read_event(json: &[u8]) -> Result<StreamResponse, AgentError> {
    // In the envelope that agents use, so that there is one reader.
    Dialect::V1.event(&[br#"{"result":"#, json, b"}"].concat())
}

/// Returns true if a status is the last one for an older client: the task has ended, or waits for
/// the client. A client that waits for an authorization by another party gets further events on the
/// same stream.
pub(super) fn is_over(status: &TaskStatus) -> bool {
    let waits_elsewhere = status.state == TaskState::AuthRequired;
    (status.state.is_terminal() || status.state.is_interrupted()) && !waits_elsewhere
}

fn normalize(status: &mut TaskStatus, from: Dialect) {
    if let Some(message) = &mut status.message {
        take_descriptions(&mut message.parts, from);
    }
    if let Some(timestamp) = &mut status.timestamp {
        // Without a zone it means UTC, and readers of 1.0 reject it.
        let (day, time) = timestamp.split_once('T').unwrap_or_default();
        if !day.is_empty() && !time.contains(['Z', 'z', '+', '-']) {
            timestamp.push('Z');
        }
    }
}

fn event_ids<R>(
    event: &mut StreamResponse,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    match event {
        StreamResponse::Task(task) => {
            exchange(IdKind::Task, &mut task.id)?;
            task.context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(&mut task.status, exchange)
        }
        StreamResponse::Message(message) => message_ids(message, exchange),
        StreamResponse::Status { task_id, context_id, status, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))?;
            status_ids(status, exchange)
        }
        StreamResponse::Artifact { task_id, context_id, .. } => {
            task_id.iter_mut().try_for_each(|id| exchange(IdKind::Task, id))?;
            context_id.iter_mut().try_for_each(|id| exchange(IdKind::Context, id))
        }
        StreamResponse::Unknown => Ok(()),
    }
}

fn status_ids<R>(
    status: &mut TaskStatus,
    exchange: &mut impl FnMut(IdKind, &mut String) -> Result<(), R>,
) -> Result<(), R> {
    status.message.iter_mut().try_for_each(|message| message_ids(message, exchange))
}

fn push(from: Dialect, json: &[u8]) -> Result<AgentResponse, AgentError> {
    result(json, from)?;
    let pushed: PushResponse = serde_json::from_slice(json).map_err(|error| broken(&error))?;
    registered(pushed.result.0)
}

fn registered(push: Option<PushIn>) -> Result<AgentResponse, AgentError> {
    push.and_then(PushIn::registered)
        .map(|registered| AgentResponse(ResponseBody::Push(registered)))
        .ok_or_else(|| AgentError::invalid_response("the answer holds no webhook"))
}

fn pushes(from: Dialect, json: &[u8]) -> Result<AgentResponse, AgentError> {
    result(json, from)?;
    let list = match from {
        Dialect::V0_1 | Dialect::V0_3 => {
            serde_json::from_slice::<PushList>(json).map_err(|error| broken(&error))?.result
        }
        Dialect::V1 => {
            let page: PushPage = serde_json::from_slice(json).map_err(|error| broken(&error))?;
            page.result.0.unwrap_or_default().configs
        }
    };
    Ok(all_registered(list))
}

fn all_registered(list: LenientList<LenientObject<PushIn>>) -> AgentResponse {
    let registered = list.items().filter_map(|push| push.0.and_then(PushIn::registered));
    AgentResponse(ResponseBody::Pushes(registered.collect()))
}

fn broken(error: &serde_json::Error) -> AgentError {
    AgentError::invalid_response(&format!("not JSON: {error}"))
}

/// Maximum number of artifact indexes of one task that are kept for a client of 0.1; further
/// artifacts share the last.
const MAX_PLACES: usize = 1024;

/// The translator of the responses to one request.
pub struct ResponseTranslator {
    to: Dialect,
    says: bool,
    history: Option<u32>,
    task_id: Option<String>,
    context_id: Option<String>,
    /// True if the client has received a first event.
    begun: bool,
    /// The ids of the artifacts by index, for 0.1.
    places: Vec<String>,
}

/// `{"task":…}` and the other wrappers.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultWrapper<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_update: Option<UpdateOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_update: Option<UpdateOut<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<ArtifactOut<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    append: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    last_chunk: bool,
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    last: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct EncodedConfigs<'a> {
    configs: Vec<RegisteredOut<'a>>,
}

impl ResponseTranslator {
    /// Creates the translator of a request, which is in the client's form.
    pub fn new(to: Dialect, request: &ClientRequest) -> Self {
        let named = |id: Option<&str>| id.map(str::to_owned);
        Self {
            to,
            says: request.operation().sends_message(),
            history: request.history,
            task_id: named(request.task_id()),
            context_id: named(request.context_id()),
            // A continued task must not begin with a task event that lacks its artifacts.
            begun: request.task_id().is_some(),
            places: Vec::new(),
        }
    }

    /// Creates the translator of single responses, for a reader that knows the request itself.
    pub(super) fn without_request(to: Dialect) -> Self {
        Self {
            to,
            says: false,
            history: None,
            task_id: None,
            context_id: None,
            begun: true,
            places: Vec::new(),
        }
    }

    /// Encodes a response, which may be an event of a stream.
    pub(super) fn event_or_result(&mut self, answer: AgentResponse) -> Result<Vec<u8>, AgentError> {
        match answer.0 {
            body @ ResponseBody::Event(..) => {
                let mut events = self.events(AgentResponse(body));
                events.pop().ok_or_else(|| AgentError::invalid_response("an event without a counterpart"))
            }
            body => self.result(AgentResponse(body)),
        }
    }

    /// Sets the client's id of the task or the conversation, for responses of the agent without
    /// one.
    pub fn names(&mut self, kind: IdKind, id: String) {
        match kind {
            IdKind::Task => self.task_id = Some(id),
            IdKind::Context => self.context_id = Some(id),
            IdKind::Reference => {}
        }
    }

    /// Encodes the result of a plain call as JSON.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if an update came in place of a result.
    pub fn result(&mut self, answer: AgentResponse) -> Result<Vec<u8>, AgentError> {
        match answer.0 {
            ResponseBody::Event(event, history) => match *event {
                StreamResponse::Task(task) => Ok(self.task(&self.bounded(task), self.cut(&history))),
                StreamResponse::Message(message) => Ok(self.message(message)),
                StreamResponse::Status { .. } | StreamResponse::Artifact { .. } | StreamResponse::Unknown => {
                    Err(AgentError::invalid_response("an update in place of an answer"))
                }
            },
            ResponseBody::Push(push) => Ok(json(&self.push(&push))),
            ResponseBody::Pushes(pushes) => {
                let pushes: Vec<_> = pushes.iter().map(|push| self.push(push)).collect();
                Ok(match self.to {
                    Dialect::V0_1 | Dialect::V0_3 => json(&pushes),
                    Dialect::V1 => json(&EncodedConfigs { configs: pushes }),
                })
            }
            ResponseBody::Nothing => Ok(b"null".to_vec()),
        }
    }

    /// Encodes an event as events of the client's version, as JSON; none if the version cannot
    /// express it.
    pub fn events(&mut self, answer: AgentResponse) -> Vec<Vec<u8>> {
        let ResponseBody::Event(event, history) = answer.0 else { return Vec::new() };
        match *event {
            StreamResponse::Task(task) => {
                let task = self.bounded(task);
                self.remember_context(Some(&task.id), task.context_id.as_deref());
                self.task_event(&task, &history)
            }
            StreamResponse::Message(message) => self.message_event(message),
            StreamResponse::Status { task_id, context_id, status, last, metadata } => {
                self.remember_context(task_id.as_deref(), context_id.as_deref());
                vec![self.status_event(status, last, metadata)]
            }
            StreamResponse::Artifact { task_id, context_id, artifact, append, last_chunk, metadata } => {
                self.remember_context(task_id.as_deref(), context_id.as_deref());
                vec![self.artifact_event(&artifact, append, last_chunk, metadata.as_deref())]
            }
            StreamResponse::Unknown => Vec::new(),
        }
    }

    fn remember_context(&mut self, task_id: Option<&str>, context_id: Option<&str>) {
        for (known, given) in [(&mut self.task_id, task_id), (&mut self.context_id, context_id)] {
            if given.is_some() && known.as_deref() != given {
                *known = given.map(str::to_owned);
            }
        }
    }

    /// Returns the task with its conversation, also if the agent did not name it.
    fn bounded(&self, mut task: Task) -> Task {
        task.context_id = task.context_id.or_else(|| self.context_id.clone());
        task
    }

    /// Returns as much of the history as the client requested: not every agent supports the
    /// parameter.
    fn cut<'a>(&self, history: &'a [Message]) -> &'a [Message] {
        let wanted = self.history.map_or(usize::MAX, |wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        history.get(history.len().saturating_sub(wanted)..).unwrap_or_default()
    }

    fn task(&self, task: &Task, history: &[Message]) -> Vec<u8> {
        let task = TaskOut::new(task, HistoryOut::new(history, self.to), self.to);
        match self.to {
            Dialect::V1 if self.says => json(&ResultWrapper { task: Some(task), ..ResultWrapper::default() }),
            Dialect::V0_1 | Dialect::V0_3 | Dialect::V1 => json(&task),
        }
    }

    fn message(&self, message: Message) -> Vec<u8> {
        let written = |message| MessageOut::new(message, self.to);
        match self.to {
            // In 0.1 every response is a task.
            Dialect::V0_1 => self.task(&self.as_task(message), &[]),
            Dialect::V0_3 => json(&written(&message)),
            Dialect::V1 => {
                json(&ResultWrapper { message: Some(written(&message)), ..ResultWrapper::default() })
            }
        }
    }

    /// Converts a message to a completed task with the message as its artifact.
    fn as_task(&self, message: Message) -> Task {
        let artifact = Artifact {
            artifact_id: "0".to_owned(),
            name: None,
            description: None,
            parts: message.parts,
            extensions: message.extensions,
            metadata: message.metadata,
        };
        Task {
            id: self.task_id.clone().or(message.task_id).unwrap_or_default(),
            context_id: self.context_id.clone().or(message.context_id),
            status: TaskStatus { state: TaskState::Completed, message: None, timestamp: None },
            artifacts: vec![artifact],
            history: Default::default(),
            metadata: None,
        }
    }

    fn task_event(&mut self, task: &Task, history: &[Message]) -> Vec<Vec<u8>> {
        self.begun = true;
        let history = self.cut(history);
        match self.to {
            Dialect::V0_1 => {
                let mut events: Vec<_> = task
                    .artifacts
                    .iter()
                    .map(|artifact| self.artifact_event(artifact, false, true, None))
                    .collect();
                events.push(self.status_event(task.status.clone(), false, task.metadata.clone()));
                events
            }
            Dialect::V0_3 => vec![json(&TaskOut::new(task, HistoryOut::new(history, self.to), self.to))],
            Dialect::V1 => {
                let task = TaskOut::new(task, HistoryOut::new(history, self.to), self.to);
                vec![json(&ResultWrapper { task: Some(task), ..ResultWrapper::default() })]
            }
        }
    }

    fn message_event(&mut self, message: Message) -> Vec<Vec<u8>> {
        match self.to {
            Dialect::V0_1 => self.task_event(&self.as_task(message), &[]),
            Dialect::V0_3 | Dialect::V1 => vec![self.message(message)],
        }
    }

    fn status_event(&mut self, status: TaskStatus, last: bool, metadata: Option<Box<RawValue>>) -> Vec<u8> {
        if self.to == Dialect::V1 && !std::mem::replace(&mut self.begun, true) {
            let task = Task {
                id: self.task_id.clone().unwrap_or_default(),
                context_id: self.context_id.clone(),
                status,
                artifacts: Vec::new(),
                history: Default::default(),
                metadata,
            };
            return self.task_event(&task, &[]).pop().unwrap_or_default();
        }
        let older = self.to != Dialect::V1;
        let update = UpdateOut {
            status: Some(StatusOut::new(&status, self.to)),
            last: older.then_some(last || is_over(&status)),
            metadata: metadata.as_deref(),
            ..self.update("status-update")
        };
        match self.to {
            Dialect::V0_1 | Dialect::V0_3 => json(&update),
            Dialect::V1 => json(&ResultWrapper { status_update: Some(update), ..ResultWrapper::default() }),
        }
    }

    fn artifact_event(
        &mut self,
        artifact: &Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<&RawValue>,
    ) -> Vec<u8> {
        self.begun = true;
        let place = self.place(&artifact.artifact_id);
        let update = UpdateOut { metadata, ..self.update("artifact-update") };
        match self.to {
            Dialect::V0_1 => {
                let artifact = Some(ArtifactOut::part(artifact, place, append, last_chunk));
                json(&UpdateOut { artifact, ..update })
            }
            Dialect::V0_3 => {
                let artifact = Some(ArtifactOut::new(artifact, place, self.to));
                json(&UpdateOut { artifact, append, last_chunk, ..update })
            }
            Dialect::V1 => {
                let artifact = Some(ArtifactOut::new(artifact, place, self.to));
                let artifact_update = Some(UpdateOut { artifact, append, last_chunk, ..update });
                json(&ResultWrapper { artifact_update, ..ResultWrapper::default() })
            }
        }
    }

    fn update(&self, word: &'static str) -> UpdateOut<'_> {
        let oldest = self.to == Dialect::V0_1;
        // Required, and not every agent sends them.
        UpdateOut {
            kind: kind(self.to, word),
            id: oldest.then(|| self.task_id.as_deref().unwrap_or_default()),
            task_id: (!oldest).then(|| self.task_id.as_deref().unwrap_or_default()),
            context_id: context(Some(self.context_id.as_deref().unwrap_or_default()), self.to).0,
            ..UpdateOut::default()
        }
    }

    /// Returns the index of an artifact within its task, which is its key in 0.1.
    fn place(&mut self, artifact_id: &str) -> usize {
        if self.to != Dialect::V0_1 {
            return 0;
        }
        let known = self.places.iter().position(|known| known == artifact_id);
        known.unwrap_or_else(|| {
            if self.places.len() < MAX_PLACES {
                self.places.push(artifact_id.to_owned());
            }
            self.places.len() - 1
        })
    }

    fn push<'a>(&'a self, push: &'a TaskPushNotificationConfig) -> RegisteredOut<'a> {
        let task_id = push.task_id.as_deref().or(self.task_id.as_deref());
        RegisteredOut::new(task_id, PushOut::new(&push.config, self.to), None, self.to)
    }
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    to_json(value, 128)
}
