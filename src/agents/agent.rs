//! One agent of the configuration, and its current state: endpoints and extensions as its card
//! declares them.
//!
//! The state is swapped as a whole; readers never wait. See `directory` for its updates.
//!
//! An extension that the card requires and the operator did not activate makes the agent unusable:
//! it would reject every call, or answer in a way that the gateway does not expect. See
//! `a2a::Dialect::headers` for the way an extension is named to an agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tracing::{info, warn};

use super::card_fetch::CardFetchError;
use super::card_fetch::CardKeys;
use super::endpoints::{AffinityId, Endpoints, SharedEndpoints};
use super::grpc;
use super::request_head::HeadCache;
use super::resolved::{AgentAddress, AgentFacts, CardPolicy, of_source, trusted};
use super::resolved::{EndpointRoute, LatestAgent, MethodOverride, ResolvedAgent, RouteTable};
use crate::a2a::{AgentCard, AgentInterface, Binding, Dialect, InterfacePin};
use crate::auth::{AgentTokens, Credentials};
use crate::config::{self, AgentBinding, AllowList, CardSource, Protocol};
use crate::seal::{IdDigest, Sealer, TokenPurpose};
use crate::sync::lock;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::{AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, Upstream};

/// The maximum number of interfaces of a card that are used besides the first.
const MOST_STANDBYS: usize = 7;
/// The usual number of headers of a request to an agent, and some more.
const REQUEST_HEADERS: usize = 12;

/// One agent of the configuration.
pub struct Agent {
    /// Its configuration.
    pub settings: config::Agent,
    outbound: Arc<AllowList>,
    /// The keys that its card must be signed with.
    pub(super) signers: Option<Arc<CardKeys>>,
    pub(super) card_target: ArcSwapOption<Upstream>,
    pub(super) credentials: Arc<Credentials>,
    pub(super) forwards: Arc<[HeaderName]>,
    latest: Arc<LatestAgent>,
    problem: Mutex<Option<String>>,
    looks: AtomicU64,
    /// The time of the last successful card fetch, in milliseconds since 1970; 0 before the first.
    seen_ms: AtomicU64,
    versions: AtomicU64,
    /// The endpoints of the configuration.
    configured: Arc<Endpoints>,
    /// The endpoints of cards that are in use, by their addresses.
    endpoints: Mutex<Vec<KnownEndpoints>>,
    /// Affinities and breakers of other replicas.
    sharing: SharedEndpoints,
    /// The digests of its ids, once one was needed.
    id_digests: OnceLock<AgentIdDigests>,
    /// Its metrics.
    pub(crate) metrics: Arc<AgentMetrics>,
}

/// Digests of the ids that an agent gives, for logs and spans: a call has two.
#[derive(Clone, Copy)]
pub(crate) struct AgentIdDigests {
    /// Of its tasks.
    pub(crate) task: IdDigest,
    /// Of its contexts.
    pub(crate) context: IdDigest,
}

/// Endpoints that were made for a card, as long as a card uses them.
struct KnownEndpoints {
    addresses: Vec<Uri>,
    is_grpc: bool,
    endpoints: Weak<Endpoints>,
}

impl Agent {
    pub(super) fn new(
        settings: config::Agent,
        client: HttpClient,
        outbound: Arc<AllowList>,
        metrics: Arc<AgentMetrics>,
        (before, sharing): (Option<&Self>, SharedEndpoints),
    ) -> Result<Self, CardFetchError> {
        let same_card = before.filter(|before| before.settings.card == settings.card);
        let credentials =
            Credentials::new(&settings, client, metrics.clone()).map_err(CardFetchError::Setting)?;
        let signers = settings.signature.as_ref().map(CardKeys::new).transpose()?.map(Arc::new);
        let configured = Arc::new(Endpoints::new(&settings, 0, &metrics, sharing.clone()));
        let agent = Self {
            forwards: settings.forward_headers.clone().into(),
            settings,
            outbound,
            signers,
            card_target: ArcSwapOption::empty(),
            credentials: Arc::new(credentials),
            // Calls that run with the settings before continue with the new ones, as after a new card.
            latest: same_card.map(|before| before.latest.clone()).unwrap_or_default(),
            problem: Mutex::default(),
            looks: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            versions: AtomicU64::new(before.map_or(0, |before| before.version() + 1)),
            configured,
            endpoints: Mutex::default(),
            sharing,
            id_digests: OnceLock::new(),
            metrics,
        };
        agent.reach_card()?;
        agent.warn_of_open_endpoints();
        Ok(agent)
    }

    /// Returns the digests of its ids. The sealer has to be the same at each call: its key does not change while the process
    /// runs, as a new `seal_key` needs a restart.
    pub(crate) fn id_digests(&self, sealer: &Sealer) -> AgentIdDigests {
        *self.id_digests.get_or_init(|| {
            let digest = |purpose| sealer.id_digest(purpose, &self.settings.name);
            AgentIdDigests { task: digest(TokenPurpose::Task), context: digest(TokenPurpose::Context) }
        })
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
        let address = match self.card_address(url) {
            // Another party named it: the fetch fails, and not the configuration.
            Err(_) if self.settings.source.is_some() => {
                self.card_target.store(None);
                return Ok(());
            }
            address => address?,
        };
        self.card_target.store(Some(Arc::new(self.target(address, false, true)?)));
        Ok(())
    }

    /// Returns the address of the card at this URL.
    pub(super) fn card_address(&self, url: &str) -> Result<AgentAddress, CardFetchError> {
        let uri: Uri =
            url.parse().map_err(|_| CardFetchError::Setting(format!("card: {url:?} is not a URL")))?;
        // The operator wrote it, unless it is of a source.
        self.admitted(AgentAddress { uri, policy: AddressPolicy::Trusted })
    }

    /// Returns an address of the agent as its source permits it, if a source named the agent.
    fn admitted(&self, address: AgentAddress) -> Result<AgentAddress, CardFetchError> {
        match &self.settings.source {
            None => Ok(address),
            Some(source) => Ok(of_source(address.uri, source, self.card_policy())?),
        }
    }

    /// Replaces the upstreams, so that connections of the old identity are not used again.
    pub(super) fn reconnect(&self) -> Result<(), CardFetchError> {
        self.reach_card()?;
        let Some(known) = self.known() else { return Ok(()) };
        for known in std::iter::once(&known).chain(&known.other).chain(known.standbys.iter()) {
            let binding = known.interface.binding;
            let renewed = known
                .ways
                .load()
                .with_fresh_token(|way| self.route(way.address.clone(), binding, way.shows))?;
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

    pub(super) fn uses_caller_token(&self) -> bool {
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
        pin: InterfacePin,
    ) -> Result<ResolvedAgent, CardFetchError> {
        let card = Arc::new(card);
        let first = card.interface(pin)?;
        let known = match self.call_by(&card, first.clone(), from, 0) {
            Err(why) => self.call_by_another(&card, &first, from, pin).ok_or(why)?,
            known => known?,
        };
        let standbys = self.standbys(&known, from, pin);
        let other = match known.interface.dialect {
            // A card of 0.1 is recognized by absent members: it may be an incomplete one of 0.2.
            Dialect::V0_1 => Dialect::V0_3,
            Dialect::V0_3 => Dialect::V1,
            Dialect::V1 => Dialect::V0_3,
        };
        let other = InterfacePin { dialect: Some(other), ..pin };
        let can_be_tried = |other: &AgentInterface| other.binding == Binding::JsonRpc || other.is_declared();
        let other = card.interface(other).ok().filter(|other| pin.dialect.is_none() && can_be_tried(other));
        let other = other.and_then(|interface| self.call_by(&card, interface, from, 0).ok());
        let other = other.map(|other| Arc::new(AgentFacts { standbys: standbys.clone(), ..other }.into()));
        Ok(AgentFacts { other, standbys, ..known }.into())
    }

    /// Resolves the agent by the first of the other interfaces of its card that may be called.
    fn call_by_another(
        &self,
        card: &Arc<AgentCard>,
        first: &AgentInterface,
        from: Option<&Uri>,
        pin: InterfacePin,
    ) -> Option<AgentFacts> {
        let others = card.other_interfaces(first, pin).into_iter().take(MOST_STANDBYS);
        let found = others.into_iter().find_map(|other| self.call_by(card, other, from, 0).ok())?;
        let (agent, binding) = (self.settings.name.as_str(), found.interface.binding.name());
        let preferred = first.binding.name();
        info!(agent, binding, preferred, "skipped the preferred interface of the agent card");
        Some(found)
    }

    /// Returns the other interfaces of the card, for use while the first is unreachable. Where the
    /// operator configured endpoints, those count.
    fn standbys(
        &self,
        known: &AgentFacts,
        from: Option<&Uri>,
        pin: InterfacePin,
    ) -> Arc<[Arc<ResolvedAgent>]> {
        if !self.settings.endpoints.is_empty() {
            return Arc::default();
        }
        let others = known.card.other_interfaces(&known.interface, pin);
        let standby = |(number, interface): (usize, AgentInterface)| {
            let made = self.call_by(&known.card, interface, from, number + 1);
            let agent = self.settings.name.as_str();
            let made = made.inspect_err(
                |problem| info!(agent, error = %problem, "skipped another interface of the agent card"),
            );
            made.ok().map(|made| Arc::new(AgentFacts { is_standby: true, ..made }.into()))
        };
        others.into_iter().take(MOST_STANDBYS).enumerate().filter_map(standby).collect()
    }

    /// Returns the endpoints at these addresses, with their state; `first` is the number of the
    /// first one. A server of HTTP/1.1 does not answer gRPC at the same address, nor the reverse, so
    /// that each of the two has a state of its own.
    pub(super) fn endpoints_at(
        &self,
        places: &[AgentAddress],
        binding: Binding,
        first: usize,
    ) -> Arc<Endpoints> {
        if !self.settings.endpoints.is_empty() {
            return self.configured.clone();
        }
        let addresses: Vec<Uri> = places.iter().map(|place| place.uri.clone()).collect();
        let mut all = lock(&self.endpoints);
        all.retain(|known| known.endpoints.strong_count() > 0);
        let is_grpc = binding == Binding::Grpc;
        let found = all.iter().find(|known| known.is_grpc == is_grpc && known.addresses == addresses);
        if let Some(found) = found.and_then(|known| known.endpoints.upgrade()) {
            return found;
        }
        let endpoints = Arc::new(Endpoints::new(&self.settings, first, &self.metrics, self.sharing.clone()));
        all.push(KnownEndpoints { addresses, is_grpc, endpoints: Arc::downgrade(&endpoints) });
        endpoints
    }

    /// Returns the endpoints of all tasks and conversations that are known here, by name.
    pub(crate) fn affinities(&self) -> Vec<(AffinityId, String)> {
        let mut all = self.configured.affinities();
        let made: Vec<_> =
            lock(&self.endpoints).iter().filter_map(|known| known.endpoints.upgrade()).collect();
        all.extend(made.iter().flat_map(|endpoints| endpoints.affinities()));
        all
    }

    fn call_by(
        &self,
        card: &Arc<AgentCard>,
        interface: AgentInterface,
        from: Option<&Uri>,
        number: usize,
    ) -> Result<AgentFacts, CardFetchError> {
        let places = self.places(&interface.url, from)?;
        let ways = ArcSwap::from_pointee(self.routes(&places, interface.binding, from)?);
        let headers = self.headers(&interface);
        let binding = interface.binding;
        let streaming = card.streaming && self.settings.streaming;
        let output_modes = self.settings.output_modes.clone();
        let card = card.clone();
        let metrics = self.metrics.clone();
        Ok(AgentFacts {
            card,
            interface: Arc::new(interface),
            ways,
            headers,
            credentials: self.credentials.clone(),
            forwards: self.forwards.clone(),
            streaming,
            output_modes,
            metrics,
            endpoints: self.endpoints_at(&places, binding, number),
            other: None,
            standbys: Arc::default(),
            is_standby: false,
            latest: Arc::downgrade(&self.latest),
            is_wrong: AtomicBool::default(),
            #[cfg(test)]
            script: None,
        })
    }

    /// Returns the addresses of the agent: the endpoints that the operator configured, else the URL
    /// of its card.
    pub(super) fn places(&self, url: &str, from: Option<&Uri>) -> Result<Vec<AgentAddress>, CardFetchError> {
        if self.settings.endpoints.is_empty() {
            return Ok(vec![self.admitted(trusted(url, from, self.card_policy())?)?]);
        }
        let uri = |url: &String| {
            let uri = url
                .parse()
                .map_err(|_| CardFetchError::Setting(format!("endpoints: {url:?} is not a URL")))?;
            Ok(AgentAddress { uri, policy: AddressPolicy::Trusted })
        };
        self.settings.endpoints.iter().map(uri).collect()
    }

    /// Returns the routes to these addresses; the URLs of single methods are trusted no more than a
    /// URL on the card.
    fn routes(
        &self,
        places: &[AgentAddress],
        binding: Binding,
        from: Option<&Uri>,
    ) -> Result<RouteTable, CardFetchError> {
        let ways = |shows| {
            places.iter().map(|place| self.route(place.clone(), binding, shows)).collect::<Result<_, _>>()
        };
        let from = from.or(places.first().map(|place| &place.uri));
        let methods = self.settings.methods.try_map(|method| {
            let shows = method.mtls.unwrap_or(true);
            Ok::<_, CardFetchError>(match &method.endpoint {
                Some(url) => {
                    let place = trusted(url, from, self.card_policy())?;
                    Some(MethodOverride::There(Box::new(self.route(place, binding, shows)?)))
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
        address: AgentAddress,
        binding: Binding,
        shows: bool,
    ) -> Result<EndpointRoute, CardFetchError> {
        let target = self.target(address.clone(), binding == Binding::Grpc, shows)?;
        let path = address.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(EndpointRoute { target, address, shows, path, heads: HeadCache::default() })
    }

    /// Returns the permissions of its card.
    fn card_policy(&self) -> CardPolicy<'_> {
        CardPolicy { hosts: &self.settings.allow_hosts, outbound: &self.outbound }
    }

    fn target(
        &self,
        address: AgentAddress,
        http2_only: bool,
        shows: bool,
    ) -> Result<Upstream, CardFetchError> {
        let timeouts = &self.settings.timeouts;
        let timeouts = ExchangeTimeouts {
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            total: timeouts.total,
        };
        let tls = self.credentials.identity().tls(shows);
        let server_name = self.settings.tls.server_name.clone();
        Ok(Upstream::new(TargetSettings {
            tls,
            timeouts,
            server_name,
            proxy: self.settings.proxy.clone(),
            http2_only,
            ..TargetSettings::new(address.uri, address.policy)
        })?)
    }

    fn headers(&self, interface: &AgentInterface) -> HeaderMap {
        // With room for credentials and trace context, which each request adds to a copy.
        let mut headers = HeaderMap::with_capacity(REQUEST_HEADERS);
        let (content, accepted) = match (interface.binding, interface.dialect) {
            (Binding::HttpJson, Dialect::V1) => {
                ("application/a2a+json", "application/a2a+json, application/json, text/event-stream")
            }
            (Binding::HttpJson, Dialect::V0_1 | Dialect::V0_3) | (Binding::JsonRpc, _) => {
                ("application/json", "application/json, text/event-stream")
            }
            (Binding::Grpc, _) => {
                headers.insert(http::header::CONTENT_TYPE, grpc::MEDIA_TYPE);
                headers.insert(grpc::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
                headers.extend(interface.dialect.headers(&self.settings.extensions));
                return headers;
            }
        };
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static(accepted));
        headers.extend(interface.dialect.headers(&self.settings.extensions));
        headers
    }

    /// Returns the version and the binding that the operator requires.
    pub(super) fn pin(&self) -> InterfacePin {
        let dialect = match self.settings.protocol {
            Protocol::Auto => None,
            Protocol::V0_1 => Some(Dialect::V0_1),
            Protocol::V0_3 => Some(Dialect::V0_3),
            Protocol::V1 => Some(Dialect::V1),
        };
        let binding = match self.settings.binding {
            AgentBinding::Auto => None,
            AgentBinding::JsonRpc => Some(Binding::JsonRpc),
            AgentBinding::HttpJson => Some(Binding::HttpJson),
            AgentBinding::Grpc => Some(Binding::Grpc),
        };
        InterfacePin { dialect, binding }
    }

    /// Shows the state of its endpoints in the metrics: settings that were not applied have set them.
    pub(crate) fn show_endpoints(&self) {
        if let Some(known) = self.known() {
            known.all_endpoints().for_each(|endpoints| endpoints.take_office());
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

    /// Returns true if it has these settings.
    pub(super) fn has_settings(&self, settings: &config::Agent, outbound: &AllowList) -> bool {
        self.settings == *settings && *self.outbound == *outbound
    }

    /// Takes the findings about an agent over that had other settings: its card as it is resolved
    /// now, `None` if it must not be used with these settings.
    pub(super) fn succeed(&self, before: &Self, known: Option<ResolvedAgent>) {
        self.set_problem(before.problem());
        self.seen(before.last_seen().unwrap_or_default());
        self.looks.store(before.looks.load(Ordering::Acquire), Ordering::Release);
        match known {
            Some(known) => self.learn(known),
            None => self.forget(),
        }
    }

    /// Ends the state of an agent that is not in the configuration any more. Running calls continue.
    pub(super) fn retire(&self) {
        if let Some(known) = self.known() {
            known.all_endpoints().for_each(|endpoints| endpoints.retire());
        }
    }

    /// Forgets its card: it must not be used any more.
    pub(super) fn forget(&self) {
        self.latest.known.store(None);
        self.versions.fetch_add(1, Ordering::Release);
    }
}

/// The state of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointState {
    /// Its URL without a query, which may be a secret.
    pub url: String,
    /// Requests under way; not counted if there is only one endpoint.
    pub busy: usize,
    /// The seconds for which its breaker remains open; `None`: requests are sent.
    pub rests: Option<u64>,
}

impl Agent {
    /// Returns the number of its endpoints.
    pub(crate) fn endpoint_count(&self) -> usize {
        self.settings.endpoints.len().max(1)
    }

    /// Returns its endpoints; none until its card has been fetched.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        let Some(known) = self.known() else { return Vec::new() };
        let ways = known.ways.load();
        let standing = known.endpoints.standing();
        let states = ways.own.iter().zip(standing).map(|(way, standing)| EndpointState {
            url: snapshot(&way.address.uri),
            busy: standing.busy,
            rests: standing.rests.map(|rests| rests.as_secs().saturating_add(1)),
        });
        states.collect()
    }
}

fn snapshot(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

/// An extension on an agent's card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredExtension<'a> {
    /// Its identity.
    pub uri: &'a str,
    /// True if the agent rejects clients that do not name it.
    pub required: bool,
    /// True if the gateway names it.
    pub active: bool,
}

impl Agent {
    /// Returns the extensions that this card declares.
    pub fn declared<'a>(&'a self, card: &'a AgentCard) -> impl Iterator<Item = DeclaredExtension<'a>> {
        card.extensions.iter().map(|extension| DeclaredExtension {
            uri: &extension.uri,
            required: extension.required,
            active: self.settings.extensions.contains(&extension.uri),
        })
    }

    /// Returns the reason for which an agent cannot be called although its card is known, if there
    /// is one.
    pub fn unsupported_required(&self) -> Option<String> {
        self.known().and_then(|known| self.obstacle_of(&known.card))
    }

    /// Returns the same, by this card.
    pub fn obstacle_of(&self, card: &AgentCard) -> Option<String> {
        let mut lacking = self.declared(card).filter(|extension| extension.required && !extension.active);
        let first = lacking.next()?;
        let all = lacking.fold(first.uri.to_owned(), |all, extension| format!("{all} and {}", extension.uri));
        let name = &self.settings.name;
        Some(format!(
            "its card requires {all}, which the gateway does not activate (agents.{name}.extensions)"
        ))
    }

    /// Describes extensions that are activated without effect.
    pub fn idle_extensions(&self, card: &AgentCard) -> Vec<String> {
        let idle =
            self.settings.extensions.iter().filter(|uri| self.declared(card).all(|known| known.uri != *uri));
        idle.map(|uri| format!("extensions: {uri} is activated, but the card does not declare it")).collect()
    }
}
