//! Passing on to an A2A client what an agent pushes for it: under its own ids, in its own version, at its own address.
//!
//! The address that the agent was given says all that is needed (see `pushing`). The agent is answered once the client has answered,
//! so that it may try again if that failed. Nothing is tried again here, and no redirect is followed. Not here: the door (see
//! `gateway::push`), what a push is in each version (see `a2a::relay`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use pingora::proxy::Session;
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use super::ids::ExchangeIds;
use super::push::dialect_of;
use super::translate::ClientIds;
use super::webhook_targets::policy_of;
use crate::a2a::translate::{AgentResponse, IdKind, Operation, PushPayload};
use crate::a2a::{Dialect, MAX_PUSH_BYTES, PUSH_TOKEN, accepts, matches_token};
use crate::agents::{Agent, ResolvedAgent, look};
use crate::auth::Caller;
use crate::fault::{AgentFailure, Fault};
use crate::gateway::access_record::AccessRecord;
use crate::gateway::body::BodyLimits;
use crate::gateway::limits::{QuotaKind, QuotaOwner};
use crate::gateway::response::{ClientGone, empty};
use crate::gateway::{Inner, body};
use crate::seal::WebhookTicket;
use crate::telemetry::label::{Outcome, Push};
use crate::transport::{ExchangeTimeouts, TargetSettings, TransportError, Upstream, client_config};

/// Most pushes that are passed on at once; each may hold some MiB.
const MAX_CONCURRENT_FORWARDS: usize = 128;
/// How long a client may take to answer; agents mostly give up after five seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// How long an agent may take to say how the task of its push stands.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

const TOKEN: HeaderName = HeaderName::from_static(PUSH_TOKEN);
const PLAIN: HeaderValue = HeaderValue::from_static("application/json");
const A2A: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// What passing on needs.
pub(in crate::gateway) struct WebhookForwarder {
    room: Arc<Semaphore>,
    /// Whom the gateway trusts at https addresses of clients: as the system does; `None`: nobody.
    tls: OnceLock<Option<Arc<ClientConfig>>>,
}

/// What a client is sent.
struct ForwardedPush {
    media_type: HeaderValue,
    body: Bytes,
}

impl WebhookForwarder {
    pub(in crate::gateway) fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(MAX_CONCURRENT_FORWARDS)), tls: OnceLock::new() }
    }

    fn target(&self, uri: Uri, inner: &Inner) -> Result<Upstream, TransportError> {
        let tls = self.tls.get_or_init(|| {
            let made = client_config(None, None).map(Arc::new);
            made.inspect_err(|error| tracing::warn!(%error, "no webhook with https can be reached")).ok()
        });
        let timeouts = ExchangeTimeouts {
            connect: ANSWERED_WITHIN,
            first_byte: ANSWERED_WITHIN,
            idle: ANSWERED_WITHIN,
            total: ANSWERED_WITHIN,
        };
        // Judged again, by where its name leads now.
        let policy = policy_of(&uri, &inner.settings.outbound.webhooks)?;
        // Another connection each time: they are made with secrets of clients.
        Upstream::new(TargetSettings {
            tls: tls.clone(),
            timeouts,
            max_idle: 0,
            ..TargetSettings::new(uri, policy)
        })
    }
}

impl Inner {
    /// Takes a push in that is meant for a client, and passes it on.
    pub(in crate::gateway) async fn forward_push(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        ((ticket, proof), agent): ((WebhookTicket, String), Arc<Agent>),
    ) -> Result<(), ClientGone> {
        let known = agent.known().map(ResolvedAgent::in_effect);
        let headers = &http.req_header().headers;
        // What is in the body is passed on: a signature that nobody checks counts only for those that have nothing else to show.
        let is_oldest = known.as_ref().is_some_and(|known| known.interface.dialect == Dialect::V0_1);
        if !(matches_token(headers, &proof) || (is_oldest && accepts(headers, &proof))) {
            self.metrics.record_push(Push::Unproven);
            return self.refuse_push(http, exchange).await;
        }
        let caller = QuotaOwner::Caller(ticket.caller.as_str().into());
        let room = self.forwarding.room.clone().try_acquire_owned().ok();
        let share = self.shares.acquire(&caller, QuotaKind::Push).ok();
        let Some(_room) = room.zip(share) else {
            self.metrics.record_push(Push::Overloaded);
            return self
                .reject_without_reading_body(http, exchange, Fault::Busy("too many pushes are under way"))
                .await;
        };
        let whose = QuotaOwner::Agent(ticket.agent.as_str().into());
        let intake = BodyLimits { limit: MAX_PUSH_BYTES, whose: Some(&whose), ..self.intake(exchange) };
        let body = match body::read_body(http, &intake).await {
            Ok(body) => body,
            Err(fault) => {
                self.metrics.record_push(Push::Unread);
                return self.reject_without_reading_body(http, exchange, fault).await;
            }
        };
        let media_type = media_type(&http.req_header().headers);
        let outcome = match Box::pin(self.for_client(&ticket, (&agent, known), (&body, media_type))).await {
            Ok(Some(told)) => Box::pin(self.forward(&ticket, told)).await,
            Ok(None) => Push::OtherTask,
            Err(trouble) => {
                tracing::debug!(agent = %ticket.agent, %trouble, "a push cannot be told to its client");
                Push::Unsaid
            }
        };
        self.metrics.record_push(outcome);
        // What is about nothing that can be passed on must not be sent again.
        let status = match outcome {
            Push::Forwarded | Push::OtherTask => StatusCode::NO_CONTENT,
            _ => StatusCode::BAD_GATEWAY,
        };
        if status != StatusCode::NO_CONTENT {
            (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("webhook"));
        }
        empty(http, status, Vec::new()).await
    }

    /// What the client is told; nothing, if it is about another task than the address is for, or about none.
    async fn for_client(
        &self,
        ticket: &WebhookTicket,
        (agent, known): (&Agent, Option<Arc<ResolvedAgent>>),
        (body, media_type): (&[u8], HeaderValue),
    ) -> Result<Option<ForwardedPush>, AgentFailure> {
        let (Ok(text), Some(to)) = (str::from_utf8(body), dialect_of(ticket.version)) else {
            return Ok(None);
        };
        let from = known.as_ref().map_or(to, |known| known.interface.dialect);
        let Some(pushed) = PushPayload::read(text, from) else { return Ok(None) };
        let task = pushed.task_id();
        if ticket.task.as_deref().is_some_and(|own| task.is_some_and(|task| task != own)) {
            return Ok(None);
        }
        let caller = Caller::hypothetical(&ticket.caller, Vec::new(), Vec::new());
        let mut ids = ExchangeIds::new(&self.sealer, &self.handed, caller, (&agent.settings.name, from));
        if pushed.is_for(to) {
            let sealed = ids.seal_task_id(pushed.json(), Operation::Subscribe)?;
            return Ok(Some(ForwardedPush { media_type, body: sealed.into_owned().into() }));
        }
        let Some(task) = task else { return Ok(None) };
        let mut answer = if pushed.is_complete(to) {
            pushed.answer().map_err(|error| AgentFailure::ProtocolViolation(error.to_string()))?
        } else {
            // Clients before 1.0 are pushed tasks, and this is less than one.
            let known =
                known.ok_or_else(|| AgentFailure::CardUnavailable("its card has not come yet".to_owned()))?;
            let mut room =
                self.shares.answer_room(Some(&QuotaOwner::Agent(agent.settings.name.as_str().into())));
            let looking = look(&self.client, &known, task, &mut room);
            let found = tokio::time::timeout(RESOLVE_TIMEOUT, Box::pin(looking)).await;
            let found = found.unwrap_or(Err(AgentFailure::Timeout("it does not say how the task stands")))?;
            AgentResponse::of_task(found, known.interface.dialect)
        };
        // A client of 0.1 has named the task itself, if the agent has not.
        let own = ClientIds::new(&self.names, &ticket.caller, &agent.settings.name);
        let own = (to == Dialect::V0_1 && from != to).then_some(own);
        let mut shown = |kind, id: &str| {
            let name = own.as_ref().and_then(|own| own.name_of(kind, id));
            name.unwrap_or_else(|| ids.seal(kind, id))
        };
        let exchanged = answer.ids_mut(|kind, id| {
            *id = shown(kind, id);
            Ok::<_, AgentFailure>(())
        });
        exchanged?;
        let media_type = if to == Dialect::V1 { A2A } else { PLAIN };
        let written = answer.pushed(to, &shown(IdKind::Task, task));
        Ok(written.map(|body| ForwardedPush { media_type, body: body.into() }))
    }

    /// Sends a client what it is told.
    async fn forward(&self, ticket: &WebhookTicket, told: ForwardedPush) -> Push {
        let sent = async {
            let uri: Uri = ticket.url.parse().map_err(|_| TransportError::BadUri("it is no URL"))?;
            let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            let target = self.forwarding.target(uri, self)?;
            let mut request = Request::post(path).header(CONTENT_TYPE, told.media_type);
            if let Some(token) = &ticket.token {
                request = request.header(TOKEN, secret(token)?);
            }
            if let Some(credentials) = authorization(ticket) {
                request = request.header(AUTHORIZATION, secret(&credentials)?);
            }
            let request = request.body(told.body).map_err(|_| TransportError::BadUri("it is no URL"))?;
            self.client.send(&target, request).await.map(|reply| reply.status())
        };
        let agent = ticket.agent.as_str();
        match sent.await {
            Ok(status) if status.is_success() => Push::Forwarded,
            Ok(status) => {
                tracing::debug!(agent, %status, "a client refuses a push");
                Push::ClientRefused
            }
            Err(error) => {
                tracing::debug!(agent, %error, "a client cannot be reached with a push");
                Push::ClientUnreachable
            }
        }
    }
}

/// What goes into `Authorization`, if the client has said all of it.
fn authorization(ticket: &WebhookTicket) -> Option<String> {
    let given = ticket.authentication.as_ref()?;
    let (scheme, credentials) = (given.schemes.first()?, given.credentials.as_ref()?);
    Some(format!("{scheme} {credentials}"))
}

fn secret(text: &str) -> Result<HeaderValue, TransportError> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| TransportError::BadUri("a secret is no header value"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What the agent calls its body, if that is one of the two names of it.
fn media_type(headers: &HeaderMap) -> HeaderValue {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = named.split(';').next().unwrap_or_default().trim();
    if name.eq_ignore_ascii_case("application/a2a+json") { A2A } else { PLAIN }
}
