//! All agents of the configuration, and the loops in the background that keep them current: one for
//! the card of each agent, one for its credentials, and one for each endpoint with health checks.
//!
//! An agent that is down does not affect the others; its last good card remains in use, and its
//! first one is fetched with growing pauses. See `card_fetch` for one fetch.
//!
//! A health check fetches the card by default: every agent serves it without authentication, and it
//! costs no work. A check counts as any request does; a successful one brings an endpoint with an
//! open breaker back, but on probation (see `breaker`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Request, Uri};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::agent::Agent;
use super::card_fetch::CardFetchError;
use super::card_fetch::KeptCards;
use super::card_fetch::{CardRequest, FetchedCard};
use super::card_fetch::{Seen, verify};
use super::endpoints::{EndpointSharing, SharedEndpoints};
use super::grpc;
use super::resolved::AgentAddress;
use super::resolved::ResolvedAgent;
use super::rpc::ForwardedContext;
use crate::a2a::{AgentCard, Binding, CardError, Dialect, InterfacePin, ProbeOutcome, ProbeRequest};
use crate::auth::{AccessToken, ReloadOutcome, SubjectToken};
use crate::config::{self, CardSource, Settings};
use crate::fault::AgentFailure;
use crate::sync::lock;
use crate::telemetry::label::Refresh;
use crate::telemetry::metrics::{Metrics, OutboundMetrics};
use crate::telemetry::trace::RequestScope;
use crate::timing::{Backoff, with_jitter};
use crate::transport::HttpClient;

/// The interval at which files and the age of tokens are checked.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum size of a response to a probe, in bytes.
const PROBE_ANSWER: usize = 64 * 1024;
/// The maximum number of endpoints that are probed in one refresh.
const MOST_PROBED: usize = 4;
/// The maximum size of a response, in bytes; it is read only to reuse the connection.
const ANSWER: usize = 1 << 20;
/// The maximum relative error of the interval of checks: endpoints must not be checked together.
const CHECK_JITTER: f64 = 0.1;

/// All agents.
pub struct Directory {
    agents: Vec<Arc<Agent>>,
    places: HashMap<String, usize>,
    /// The names of the headers that are forwarded to any agent.
    forwards: Vec<HeaderName>,
    on_behalf: bool,
    upkeep: Arc<AgentUpkeep>,
}

/// Keeps agents current: their cards, credentials and health. Every directory of a process shares
/// it, so that the loops of an agent continue when the configuration of other agents changes.
pub(crate) struct AgentUpkeep {
    changed: watch::Sender<u64>,
    client: HttpClient,
    /// Counts addresses on cards that are not called.
    refusals: OutboundMetrics,
    cards: Mutex<config::Cards>,
    /// The store of cards, if there is one.
    kept: Option<Arc<KeptCards>>,
    sharing: SharedEndpoints,
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
        let upkeep = AgentUpkeep {
            changed: watch::Sender::new(0),
            client,
            refusals: metrics.outbound.clone(),
            cards: Mutex::new(settings.cards),
            kept: settings.tasks.data_dir.as_deref().map(KeptCards::new).map(Arc::new),
            sharing: SharedEndpoints::default(),
        };
        Self::with(settings, metrics, Arc::new(upkeep), None)
    }

    /// Creates the directory of changed settings. Agents with the same settings stay, with their
    /// whole state; each other one begins without a card (see [`Agent::succeed`]).
    ///
    /// # Errors
    ///
    /// As [`Directory::new`]; this directory has not changed then.
    pub(crate) fn renewed(
        &self,
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, CardFetchError> {
        Self::with(settings, metrics, self.upkeep.clone(), Some(self))
    }

    fn with(
        settings: &Settings,
        metrics: &Arc<Metrics>,
        upkeep: Arc<AgentUpkeep>,
        before: Option<&Self>,
    ) -> Result<Self, CardFetchError> {
        let outbound = Arc::new(settings.outbound.allow.clone());
        let mut agents = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let name = agent.name.clone();
            let same = before.and_then(|before| before.find(&name));
            if let Some(same) = same.filter(|known| known.has_settings(agent, &outbound)) {
                agents.push(same.clone());
                continue;
            }
            let client = upkeep.client.clone();
            let agent = Agent::new(
                agent.clone(),
                client,
                outbound.clone(),
                metrics.agent(&name),
                (same.map(|same| &**same), upkeep.sharing.clone()),
            )
            .map_err(|problem| CardFetchError::Setting(format!("agents.{name}: {problem}")))?;
            agents.push(Arc::new(agent));
        }
        let places =
            agents.iter().enumerate().map(|(place, agent)| (agent.settings.name.clone(), place)).collect();
        let forwards = agents.iter().flat_map(|agent| agent.forwards.iter().cloned()).collect();
        let on_behalf = agents.iter().any(|agent| agent.uses_caller_token());
        Ok(Self { agents, places, forwards, on_behalf, upkeep })
    }

    /// Shares affinities and open breakers of endpoints with other replicas from now on, once.
    pub(crate) fn share_endpoints(&self, sharing: Arc<dyn EndpointSharing>) {
        if self.upkeep.sharing.set(sharing).is_err() {
            debug!("endpoints are shared already");
        }
    }

    /// Returns the upkeep of the agents.
    pub(crate) fn upkeep(&self) -> &Arc<AgentUpkeep> {
        &self.upkeep
    }

    /// Returns the parts of a client's request that are forwarded to agents. `subject` returns the token that authenticated the caller, if a token did:
    /// agents under `grant: token_exchange` get the token that it is exchanged for.
    pub fn along(
        &self,
        request: &HeaderMap,
        subject: impl FnOnce() -> Option<SubjectToken>,
        scope: Arc<RequestScope>,
    ) -> Arc<ForwardedContext> {
        let subject = if self.on_behalf { subject() } else { None };
        Arc::new(ForwardedContext::new(&self.forwards, request, subject, scope))
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
        self.upkeep.changed.subscribe()
    }

    /// Begins or ends caching cards: the folder has one owner. Cards that are known by then are
    /// cached, and those of agents that are not in the configuration any more are dropped. Blocks
    /// on the disk.
    pub(crate) fn own_cards(&self, is_own: bool) {
        let Some(kept) = &self.upkeep.kept else { return };
        kept.own(is_own);
        if !is_own {
            return;
        }
        if let Err(error) = kept.retain(|agent| self.find(agent).is_some()) {
            warn!(%error, "failed to remove cached cards of unknown agents");
        }
        for agent in self.agents() {
            if let Some(known) = agent.known() {
                write(kept, agent, known.card.raw.get());
            }
        }
    }

    /// Refreshes once, for the `agents` command.
    ///
    /// # Errors
    ///
    /// The reason for which there is no usable card.
    pub async fn refresh_once(&self, agent: &Arc<Agent>) -> Result<(), CardFetchError> {
        self.upkeep.renew(agent, &mut CardCacheState::default()).await.map(|_| ())
    }

    /// Checks each configured endpoint once, for the `agents` command; returns which are available.
    pub async fn check_once(&self, agent: &Agent) -> Vec<(String, bool)> {
        self.upkeep.check_once(agent).await
    }
}

impl AgentUpkeep {
    /// Replaces the times between the refreshes of cards.
    pub(crate) fn set_cards(&self, cards: config::Cards) {
        *lock(&self.cards) = cards;
    }

    pub(super) fn notify_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Refreshes the credentials of one agent, without end: reads changed files again, renews a
    /// token in use before it ends; and reloads the keys that sign its card.
    pub(crate) async fn keep_credentials(&self, agent: &Arc<Agent>) {
        let has_files = agent.credentials.has_files();
        let tokens = agent.credentials.tokens().filter(|tokens| !tokens.is_on_behalf());
        // Separate loops: a slow token endpoint must not delay a new certificate.
        let files = async {
            if !has_files {
                return;
            }
            loop {
                tokio::time::sleep(REFRESH_INTERVAL).await;
                look_again(agent).await;
            }
        };
        let renewed = async {
            let Some(tokens) = tokens else { return };
            loop {
                tokio::time::sleep(REFRESH_INTERVAL).await;
                tokens.renew().await;
            }
        };
        tokio::join!(files, renewed, keep_signers(agent));
    }
}

async fn keep_signers(agent: &Arc<Agent>) {
    let Some(signers) = &agent.signers else { return };
    let mut seen = Seen::default();
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        let (signers, agent, before) = (signers.clone(), agent.clone(), seen.clone());
        let look = move || signers.look_again(before, &agent.settings.name, &agent.metrics);
        match tokio::task::spawn_blocking(look).await {
            Ok(now) => seen = now,
            Err(broken) => warn!(error = %broken, "failed to check card keys"),
        }
    }
}

async fn look_again(agent: &Arc<Agent>) {
    let credentials = agent.credentials.clone();
    match tokio::task::spawn_blocking(move || credentials.reload_changed()).await {
        Ok(ReloadOutcome::Same) => {}
        Ok(ReloadOutcome::NewIdentity) => {
            if let Err(problem) = agent.reconnect() {
                warn!(agent = agent.settings.name, error = %problem, "failed to reconnect with new credentials");
            }
        }
        Err(broken) => {
            warn!(agent = agent.settings.name, error = %broken, "failed to check credential files")
        }
    }
}

/// The outcome of one refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CardRefreshOutcome {
    Changed(Option<Duration>),
    Same(Option<Duration>),
    Failed,
}

/// The state between two refreshes.
#[derive(Default)]
struct CardCacheState {
    etag: Option<String>,
    raw: Option<String>,
    failures: u32,
}

impl AgentUpkeep {
    /// Refreshes the card of one agent, without end.
    pub(crate) async fn run_refresh(&self, agent: &Arc<Agent>) {
        let mut memory = CardCacheState::default();
        let mut signers = agent.signers.as_ref().map(|signers| signers.changes());
        self.use_kept(agent, &mut memory).await;
        loop {
            let look = self.fetch_card(agent, &mut memory).await;
            if let (CardRefreshOutcome::Changed(_), Some(raw)) = (look, &memory.raw) {
                self.keep(agent, raw.clone()).await;
            }
            let outcome = match look {
                CardRefreshOutcome::Changed(_) => Refresh::Changed,
                CardRefreshOutcome::Same(_) => Refresh::Unchanged,
                CardRefreshOutcome::Failed => Refresh::Failed,
            };
            agent.metrics.card_refresh(outcome);
            agent.metrics.up(look != CardRefreshOutcome::Failed);
            agent.looked();
            self.notify_changed();
            let other_signers = async {
                match &mut signers {
                    Some(signers) => signers.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::time::timeout(self.pause(look, &memory), other_signers).await;
            if changed == Ok(true) {
                self.reverify(agent, &mut memory);
            }
        }
    }

    /// Passes the card of an agent to its successor, which has the same name and other settings. The
    /// card is verified as if it were fetched now. Returns false if the successor has to fetch its
    /// own. The loops of the agent before must have ended.
    pub(crate) fn succeed(&self, agent: &Agent, before: &Agent) -> bool {
        let known = before.known().filter(|_| before.settings.card == agent.settings.card);
        let known = known.and_then(|known| {
            let from = match &agent.settings.card {
                CardSource::Url(url) => Some(url.parse::<Uri>().ok()?),
                CardSource::File(_) => None,
            };
            let card = AgentCard::parse(known.card.raw.get().as_bytes()).ok()?;
            let pin = match card.interface(agent.pin()) {
                Err(CardError::Ambiguous { .. }) => {
                    InterfacePin { dialect: Some(known.interface.dialect), ..agent.pin() }
                }
                _ => agent.pin(),
            };
            let card = verified(agent, card).and_then(|card| agent.apply_card(card, from.as_ref(), pin));
            card.inspect_err(|error| {
                warn!(agent = agent.settings.name, %error, "agent card cannot be used with the new settings");
            })
            .ok()
        });
        if let Some(known) = &known {
            // Applies the positions of API keys on the card; problems are logged for the next card.
            drop(agent.credential_problems(&known.card));
        }
        let is_known = known.is_some();
        if before.settings.card == agent.settings.card {
            agent.succeed(before, known);
        } else {
            before.retire();
        }
        self.notify_changed();
        is_known
    }

    /// Ends the state of an agent that is not in the configuration any more.
    pub(crate) fn retire(&self, agent: &Agent) {
        agent.retire();
        agent.metrics.forget();
        self.notify_changed();
    }

    /// Uses the cached card until the agent sends its own. It is verified as if it were fetched
    /// now.
    async fn use_kept(&self, agent: &Arc<Agent>, memory: &mut CardCacheState) {
        let (Some(kept), CardSource::Url(url)) = (&self.kept, &agent.settings.card) else { return };
        let (kept, name, place) = (kept.clone(), agent.settings.name.clone(), url.clone());
        let read = tokio::task::spawn_blocking(move || kept.read(&name, &place)).await;
        let (Ok(Some(kept)), Ok(from)) = (read, url.parse::<Uri>()) else { return };
        let name = agent.settings.name.as_str();
        let raw = kept.card.raw.get().to_owned();
        let pin = match kept.card.interface(agent.pin()) {
            Err(CardError::Ambiguous { .. }) => InterfacePin { dialect: kept.probed, ..agent.pin() },
            _ => agent.pin(),
        };
        match verified(agent, kept.card).and_then(|card| agent.apply_card(card, Some(&from), pin)) {
            Ok(known) => {
                info!(agent = name, "using cached agent card");
                // Applies the positions of API keys on the card; problems with them are logged for
                // the agent's own card.
                drop(agent.credential_problems(&known.card));
                agent.learn(known);
                memory.raw = Some(raw);
                self.notify_changed();
            }
            Err(problem) => warn!(agent = name, error = %problem, "failed to use cached agent card"),
        }
    }

    /// Caches a card that is good.
    async fn keep(&self, agent: &Arc<Agent>, raw: String) {
        let Some(kept) = self.kept.clone().filter(|kept| kept.is_own()) else { return };
        let agent = agent.clone();
        let written = tokio::task::spawn_blocking(move || write(&kept, &agent, &raw)).await;
        if let Err(error) = written {
            warn!(%error, "failed to cache agent card");
        }
    }

    /// Verifies the card in use with the new keys: one that they did not sign is not used any more.
    fn reverify(&self, agent: &Agent, memory: &mut CardCacheState) {
        let (Some(signers), Some(raw)) = (&agent.signers, memory.raw.take()) else { return };
        // The card is fetched anew in any case: another part of it may count now.
        memory.etag = None;
        if let Err(problem) = verify(&raw, &signers.keys())
            && signers.required()
        {
            warn!(agent = agent.settings.name, error = %problem, "agent card dropped: not signed by the new keys");
            agent.forget();
            self.notify_changed();
        }
    }

    async fn fetch_card(&self, agent: &Arc<Agent>, memory: &mut CardCacheState) -> CardRefreshOutcome {
        let name = agent.settings.name.as_str();
        match self.renew(agent, memory).await {
            Ok(look) => {
                if memory.failures > 0 || matches!(look, CardRefreshOutcome::Changed(_)) {
                    let known = agent.known();
                    let interface = known.as_ref().map(|known| &known.interface);
                    let protocol = interface.map(|interface| interface.version_name());
                    let binding = interface.map(|interface| interface.binding.name());
                    info!(agent = name, protocol, binding, "agent card read");
                }
                memory.failures = 0;
                agent.seen(unix_ms());
                agent.set_problem(None);
                look
            }
            Err(problem) => {
                if let CardFetchError::Distrusted(distrust) = &problem {
                    self.refusals.refused(distrust.label());
                }
                if memory.failures == 0 {
                    warn!(agent = name, error = %problem, "failed to fetch agent card");
                }
                memory.failures = memory.failures.saturating_add(1);
                agent.set_problem(Some(problem.to_string()));
                CardRefreshOutcome::Failed
            }
        }
    }

    async fn renew(
        &self,
        agent: &Arc<Agent>,
        memory: &mut CardCacheState,
    ) -> Result<CardRefreshOutcome, CardFetchError> {
        let asking = CardRequest { client: &self.client, agent, etag: memory.etag.as_deref() };
        let FetchedCard { card, etag, fresh_for, from } = asking.fetch().await?;
        let Some(card) = card else { return Ok(CardRefreshOutcome::Same(fresh_for)) };
        if memory.raw.as_deref() == Some(card.raw.get()) {
            memory.etag = etag;
            return Ok(CardRefreshOutcome::Same(fresh_for));
        }
        let raw = card.raw.get().to_owned();
        let card = verified(agent, card)?;
        let known = self.understand(agent, card, from.as_ref()).await?;
        for problem in &known.card.problems {
            warn!(agent = agent.settings.name, error = %problem, "agent card is incorrect");
        }
        for problem in agent.credential_problems(&known.card) {
            warn!(agent = agent.settings.name, error = %problem, "agent requires credentials that are not configured");
        }
        for problem in agent.obstacle_of(&known.card).into_iter().chain(agent.idle_extensions(&known.card)) {
            warn!(agent = agent.settings.name, error = %problem, "agent card does not match the activated extensions");
        }
        agent.learn(known);
        // Only now: a card that was not understood must be fetched again as a whole.
        memory.etag = etag;
        memory.raw = Some(raw);
        Ok(CardRefreshOutcome::Changed(fresh_for))
    }

    async fn understand(
        &self,
        agent: &Agent,
        card: AgentCard,
        from: Option<&Uri>,
    ) -> Result<ResolvedAgent, CardFetchError> {
        let pin = agent.pin();
        match card.interface(pin) {
            Err(CardError::Ambiguous { url }) => {
                let dialect = self.probe(agent, &url, from).await?;
                agent.apply_card(card, from, InterfacePin { dialect: Some(dialect), ..pin })
            }
            _ => agent.apply_card(card, from, pin),
        }
    }

    /// Probes the version of an agent with a card that names none: one endpoint after another
    /// until one responds, those with an open breaker last. No more than a few: the next refresh
    /// begins after as many. The error of the first one is returned.
    async fn probe(&self, agent: &Agent, url: &str, from: Option<&Uri>) -> Result<Dialect, CardFetchError> {
        let places = agent.places(url, from)?;
        let endpoints = agent.endpoints_at(&places, Binding::JsonRpc, 0);
        let standing = endpoints.standing();
        let mut order: Vec<usize> = endpoints.numbers(MOST_PROBED).collect();
        order.sort_by_key(|at| standing.get(*at).is_none_or(|standing| standing.rests.is_some()));
        let mut problem = None;
        for place in order.into_iter().filter_map(|at| places.get(at)).take(MOST_PROBED) {
            match self.probe_at(agent, url, place.clone()).await {
                Ok(dialect) => return Ok(dialect),
                Err(why) => problem = problem.or(Some(why)),
            }
        }
        Err(problem.unwrap_or_else(|| CardFetchError::Setting("there is no endpoint".to_owned())))
    }

    /// Probes one endpoint. The requests are malformed on purpose: no agent begins work on them.
    async fn probe_at(
        &self,
        agent: &Agent,
        url: &str,
        place: AgentAddress,
    ) -> Result<Dialect, CardFetchError> {
        // A card without a version is probed by JSON-RPC, which has one URL for all methods.
        let way = agent.route(place, Binding::JsonRpc, true)?;
        let pass = agent.token().await;
        let mut question = ProbeRequest::MessageSend;
        loop {
            let mut request = Request::new(Bytes::from_static(question.body()));
            *request.method_mut() = Method::POST;
            request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            let unusable = |what: &str| CardFetchError::Setting(what.to_owned());
            agent.apply_credentials(&mut request, &way.path, pass.as_ref()).map_err(unusable)?;
            let reply = self.client.send(&way.target, request).await;
            let unreached = |error| CardFetchError::unreachable(&agent.settings.name, url.to_owned(), error);
            let mut reply = reply.map_err(unreached)?;
            let status = reply.status().as_u16();
            let body = reply.collect(PROBE_ANSWER).await?;
            match question.verdict(status, &body) {
                ProbeOutcome::Slash => return Ok(Dialect::V0_3),
                ProbeOutcome::V1 => return Ok(Dialect::V1),
                ProbeOutcome::V0_1 => return Ok(Dialect::V0_1),
                ProbeOutcome::AskTasksSend if question == ProbeRequest::MessageSend => {
                    question = ProbeRequest::TasksSend
                }
                ProbeOutcome::AskTasksSend | ProbeOutcome::Undecided => {
                    return Err(CardError::Ambiguous { url: url.to_owned() }.into());
                }
            }
        }
    }

    /// Returns the time to the next refresh.
    fn pause(&self, look: CardRefreshOutcome, memory: &CardCacheState) -> Duration {
        let cards = *lock(&self.cards);
        let (floor, ceiling) = (cards.min_refresh, cards.max_refresh.max(cards.min_refresh));
        match look {
            CardRefreshOutcome::Changed(fresh) | CardRefreshOutcome::Same(fresh) => {
                fresh.unwrap_or(floor).clamp(floor, ceiling)
            }
            CardRefreshOutcome::Failed => {
                let retry = Backoff { base: cards.retry, max: floor.max(cards.retry) };
                retry.pause(memory.failures.saturating_sub(1))
            }
        }
    }
}

/// Returns the card as far as it is signed by a configured key; as received, if that is not
/// required.
fn verified(agent: &Agent, card: AgentCard) -> Result<AgentCard, CardFetchError> {
    let Some(signers) = &agent.signers else { return Ok(card) };
    match verify(card.raw.get(), &signers.keys()) {
        Ok(card) => {
            if let Some(proof) = &card.proof {
                let name = agent.settings.name.as_str();
                info!(agent = name, key = proof.key, form = proof.form.name(), "agent card is signed");
            }
            Ok(card)
        }
        Err(CardFetchError::Unsigned(why)) if !signers.required() => {
            let mut card = card;
            card.problems.push(format!("{why}; it is used all the same (signature.required: false)"));
            Ok(card)
        }
        Err(problem) => Err(problem),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Caches the card of an agent, if it came from a URL. Blocks on the disk.
fn write(kept: &KeptCards, agent: &Agent, raw: &str) {
    let (CardSource::Url(url), Some(known)) = (&agent.settings.card, agent.known()) else { return };
    let is_probed = known.card.interface(agent.pin()).is_err();
    let probed = Some(known.interface.dialect).filter(|_| is_probed);
    if let Err(error) = kept.write(&agent.settings.name, url, raw, probed) {
        warn!(agent = agent.settings.name, %error, "failed to cache agent card");
    }
}

/// A health check of one endpoint: a request for this path.
struct EndpointCheck<'a> {
    agent: &'a Agent,
    known: &'a ResolvedAgent,
    at: usize,
    path: &'a PathAndQuery,
}

impl AgentUpkeep {
    /// Checks one endpoint of an agent, without end. Returns at once if no checks are configured.
    pub(crate) async fn run_health_checks(&self, agent: &Arc<Agent>, at: usize) {
        let Some(health) = &agent.settings.health else { return };
        let Ok(path) = health.path.parse::<PathAndQuery>() else { return };
        loop {
            tokio::time::sleep(with_jitter(health.interval, CHECK_JITTER, rand::random())).await;
            if let Some(known) = agent.known() {
                let check = EndpointCheck { agent, known: &known, at, path: &path };
                self.check(&check, health.timeout).await;
            }
        }
    }

    /// Checks each configured endpoint once; returns which are available.
    async fn check_once(&self, agent: &Agent) -> Vec<(String, bool)> {
        let Some(known) = agent.known().filter(|_| !agent.settings.endpoints.is_empty()) else {
            return Vec::new();
        };
        let health = agent.settings.health.clone().unwrap_or_default();
        let Ok(path) = health.path.parse::<PathAndQuery>() else { return Vec::new() };
        let pass = agent.token().await;
        let mut found = Vec::new();
        for (at, endpoint) in agent.endpoints().into_iter().enumerate() {
            let check = EndpointCheck { agent, known: &known, at, path: &path };
            let answer = tokio::time::timeout(health.timeout, self.fetch_from(&check, pass.as_ref())).await;
            found.push((endpoint.url, matches!(answer, Ok(Ok(true)))));
        }
        found
    }

    async fn check(&self, check: &EndpointCheck<'_>, timeout: Duration) {
        let EndpointCheck { agent, known, at, .. } = *check;
        // A failure to fetch credentials before the check says nothing about the endpoint.
        let pass = agent.token().await;
        let Some(turn) = known.endpoints.check(at) else { return };
        match tokio::time::timeout(timeout, self.fetch_from(check, pass.as_ref())).await {
            Ok(Ok(true)) => turn.record_check(),
            Ok(Ok(false)) | Err(_) => turn.record_unreachable(),
            Ok(Err(AgentFailure::Internal(why))) => {
                tracing::warn!(agent = agent.settings.name, error = why, "failed to prepare health check");
            }
            Ok(Err(trouble)) => {
                tracing::debug!(agent = agent.settings.name, endpoint = at, error = %trouble, "failed to check endpoint");
                turn.record_unreachable();
            }
        }
    }

    /// Returns true if the endpoint gives a good response.
    async fn fetch_from(
        &self,
        check: &EndpointCheck<'_>,
        pass: Option<&AccessToken>,
    ) -> Result<bool, AgentFailure> {
        let EndpointCheck { agent, known, at, path } = *check;
        let is_grpc = known.interface.binding == Binding::Grpc;
        let (mut request, own) = (Request::new(Bytes::new()), PathAndQuery::from_static(grpc::HEALTH_CHECK));
        *request.method_mut() = Method::GET;
        let path = if is_grpc { &own } else { path };
        if is_grpc {
            request = grpc::health_check();
        }
        agent.apply_credentials(&mut request, path, pass).map_err(AgentFailure::Internal)?;
        let target = known.ways.load().own.get(at).map(|way| way.target.clone());
        let target = target.ok_or(AgentFailure::Internal("there is no such endpoint"))?;
        let failed = |error| known.to_failure(&error);
        let mut reply = self.client.send(&target, request).await.map_err(failed)?;
        if reply.status().as_u16() >= 500 {
            return Ok(false);
        }
        let body = reply.collect(ANSWER).await.map_err(failed)?;
        Ok(!is_grpc || grpc::is_serving(&body, reply.trailers().unwrap_or_else(|| reply.headers())))
    }
}
