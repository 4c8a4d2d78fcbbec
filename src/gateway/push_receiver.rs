//! Push receiver at `/push/{token}`: agents notify the gateway of changes of a task.
//!
//! The token identifies one task of one agent and is the first proof; a credential in the headers
//! is the second (docs/spec/a2a.md §3.4). A push is only a hint: the gateway then asks the agent
//! for the state, in the background, so that the agent gets a response at once and a replay changes
//! nothing. Tokens of another kind are for pushes to A2A clients (see `a2a::push_forward`). See
//! also `follow` and `a2a`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use http::header::{HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use pingora::proxy::Session;

use super::access_record::AccessRecord;
use super::body::BodyLimits;
use super::limits::QuotaOwner;
use super::response::{ClientGone, empty, text};
use super::route::PUSH;
use super::{Inner, body};
use crate::a2a::{MAX_PUSH_BYTES, accepts, push_task_id, validation_echo};
use crate::agents::{Agent, WebhookTarget};
use crate::config::Settings;
use crate::fault::Fault;
use crate::follow::{PushAddressFn, TaskFollower};
use crate::seal::{PushTicket, Sealer, WebhookTicket};
use crate::tasks::{EntryKey, TaskEntry};
use crate::telemetry::label::{Method as Label, Outcome, Push, Refusal};

/// Returns followers that register for pushes at agents, if that is enabled.
pub(super) fn register_pushes(followers: TaskFollower, settings: &Settings, sealer: &Sealer) -> TaskFollower {
    match address(settings, sealer) {
        Some(address) => followers.with_pushes(address),
        None => followers,
    }
}

/// Returns the function that makes push URLs for agents.
fn address(settings: &Settings, sealer: &Sealer) -> Option<PushAddressFn> {
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
enum PushTarget {
    /// A task that is followed here.
    Own(PushTicket),
    /// A client's webhook, and the credential that belongs to it.
    Client(Box<(WebhookTicket, String)>),
}

impl PushTarget {
    fn agent(&self) -> &str {
        match self {
            Self::Own(ticket) => &ticket.agent,
            Self::Client(ticket) => &ticket.0.agent,
        }
    }
}

impl Inner {
    /// Handles a push of an agent, or its check whether it may push.
    pub(super) async fn serve_push(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        (method, token): (Method, &str),
    ) -> Result<(), ClientGone> {
        exchange.method = Label::Push;
        if let Err(fault) = self.gate.check_host(http.req_header()) {
            return self.reject_without_reading_body(http, exchange, fault).await;
        }
        let Some((address, agent)) = self.pushed(token) else {
            self.metrics.record_push(Push::UnknownAddress);
            return self.reject_without_reading_body(http, exchange, Fault::NoSuchPath).await;
        };
        exchange.agent = Some(agent.clone());
        match method {
            Method::POST => match address {
                PushTarget::Own(ticket) => self.take_push(http, exchange, (ticket, agent)).await,
                PushTarget::Client(ticket) => self.forward_push(http, exchange, (*ticket, agent)).await,
            },
            Method::GET => match validation_echo(http.req_header().uri.query().unwrap_or_default()) {
                Some(echo) => {
                    self.metrics.record_push(Push::Validated);
                    text(http, echo).await
                }
                None => {
                    self.reject_without_reading_body(http, exchange, Fault::MethodNotAllowed("POST")).await
                }
            },
            _ => self.reject_without_reading_body(http, exchange, Fault::MethodNotAllowed("POST")).await,
        }
    }

    /// Returns the target of a token, if pushes of its agent are enabled.
    fn pushed(&self, token: &str) -> Option<(PushTarget, Arc<Agent>)> {
        let own = || PushTicket::open(&self.sealer, token).map(PushTarget::Own);
        let client = || WebhookTicket::open(&self.sealer, token).map(Box::new).map(PushTarget::Client);
        let pushed = own().or_else(client).filter(|_| self.settings.push.enabled)?;
        let agent = self.directory.find(pushed.agent())?.clone();
        agent.settings.push.then_some((pushed, agent))
    }

    async fn take_push(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        (ticket, agent): (PushTicket, Arc<Agent>),
    ) -> Result<(), ClientGone> {
        // Checked before the body is read.
        if !accepts(&http.req_header().headers, &ticket.push_credential(&self.sealer)) {
            self.metrics.record_push(Push::Unproven);
            return self.refuse_push(http, exchange).await;
        }
        let whose = QuotaOwner::Agent(ticket.agent.as_str().into());
        let intake = BodyLimits { limit: MAX_PUSH_BYTES, whose: Some(&whose), ..self.intake(exchange) };
        let body = match body::read_body(http, &intake).await {
            Ok(body) => body,
            Err(fault) => {
                self.metrics.record_push(Push::Unread);
                return self.reject_without_reading_body(http, exchange, fault).await;
            }
        };
        let outcome = match push_task_id(&body) {
            Some(task) if task == ticket.task.as_str() => self.mark_changed(&ticket, &agent),
            Some(_) | None => {
                tracing::debug!(agent = %ticket.agent, "ignored push about another task than its url");
                Push::OtherTask
            }
        };
        self.metrics.record_push(outcome);
        // In every case: the agent cannot correct the outcome, and must not send the push again.
        empty(http, StatusCode::NO_CONTENT, Vec::new()).await
    }

    /// Triggers a refresh of the task from the agent.
    fn mark_changed(&self, ticket: &PushTicket, agent: &Agent) -> Push {
        let key = EntryKey::Task { agent: ticket.agent.as_str().into(), id: ticket.task.clone() };
        let (Some(entry), Some(known)) = (self.tasks.get_untouched(&key, Instant::now()), agent.known())
        else {
            return Push::UnknownTask;
        };
        if is_over(&entry) {
            return Push::TaskOver;
        }
        if self.followers.on_push(&entry, &known) { Push::Taken } else { Push::Joined }
    }

    /// Rejects a push without a valid credential.
    pub(super) async fn refuse_push(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
    ) -> Result<(), ClientGone> {
        const BEARER: (HeaderName, HeaderValue) = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        (exchange.outcome, exchange.fault) = (Outcome::Refused, Some("push_unproven"));
        self.metrics.refused(Refusal::Unauthenticated);
        http.set_keepalive(None);
        empty(http, StatusCode::UNAUTHORIZED, vec![BEARER]).await?;
        body::drain_before_close(http, MAX_PUSH_BYTES).await;
        Ok(())
    }
}

fn is_over(entry: &TaskEntry) -> bool {
    entry.visible_state(|inside| inside.is_finished())
}
