//! Composition: the services of a generation, and the parts that outlive it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::GatewayError;
use super::dispatch::{Dispatcher, EdgeSettings, ListenerPolicy};
use super::sources::SourceStates;
use super::succession::{Succession, SuccessionSettings};
use crate::a2a_server::{A2aDependencies, A2aServer};
use crate::access::{Authorizer, OAuthMetadata, RequestAuthenticator};
use crate::agents::{CallLimits, Directory};
use crate::auth::{Authenticator, FailureLimiter, Rules};
use crate::batch::{BatchLimits, BatchResources, BatchService};
use crate::calls::{
    CallEngine, CallSettings, CancelledCalls, InFlightCalls, LiveCalls, ServerIdentity, TaskLookup,
    TaskSettings,
};
use crate::config::{Admin, FamilyPolicy, Listener, Sessions, Settings, TrustedProxies};
use crate::discovery::{Discovery, LiveCatalogue};
use crate::follow::{FollowLimits, TaskFollower};
use crate::http_edge::{BodyReader, DrainState, ListenerEdge};
use crate::limits::Limits;
use crate::mcp_server::{McpServer, McpSettings, ServerGeneration};
use crate::memory::{MemoryBank, MemoryLimits};
use crate::otlp::SpanExporter;
use crate::push_receiver::{PushReceiver, push_address};
use crate::resources::{
    A2aResources, AgentTypes, HttpResources, MemoryResources, ProviderRegistration, ResourceRegistry,
    SparcResources, StaticResources, builtin_tools,
};
use crate::seal::Sealer;
use crate::sessions::{ClientLimitTable, Predecessor, SessionStore};
use crate::shared_state::SharedState;
use crate::tasks::{TaskJournal, TaskLimits, Tasks, Timestamp};
use crate::telemetry::metrics::{AgentMetrics, Metrics};
use crate::telemetry::recent::MetricsHistory;
use crate::telemetry::trace::Tracer;
use crate::transport::HttpClient;

/// The parts that outlive a generation.
pub(super) struct LastingParts {
    pub(super) metrics: Arc<Metrics>,
    pub(super) http_client: HttpClient,
    pub(super) sealer: Sealer,
    /// Records spans; `None` if traces are only passed on.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// Exports traces, if that is configured.
    pub(super) exporter: Option<Arc<SpanExporter>>,
    /// Tasks, sessions and memory.
    pub(super) succession: Arc<Succession>,
    /// State that replicas share, if that is configured.
    pub(super) shared: Option<Arc<SharedState>>,
    pub(super) cancelled_calls: Arc<CancelledCalls>,
    pub(super) in_flight: InFlightCalls,
    pub(super) live: Arc<LiveCalls>,
    /// The recent past, if operators have a page.
    pub(super) history: Option<MetricsHistory>,
    pub(super) catalogue_changes: watch::Sender<u64>,
    /// Metrics of requests that no agent is part of.
    pub(super) no_agent: Arc<AgentMetrics>,
    /// Number of the present generation.
    pub(super) present: Arc<AtomicU64>,
    pub(super) open_requests: Arc<AtomicUsize>,
    /// True once the gateway is ready for the first time.
    pub(super) has_been_ready: AtomicBool,
    pub(super) started: Timestamp,
    /// The states of the sources of agents.
    pub(super) sources: Arc<SourceStates>,
}

/// The agents and the limits of a generation, which continue those of the one before.
pub(super) struct GenerationBase {
    pub(super) directory: Arc<Directory>,
    pub(super) limits: Arc<Limits>,
}

impl LastingParts {
    pub(super) fn new(
        settings: &Settings,
        metrics: Arc<Metrics>,
        http_client: HttpClient,
        base: &GenerationBase,
        shared: Option<Arc<SharedState>>,
    ) -> Result<Self, GatewayError> {
        let sealer = sealer(settings)?;
        let tasks = Tasks::new(task_limits(settings));
        let journal = Arc::new(TaskJournal::new(settings.tasks.keep_artifacts));
        let followers = TaskFollower::new(
            follow_limits(settings),
            tasks.clone(),
            journal.clone(),
            http_client.clone(),
            base.limits.answer_room(None),
            metrics.clone(),
        );
        let followers = Arc::new(followers.shared_by(shared.clone()));
        let predecessor = Arc::new(Predecessor::none());
        let Sessions { ttl, max_cached } = settings.sessions;
        let sessions = SessionStore::new(
            ttl.as_secs(),
            max_cached,
            sealer.clone(),
            journal.clone(),
            predecessor.clone(),
        );
        let succession = Succession {
            tasks,
            followers: followers.clone(),
            directory: ArcSwap::new(base.directory.clone()),
            sessions: Arc::new(sessions),
            memory: memory_bank(settings, &journal),
            batches: Mutex::default(),
            journal,
            predecessor,
            drain: Arc::new(DrainState::new(settings.shutdown)),
            settings: SuccessionSettings::new(settings),
            unfollowed: Mutex::default(),
        };
        let succession = Arc::new(succession);
        if let Some(shared) = &shared {
            succession.share(shared);
        }
        let ActiveTracing { tracer, exporter } = ActiveTracing::new(settings, &metrics, &http_client)?;
        Ok(Self {
            no_agent: metrics.no_agent(),
            metrics,
            http_client,
            sealer,
            tracer,
            exporter,
            succession,
            shared,
            cancelled_calls: CancelledCalls::new(&followers, settings.calls.cancel_grace),
            in_flight: InFlightCalls::default(),
            live: Arc::new(LiveCalls::new(has_page(settings))),
            history: has_page(settings).then(MetricsHistory::default),
            catalogue_changes: watch::Sender::new(0),
            present: Arc::new(AtomicU64::new(1)),
            open_requests: Arc::default(),
            has_been_ready: AtomicBool::new(false),
            started: Timestamp::now(),
            sources: Arc::default(),
        })
    }

    /// Applies the settings of a generation to the parts that outlive it.
    pub(super) fn renew(&self, settings: &Settings, base: &GenerationBase) {
        let Succession { followers, directory, .. } = &*self.succession;
        let pushes = push_address(settings, &self.sealer);
        followers.renew(follow_limits(settings), base.limits.answer_room(None), pushes);
        self.cancelled_calls.set_grace(settings.calls.cancel_grace);
        base.directory.upkeep().set_cards(settings.cards);
        directory.store(base.directory.clone());
    }
}

/// The tracer and its exporter, if traces are exported.
#[derive(Default)]
struct ActiveTracing {
    tracer: Option<Arc<Tracer>>,
    exporter: Option<Arc<SpanExporter>>,
}

impl ActiveTracing {
    fn new(settings: &Settings, metrics: &Metrics, client: &HttpClient) -> Result<Self, GatewayError> {
        let Some(tracing) = &settings.tracing else { return Ok(Self::default()) };
        let created = SpanExporter::new(tracing, &metrics.spans, client);
        let (exporter, tracer) = created.map_err(GatewayError::Tracing)?;
        Ok(Self { tracer: Some(tracer), exporter: Some(Arc::new(exporter)) })
    }
}

/// Returns a listener as the HTTP edge sees it.
fn listener_edge(
    lasting: &LastingParts,
    name: String,
    proxies: TrustedProxies,
    has_grpc: bool,
) -> Arc<ListenerEdge> {
    let responses = lasting.metrics.responses(&name);
    Arc::new(ListenerEdge::new(name, proxies, has_grpc, responses))
}

/// Returns the settings of a listener that can change while it listens.
fn listener_policy(lasting: &LastingParts, listener: &Listener) -> ListenerPolicy {
    let Listener { address, serve, require, proxies, tls: _ } = listener;
    ListenerPolicy {
        serve: *serve,
        require: require.clone(),
        edge: listener_edge(lasting, address.to_string(), proxies.clone(), serve.grpc),
    }
}

/// The parts that several services of a generation share.
struct SharedParts<'a> {
    lasting: &'a LastingParts,
    directory: Arc<Directory>,
    catalogue: Arc<LiveCatalogue>,
    metadata: Arc<OAuthMetadata>,
    authorizer: Arc<Authorizer>,
    limits: Arc<Limits>,
    body: Arc<BodyReader>,
}

impl<'a> SharedParts<'a> {
    fn new(settings: &Settings, lasting: &'a LastingParts, base: &GenerationBase) -> Self {
        let GenerationBase { directory, limits } = base;
        let rules = Rules::new(settings.rules.clone());
        let metadata = Arc::new(OAuthMetadata::new(settings, &rules));
        let authorizer = Authorizer::new(rules, directory.clone(), metadata.clone(), &settings.log);
        let body = BodyReader::new(settings.limits.body, settings.limits.body_read, limits.clone());
        Self {
            catalogue: Arc::new(LiveCatalogue::new(
                directory.clone(),
                &settings.mcp,
                builtin_tools(&settings.resources),
                lasting.catalogue_changes.clone(),
            )),
            authorizer: Arc::new(authorizer),
            body: Arc::new(body),
            directory: directory.clone(),
            metadata,
            limits: limits.clone(),
            lasting,
        }
    }

    /// Returns the authenticator, which continues the one `before`.
    fn authenticator(
        &self,
        settings: &Settings,
        before: Option<&RequestAuthenticator>,
    ) -> Result<RequestAuthenticator, GatewayError> {
        let (public_url, client) = (settings.public_url.as_deref(), self.lasting.http_client.clone());
        let outbound = Arc::new(settings.outbound.allow.clone());
        let authenticator = match before {
            Some(before) => before.authenticator().renewed(&settings.auth, public_url, client, &outbound),
            None => Authenticator::new(&settings.auth, public_url, client, &outbound),
        }?;
        let most = settings.limits.auth_failures;
        let failures = match before {
            Some(before) => before.failures().renewed(most),
            None => Arc::new(FailureLimiter::new(most)),
        };
        Ok(RequestAuthenticator::new(authenticator, failures, self.metadata.clone()))
    }

    fn task_lookup(&self, settings: &Settings) -> TaskLookup {
        let Succession { tasks, journal, followers, .. } = &*self.lasting.succession;
        TaskLookup {
            directory: self.directory.clone(),
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            tasks: tasks.clone(),
            followers: followers.clone(),
            journal: journal.clone(),
            shared: self.lasting.shared.clone(),
            sealer: self.lasting.sealer.clone(),
            settings: TaskSettings {
                artifact_bytes: settings.limits.artifacts,
                ttl: settings.tasks.ttl,
                poll_interval: settings.tasks.poll_interval,
                subagent_tools: settings.mcp.subagent_tools,
                resource_links: settings.mcp.resource_links,
                phases: settings.resources.sparc.as_ref().map(|sparc| sparc.phases.clone()),
                records_results: settings.resources.memory.as_ref().is_some_and(|memory| memory.task_results),
            },
        }
    }

    fn call_engine(
        &self,
        settings: &Settings,
        lookup: Arc<TaskLookup>,
        identity: Arc<ServerIdentity>,
    ) -> CallEngine {
        let lasting = self.lasting;
        CallEngine {
            authorizer: self.authorizer.clone(),
            catalogue: self.catalogue.clone(),
            limits: self.limits.clone(),
            sessions: lasting.succession.sessions.clone(),
            http_client: lasting.http_client.clone(),
            sealer: lasting.sealer.clone(),
            cancelled_calls: lasting.cancelled_calls.clone(),
            running: lasting.in_flight.clone(),
            live: lasting.live.clone(),
            drain: lasting.succession.drain.clone(),
            metrics: lasting.metrics.clone(),
            settings: CallSettings {
                calls: settings.calls.clone(),
                exchange: call_limits(settings),
                artifact_bytes: settings.limits.artifacts,
                identity,
            },
            lookup,
        }
    }

    fn discovery(&self, settings: &Settings, authenticator: &RequestAuthenticator) -> Discovery {
        Discovery {
            directory: self.directory.clone(),
            catalogue: self.catalogue.clone(),
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            metadata: self.metadata.clone(),
            sealer: self.lasting.sealer.clone(),
            key_header: authenticator.key_header().cloned(),
            page_size: settings.mcp.page_size,
        }
    }

    fn resources(
        &self,
        settings: &Settings,
        lookup: &Arc<TaskLookup>,
        discovery: &Arc<Discovery>,
        batches: Option<&Arc<BatchService>>,
    ) -> Result<ResourceRegistry, GatewayError> {
        let (memory, started) = (self.lasting.succession.memory.as_ref(), self.lasting.started);
        let a2a = A2aResources {
            lookup: lookup.clone(),
            discovery: discovery.clone(),
            started,
            agent_types: AgentTypes::new(&settings.resources),
            files: settings.resources.files.clone(),
            http_client: self.lasting.http_client.clone(),
        };
        let mut families = vec![ProviderRegistration::new(Arc::new(a2a), &settings.resources.a2a)];
        if let Some(sparc) = &settings.resources.sparc {
            let provider = SparcResources::new(lookup.clone(), discovery.clone(), &settings.resources);
            families.push(ProviderRegistration::new(Arc::new(provider), &sparc.policy));
        }
        if let (Some(family), Some(bank)) = (&settings.resources.memory, memory) {
            let (sealer, authorizer) = (self.lasting.sealer.clone(), self.authorizer.clone());
            let memory = MemoryResources { bank: bank.clone(), sealer, authorizer };
            families.push(ProviderRegistration::new(Arc::new(memory), &family.policy));
        }
        if let (Some(family), Some(service)) = (&settings.resources.batchtools, batches) {
            let (service, authorizer) = (service.clone(), self.authorizer.clone());
            let batches = BatchResources { service, authorizer, started };
            families.push(ProviderRegistration::new(Arc::new(batches), &family.policy));
        }
        let endpoints = HttpResources::by_family(
            &settings.resources.http,
            &self.lasting.http_client,
            &self.limits,
            &self.authorizer,
        )
        .map_err(GatewayError::Resource)?;
        for provider in endpoints {
            let provider = Arc::new(provider);
            families.push(ProviderRegistration::new(provider, &settings.resources.http_policy));
        }
        // The last: another family wins over a template of the operator.
        let own = StaticResources::new(settings.resources.r#static.clone(), self.authorizer.clone());
        families.push(ProviderRegistration::new(Arc::new(own), &FamilyPolicy::default()));
        Ok(ResourceRegistry::new(families, self.authorizer.clone(), &settings.mcp.server_name))
    }

    fn a2a_server(
        &self,
        settings: &Settings,
        discovery: Arc<Discovery>,
        before: Option<&A2aServer>,
    ) -> A2aServer {
        let parts = A2aDependencies {
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            directory: self.directory.clone(),
            discovery,
            http_client: self.lasting.http_client.clone(),
            sealer: self.lasting.sealer.clone(),
            body: self.body.clone(),
            drain: self.lasting.succession.drain.clone(),
            metrics: self.lasting.metrics.clone(),
            shared: self.lasting.shared.clone(),
        };
        A2aServer::new(settings, parts, before)
    }

    fn push_receiver(&self, settings: &Settings, lookup: &TaskLookup) -> PushReceiver {
        PushReceiver {
            sealer: self.lasting.sealer.clone(),
            directory: self.directory.clone(),
            tasks: lookup.tasks.clone(),
            followers: lookup.followers.clone(),
            metrics: self.lasting.metrics.clone(),
            body: self.body.clone(),
            is_enabled: settings.push.enabled,
        }
    }
}

/// Returns true if operators have a page, for which the recent past is kept.
fn has_page(settings: &Settings) -> bool {
    settings.admin.as_ref().is_some_and(Admin::has_authentication)
}

/// Creates the memory bank, if it is configured.
fn memory_bank(settings: &Settings, journal: &Arc<TaskJournal>) -> Option<Arc<MemoryBank>> {
    let family = settings.resources.memory.as_ref()?;
    let limits = MemoryLimits {
        value_bytes: family.value_bytes,
        caller_keys: family.caller_keys,
        caller_bytes: family.caller_bytes,
        keys: family.max_keys,
        bytes: family.max_bytes,
        max_ttl_seconds: family.ttl.map(|ttl| ttl.as_secs()),
    };
    Some(Arc::new(MemoryBank::new(limits, journal.clone())))
}

/// Creates the service of batches, if it is configured. It continues the one `before`.
fn batch_service(
    settings: &Settings,
    engine: &Arc<CallEngine>,
    before: Option<&BatchService>,
) -> Option<Arc<BatchService>> {
    let family = settings.resources.batchtools.as_ref()?;
    let limits = BatchLimits {
        max_concurrency: family.max_concurrency,
        max_calls: family.max_calls,
        queue_size: family.queue_size,
        caller_batches: family.caller_batches,
        caller_bytes: family.caller_bytes,
        max_bytes: family.max_bytes,
        call_timeout: family.call_timeout,
        keep: family.keep,
        process_bytes: settings.limits.bytes,
    };
    Some(Arc::new(BatchService::new(engine.clone(), limits, before)))
}

impl Dispatcher {
    /// Creates the services of a generation, which continue those of the one `before`. Nothing is
    /// started.
    ///
    /// # Errors
    ///
    /// [`GatewayError`] names the setting that is not usable.
    pub(super) fn of_generation(
        settings: &Settings,
        lasting: &LastingParts,
        base: &GenerationBase,
        before: Option<&Self>,
    ) -> Result<Self, GatewayError> {
        let number = before.map_or(1, |before| before.generation + 1);
        let parts = SharedParts::new(settings, lasting, base);
        let authenticator = parts.authenticator(settings, before.map(|before| &before.authenticator))?;
        let discovery = Arc::new(parts.discovery(settings, &authenticator));
        let lookup = Arc::new(parts.task_lookup(settings));
        let identity = Arc::new(ServerIdentity::new(settings));
        let engine = Arc::new(parts.call_engine(settings, lookup.clone(), identity.clone()));
        let batches = before.and_then(|before| before.mcp_server.batches.as_deref());
        let batches = batch_service(settings, &engine, batches);
        let resources = parts.resources(settings, &lookup, &discovery, batches.as_ref())?;
        let mcp_server = McpServer {
            resources: Arc::new(resources),
            batches,
            discovery: discovery.clone(),
            limits: parts.limits.clone(),
            sessions: engine.sessions.clone(),
            clients: ClientLimitTable::new(&settings.calls.clients),
            body: parts.body.clone(),
            drain: engine.drain.clone(),
            metrics: lasting.metrics.clone(),
            no_agent: lasting.no_agent.clone(),
            settings: McpSettings::new(settings, identity, lasting.started),
            generation: ServerGeneration {
                number,
                present: lasting.present.clone(),
                lists: before.map_or(0, |before| before.lists_of(settings)),
            },
            engine,
        };
        let listeners = settings.listeners.iter().map(|listener| listener_policy(lasting, listener));
        Ok(Self {
            generation: number,
            settings: EdgeSettings::new(settings, lasting.started),
            listeners: listeners.collect(),
            authenticator,
            body: parts.body.clone(),
            a2a_server: parts.a2a_server(
                settings,
                discovery.clone(),
                before.map(|before| &before.a2a_server),
            ),
            push_receiver: parts.push_receiver(settings, &lookup),
            tracer: lasting.tracer.clone(),
            host_edge: listener_edge(lasting, String::new(), TrustedProxies::default(), true),
            discovery,
            drain: mcp_server.drain.clone(),
            mcp_server,
            metrics: lasting.metrics.clone(),
            no_agent: lasting.no_agent.clone(),
            configuration: settings.clone(),
            _held: lasting.metrics.config.hold(),
        })
    }
}

impl Dispatcher {
    /// Returns the number of changes that clients see in lists, once the settings are these. Changes
    /// of agents are counted by their cards.
    fn lists_of(&self, settings: &Settings) -> u64 {
        let used = &self.configuration;
        let are_same = used.rules == settings.rules
            && used.mcp == settings.mcp
            && used.resources == settings.resources
            && used.prompts == settings.prompts;
        self.mcp_server.generation.lists + u64::from(!are_same)
    }
}

fn task_limits(settings: &Settings) -> TaskLimits {
    TaskLimits {
        most: settings.tasks.max,
        bytes: settings.tasks.max_bytes,
        ttl: settings.tasks.ttl,
        artifact_bytes: settings.tasks.keep_artifacts,
        compress_after: settings.tasks.compress_after,
    }
}

/// Creates the state that replicas share, if it is configured. Nothing is connected.
pub(super) fn shared_state(settings: &Settings) -> Result<Option<Arc<SharedState>>, GatewayError> {
    let Some(state) = &settings.state else { return Ok(None) };
    let shared = SharedState::new(state, sealer(settings)?, settings.tasks.ttl);
    shared.map(Some).map_err(GatewayError::State)
}

/// Returns the sealer with the key of the configuration, else of the data directory, else a random
/// one.
fn sealer(settings: &Settings) -> Result<Sealer, GatewayError> {
    if !settings.seal_keys.is_empty() {
        return Ok(Sealer::new(settings.seal_keys.iter().map(|key| key.expose().as_bytes()))?);
    }
    if let Some(dir) = &settings.tasks.data_dir {
        let key = crate::tasks::data_dir::seal_key(dir)?;
        return Ok(Sealer::new([key.expose().as_bytes()])?);
    }
    tracing::warn!(
        "no seal_key: sessions and task handles end with this process and work on no other replica; set seal_key, or \
         tasks.data_dir, where one is kept"
    );
    let random: [u8; 32] = rand::random();
    Ok(Sealer::new([random.as_slice()])?)
}

fn follow_limits(settings: &Settings) -> FollowLimits {
    FollowLimits {
        most: settings.background.max,
        lifetime: settings.background.lifetime,
        call: call_limits(settings),
    }
}

fn call_limits(settings: &Settings) -> CallLimits {
    let streams = &settings.streams;
    CallLimits {
        event: settings.limits.event,
        silence: streams.idle_timeout,
        retry_base: streams.retry_base,
        stalled: streams.stalled_after,
        retry_max: streams.retry_max,
        max_attempts: u32::try_from(streams.max_attempts).unwrap_or(u32::MAX),
    }
}
