//! Reading what an agent says: which events are ours, and when it has said its last.
//!
//! Reads a2a.md §4.3, rules 1 to 8. Not here: what to do when it stops too early (see `judge`).

use super::call::Caps;
use super::directory::Known;
use super::drive::Outlet;
use super::rpc::{first_refusal, refusal, trouble};
use crate::a2a::{Event, State};
use crate::fault::Trouble;
use crate::sse::Decoder;
use crate::transport::Reply;

/// Most events of one stream; a peer must not keep the gateway busy for ever.
const MOST_EVENTS: usize = 1_000_000;

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The agent said its last word.
    Said,
    /// It stopped in the middle; whether the work goes on is not known.
    Early(Trouble),
}

/// What is known of the task while its events go by.
pub(super) struct Track {
    outlet: Outlet,
    /// The task that this call is about, once the agent has named it.
    pub(super) task_id: Option<String>,
    state: Option<State>,
    heard: usize,
    over: bool,
    answers: bool,
    opens: bool,
}

impl Track {
    pub(super) fn new(outlet: Outlet, task_id: Option<String>) -> Self {
        Self { outlet, task_id, state: None, heard: 0, over: false, answers: false, opens: false }
    }

    /// The same, for a message that answers the question of a task.
    pub(super) fn answering(self) -> Self {
        Self { answers: true, ..self }
    }

    /// The same, for the first answer to a message.
    pub(super) fn opening(self) -> Self {
        Self { opens: true, ..self }
    }

    /// How many events were passed on.
    pub(super) fn heard(&self) -> usize {
        self.heard
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
        if std::mem::take(&mut self.answers) {
            unask(&mut event);
        }
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
        self.outlet.send(event).await;
        ends
    }
}

/// Some agents begin the stream of an answer with the task as it stood before, question and all; that is no new question.
fn unask(event: &mut Event) {
    if let Event::Task(task) = event
        && task.status.state.is_interrupted()
    {
        (task.status.state, task.status.message) = (State::Working, None);
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

/// Reads a stream to its end.
///
/// # Errors
///
/// [`Trouble`] when the agent breaks the protocol or a limit: nothing more is read of it.
pub(super) async fn read(
    mut reply: Reply,
    known: &Known,
    caps: &Caps,
    track: &mut Track,
) -> Result<Ending, Trouble> {
    let mut decoder = Decoder::new(caps.event);
    let mut count = 0;
    loop {
        let bytes = match reply.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ending::Early(Trouble::Broken("its stream ended too early"))),
            Err(error) => return Ok(Ending::Early(trouble(&error))),
        };
        let events =
            decoder.push(&bytes).map_err(|too_large| Trouble::TooMuch(too_large.limit, "one event"))?;
        for event in events {
            count += 1;
            if count > MOST_EVENTS {
                return Err(Trouble::Misbehaved("its stream has too many events".into()));
            }
            let event = match known.interface.dialect.event(&event.data) {
                Ok(event) => event,
                Err(error) if track.opens && track.heard == 0 => return Err(first_refusal(error)),
                Err(error) => return said_no(refusal(error), track),
            };
            if track.take(event).await {
                finish(reply).await;
                return Ok(Ending::Said);
            }
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

/// Waits shortly for the end of a stream whose last event is read, so that the connection can be used again.
async fn finish(mut reply: Reply) {
    const SHORTLY: std::time::Duration = std::time::Duration::from_millis(50);
    let end = async { while let Ok(Some(_)) = reply.chunk().await {} };
    if tokio::time::timeout(SHORTLY, end).await.is_err() {
        tracing::trace!("agent keeps its stream open after the last event");
    }
}
