//! Background service of the gateway: cards, followed calls and sweeps, with a runtime of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService as PingoraBackgroundService;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Gateway;
use super::dispatch::Dispatcher;
use super::succession::Succession;
use crate::resources::TaskResultRecorder;
use crate::telemetry::recent::SAMPLE_SECONDS;
use crate::transport::HttpClient;

/// Interval of the sweep of idle connections and sessions, and of the samples of metrics.
const SWEEP_INTERVAL: Duration = Duration::from_secs(SAMPLE_SECONDS);

/// Background work of the gateway. The host wraps it with Pingora's `background_service` and adds
/// it to its server.
pub struct BackgroundService {
    gateway: Gateway,
    http_client: HttpClient,
    /// Records finished tasks, if that is configured.
    recorder: Option<TaskResultRecorder>,
    /// Time in which all shards of the task map are swept once.
    task_sweep_interval: Duration,
}

impl BackgroundService {
    pub(super) fn new(
        gateway: Gateway,
        http_client: HttpClient,
        recorder: Option<TaskResultRecorder>,
        task_sweep_interval: Duration,
    ) -> Self {
        Self { gateway, http_client, recorder, task_sweep_interval }
    }

    /// Starts the loops of each agent: its card, its credentials and its health checks.
    fn start_agents(&self, work: &mut JoinSet<()>) {
        let directory = &self.gateway.dispatcher.discovery.directory;
        for agent in directory.agents() {
            for at in 0..agent.endpoint_count() {
                let (directory, agent) = (directory.clone(), agent.clone());
                work.spawn(async move { directory.run_health_checks(&agent, at).await });
            }
            let (refreshed, of) = (directory.clone(), agent.clone());
            work.spawn(async move { refreshed.run_refresh(&of).await });
            let (kept, of) = (directory.clone(), agent.clone());
            work.spawn(async move { kept.keep_credentials(&of).await });
        }
    }
}

#[async_trait]
impl PingoraBackgroundService for BackgroundService {
    async fn start(&self, shutdown: ShutdownWatch) {
        self.run(shutdown).await;
    }
}

impl BackgroundService {
    /// Runs the background work on the present runtime, until `shutdown` turns true and the last
    /// request has ended.
    pub(crate) async fn run(&self, mut shutdown: ShutdownWatch) {
        let Gateway { dispatcher, succession } = &self.gateway;
        self.http_client.attach(tokio::runtime::Handle::current());
        let mut work = JoinSet::new();
        self.start_agents(&mut work);
        let catalogue = dispatcher.discovery.catalogue.clone();
        work.spawn(async move { catalogue.run().await });
        let authenticator = dispatcher.authenticator.clone();
        work.spawn(async move { authenticator.keep_fresh().await });
        work.spawn(sweep(self.http_client.clone(), dispatcher.clone()));
        work.spawn(sweep_tasks(succession.clone(), dispatcher.clone(), self.task_sweep_interval));
        if let Some(recorder) = &self.recorder {
            work.spawn(recorder.clone().run());
        }
        work.spawn(succession.clone().start_followers());
        let engine = &dispatcher.mcp_server.engine;
        work.spawn(engine.lookup.followers.clone().run());
        let (cancelled_calls, drain) = (engine.cancelled_calls.clone(), dispatcher.drain.clone());
        work.spawn(async move { cancelled_calls.run(&drain).await });
        if shutdown.wait_for(|ends| *ends).await.is_err() {
            info!("server has gone");
        }
        dispatcher.drain.begin(Duration::ZERO);
        // Followed calls continue until the server ends this runtime, within its grace. Requests
        // also wait for polled tasks.
        while self.gateway.running() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if !dispatcher.drain.hands_over() {
            succession.close_store();
        }
    }
}

/// Removes idle connections and the state of callers that is no longer needed.
async fn sweep(http_client: HttpClient, dispatcher: Arc<Dispatcher>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let now = Instant::now();
        http_client.sweep(now);
        dispatcher.mcp_server.sessions.sweep();
        dispatcher.discovery.limits.sweep();
        dispatcher.mcp_server.resources.sweep();
        dispatcher.authenticator.sweep(now);
        dispatcher.a2a_server.sweep(now);
        if let Some(history) = &dispatcher.history {
            history.record(&dispatcher.metrics);
        }
    }
}

/// Removes expired tasks: one shard at a time, all shards once in each interval.
async fn sweep_tasks(succession: Arc<Succession>, dispatcher: Arc<Dispatcher>, interval: Duration) {
    let lookup = dispatcher.mcp_server.engine.lookup.clone();
    let shards = u32::try_from(lookup.tasks.shards()).unwrap_or(u32::MAX).max(1);
    let pause = (interval / shards).max(Duration::from_millis(1));
    let known = |agent: &str| lookup.directory.find(agent).and_then(|agent| agent.known());
    loop {
        for _ in 0..shards {
            tokio::time::sleep(pause).await;
            lookup.tasks.sweep(Instant::now()).iter().for_each(|entry| lookup.journal.forget(entry));
            succession.count_tasks(&dispatcher.metrics);
        }
        lookup.followers.evict(known).await;
        let succession = succession.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || succession.prune_store()).await {
            warn!(%error, "failed to prune store");
        }
    }
}
