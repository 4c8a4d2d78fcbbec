//! All agents of the configuration, and what is known of each right now.
//!
//! What is known is swapped as a whole; readers never wait. Not here: how it comes to be known (see `refresh`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::sync::watch;

use super::along::Along;
use super::fetch::CardProblem;
use super::interface::{Leave, trusted};
use super::known::{Known, Way, Ways};
use super::reach::Reach;
use crate::a2a::{Card, Dialect, Interface};
use crate::auth::{Credentials, Keys, Subject, Tokens};
use crate::config::{self, CardSource, Outbound, Protocol, Settings};
use crate::telemetry::metrics::{AgentMetrics, Metrics};
use crate::telemetry::outbound::OutboundMetrics;
use crate::transport::{Client, Policy, Target, TargetSettings, Timeouts};

/// One agent of the configuration.
pub struct Agent {
    /// What the configuration says of it.
    pub settings: config::Agent,
    outbound: Arc<Outbound>,
    /// Who signs its card.
    pub(super) signers: Option<Keys>,
    pub(super) card_target: ArcSwapOption<Target>,
    pub(super) credentials: Arc<Credentials>,
    forwards: Arc<[HeaderName]>,
    known: ArcSwapOption<Known>,
    problem: Mutex<Option<String>>,
    looks: AtomicU64,
    /// When its card was last there, in milliseconds since 1970; 0 before that.
    seen_ms: AtomicU64,
    versions: AtomicU64,
    reach: Arc<Reach>,
    /// What is counted about it.
    pub metrics: Arc<AgentMetrics>,
}

impl Agent {
    fn new(
        settings: config::Agent,
        (client, outbound): (Client, Arc<Outbound>),
        metrics: Arc<AgentMetrics>,
    ) -> Result<Self, CardProblem> {
        let credentials =
            Credentials::new(&settings, client, metrics.clone()).map_err(CardProblem::Setting)?;
        let signers = settings.signature.as_ref().map(|signature| Keys::new(&signature.keys)).transpose();
        let signers =
            signers.map_err(|problem| CardProblem::Setting(format!("signature.keys: {problem}")))?;
        let agent = Self {
            forwards: settings.forward_headers.clone().into(),
            settings,
            outbound,
            signers,
            card_target: ArcSwapOption::empty(),
            credentials: Arc::new(credentials),
            known: ArcSwapOption::empty(),
            problem: Mutex::default(),
            looks: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            reach: Arc::default(),
            metrics,
        };
        agent.reach_card()?;
        Ok(agent)
    }

    /// Makes a new way to the card.
    fn reach_card(&self) -> Result<(), CardProblem> {
        let CardSource::Url(url) = &self.settings.card else { return Ok(()) };
        let uri: Uri =
            url.parse().map_err(|_| CardProblem::Setting(format!("card: {url:?} is not a URL")))?;
        // The operator wrote it.
        self.card_target.store(Some(Arc::new(self.target((uri, Policy::Trusted), true)?)));
        Ok(())
    }

    /// Leaves the connections of the old identity behind.
    pub(super) fn reconnect(&self) -> Result<(), CardProblem> {
        self.reach_card()?;
        let Some(known) = self.known() else { return Ok(()) };
        for known in [Some(&known), known.other.as_ref()].into_iter().flatten() {
            let renewed = known
                .ways
                .load()
                .renewed(|way| self.way((way.uri.clone(), way.policy.clone()), way.shows))?;
            known.ways.store(Arc::new(renewed));
        }
        Ok(())
    }

    /// What is known of it now; `None` until its card has been seen.
    pub fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    /// How many cards it has had since the start.
    pub fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
    }

    fn is_on_behalf(&self) -> bool {
        self.credentials.tokens().is_some_and(Tokens::is_on_behalf)
    }

    /// Whether its card has been looked for at least once, with whatever outcome.
    pub fn has_been_looked_at(&self) -> bool {
        self.looks.load(Ordering::Acquire) > 0
    }

    pub(super) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Release);
    }

    /// When its card was last there, changed or not, in milliseconds since 1970.
    pub fn last_seen(&self) -> Option<u64> {
        Some(self.seen_ms.load(Ordering::Acquire)).filter(|seen| *seen > 0)
    }

    pub(super) fn seen(&self, unix_ms: u64) {
        self.seen_ms.store(unix_ms, Ordering::Release);
    }

    /// Why its card could not be had the last time, if it could not.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// How the agent is called, by its card.
    pub(super) fn understand(
        &self,
        card: Card,
        from: Option<&Uri>,
        pin: Option<Dialect>,
    ) -> Result<Known, CardProblem> {
        let card = Arc::new(card);
        let known = self.call_by(&card, from, pin)?;
        let other = match known.interface.dialect {
            // A card of 0.1 is told by what it lacks: it may be a careless one of 0.2.
            Dialect::V0_1 => Dialect::V0_3,
            Dialect::V0_3 => Dialect::V1,
            Dialect::V1 => Dialect::V0_3,
        };
        let other = if pin.is_none() { self.call_by(&card, from, Some(other)).ok() } else { None };
        Ok(Known { other: other.map(Arc::new), ..known })
    }

    fn call_by(
        &self,
        card: &Arc<Card>,
        from: Option<&Uri>,
        pin: Option<Dialect>,
    ) -> Result<Known, CardProblem> {
        let interface = card.interface(pin)?;
        let place = trusted(&interface.url, from, self.leave())?;
        let ways = Arc::new(ArcSwap::from_pointee(self.ways(&place, from)?));
        let headers = self.headers(&interface);
        let streaming = card.streaming && self.settings.streaming;
        let output_modes = self.settings.output_modes.clone();
        let output_modes = output_modes.unwrap_or_else(|| card.default_output_modes.clone());
        let card = card.clone();
        let metrics = self.metrics.clone();
        Ok(Known {
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
            reach: self.reach.clone(),
            other: None,
            is_wrong: Arc::default(),
        })
    }

    /// Where it is called; what single methods say is trusted no more than a URL on the card.
    fn ways(&self, own: &(Uri, Policy), from: Option<&Uri>) -> Result<Ways, CardProblem> {
        let methods = self.settings.methods.try_map(|method| {
            let shows = method.mtls.unwrap_or(true);
            let place = match &method.endpoint {
                Some(url) => trusted(url, Some(from.unwrap_or(&own.0)), self.leave())?,
                None if shows => return Ok(None),
                None => own.clone(),
            };
            self.way(place, shows).map(Some)
        })?;
        Ok(Ways { own: self.way(own.clone(), true)?, methods })
    }

    /// A place of this agent's, reached with its own trust and, if `shows`, its client certificate.
    pub(super) fn way(&self, place: (Uri, Policy), shows: bool) -> Result<Way, CardProblem> {
        let target = self.target(place.clone(), shows)?;
        let (uri, policy) = place;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Way { target, uri, policy, shows, path })
    }

    /// What its card may do.
    pub(super) fn leave(&self) -> Leave<'_> {
        Leave { hosts: &self.settings.allow_hosts, outbound: &self.outbound }
    }

    fn target(&self, (uri, policy): (Uri, Policy), shows: bool) -> Result<Target, CardProblem> {
        let timeouts = &self.settings.timeouts;
        let timeouts = Timeouts {
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            total: timeouts.total,
        };
        let tls = self.credentials.identity().tls(shows);
        let server_name = self.settings.tls.server_name.clone();
        Ok(Target::new(TargetSettings { tls, timeouts, server_name, ..TargetSettings::new(uri, policy) })?)
    }

    fn headers(&self, interface: &Interface) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
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

    pub(super) fn learn(&self, known: Known) {
        self.known.store(Some(Arc::new(known)));
        self.versions.fetch_add(1, Ordering::Release);
    }
}

/// All agents.
pub struct Directory {
    agents: Vec<Arc<Agent>>,
    places: HashMap<String, usize>,
    /// The names of the headers that go along to any agent.
    forwards: Vec<HeaderName>,
    on_behalf: bool,
    changed: watch::Sender<u64>,
    pub(super) client: Client,
    /// Counts places that cards name and that are not called.
    pub(super) refusals: OutboundMetrics,
    pub(super) cards: config::Cards,
}

impl Directory {
    /// Makes the directory; no card is fetched yet.
    ///
    /// # Errors
    ///
    /// [`CardProblem::Setting`] with the agent's name, when its settings cannot be used.
    pub fn new(settings: &Settings, client: Client, metrics: &Arc<Metrics>) -> Result<Self, CardProblem> {
        client.count_refusals(metrics.outbound.clone());
        let outbound = Arc::new(settings.outbound.clone());
        let mut agents = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let name = agent.name.clone();
            let through = (client.clone(), outbound.clone());
            let agent = Agent::new(agent.clone(), through, metrics.agent(&name))
                .map_err(|problem| CardProblem::Setting(format!("agents.{name}: {problem}")))?;
            agents.push(Arc::new(agent));
        }
        let places =
            agents.iter().enumerate().map(|(place, agent)| (agent.settings.name.clone(), place)).collect();
        let forwards = agents.iter().flat_map(|agent| agent.forwards.iter().cloned()).collect();
        let on_behalf = agents.iter().any(|agent| agent.is_on_behalf());
        let (changed, cards) = (watch::Sender::new(0), settings.cards);
        let refusals = metrics.outbound.clone();
        Ok(Self { agents, places, forwards, on_behalf, changed, client, refusals, cards })
    }

    /// What of a client's request goes along to agents; `None` where nothing ever does. `subject` gives the token that the caller
    /// proved itself with, if it is one: agents under `grant: token_exchange` are shown what it is exchanged for.
    pub fn along(
        &self,
        request: &HeaderMap,
        subject: impl FnOnce() -> Option<Subject>,
    ) -> Option<Arc<Along>> {
        if self.forwards.is_empty() && !self.on_behalf {
            return None;
        }
        let subject = if self.on_behalf { subject() } else { None };
        Some(Arc::new(Along::new(&self.forwards, request, subject)))
    }

    /// Every agent, sorted by name.
    pub fn agents(&self) -> &[Arc<Agent>] {
        &self.agents
    }

    /// How many cards all agents have had since the start.
    pub fn versions(&self) -> u64 {
        self.agents.iter().map(|agent| agent.version()).sum()
    }

    /// The agent of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.get(*self.places.get(name)?)
    }

    /// Hears of every look at a card; [`Agent::version`] says whether it became another one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}
