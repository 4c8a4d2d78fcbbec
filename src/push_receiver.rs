//! Push receiver at `/push/{token}`: agents notify the gateway of changes of a task.
//!
//! The token identifies one task of one agent and is the first proof; a credential in the headers
//! is the second (docs/spec/a2a.md §3.4). A push is only a hint: the gateway then asks the agent
//! for the state, in the background, so that the agent gets a response at once and a replay changes
//! nothing. Tokens of another kind are for pushes to A2A clients (see `a2a_server`). See also
//! `follow` and `a2a`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;

use crate::a2a::{MAX_PUSH_BYTES, accepts, push_task_id};
use crate::agents::{Agent, Directory, WebhookTarget};
use crate::config::Settings;
use crate::fault::Abort;
use crate::follow::{PushAddressFn, TaskFollower};
use crate::http_edge::{AccessRecord, BodyReader, ClientConnection, PUSH, empty, reject_unproven_push};
use crate::quota::QuotaOwner;
use crate::seal::{PushTicket, Sealer, WebhookTicket};
use crate::tasks::{EntryKey, TaskEntry, Tasks};
use crate::telemetry::label::Push;
use crate::telemetry::metrics::Metrics;

/// Returns the function that makes push URLs for agents, if pushes are enabled.
pub(crate) fn push_address(settings: &Settings, sealer: &Sealer) -> Option<PushAddressFn> {
    let base = settings.public_url.as_deref().filter(|_| settings.push.enabled)?;
    let base = format!("{}{PUSH}", base.trim_end_matches('/'));
    let pushing: HashSet<String> =
        settings.agents.iter().filter(|agent| agent.push).map(|agent| agent.name.clone()).collect();
    let sealer = sealer.clone();
    Some(Box::new(move |agent, task| {
        let ticket = PushTicket { agent: agent.to_owned(), task: task.into() };
        let is_wanted = pushing.contains(agent) && ticket.fits();
        is_wanted.then(|| WebhookTarget {
            url: format!("{base}{}", ticket.seal(&sealer)),
            token: ticket.push_credential(&sealer),
        })
    }))
}

/// Target of a push token.
pub(crate) enum PushTarget {
    /// A task that is followed here.
    Own(TaskPush),
    /// A client's webhook.
    Client(Box<ClientPush>),
}

/// Push of an agent about a task that is followed here.
pub(crate) struct TaskPush {
    pub(crate) ticket: PushTicket,
    pub(crate) agent: Arc<Agent>,
}

/// Push of an agent to a client's webhook, and the credential that belongs to its URL.
pub(crate) struct ClientPush {
    pub(crate) ticket: WebhookTicket,
    pub(crate) proof: String,
    pub(crate) agent: Arc<Agent>,
}

impl PushTarget {
    /// Returns the agent that pushes.
    pub(crate) fn agent(&self) -> &Arc<Agent> {
        match self {
            Self::Own(push) => &push.agent,
            Self::Client(push) => &push.agent,
        }
    }
}

/// Receives pushes of agents about tasks that are followed here.
pub(crate) struct PushReceiver {
    pub(crate) sealer: Sealer,
    pub(crate) directory: Arc<Directory>,
    pub(crate) tasks: Tasks,
    pub(crate) followers: Arc<TaskFollower>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) body: Arc<BodyReader>,
    /// True if agents may push.
    pub(crate) is_enabled: bool,
}

impl PushReceiver {
    /// Returns the target of a token, if pushes of its agent are enabled.
    pub(crate) fn target(&self, token: &str) -> Option<PushTarget> {
        if let Some(ticket) = PushTicket::open(&self.sealer, token) {
            let agent = self.pushing_agent(&ticket.agent)?;
            return Some(PushTarget::Own(TaskPush { ticket, agent }));
        }
        let (ticket, proof) = WebhookTicket::open(&self.sealer, token)?;
        let agent = self.pushing_agent(&ticket.agent)?;
        Some(PushTarget::Client(Box::new(ClientPush { ticket, proof, agent })))
    }

    /// Returns an agent by name, if it may push.
    fn pushing_agent(&self, name: &str) -> Option<Arc<Agent>> {
        let agent = self.directory.find(name).filter(|_| self.is_enabled)?;
        agent.settings.push.then(|| agent.clone())
    }

    /// Receives a push about a task that is followed here.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which the body was not read.
    pub(crate) async fn receive(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        TaskPush { ticket, agent }: &TaskPush,
    ) -> Result<(), Abort> {
        // Checked before the body is read.
        if !accepts(&http.head().headers, &ticket.push_credential(&self.sealer)) {
            self.metrics.record_push(Push::Unproven);
            return Ok(reject_unproven_push(http, record, &self.metrics, MAX_PUSH_BYTES).await?);
        }
        let owner = QuotaOwner::Agent(ticket.agent.as_str().into());
        let body = self.body.read(http, Some(&owner), Some(MAX_PUSH_BYTES)).await;
        let body = body.inspect_err(|_| self.metrics.record_push(Push::Unread))?;
        let outcome = match push_task_id(&body) {
            Some(task) if task == ticket.task.as_str() => self.mark_changed(ticket, agent),
            Some(_) | None => {
                tracing::debug!(agent = %ticket.agent, "ignored push about another task than its url");
                Push::OtherTask
            }
        };
        self.metrics.record_push(outcome);
        // In every case: the agent cannot correct the outcome, and must not send the push again.
        Ok(empty(http, StatusCode::NO_CONTENT, Vec::new()).await?)
    }

    /// Triggers a refresh of the task from the agent.
    fn mark_changed(&self, ticket: &PushTicket, agent: &Agent) -> Push {
        let key = EntryKey::Task { agent: ticket.agent.as_str().into(), id: ticket.task.clone() };
        let (Some(entry), Some(resolved)) = (self.tasks.get_untouched(&key, Instant::now()), agent.known())
        else {
            return Push::UnknownTask;
        };
        if is_over(&entry) {
            return Push::TaskOver;
        }
        if self.followers.on_push(&entry, &resolved) { Push::Taken } else { Push::Joined }
    }
}

fn is_over(entry: &TaskEntry) -> bool {
    entry.is_finished()
}
