//! Questions of agents, asked in the best form that the client supports.
//!
//! Reads docs/spec/mcp.md §2.10, §2.12, §3.2. Modern clients get `input_required` and call again;
//! legacy clients get an elicitation on the stream of the call; other clients get the question as
//! text. See also `bridge::elicitation` (forms).
//!
//! An answer comes with a call (`inputResponses`), with `tasks/update`, or as the response to an
//! `elicitation/create`. It is sent to the agent once, while the question is open, also after the
//! call has ended.

use std::sync::Arc;

use rand::random;
use serde_json::value::RawValue;

use super::responder::CallResponder;
use super::run::{ActiveCall, CallStep, ResultKind};
use super::source::{EventSource, FollowedTask};
use super::{CallEngine, ClientContext};
use crate::a2a::{Message, Part, Role, TaskState};
use crate::agents::ResolvedAgent;
use crate::bridge::elicitation::{AgentQuestion, ElicitationRequests};
use crate::bridge::extension::{ClientExtensions, DataOnlyMessage};
use crate::bridge::user_response::{self, UserResponse};
use crate::bridge::{response_mode, tool_result};
use crate::config::OnDecline;
use crate::fault::{ClientGone, Fault};
use crate::follow::TaskMessage as FollowUp;
use crate::http_edge::ResponseSink;
use crate::jsonrpc::Id;
use crate::mcp::Era;
use crate::mcp::elicitation::{ElicitAction, ElicitRequest, ElicitResult, complete, create};
use crate::mcp::notifications::cancelled;
use crate::mcp::tools::CallToolResult;
use crate::seal::{ElicitationTicket, RequestState};
use crate::sessions::unix_seconds;
use crate::tasks::{AnswerClaim, AnswerRefusal, PartialAnswers, TaskEntry, TaskPhase};
use crate::telemetry::label::Asked;

/// Most `input_required` results of one call: real clients stop after ten.
const MAX_ROUNDS: u8 = 9;
/// Most questions on the stream of one call.
const MAX_ELICITATIONS: u8 = 32;
/// Lifetime of a `requestState`, in seconds: as long as a user may think.
const REQUEST_STATE_TTL_SECONDS: u64 = 24 * 3600;

/// The round of a question, with the requests for a client.
pub(super) struct AskedTurn<'a> {
    turn: [u8; 16],
    requests: &'a ElicitationRequests,
}

/// Question that is open on the stream to a client.
#[derive(Debug)]
pub(crate) struct PendingElicitation {
    id: String,
    turn: [u8; 16],
    key: String,
    is_url: bool,
}

impl CallEngine {
    /// Handles a question of the agent: returns the response to the client, or the next step of the
    /// call.
    pub(super) async fn ask_client<S: ResponseSink>(
        &self,
        source: EventSource,
        call: &mut ActiveCall<'_>,
        responder: &mut CallResponder<'_, S>,
    ) -> Result<CallStep, ClientGone> {
        let handle = self.result(&source, call);
        let Ok(mut watched) = source.hand_to_background(&self.lookup.followers, &call.agent.settings.name)
        else {
            return Ok(self.as_text_result(call, &handle));
        };
        self.lookup.issue_handle(&watched.entry, call.client).await;
        let Some((question, turn)) = question_of(&watched.entry) else {
            return Ok(CallStep::Continue(EventSource::Watched(watched)));
        };
        if let Some(refusal) = watched.entry.visible_state(|inside| inside.refusal(turn)) {
            let declined = self.declined(&watched, call, refusal);
            return Ok(CallStep::Respond(Some(self.encode_result(call, &declined))));
        }
        if let Some(responses) = call.early_responses.take()
            // Extension values of the call were sent with its first message.
            && let offered = OfferedAnswers::new(responses)
            && let Ok(true) =
                self.accept_input_responses(&watched.entry, &watched.known, &question, offered).await
        {
            return Ok(CallStep::Continue(EventSource::Watched(watched)));
        }
        if !matches!(call.kind, ResultKind::Tool | ResultKind::CoreResult(_)) {
            return Ok(self.as_text_result(call, &handle));
        }
        let Some(open) = open_requests(&watched.entry, &question, turn, call.client) else {
            return Ok(self.as_text_result(call, &handle));
        };
        match call.client.era() {
            Era::Modern if call.round < MAX_ROUNDS => {
                watched.entry.set_push_expected(std::time::Instant::now() + self.settings.calls.round_grace);
                self.metrics.tasks.asked(Asked::Mrtr);
                Ok(CallStep::Respond(Some(self.respond_input_required(
                    &watched,
                    call,
                    Some(AskedTurn { turn, requests: &open }),
                ))))
            }
            Era::Legacy
                if responder.can_ask() && call.client.session.is_some() && call.asked < MAX_ELICITATIONS =>
            {
                if self.elicit(&mut watched, call, responder, &question, &open).await? {
                    self.metrics.tasks.asked(Asked::Elicitation);
                    return Ok(CallStep::Continue(EventSource::Watched(watched)));
                }
                Ok(self.as_text_result(call, &handle))
            }
            Era::Modern | Era::Legacy => Ok(self.as_text_result(call, &handle)),
        }
    }

    /// Returns the question as text, with the handle for the answer.
    fn as_text_result(&self, call: &ActiveCall<'_>, handle: &CallToolResult) -> CallStep {
        self.metrics.tasks.asked(Asked::Handle);
        CallStep::Respond(Some(self.encode_result(call, handle)))
    }

    /// Returns the result that makes a modern client call again: with answers, or only to continue
    /// the wait.
    pub(super) fn respond_input_required(
        &self,
        watched: &FollowedTask,
        call: &ActiveCall<'_>,
        asked: Option<AskedTurn<'_>>,
    ) -> Vec<u8> {
        let state = RequestState {
            agent: call.agent.settings.name.clone(),
            task: self.lookup.task_key(&watched.entry),
            round: call.round.saturating_add(1),
            turn: asked.as_ref().map(|asked| asked.turn),
            digest: response_mode::digest(call.tool, call.arguments),
            expires: unix_seconds().saturating_add(REQUEST_STATE_TTL_SECONDS),
        };
        let state = state.seal(&self.sealer, call.client.caller.name(), random());
        let requests = asked.and_then(|asked| asked.requests.input_requests());
        self.writer(Era::Modern).input_required(call.id, requests.as_deref(), Some(&state))
    }

    /// Sends an elicitation on the stream of the call. The call then waits for the task, as the
    /// answer may come by any path. Returns true if an elicitation was sent.
    async fn elicit<S: ResponseSink>(
        &self,
        watched: &mut FollowedTask,
        call: &mut ActiveCall<'_>,
        responder: &mut CallResponder<'_, S>,
        question: &AgentQuestion,
        requests: &ElicitationRequests,
    ) -> Result<bool, ClientGone> {
        let (Some((key, ask)), Some(session)) = (requests.iter().next(), &call.client.session) else {
            return Ok(false);
        };
        let turn = question.turn.to_bytes();
        let ticket = ElicitationTicket {
            session: session.key,
            agent: call.agent.settings.name.clone(),
            task: self.lookup.task_key(&watched.entry),
            turn: question.question_fingerprint(key),
        };
        let id = ticket.seal(&self.sealer, call.client.caller.name());
        let related = match &call.kind {
            ResultKind::CoreResult(task) => Some(task.as_str()),
            ResultKind::Tool | ResultKind::Start | ResultKind::Wait => None,
        };
        // Recorded before the elicitation is sent: an immediate answer must count as a change.
        watched.asked = Some(turn);
        (watched.parts, watched.failures) =
            watched.entry.visible_state(|inside| (inside.answered_keys(turn).len(), inside.failures()));
        responder.send(&create(&id, call.client.version, ask, related)).await?;
        let is_url = matches!(ask, ElicitRequest::Url { .. });
        call.asked = call.asked.saturating_add(1);
        call.elicitation = Some(PendingElicitation { id, turn, key: key.to_owned(), is_url });
        // Another client may answer the question.
        self.lookup.followers.ensure_followed(&watched.entry, &watched.known);
        Ok(true)
    }

    /// Withdraws an elicitation that needs no answer any more.
    pub(super) async fn close_elicitation<S: ResponseSink>(
        &self,
        responder: &mut CallResponder<'_, S>,
        entry: Option<Arc<TaskEntry>>,
        call: &mut ActiveCall<'_>,
    ) -> Result<(), ClientGone> {
        let (Some(open), Some(entry)) = (&call.elicitation, entry) else { return Ok(()) };
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
        call.elicitation = None;
        match told {
            // Boxed: calls without a question must not be larger by it.
            Some(told) => Box::pin(responder.send(&told)).await,
            None => Ok(()),
        }
    }

    /// Returns the result for a client that refused to answer.
    fn declined(
        &self,
        watched: &FollowedTask,
        call: &ActiveCall<'_>,
        refusal: AnswerRefusal,
    ) -> CallToolResult {
        let context = self.lookup.result_context(call.client, &call.agent);
        let local = watched.entry.local();
        watched.entry.visible_state(|inside| match refusal {
            AnswerRefusal::Declined => tool_result::declined(&inside.work, &context, local),
            AnswerRefusal::Dismissed => tool_result::result(&inside.work, &context, local),
        })
    }
}

/// Returns the open question of a task.
pub(crate) fn question_of(entry: &TaskEntry) -> Option<(AgentQuestion, [u8; 16])> {
    entry.visible_state(|inside| match inside.phase() {
        TaskPhase::Asking(turn, TaskState::InputRequired | TaskState::AuthRequired) => {
            AgentQuestion::of(&inside.work).map(|question| (question, turn))
        }
        _ => None,
    })
}

/// Returns the unanswered parts of a question in the form for this client; `None` if the client
/// cannot be asked.
pub(crate) fn open_requests(
    entry: &TaskEntry,
    question: &AgentQuestion,
    turn: [u8; 16],
    client: &ClientContext<'_>,
) -> Option<ElicitationRequests> {
    let requests = question.asks(client.version, client.capabilities)?;
    let answered = entry.visible_state(|inside| inside.answered_keys(turn));
    let open = question.inputs.iter().map(|input| input.key.clone());
    let open: Vec<String> = open.filter(|key| !answered.contains(key)).collect();
    Some(requests.only(&open))
}

/// Answers of a client, and its values for the agent's extensions.
#[derive(Default)]
pub(crate) struct OfferedAnswers<'a> {
    pub(crate) responses: Option<&'a RawValue>,
    pub(crate) extensions: ClientExtensions<'a>,
}

impl<'a> OfferedAnswers<'a> {
    /// Creates answers without extension values.
    pub(crate) fn new(responses: &'a RawValue) -> Self {
        Self { responses: Some(responses), extensions: ClientExtensions::default() }
    }
}

/// Answer to the agent.
struct SubmittedAnswer {
    response: UserResponse,
    /// Extension values beside the answer.
    beside: DataOnlyMessage,
}

impl CallEngine {
    /// Accepts the answers to an open question, and the client's values for the agent's extensions.
    /// Returns true if at least one answer was accepted or declined.
    ///
    /// # Errors
    ///
    /// The [`Fault`] for the client, if an answer or an extension value is not valid.
    pub(crate) async fn accept_input_responses(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        question: &AgentQuestion,
        offered: OfferedAnswers<'_>,
    ) -> Result<bool, Fault> {
        let response = question.read_responses(offered.responses).map_err(Fault::InvalidParams)?;
        // Checked before an answer is accepted, so that the client can send a rejected answer
        // again.
        let beside = offered.extensions.beside().map_err(Fault::InvalidParams)?;
        self.submit_answer(entry, known, question, SubmittedAnswer { response, beside }).await
    }

    /// Sends the answer to the agent once all parts are present.
    async fn submit_answer(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        question: &AgentQuestion,
        answer: SubmittedAnswer,
    ) -> Result<bool, Fault> {
        let SubmittedAnswer { response: given, beside } = answer;
        let turn = question.turn.to_bytes();
        if given.declined || given.cancelled {
            return self.record_refusal(entry, known, turn, given.declined);
        }
        if given.accepted.is_empty() {
            return Ok(false);
        }
        if question.url.is_some() {
            // The user has opened the page; the agent continues without a message.
            let claim = entry.claim_answer(turn, [0; 16]);
            if claim == AnswerClaim::Ours {
                self.metrics.tasks.answered();
            }
            self.lookup.followers.ensure_followed(entry, known);
            return Ok(claim != AnswerClaim::Other);
        }
        let mut accepted = given.accepted;
        let taken = if question.inputs.len() > 1 {
            let is_whole =
                |parts: &PartialAnswers| question.inputs.iter().all(|input| parts.contains_key(&input.key));
            let digest = |parts: &PartialAnswers| is_whole(parts).then(|| user_response::digest(parts));
            let answered = entry.answer_in_parts(turn, accepted, digest);
            let (parts, taken) = answered.map_err(|too_large| Fault::InvalidParams(too_large.to_string()))?;
            accepted = parts;
            taken
        } else {
            Some(entry.claim_answer(turn, user_response::digest(&accepted)))
        };
        let digest = user_response::digest(&accepted);
        match taken {
            None => Ok(true),
            Some(AnswerClaim::Same) => Ok(true),
            Some(AnswerClaim::Other) => Err(already_answered()),
            Some(AnswerClaim::Ours) => {
                let Some(task) = entry.task_id() else { return Err(Fault::UnknownTask) };
                self.metrics.tasks.answered();
                self.lookup.journal.acknowledge(entry).await;
                let message = Message {
                    message_id: Some(user_response::message_id(&task, question.turn, digest)),
                    role: Role::User,
                    parts: question.message(&accepted),
                    task_id: None,
                    context_id: None,
                    reference_task_ids: Vec::new(),
                    extensions: beside.uris,
                    metadata: beside.metadata,
                };
                // Waiters of the task see the outcome in its entry, so this request does not wait.
                let message = FollowUp { task, message, turn: Some(question.turn) };
                drop(self.lookup.followers.send_message(entry, known, message));
                Ok(true)
            }
        }
    }

    /// Records that the user declined or dismissed the question of `turn`. A declined question ends
    /// the task if the settings say so.
    fn record_refusal(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        turn: [u8; 16],
        is_declined: bool,
    ) -> Result<bool, Fault> {
        if entry.visible_state(|inside| inside.is_taken(turn)) {
            return Err(already_answered());
        }
        entry.record_refusal(
            turn,
            if is_declined { AnswerRefusal::Declined } else { AnswerRefusal::Dismissed },
        );
        if is_declined && self.settings.calls.on_decline == OnDecline::Cancel {
            self.lookup.followers.cancel(entry, known);
        }
        Ok(true)
    }

    /// Accepts the response of a legacy client to an `elicitation/create`. A response that does not
    /// match or comes too late is ignored: it has no response of its own.
    pub(crate) async fn accept_elicitation_response(
        &self,
        client: &ClientContext<'_>,
        id: &Id,
        result: Option<&RawValue>,
    ) {
        let Some(session) = &client.session else { return };
        let Some(text) = id.text() else { return };
        let ticket = ElicitationTicket::open(&self.sealer, client.caller.name(), &text);
        let Some(ticket) = ticket.filter(|ticket| ticket.session == session.key) else {
            tracing::debug!("ignored response of client to unknown elicitation");
            return;
        };
        let Some(agent) = self.lookup.directory.find(&ticket.agent) else { return };
        let Ok((entry, known)) = self.lookup.entry(client, agent, &ticket.task).await else { return };
        if let Some((question, _)) = question_of(&entry)
            && let Some(turn) = question.in_round_of(ticket.turn)
        {
            entry.adopt_round(turn);
        }
        let Some((question, _)) = question_of(&entry) else { return };
        let Some(key) = question.key_of(ticket.turn).map(str::to_owned) else { return };
        // A JSON-RPC error means that the client could not ask its user.
        let answer = result.and_then(ElicitResult::read);
        let answer = answer.unwrap_or(ElicitResult { action: ElicitAction::Cancel, content: None });
        let mut given = question.empty();
        if let Err(complaint) = question.take(&mut given, &key, answer) {
            tracing::debug!(error = complaint, "rejected elicitation answer");
            given.cancelled = true;
        }
        let answer = SubmittedAnswer { response: given, beside: DataOnlyMessage::default() };
        if let Err(fault) = self.submit_answer(&entry, &known, &question, answer).await {
            tracing::debug!(error = %fault, "failed to accept elicitation answer");
        }
    }
}

/// Returns the agent's latest question, open or answered but not yet processed by the agent. Used
/// to recognize a repeated answer.
pub(crate) fn last_question(entry: &TaskEntry) -> Option<AgentQuestion> {
    entry.visible_state(|inside| match inside.phase() {
        TaskPhase::Running | TaskPhase::Asking(..) => AgentQuestion::of(&inside.work),
        TaskPhase::Finished | TaskPhase::Failed(_) => None,
    })
}

/// Returns the parts of a model's message in the form that the open question requires, if there is
/// one.
///
/// # Errors
///
/// A text for the model on how to answer.
pub(crate) fn in_form_of_question(entry: &TaskEntry, parts: Vec<Part>) -> Result<Vec<Part>, String> {
    match last_question(entry) {
        Some(question) => question.answer(parts),
        None => Ok(parts),
    }
}

pub(crate) fn already_answered() -> Fault {
    Fault::InvalidParams("this question has been answered already, in another way".into())
}
