//! The recorder of finished tasks: writes each into the memory bank of its owners, under
//! `task:{taskId}:{phase}` in the namespace of its conversation.
//!
//! Only named callers own tasks. The value is the resource of the task, under the handles of the
//! owner. The task map passes tasks as they finish (see [`Tasks::finished`](crate::tasks::Tasks)).

use std::sync::Arc;

use tracing::warn;

use super::a2a::TaskDescription;
use super::memory::conversation_namespace;
use super::{AgentTypes, unix_ms};
use crate::auth::Caller;
use crate::bridge::output::{OutputState, PHASE};
use crate::calls::{ClientContext, TaskLookup};
use crate::http_edge::Route;
use crate::memory::{MemoryAddress, MemoryBank, MemoryRefusal, NewValue};
use crate::quota::QuotaOwner;
use crate::tasks::TaskEntry;

/// Finished tasks that wait until they are recorded.
const MAX_WAITING_RESULTS: usize = 4096;
/// Last part of the key of a task without a phase.
const NO_PHASE: &str = "result";

/// Writes finished tasks into the memory bank. Clones are the same recorder.
#[derive(Clone)]
pub(crate) struct TaskResultRecorder {
    pub(crate) lookup: Arc<TaskLookup>,
    pub(crate) bank: Arc<MemoryBank>,
    pub(crate) agent_types: AgentTypes,
}

impl TaskResultRecorder {
    /// Records tasks as they finish, until the task map is gone.
    pub(crate) async fn run(self) {
        let Some(mut finished) = self.lookup.tasks.finished(MAX_WAITING_RESULTS) else { return };
        while let Some(entry) = finished.recv().await {
            self.record(&entry).await;
        }
    }

    async fn record(&self, entry: &TaskEntry) {
        let (is_finished, owners) = entry.visible_state(|inside| {
            let owners: Vec<String> = inside.owners().map(str::to_owned).collect();
            (inside.work.state() == OutputState::Finished && inside.work.task_id.is_some(), owners)
        });
        let callers = owners.into_iter().map(|name| Caller::hypothetical(&name, Vec::new(), Vec::new()));
        for caller in callers.filter(|caller| is_finished && !caller.is_anonymous()) {
            if let Err(refusal) = self.record_for(caller, entry).await {
                warn!(agent = %entry.agent(), error = %refusal, "failed to record finished task in memory bank");
            }
        }
    }

    async fn record_for(&self, caller: Caller, entry: &TaskEntry) -> Result<(), MemoryRefusal> {
        let owner = QuotaOwner::Caller(caller.name().into());
        let client = ClientContext::detached(caller, Route::AllAgents, Some(owner.clone()));
        let handle = self.lookup.handle_of(entry, &client);
        let (namespace, phase) = entry.visible_state(|inside| {
            let rule = || self.lookup.settings.phase_of(inside.work.skill.as_deref()).map(str::to_owned);
            let phase = inside.work.metadata.text(PHASE).or_else(rule);
            let context = inside.work.context_id.as_deref();
            (conversation_namespace(entry.agent(), context), phase)
        });
        let key = format!("task:{handle}:{}", phase.as_deref().unwrap_or(NO_PHASE));
        let most = self.bank.limits().value_bytes;
        let view = TaskDescription { lookup: &self.lookup, agent_types: &self.agent_types, client: &client };
        let mut json = view.json(&handle, entry, most);
        if json.len() > most {
            // Artifacts are still readable by their URIs.
            json = view.json(&handle, entry, 0);
        }
        let at = MemoryAddress { owner: &owner, namespace: &namespace, key: &key };
        self.bank.store_soon(at, NewValue { json, ttl_seconds: None }, unix_ms()).await.map(drop)
    }
}
