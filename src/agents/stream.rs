//! Reads the events of an agent: selects those of our task, and finds its end.
//!
//! Follows `docs/spec/a2a.md §4.3`, rules 1 to 8. See `call` for streams that stop too early.

use std::future::{Future as _, poll_fn};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::drive::{Bearing, EventSender, EventSize, ResponseTo};
use super::endpoints::Endpoints;
use super::grpc::{AgentResponse, ReplyError};
use super::resolved::ResolvedAgent;
use super::rpc::{CallLimits, KnownQuestions};
use super::rpc::{first_refusal, refusal};
use crate::a2a::{
    Content, Fingerprint, Message, Part, PartBody, StreamResponse, Task, TaskState, TaskStatus,
};
use crate::fault::{AgentFailure, TaskDelay};
use crate::quota::AnswerRoom;
use crate::sse::Decoder;
use crate::timing::PooledTimer;
use crate::transport::BodyPieces;

/// The maximum number of events of one stream, and of chunks that end none; a peer must not occupy
/// the gateway without end.
const MOST_EVENTS: usize = 1_000_000;

/// The reason for which reading a stream stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The agent sent its last event.
    Said,
    /// The stream broke off; it is unknown if the work continues.
    Early(AgentFailure),
    /// The agent ended the stream, and not the task.
    Ended,
    /// No bytes came for a while, and the stream is still open.
    Silent,
}

/// The output of a call: the sender of its events, and the room of its responses.
pub(super) struct CallOutput {
    pub(super) outlet: EventSender,
    pub(super) room: AnswerRoom,
}

/// The state of the task while its events are read.
#[derive(Clone)]
pub(super) struct TaskTracker {
    outlet: EventSender,
    /// The room of the response that is read now.
    pub(super) room: AnswerRoom,
    /// Bytes of the event that is sent next.
    bytes: usize,
    /// The task that this call is about, once the agent has named it.
    pub(super) task_id: Option<String>,
    /// The conversation, if the gateway named it: events of 0.1 do not repeat it.
    context_id: Option<String>,
    state: Option<TaskState>,
    heard: usize,
    over: bool,
    asked: KnownQuestions,
    /// The response to the message in the task, if one was sent.
    response: Option<AnswerStream>,
    /// True if the agent has produced output since the question was asked.
    has_made: bool,
    opens: bool,
    is_beside: bool,
    is_judged: bool,
    /// The endpoint that the message was sent to, if its affinity is to be recorded.
    pub(super) home: Option<(Arc<Endpoints>, usize)>,
    /// Set once the agent has ended the stream of the task.
    stall: Option<StalledTask>,
    /// The number of times the task was found to be stalled that are not counted yet.
    stalls: u32,
}

impl TaskTracker {
    pub(super) fn new(output: CallOutput, task_id: Option<String>) -> Self {
        let CallOutput { outlet, room } = output;
        let (context_id, state, asked, response, home) = (None, None, KnownQuestions::default(), None, None);
        let (heard, over, opens, is_beside, is_judged) = (0, false, false, false, false);
        Self {
            outlet,
            room,
            bytes: 0,
            task_id,
            context_id,
            state,
            heard,
            over,
            asked,
            response,
            has_made: false,
            opens,
            is_beside,
            is_judged,
            home,
            stall: None,
            stalls: 0,
        }
    }

    /// Returns the tracker with these known questions.
    pub(super) fn for_task(self, asked: KnownQuestions) -> Self {
        Self { asked, ..self }
    }

    /// Returns the tracker for the response to a message in a task: the answer to this question, or
    /// to none.
    pub(super) fn answering(self, turn: Option<Fingerprint>) -> Self {
        Self { response: Some(AnswerStream { to: ResponseTo { turn }, stage: Stage::Begun }), ..self }
    }

    /// Sets the name of a task that the gateway names in this conversation.
    pub(super) fn set_name(&mut self, task: &str, context: Option<&str>) {
        self.outlet.set_unconfirmed_id(task);
        (self.task_id, self.context_id) = (Some(task.to_owned()), context.map(str::to_owned));
    }

    /// Returns true if the call may be repeated, with another name for its task.
    pub(super) fn may_begin_anew(&self) -> bool {
        self.outlet.clear_unconfirmed_id()
    }

    /// Expects the first response to a message.
    pub(super) fn expect_first_response(&mut self) {
        self.opens = true;
    }

    /// Returns the tracker for a message to a task with a stream that is read elsewhere.
    pub(super) fn ignore_foreign(self) -> Self {
        Self { is_beside: true, ..self }
    }

    /// Returns true if the stream of the task is read elsewhere.
    pub(super) fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// Returns the number of events that were sent.
    pub(super) fn has_events(&self) -> usize {
        self.heard
    }

    /// Returns true if the task need not be polled.
    pub(super) fn may_rest(&self) -> bool {
        self.outlet.is_idle()
    }

    /// Starts the stall timer after the agent has ended its stream: a task that does not change for
    /// this time is stalled.
    pub(super) fn watch_stall(&mut self, after: Duration) {
        self.stall.get_or_insert_with(|| StalledTask::new(after));
    }

    /// Returns the time for which the task may still remain unchanged; `None` if that is over, or
    /// does not matter.
    pub(super) fn until_stalled(&self) -> Option<Duration> {
        self.stall
            .as_ref()
            .filter(|stall| !stall.is_over)
            .map(|stall| stall.after.saturating_sub(stall.since.elapsed()))
    }

    /// Records that the agent reported the state of the task, or is unreachable.
    pub(super) fn set_reached(&self, is_reached: bool) {
        match is_reached {
            true => self.outlet.reached(),
            false => drop(self.outlet.set_delay(Some(TaskDelay::Unreached))),
        }
    }

    /// Takes the number of stalls since the last call.
    pub(super) fn take_stalls(&mut self) -> u32 {
        std::mem::take(&mut self.stalls)
    }

    /// Records an event of a task that may be stalled. Returns true if the task is stalled since
    /// this event.
    fn note_change(&mut self, event: &StreamResponse) -> bool {
        let Some(stall) = &mut self.stall else { return false };
        let was_over = stall.is_over;
        stall.see(event);
        self.outlet.set_delay(stall.is_over.then_some(TaskDelay::Stalled(stall.after)));
        stall.is_over && !was_over
    }

    /// Records that the agent is asked for the state of the task: it need not be asked once more
    /// after that.
    pub(super) fn judging(&mut self) {
        self.is_judged = true;
    }

    /// Records that the agent has responded to the message: a question in its response, or after
    /// it, is another one.
    pub(super) fn response_has_come(&mut self) {
        if let Some(response) = &mut self.response {
            response.stage = Stage::Whole;
        }
    }

    /// Records that the agent has ended the stream of its response. A stream without events was no
    /// response.
    pub(super) fn response_ended(&mut self) {
        match self.heard > 0 {
            true => self.response_has_come(),
            false => self.response_broke_off(),
        }
    }

    /// Records that the response cannot be read to its end.
    pub(super) fn response_broke_off(&mut self) {
        if let Some(response) = &mut self.response {
            response.stage = Stage::BrokenOff;
        }
    }

    /// Returns true if the agent was asked for the state of the task.
    pub(super) fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// Returns true if the last event has been sent.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns true if the agent waits for an authorization that is given elsewhere.
    pub(super) fn awaits_authorization(&self) -> bool {
        self.state == Some(TaskState::AuthRequired)
    }

    /// Returns true unless an event names another task.
    fn is_ours(&self, task_id: Option<&str>) -> bool {
        task_id.zip(self.task_id.as_deref()).is_none_or(|(theirs, ours)| theirs == ours)
    }

    /// Sends an event on if it is ours; returns true if it is the last one. Few may follow before
    /// [`TaskTracker::has_room`].
    pub(super) fn on_event(&mut self, event: impl Into<Box<StreamResponse>>) -> bool {
        self.take_from(event.into(), false)
    }

    /// Does the same for the result of `GetTask`.
    pub(super) fn take_look(&mut self, task: Task) -> bool {
        self.take_from(Box::new(StreamResponse::Task(task)), true)
    }

    /// Waits while too many events are unread.
    pub(super) async fn has_room(&self) {
        self.outlet.has_room().await;
    }

    /// Waits until all events are read.
    pub(super) async fn all_read(&self) {
        self.outlet.all_read().await;
    }

    fn take_from(&mut self, mut event: Box<StreamResponse>, is_look: bool) -> bool {
        // The permit moves with the event, or is dropped with it.
        let size = EventSize { bytes: std::mem::take(&mut self.bytes), permit: self.room.permit.split() };
        let repeat = self.compare(&event);
        if repeat == Repeat::Open {
            return false;
        }
        let is_new = self.heard == 0 || self.task_id.is_none();
        let (task_id, state, last) = observed_ids(&event);
        match (&self.task_id, task_id) {
            (Some(ours), Some(theirs)) if ours != theirs => return false,
            (None, Some(theirs)) => self.task_id = Some(theirs.to_owned()),
            _ => {}
        }
        self.state = state.or(self.state);
        let ends = repeat != Repeat::Answered
            && (last
                || matches!(*event, StreamResponse::Message(_))
                || state.is_some_and(|state| state.is_terminal() || state == TaskState::InputRequired));
        self.heard += 1;
        self.over |= ends;
        if self.note_change(&event) {
            self.stalls += 1;
        }
        if let (Some(task), Some(context)) = (&self.task_id, &self.context_id) {
            name(&mut event, task, context);
        }
        if let Some((endpoints, at)) = self.home.as_ref().filter(|_| is_new) {
            // Before a client learns of the task, and asks for it.
            endpoints.hear(*at, &event);
        }
        let response = self.response.as_ref().filter(|_| repeat == Repeat::Anew).map(|response| response.to);
        self.outlet.push(event, size, Bearing { response, is_look });
        ends
    }

    /// Compares the question of an event with the known one. Agents repeat an answered question at
    /// the head of the stream of the answer, and for as long as they have not begun to work on
    /// that. After any other state, or if the agent asks in its response to the answer, the same
    /// words are another question.
    fn compare(&mut self, event: &StreamResponse) -> Repeat {
        let (task_id, status) = match event {
            StreamResponse::Task(task) => (Some(task.id.as_str()), &task.status),
            StreamResponse::Status { task_id, status, .. } => (task_id.as_deref(), status),
            StreamResponse::Artifact { task_id, .. } => {
                self.has_made |= self.is_ours(task_id.as_deref());
                return Repeat::None;
            }
            StreamResponse::Message(_) | StreamResponse::Unknown => return Repeat::None,
        };
        let is_open = self.asked.open.is_some();
        if !self.is_ours(task_id) || (!is_open && self.asked.answered.is_none()) {
            return Repeat::None;
        }
        if !status.state.is_interrupted() || !self.shows_asked(event, status) {
            self.asked = KnownQuestions::default();
            return Repeat::None;
        }
        if is_open {
            return Repeat::Open;
        }
        if self.response.as_ref().is_some_and(|response| response.asks(event, self.heard > 0, self.asked)) {
            self.asked = KnownQuestions::default();
            return Repeat::Anew;
        }
        Repeat::Answered
    }

    /// Returns true if an event of the task shows the known question, or the rest of it.
    fn shows_asked(&self, event: &StreamResponse, status: &TaskStatus) -> bool {
        let KnownQuestions { open, answered, state, has_words } = self.asked;
        let is_same_state = state.is_none_or(|state| state == status.state);
        if status.message.is_none() && has_words {
            return is_same_state;
        }
        let content = match event {
            StreamResponse::Task(task) => {
                Content::of(status.state, status.message.as_deref(), task.artifacts.last())
            }
            // A question without a message is in earlier output, and is not repeated.
            _ if status.message.is_none() => return is_same_state && !self.has_made,
            _ => Content::of(status.state, status.message.as_deref(), None),
        };
        let shown = content.zip(self.task_id.as_deref()).map(|(content, id)| content.fingerprint(id));
        let known = open.or(answered);
        known.zip(shown).is_some_and(|(known, shown)| known.asks_same(shown))
    }
}

/// The relation of a question to the known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Another question, or no question at all.
    None,
    /// The open question.
    Open,
    /// The answered question.
    Answered,
    /// A question in response to the answer: another one, perhaps in the same words.
    Anew,
}

/// The agent's response to a message in a task.
#[derive(Clone)]
struct AnswerStream {
    /// The message that it responds to.
    to: ResponseTo,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is being read.
    Begun,
    /// It broke off: the agent may be at work, or not.
    BrokenOff,
    /// It is complete.
    Whole,
}

impl AnswerStream {
    /// Returns true if the agent asks anew by an event that looks like the answered question. In a
    /// stream the head may repeat the state of the task, and so may a task anywhere; a later
    /// status, or one that ends the stream, is a statement of the agent.
    fn asks(&self, event: &StreamResponse, is_later: bool, asked: KnownQuestions) -> bool {
        let (is_status, is_last, has_message) = match event {
            StreamResponse::Status { status, last, .. } => (true, *last, status.message.is_some()),
            StreamResponse::Task(task) => (false, false, task.status.message.is_some()),
            StreamResponse::Message(_) | StreamResponse::Artifact { .. } | StreamResponse::Unknown => {
                return false;
            }
        };
        match self.stage {
            Stage::Begun => is_status && (is_later || is_last),
            // The agent moved the words of its question into the history, and perhaps did nothing
            // else: it must not wait without end.
            Stage::BrokenOff => asked.has_words && !has_message,
            Stage::Whole => true,
        }
    }
}

/// A task after the agent has ended its stream: its last state, and the time since.
#[derive(Clone)]
struct StalledTask {
    after: Duration,
    since: Instant,
    is_over: bool,
    status: Option<u64>,
    artifacts: Option<(usize, usize)>,
}

impl StalledTask {
    fn new(after: Duration) -> Self {
        Self { after, since: Instant::now(), is_over: false, status: None, artifacts: None }
    }

    /// Records an event; the first one is no change.
    fn see(&mut self, event: &StreamResponse) {
        let is_other = |old: Option<u64>, new| old.is_some_and(|old| old != new);
        let is_changed = match event {
            StreamResponse::Task(task) => {
                let made = (task.artifacts.len(), artifact_bytes(task));
                let (status, shown) = (status_hash(&task.status), self.artifacts.replace(made));
                is_other(self.status.replace(status), status) || shown.is_some_and(|shown| shown != made)
            }
            StreamResponse::Status { status, .. } => {
                let status = status_hash(status);
                is_other(self.status.replace(status), status)
            }
            StreamResponse::Artifact { .. } => {
                self.artifacts = None;
                true
            }
            StreamResponse::Message(_) | StreamResponse::Unknown => false,
        };
        if is_changed {
            (self.since, self.is_over) = (Instant::now(), false);
        } else {
            self.is_over |= self.since.elapsed() >= self.after;
        }
    }
}

fn artifact_bytes(task: &Task) -> usize {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).map(Part::bytes).sum()
}

/// Hashes a status without the time: some agents send that of the response.
fn status_hash(status: &TaskStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.state.as_str().hash(&mut hasher);
    if let Some(message) = &status.message {
        message.message_id.hash(&mut hasher);
        for part in &message.parts {
            match &part.body {
                PartBody::Text(text) => text.hash(&mut hasher),
                PartBody::Raw(text) | PartBody::Url(text) => text.hash(&mut hasher),
                PartBody::Data(json) | PartBody::Unknown(json) => json.get().hash(&mut hasher),
            }
        }
    }
    hasher.finish()
}

/// Returns task, state and end, as far as an event states them.
fn observed_ids(event: &StreamResponse) -> (Option<&str>, Option<TaskState>, bool) {
    match event {
        StreamResponse::Task(task) => (Some(&task.id), Some(task.status.state), false),
        StreamResponse::Message(message) => (message.task_id.as_deref(), None, true),
        StreamResponse::Status { task_id, status, last, .. } => {
            (task_id.as_deref(), Some(status.state), *last)
        }
        StreamResponse::Artifact { task_id, .. } => (task_id.as_deref(), None, false),
        StreamResponse::Unknown => (None, None, false),
    }
}

/// Sets the task and the conversation of an event that does not name them.
fn name(event: &mut StreamResponse, task: &str, context: &str) {
    let (named, within) = match event {
        StreamResponse::Task(Task { context_id, .. }) => (None, context_id),
        StreamResponse::Message(Message { task_id, context_id, .. })
        | StreamResponse::Status { task_id, context_id, .. }
        | StreamResponse::Artifact { task_id, context_id, .. } => (Some(task_id), context_id),
        StreamResponse::Unknown => return,
    };
    within.get_or_insert_with(|| context.to_owned());
    if let Some(named) = named {
        named.get_or_insert_with(|| task.to_owned());
    }
}

/// A stream that is being read.
pub(super) struct EventStream {
    reply: AgentResponse,
    decoder: Decoder,
    count: usize,
    /// The chunks of the event that is not complete yet.
    pieces: BodyPieces,
    silence: Duration,
    /// The messages of the stream so far, as one: some agents send their response in many.
    message: Option<Message>,
    /// The number of those messages, and their bytes.
    messages: (usize, usize),
}

/// The time without bytes after which the messages of a stream count as the whole response. Agents
/// end such a stream at once (A2A 1.0 §3.1.2), or send the next message.
const MESSAGE_GAP: Duration = Duration::from_secs(5);

impl EventStream {
    pub(super) fn new(mut reply: AgentResponse, terms: CallLimits) -> Self {
        reply.limit_events(terms.event);
        reply.forget_headers();
        Self {
            reply,
            decoder: Decoder::new(terms.event),
            count: 0,
            pieces: BodyPieces::default(),
            silence: terms.silence,
            message: None,
            messages: (0, 0),
        }
    }

    /// Reads to the end of the stream, or until it is silent; then reading can continue.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`] if the agent breaks the protocol or a limit: nothing more is read of it.
    pub(super) async fn read(
        &mut self,
        known: &ResolvedAgent,
        track: &mut TaskTracker,
    ) -> Result<StreamEnd, AgentFailure> {
        // One timer for the whole stream: it is set anew when it fires, not with every byte.
        let (mut alarm, mut silent_at) = (PooledTimer::default(), Instant::now() + self.silence);
        loop {
            if !self.reply.may_have_chunk() {
                // To look for more first would be in vain nearly always, and the reader polls again anyway. So the time
                // in which a slow client takes an event is no silence of the agent.
                track.all_read().await;
            }
            let bytes = tokio::select! {
                biased;
                bytes = self.reply.chunk() => bytes,
                () = poll_fn(|cx| alarm.poll(cx, silent_at)) => {
                    let silence = self.allowed_silence();
                    let since = self.reply.silent_since().unwrap_or_else(Instant::now);
                    if since.elapsed() < silence {
                        silent_at = since + silence;
                        continue;
                    }
                    match self.end_message(track) {
                        true => return Ok(StreamEnd::Said),
                        false => return Ok(StreamEnd::Silent),
                    }
                }
            };
            let ended = match bytes {
                Ok(Some(bytes)) => {
                    let had_message = self.message.is_some();
                    if let Some(ending) = self.on_event(&bytes, known, track).await? {
                        return Ok(ending);
                    }
                    if !had_message && self.message.is_some() {
                        silent_at = Instant::now() + self.allowed_silence();
                    }
                    continue;
                }
                Ok(None) => {
                    return match self.end_message(track) {
                        true => Ok(StreamEnd::Said),
                        false => Ok(StreamEnd::Ended),
                    };
                }
                // One message is a whole response; of several, more may have been lost.
                Err(error) => {
                    let is_protocol = matches!(error, ReplyError::Agent(_));
                    match known.reply_failure(error) {
                        broken @ (AgentFailure::ProtocolViolation(_) | AgentFailure::LimitExceeded(..))
                            if is_protocol =>
                        {
                            return Err(broken);
                        }
                        failure if self.messages.0 > 1 => return Ok(StreamEnd::Early(failure)),
                        failure => failure,
                    }
                }
            };
            return match self.end_message(track) {
                true => Ok(StreamEnd::Said),
                false => Ok(StreamEnd::Early(ended)),
            };
        }
    }

    fn allowed_silence(&self) -> Duration {
        if self.message.is_some() { self.silence.min(MESSAGE_GAP) } else { self.silence }
    }

    /// Adds a message event to those before it.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::LimitExceeded`] once they are larger than one response may be.
    fn add_message(&mut self, message: Message, max_bytes: usize) -> Result<(), AgentFailure> {
        let (count, before) = self.messages;
        let bytes = before.saturating_add(message.parts.iter().map(Part::bytes).sum());
        self.messages = (count.saturating_add(1), bytes);
        match &mut self.message {
            Some(whole) => message.parts.into_iter().for_each(|part| part.append_to(&mut whole.parts)),
            None => self.message = Some(message),
        }
        match bytes > max_bytes {
            true => Err(AgentFailure::LimitExceeded(max_bytes, "the messages of one stream")),
            false => Ok(()),
        }
    }

    /// Sends the messages on as the response. Returns false if there are none.
    fn end_message(&mut self, track: &mut TaskTracker) -> bool {
        match self.message.take() {
            Some(message) => {
                track.bytes = self.messages.1;
                track.on_event(StreamResponse::Message(message))
            }
            None => false,
        }
    }

    /// Sends on an event that is no message. Messages before it are the response if it ends a task
    /// that has no other output, and progress otherwise.
    fn pass(&mut self, event: Box<StreamResponse>, track: &mut TaskTracker) -> bool {
        let Some(message) = self.message.take() else { return track.on_event(event) };
        let said = |status: &TaskStatus| status.message.as_ref().is_some_and(|said| !said.parts.is_empty());
        let is_silent_end = match &*event {
            StreamResponse::Status { status, .. } => status.state == TaskState::Completed && !said(status),
            StreamResponse::Task(task) => {
                task.status.state == TaskState::Completed && task.artifacts.is_empty() && !said(&task.status)
            }
            StreamResponse::Message(_) | StreamResponse::Artifact { .. } => false,
            StreamResponse::Unknown => {
                self.message = Some(message);
                return false;
            }
        };
        if is_silent_end {
            return track.on_event(StreamResponse::Message(message));
        }
        let (task_id, context_id) = (message.task_id.clone(), message.context_id.clone());
        let status =
            TaskStatus { state: TaskState::Working, message: Some(Box::new(message)), timestamp: None };
        let progress = StreamResponse::Status { task_id, context_id, status, last: false, metadata: None };
        track.on_event(progress) || track.on_event(event)
    }

    async fn on_event(
        &mut self,
        bytes: &[u8],
        known: &ResolvedAgent,
        track: &mut TaskTracker,
    ) -> Result<Option<StreamEnd>, AgentFailure> {
        // Counted before it is held. The events of one read are sent on one after the other: the
        // first takes the counted bytes with it.
        let held = self.decoder.held() + self.reply.held() + bytes.len() + self.messages.1;
        if let Err(no_room) = track.room.permit.set(held) {
            return no_room_for(no_room.into(), track);
        }
        let events = self
            .decoder
            .push(bytes)
            .map_err(|too_large| AgentFailure::LimitExceeded(too_large.limit, "one event"))?;
        if events.is_empty() {
            track.room.permit.shrink_to(self.decoder.held() + self.reply.held());
        }
        self.count += events.len().max(1);
        if self.count > MOST_EVENTS {
            return Err(AgentFailure::ProtocolViolation("its stream has too many events".into()));
        }
        if self.decoder.held() == 0 || !events.is_empty() {
            self.pieces = BodyPieces::default();
        } else if !self.pieces.add(bytes.len()) {
            return Err(AgentFailure::ProtocolViolation(
                "an event of its stream comes in too many small pieces".into(),
            ));
        }
        for event in events {
            let data = event.data;
            track.bytes = data.len();
            let event = match known.interface.event(&data) {
                Ok(event) => Box::new(event),
                Err(error) if track.opens && track.heard == 0 => return Err(first_refusal(error)),
                Err(error) => return on_rejection(refusal(error), track).map(Some),
            };
            // Data that came in several pieces was put together, and is not held any longer.
            drop(data);
            let is_message = matches!(&*event, StreamResponse::Message(message) if track.is_ours(message.task_id.as_deref()));
            if is_message && let StreamResponse::Message(message) = *event {
                self.add_message(message, track.room.limit)?;
            } else {
                if self.pass(event, track) {
                    self.finish(track).await;
                    return Ok(Some(StreamEnd::Said));
                }
                track.has_room().await;
            }
        }
        Ok(None)
    }

    /// Waits shortly for the end of a stream after its last event, so that the connection can be
    /// reused.
    async fn finish(&mut self, track: &TaskTracker) {
        const TRAILING_CLOSE_TIMEOUT: Duration = Duration::from_millis(50);
        let mut end = pin!(async { while let Ok(Some(_)) = self.reply.chunk().await {} });
        if poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx))).await.is_ready() {
            return;
        }
        // Once the reader has passed the last event on, the end has come too, nearly always: a timer that is the next of
        // all would wake the thread.
        track.all_read().await;
        if tokio::time::timeout(TRAILING_CLOSE_TIMEOUT, end).await.is_err() {
            tracing::trace!("agent keeps its stream open after the last event");
        }
    }
}

/// Ends a stream at an event that exceeds the room: with an error while a client waits; a task
/// without a waiting client is fetched later.
fn no_room_for(trouble: AgentFailure, track: &TaskTracker) -> Result<Option<StreamEnd>, AgentFailure> {
    if track.outlet.is_detached() { Ok(Some(StreamEnd::Early(trouble))) } else { Err(trouble) }
}

/// Classifies an error in the middle of a stream: the task itself may say more about it.
fn on_rejection(trouble: AgentFailure, track: &TaskTracker) -> Result<StreamEnd, AgentFailure> {
    match trouble {
        AgentFailure::Rejected(_) if track.task_id.is_some() => Ok(StreamEnd::Early(trouble)),
        _ => Err(trouble),
    }
}
