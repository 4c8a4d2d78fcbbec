//! Forwarding of agents' pushes to A2A clients: with the client's ids, in its version, to its
//! webhook.
//!
//! The URL that the agent got holds all data (see `push`). The agent gets its response after the
//! client's, so that the agent may retry. The gateway does not retry, and follows no redirect. See
//! also `push_receiver` (the agent's side) and `a2a::translate` (the payloads).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use rustls::ClientConfig;
use rustls::client::Resumption;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::A2aDependencies;
use super::ids::IdRegistry;
use super::push::dialect_of;
use super::push::policy_of;
use crate::a2a::translate::{AgentResponse, IdKind, Operation, PushPayload};
use crate::a2a::{Dialect, MAX_PUSH_BYTES, PUSH_TOKEN, accepts, matches_token};
use crate::agents::{Agent, ResolvedAgent, look};
use crate::auth::Caller;
use crate::config::{self, Settings};
use crate::fault::{Abort, AgentFailure, Fault};
use crate::http_edge::{AccessRecord, BodyReader, ClientConnection, empty, reject_unproven_push};
use crate::limits::{Limits, QuotaKind};
use crate::quota::QuotaOwner;
use crate::seal::WebhookTicket;
use crate::shared_state::SharedState;
use crate::telemetry::label::{Outcome, Push};
use crate::telemetry::metrics::Metrics;
use crate::transport::{
    ExchangeTimeouts, HttpClient, TargetSettings, TransportError, Upstream, client_config,
};

/// Most concurrent forwards; each may hold some MiB.
const MAX_CONCURRENT_FORWARDS: usize = 128;
/// Longest time for a client's response; most agents stop waiting after five seconds.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time for an agent to return the task of its push.
const TASK_TIMEOUT: Duration = Duration::from_secs(2);
/// The TLS sessions with receivers of webhooks that are kept for resumption.
const RESUMED_SESSIONS: usize = 256;

const TOKEN: HeaderName = HeaderName::from_static(PUSH_TOKEN);
const PLAIN: HeaderValue = HeaderValue::from_static("application/json");
const A2A: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// Push of an agent to the webhook of a client, and the credential that belongs to its URL.
#[derive(Clone, Copy)]
pub(crate) struct WebhookPush<'a> {
    pub(crate) ticket: &'a WebhookTicket,
    pub(crate) proof: &'a str,
    pub(crate) agent: &'a Agent,
}

/// Forwards pushes of agents to clients.
pub(super) struct WebhookForwarder {
    ids: Arc<IdRegistry>,
    limits: Arc<Limits>,
    http_client: HttpClient,
    body: Arc<BodyReader>,
    metrics: Arc<Metrics>,
    shared: Option<Arc<SharedState>>,
    /// Policy for the URLs of clients.
    policy: config::Webhooks,
    /// Concurrent forwards.
    room: Arc<Semaphore>,
    /// TLS trust for https webhooks of clients: that of the system; `None` if it is not available.
    tls: OnceLock<Option<Arc<ClientConfig>>>,
}

/// Push in the form of its agent.
struct ReceivedPush<'a> {
    ticket: &'a WebhookTicket,
    agent: &'a Agent,
    /// `None` if the agent's card has not come yet.
    resolved: Option<Arc<ResolvedAgent>>,
    body: &'a [u8],
    media_type: HeaderValue,
}

/// Push in the form for the client.
struct ForwardedPush {
    media_type: HeaderValue,
    body: Bytes,
}

impl WebhookForwarder {
    /// Creates the forwarder, which shares the limit of forwards with the one `before`.
    pub(super) fn new(
        settings: &Settings,
        ids: Arc<IdRegistry>,
        parts: &A2aDependencies,
        before: Option<&Self>,
    ) -> Self {
        let room = || Arc::new(Semaphore::new(MAX_CONCURRENT_FORWARDS));
        Self {
            ids,
            limits: parts.limits.clone(),
            http_client: parts.http_client.clone(),
            body: parts.body.clone(),
            metrics: parts.metrics.clone(),
            shared: parts.shared.clone(),
            policy: settings.outbound.webhooks.clone(),
            room: before.map_or_else(room, |before| before.room.clone()),
            tls: OnceLock::new(),
        }
    }

    fn target(&self, uri: Uri) -> Result<Upstream, TransportError> {
        let tls = self.tls.get_or_init(|| {
            let made = client_config(None, None).map(|mut config| {
                // Clients name many hosts.
                config.resumption = Resumption::in_memory_sessions(RESUMED_SESSIONS);
                Arc::new(config)
            });
            made.inspect_err(|error| tracing::warn!(%error, "failed to load tls trust for webhooks")).ok()
        });
        let timeouts = ExchangeTimeouts {
            connect: CLIENT_TIMEOUT,
            first_byte: CLIENT_TIMEOUT,
            idle: CLIENT_TIMEOUT,
            total: CLIENT_TIMEOUT,
        };
        // Checked again with the present addresses of the host.
        let policy = policy_of(&uri, &self.policy)?;
        // A new connection each time: the requests carry secrets of clients.
        Upstream::new(TargetSettings {
            tls: tls.clone(),
            timeouts,
            max_idle: 0,
            ..TargetSettings::new(uri, policy)
        })
    }

    /// Accepts a push that is meant for a client, and forwards it.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which the push is rejected; its body was not read then.
    pub(super) async fn forward_push(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        WebhookPush { ticket, proof, agent }: WebhookPush<'_>,
    ) -> Result<(), Abort> {
        let resolved = agent.known().map(ResolvedAgent::in_effect);
        let headers = &http.head().headers;
        // The body itself is forwarded: an unverified signature counts only for agents that have no
        // other credential.
        let is_oldest = resolved.as_ref().is_some_and(|resolved| resolved.interface.dialect == Dialect::V0_1);
        if !(matches_token(headers, proof) || (is_oldest && accepts(headers, proof))) {
            self.metrics.record_push(Push::Unproven);
            return Ok(reject_unproven_push(http, record, &self.metrics, MAX_PUSH_BYTES).await?);
        }
        let caller = QuotaOwner::Caller(ticket.caller.as_str().into());
        let room = self.room.clone().try_acquire_owned().ok();
        let quota = self.limits.acquire(&caller, QuotaKind::Push).ok();
        let Some(_permits) = room.zip(quota) else {
            self.metrics.record_push(Push::Overloaded);
            return Err(Fault::Busy("too many pushes are under way").into());
        };
        let owner = QuotaOwner::Agent(ticket.agent.as_str().into());
        let body = self.body.read(http, Some(&owner), Some(MAX_PUSH_BYTES)).await;
        let body = body.inspect_err(|_| self.metrics.record_push(Push::Unread))?;
        let media_type = media_type(&http.head().headers);
        let received = ReceivedPush { ticket, agent, resolved, body: &body, media_type };
        let outcome = match Box::pin(self.for_client(received)).await {
            Ok(Some(push)) => Box::pin(self.send_once(ticket, push)).await,
            Ok(None) => Push::OtherTask,
            Err(failure) => {
                tracing::debug!(agent = %ticket.agent, error = %failure, "failed to prepare push for client");
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
            (record.outcome, record.fault) = (Outcome::ClientFault, Some("webhook"));
        }
        Ok(empty(http, status, Vec::new()).await?)
    }

    /// Returns the push for the client; `None` if it is about another task than the URL, or about
    /// none.
    async fn for_client(&self, received: ReceivedPush<'_>) -> Result<Option<ForwardedPush>, AgentFailure> {
        let ReceivedPush { ticket, agent, resolved, body, media_type } = received;
        let (Ok(text), Some(to)) = (str::from_utf8(body), dialect_of(ticket.version)) else {
            return Ok(None);
        };
        let from = resolved.as_ref().map_or(to, |resolved| resolved.interface.dialect);
        let Some(payload) = PushPayload::read(text, from) else { return Ok(None) };
        let task = payload.task_id();
        if ticket.task.as_deref().is_some_and(|own| task.is_some_and(|task| task != own)) {
            return Ok(None);
        }
        let caller = Caller::hypothetical(&ticket.caller, Vec::new(), Vec::new());
        let name = agent.settings.name.as_str();
        let mut ids = self.ids.exchange_ids(caller, name, from);
        if payload.is_for(to) {
            let sealed = ids.seal_task_id(payload.json(), Operation::Subscribe)?;
            return Ok(Some(ForwardedPush { media_type, body: sealed.into_owned().into() }));
        }
        let Some(task) = task else { return Ok(None) };
        let mut response = if payload.is_complete(to) {
            payload.answer().map_err(|error| AgentFailure::ProtocolViolation(error.to_string()))?
        } else {
            // Clients before 1.0 get whole tasks, and this payload is less than one.
            let resolved = resolved
                .ok_or_else(|| AgentFailure::CardUnavailable("its card has not come yet".to_owned()))?;
            let mut room = self.limits.answer_room(Some(&QuotaOwner::Agent(name.into())));
            let looked = look(&self.http_client, &resolved, task, &mut room);
            let found = tokio::time::timeout(TASK_TIMEOUT, Box::pin(looked)).await;
            let found = found.unwrap_or(Err(AgentFailure::Timeout("it does not say how the task stands")))?;
            AgentResponse::of_task(found, resolved.interface.dialect)
        };
        // A client of 0.1 made the task id, if the agent did not.
        let client_ids =
            (to == Dialect::V0_1 && from != to).then(|| self.ids.client_ids(&ticket.caller, name));
        let mut shown = |kind, id: &str| {
            let name = client_ids.as_ref().and_then(|ids| ids.name_of(kind, id));
            name.unwrap_or_else(|| ids.seal(kind, id))
        };
        response.ids_mut(|kind, id| {
            *id = shown(kind, id);
            Ok::<_, AgentFailure>(())
        })?;
        let media_type = if to == Dialect::V1 { A2A } else { PLAIN };
        let written = response.pushed(to, &shown(IdKind::Task, task));
        Ok(written.map(|body| ForwardedPush { media_type, body: body.into() }))
    }

    /// Sends a push to the client, unless a replica has sent it before: an agent that got no response
    /// sends its push again, and perhaps to another replica.
    async fn send_once(&self, ticket: &WebhookTicket, push: ForwardedPush) -> Push {
        let Some(shared) = &self.shared else { return self.send(ticket, push).await };
        let parts = [ticket.url.as_bytes(), ticket.caller.as_bytes(), ticket.agent.as_bytes(), &push.body];
        let digest =
            parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(Sha256::digest(part)));
        let digest = digest.finalize();
        if !shared.claim_push(&digest).await {
            tracing::debug!(agent = %ticket.agent, "push was sent before, or perhaps sent");
            return Push::Forwarded;
        }
        let outcome = self.send(ticket, push).await;
        if outcome != Push::Forwarded {
            shared.release_push(&digest).await;
        }
        outcome
    }

    /// Sends a push to the client.
    async fn send(&self, ticket: &WebhookTicket, push: ForwardedPush) -> Push {
        let sent = async {
            let uri: Uri = ticket.url.parse().map_err(|_| TransportError::BadUri("it is no URL"))?;
            let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            let target = self.target(uri)?;
            let mut request = Request::post(path).header(CONTENT_TYPE, push.media_type);
            if let Some(token) = &ticket.token {
                request = request.header(TOKEN, secret(token)?);
            }
            if let Some(credentials) = authorization(ticket) {
                request = request.header(AUTHORIZATION, secret(&credentials)?);
            }
            let request = request.body(push.body).map_err(|_| TransportError::BadUri("it is no URL"))?;
            self.http_client.send(&target, request).await.map(|reply| reply.status())
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
