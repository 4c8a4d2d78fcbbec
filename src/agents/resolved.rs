//! The resolved agent: its card has been fetched; the permission to send credentials to its address;
//! and the way of a request to it with all its credentials.
//!
//! A card is a statement of the agent, and the credentials belong to the operator: they are sent to
//! the origin that the configuration names, and elsewhere only with the operator's permission.
//!
//! See also `directory` for its updates and `rpc` for responses.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use serde::Deserialize;
use tokio::sync::watch;

use super::endpoints::{Endpoints, TriedEndpoints};
use super::grpc::{AgentResponse, GrpcMethod, GrpcResponse, ReplyError};
use super::request_head::HeadCache;
use super::rpc::{AgentRequest, ForwardedContext};
use crate::a2a::{AgentCard, AgentInterface, Binding, Dialect, Message};
use crate::auth::{AccessToken, AgentTokens, Credentials, TokenUnavailable};
use crate::config::{AgentMethod, AgentSource, AllowList, Host, PerMethod, effective_port, is_loopback_host};
use crate::fault::AgentFailure;
use crate::jsonrpc::Text;
use crate::telemetry::metrics::AgentMetrics;
use crate::telemetry::span::ExchangeFacts;
use crate::telemetry::trace::{ExchangeTrace, RequestTrace, SpanEvent};
use crate::transport::{
    AddressClass, AddressPolicy, ConnectFailure, DeliveryState, HttpClient, Response, TlsFailure,
    TransportError, Upstream,
};

/// The resolved state of an agent, with the forwarded context of a request if there is one.
pub struct ResolvedAgent {
    pub(super) facts: Arc<AgentFacts>,
    /// The forwarded context of this call.
    pub(super) along: Option<Arc<ForwardedContext>>,
    /// The headers of the protocol of a request that names extensions, in place of those of the agent.
    pub(super) named: Option<Arc<HeaderMap>>,
}

/// The resolved state of an agent, which all its requests share.
pub struct AgentFacts {
    /// Its card.
    pub card: Arc<AgentCard>,
    /// Its interface.
    pub interface: Arc<AgentInterface>,
    pub(super) ways: ArcSwap<RouteTable>,
    /// The headers of the protocol.
    pub(super) headers: HeaderMap,
    pub(super) credentials: Arc<Credentials>,
    /// The names of the forwarded headers.
    pub(super) forwards: Arc<[HeaderName]>,
    pub(super) streaming: bool,
    /// The media types that the operator asks for; `None`: those of the skill or the card.
    pub(super) output_modes: Option<Vec<String>>,
    pub(super) metrics: Arc<AgentMetrics>,
    pub(super) endpoints: Arc<Endpoints>,
    /// The agent in another version, if it rejects the version of its card; `None` if the operator
    /// pinned the version.
    pub(super) other: Option<Arc<ResolvedAgent>>,
    /// True if the agent rejected the version of its card.
    pub(super) is_wrong: AtomicBool,
    /// The agent through the other interfaces of its card, in their order.
    pub(super) standbys: Arc<[Arc<ResolvedAgent>]>,
    /// True if this is one of those.
    pub(super) is_standby: bool,
    /// The agent by its newest card.
    pub(super) latest: Weak<LatestAgent>,
    /// The script that stands in for the agent.
    #[cfg(test)]
    pub(super) script: Option<Arc<super::scripted::ScriptedAgent>>,
}

/// The agent by its newest card.
pub(super) struct LatestAgent {
    /// `None` while there is no card.
    pub(super) known: ArcSwapOption<ResolvedAgent>,
    /// Notifies of each new card.
    pub(super) changed: watch::Sender<()>,
}

impl Default for LatestAgent {
    fn default() -> Self {
        Self { known: ArcSwapOption::empty(), changed: watch::Sender::new(()) }
    }
}

/// The skill in the metadata of a message.
#[derive(Deserialize)]
struct NamedSkill<'a> {
    #[serde(borrow, default, rename = "skillId")]
    id: Option<Text<'a>>,
}

/// The routes of an agent.
pub(super) struct RouteTable {
    /// Its endpoints, by their numbers.
    pub(super) own: Box<[EndpointRoute]>,
    /// The methods with a route of their own.
    pub(super) methods: PerMethod<Option<MethodOverride>>,
}

/// The route of a single method.
pub(super) enum MethodOverride {
    /// At an address of its own.
    There(Box<EndpointRoute>),
    /// At the endpoints, without the client certificate.
    Unshown(Box<[EndpointRoute]>),
}

/// An address and its upstream.
pub(super) struct EndpointRoute {
    pub(super) address: AgentAddress,
    /// True if the client certificate is presented there.
    pub(super) shows: bool,
    pub(super) target: Upstream,
    /// The path, without API keys.
    pub(super) path: PathAndQuery,
    pub(super) heads: HeadCache,
}

impl RouteTable {
    /// Returns the same routes with new upstreams.
    pub(super) fn with_fresh_token<E>(
        &self,
        mut renew: impl FnMut(&EndpointRoute) -> Result<EndpointRoute, E>,
    ) -> Result<Self, E> {
        let own = self.own.iter().map(&mut renew).collect::<Result<_, E>>()?;
        let methods = self.methods.try_map(|instead| match instead {
            None => Ok(None),
            Some(MethodOverride::There(way)) => {
                renew(way).map(|way| Some(MethodOverride::There(Box::new(way))))
            }
            Some(MethodOverride::Unshown(ways)) => {
                let ways = ways.iter().map(&mut renew).collect::<Result<_, E>>()?;
                Ok(Some(MethodOverride::Unshown(ways)))
            }
        })?;
        Ok(Self { own, methods })
    }

    /// Returns the route to an endpoint, or to the address of this method alone.
    fn of(&self, method: AgentMethod, at: usize) -> Option<&EndpointRoute> {
        match self.methods.of(method).and_then(Option::as_ref) {
            Some(MethodOverride::There(way)) => Some(way),
            Some(MethodOverride::Unshown(ways)) => ways.get(at),
            None => self.own.get(at),
        }
    }
}

impl Deref for ResolvedAgent {
    type Target = AgentFacts;

    fn deref(&self) -> &AgentFacts {
        &self.facts
    }
}

impl From<AgentFacts> for ResolvedAgent {
    fn from(facts: AgentFacts) -> Self {
        Self { facts: Arc::new(facts), along: None, named: None }
    }
}

impl AgentFacts {
    /// Returns true if a live task can be subscribed to again.
    pub fn can_subscribe(&self) -> bool {
        match self.interface.dialect {
            Dialect::V0_1 | Dialect::V0_3 => false,
            Dialect::V1 => self.streaming,
        }
    }

    /// Returns the media types to ask for with a message: those of the operator; else those of the
    /// skill that the metadata of the message names; else those of the card.
    pub(super) fn accepted_output(&self, message: &Message) -> &[String] {
        let skills = &self.card.skills;
        let own = self.output_modes.as_deref().or_else(|| {
            // Only the metadata for agents with such skills is read.
            skills.iter().find(|skill| !skill.output_modes.is_empty())?;
            let metadata = message.metadata.as_deref()?.get();
            let named = serde_json::from_str::<NamedSkill<'_>>(metadata).ok()?.id?;
            let skill = skills.iter().find(|skill| skill.id == named.as_str())?;
            Some(skill.output_modes.as_slice()).filter(|modes| !modes.is_empty())
        });
        own.unwrap_or(&self.card.default_output_modes)
    }
}

impl ResolvedAgent {
    /// Returns the agent for one request of a client, with the forwarded context. If nothing is
    /// forwarded, it is the same value.
    #[must_use]
    pub fn along(self: Arc<Self>, along: Option<&Arc<ForwardedContext>>) -> Arc<Self> {
        let is_on_behalf = self.credentials.tokens().is_some_and(AgentTokens::is_on_behalf);
        let is_traced = |along: &&Arc<ForwardedContext>| along.scope().trace().is_some();
        match along.filter(|along| is_on_behalf || !self.forwards.is_empty() || is_traced(along)) {
            None => self,
            Some(along) => Arc::new(self.with(along)),
        }
    }

    fn with(&self, along: &Arc<ForwardedContext>) -> Self {
        Self { facts: self.facts.clone(), along: Some(along.clone()), named: self.named.clone() }
    }

    /// Sends a request and waits for the head of the response. If an agent rejects a token that the
    /// gateway fetched, the request is sent once more with another: 401 proves that the agent has
    /// not done anything.
    pub(super) async fn send(
        &self,
        client: &HttpClient,
        ask: &AgentRequest,
    ) -> Result<AgentResponse, AgentFailure> {
        match self.credentials.tokens() {
            None => self.send_once(client, ask, None).await,
            // Boxed: a call without tokens does not need it, and must not grow by it.
            Some(tokens) => Box::pin(self.send_with(tokens, client, ask)).await,
        }
    }

    /// Returns the failure that an error of the connection means, and counts it. Addresses and the
    /// texts of TLS stay in the log.
    pub(super) fn to_failure(&self, error: &TransportError) -> AgentFailure {
        self.metrics.transport_error(error.kind());
        tracing::debug!(%error, "exchange with an agent failed");
        if error.sent() == DeliveryState::No {
            return AgentFailure::Unreachable(match error {
                TransportError::Resolve(_) => "its name does not resolve",
                TransportError::Refused { .. } => "it is at an address that may not be called",
                TransportError::OpenFiles => "the gateway has no room for another connection",
                TransportError::ConnectTimeout => "no connection in time",
                TransportError::Proxy(failure) => failure.text(),
                TransportError::Tls(error) => TlsFailure::of(error).text(),
                TransportError::Connect(error) => ConnectFailure::of(error).text(),
                TransportError::BadUri(_) => "its address cannot be used",
                _ => "connection closed",
            });
        }
        match error {
            TransportError::FirstByteTimeout => AgentFailure::Timeout("no answer"),
            TransportError::IdleTimeout => AgentFailure::Timeout("it fell silent"),
            TransportError::TotalTimeout => AgentFailure::Timeout("it took too long altogether"),
            TransportError::TooLarge { limit } => AgentFailure::LimitExceeded(*limit, "one answer"),
            TransportError::HeaderTooLarge => {
                AgentFailure::ProtocolViolation("its response header is too large".into())
            }
            TransportError::Encoded => {
                AgentFailure::ProtocolViolation("it sent a content encoding that was not requested".into())
            }
            TransportError::NoRoom(error) => AgentFailure::from(*error),
            TransportError::Unasked(what) => AgentFailure::ProtocolViolation((*what).to_owned()),
            TransportError::TooManyPieces => {
                AgentFailure::ProtocolViolation("its answer comes in too many small pieces".into())
            }
            _ => AgentFailure::ConnectionLost("the answer was cut off"),
        }
    }

    /// Returns the failure that an error of a response means, and counts it.
    pub(super) fn reply_failure(&self, error: ReplyError) -> AgentFailure {
        match error {
            ReplyError::Transport(error) => self.to_failure(&error),
            ReplyError::Agent(failure) => failure,
        }
    }

    /// Returns the response as the readers of its body see it.
    async fn opened(&self, reply: Response, ask: &AgentRequest) -> Result<AgentResponse, AgentFailure> {
        if self.interface.binding != Binding::Grpc {
            return Ok(AgentResponse::Http(reply));
        }
        // Boxed: the calls of most agents do not need it, and must not grow by it.
        let opened = Box::pin(GrpcResponse::open(reply, GrpcMethod::of(ask.route())?)).await;
        opened.map(|reply| AgentResponse::Grpc(Box::new(reply))).map_err(|error| self.reply_failure(error))
    }

    async fn send_with(
        &self,
        tokens: &AgentTokens,
        client: &HttpClient,
        ask: &AgentRequest,
    ) -> Result<AgentResponse, AgentFailure> {
        let subject = self.along.as_ref().and_then(|along| along.subject());
        let no_token = |no_token| match no_token {
            TokenUnavailable::Now(why) => AgentFailure::TokenUnavailable(why),
            TokenUnavailable::OfCaller(why) => AgentFailure::TokenExchangeFailed(why),
        };
        let pass = tokens.pass(subject).await.map_err(no_token)?;
        let reply = self.send_once(client, ask, Some(&pass)).await?;
        if reply.status() != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        match tokens.replace_rejected(&pass, subject).await.map_err(no_token)? {
            Some(another) => self.send_once(client, ask, Some(&another)).await,
            None => Ok(reply),
        }
    }

    async fn send_once(
        &self,
        client: &HttpClient,
        ask: &AgentRequest,
        pass: Option<&AccessToken>,
    ) -> Result<AgentResponse, AgentFailure> {
        let body = match self.interface.binding {
            Binding::JsonRpc | Binding::HttpJson => ask.body.clone(),
            Binding::Grpc => GrpcMethod::of(ask.route())?.encode(&ask.body)?,
        };
        let mut tried = TriedEndpoints::default();
        let mut failed = None;
        let (task, context) = (ask.task.as_deref(), ask.context.as_deref());
        if self.endpoints.may_learn(task, context) {
            Box::pin(self.endpoints.learn(task, context)).await;
        }
        loop {
            let turn = match self.endpoints.acquire(ask, tried) {
                Ok(turn) => turn,
                Err(resting) => return Err(failed.unwrap_or(resting)),
            };
            let ways = self.ways.load();
            let way =
                ways.of(ask.method, turn.at()).ok_or(AgentFailure::Internal("there is no such endpoint"))?;
            let (target, head) = (way.target.clone(), self.head(way, ask, pass)?);
            drop(ways);
            let trace = self.trace();
            let mut exchange = trace.and_then(|trace| trace.exchange(|| self.exchange_facts(ask, &target)));
            self.endpoints.remember(turn.at(), ask.begins.as_deref(), None);
            let headers = exchange.as_deref().map(ExchangeTrace::headers);
            let headers = headers.or_else(|| trace.map(RequestTrace::headers));
            let answered = client.send_body(&target, &head, headers, body.clone()).await;
            match answered {
                Ok(reply) => {
                    ask.set_place(turn.at());
                    let head = reply.status();
                    let opened = self.opened(reply, ask).await;
                    let busy = turn.record_success(opened.as_ref().map_or(head, AgentResponse::status));
                    let reply = opened?;
                    if let Some(exchange) = &mut exchange {
                        exchange.record_status(reply.status().as_u16());
                    }
                    return Ok(match (busy, exchange) {
                        (None, None) => reply,
                        (Some(busy), None) => reply.holding(busy),
                        // The exchange lasts until its response has been read.
                        (busy, Some(exchange)) => reply.holding((busy, exchange)),
                    });
                }
                Err(error) => {
                    tried.add(turn.at());
                    turn.failed(&error);
                    let trouble = self.to_failure(&error);
                    if let Some(exchange) = &mut exchange {
                        exchange.record_failure(error.kind());
                    }
                    // A request that was sent may have been executed, and is not repeated.
                    if error.sent() != DeliveryState::No || !self.endpoints.can_fail_over(ask) {
                        return Err(trouble);
                    }
                    self.record_event(SpanEvent::Retry(error.kind()));
                    failed = Some(trouble);
                }
            }
        }
    }

    /// Returns the trace of the request that this exchange is for.
    fn trace(&self) -> Option<&RequestTrace> {
        self.along.as_ref()?.scope().trace()
    }

    /// Records an event of the request that this exchange is for.
    pub(super) fn record_event(&self, event: SpanEvent) {
        if let Some(along) = &self.along {
            along.scope().event(event);
        }
    }

    /// Returns the facts of the span of an exchange.
    fn exchange_facts(&self, ask: &AgentRequest, target: &Upstream) -> ExchangeFacts {
        let (authority, port) = target.server();
        ExchangeFacts {
            verb: ask.verb.clone(),
            authority: authority.clone(),
            port,
            agent: Arc::clone(&self.metrics),
            system: match self.interface.binding {
                Binding::JsonRpc => "jsonrpc",
                Binding::HttpJson => "http",
                Binding::Grpc => "grpc",
            },
            version: self.interface.dialect.version(),
        }
    }
}

impl ResolvedAgent {
    /// Returns the agent by its newest card, with the forwarded context of this call.
    pub(super) fn newest(self: Arc<Self>) -> Arc<Self> {
        let Some(newest) = self.latest.upgrade().and_then(|latest| latest.known.load_full()) else {
            return self;
        };
        if Arc::ptr_eq(&newest.card, &self.card) && !self.is_standby {
            return self;
        }
        newest.along(self.along.as_ref())
    }

    /// Returns the interface in effect, then the others of the card.
    pub(super) fn interfaces(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> {
        let others = self.standbys.iter().map(|standby| standby.clone().along(self.along.as_ref()));
        std::iter::once(current(self.clone())).chain(others)
    }

    /// Returns the endpoints of all interfaces.
    pub(super) fn all_endpoints(&self) -> impl Iterator<Item = &Endpoints> {
        let others = self.other.iter().chain(self.standbys.iter()).map(|known| &*known.endpoints);
        std::iter::once(&*self.endpoints).chain(others)
    }
}

/// Returns the agent in the version that it accepts.
pub(super) fn current(known: Arc<ResolvedAgent>) -> Arc<ResolvedAgent> {
    match &known.other {
        Some(other) if known.is_wrong.load(Ordering::Acquire) => other.clone().along(known.along.as_ref()),
        _ => known,
    }
}

/// The reason for which an interface of a card is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedInterface {
    /// Not an absolute http or https URL.
    #[error("the card's interface URL {0:?} is not an http(s) URL")]
    NotAUrl(String),
    /// A host that could be read in two ways.
    #[error("the host of the card's interface URL {0:?} {1}")]
    OddHost(String, &'static str),
    /// The card came by https and the interface is http.
    #[error(
        "the card came by https and its interface {0:?} is http: credentials would travel in the open; correct the card, or write the \
         URL to call under endpoints"
    )]
    Downgrade(String),
    /// Another host than the card's.
    #[error(
        "the card's interface is at {found:?}{}, the card at {expected:?}; if that is right, list {found:?} under allow_hosts, or \
         under outbound.allow for all agents; if the card is wrong, give the right URL under endpoints", class.map(|class| format!(" ({class})")).unwrap_or_default()
    )]
    OtherHost {
        /// The origin of the interface.
        found: String,
        /// The class of that address, if it is an IP address.
        class: Option<AddressClass>,
        /// The origin of the card.
        expected: String,
    },
    /// A host that the source of the agent does not list.
    #[error(
        "a source named this agent at {found:?}{}; if that is right, list {found:?} under sources.{name}.hosts, or for an agent without \
         credentials under outbound.allow", class.map(|class| format!(" ({class})")).unwrap_or_default()
    )]
    Unlisted {
        /// The origin of the agent.
        found: String,
        /// The class of that address, if it is an IP address.
        class: Option<AddressClass>,
        /// The name of the source.
        name: String,
    },
}

impl UntrustedInterface {
    /// Returns the label for metrics; one of a closed set.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::NotAUrl(_) => "not_a_url",
            Self::OddHost(..) => "odd_host",
            Self::Downgrade(_) => "downgrade",
            Self::OtherHost { class: Some(class), .. } | Self::Unlisted { class: Some(class), .. } => {
                class.label()
            }
            Self::OtherHost { class: None, .. } | Self::Unlisted { class: None, .. } => "other_host",
        }
    }
}

/// The address of an agent's interface.
#[derive(Debug, Clone)]
pub(super) struct AgentAddress {
    pub(super) uri: Uri,
    /// The addresses that its host may have.
    pub(super) policy: AddressPolicy,
}

/// The operator's permissions for cards.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardPolicy<'a> {
    /// Hosts that this agent's card may name.
    pub(super) hosts: &'a [String],
    /// Hosts and addresses that any card may name.
    pub(super) outbound: &'a Arc<AllowList>,
}

/// Checks the interface URL of a card against the origin that the card came from (`None` for a card
/// from a file, which the operator wrote), and returns which addresses its host may have.
///
/// A loopback address and another of the same port are one origin, and `0.0.0.0` on a card means
/// the host of the card. A URL without a scheme has that of the card's URL, or `https` with port 443.
///
/// # Errors
///
/// [`UntrustedInterface`] names the reason and the remedy.
pub(super) fn trusted(
    interface: &str,
    card: Option<&Uri>,
    leave: CardPolicy<'_>,
) -> Result<AgentAddress, UntrustedInterface> {
    // A target of gRPC without a scheme is called as its card was fetched.
    let is_secure =
        card.is_some_and(|card| card.scheme_str() == Some("https")) || interface.ends_with(":443");
    let scheme = if is_secure { "https:" } else { "http:" };
    let url = if interface.starts_with("//") { format!("{scheme}{interface}") } else { interface.to_owned() };
    let uri: Uri = url.parse().map_err(|_| UntrustedInterface::NotAUrl(shown(interface)))?;
    let (Some(host), Some("http" | "https")) = (uri.host(), uri.scheme_str()) else {
        return Err(UntrustedInterface::NotAUrl(shown(interface)));
    };
    let read = Host::read(host).map_err(|problem| UntrustedInterface::OddHost(shown(interface), problem))?;
    let Some(card) = card else { return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted }) };
    if card.scheme_str() == Some("https") && uri.scheme_str() == Some("http") {
        return Err(UntrustedInterface::Downgrade(shown(interface)));
    }
    let expected_host = card.host().unwrap_or_default();
    let expected = origin(expected_host, effective_port(card));
    let found = origin(host, effective_port(&uri));
    if found == expected
        || (is_loopback_host(host)
            && is_loopback_host(expected_host)
            && effective_port(&uri) == effective_port(card))
    {
        return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted });
    }
    if is_unspecified(host) && effective_port(&uri) == effective_port(card) {
        let moved =
            rebase(&uri, expected_host).ok_or_else(|| UntrustedInterface::NotAUrl(shown(interface)))?;
        return Ok(AgentAddress { uri: moved, policy: AddressPolicy::Trusted });
    }
    with_leave(uri, read, leave, Origins { found, expected })
}

/// The origin of an interface, and the one where it was expected.
struct Origins {
    found: String,
    expected: String,
}

/// Returns which addresses a host may have that is not at the origin of the card.
fn with_leave(
    uri: Uri,
    read: Host,
    leave: CardPolicy<'_>,
    Origins { found, expected }: Origins,
) -> Result<AgentAddress, UntrustedInterface> {
    let host = uri.host().unwrap_or_default();
    let has_leave = leave.hosts.iter().any(|allowed| *allowed == found || allowed.eq_ignore_ascii_case(host));
    if has_leave || leave.outbound.has_host(host, &found) {
        return Ok(AgentAddress { uri, policy: AddressPolicy::Trusted });
    }
    match (read, leave.outbound) {
        (Host::Address(address), outbound) if outbound.network_of(address).is_none() => {
            Err(UntrustedInterface::OtherHost { found, class: Some(AddressClass::of(address)), expected })
        }
        // The address of a name is checked when it is connected to.
        (Host::Name(_), outbound) if outbound.networks().next().is_none() => {
            Err(UntrustedInterface::OtherHost { found, class: None, expected })
        }
        (_, outbound) => Ok(AgentAddress { uri, policy: AddressPolicy::Listed(outbound.clone()) }),
    }
}

/// Checks an address of an agent that a source named, as that of a card at the origin of the source.
/// An agent with the credentials of the source may only be at a host that the source lists.
///
/// # Errors
///
/// [`UntrustedInterface`] names the reason and the remedy.
pub(super) fn of_source(
    uri: Uri,
    source: &AgentSource,
    leave: CardPolicy<'_>,
) -> Result<AgentAddress, UntrustedInterface> {
    let url = uri.to_string();
    let none = Arc::new(AllowList::default());
    let place = source.url.as_ref().filter(|_| !source.has_credentials).and_then(|url| url.parse().ok());
    let judged = match place {
        Some(place) => trusted(&url, Some(&place), leave),
        None => {
            let outbound = if source.has_credentials { &none } else { leave.outbound };
            let host = uri.host().unwrap_or_default();
            let read =
                Host::read(host).map_err(|problem| UntrustedInterface::OddHost(shown(&url), problem))?;
            let found = origin(host, effective_port(&uri));
            with_leave(
                uri,
                read,
                CardPolicy { outbound, ..leave },
                Origins { found, expected: String::new() },
            )
        }
    };
    judged.map_err(|error| match error {
        UntrustedInterface::OtherHost { found, class, .. } => {
            UntrustedInterface::Unlisted { found, class, name: source.name.clone() }
        }
        other => other,
    })
}

/// Returns a URL for the log: without user and query, which may be secrets.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let shown = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => url.to_owned(),
    };
    shown.chars().take(200).collect()
}

fn origin(host: &str, port: u16) -> String {
    format!("{}:{port}", host.to_ascii_lowercase())
}

fn is_unspecified(host: &str) -> bool {
    matches!(host, "0.0.0.0" | "[::]")
}

fn rebase(uri: &Uri, host: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(origin(host, effective_port(uri)).parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Allowed;

    fn judged(interface: &str, card: &str, allowed: &[&str]) -> Result<String, UntrustedInterface> {
        let hosts: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let outbound = Arc::default();
        let leave = CardPolicy { hosts: &hosts, outbound: &outbound };
        trusted(interface, Some(&card.parse().unwrap()), leave).map(|address| {
            assert!(matches!(address.policy, AddressPolicy::Trusted), "{:?}", address.policy);
            address.uri.to_string()
        })
    }

    /// Checks an interface of an agent at `a.example`, where any card may lead to these.
    fn listed(interface: &str, allow: &[Allowed]) -> Result<AddressPolicy, UntrustedInterface> {
        let outbound = Arc::new(AllowList(allow.to_vec()));
        let card = "http://a.example/c.json".parse().unwrap();
        trusted(interface, Some(&card), CardPolicy { hosts: &[], outbound: &outbound })
            .map(|address| address.policy)
    }

    #[test]
    fn the_cards_own_place_is_trusted() {
        for (interface, card) in [
            ("https://a.example/rpc", "https://a.example/.well-known/agent-card.json"),
            ("https://A.example:443/rpc", "https://a.example/c.json"),
            ("http://localhost:9999/", "http://127.0.0.1:9999/c.json"),
        ] {
            assert!(judged(interface, card, &[]).is_ok(), "{interface}");
        }
        for (target, card, called) in [
            ("//a.example:99", "http://a.example:99/c.json", "http://a.example:99/"),
            ("//a.example:99", "https://a.example:99/c.json", "https://a.example:99/"),
            ("//a.example:443", "https://a.example/c.json", "https://a.example:443/"),
            ("//0.0.0.0:99", "http://a.example:99/c", "http://a.example:99/"),
        ] {
            assert_eq!(judged(target, card, &[]).unwrap(), called, "{target}");
        }
        let card = "http://a.example/c.json";
        assert_eq!(judged("//a.example:443", card, &["a.example"]).unwrap(), "https://a.example:443/");
        assert_eq!(
            judged("http://0.0.0.0:99/x", "http://a.example:99/c", &[]).unwrap(),
            "http://a.example:99/x"
        );
    }

    #[test]
    fn credentials_go_nowhere_else_without_leave() {
        let card = "https://a.example/c.json";
        for elsewhere in [
            "https://b.example/",
            "https://a.example:8443/",
            "https://a.example./",
            "https://a.example@b.example/",
            "https://127.0.0.1/",
            "https://[::ffff:169.254.169.254]/",
        ] {
            let distrust = judged(elsewhere, card, &["a.example:9"]).unwrap_err();
            assert!(matches!(distrust, UntrustedInterface::OtherHost { .. }), "{elsewhere}: {distrust}");
        }
        assert!(matches!(
            judged("http://a.example/", card, &["a.example"]),
            Err(UntrustedInterface::Downgrade(_))
        ));
        assert!(matches!(judged("file:///etc/passwd", card, &[]), Err(UntrustedInterface::NotAUrl(_))));
        assert!(judged("https://b.example/", card, &["b.example"]).is_ok());
        assert!(judged("https://b.example:9/", card, &["b.example:9"]).is_ok());
    }

    #[test]
    fn odd_spellings_are_not_even_compared() {
        let card = "http://127.0.0.1:99/c.json";
        for odd in
            ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.", "%31%32%37.0.0.1", "[fe80::1%25lo]"]
        {
            let judged = judged(&format!("http://{odd}:99/"), card, &[odd, &format!("{odd}:99")]);
            assert!(
                matches!(judged, Err(UntrustedInterface::OddHost(..) | UntrustedInterface::NotAUrl(_))),
                "{odd}: {judged:?}"
            );
        }
    }

    #[test]
    fn an_address_is_told_by_its_kind_and_with_the_remedy() {
        let told =
            judged("http://169.254.169.254/latest?token=CANARY", "http://a.example/c.json", &[]).unwrap_err();
        let told = told.to_string();
        for part in [
            "169.254.169.254:80",
            "a metadata service".trim_start_matches("a "),
            "allow_hosts",
            "outbound.allow",
            "under endpoints",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("CANARY"), "{told}");
    }

    #[test]
    fn a_list_for_all_agents_opens_hosts_and_networks() {
        let network = |text: &str| Allowed::Network(text.parse().unwrap());
        let host = |text: &str| Allowed::Host(text.to_owned());
        assert!(matches!(listed("http://b.example/", &[host("b.example")]), Ok(AddressPolicy::Trusted)));
        assert!(matches!(listed("http://b.example:8/", &[host("b.example:8")]), Ok(AddressPolicy::Trusted)));
        assert!(listed("http://b.example:9/", &[host("b.example:8")]).is_err());
        assert!(matches!(listed("http://10.0.0.9/", &[network("10.0.0.0/8")]), Ok(AddressPolicy::Listed(_))));
        assert!(listed("http://11.0.0.9/", &[network("10.0.0.0/8")]).is_err());
        // It may lead there; that is checked when it is connected to.
        assert!(matches!(
            listed("http://b.example/", &[network("10.0.0.0/8")]),
            Ok(AddressPolicy::Listed(_))
        ));
    }
}
