//! Background service of the gateway: cards, followed calls and sweeps, with a runtime of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService as PingoraBackgroundService;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Gateway;
use crate::config::Problem;
use crate::discovery::unmatched_settings;
use crate::memory::MemoryBank;
use crate::resources::{MAX_WAITING_RESULTS, TaskResultRecorder};
use crate::shared_state::SharedState;
use crate::tasks::Tasks;
use crate::telemetry::recent::SAMPLE_SECONDS;

/// Interval of the sweep of idle connections and sessions, and of the samples of metrics.
const SWEEP_INTERVAL: Duration = Duration::from_secs(SAMPLE_SECONDS);

/// Time after a change of the tools in which further cards may arrive.
const CARD_PAUSE: Duration = Duration::from_secs(1);

/// Background work of the gateway. The host wraps it with Pingora's `background_service` and adds
/// it to its server.
pub struct BackgroundService {
    gateway: Gateway,
}

impl BackgroundService {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway }
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
        let gateway = &self.gateway;
        let (lasting, succession) = (&gateway.state.lasting, gateway.succession());
        lasting.http_client.attach(Handle::current());
        gateway.start_loops().await;
        let mut work = JoinSet::new();
        work.spawn(sweep(gateway.clone()));
        work.spawn(sweep_tasks(gateway.clone()));
        work.spawn(warn_of_unmatched_settings(gateway.clone()));
        if let Some(bank) = &succession.memory {
            work.spawn(record_results(gateway.clone(), bank.clone()));
        }
        if let Some(exporter) = lasting.exporter.clone() {
            // Not among `work`: it exports the last spans after the end of this service.
            drop(tokio::spawn(async move { exporter.run().await }));
        }
        work.spawn(share_state(lasting.shared.clone()));
        work.spawn(succession.clone().start_followers());
        work.spawn(succession.followers.clone().run());
        let (cancelled_calls, drain) = (lasting.cancelled_calls.clone(), succession.drain.clone());
        work.spawn(async move { cancelled_calls.run(&drain).await });
        if shutdown.wait_for(|ends| *ends).await.is_err() {
            info!("server has gone");
        }
        succession.drain.begin(Duration::ZERO);
        release_leases(lasting.shared.as_deref()).await;
        // Followed calls continue until the server ends this runtime, within its grace. Requests
        // also wait for polled tasks.
        while gateway.running() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        gateway.end_loops().await;
        gateway.flush_shared().await;
        if !succession.drain.hands_over() {
            succession.close_store();
        }
    }
}

/// Shares state with other replicas, if that is configured. Runs until it is dropped.
async fn share_state(shared: Option<Arc<SharedState>>) {
    if let Some(shared) = shared {
        shared.run().await;
    }
}

/// Lets other replicas with watchers follow the tasks at once.
async fn release_leases(shared: Option<&SharedState>) {
    if let Some(shared) = shared {
        shared.release_leases().await;
    }
}

/// Removes idle connections and the state of callers that is no longer needed.
async fn sweep(gateway: Gateway) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let (now, dispatcher) = (Instant::now(), gateway.current());
        gateway.state.lasting.http_client.sweep(now);
        dispatcher.mcp_server.sessions.sweep();
        dispatcher.discovery.limits.sweep();
        dispatcher.mcp_server.resources.sweep();
        dispatcher.authenticator.sweep(now);
        dispatcher.a2a_server.sweep(now);
        if let Some(history) = &gateway.state.lasting.history {
            history.record(&dispatcher.metrics);
        }
    }
}

/// Removes expired tasks: one shard at a time, all shards once in each interval.
async fn sweep_tasks(gateway: Gateway) {
    let succession = gateway.succession();
    let (tasks, journal) = (&succession.tasks, &succession.journal);
    let shards = u32::try_from(tasks.shards()).unwrap_or(u32::MAX).max(1);
    loop {
        for _ in 0..shards {
            let interval = gateway.current().configuration.tasks.sweep_interval;
            tokio::time::sleep((interval / shards).max(Duration::from_millis(1))).await;
            tasks.sweep(Instant::now()).iter().for_each(|entry| journal.forget(entry));
            compress_tasks(tasks.clone()).await;
            succession.count_tasks(&gateway.state.lasting.metrics);
        }
        let directory = succession.directory.load_full();
        succession.followers.evict(|agent| directory.find(agent).and_then(|agent| agent.known())).await;
        let succession = succession.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || succession.prune_store()).await {
            warn!(%error, "failed to prune store");
        }
    }
}

/// Compresses finished tasks that were not used for a while, on a thread for that: it takes the time of the
/// processor.
async fn compress_tasks(tasks: Tasks) {
    let compressed = tokio::task::spawn_blocking(move || tasks.compress_idle(Instant::now())).await;
    if let Err(error) = compressed.map_err(std::io::Error::other).flatten() {
        warn!(%error, "failed to compress tasks");
    }
}

/// Warns of settings that fit nothing on the cards that are known, once in each generation. Cards that
/// arrive together are judged together.
async fn warn_of_unmatched_settings(gateway: Gateway) {
    let mut changes = gateway.state.lasting.catalogue_changes.subscribe();
    let (mut generation, mut warned) = (0, HashSet::new());
    loop {
        tokio::time::sleep(CARD_PAUSE).await;
        changes.mark_unchanged();
        let dispatcher = gateway.current();
        if std::mem::replace(&mut generation, dispatcher.generation) != dispatcher.generation {
            warned.clear();
        }
        let directory = &dispatcher.discovery.directory;
        for Problem { at, problem, .. } in unmatched_settings(&dispatcher.configuration, directory) {
            if warned.insert((at.clone(), problem.clone())) {
                warn!(at, reason = problem, "setting fits nothing");
            }
        }
        drop(dispatcher);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Records tasks in the memory bank as they finish.
async fn record_results(gateway: Gateway, bank: Arc<MemoryBank>) {
    let Some(mut finished) = gateway.succession().tasks.finished(MAX_WAITING_RESULTS) else { return };
    while let Some(entry) = finished.recv().await {
        // An entry that was evicted meanwhile is left out.
        let Some(entry) = entry.upgrade() else { continue };
        let dispatcher = gateway.current();
        let (lookup, settings) = (&dispatcher.mcp_server.engine.lookup, &dispatcher.configuration.resources);
        TaskResultRecorder { lookup, bank: &bank, settings }.record(&entry).await;
    }
}
