//! Background service of the gateway: cards, followed calls and sweeps, with a runtime of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService as PingoraBackgroundService;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{Inner, now};
use crate::agents::Directory;
use crate::bridge::catalogue::{BuiltinTool, Catalogue, SkillPlan, ToolPlan};
use crate::bridge::search::tool as finder;
use crate::bridge::task_tools::TaskTool;
use crate::config::{Agent, Mcp, TaskMode, ToolGranularity};
use crate::mcp::tools::TaskSupport;
use crate::sync::lock;
use crate::tasks::Timestamp;
use crate::tasks::store::{Store, StoreProblem};
use crate::telemetry::metrics::TaskCounts;

/// Interval of the sweep of idle connections and sessions.
const SWEEP: Duration = Duration::from_secs(5);
/// Interval of the attempts to open a store that another process owns.
const OWNED: Duration = Duration::from_millis(50);

/// Background work of the gateway. The host wraps it with Pingora's `background_service` and adds
/// it to its server.
pub struct BackgroundService {
    inner: Arc<Inner>,
}

impl BackgroundService {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl PingoraBackgroundService for BackgroundService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let inner = &self.inner;
        inner.client.attach(tokio::runtime::Handle::current());
        let mut work = JoinSet::new();
        for agent in inner.directory.agents() {
            let (inner, agent) = (inner.clone(), agent.clone());
            let (other, shown) = (inner.clone(), agent.clone());
            for at in 0..agent.endpoint_count() {
                let (inner, agent) = (inner.clone(), agent.clone());
                work.spawn(async move { inner.directory.run_health_checks(&agent, at).await });
            }
            work.spawn(async move { inner.directory.run_refresh(&agent).await });
            work.spawn(async move { other.directory.keep_credentials(&shown).await });
        }
        work.spawn(inner.clone().rebuild_catalogue());
        let authenticator = inner.authenticator.clone();
        work.spawn(async move { authenticator.keep_fresh().await });
        work.spawn(inner.clone().sweep());
        work.spawn(inner.clone().sweep_tasks());
        work.spawn(inner.clone().start_followers());
        work.spawn(inner.followers.clone().run());
        let other = inner.clone();
        work.spawn(async move { other.cancelled_calls.clone().run(&other.closing).await });
        if shutdown.wait_for(|ends| *ends).await.is_err() {
            info!("server has gone");
        }
        inner.closing.begin(Duration::ZERO);
        // Followed calls continue until the server ends this runtime, within its grace. Requests
        // also wait for polled tasks.
        while inner.running() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if !inner.closing.hands_over() {
            inner.ledger.close();
        }
    }
}

impl Inner {
    /// Rebuilds the catalogue whenever a card has changed.
    async fn rebuild_catalogue(self: Arc<Self>) {
        let mut looks = self.directory.changes();
        let mut versions = 0;
        loop {
            let all = self.directory.versions();
            if versions != all {
                versions = all;
                self.catalogue.store(Arc::new(all_tools(&self.directory, &self.settings.mcp)));
                self.built.store(all, Ordering::Release);
                self.changes.send_modify(|count| *count += 1);
            }
            if looks.changed().await.is_err() {
                return;
            }
        }
    }

    /// Removes expired tasks: one shard at a time, all shards once in each interval.
    async fn sweep_tasks(self: Arc<Self>) {
        let shards = u32::try_from(self.tasks.shards()).unwrap_or(u32::MAX).max(1);
        let pause = (self.settings.tasks.sweep_interval / shards).max(Duration::from_millis(1));
        let known = |agent: &str| self.directory.find(agent).and_then(|agent| agent.known());
        loop {
            for _ in 0..shards {
                tokio::time::sleep(pause).await;
                self.tasks.sweep(Instant::now()).iter().for_each(|entry| self.ledger.forget(entry));
                self.count_tasks();
            }
            self.followers.evict(known).await;
            let inner = self.clone();
            let pruned = tokio::task::spawn_blocking(move || {
                inner.ledger.prune(&inner.tasks, Timestamp::now());
                inner.ledger.sessions(|key, value| inner.sessions.is_of_use(key, value, now()));
            });
            if let Err(broken) = pruned.await {
                warn!(error = %broken, "failed to prune store");
            }
        }
    }

    /// Updates the metrics of the task map.
    pub(super) fn count_tasks(&self) {
        self.metrics.tasks.set(TaskCounts {
            tasks: self.tasks.len(),
            bytes: self.tasks.bytes(),
            polled: self.followers.polled(),
            evicted: self.tasks.take_evicted(),
            store_failures: self.ledger.failures(),
            is_store_failing: self.ledger.is_failing(),
        });
    }

    /// Waits for the store of the predecessor.
    pub(super) async fn take_over_store(self: &Arc<Self>) {
        let Some(dir) = self.settings.tasks.data_dir.clone().filter(|_| !self.ledger.is_enabled()) else {
            return;
        };
        loop {
            let dir = dir.clone();
            let opened = tokio::task::spawn_blocking(move || Store::open(&dir)).await;
            match opened {
                Ok(Ok(store)) => return self.take_back_aside(store).await,
                Ok(Err(StoreProblem::Owned { .. })) => tokio::time::sleep(OWNED).await,
                Ok(Err(problem)) => {
                    return warn!(error = %problem, "failed to open store, tasks are not persisted");
                }
                Err(broken) => return warn!(error = %broken, "failed to open store, tasks are not persisted"),
            }
        }
    }

    async fn take_back_aside(self: &Arc<Self>, store: Store) {
        let inner = self.clone();
        if let Err(broken) = tokio::task::spawn_blocking(move || inner.return_store(store)).await {
            warn!(error = %broken, "failed to load all tasks from store");
        }
    }

    /// Starts the followers of the tasks that were live when the last process ended, once their
    /// agents are known.
    async fn start_followers(self: Arc<Self>) {
        self.take_over_store().await;
        // Until then the predecessor follows the tasks and sends their changes.
        self.predecessor.ended().await;
        let mut looks = self.directory.changes();
        let mut kept = std::mem::take(&mut *lock(&self.kept));
        for entry in &kept {
            entry.end_unnamed(Timestamp::now());
            self.ledger.persist(entry);
        }
        kept.retain(|entry| !entry.visible_state(|inside| inside.is_finished()));
        while !kept.is_empty() {
            kept.retain(|entry| match self.directory.find(entry.agent()).map(|agent| agent.known()) {
                Some(Some(known)) => {
                    self.followers.ensure_followed(entry, &known);
                    false
                }
                Some(None) => true,
                None => false,
            });
            if looks.changed().await.is_err() {
                return;
            }
        }
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.client.sweep(Instant::now());
            self.sessions.sweep(now());
            self.shares.sweep();
            self.failures.sweep(Instant::now());
            self.handed.sweep(Instant::now());
            self.names.sweep(Instant::now());
        }
    }
}

/// Returns the catalogue of the built-in tools and the tools of all agents with known cards.
pub(super) fn all_tools(directory: &Directory, settings: &Mcp) -> Catalogue {
    catalogue(directory, &own_tools(settings))
}

fn catalogue(directory: &Directory, own: &[BuiltinTool]) -> Catalogue {
    let seen = directory.agents().iter().filter_map(|agent| {
        let known = agent.known()?;
        Some((tool_plan(&agent.settings), known.card.clone()))
    });
    Catalogue::build(&seen.collect::<Vec<_>>(), own)
}

/// Returns the built-in tools that are switched on.
fn own_tools(settings: &Mcp) -> Vec<BuiltinTool> {
    let of_tasks = TaskTool::ALL.into_iter().filter(|_| settings.subagent_tools).filter_map(|tool| {
        BuiltinTool::new(tool.name(), tool.is_with_one_agent(), |version| tool.json(version))
    });
    let finder = settings.find_agent.then(|| BuiltinTool::new(finder::NAME, false, finder::json)).flatten();
    of_tasks.chain(finder).collect()
}

fn tool_plan(agent: &Agent) -> ToolPlan {
    let skills = agent.skills.iter().map(|(id, skill)| {
        let plan = SkillPlan {
            tool_name: skill.tool_name.clone(),
            description: skill.description.clone(),
            input_schema: skill.input_schema.clone(),
            task: skill.task.map(task_support),
            hidden: skill.hidden,
        };
        (id.clone(), plan)
    });
    ToolPlan {
        agent: agent.name.clone(),
        per_agent: agent.tools == ToolGranularity::Agent,
        tool_name: agent.tool_name.clone(),
        description: agent.description.clone(),
        task: task_support(agent.task),
        skills: skills.collect(),
    }
}

fn task_support(task: TaskMode) -> TaskSupport {
    match task {
        TaskMode::Optional => TaskSupport::Optional,
        TaskMode::Required => TaskSupport::Required,
        TaskMode::Never => TaskSupport::Never,
    }
}

/// Returns the skills of an agent and their tools on `/mcp`, for the `agents` command.
pub fn tools_of(directory: &Directory, agent: &str) -> Vec<(String, String)> {
    let catalogue = catalogue(directory, &[]);
    let is_usable = directory.find(agent).is_none_or(|agent| agent.unsupported_required().is_none());
    let own = catalogue.all().of_agents().filter(|tool| is_usable && *tool.agent == *agent);
    own.map(|tool| (tool.skill.as_deref().unwrap_or("-").to_owned(), tool.name.clone())).collect()
}
