//! Reading what an agent says: which events are ours, and when it has said its last.
//!
//! Reads a2a.md §4.3, rules 1 to 8. Not here: what to do when it stops too early (see `judge`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{CallLimits, KnownQuestions};
use super::drive::{Bearing, EventSender, EventSize, ResponseTo};
use super::endpoints::Endpoints;
use super::resolved::ResolvedAgent;
use super::rpc::{first_refusal, refusal, to_failure};
use crate::a2a::{
    Content, Fingerprint, Message, Part, PartBody, StreamResponse, Task, TaskState, TaskStatus,
};
use crate::fault::{AgentFailure, TaskDelay};
use crate::quota::AnswerRoom;
use crate::sse::Decoder;
use crate::transport::{BodyPieces, Response};

/// Most events of one stream, and pieces that end none; a peer must not keep the gateway busy for ever.
const MOST_EVENTS: usize = 1_000_000;

/// How reading a stream came to a stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The agent said its last word.
    Said,
    /// It stopped in the middle; whether the work goes on is not known.
    Early(AgentFailure),
    /// It ended the stream, and not the task.
    Ended,
    /// It has not said anything for a while, and the stream is still open.
    Silent,
}

/// What is known of the task while its events go by.
#[derive(Clone)]
pub(super) struct TaskTracker {
    outlet: EventSender,
    /// The room of the answer that is read now.
    pub(super) room: AnswerRoom,
    /// Bytes of the event that is passed on next.
    bytes: usize,
    /// The task that this call is about, once the agent has named it.
    pub(super) task_id: Option<String>,
    /// The conversation, where the gateway named it: events of 0.1 do not repeat it.
    context_id: Option<String>,
    state: Option<TaskState>,
    heard: usize,
    over: bool,
    asked: KnownQuestions,
    /// To what was said in the task, if something was.
    response: Option<AnswerStream>,
    /// Whether the agent has made something since the question was asked.
    has_made: bool,
    opens: bool,
    is_beside: bool,
    is_judged: bool,
    /// Where it was said, if that is to be remembered.
    pub(super) home: Option<(Arc<Endpoints>, usize)>,
    /// Of a task whose stream the agent has ended.
    stall: Option<StalledTask>,
    /// How often it was found to be stalled, and is not counted yet.
    stalls: u32,
}

impl TaskTracker {
    pub(super) fn new((outlet, room): (EventSender, AnswerRoom), task_id: Option<String>) -> Self {
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

    /// The same, for a task of which these questions are known.
    pub(super) fn for_task(self, asked: KnownQuestions) -> Self {
        Self { asked, ..self }
    }

    /// The same, for the response to what is said in a task: the answer to this question, or to none.
    pub(super) fn answering(self, turn: Option<Fingerprint>) -> Self {
        Self { response: Some(AnswerStream { to: ResponseTo { turn }, stage: Stage::Begun }), ..self }
    }

    /// The same, for a task that the gateway names in this conversation.
    pub(super) fn naming(self, task: &str, context: Option<&str>) -> Self {
        self.outlet.set_unconfirmed_id(task);
        Self { task_id: Some(task.to_owned()), context_id: context.map(str::to_owned), ..self }
    }

    /// Whether the call may be made anew, with another name for its task.
    pub(super) fn may_begin_anew(&self) -> bool {
        self.outlet.clear_unconfirmed_id()
    }

    /// The same, for the first answer to a message.
    pub(super) fn opening(self) -> Self {
        Self { opens: true, ..self }
    }

    /// The same, for a message to a task whose stream is read elsewhere.
    pub(super) fn ignore_foreign(self) -> Self {
        Self { is_beside: true, ..self }
    }

    /// Whether the stream of the task is read elsewhere.
    pub(super) fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// How many events were passed on.
    pub(super) fn has_events(&self) -> usize {
        self.heard
    }

    /// Whether the task need not be asked for again and again.
    pub(super) fn may_rest(&self) -> bool {
        self.outlet.is_idle()
    }

    /// The agent has ended its stream: a task that does not change for so long from now on is stalled.
    pub(super) fn watch_stall(&mut self, after: Duration) {
        self.stall.get_or_insert_with(|| StalledTask::new(after));
    }

    /// How long the task may stay as it is yet; `None` where that is over, or does not matter.
    pub(super) fn until_stalled(&self) -> Option<Duration> {
        self.stall
            .as_ref()
            .filter(|stall| !stall.is_over)
            .map(|stall| stall.after.saturating_sub(stall.since.elapsed()))
    }

    /// The agent has said how the task stands, or cannot be asked.
    pub(super) fn set_reached(&self, is_reached: bool) {
        match is_reached {
            true => self.outlet.reached(),
            false => drop(self.outlet.set_delay(Some(TaskDelay::Unreached))),
        }
    }

    /// Takes how often the task was found to be stalled since this was asked last.
    pub(super) fn take_stalls(&mut self) -> u32 {
        std::mem::take(&mut self.stalls)
    }

    /// Notes whether an event changes a task that may be stalled. Returns true if it is stalled since this event.
    fn note_change(&mut self, event: &StreamResponse) -> bool {
        let Some(stall) = &mut self.stall else { return false };
        let was_over = stall.is_over;
        stall.see(event);
        self.outlet.set_delay(stall.is_over.then_some(TaskDelay::Stalled(stall.after)));
        stall.is_over && !was_over
    }

    /// The agent is asked what became of the task: nobody need ask once more after that.
    pub(super) fn judging(&mut self) {
        self.is_judged = true;
    }

    /// The agent has responded to what was said: a question in its response, or after it, is another one.
    pub(super) fn response_has_come(&mut self) {
        if let Some(response) = &mut self.response {
            response.stage = Stage::Whole;
        }
    }

    /// The agent has ended the stream of its response. One in which it said nothing was none.
    pub(super) fn response_ended(&mut self) {
        match self.heard > 0 {
            true => self.response_has_come(),
            false => self.response_broke_off(),
        }
    }

    /// The response cannot be heard to its end.
    pub(super) fn response_broke_off(&mut self) {
        if let Some(response) = &mut self.response {
            response.stage = Stage::BrokenOff;
        }
    }

    /// Whether the agent was asked what became of the task.
    pub(super) fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// Whether the last event has been passed on.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the agent waits for an authorization that is given elsewhere.
    pub(super) fn awaits_authorization(&self) -> bool {
        self.state == Some(TaskState::AuthRequired)
    }

    /// Returns true unless an event names another task.
    fn is_ours(&self, task_id: Option<&str>) -> bool {
        task_id.zip(self.task_id.as_deref()).is_none_or(|(theirs, ours)| theirs == ours)
    }

    /// Passes an event on if it is ours; says whether it is the last one.
    pub(super) async fn on_event(&mut self, event: StreamResponse) -> bool {
        self.take_from(event, false).await
    }

    /// The same for the task as the agent gave it when it was asked for it.
    pub(super) async fn take_look(&mut self, task: Task) -> bool {
        self.take_from(StreamResponse::Task(task), true).await
    }

    async fn take_from(&mut self, mut event: StreamResponse, is_look: bool) -> bool {
        // The permit goes with the event, or is dropped with it.
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
                || matches!(event, StreamResponse::Message(_))
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
            // Before anybody hears of the task, and asks for it.
            endpoints.hear(*at, &event);
        }
        let response = self.response.as_ref().filter(|_| repeat == Repeat::Anew).map(|response| response.to);
        self.outlet.send(event, size, Bearing { response, is_look }).await;
        ends
    }

    /// Finds out whether an event only repeats a question that is known. Agents repeat an answered one at the head of the stream of
    /// the answer, and for as long as they have not begun to work on that. After any other state, or where the agent asks in its
    /// response to the answer, the same words are another question.
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

    /// Returns whether an event of the task shows the question that is known, or what is left of it.
    fn shows_asked(&self, event: &StreamResponse, status: &TaskStatus) -> bool {
        let KnownQuestions { open, answered, state, has_words } = self.asked;
        let is_same_state = state.is_none_or(|state| state == status.state);
        if status.message.is_none() && has_words {
            return is_same_state;
        }
        let content = match event {
            StreamResponse::Task(task) => {
                Content::of(status.state, status.message.as_ref(), task.artifacts.last())
            }
            // What is asked without a message was made before, and is not repeated.
            _ if status.message.is_none() => return is_same_state && !self.has_made,
            _ => Content::of(status.state, status.message.as_ref(), None),
        };
        let shown = content.zip(self.task_id.as_deref()).map(|(content, id)| content.fingerprint(id));
        let known = open.or(answered);
        known.zip(shown).is_some_and(|(known, shown)| known.asks_same(shown))
    }
}

/// How a question compares to the one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It is another one, or no question at all.
    None,
    /// It is the one that is open.
    Open,
    /// It is the one that was answered.
    Answered,
    /// It is asked in response to the answer: another question, perhaps in the same words.
    Anew,
}

/// The agent's response to what was said in a task.
#[derive(Clone)]
struct AnswerStream {
    /// What it is the response to.
    to: ResponseTo,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is being heard.
    Begun,
    /// It broke off: the agent may be at work, or not.
    BrokenOff,
    /// The agent has said all of it.
    Whole,
}

impl AnswerStream {
    /// Returns whether the agent asks anew by an event that looks like the question that was answered. In a stream the head may
    /// repeat how the task stands, and so may a task anywhere; what follows as a status, or ends the stream, is said by the agent.
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
            // It took the words of its question in, and perhaps nothing else: it must not wait for ever.
            Stage::BrokenOff => asked.has_words && !has_message,
            Stage::Whole => true,
        }
    }
}

/// A task whose stream the agent has ended: what it showed last, and since when.
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

    /// What is seen first is no change.
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

/// Without the time: some agents give that of the answer.
fn status_hash(status: &TaskStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.state.as_str().hash(&mut hasher);
    if let Some(message) = &status.message {
        message.message_id.hash(&mut hasher);
        for part in &message.parts {
            match &part.body {
                PartBody::Text(text) | PartBody::Raw(text) | PartBody::Url(text) => text.hash(&mut hasher),
                PartBody::Data(json) | PartBody::Unknown(json) => json.get().hash(&mut hasher),
            }
        }
    }
    hasher.finish()
}

/// Task, state and end, as far as an event says them.
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

/// Says of an event that does not which task and which conversation it is of.
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
    reply: Response,
    decoder: Decoder,
    count: usize,
    /// Those of the event that is not whole yet.
    pieces: BodyPieces,
    silence: Duration,
    /// The messages of the stream so far, as one: some agents send their answer in many.
    message: Option<Message>,
    /// How many messages that were, and their bytes.
    messages: (usize, usize),
}

/// How long a stream that brought a message may be silent before the message counts as the whole
/// answer. Agents end such a stream at once (A2A 1.0 §3.1.2), or send the next piece.
const MESSAGE_GAP: Duration = Duration::from_secs(5);

impl EventStream {
    pub(super) fn new(reply: Response, terms: CallLimits) -> Self {
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

    /// Reads to the end of the stream, or until it falls silent; then it can be read on.
    ///
    /// # Errors
    ///
    /// [`Trouble`] when the agent breaks the protocol or a limit: nothing more is read of it.
    pub(super) async fn read(
        &mut self,
        known: &ResolvedAgent,
        track: &mut TaskTracker,
    ) -> Result<StreamEnd, AgentFailure> {
        // One timer for the whole stream: it is put off when it rings, not with every byte.
        let mut last_byte = Instant::now();
        let mut alarm = pin!(tokio::time::sleep_until(last_byte + self.silence));
        loop {
            let bytes = tokio::select! {
                biased;
                bytes = self.reply.chunk() => bytes,
                () = alarm.as_mut() => {
                    let silence = self.allowed_silence();
                    if last_byte.elapsed() < silence {
                        alarm.as_mut().reset(last_byte + silence);
                        continue;
                    }
                    match self.end_message(track).await {
                        true => return Ok(StreamEnd::Said),
                        false => return Ok(StreamEnd::Silent),
                    }
                }
            };
            last_byte = Instant::now();
            let ended = match bytes {
                Ok(Some(bytes)) => {
                    let had_message = self.message.is_some();
                    if let Some(ending) = self.on_event(&bytes, known, track).await? {
                        return Ok(ending);
                    }
                    if !had_message && self.message.is_some() {
                        alarm.as_mut().reset(last_byte + self.allowed_silence());
                    }
                    continue;
                }
                Ok(None) => {
                    return match self.end_message(track).await {
                        true => Ok(StreamEnd::Said),
                        false => Ok(StreamEnd::Ended),
                    };
                }
                // One message is a whole answer; of several, more may have been lost.
                Err(error) if self.messages.0 > 1 => return Ok(StreamEnd::Early(to_failure(&error, known))),
                Err(error) => to_failure(&error, known),
            };
            return match self.end_message(track).await {
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
    /// [`Trouble::TooMuch`] once they are larger than one response may be.
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

    /// Passes the messages on as the answer. Returns false if there are none.
    async fn end_message(&mut self, track: &mut TaskTracker) -> bool {
        match self.message.take() {
            Some(message) => {
                track.bytes = self.messages.1;
                track.on_event(StreamResponse::Message(message)).await
            }
            None => false,
        }
    }

    /// Passes an event on that is no message. Messages before it are the answer if it ends a task
    /// that has no other output, and progress otherwise.
    async fn pass(&mut self, event: StreamResponse, track: &mut TaskTracker) -> bool {
        let Some(message) = self.message.take() else { return track.on_event(event).await };
        let said = |status: &TaskStatus| status.message.as_ref().is_some_and(|said| !said.parts.is_empty());
        let is_silent_end = match &event {
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
            return track.on_event(StreamResponse::Message(message)).await;
        }
        let (task_id, context_id) = (message.task_id.clone(), message.context_id.clone());
        let status = TaskStatus { state: TaskState::Working, message: Some(message), timestamp: None };
        let progress = StreamResponse::Status { task_id, context_id, status, last: false, metadata: None };
        track.on_event(progress).await || track.on_event(event).await
    }

    async fn on_event(
        &mut self,
        bytes: &[u8],
        known: &ResolvedAgent,
        track: &mut TaskTracker,
    ) -> Result<Option<StreamEnd>, AgentFailure> {
        // Counted before it is held. The events of one read go on one after the other: the first takes what is counted along.
        if let Err(no_room) = track.room.permit.set(self.decoder.held() + bytes.len() + self.messages.1) {
            return no_room_for(no_room.into(), track);
        }
        let events = self
            .decoder
            .push(bytes)
            .map_err(|too_large| AgentFailure::LimitExceeded(too_large.limit, "one event"))?;
        if events.is_empty() {
            track.room.permit.shrink_to(self.decoder.held());
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
                Ok(event) => event,
                Err(error) if track.opens && track.heard == 0 => return Err(first_refusal(error)),
                Err(error) => return on_rejection(refusal(error), track).map(Some),
            };
            // From here on the event alone is held.
            drop(data);
            match event {
                StreamResponse::Message(message) if track.is_ours(message.task_id.as_deref()) => {
                    self.add_message(message, track.room.limit)?;
                }
                event => {
                    if self.pass(event, track).await {
                        self.finish().await;
                        return Ok(Some(StreamEnd::Said));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Waits shortly for the end of a stream whose last event is read, so that the connection can be used again.
    async fn finish(&mut self) {
        const TRAILING_CLOSE_TIMEOUT: Duration = Duration::from_millis(50);
        let end = async { while let Ok(Some(_)) = self.reply.chunk().await {} };
        if tokio::time::timeout(TRAILING_CLOSE_TIMEOUT, end).await.is_err() {
            tracing::trace!("agent keeps its stream open after the last event");
        }
    }
}

/// The end of a stream with an event that there is no room for: an error while a client waits; a task without a waiting client is
/// asked for later.
fn no_room_for(trouble: AgentFailure, track: &TaskTracker) -> Result<Option<StreamEnd>, AgentFailure> {
    if track.outlet.is_detached() { Ok(Some(StreamEnd::Early(trouble))) } else { Err(trouble) }
}

/// An error in the middle: the task itself may say more about it.
fn on_rejection(trouble: AgentFailure, track: &TaskTracker) -> Result<StreamEnd, AgentFailure> {
    match trouble {
        AgentFailure::Rejected(_) if track.task_id.is_some() => Ok(StreamEnd::Early(trouble)),
        _ => Err(trouble),
    }
}
