//! Forwarding of agents' pushes to A2A clients: with the client's ids, in its version, to its
//! webhook.
//!
//! The URL that the agent got holds all data (see `push`). The agent gets its response after the
//! client's, so that the agent may retry. The gateway does not retry, and follows no redirect. See
//! also `gateway::push_receiver` (the route) and `a2a::translate` (the payloads).

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

/// Most concurrent forwards; each may hold some MiB.
const MAX_CONCURRENT_FORWARDS: usize = 128;
/// Longest time for a client's response; most agents stop waiting after five seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// Longest time for an agent to return the task of its push.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

const TOKEN: HeaderName = HeaderName::from_static(PUSH_TOKEN);
const PLAIN: HeaderValue = HeaderValue::from_static("application/json");
const A2A: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// Sender of pushes to clients.
pub(in crate::gateway) struct WebhookForwarder {
    room: Arc<Semaphore>,
    /// TLS trust for https webhooks of clients: that of the system; `None` if it is not available.
    tls: OnceLock<Option<Arc<ClientConfig>>>,
}

/// Push in the form for the client.
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
            made.inspect_err(|error| tracing::warn!(%error, "failed to load tls trust for webhooks")).ok()
        });
        let timeouts = ExchangeTimeouts {
            connect: ANSWERED_WITHIN,
            first_byte: ANSWERED_WITHIN,
            idle: ANSWERED_WITHIN,
            total: ANSWERED_WITHIN,
        };
        // Checked again with the present addresses of the host.
        let policy = policy_of(&uri, &inner.settings.outbound.webhooks)?;
        // A new connection each time: the requests carry secrets of clients.
        Upstream::new(TargetSettings {
            tls: tls.clone(),
            timeouts,
            max_idle: 0,
            ..TargetSettings::new(uri, policy)
        })
    }
}

impl Inner {
    /// Accepts a push that is meant for a client, and forwards it.
    pub(in crate::gateway) async fn forward_push(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        ((ticket, proof), agent): ((WebhookTicket, String), Arc<Agent>),
    ) -> Result<(), ClientGone> {
        let known = agent.known().map(ResolvedAgent::in_effect);
        let headers = &http.req_header().headers;
        // The body itself is forwarded: an unverified signature counts only for agents that have no
        // other credential.
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
                tracing::debug!(agent = %ticket.agent, error = %trouble, "failed to prepare push for client");
                Push::Unsaid
            }
        };
        self.metrics.record_push(outcome);
        // A push without forwardable content must not be sent again.
        let status = match outcome {
            Push::Forwarded | Push::OtherTask => StatusCode::NO_CONTENT,
            _ => StatusCode::BAD_GATEWAY,
        };
        if status != StatusCode::NO_CONTENT {
            (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("webhook"));
        }
        empty(http, status, Vec::new()).await
    }

    /// Returns the push for the client; `None` if it is about another task than the URL, or about
    /// none.
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
            // Clients before 1.0 get whole tasks, and this payload is less than one.
            let known =
                known.ok_or_else(|| AgentFailure::CardUnavailable("its card has not come yet".to_owned()))?;
            let mut room =
                self.shares.answer_room(Some(&QuotaOwner::Agent(agent.settings.name.as_str().into())));
            let looking = look(&self.client, &known, task, &mut room);
            let found = tokio::time::timeout(RESOLVE_TIMEOUT, Box::pin(looking)).await;
            let found = found.unwrap_or(Err(AgentFailure::Timeout("it does not say how the task stands")))?;
            AgentResponse::of_task(found, known.interface.dialect)
        };
        // A client of 0.1 made the task id, if the agent did not.
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

    /// Sends a push to the client.
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
                tracing::debug!(agent, %status, "client rejected push");
                Push::ClientRefused
            }
            Err(error) => {
                tracing::debug!(agent, %error, "failed to send push to client");
                Push::ClientUnreachable
            }
        }
    }
}

/// Returns the value of `Authorization`, if the client gave scheme and credentials.
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

/// Returns the media type of the agent's body, if it is one of the two known ones.
fn media_type(headers: &HeaderMap) -> HeaderValue {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = named.split(';').next().unwrap_or_default().trim();
    if name.eq_ignore_ascii_case("application/a2a+json") { A2A } else { PLAIN }
}
