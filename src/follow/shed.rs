//! Large artifacts of finished tasks: left to the agent, and fetched again for whoever asks.
//!
//! Nothing is dropped that the agent does not have any more. Not here: when there is no room at all (see `tasks`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::debug;

use super::followers::Followers;
use crate::a2a::{Event, Task};
use crate::agents::{Errand, Known, Turn};
use crate::bridge::work::Work;
use crate::fault::Trouble;
use crate::tasks::Entry;

/// Most tasks of one round: each costs a question to its agent.
const AT_ONCE: usize = 64;
/// Longest wait for an agent that is asked for artifacts: clients wait for them, and so do other tasks.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);

impl Followers {
    /// Drops the artifacts of finished tasks that nobody watches and that hold much, where their agents still have them.
    /// `known` says how an agent is called.
    pub async fn shed(&self, known: impl Fn(&str) -> Option<Arc<Known>>) {
        let now = Instant::now();
        let mut large = Vec::new();
        self.tasks.for_each(now, |entry| {
            if large.len() < AT_ONCE && self.tasks.should_shed(entry, now) {
                large.push(entry.clone());
            }
        });
        let mut silent: Vec<Arc<str>> = Vec::new();
        for entry in large {
            let known = known(entry.agent()).filter(|_| !silent.contains(entry.agent()));
            let Some(known) = known else { continue };
            match self.fetch(&entry, &known).await {
                Ok(Some(task)) if task.status.state.is_terminal() && !task.artifacts.is_empty() => {
                    // Somebody may have begun to read meanwhile.
                    if self.tasks.should_shed(&entry, Instant::now()) {
                        entry.rework(Work::shed_artifacts);
                    }
                }
                // What only the gateway has stays here.
                Ok(_) | Err(Trouble::TaskLost) => entry.keep_artifacts(),
                Err(trouble) => {
                    debug!(agent = %entry.agent(), %trouble, "agent cannot be asked for artifacts");
                    silent.push(entry.agent().clone());
                }
            }
        }
    }

    /// Fetches artifacts again that were left to the agent.
    ///
    /// # Errors
    ///
    /// [`Trouble`], if the agent does not give them.
    pub async fn refill(&self, entry: &Arc<Entry>, known: &Arc<Known>) -> Result<(), Trouble> {
        if !entry.look(|inside| inside.work.artifacts_shed) {
            return Ok(());
        }
        match self.fetch(entry, known).await? {
            Some(task) => entry
                .rework(|work| work.refill(task))
                .map_err(|too_much| Trouble::TooMuch(too_much.max_bytes, "its artifacts")),
            None => Ok(()),
        }
    }

    async fn fetch(&self, entry: &Entry, known: &Arc<Known>) -> Result<Option<Task>, Trouble> {
        let fetched = tokio::time::timeout(FETCHED_WITHIN, self.fetch_all(entry, known)).await;
        fetched.unwrap_or(Err(Trouble::Slow("no answer")))
    }

    async fn fetch_all(&self, entry: &Entry, known: &Arc<Known>) -> Result<Option<Task>, Trouble> {
        let Some(id) = entry.task_id() else { return Ok(None) };
        let mut drive = self.start(known, Errand::Look(id));
        let mut found = None;
        loop {
            match drive.next().await {
                Turn::Said(Event::Task(task)) => found = Some(task),
                Turn::Said(_) | Turn::Delayed(_) => {}
                Turn::Over(result) => return result.map(|()| found),
            }
        }
    }
}
