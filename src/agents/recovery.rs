//! Recovery of a task after its stream stopped: polls the agent until the state of the task is
//! known.
//!
//! Follows `docs/spec/a2a.md §4.3`, rules 4 and 5: `GetTask` decides; a live task is subscribed to
//! on 1.0 and only polled on older versions, where a resubscription corrupts the task of real
//! agents. No message is ever sent twice.

use std::sync::Arc;
use std::time::Duration;

use super::call::{AgentCall, CallLimits, FIRST_PAUSE};
use super::reach::{LocatedTask, find_task, wait_for};
use super::rpc::{BodyKind, get_task, refusal, subscribe, whole};
use super::stream::{EventStream, StreamEnd, TaskTracker};
use crate::a2a::TaskState;
use crate::fault::AgentFailure;

/// The longest pause between two requests to an agent that responds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest pause before a task that may be stalled is polled.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The number of polls of a task after its stream ended with an error.
const LOOKS_AFTER_ERROR: u32 = 3;
/// The number of refusals in a row after which an agent is taken to withhold the state of a task.
const MOST_REFUSALS: u32 = 4;

impl AgentCall {
    /// Follows a task until it ends or asks; or until there is no stream to read, if the call may
    /// be idle then.
    ///
    /// `stopped` is the failure that stopped the stream; it is returned if the agent never responds
    /// again.
    pub(super) async fn recover(
        &self,
        track: &mut TaskTracker,
        stopped: AgentFailure,
    ) -> Result<(), AgentFailure> {
        let Some(task) = track.task_id.clone() else { return Err(stopped) };
        track.judging();
        let mut pace = PollBackoff::new(self);
        let mut known = self.known.clone();
        let mut subscribes = known.streaming;
        // An error on the stream ends the task, unless the agent reports a better state soon.
        let mut looks = matches!(stopped, AgentFailure::Rejected(_)).then_some(LOOKS_AFTER_ERROR);
        loop {
            // Read first: changes after the response are observed by the party that permits the
            // call to be idle.
            let may_rest = track.may_rest();
            match find_task(&self.client, &known, &task, &mut track.room).await {
                Ok(LocatedTask { known: place, task: found }) => {
                    pace.answered();
                    track.set_reached(true);
                    if !Arc::ptr_eq(&place.endpoints, &known.endpoints) {
                        subscribes = place.streaming;
                    }
                    known = place;
                    let open = found.status.state;
                    let is_over = track.take_look(found).await;
                    (0..track.take_stalls()).for_each(|_| known.metrics.stalled());
                    if is_over {
                        return Ok(());
                    }
                    if let Some(left) = looks.as_mut().filter(|_| open != TaskState::AuthRequired) {
                        *left = left.saturating_sub(1);
                        if *left == 0 {
                            return Err(stopped);
                        }
                        self.pause(FIRST_PAUSE).await;
                        continue;
                    }
                    let mut listens = subscribes && open != TaskState::AuthRequired;
                    if listens {
                        let there = self.at(known.clone());
                        subscribes = Box::pin(there.subscribe(&task, track, &mut pace)).await?;
                        if track.is_over() {
                            return Ok(());
                        }
                        listens = subscribes;
                    }
                    if may_rest && !listens {
                        return Ok(());
                    }
                }
                // No request was sent: a task waits for its endpoint as long as a client waits for
                // the task.
                Err(AgentFailure::BreakerOpen(_)) => {
                    track.set_reached(false);
                    wait_for(&known, &task, pace.resting()).await;
                    continue;
                }
                // The agent knows no such task: its earlier events are all that will ever be known.
                Err(AgentFailure::TaskNotFound) => return Err(lost(stopped)),
                Err(trouble) => pace.survives(trouble, track)?,
            }
            // Nothing of the response is held until the next one.
            track.room.permit.shrink_to(0);
            let (next, left) = (pace.next(), track.until_stalled());
            self.pause(left.map_or(next, |left| next.min(left.max(SHORTEST_PAUSE)))).await;
        }
    }

    /// Asks for the state of the task of a silent stream, and keeps the stream open: some agents
    /// stop their work when it closes. Returns true if the task has ended.
    pub(super) async fn check_status(&self, track: &mut TaskTracker) -> Result<bool, AgentFailure> {
        let Some(task) = track.task_id.clone() else { return Ok(false) };
        match get_task(&self.client, &self.known, &task, &mut track.room).await {
            Ok(found) => Ok(track.take_look(found).await),
            Err(AgentFailure::TaskNotFound) => Err(AgentFailure::TaskNotFound),
            Err(trouble) => {
                tracing::debug!(error = %trouble, "failed to get task of a silent agent");
                Ok(false)
            }
        }
    }

    /// Subscribes to a live task. Returns true if a subscription is worth another attempt.
    async fn subscribe(
        &self,
        task: &str,
        track: &mut TaskTracker,
        pace: &mut PollBackoff,
    ) -> Result<bool, AgentFailure> {
        let (form, mut reply) = match subscribe(&self.client, &self.known, task).await {
            None => return Ok(false),
            Some(Ok(answer)) => answer,
            Some(Err(trouble)) => return Ok(is_passing(&trouble)),
        };
        if form == BodyKind::Json {
            let body = whole(&mut reply, &self.known, &mut track.room).await?;
            let event = self.known.interface.event(&body);
            drop(body);
            return match event {
                Ok(event) => Ok(!track.on_event(event).await),
                Err(error) => {
                    tracing::debug!(error = %refusal(error), "failed to subscribe to task");
                    Ok(false)
                }
            };
        }
        let before = track.has_events();
        let silence = track
            .until_stalled()
            .map_or(self.terms.silence, |left| self.terms.silence.min(left.max(SHORTEST_PAUSE)));
        let terms = CallLimits { silence, ..self.terms };
        match EventStream::new(reply, terms).read(&self.known, track).await? {
            StreamEnd::Said => Ok(false),
            ending @ (StreamEnd::Early(_) | StreamEnd::Ended | StreamEnd::Silent) => {
                if ending == StreamEnd::Ended {
                    track.watch_stall(self.terms.stalled);
                }
                // A stream that brought an event was worth it; one that closes at once must not be
                // opened in a loop.
                if track.has_events() > before {
                    self.known.metrics.reattached();
                    pace.resubscribe();
                }
                Ok(true)
            }
        }
    }

    /// Waits with jitter: calls that wait together must not poll together.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::time::sleep(pause.mul_f64(rand::random::<f64>() * 0.4 + 0.8)).await;
    }
}

/// The interval of polls: longer while nothing changes, and longer still while the agent is
/// unreachable.
struct PollBackoff {
    pause: Duration,
    failures: u32,
    /// True if its breaker was open since the last response.
    is_resting: bool,
    base: Duration,
    most: Duration,
    max_attempts: u32,
}

impl PollBackoff {
    fn new(call: &AgentCall) -> Self {
        let terms = call.terms;
        Self {
            pause: FIRST_PAUSE,
            failures: 0,
            is_resting: false,
            base: terms.retry_base,
            most: terms.retry_max,
            max_attempts: terms.max_attempts,
        }
    }

    fn resubscribe(&mut self) {
        (self.failures, self.pause, self.is_resting) = (0, FIRST_PAUSE, false);
    }

    fn answered(&mut self) {
        if self.failures > 0 || self.is_resting {
            self.resubscribe();
        }
    }

    /// Records a failure to get the task that says nothing about it yet.
    ///
    /// # Errors
    ///
    /// The failure, if it is about the task, or if there were too many.
    fn survives(&mut self, trouble: AgentFailure, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        // Any error of the agent's own reads as a refusal: one of them is no proof.
        let is_doubtful = matches!(trouble, AgentFailure::Rejected(_)) && self.failures + 1 < MOST_REFUSALS;
        if !is_passing(&trouble) && !is_doubtful {
            return Err(trouble);
        }
        if is_away(&trouble) {
            track.set_reached(false);
        }
        self.failed(trouble)
    }

    /// # Errors
    ///
    /// The failure, once there are too many.
    fn failed(&mut self, trouble: AgentFailure) -> Result<(), AgentFailure> {
        self.failures = self.failures.saturating_add(1);
        if self.failures == self.max_attempts {
            return Err(trouble);
        }
        if self.failures == 1 {
            self.pause = self.base;
        }
        Ok(())
    }

    /// Returns the next pause while the breaker is open, which is no failure.
    fn resting(&mut self) -> Duration {
        self.is_resting = true;
        self.next()
    }

    fn next(&mut self) -> Duration {
        let most = if self.failures == 0 { LONGEST_PAUSE.min(self.most) } else { self.most };
        let pause = self.pause.min(most);
        self.pause = (pause * 2).min(most);
        pause
    }
}

/// Returns true if a failure says nothing about the task: the agent may be back soon.
pub(super) fn is_passing(trouble: &AgentFailure) -> bool {
    matches!(
        trouble,
        AgentFailure::Unreachable(_)
            | AgentFailure::BreakerOpen(_)
            | AgentFailure::TokenUnavailable(_)
            | AgentFailure::Timeout(_)
            | AgentFailure::ConnectionLost(_)
            | AgentFailure::HttpStatus(408 | 429 | 500..)
            | AgentFailure::CallerBytes
            | AgentFailure::Bytes
    )
}

/// Returns true if a failure means that the agent cannot be reached at present.
pub fn is_away(trouble: &AgentFailure) -> bool {
    matches!(
        trouble,
        AgentFailure::Unreachable(_)
            | AgentFailure::BreakerOpen(_)
            | AgentFailure::Timeout(_)
            | AgentFailure::ConnectionLost(_)
            | AgentFailure::HttpStatus(500..)
    )
}

fn lost(stopped: AgentFailure) -> AgentFailure {
    match stopped {
        AgentFailure::Rejected(_) => stopped,
        _ => AgentFailure::TaskNotFound,
    }
}
