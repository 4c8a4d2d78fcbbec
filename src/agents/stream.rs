//! Reading what an agent says: which events are ours, and when it has said its last.
//!
//! Reads a2a.md §4.3, rules 1 to 8. Not here: what to do when it stops too early (see `judge`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{Asked, Terms};
use super::drive::Outlet;
use super::endpoints::Endpoints;
use super::known::Known;
use super::rpc::{first_refusal, refusal, trouble};
use crate::a2a::{Event, Message, State, Task, fingerprint};
use crate::fault::Trouble;
use crate::sse::Decoder;
use crate::transport::Reply;

/// Most events of one stream; a peer must not keep the gateway busy for ever.
const MOST_EVENTS: usize = 1_000_000;

/// How reading a stream came to a stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The agent said its last word.
    Said,
    /// It stopped in the middle; whether the work goes on is not known.
    Early(Trouble),
    /// It has not said anything for a while, and the stream is still open.
    Silent,
}

/// What is known of the task while its events go by.
#[derive(Clone)]
pub(super) struct Track {
    outlet: Outlet,
    /// The task that this call is about, once the agent has named it.
    pub(super) task_id: Option<String>,
    /// The conversation, where the gateway named it: events of 0.1 do not repeat it.
    context_id: Option<String>,
    state: Option<State>,
    heard: usize,
    over: bool,
    asked: Asked,
    opens: bool,
    is_beside: bool,
    is_judged: bool,
    /// Where it was said, if that is to be remembered.
    pub(super) home: Option<(Arc<Endpoints>, usize)>,
}

impl Track {
    pub(super) fn new(outlet: Outlet, task_id: Option<String>) -> Self {
        let (context_id, state, asked, home) = (None, None, Asked::default(), None);
        let (heard, over, opens, is_beside, is_judged) = (0, false, false, false, false);
        Self { outlet, task_id, context_id, state, heard, over, asked, opens, is_beside, is_judged, home }
    }

    /// The same, for a task of which these questions are known.
    pub(super) fn knowing(self, asked: Asked) -> Self {
        Self { asked, ..self }
    }

    /// The same, for a task that the gateway names in this conversation.
    pub(super) fn naming(self, task: &str, context: Option<&str>) -> Self {
        self.outlet.give_name(task);
        Self { task_id: Some(task.to_owned()), context_id: context.map(str::to_owned), ..self }
    }

    /// Whether the call may be made anew, with another name for its task.
    pub(super) fn may_begin_anew(&self) -> bool {
        self.outlet.take_name_back()
    }

    /// The same, for the first answer to a message.
    pub(super) fn opening(self) -> Self {
        Self { opens: true, ..self }
    }

    /// The same, for a message to a task whose stream is read elsewhere.
    pub(super) fn beside(self) -> Self {
        Self { is_beside: true, ..self }
    }

    /// Whether the stream of the task is read elsewhere.
    pub(super) fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// How many events were passed on.
    pub(super) fn heard(&self) -> usize {
        self.heard
    }

    /// Whether the task need not be asked for again and again.
    pub(super) fn may_rest(&self) -> bool {
        self.outlet.may_rest()
    }

    /// The agent is asked what became of the task: nobody need ask once more after that.
    pub(super) fn judging(&mut self) {
        self.is_judged = true;
        self.answer_has_come();
    }

    /// What was said is not under way any more: a question that has lost its words is one.
    pub(super) fn answer_has_come(&mut self) {
        self.asked.wordless.take_if(|_| self.asked.open.is_none());
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
        self.state == Some(State::AuthRequired)
    }

    /// Passes an event on if it is ours; says whether it is the last one.
    pub(super) async fn take(&mut self, mut event: Event) -> bool {
        if self.repeats(&mut event) {
            return false;
        }
        let is_new = self.heard == 0 || self.task_id.is_none();
        let (task_id, state, last) = facts(&event);
        match (&self.task_id, task_id) {
            (Some(ours), Some(theirs)) if ours != theirs => return false,
            (None, Some(theirs)) => self.task_id = Some(theirs.to_owned()),
            _ => {}
        }
        self.state = state.or(self.state);
        let ends = last
            || matches!(event, Event::Message(_))
            || state.is_some_and(|state| state.is_terminal() || state == State::InputRequired);
        self.heard += 1;
        self.over |= ends;
        if let (Some(task), Some(context)) = (&self.task_id, &self.context_id) {
            name(&mut event, task, context);
        }
        if let Some((endpoints, at)) = self.home.as_ref().filter(|_| is_new) {
            // Before anybody hears of the task, and asks for it.
            endpoints.hear(*at, &event);
        }
        self.outlet.send(event).await;
        ends
    }

    /// Whether an event only repeats a question that is known. One that has been answered reads as work from here on: agents repeat
    /// it at the head of the stream of the answer, and for as long as they have not begun to work on that. One that cannot be
    /// told from another by anything but its words is taken for the old one only at the head. What is left of one whose words have gone
    /// into the history is taken for it while it is open, or while what was said to it is under way.
    fn repeats(&self, event: &mut Event) -> bool {
        let (task_id, status) = match event {
            Event::Task(task) => (Some(task.id.as_str()), &mut task.status),
            Event::Status { task_id, status, .. } => (task_id.as_deref(), status),
            Event::Message(_) | Event::Artifact { .. } | Event::Unknown => return false,
        };
        let Some(task_id) = task_id.or(self.task_id.as_deref()) else { return false };
        let Asked { open, answered, wordless } = self.asked;
        if open.or(answered).or(wordless).is_none() {
            return false;
        }
        let is_marked = status.timestamp.is_some()
            || status.message.as_ref().is_some_and(|message| message.message_id.is_some());
        let shown = fingerprint(task_id, status).filter(|_| is_marked || self.heard == 0);
        if shown.is_none() || ![open, answered, wordless].contains(&shown) {
            return false;
        }
        if open.is_some() {
            return true;
        }
        (status.state, status.message) = (State::Working, None);
        if let Event::Status { last, .. } = event {
            *last = false;
        }
        false
    }
}

/// Task, state and end, as far as an event says them.
fn facts(event: &Event) -> (Option<&str>, Option<State>, bool) {
    match event {
        Event::Task(task) => (Some(&task.id), Some(task.status.state), false),
        Event::Message(message) => (message.task_id.as_deref(), None, true),
        Event::Status { task_id, status, last, .. } => (task_id.as_deref(), Some(status.state), *last),
        Event::Artifact { task_id, .. } => (task_id.as_deref(), None, false),
        Event::Unknown => (None, None, false),
    }
}

/// Says of an event that does not which task and which conversation it is of.
fn name(event: &mut Event, task: &str, context: &str) {
    let (named, within) = match event {
        Event::Task(Task { context_id, .. }) => (None, context_id),
        Event::Message(Message { task_id, context_id, .. })
        | Event::Status { task_id, context_id, .. }
        | Event::Artifact { task_id, context_id, .. } => (Some(task_id), context_id),
        Event::Unknown => return,
    };
    within.get_or_insert_with(|| context.to_owned());
    if let Some(named) = named {
        named.get_or_insert_with(|| task.to_owned());
    }
}

/// A stream that is being read.
pub(super) struct Listening {
    reply: Reply,
    decoder: Decoder,
    count: usize,
    silence: Duration,
}

impl Listening {
    pub(super) fn new(reply: Reply, terms: Terms) -> Self {
        Self { reply, decoder: Decoder::new(terms.event), count: 0, silence: terms.silence }
    }

    /// Reads to the end of the stream, or until it falls silent; then it can be read on.
    ///
    /// # Errors
    ///
    /// [`Trouble`] when the agent breaks the protocol or a limit: nothing more is read of it.
    pub(super) async fn read(&mut self, known: &Known, track: &mut Track) -> Result<Ending, Trouble> {
        // One timer for the whole stream: it is put off when it rings, not with every byte.
        let mut last_byte = Instant::now();
        let mut alarm = pin!(tokio::time::sleep_until(last_byte + self.silence));
        loop {
            let bytes = tokio::select! {
                biased;
                bytes = self.reply.chunk() => bytes,
                () = alarm.as_mut() => {
                    if last_byte.elapsed() >= self.silence {
                        return Ok(Ending::Silent);
                    }
                    alarm.as_mut().reset(last_byte + self.silence);
                    continue;
                }
            };
            last_byte = Instant::now();
            let bytes = match bytes {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(Ending::Early(Trouble::Broken("its stream ended too early"))),
                Err(error) => return Ok(Ending::Early(trouble(&error, known))),
            };
            if let Some(ending) = self.take(&bytes, known, track).await? {
                return Ok(ending);
            }
        }
    }

    async fn take(
        &mut self,
        bytes: &[u8],
        known: &Known,
        track: &mut Track,
    ) -> Result<Option<Ending>, Trouble> {
        let events =
            self.decoder.push(bytes).map_err(|too_large| Trouble::TooMuch(too_large.limit, "one event"))?;
        for event in events {
            self.count += 1;
            if self.count > MOST_EVENTS {
                return Err(Trouble::Misbehaved("its stream has too many events".into()));
            }
            let event = match known.interface.event(&event.data) {
                Ok(event) => event,
                Err(error) if track.opens && track.heard == 0 => return Err(first_refusal(error)),
                Err(error) => return said_no(refusal(error), track).map(Some),
            };
            if track.take(event).await {
                self.finish().await;
                return Ok(Some(Ending::Said));
            }
        }
        Ok(None)
    }

    /// Waits shortly for the end of a stream whose last event is read, so that the connection can be used again.
    async fn finish(&mut self) {
        const SHORTLY: Duration = Duration::from_millis(50);
        let end = async { while let Ok(Some(_)) = self.reply.chunk().await {} };
        if tokio::time::timeout(SHORTLY, end).await.is_err() {
            tracing::trace!("agent keeps its stream open after the last event");
        }
    }
}

/// An error in the middle: the task itself may say more about it.
fn said_no(trouble: Trouble, track: &Track) -> Result<Ending, Trouble> {
    match trouble {
        Trouble::Refused(_) if track.task_id.is_some() => Ok(Ending::Early(trouble)),
        _ => Err(trouble),
    }
}
