//! All agents of the configuration, and the current state of each.
//!
//! The state is swapped as a whole; readers never wait. See `refresh` for its updates.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::sync::watch;
use tracing::{info, warn};

use super::along::ForwardedContext;
use super::card_fetch::CardFetchError;
use super::card_signature::CardKeys;
use super::endpoints::Endpoints;
use super::interface::{CardPolicy, trusted};
use super::kept::KeptCards;
use super::resolved::{EndpointRoute, LatestAgent, MethodOverride, ResolvedAgent, RouteTable};
use crate::a2a::{AgentCard, AgentInterface, Binding, Dialect};
use crate::auth::{AgentTokens, Credentials, SubjectToken};
use crate::config::{self, AllowList, CardSource, Protocol, Settings};
use crate::sync::lock;
use crate::telemetry::metrics::{AgentMetrics, Metrics, OutboundMetrics};
use crate::transport::{AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, Upstream};

/// The maximum number of interfaces of a card that are used besides the first.
const MOST_STANDBYS: usize = 7;

/// One agent of the configuration.
pub struct Agent {
    /// Its configuration.
    pub settings: config::Agent,
    outbound: Arc<AllowList>,
    /// The keys that its card must be signed with.
    pub(super) signers: Option<Arc<CardKeys>>,
    pub(super) card_target: ArcSwapOption<Upstream>,
    pub(super) credentials: Arc<Credentials>,
    forwards: Arc<[HeaderName]>,
    latest: Arc<LatestAgent>,
    problem: Mutex<Option<String>>,
    looks: AtomicU64,
    /// The time of the last successful card fetch, in milliseconds since 1970; 0 before the first.
    seen_ms: AtomicU64,
    versions: AtomicU64,
    /// The endpoints of the configuration.
    configured: Arc<Endpoints>,
    /// The endpoints of cards that are in use, by their addresses.
    endpoints: Mutex<Vec<(Vec<Uri>, Weak<Endpoints>)>>,
    /// Its metrics.
    pub metrics: Arc<AgentMetrics>,
}

impl Agent {
    fn new(
        settings: config::Agent,
        (client, outbound): (HttpClient, Arc<AllowList>),
        metrics: Arc<AgentMetrics>,
    ) -> Result<Self, CardFetchError> {
        let credentials =
            Credentials::new(&settings, client, metrics.clone()).map_err(CardFetchError::Setting)?;
        let signers = settings.signature.as_ref().map(CardKeys::new).transpose()?.map(Arc::new);
        let configured = Arc::new(Endpoints::new(&settings, 0, &metrics));
        let agent = Self {
            forwards: settings.forward_headers.clone().into(),
            settings,
            outbound,
            signers,
            card_target: ArcSwapOption::empty(),
            credentials: Arc::new(credentials),
            latest: Arc::default(),
            problem: Mutex::default(),
            looks: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            configured,
            endpoints: Mutex::default(),
            metrics,
        };
        agent.reach_card()?;
        agent.warn_of_open_endpoints();
        Ok(agent)
    }

    /// Warns of endpoints without TLS, as the operator may know better. A card may not lead from
    /// https to http.
    fn warn_of_open_endpoints(&self) {
        let CardSource::Url(card) = &self.settings.card else { return };
        let is_open = |endpoint: &&String| endpoint.starts_with("http://");
        if card.starts_with("https://")
            && let Some(endpoint) = self.settings.endpoints.iter().find(is_open)
        {
            let agent = self.settings.name.as_str();
            warn!(
                agent,
                endpoint,
                "agent card is fetched by https, but its endpoint is http: credentials are sent unencrypted"
            );
        }
    }

    /// Opens a new upstream for the card.
    fn reach_card(&self) -> Result<(), CardFetchError> {
        let CardSource::Url(url) = &self.settings.card else { return Ok(()) };
        let uri: Uri =
            url.parse().map_err(|_| CardFetchError::Setting(format!("card: {url:?} is not a URL")))?;
        // The operator wrote it.
        self.card_target.store(Some(Arc::new(self.target((uri, AddressPolicy::Trusted), true)?)));
        Ok(())
    }

    /// Replaces the upstreams, so that connections of the old identity are not used again.
    pub(super) fn reconnect(&self) -> Result<(), CardFetchError> {
        self.reach_card()?;
        let Some(known) = self.known() else { return Ok(()) };
        for known in std::iter::once(&known).chain(&known.other).chain(known.standbys.iter()) {
            let renewed = known
                .ways
                .load()
                .with_fresh_token(|way| self.route((way.uri.clone(), way.policy.clone()), way.shows))?;
            known.ways.store(Arc::new(renewed));
        }
        Ok(())
    }

    /// Returns its current state; `None` until its card has been fetched.
    pub fn known(&self) -> Option<Arc<ResolvedAgent>> {
        self.latest.known.load_full()
    }

    /// Returns the number of its cards since the start.
    pub fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
    }

    fn uses_caller_token(&self) -> bool {
        self.credentials.tokens().is_some_and(AgentTokens::is_on_behalf)
    }

    /// Returns true if its card has been fetched at least once, with success or not.
    pub fn is_initialized(&self) -> bool {
        self.looks.load(Ordering::Acquire) > 0
    }

    pub(super) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Release);
    }

    /// Returns the time of the last successful card fetch, changed or not, in milliseconds since
    /// 1970.
    pub fn last_seen(&self) -> Option<u64> {
        Some(self.seen_ms.load(Ordering::Acquire)).filter(|seen| *seen > 0)
    }

    pub(super) fn seen(&self, unix_ms: u64) {
        self.seen_ms.store(unix_ms, Ordering::Release);
    }

    /// Returns the error of the last card fetch, if it failed. See also
    /// [`Agent::unsupported_required`].
    pub fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }

    pub(super) fn set_problem(&self, problem: Option<String>) {
        *lock(&self.problem) = problem;
    }

    /// Resolves the agent by its card.
    pub(super) fn apply_card(
        &self,
        card: AgentCard,
        from: Option<&Uri>,
        pin: Option<Dialect>,
    ) -> Result<ResolvedAgent, CardFetchError> {
        let card = Arc::new(card);
        let known = self.call_by(&card, card.interface(pin)?, (from, 0))?;
        let standbys = self.standbys(&known, from, pin);
        let other = match known.interface.dialect {
            // A card of 0.1 is recognized by absent members: it may be an incomplete one of 0.2.
            Dialect::V0_1 => Dialect::V0_3,
            Dialect::V0_3 => Dialect::V1,
            Dialect::V1 => Dialect::V0_3,
        };
        let other = card.interface(Some(other)).ok().filter(|_| pin.is_none());
        let other = other.and_then(|interface| self.call_by(&card, interface, (from, 0)).ok());
        let other = other.map(|other| Arc::new(ResolvedAgent { standbys: standbys.clone(), ..other }));
        Ok(ResolvedAgent { other, standbys, ..known })
    }

    /// Returns the other interfaces of the card, for use while the first is unreachable. Where the
    /// operator configured endpoints, those count.
    fn standbys(
        &self,
        known: &ResolvedAgent,
        from: Option<&Uri>,
        pin: Option<Dialect>,
    ) -> Arc<[Arc<ResolvedAgent>]> {
        if !self.settings.endpoints.is_empty() {
            return Arc::default();
        }
        let others = known.card.other_interfaces(&known.interface, pin);
        let standby = |(number, interface): (usize, AgentInterface)| {
            let made = self.call_by(&known.card, interface, (from, number + 1));
            let agent = self.settings.name.as_str();
            let made = made.inspect_err(
                |problem| info!(agent, error = %problem, "skipped another interface of the agent card"),
            );
            made.ok().map(|made| Arc::new(ResolvedAgent { is_standby: true, ..made }))
        };
        others.into_iter().take(MOST_STANDBYS).enumerate().filter_map(standby).collect()
    }

    /// Returns the endpoints at these addresses, with their state; `first` is the number of the
    /// first one.
    pub(super) fn endpoints_at(&self, places: &[(Uri, AddressPolicy)], first: usize) -> Arc<Endpoints> {
        if !self.settings.endpoints.is_empty() {
            return self.configured.clone();
        }
        let addresses: Vec<Uri> = places.iter().map(|(uri, _)| uri.clone()).collect();
        let mut all = lock(&self.endpoints);
        all.retain(|(_, endpoints)| endpoints.strong_count() > 0);
        let found = all.iter().find(|(known, _)| *known == addresses);
        if let Some(found) = found.and_then(|(_, endpoints)| endpoints.upgrade()) {
            return found;
        }
        let endpoints = Arc::new(Endpoints::new(&self.settings, first, &self.metrics));
        all.push((addresses, Arc::downgrade(&endpoints)));
        endpoints
    }

    fn call_by(
        &self,
        card: &Arc<AgentCard>,
        interface: AgentInterface,
        (from, number): (Option<&Uri>, usize),
    ) -> Result<ResolvedAgent, CardFetchError> {
        let places = self.places(&interface.url, from)?;
        let ways = Arc::new(ArcSwap::from_pointee(self.routes(&places, from)?));
        let headers = self.headers(&interface);
        let streaming = card.streaming && self.settings.streaming;
        let output_modes = self.settings.output_modes.clone();
        let output_modes = output_modes.unwrap_or_else(|| card.default_output_modes.clone());
        let card = card.clone();
        let metrics = self.metrics.clone();
        Ok(ResolvedAgent {
            card,
            interface,
            ways,
            headers,
            credentials: self.credentials.clone(),
            forwards: self.forwards.clone(),
            along: None,
            streaming,
            output_modes,
            metrics,
            endpoints: self.endpoints_at(&places, number),
            other: None,
            standbys: Arc::default(),
            is_standby: false,
            latest: Arc::downgrade(&self.latest),
            is_wrong: Arc::default(),
        })
    }

    /// Returns the addresses of the agent: the endpoints that the operator configured, else the URL
    /// of its card.
    pub(super) fn places(
        &self,
        url: &str,
        from: Option<&Uri>,
    ) -> Result<Vec<(Uri, AddressPolicy)>, CardFetchError> {
        if self.settings.endpoints.is_empty() {
            return Ok(vec![trusted(url, from, self.card_policy())?]);
        }
        let uri = |url: &String| {
            let uri = url
                .parse()
                .map_err(|_| CardFetchError::Setting(format!("endpoints: {url:?} is not a URL")))?;
            Ok((uri, AddressPolicy::Trusted))
        };
        self.settings.endpoints.iter().map(uri).collect()
    }

    /// Returns the routes to these addresses; the URLs of single methods are trusted no more than a
    /// URL on the card.
    fn routes(
        &self,
        places: &[(Uri, AddressPolicy)],
        from: Option<&Uri>,
    ) -> Result<RouteTable, CardFetchError> {
        let ways =
            |shows| places.iter().map(|place| self.route(place.clone(), shows)).collect::<Result<_, _>>();
        let from = from.or(places.first().map(|(uri, _)| uri));
        let methods = self.settings.methods.try_map(|method| {
            let shows = method.mtls.unwrap_or(true);
            Ok::<_, CardFetchError>(match &method.endpoint {
                Some(url) => {
                    let place = trusted(url, from, self.card_policy())?;
                    Some(MethodOverride::There(Box::new(self.route(place, shows)?)))
                }
                None if shows => None,
                None => Some(MethodOverride::Unshown(ways(false)?)),
            })
        })?;
        Ok(RouteTable { own: ways(true)?, methods })
    }

    /// Returns the route to one address of this agent, with its own trust and, if `shows`, its
    /// client certificate.
    pub(super) fn route(
        &self,
        place: (Uri, AddressPolicy),
        shows: bool,
    ) -> Result<EndpointRoute, CardFetchError> {
        let target = self.target(place.clone(), shows)?;
        let (uri, policy) = place;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(EndpointRoute { target, uri, policy, shows, path })
    }

    /// Returns the permissions of its card.
    pub(super) fn card_policy(&self) -> CardPolicy<'_> {
        CardPolicy { hosts: &self.settings.allow_hosts, outbound: &self.outbound }
    }

    fn target(&self, (uri, policy): (Uri, AddressPolicy), shows: bool) -> Result<Upstream, CardFetchError> {
        let timeouts = &self.settings.timeouts;
        let timeouts = ExchangeTimeouts {
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            total: timeouts.total,
        };
        let tls = self.credentials.identity().tls(shows);
        let server_name = self.settings.tls.server_name.clone();
        Ok(Upstream::new(TargetSettings { tls, timeouts, server_name, ..TargetSettings::new(uri, policy) })?)
    }

    fn headers(&self, interface: &AgentInterface) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let (content, accepted) = match interface.binding {
            Binding::JsonRpc => ("application/json", "application/json, text/event-stream"),
            Binding::HttpJson => {
                ("application/a2a+json", "application/a2a+json, application/json, text/event-stream")
            }
        };
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static(accepted));
        headers.extend(interface.dialect.headers(&self.settings.extensions));
        headers
    }

    pub(super) fn pin(&self) -> Option<Dialect> {
        match self.settings.protocol {
            Protocol::Auto => None,
            Protocol::V0_1 => Some(Dialect::V0_1),
            Protocol::V0_3 => Some(Dialect::V0_3),
            Protocol::V1 => Some(Dialect::V1),
        }
    }

    pub(super) fn learn(&self, known: ResolvedAgent) {
        let known = Arc::new(known);
        if let Some(old) = self.latest.known.swap(Some(known.clone())) {
            old.all_endpoints().for_each(|endpoints| endpoints.retire());
        }
        known.all_endpoints().for_each(|endpoints| endpoints.take_office());
        self.latest.changed.send_replace(());
        self.versions.fetch_add(1, Ordering::Release);
    }

    /// Forgets its card: it must not be used any more.
    pub(super) fn forget(&self) {
        self.latest.known.store(None);
        self.versions.fetch_add(1, Ordering::Release);
    }
}

/// All agents.
pub struct Directory {
    agents: Vec<Arc<Agent>>,
    places: HashMap<String, usize>,
    /// The names of the headers that are forwarded to any agent.
    forwards: Vec<HeaderName>,
    on_behalf: bool,
    changed: watch::Sender<u64>,
    pub(super) client: HttpClient,
    /// Counts addresses on cards that are not called.
    pub(super) refusals: OutboundMetrics,
    pub(super) cards: config::Cards,
    /// The store of cards, if there is one.
    pub(super) kept: Option<Arc<KeptCards>>,
}

impl Directory {
    /// Creates the directory; no card is fetched yet.
    ///
    /// # Errors
    ///
    /// [`CardFetchError::Setting`] with the agent's name, if its settings cannot be used.
    pub fn new(
        settings: &Settings,
        client: HttpClient,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, CardFetchError> {
        client.count_refusals(metrics.outbound.clone());
        let outbound = Arc::new(settings.outbound.allow.clone());
        let mut agents = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let name = agent.name.clone();
            let through = (client.clone(), outbound.clone());
            let agent = Agent::new(agent.clone(), through, metrics.agent(&name))
                .map_err(|problem| CardFetchError::Setting(format!("agents.{name}: {problem}")))?;
            agents.push(Arc::new(agent));
        }
        let places =
            agents.iter().enumerate().map(|(place, agent)| (agent.settings.name.clone(), place)).collect();
        let forwards = agents.iter().flat_map(|agent| agent.forwards.iter().cloned()).collect();
        let on_behalf = agents.iter().any(|agent| agent.uses_caller_token());
        let (changed, cards) = (watch::Sender::new(0), settings.cards);
        let refusals = metrics.outbound.clone();
        let kept = settings.tasks.data_dir.as_deref().map(KeptCards::new).map(Arc::new);
        Ok(Self { agents, places, forwards, on_behalf, changed, client, refusals, cards, kept })
    }

    /// Returns the parts of a client's request that are forwarded to agents; `None` if nothing is
    /// ever forwarded. `subject` returns the token that authenticated the caller, if a token did:
    /// agents under `grant: token_exchange` get the token that it is exchanged for.
    pub fn along(
        &self,
        request: &HeaderMap,
        subject: impl FnOnce() -> Option<SubjectToken>,
    ) -> Option<Arc<ForwardedContext>> {
        if self.forwards.is_empty() && !self.on_behalf {
            return None;
        }
        let subject = if self.on_behalf { subject() } else { None };
        Some(Arc::new(ForwardedContext::new(&self.forwards, request, subject)))
    }

    /// Returns every agent, sorted by name.
    pub fn agents(&self) -> &[Arc<Agent>] {
        &self.agents
    }

    /// Returns the number of cards of all agents since the start.
    pub fn versions(&self) -> u64 {
        self.agents.iter().map(|agent| agent.version()).sum()
    }

    /// Returns the agent of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.get(*self.places.get(name)?)
    }

    /// Subscribes to card fetches; [`Agent::version`] shows if the card changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn notify_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}
