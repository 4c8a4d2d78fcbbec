//! Answers of users on their way to the agent. Each question is answered once.
//!
//! An answer comes with a call (`inputResponses`), with `tasks/update`, or as the response to an
//! `elicitation/create`. The gateway sends it to the agent while the question is open, also after
//! the call has ended. A retried answer never becomes a second message. See also `questions`.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::questions::question_of;
use super::{CallEngine, ClientContext};
use crate::a2a::{Message, Part, Role};
use crate::agents::ResolvedAgent;
use crate::bridge::elicitation::AgentQuestion;
use crate::bridge::extension::{ClientExtensions, DataOnlyMessage};
use crate::bridge::user_response::{self, UserResponse};
use crate::config::OnDecline;
use crate::fault::Fault;
use crate::follow::TaskMessage as FollowUp;
use crate::jsonrpc::Id;
use crate::mcp::elicitation::{ElicitAction, ElicitResult};
use crate::seal::ElicitationTicket;
use crate::tasks::{AnswerClaim, AnswerRefusal, PartialAnswers, TaskEntry, TaskPhase};

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
