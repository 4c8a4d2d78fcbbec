//! Converts the output to a task for persistence, and back; evicts artifacts and restores them.
//!
//! See also `tasks`, which decides where it is kept and when artifacts are evicted.

use super::{AgentOutput, OutputState};
use crate::a2a::{ArtifactLimitExceeded, Task, TaskHistory, TaskState, TaskStatus};

impl AgentOutput {
    /// Reads a task of the agent, or a persisted one. All artifacts together may have `most` bytes.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if they have more.
    pub fn from_task(task: Task, most: usize) -> Result<Self, ArtifactLimitExceeded> {
        let mut work = Self::new(most);
        work.task(task)?;
        Ok(work)
    }

    /// Returns the output as a task for persistence; `None` while the agent has not named it.
    pub fn to_task(&self) -> Option<Task> {
        let status = TaskStatus {
            state: self.state.unwrap_or(TaskState::Submitted),
            message: self.status.clone(),
            timestamp: self.timestamp.clone(),
        };
        Some(Task {
            id: self.task_id.clone()?,
            context_id: self.context_id.clone(),
            status,
            artifacts: self.artifacts.iter().cloned().collect(),
            history: self.history.clone(),
            metadata: self.metadata.written(),
        })
    }

    /// Evicts the artifacts of a finished task: the agent still has them.
    pub fn evict_artifacts(&mut self) {
        let has_some = self.artifacts.iter().next().is_some();
        if self.state() == OutputState::Finished && has_some {
            self.artifacts_shed = self.artifacts.replace_all(Vec::new()).is_ok();
        }
    }

    /// Restores evicted artifacts from the agent's task. The state of the task does not change.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if the artifacts exceed their limit; then nothing changed.
    pub fn restore_artifacts(&mut self, task: Task) -> Result<(), ArtifactLimitExceeded> {
        if self.task_id.as_ref() != Some(&task.id) {
            return Ok(());
        }
        if self.artifacts_shed {
            self.artifacts.replace_all(task.artifacts)?;
            self.artifacts_shed = false;
        }
        self.remember(task.history);
        Ok(())
    }

    /// Keeps the newest history, unless that would lose the agent's last message. It is parsed only
    /// if there was one before.
    pub(super) fn remember(&mut self, history: TaskHistory) {
        let says = |history: &TaskHistory| history.last_agent_message().is_some();
        if self.history.bytes() == 0 || says(&history) || !says(&self.history) {
            // The new history contains the messages that came as status messages before.
            if says(&history) {
                self.closing.clear();
            }
            self.history = history;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, read_task};

    fn task(state: &str, history: &str) -> Task {
        let json = format!(
            r#"{{"id":"t","contextId":"c","status":{{"state":"{state}","timestamp":"1","message":{{"parts":[{{"text":"said"}}]}}}},
            "artifacts":[{{"artifactId":"a","parts":[{{"text":"made"}}]}}],"history":{history}}}"#
        );
        read_task(json.as_bytes()).unwrap()
    }

    #[test]
    fn work_that_is_kept_as_a_task_comes_back() {
        assert!(AgentOutput::new(10).to_task().is_none());
        for state in ["submitted", "working", "input-required", "completed", "failed", "odd"] {
            let work = AgentOutput::from_task(task(state, r#"[{"role":"user"}]"#), 1000).unwrap();
            let again = AgentOutput::from_task(work.to_task().unwrap(), 1000).unwrap();
            assert_eq!(format!("{again:?}"), format!("{work:?}"));
            assert_eq!(again.question_turn(), work.question_turn());
        }
        let mut work = AgentOutput::from_task(task("working", "[]"), 1000).unwrap();
        let update = r#"{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"taskId":"t","metadata":{"urn:a":1},"status":{"state":"completed"}}}}"#;
        work.apply(Dialect::V1.event(update.as_bytes()).unwrap()).unwrap();
        let again = AgentOutput::from_task(work.to_task().unwrap(), 1000).unwrap();
        assert_eq!(again.metadata.members().map(|(name, _)| name).collect::<Vec<_>>(), ["urn:a"]);
        assert!(AgentOutput::from_task(task("completed", "[]"), 20).is_err());
    }

    #[test]
    fn what_was_dropped_is_taken_back_and_nothing_else() {
        let mut work = AgentOutput::from_task(task("completed", "[]"), 1000).unwrap();
        let before = work.bytes();
        work.evict_artifacts();
        assert!(work.artifacts_shed && work.artifacts().count() == 0 && work.bytes() < before);
        work.restore_artifacts(Task { id: "another".into(), ..task("completed", "[]") }).unwrap();
        assert!(work.artifacts_shed);
        work.restore_artifacts(task("failed", "[]")).unwrap();
        assert!(!work.artifacts_shed && work.artifacts().count() == 1 && work.bytes() == before);
        assert_eq!(work.state, Some(TaskState::Completed));
    }

    #[test]
    fn work_that_goes_on_drops_nothing() {
        let mut work = AgentOutput::from_task(task("working", "[]"), 1000).unwrap();
        work.evict_artifacts();
        assert!(!work.artifacts_shed && work.artifacts().count() == 1);
    }
}
