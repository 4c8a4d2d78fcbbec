//! The operations at an agent for one call, and the recovery of a task after its stream stopped.
//!
//! A message is sent once and never again.
//!
//! Recovery polls the agent until the state of the task is known. It follows `docs/spec/a2a.md
//! §4.3`, rules 4 and 5: `GetTask` decides; a live task is subscribed to on 1.0 and only polled on
//! older versions, where a resubscription corrupts the task of real agents.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::warn;

use super::drive::DetachableCall;
use super::grpc::AgentResponse;
use super::locate::{LocatedTask, cancel_task, find_task, get_task, set_webhook, wait_for};
use super::resolved::{ResolvedAgent, current};
use super::rpc::{AgentOperation, AgentRequest, CallLimits, FollowUpMessage, KnownQuestions};
use super::rpc::{BodyKind, by_status, first_refusal, post, refusal, subscribe, whole};
use super::stream::{CallOutput, EventStream, StreamEnd, TaskTracker};
use crate::a2a::{Message, StreamResponse, Task, TaskState, fingerprint, uuid};
use crate::config::AgentMethod as Method;
use crate::fault::AgentFailure;
use crate::jsonrpc::SharedBody;
use crate::quota::AnswerRoom;
use crate::telemetry::trace::SpanEvent;
use crate::timing::{Backoff, with_jitter};
use crate::transport::HttpClient;

/// The pause after a response that shows only that the work has begun.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The number of attempts to cancel a task that the agent does not know yet.
const CANCEL_TRIES: u32 = 4;
/// The longest pause between two requests to an agent that responds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest pause before a task that may be stalled is polled.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The number of polls of a task after its stream ended with an error.
const LOOKS_AFTER_ERROR: u32 = 3;
/// The number of refusals in a row after which an agent is taken to withhold the state of a task.
const MOST_REFUSALS: u32 = 4;
/// The maximum relative error of a pause, down and up: calls that wait together must not poll
/// together.
const JITTER: f64 = 0.2;

/// One call.
pub(super) struct AgentCall {
    pub(super) client: HttpClient,
    pub(super) known: Arc<ResolvedAgent>,
    pub(super) terms: CallLimits,
}

/// Begins a call; its responses are counted in this room. Nothing happens until the call is polled.
pub fn start(
    client: HttpClient,
    known: Arc<ResolvedAgent>,
    terms: CallLimits,
    room: AnswerRoom,
    errand: AgentOperation,
) -> DetachableCall {
    let call = AgentCall { client, known: current(known.newest()), terms };
    DetachableCall::new(move |outlet| call.run(errand, CallOutput { outlet, room }))
}

impl AgentCall {
    async fn run(self, errand: AgentOperation, out: CallOutput) -> Result<(), AgentFailure> {
        #[cfg(test)]
        if let Some(script) = &self.known.script {
            return script.run(errand, &out.outlet).await;
        }
        match errand {
            AgentOperation::Say(mut message) => {
                let mut track = TaskTracker::new(out, None);
                self.send_message(&mut message, &mut track).await
            }
            // Boxed, here and below: the future of a plain call must not grow by parts that it does
            // not need.
            AgentOperation::Continue(what) => Box::pin(self.continue_task(what, out)).await,
            AgentOperation::Await(task, asked) => {
                let mut track = TaskTracker::new(out, Some(task)).for_task(asked);
                Box::pin(self.recover(&mut track, AgentFailure::TaskNotFound)).await
            }
            AgentOperation::Look(task) => {
                let mut track = TaskTracker::new(out, Some(task.clone()));
                let asked = find_task(&self.client, &self.known, &task, &mut track.room);
                let found = Box::pin(asked).await?;
                track.take_look(found.task);
                Ok(())
            }
            AgentOperation::Cancel(task) => {
                let mut track = TaskTracker::new(out, Some(task.clone()));
                let stopped = Box::pin(self.cancel(&task, &mut track.room)).await?;
                track.on_event(StreamResponse::Task(stopped));
                Ok(())
            }
            AgentOperation::Webhook(task, hook) => {
                let CallOutput { mut room, .. } = out;
                Box::pin(set_webhook(&self.client, &self.known, &task, &hook, &mut room)).await
            }
        }
    }

    /// Gets the task before the message is sent: its question may have been answered, and a
    /// finished task takes no more messages.
    async fn continue_task(&self, what: FollowUpMessage, mut out: CallOutput) -> Result<(), AgentFailure> {
        let FollowUpMessage { task, mut message, turn, worded, beside } = what;
        let LocatedTask { known, task: found } =
            find_task(&self.client, &self.known, &task, &mut out.room).await?;
        let open = fingerprint(&found);
        let (state, has_message) = (found.status.state, found.status.message.is_some());
        let is_left = worded == Some(state) && !has_message;
        let is_open = turn.is_none_or(|turn| open.is_some_and(|open| open.asks_same(turn)));
        if !is_open && !is_left {
            // The question was answered, here or elsewhere: it is not answered twice.
            let mut track = TaskTracker::new(out, Some(task.clone()));
            if track.take_look(found) {
                return Ok(());
            }
            return if beside { Ok(()) } else { self.recover(&mut track, AgentFailure::TaskNotFound).await };
        }
        if state.is_terminal() {
            return Err(AgentFailure::Rejected("the task ended before this was said".into()));
        }
        let asked = KnownQuestions {
            open: None,
            answered: turn.or(open),
            state: Some(state).filter(|state| state.is_interrupted()),
            has_words: has_message || is_left,
        };
        message.context_id = found.context_id.clone().or(message.context_id);
        // The fetched task is not held while the agent works.
        drop(found);
        out.room.permit.shrink_to(0);
        message.task_id = Some(task);
        let track = TaskTracker::new(out, message.task_id.clone()).for_task(asked).answering(turn);
        let mut track = if beside { track.ignore_foreign() } else { track };
        // At the endpoint where the task was found, and nowhere else.
        self.at(known).say_here(&mut message, &mut track).await
    }

    /// Cancels a task. A task that the gateway named may be unknown to the agent yet: the message
    /// that begins it is under way.
    async fn cancel(&self, task: &str, room: &mut AnswerRoom) -> Result<Task, AgentFailure> {
        let mut tries =
            if self.known.interface.dialect.client_generates_task_ids() { CANCEL_TRIES } else { 1 };
        loop {
            tries -= 1;
            match cancel_task(&self.client, &self.known, task, room).await {
                Err(AgentFailure::TaskNotFound) if tries > 0 => self.pause(FIRST_PAUSE).await,
                // Nothing was sent: the agent may be at another endpoint by now.
                Err(unsent @ (AgentFailure::Unreachable(_) | AgentFailure::BreakerOpen(_))) => {
                    let found = find_task(&self.client, &self.known, task, room).await.map_err(|_| unsent)?;
                    return cancel_task(&self.client, &found.known, task, room).await;
                }
                answer => return answer,
            }
        }
    }

    /// Returns the same call for this form of the agent.
    pub(super) fn at(&self, known: Arc<ResolvedAgent>) -> Self {
        Self { client: self.client.clone(), known, terms: self.terms }
    }

    /// Sends a message that begins a task; through another interface of the card as long as nothing
    /// was sent, because no connection was made.
    async fn send_message(&self, message: &mut Message, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        if self.known.standbys.is_empty() {
            return self.say_here(message, track).await;
        }
        // Boxed: the calls of most agents do not need it, and must not grow by it.
        Box::pin(self.say_anywhere(message, track)).await
    }

    async fn say_anywhere(&self, message: &Message, track: &TaskTracker) -> Result<(), AgentFailure> {
        let mut said = self.say_here(&mut message.clone(), &mut track.clone()).await;
        for standby in self.known.standbys.iter() {
            let is_unsent = matches!(said, Err(AgentFailure::Unreachable(_) | AgentFailure::BreakerOpen(_)));
            if !is_unsent || !track.may_begin_anew() {
                break;
            }
            self.known.record_event(SpanEvent::Retry("other_interface"));
            let call = self.at(standby.clone().along(self.known.along.as_ref()));
            match call.say_here(&mut message.clone(), &mut track.clone()).await {
                Err(AgentFailure::Unreachable(_) | AgentFailure::BreakerOpen(_)) => {}
                other => said = other,
            }
        }
        said
    }

    /// Sends a message; once more in another version if the agent proves that it did not process
    /// the first attempt.
    async fn say_here(&self, message: &mut Message, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        // For the other version, if the card has one.
        let spare = self.known.other.as_ref().map(|other| {
            let ids = (message.task_id.clone(), message.context_id.clone());
            (other, Box::new((ids, track.clone())))
        });
        match (self.send_once(message, track).await, spare) {
            (Err(AgentFailure::VersionNotSupported(why)), Some((other, spare))) if track.may_begin_anew() => {
                let (from, to) = (self.known.interface.dialect.version(), other.interface.dialect.version());
                warn!(from, to, error = why, "agent rejected the version of its card, trying another");
                self.known.record_event(SpanEvent::VersionChange);
                let call = self.at(other.clone().along(self.known.along.as_ref()));
                let (ids, mut track) = *spare;
                (message.task_id, message.context_id) = ids;
                // Remembered at once: the next call may begin before this one has ended.
                self.known.is_wrong.store(true, Ordering::Release);
                let said = Box::pin(call.send_once(message, &mut track)).await;
                if matches!(said, Err(AgentFailure::VersionNotSupported(_))) {
                    self.known.is_wrong.store(false, Ordering::Release);
                }
                said
            }
            (result, _) => result,
        }
    }

    async fn send_once(&self, message: &mut Message, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        let interface = &self.known.interface;
        // The task that exists at the agent already.
        let about = message.task_id.clone();
        let begins = about.is_none() && interface.dialect.client_generates_task_ids();
        if begins {
            message.context_id.get_or_insert_with(|| uuid(rand::random()));
            let task = message.task_id.insert(uuid(rand::random()));
            track.set_name(task, message.context_id.as_deref());
        }
        let streams = self.known.streaming && !track.is_beside();
        let written = interface.send(message, self.known.accepted_output(message), streams)?;
        let method = if streams { Method::Stream } else { Method::Send };
        let endpoints = &self.known.endpoints;
        let mut ask = AgentRequest::new(method, about.as_deref(), written);
        ask.context = message.context_id.clone().filter(|_| endpoints.are_several());
        ask.begins = message.task_id.clone().filter(|_| begins);
        track.expect_first_response();
        match self.read_response(ask, track).await {
            // No response, but the task has a name to ask for it by.
            Err(trouble @ (AgentFailure::Timeout(_) | AgentFailure::ConnectionLost(_)))
                if begins && !track.is_judged() =>
            {
                match Box::pin(self.recover(track, trouble.clone())).await {
                    Err(AgentFailure::TaskNotFound) => Err(trouble),
                    judged => judged,
                }
            }
            heard => heard,
        }
    }

    /// Sends a request and handles the response.
    async fn read_response(&self, ask: AgentRequest, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        // Boxed: a stream must not be larger by the states before its response.
        let (form, mut reply) = Box::pin(post(&self.client, &self.known, &ask)).await?;
        let endpoints = &self.known.endpoints;
        if endpoints.are_several() {
            track.home = ask.place().map(|at| (endpoints.clone(), at));
        }
        // Its body is not held while the agent works.
        drop(ask);
        match form {
            BodyKind::Stream => self.read_stream(reply, track).await,
            BodyKind::Json => {
                let status = reply.status();
                let body = whole(&mut reply, &self.known, &mut track.room).await?;
                let event = SharedBody::new(&body).read(|| self.known.interface.event(&body));
                let event = event.map_err(|error| by_status(first_refusal(error), status))?;
                // From here on only the event is held, with the body if a long text keeps that.
                drop(body);
                track.response_has_come();
                if track.on_event(event) || track.is_beside() {
                    return Ok(());
                }
                if track.task_id.is_none() {
                    return Err(AgentFailure::ProtocolViolation(
                        "its answer is neither a task nor a message".into(),
                    ));
                }
                self.pause(FIRST_PAUSE).await;
                Box::pin(self.recover(track, AgentFailure::TaskNotFound)).await
            }
        }
    }

    /// Reads a stream to its end; asks the agent for the state of the task if the end came too
    /// early or the stream is silent.
    async fn read_stream(&self, reply: AgentResponse, track: &mut TaskTracker) -> Result<(), AgentFailure> {
        let mut listening = EventStream::new(reply, self.terms);
        loop {
            match listening.read(&self.known, track).await? {
                StreamEnd::Said => return Ok(()),
                StreamEnd::Early(_) if track.awaits_authorization() => {
                    track.response_broke_off();
                    return Box::pin(self.recover(track, AgentFailure::TaskNotFound)).await;
                }
                StreamEnd::Early(stopped) => {
                    track.response_broke_off();
                    return self.judge_stopped(track, stopped).await;
                }
                StreamEnd::Ended if track.awaits_authorization() => {
                    track.response_ended();
                    return Box::pin(self.recover(track, AgentFailure::TaskNotFound)).await;
                }
                StreamEnd::Ended => {
                    track.response_ended();
                    track.watch_stall(self.terms.stalled);
                    return self
                        .judge_stopped(track, AgentFailure::ConnectionLost("its stream ended too early"))
                        .await;
                }
                StreamEnd::Silent => {
                    if Box::pin(self.check_status(track)).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn judge_stopped(
        &self,
        track: &mut TaskTracker,
        stopped: AgentFailure,
    ) -> Result<(), AgentFailure> {
        if track.task_id.is_some() {
            self.known.metrics.reattached();
        }
        Box::pin(self.recover(track, stopped)).await
    }

    /// Follows a task until it ends or asks; or until there is no stream to read, if the call may
    /// be idle then.
    ///
    /// `stopped` is the failure that stopped the stream; it is returned if the agent never responds
    /// again.
    async fn recover(&self, track: &mut TaskTracker, stopped: AgentFailure) -> Result<(), AgentFailure> {
        let Some(task) = track.task_id.clone() else { return Err(stopped) };
        track.judging();
        self.known.record_event(SpanEvent::Recovery);
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
                    let is_over = track.take_look(found);
                    track.has_room().await;
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
    async fn check_status(&self, track: &mut TaskTracker) -> Result<bool, AgentFailure> {
        let Some(task) = track.task_id.clone() else { return Ok(false) };
        match get_task(&self.client, &self.known, &task, &mut track.room).await {
            Ok(found) => Ok(track.take_look(found)),
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
            Some(Err(trouble)) => return Ok(trouble.is_transient()),
        };
        if form == BodyKind::Json {
            let body = whole(&mut reply, &self.known, &mut track.room).await?;
            let event = SharedBody::new(&body).read(|| self.known.interface.event(&body));
            drop(body);
            return match event {
                Ok(event) => Ok(!track.on_event(event)),
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

    /// Waits, with jitter.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::time::sleep(with_jitter(pause, JITTER, rand::random())).await;
    }
}

/// The interval of polls: longer while nothing changes, and longer still while the agent is
/// unreachable.
struct PollBackoff {
    /// The pauses while nothing changes.
    unchanged: Backoff,
    /// The pauses after failures.
    failing: Backoff,
    doublings: u32,
    failures: u32,
    /// True if its breaker was open since the last response.
    is_resting: bool,
    max_attempts: u32,
}

impl PollBackoff {
    fn new(call: &AgentCall) -> Self {
        let terms = call.terms;
        Self {
            unchanged: Backoff { base: FIRST_PAUSE, max: LONGEST_PAUSE.min(terms.retry_max) },
            failing: Backoff { base: terms.retry_base, max: terms.retry_max },
            doublings: 0,
            failures: 0,
            is_resting: false,
            max_attempts: terms.max_attempts,
        }
    }

    fn resubscribe(&mut self) {
        (self.failures, self.doublings, self.is_resting) = (0, 0, false);
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
        if !trouble.is_transient() && !is_doubtful {
            return Err(trouble);
        }
        if trouble.is_unavailable() {
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
            self.doublings = 0;
        }
        Ok(())
    }

    /// Returns the next pause while the breaker is open, which is no failure.
    fn resting(&mut self) -> Duration {
        self.is_resting = true;
        self.next()
    }

    fn next(&mut self) -> Duration {
        let backoff = if self.failures == 0 { self.unchanged } else { self.failing };
        let pause = backoff.pause(self.doublings);
        self.doublings = self.doublings.saturating_add(1);
        pause
    }
}

fn lost(stopped: AgentFailure) -> AgentFailure {
    match stopped {
        AgentFailure::Rejected(_) => stopped,
        _ => AgentFailure::TaskNotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_result<F: Future>(_: impl Fn(AgentCall, AgentOperation, CallOutput) -> F) -> usize {
        size_of::<F>()
    }

    /// An open stream holds it for as long as its agent works.
    #[test]
    fn an_exchange_is_small() {
        let size = size_of_result(AgentCall::run);
        assert!(size <= 3_712, "{size} bytes");
    }
}
