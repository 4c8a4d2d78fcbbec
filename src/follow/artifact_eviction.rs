//! Eviction of large artifacts of finished tasks: left to the agent, and fetched again on demand.
//!
//! An artifact stays here if the agent does not have it any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::debug;

use super::task_follower::TaskFollower;
use crate::a2a::{StreamResponse, Task};
use crate::agents::{AgentOperation, DriveEvent, ResolvedAgent};
use crate::bridge::output::AgentOutput;
use crate::fault::AgentFailure;
use crate::tasks::TaskEntry;

/// Most tasks of one round: each costs a request to its agent.
const MAX_TASKS_PER_ROUND: usize = 64;
/// Longest wait for the artifacts of an agent: clients wait for them, and so do other tasks.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);

impl TaskFollower {
    /// Drops the large artifacts of finished tasks without watchers, if their agents still have
    /// them. `known` resolves an agent.
    pub async fn evict(&self, known: impl Fn(&str) -> Option<Arc<ResolvedAgent>>) {
        let now = Instant::now();
        let mut large = Vec::new();
        self.tasks.for_each(now, |entry| {
            if large.len() < MAX_TASKS_PER_ROUND && self.tasks.should_shed(entry, now) {
                large.push(entry.clone());
            }
        });
        let mut silent: Vec<Arc<str>> = Vec::new();
        for entry in large {
            let known = known(entry.agent()).filter(|_| !silent.contains(entry.agent()));
            let Some(known) = known else { continue };
            match self.fetch(&entry, &known).await {
                Ok(Some(task)) if task.status.state.is_terminal() && !task.artifacts.is_empty() => {
                    // A watcher may have come meanwhile.
                    if self.tasks.should_shed(&entry, Instant::now()) {
                        entry.update(AgentOutput::evict_artifacts);
                    }
                }
                // Content that only the gateway has stays here.
                Ok(_) | Err(AgentFailure::TaskNotFound) => entry.keep_artifacts(),
                Err(trouble) => {
                    debug!(agent = %entry.agent(), error = %trouble, "failed to check artifacts at agent");
                    silent.push(entry.agent().clone());
                }
            }
        }
    }

    /// Fetches artifacts again that were left to the agent.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`], if the agent does not return them.
    pub async fn refetch(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
    ) -> Result<(), AgentFailure> {
        if !entry.visible_state(|inside| inside.work.artifacts_shed) {
            return Ok(());
        }
        match self.fetch(entry, known).await? {
            Some(task) => entry
                .update(|work| work.restore_artifacts(task))
                .map_err(|too_much| AgentFailure::LimitExceeded(too_much.max_bytes, "its artifacts")),
            None => Ok(()),
        }
    }

    async fn fetch(
        &self,
        entry: &TaskEntry,
        known: &Arc<ResolvedAgent>,
    ) -> Result<Option<Task>, AgentFailure> {
        let fetched = tokio::time::timeout(FETCHED_WITHIN, self.fetch_all(entry, known)).await;
        fetched.unwrap_or(Err(AgentFailure::Timeout("no answer")))
    }

    async fn fetch_all(
        &self,
        entry: &TaskEntry,
        known: &Arc<ResolvedAgent>,
    ) -> Result<Option<Task>, AgentFailure> {
        let Some(id) = entry.task_id() else { return Ok(None) };
        let mut drive = self.start(known, AgentOperation::Look(id));
        let mut found = None;
        loop {
            match drive.next().await {
                DriveEvent::Said(StreamResponse::Task(task)) => found = Some(task),
                DriveEvent::Said(_) | DriveEvent::Delayed(_) => {}
                DriveEvent::Over(result) => return result.map(|()| found),
            }
        }
    }
}
