//! All agents of the configuration, and what is known of each right now.
//!
//! What is known is swapped as a whole; readers never wait. Not here: how it comes to be known (see `refresh`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;

use super::fetch::CardProblem;
use super::interface::{Leave, trusted};
use super::reach::Reach;
use super::ways::Ways;
use crate::a2a::{Card, Dialect, Interface};
use crate::auth::{Keys, keyed, static_headers};
use crate::config::{self, CardSource, Outbound, Protocol, Settings};
use crate::telemetry::metrics::{AgentMetrics, Metrics};
use crate::telemetry::outbound::OutboundMetrics;
use crate::transport::{Client, Policy, Target, TargetSettings, Timeouts, client_config};

/// What is known of an agent whose card has been seen.
pub struct Known {
    /// Its card.
    pub card: Arc<Card>,
    /// Where and how it is called.
    pub interface: Interface,
    pub(super) target: Target,
    pub(super) path: PathAndQuery,
    /// Where single methods are called instead.
    pub(super) ways: Ways,
    pub(super) headers: HeaderMap,
    pub(super) streaming: bool,
    pub(super) output_modes: Vec<String>,
    pub(super) metrics: Arc<AgentMetrics>,
    pub(super) reach: Arc<Reach>,
    /// How it is called if it turns out not to speak what its card promises; `None` when the operator pinned the version.
    pub(super) other: Option<Arc<Known>>,
    /// Whether it has turned out so.
    pub(super) is_wrong: AtomicBool,
}

impl Known {
    /// Whether a live task can be listened to again.
    pub fn can_subscribe(&self) -> bool {
        match self.interface.dialect {
            Dialect::V0_3 => false,
            Dialect::V1 => self.streaming,
        }
    }
}

/// How the agent is really called, by all that is known now.
pub(super) fn in_effect(known: Arc<Known>) -> Arc<Known> {
    match &known.other {
        Some(other) if known.is_wrong.load(Ordering::Acquire) => other.clone(),
        _ => known,
    }
}

/// One agent of the configuration.
pub struct Agent {
    /// What the configuration says of it.
    pub settings: config::Agent,
    outbound: Arc<Outbound>,
    pub(super) card_target: Option<Target>,
    pub(super) credentials: HeaderMap,
    /// Who signs its card.
    pub(super) signers: Option<Keys>,
    tls: Option<Arc<ClientConfig>>,
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
        outbound: Arc<Outbound>,
        metrics: Arc<AgentMetrics>,
    ) -> Result<Self, CardProblem> {
        let tls = tls(&settings)?;
        let card_target = match &settings.card {
            CardSource::File(_) => None,
            CardSource::Url(url) => {
                let uri: Uri =
                    url.parse().map_err(|_| CardProblem::Setting(format!("card: {url:?} is not a URL")))?;
                // The operator wrote it.
                Some(target(&settings, (uri, Policy::Trusted), tls.clone())?)
            }
        };
        let credentials = static_headers(&settings).map_err(CardProblem::Setting)?;
        let signers = settings.signature.as_ref().map(|signature| Keys::new(&signature.keys)).transpose();
        let signers =
            signers.map_err(|problem| CardProblem::Setting(format!("signature.keys: {problem}")))?;
        Ok(Self {
            settings,
            outbound,
            signers,
            card_target,
            credentials,
            tls,
            known: ArcSwapOption::empty(),
            problem: Mutex::default(),
            looks: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            reach: Arc::default(),
            metrics,
        })
    }

    /// What is known of it now; `None` until its card has been seen.
    pub fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    /// How many cards it has had since the start.
    pub fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
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
        let path = self.path(&place.0)?;
        let ways = self.ways(&place.0, from)?;
        let target = self.target(place)?;
        let headers = self.headers(&interface);
        let streaming = card.streaming && self.settings.streaming;
        let output_modes = self.settings.output_modes.clone();
        let output_modes = output_modes.unwrap_or_else(|| card.default_output_modes.clone());
        let card = card.clone();
        let metrics = self.metrics.clone();
        Ok(Known {
            card,
            interface,
            target,
            path,
            ways,
            headers,
            streaming,
            output_modes,
            metrics,
            reach: self.reach.clone(),
            other: None,
            is_wrong: AtomicBool::new(false),
        })
    }

    /// The path of a URL of this agent's, as it is called.
    pub(super) fn path(&self, uri: &Uri) -> Result<PathAndQuery, CardProblem> {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        keyed(&self.settings, path).map_err(CardProblem::Setting)
    }

    /// Where single methods are called; trusted no more than a URL on the card.
    fn ways(&self, card_says: &Uri, from: Option<&Uri>) -> Result<Ways, CardProblem> {
        let way = |url: &Option<String>| -> Result<Option<(Target, PathAndQuery)>, CardProblem> {
            let Some(url) = url else { return Ok(None) };
            let place = trusted(url, Some(from.unwrap_or(card_says)), self.leave())?;
            let path = self.path(&place.0)?;
            Ok(Some((self.target(place)?, path)))
        };
        let config::Endpoints { send, stream, get, cancel } = &self.settings.endpoints;
        Ok(Ways { send: way(send)?, stream: way(stream)?, get: way(get)?, cancel: way(cancel)? })
    }

    /// A place of this agent's, reached with its own trust and identity.
    pub(super) fn target(&self, place: (Uri, Policy)) -> Result<Target, CardProblem> {
        target(&self.settings, place, self.tls.clone())
    }

    /// What its card may do.
    pub(super) fn leave(&self) -> Leave<'_> {
        Leave { hosts: &self.settings.allow_hosts, outbound: &self.outbound }
    }

    fn headers(&self, interface: &Interface) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(interface.dialect.headers(&self.settings.extensions));
        headers.extend(self.credentials.clone());
        headers
    }

    pub(super) fn pin(&self) -> Option<Dialect> {
        match self.settings.protocol {
            Protocol::Auto => None,
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
            let agent = Agent::new(agent.clone(), outbound.clone(), metrics.agent(&name))
                .map_err(|problem| CardProblem::Setting(format!("agents.{name}: {problem}")))?;
            agents.push(Arc::new(agent));
        }
        let places =
            agents.iter().enumerate().map(|(place, agent)| (agent.settings.name.clone(), place)).collect();
        let refusals = metrics.outbound.clone();
        Ok(Self { agents, places, changed: watch::Sender::new(0), client, refusals, cards: settings.cards })
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

fn tls(settings: &config::Agent) -> Result<Option<Arc<ClientConfig>>, CardProblem> {
    let unusable = |what: &str, why: String| CardProblem::Setting(format!("tls.{what}: {why}"));
    let certificates = |what: &'static str, pem: &config::Pem| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
        all.map_err(|error| unusable(what, error.to_string()))
    };
    let authorities = settings.tls.ca.as_ref().map(|pem| certificates("ca", pem)).transpose()?;
    let identity = match (&settings.tls.certificate, &settings.tls.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
                .map_err(|error| unusable("key", error.to_string()))?;
            Some((certificates("certificate", certificate)?, key))
        }
        _ => None,
    };
    if matches!(&settings.card, CardSource::Url(url) if url.starts_with("http:"))
        && authorities.is_none()
        && identity.is_none()
    {
        // A system without roots can serve agents that need none.
        return Ok(client_config(None, None).ok().map(Arc::new));
    }
    let config = client_config(authorities.as_deref(), identity)
        .map_err(|problem| CardProblem::Setting(format!("tls: {problem}")))?;
    Ok(Some(Arc::new(config)))
}

fn target(
    settings: &config::Agent,
    (uri, policy): (Uri, Policy),
    tls: Option<Arc<ClientConfig>>,
) -> Result<Target, CardProblem> {
    let timeouts = &settings.timeouts;
    let timeouts = Timeouts {
        connect: timeouts.connect,
        first_byte: timeouts.first_byte,
        idle: timeouts.idle,
        total: timeouts.total,
    };
    Ok(Target::new(TargetSettings { tls, timeouts, ..TargetSettings::new(uri, policy) })?)
}
