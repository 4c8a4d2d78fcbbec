//! Answers of users, on their way to the agent: each question is answered once.
//!
//! An answer comes with a call (`inputResponses`), with `tasks/update`, or as the response to an `elicitation/create`; late or
//! not, it goes to the agent while its question is open. A retried answer never becomes a second message. Not here: asking
//! (see `ask`), who sends (see `follow`).

use std::sync::Arc;

use serde_json::value::RawValue;

use super::ask::question_of;
use super::{Asker, Inner};
use crate::a2a::{Message, Part, Role};
use crate::agents::Known;
use crate::bridge::extension::{Beside, Offered};
use crate::bridge::given::{self, Given};
use crate::bridge::question::Question;
use crate::config::OnDecline;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::elicitation::{Action, Answer};
use crate::seal::ElicitationTicket;
use crate::tasks::{Entry, Parts, Phase, Refusal, Turn};

impl Inner {
    /// Takes what came for an open question, and what is offered for the agent's extensions along with it. Says whether anything of it was answered, or refused.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the client.
    pub(super) async fn take_answers(
        &self,
        entry: &Arc<Entry>,
        known: &Arc<Known>,
        (question, offered): (&Question, Offered<'_>),
        responses: Option<&RawValue>,
    ) -> Result<bool, Fault> {
        let given = question.read_responses(responses).map_err(Fault::BadParams)?;
        // Before anything is taken: what is refused can be given again.
        let beside = offered.beside().map_err(Fault::BadParams)?;
        self.give(entry, known, question, (given, beside)).await
    }

    /// Gives the agent what was answered, once all is there.
    async fn give(
        &self,
        entry: &Arc<Entry>,
        known: &Arc<Known>,
        question: &Question,
        (given, beside): (Given, Beside),
    ) -> Result<bool, Fault> {
        let turn = question.turn.to_bytes();
        if given.declined || given.cancelled {
            if entry.look(|inside| inside.is_taken(turn)) {
                return Err(answered_already());
            }
            let refusal = if given.declined { Refusal::Declined } else { Refusal::Dismissed };
            entry.refuse_turn(turn, refusal);
            if given.declined && self.settings.calls.on_decline == OnDecline::Cancel {
                self.followers.cancel(entry, known);
            }
            return Ok(true);
        }
        if given.accepted.is_empty() {
            return Ok(false);
        }
        if question.url.is_some() {
            // The user has gone to the page; the agent goes on by itself.
            let whose = entry.take_turn(turn, [0; 16]);
            if whose == Turn::Ours {
                self.metrics.tasks.answered();
            }
            self.followers.attend(entry, known);
            return Ok(whose != Turn::Other);
        }
        let mut accepted = given.accepted;
        let taken = if question.inputs.len() > 1 {
            let is_whole = |parts: &Parts| question.inputs.iter().all(|input| parts.contains_key(&input.key));
            let digest = |parts: &Parts| is_whole(parts).then(|| given::digest(parts));
            let answered = entry.answer_in_parts(turn, accepted, digest);
            let (parts, taken) = answered.map_err(|too_large| Fault::BadParams(too_large.to_string()))?;
            accepted = parts;
            taken
        } else {
            Some(entry.take_turn(turn, given::digest(&accepted)))
        };
        let digest = given::digest(&accepted);
        match taken {
            None => Ok(true),
            Some(Turn::Same) => Ok(true),
            Some(Turn::Other) => Err(answered_already()),
            Some(Turn::Ours) => {
                let Some(task) = entry.task_id() else { return Err(Fault::UnknownTask) };
                self.metrics.tasks.answered();
                self.ledger.acknowledge(entry).await;
                let message = Message {
                    message_id: Some(given::message_id(&task, question.turn, digest)),
                    role: Role::User,
                    parts: question.message(&accepted),
                    task_id: None,
                    context_id: None,
                    reference_task_ids: Vec::new(),
                    extensions: beside.uris,
                    metadata: beside.metadata,
                };
                // Whoever waits for the task hears how it goes on; nobody needs to wait here.
                drop(self.followers.say(entry, known, (task, message, Some(question.turn))));
                Ok(true)
            }
        }
    }

    /// Takes the response of a legacy client to an `elicitation/create`. What is not one, or comes too late, is passed over: there is
    /// nobody to tell.
    pub(super) async fn take_response(&self, asker: &Asker, id: &Id, result: Option<&RawValue>) {
        let Some(session) = &asker.session else { return };
        let Some(text) = id.text() else { return };
        let ticket = ElicitationTicket::open(&self.sealer, asker.caller.name(), &text);
        let Some(ticket) = ticket.filter(|ticket| ticket.session == session.key) else {
            tracing::debug!("a client answered what it was not asked");
            return;
        };
        let Some(agent) = self.directory.find(&ticket.agent) else { return };
        let Ok((entry, known)) = self.entry(asker, agent, &ticket.task).await else { return };
        if let Some((question, _)) = question_of(&entry)
            && let Some(turn) = question.in_round_of(ticket.turn)
        {
            entry.adopt_round(turn);
        }
        let Some((question, _)) = question_of(&entry) else { return };
        let Some(key) = question.key_of(ticket.turn).map(str::to_owned) else { return };
        // An error of JSON-RPC means that the client could not ask.
        let answer = result.and_then(Answer::read);
        let answer = answer.unwrap_or(Answer { action: Action::Cancel, content: None });
        let mut given = question.nothing_given();
        if let Err(complaint) = question.take(&mut given, &key, answer) {
            tracing::debug!(complaint, "an answer does not fit its form");
            given.cancelled = true;
        }
        if let Err(fault) = self.give(&entry, &known, &question, (given, Beside::default())).await {
            tracing::debug!(%fault, "an answer is not taken");
        }
    }
}

/// The question that the agent has put last, be it open or answered and not taken up yet: so the same answer is told from another.
pub(super) fn last_question(entry: &Entry) -> Option<Question> {
    entry.look(|inside| match inside.phase() {
        Phase::Running | Phase::Asking(..) => Question::of(&inside.work),
        Phase::Finished | Phase::Failed(_) => None,
    })
}

/// Returns what a model said in a task as its agent takes it: the answer to an open question in the form of that.
///
/// # Errors
///
/// How the answer must be given, for the model.
pub(super) fn in_form_of_question(entry: &Entry, parts: Vec<Part>) -> Result<Vec<Part>, String> {
    match last_question(entry) {
        Some(question) => question.answer(parts),
        None => Ok(parts),
    }
}

pub(super) fn answered_already() -> Fault {
    Fault::BadParams("this question has been answered already, in another way".into())
}
