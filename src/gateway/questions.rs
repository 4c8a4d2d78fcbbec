//! Questions of agents, asked in the best form that the client supports.
//!
//! Reads docs/spec/mcp.md §2.10, §2.12, §3.2. Modern clients get `input_required` and call again;
//! legacy clients get an elicitation on the stream of the call; other clients get the question as
//! text. See also `input_responses` (the answers) and `bridge::elicitation` (forms).

use std::sync::Arc;
use std::time::Instant;

use rand::random;

use super::responder::CallResponder;
use super::response::ClientGone;
use super::run::{ActiveCall, CallStep, ResultKind};
use super::source::{EventSource, FollowedTask};
use super::{ClientContext, Inner, now};
use crate::a2a::TaskState;
use crate::bridge::elicitation::{AgentQuestion, ElicitationRequests};
use crate::bridge::extension::ClientExtensions;
use crate::bridge::{response_mode, tool_result};
use crate::mcp::Era;
use crate::mcp::elicitation::{ElicitRequest, complete, create};
use crate::mcp::notifications::cancelled;
use crate::mcp::tools::CallToolResult;
use crate::seal::{ElicitationTicket, RequestState};
use crate::tasks::{AnswerRefusal, TaskEntry, TaskPhase};
use crate::telemetry::label::Asked;

/// Most `input_required` results of one call: real clients stop after ten.
const MOST_ROUNDS: u8 = 9;
/// Most questions on the stream of one call.
const MOST_ASKED: u8 = 32;
/// Lifetime of a `requestState`, in seconds: as long as a user may think.
const STATE_LASTS: u64 = 24 * 3600;

/// Question that is open on the stream to a client.
#[derive(Debug)]
pub(super) struct PendingElicitation {
    id: String,
    turn: [u8; 16],
    key: String,
    is_url: bool,
}

impl Inner {
    /// Handles a question of the agent: returns the response to the client, or the next step of the
    /// call.
    pub(super) async fn ask_client(
        &self,
        source: EventSource,
        serving: &mut ActiveCall<'_>,
        pump: &mut CallResponder<'_>,
    ) -> Result<CallStep, ClientGone> {
        let handle = self.result(&source, serving);
        let Ok(mut watched) = source.hand_to_background(&self.followers, &serving.agent.settings.name) else {
            return Ok(self.as_text_result(serving, &handle));
        };
        self.issue_handle(&watched.entry, serving.asker).await;
        let Some((question, turn)) = question_of(&watched.entry) else {
            return Ok(CallStep::Go(EventSource::Watched(watched)));
        };
        if let Some(refusal) = watched.entry.visible_state(|inside| inside.refusal(turn)) {
            let declined = self.declined(&watched, serving, refusal);
            return Ok(CallStep::Say(Some(self.encode_result(serving, &declined))));
        }
        if let Some(along) = serving.along.take()
            // Extension values of the call were sent with its first message.
            && let asked = (&question, ClientExtensions::default())
            && let Ok(true) = self.accept_input_responses(&watched.entry, &watched.known, asked, Some(along)).await
        {
            return Ok(CallStep::Go(EventSource::Watched(watched)));
        }
        if !matches!(serving.form, ResultKind::Tool | ResultKind::CoreResult(_)) {
            return Ok(self.as_text_result(serving, &handle));
        }
        let Some(open) = self.open_asks(&watched.entry, &question, turn, serving.asker) else {
            return Ok(self.as_text_result(serving, &handle));
        };
        match serving.asker.version.era() {
            Era::Modern if serving.round < MOST_ROUNDS => {
                watched.entry.set_push_expected(Instant::now() + self.settings.calls.round_grace);
                self.metrics.tasks.asked(Asked::Mrtr);
                Ok(CallStep::Say(Some(self.respond_input_required(&watched, serving, Some((turn, &open))))))
            }
            Era::Legacy
                if pump.can_ask() && serving.asker.session.is_some() && serving.asked < MOST_ASKED =>
            {
                if self.elicit(&mut watched, serving, pump, (&question, &open)).await? {
                    self.metrics.tasks.asked(Asked::Elicitation);
                    return Ok(CallStep::Go(EventSource::Watched(watched)));
                }
                Ok(self.as_text_result(serving, &handle))
            }
            Era::Modern | Era::Legacy => Ok(self.as_text_result(serving, &handle)),
        }
    }

    /// Returns the question as text, with the handle for the answer.
    fn as_text_result(&self, serving: &ActiveCall<'_>, handle: &CallToolResult) -> CallStep {
        self.metrics.tasks.asked(Asked::Handle);
        CallStep::Say(Some(self.encode_result(serving, handle)))
    }

    /// Returns the unanswered parts of a question in the form for this client; `None` if the client
    /// cannot be asked.
    pub(super) fn open_asks(
        &self,
        entry: &TaskEntry,
        question: &AgentQuestion,
        turn: [u8; 16],
        asker: &ClientContext,
    ) -> Option<ElicitationRequests> {
        let asks = question.asks(asker.version, asker.capabilities)?;
        let answered = entry.visible_state(|inside| inside.answered_keys(turn));
        let open = question.inputs.iter().map(|input| input.key.clone());
        let open: Vec<String> = open.filter(|key| !answered.contains(key)).collect();
        Some(asks.only(&open))
    }

    /// Returns the result that makes a modern client call again: with answers, or only to continue
    /// the wait.
    pub(super) fn respond_input_required(
        &self,
        watched: &FollowedTask,
        serving: &ActiveCall<'_>,
        asking: Option<([u8; 16], &ElicitationRequests)>,
    ) -> Vec<u8> {
        let state = RequestState {
            agent: serving.agent.settings.name.clone(),
            task: self.task_key(&watched.entry),
            round: serving.round.saturating_add(1),
            turn: asking.map(|(turn, _)| turn),
            digest: response_mode::digest(serving.call.0, serving.call.1),
            expires: now().saturating_add(STATE_LASTS),
        };
        let state = state.seal(&self.sealer, serving.asker.caller.name(), random());
        let requests = asking.and_then(|(_, asks)| asks.input_requests());
        self.writer(Era::Modern).input_required(serving.id, requests.as_deref(), &state)
    }

    /// Sends an elicitation on the stream of the call. The call then waits for the task, as the
    /// answer may come by any path. Returns true if an elicitation was sent.
    async fn elicit(
        &self,
        watched: &mut FollowedTask,
        serving: &mut ActiveCall<'_>,
        pump: &mut CallResponder<'_>,
        (question, asks): (&AgentQuestion, &ElicitationRequests),
    ) -> Result<bool, ClientGone> {
        let (Some((key, ask)), Some(session)) = (asks.iter().next(), &serving.asker.session) else {
            return Ok(false);
        };
        let turn = question.turn.to_bytes();
        let ticket = ElicitationTicket {
            session: session.key,
            agent: serving.agent.settings.name.clone(),
            task: self.task_key(&watched.entry),
            turn: question.question_fingerprint(key),
        };
        let id = ticket.seal(&self.sealer, serving.asker.caller.name());
        let related = match &serving.form {
            ResultKind::CoreResult(task) => Some(task.as_str()),
            ResultKind::Tool | ResultKind::Start | ResultKind::Wait => None,
        };
        // Recorded before the elicitation is sent: an immediate answer must count as a change.
        watched.asked = Some(turn);
        (watched.parts, watched.failures) =
            watched.entry.visible_state(|inside| (inside.answered_keys(turn).len(), inside.failures()));
        pump.send(&create(&id, serving.asker.version, ask, related)).await?;
        let is_url = matches!(ask, ElicitRequest::Url { .. });
        serving.asked = serving.asked.saturating_add(1);
        serving.elicitation = Some(PendingElicitation { id, turn, key: key.to_owned(), is_url });
        // Another client may answer the question.
        self.followers.ensure_followed(&watched.entry, &watched.known);
        Ok(true)
    }

    /// Withdraws an elicitation that needs no answer any more.
    pub(super) async fn close_elicitation(
        &self,
        pump: &mut CallResponder<'_>,
        entry: Option<Arc<TaskEntry>>,
        serving: &mut ActiveCall<'_>,
    ) -> Result<(), ClientGone> {
        let (Some(open), Some(entry)) = (&serving.elicitation, entry) else { return Ok(()) };
        let (phase, was_answered) = entry.visible_state(|inside| {
            let is_over = inside.is_taken(open.turn) || inside.refusal(open.turn).is_some();
            (inside.phase(), is_over || inside.answered_keys(open.turn).contains(&open.key))
        });
        let is_open = matches!(phase, TaskPhase::Asking(turn, _) if turn == open.turn);
        let told = match (open.is_url, is_open) {
            (true, false) => Some(complete(&open.id)),
            _ if was_answered => None,
            _ => Some(cancelled(&open.id, "the answer is not waited for any longer")),
        };
        serving.elicitation = None;
        match told {
            Some(told) => pump.send(&told).await,
            None => Ok(()),
        }
    }

    /// Returns the result for a client that refused to answer.
    pub(super) fn declined(
        &self,
        watched: &FollowedTask,
        serving: &ActiveCall<'_>,
        refusal: AnswerRefusal,
    ) -> CallToolResult {
        let audience = self.audience(serving.asker, &serving.agent.settings.name);
        let local = watched.entry.local();
        watched.entry.visible_state(|inside| match refusal {
            AnswerRefusal::Declined => tool_result::declined(&inside.work, &audience, local),
            AnswerRefusal::Dismissed => tool_result::result(&inside.work, &audience, local),
        })
    }
}

/// Returns the open question of a task.
pub(super) fn question_of(entry: &TaskEntry) -> Option<(AgentQuestion, [u8; 16])> {
    entry.visible_state(|inside| match inside.phase() {
        TaskPhase::Asking(turn, TaskState::InputRequired | TaskState::AuthRequired) => {
            AgentQuestion::of(&inside.work).map(|question| (question, turn))
        }
        _ => None,
    })
}
