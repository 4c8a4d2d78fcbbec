//! Persistence of tasks, if it is on: every task that a client holds a handle of, and the questions
//! that were answered.
//!
//! Without a data directory nothing is kept and nothing costs anything. On disk a task is A2A 1.0
//! JSON, as its agent would send it; artifacts above a limit stay at the agent. See also `store`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::{debug, info, warn};

use super::answer_log::Stamp;
use super::entry::TaskEntry;
use super::entry_state::{ClientOverride, EntryState};
use super::store::{Store, StoreProblem, StoreTable};
use super::{EntryKey, EventPosition, Tasks, Timestamp};
use crate::a2a::{Task, TaskStatus, read_task, task_json};
use crate::bridge::output::{AgentOutput, VisitedPhase};
use crate::bridge::resource_view::ClientSoftware;
use crate::fault::AgentFailure;

/// Rows that replicas share. Its methods but `flush_rows` never wait.
#[async_trait]
pub(crate) trait SharedRows: Send + Sync {
    /// Enqueues the row of a task.
    fn put_task(&self, row_key: Vec<u8>, row: SharedTaskRow);

    /// Enqueues that the row of a call is under another key, as its agent has named the task.
    fn rename_task(&self, row_key: Vec<u8>, named: Vec<u8>);

    /// Enqueues a row of a table, or its removal, which all replicas learn; it expires after `ttl`.
    fn put_table_row(&self, table: StoreTable, key: &[u8], value: Option<Vec<u8>>, ttl: Duration);

    /// Returns the part of a task that its row has.
    fn content(&self) -> RowContent;

    /// Waits until the rows that were enqueued before are at the engine. Returns false if they are
    /// not, as the engine does not answer.
    async fn flush_rows(&self) -> bool;
}

/// Part of a task that its row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowContent {
    /// Everything, but artifacts of more than so many bytes.
    Output(usize),
    /// Ids, state, owners and answered questions: the agent has the rest.
    Ids,
}

/// The row of a task for other replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedTaskRow {
    /// Position of the last event that is part of the row.
    pub(crate) at: EventPosition,
    /// Callers that hold a handle.
    pub(crate) owners: Vec<Box<str>>,
    /// Time of the last change, in milliseconds since 1970.
    pub(crate) changed: u64,
    /// The row.
    pub(crate) value: Vec<u8>,
}

/// Time to live of rows of sessions and of the memory bank at the engine. Those of sessions hold
/// their own expiry; a value of the memory bank without one is written again by a replica that has it
/// when that is changed.
const SHARED_ROW_TTL: Duration = Duration::from_secs(31 * 24 * 3600);

/// Persists tasks, and passes them to other replicas.
pub struct TaskJournal {
    /// Empty if nothing is shared.
    shared: OnceLock<Arc<dyn SharedRows>>,
    /// Empty if nothing is kept, and while another process still has the file.
    store: ArcSwapOption<Store>,
    /// Artifacts of more bytes stay at the agent.
    most: usize,
}

impl TaskJournal {
    /// Returns a journal without a store; artifacts of more than `most` bytes will not be kept.
    pub fn new(most: usize) -> Self {
        Self { shared: OnceLock::new(), store: ArcSwapOption::empty(), most }
    }

    /// Passes rows to other replicas from now on.
    pub(crate) fn share(&self, rows: Arc<dyn SharedRows>) {
        if self.shared.set(rows).is_err() {
            debug!("rows are shared already");
        }
    }

    /// Replaces the store, and closes the one before. Returns true if everything that was handed to
    /// that one is durable, `None` if there was none. Waits for its disk.
    pub fn attach_store(&self, store: Option<Arc<Store>>) -> Option<bool> {
        let before = self.store.swap(store)?;
        let closed = before.close();
        if let Err(problem) = &closed {
            warn!(error = %problem, "failed to persist all tasks");
        }
        Some(closed.is_ok())
    }

    /// Returns true if tasks are persisted.
    pub fn is_enabled(&self) -> bool {
        self.store.load().is_some()
    }

    /// Returns true if rows are persisted, or shared with other replicas.
    pub(crate) fn keeps_rows(&self) -> bool {
        self.is_enabled() || self.shared.get().is_some()
    }

    /// Returns true if the last transaction failed.
    pub fn is_failing(&self) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.is_failing())
    }

    /// Returns the number of transactions that failed.
    pub fn failures(&self) -> u64 {
        self.store.load().as_ref().map_or(0, |store| store.failures())
    }

    /// Waits until everything that was handed over is durable; returns true if it is, or if nothing
    /// is kept at all.
    pub async fn is_safe(&self) -> bool {
        match self.store.load_full() {
            Some(store) => store.flush().await.is_ok(),
            None => true,
        }
    }

    /// Persists the tasks of which clients got handles while there was no store, or another one.
    /// Waits while the write queue is full.
    pub async fn catch_up_slowly(&self, tasks: &Tasks, now: Timestamp) {
        let mut entries = Vec::new();
        tasks.for_each(now.instant, |entry| entries.push(entry.clone()));
        for entry in entries.iter().filter(|entry| entry.is_acknowledged()) {
            if self.write(entry) == Err(StoreProblem::Full) && self.is_safe().await {
                self.persist(entry);
            }
        }
    }

    /// Persists the tasks of which clients got handles while there was no store.
    pub fn flush(&self, tasks: &Tasks, now: Timestamp) {
        tasks.for_each(now.instant, |entry| self.persist(entry));
    }

    /// Persists a task before a client gets a handle of it or is notified of it. Returns true if
    /// the task is on disk, or if tasks are not kept at all.
    pub async fn acknowledge(&self, entry: &TaskEntry) -> bool {
        entry.acknowledge();
        let put = self.write(entry);
        if let Some(shared) = self.shared.get() {
            // The client is served all the same: another replica then asks the agent.
            let is_shared = shared.flush_rows().await;
            debug!(is_shared, "task passed to other replicas");
        }
        let Some(store) = self.store.load_full() else { return true };
        let kept = match put {
            Err(StoreProblem::Closed) => put,
            _ => store.flush().await,
        };
        if let Err(problem) = &kept {
            // The client is served all the same: the agent has the task. The store warns of its
            // disk.
            debug!(error = %problem, agent = %entry.agent(), "failed to flush task");
        }
        kept.is_ok()
    }

    /// Puts the changes of a persisted task into the write queue.
    pub fn persist(&self, entry: &TaskEntry) {
        if entry.is_acknowledged() {
            // `write` logs the failure.
            self.write(entry).unwrap_or_default();
        }
    }

    /// Passes the present state of a task to other replicas. Never waits.
    fn pass_on(&self, entry: &TaskEntry) {
        let Some(shared) = self.shared.get() else { return };
        let Some((key, row)) = self.shared_row(entry) else { return };
        if entry.is_named() && entry.peek(|inside| inside.has_local_handle) {
            shared.rename_task(row_key(entry.agent(), None, entry.local()), key.clone());
        }
        shared.put_task(key, row);
    }

    /// Returns the row of a task for other replicas, with its key.
    pub(crate) fn shared_row(&self, entry: &TaskEntry) -> Option<(Vec<u8>, SharedTaskRow)> {
        let content = match self.shared.get()?.content() {
            RowContent::Output(most) => RowContent::Output(most.min(self.most)),
            RowContent::Ids => RowContent::Ids,
        };
        let (key, value) = entry.to_record(content)?;
        let (at, owners, changed) = entry.peek(|inside| {
            (inside.position, inside.owners().map(Into::into).collect(), inside.changed.unix_ms)
        });
        Some((key, SharedTaskRow { at, owners, changed, value }))
    }

    fn write(&self, entry: &TaskEntry) -> Result<(), StoreProblem> {
        self.pass_on(entry);
        self.write_here(entry)
    }

    /// Puts the row of a task into the write queue of this process.
    fn write_here(&self, entry: &TaskEntry) -> Result<(), StoreProblem> {
        let done = self.hand(|store| {
            let Some((key, value)) = entry.to_record(RowContent::Output(self.most)) else { return Ok(()) };
            store.put(StoreTable::Tasks, key, value)?;
            if entry.is_named() {
                store.remove(StoreTable::Tasks, row_key(entry.agent(), None, entry.local()))?;
            }
            Ok(())
        });
        match &done {
            // The store warns of its disk, not of each task.
            Err(problem) if self.is_failing() => {
                debug!(error = %problem, agent = %entry.agent(), "failed to persist task");
            }
            Err(problem) => warn!(error = %problem, agent = %entry.agent(), "failed to persist task"),
            Ok(()) => {}
        }
        done
    }

    /// Applies a change to the store, if there is one; once more, if another store took its place
    /// meanwhile.
    fn hand(&self, change: impl Fn(&Store) -> Result<(), StoreProblem>) -> Result<(), StoreProblem> {
        let Some(store) = self.store.load_full() else { return Ok(()) };
        match (change(&store), self.store.load_full()) {
            (Err(StoreProblem::Closed), Some(now)) if !Arc::ptr_eq(&store, &now) => change(&now),
            (done, _) => done,
        }
    }

    /// Removes a task that no client can ask for any more.
    pub fn forget(&self, entry: &TaskEntry) {
        if !self.is_enabled() || !entry.is_acknowledged() {
            return;
        }
        let key = entry.row_key();
        if let Err(problem) = self.hand(|store| store.remove(StoreTable::Tasks, key.clone())) {
            warn!(error = %problem, agent = %entry.agent(), "failed to remove task from store");
        }
    }

    /// Removes rows that the map does not know any more: evictions for room are not reported one by
    /// one. Reads the whole table: not for an async thread.
    pub fn prune(&self, tasks: &Tasks, now: Timestamp) {
        let Some(store) = self.store.load_full() else { return };
        let mut gone = Vec::new();
        let read = store.load(StoreTable::Tasks, |key, _| {
            let is_known = key_of(key).is_some_and(|key| tasks.get_untouched(&key, now.instant).is_some());
            if !is_known {
                gone.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(error = %problem, "failed to read persisted tasks");
        }
        for key in gone {
            if let Err(problem) = store.remove(StoreTable::Tasks, key) {
                return warn!(error = %problem, "failed to remove tasks from store");
            }
        }
    }

    /// Adds a row of another process that works with the same tasks. Returns the task. Artifacts
    /// may have `limit` bytes.
    pub fn learn(&self, tasks: &Tasks, value: &[u8], limit: usize, now: Timestamp) -> Option<Arc<TaskEntry>> {
        let policy = RestorePolicy { artifact_bytes: limit, may_be_named: true };
        let (keys, other) = TaskEntry::from_record(value, policy, now)?;
        let known = keys.iter().find_map(|key| tasks.find(key, now.instant));
        let entry = match known {
            Some(entry) => {
                entry.learn(other, now);
                entry
            }
            None => tasks.admit(keys.first()?.clone(), || other, now.instant).ok()?.0,
        };
        keys.into_iter().for_each(|key: EntryKey| drop(tasks.add_alias(key, &entry, now.instant)));
        entry.acknowledge();
        // Not for other replicas, which would learn from each other without an end. `write_here` logs the
        // failure.
        self.write_here(&entry).unwrap_or_default();
        Some(entry)
    }

    /// Loads all persisted tasks into the map; returns those that are there now. Calls that no
    /// agent has named are over, unless another process still waits for the name.
    pub fn load(&self, tasks: &Tasks, policy: RestorePolicy, now: Timestamp) -> Vec<Arc<TaskEntry>> {
        let Some(store) = self.store.load_full() else { return Vec::new() };
        let (mut taken, mut unreadable, mut full) = (Vec::new(), 0_usize, 0_usize);
        let read = store.load(StoreTable::Tasks, |_, value| {
            let Some((keys, entry)) = TaskEntry::from_record(value, policy, now) else {
                unreadable += 1;
                return;
            };
            let mut keys = keys.into_iter();
            let Some(first) = keys.next() else { return };
            match tasks.admit(first, || entry, now.instant) {
                Ok((entry, _)) => {
                    keys.for_each(|key| drop(tasks.add_alias(key, &entry, now.instant)));
                    entry.acknowledge();
                    taken.push(entry);
                }
                Err(_) => full += 1,
            }
        });
        if let Err(problem) = read {
            warn!(error = %problem, "failed to read persisted tasks");
        }
        info!(tasks = taken.len(), unreadable, full, "restored persisted tasks");
        taken
    }

    /// Persists the state of a session, and waits until it is durable; without a value its row is
    /// removed.
    pub async fn keep_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.note_session(key, value);
        if !self.is_safe().await {
            debug!("failed to flush session");
        }
    }

    /// Like `keep_session`, without waiting.
    pub fn note_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        if let Some(shared) = self.shared.get() {
            shared.put_table_row(StoreTable::Sessions, &key, value.clone(), SHARED_ROW_TTL);
        }
        self.note_learned_session(key, value);
    }

    /// Like `note_session`, for a row that another process has written.
    pub(crate) fn note_learned_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let done = self.hand(|store| match &value {
            Some(value) => store.put(StoreTable::Sessions, key.clone(), value.clone()),
            None => store.remove(StoreTable::Sessions, key.clone()),
        });
        match done {
            Err(problem) if self.is_failing() => debug!(error = %problem, "failed to persist session"),
            Err(problem) => warn!(error = %problem, "failed to persist session"),
            Ok(()) => {}
        }
    }

    /// Calls `is_of_use` with the row of each session, and removes those for which it returns
    /// false. Reads the whole table: not for an async thread.
    pub fn sessions(&self, mut is_of_use: impl FnMut(&[u8], &[u8]) -> bool) {
        let Some(store) = self.store.load_full() else { return };
        let mut over = Vec::new();
        let read = store.load(StoreTable::Sessions, |key, value| {
            if !is_of_use(key, value) {
                over.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(error = %problem, "failed to read persisted sessions");
        }
        // Other replicas may need them still.
        over.into_iter().for_each(|key| self.note_learned_session(key, None));
    }

    /// Puts a change of a row of the memory bank into the write queue; without a value the row is
    /// removed. Without a store nothing happens.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if there is no room in the queue; then nothing is enqueued.
    pub fn note_memory(&self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreProblem> {
        self.note_memory_here(key.clone(), value.clone())?;
        if let Some(shared) = self.shared.get() {
            shared.put_table_row(StoreTable::Memory, &key, value, SHARED_ROW_TTL);
        }
        Ok(())
    }

    /// Like `note_memory`, for this process alone.
    ///
    /// # Errors
    ///
    /// As `note_memory`.
    pub(crate) fn note_memory_here(&self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreProblem> {
        let done = self.hand(|store| match &value {
            Some(value) => store.put(StoreTable::Memory, key.clone(), value.clone()),
            None => store.remove(StoreTable::Memory, key.clone()),
        });
        if let Err(problem) = &done {
            debug!(error = %problem, "failed to persist memory");
        }
        done
    }

    /// Calls `row` with each row of the memory bank, in the order of keys. Reads the whole table:
    /// not for an async thread.
    pub fn memory_rows(&self, mut row: impl FnMut(&[u8], &[u8])) {
        let Some(store) = self.store.load_full() else { return };
        if let Err(problem) = store.load(StoreTable::Memory, &mut row) {
            warn!(error = %problem, "failed to read persisted memory");
        }
    }

    /// Writes the pending changes, and closes the file.
    pub fn close(&self) {
        if let Some(Err(problem)) = self.store.load_full().map(|store| store.close()) {
            warn!(error = %problem, "failed to persist all tasks");
        }
    }
}

/// Result of a call that ended with its process, before the agent had named a task.
const NOT_NAMED: AgentFailure = AgentFailure::Internal("it was restarted before the agent named the task");

/// The treatment of rows that are restored.
#[derive(Debug, Clone, Copy)]
pub struct RestorePolicy {
    /// Bytes that the artifacts of one task may have.
    pub artifact_bytes: usize,
    /// True if the process that made a call may still learn the name of its task.
    pub may_be_named: bool,
}

/// Row of an entry.
#[derive(Serialize, Deserialize)]
pub(super) struct TaskRecord {
    agent: String,
    local: [u8; 16],
    /// A2A 1.0; absent while the agent has not named the task.
    task: Option<Box<RawValue>>,
    /// The skill of the tool that began the task.
    #[serde(default)]
    skill: Option<String>,
    owners: Vec<String>,
    /// Software of the client that began the task.
    #[serde(default)]
    client: Option<ClientSoftware>,
    created: u64,
    changed: u64,
    cancelled: bool,
    /// Names in its metadata with values that had no room.
    #[serde(default)]
    omitted: Vec<String>,
    /// Phases of a workflow that it went through, each with the agent's time.
    #[serde(default)]
    phases: Vec<(String, Option<String>)>,
    /// Number of artifacts that it had when each of these phases began.
    #[serde(default)]
    phase_artifacts: Vec<usize>,
    /// True if the artifacts were too large to be kept.
    shed: bool,
    /// True if the agent has lost the task.
    lost: bool,
    /// Answered questions: fingerprint, digest of the answer, and true if the answer was certainly
    /// sent.
    turns: Vec<([u8; 16], [u8; 16], bool)>,
    /// Questions after which the agent has shown something else, with the stamp of a lagging
    /// `GetTask` response.
    #[serde(default)]
    left: Vec<([u8; 16], Option<Stamp>)>,
    /// Position of the last event that is part of the task, among those that replicas share.
    #[serde(default)]
    position: EventPosition,
}

impl TaskEntry {
    /// Returns key and value of the row.
    pub(super) fn to_record(&self, content: RowContent) -> Option<(Vec<u8>, Vec<u8>)> {
        let (record, task_id) =
            self.peek(|inside| (self.record(inside, content), inside.work.task_id.clone()));
        let key = row_key(self.agent(), task_id.as_deref(), self.local());
        Some((key, serde_json::to_vec(&record).ok()?))
    }

    /// Ends an unnamed call: its process has ended, so no agent response can name the task any
    /// more.
    pub fn end_unnamed(&self, now: Timestamp) {
        if !self.visible_state(|inside| {
            inside.work.task_id.is_some() || inside.is_followed || inside.is_finished()
        }) {
            self.end(Err(NOT_NAMED), now);
        }
    }

    /// Returns the row of a state of this entry.
    pub(super) fn record(&self, inside: &EntryState, content: RowContent) -> TaskRecord {
        let mut shed = inside.work.artifacts_shed;
        let task = inside.work.to_task().map(|mut task| {
            match content {
                RowContent::Output(most) if inside.work.artifact_bytes() > most => {
                    shed = true;
                    task.artifacts.clear();
                }
                RowContent::Output(_) => {}
                RowContent::Ids => {
                    shed = task.status.state.is_terminal();
                    let status = TaskStatus { message: None, ..task.status };
                    let (artifacts, history, metadata) = Default::default();
                    task = Task { status, artifacts, history, metadata, ..task };
                }
            }
            task_json(&task)
        });
        let has_output = content != RowContent::Ids;
        let task = task.and_then(|json| RawValue::from_string(String::from_utf8(json).ok()?).ok());
        let phases = if has_output { &*inside.work.phases } else { &[] };
        TaskRecord {
            agent: self.agent().to_string(),
            local: self.local(),
            task,
            skill: inside.work.skill.as_deref().map(str::to_owned),
            owners: inside.owners().map(str::to_owned).collect(),
            client: inside.client.as_deref().filter(|_| has_output).cloned(),
            created: inside.created_ms,
            changed: inside.changed.unix_ms,
            cancelled: inside.verdict == Some(ClientOverride::Cancelled),
            omitted: inside.work.metadata.omitted().filter(|_| has_output).map(str::to_owned).collect(),
            phases: phases.iter().map(|phase| (phase.name.clone(), phase.timestamp.clone())).collect(),
            phase_artifacts: phases.iter().map(|phase| phase.artifacts_before).collect(),
            shed,
            lost: inside.over == Some(Err(AgentFailure::TaskNotFound)),
            turns: inside.turns.all().collect(),
            left: inside.turns.left().collect(),
            position: inside.position,
        }
    }

    /// Returns the keys and the entry of a row; `None` if it is unreadable. A call that the agent has
    /// not named is over, unless the process that made it may still learn the name.
    pub(super) fn from_record(
        json: &[u8],
        policy: RestorePolicy,
        now: Timestamp,
    ) -> Option<(Vec<EntryKey>, Self)> {
        serde_json::from_slice::<TaskRecord>(json).ok()?.into_entry(policy, now)
    }
}

impl TaskRecord {
    /// Returns the keys and the entry of the row, as [`TaskEntry::from_record`].
    pub(super) fn into_entry(
        self,
        policy: RestorePolicy,
        now: Timestamp,
    ) -> Option<(Vec<EntryKey>, TaskEntry)> {
        let RestorePolicy { artifact_bytes, may_be_named } = policy;
        let record = self;
        let work = match &record.task {
            None => AgentOutput::new(artifact_bytes),
            Some(task) => {
                AgentOutput::from_task(read_task(task.get().as_bytes()).ok()?, artifact_bytes).ok()?
            }
        };
        let agent: Arc<str> = record.agent.into();
        let named = work.task_id.as_deref().map(|id| EntryKey::Task { agent: agent.clone(), id: id.into() });
        let keys = named.into_iter().chain([EntryKey::Local(record.local)]).collect();
        let is_unnamed = work.task_id.is_none();
        let entry = TaskEntry::new(agent, record.local, work, instant_from_age(record.changed, now));
        entry.restore(|inside| {
            inside.created_ms = record.created.min(now.unix_ms);
            inside.work.artifacts_shed = record.shed;
            let counts = record.phase_artifacts.into_iter().chain(std::iter::repeat(0));
            let phases =
                record.phases.into_iter().zip(counts).map(|((name, timestamp), artifacts_before)| {
                    VisitedPhase { name, timestamp, artifacts_before }
                });
            inside.work.phases = phases.collect();
            inside.work.skill = record.skill.map(Into::into);
            inside.client = record.client.map(Arc::new);
            record.omitted.into_iter().for_each(|name| inside.work.metadata.omit(name));
            inside.verdict = record.cancelled.then_some(ClientOverride::Cancelled);
            inside.over = match () {
                () if record.lost => Some(Err(AgentFailure::TaskNotFound)),
                // Only the process that made the call could have learnt its name.
                () if is_unnamed && !may_be_named => Some(Err(NOT_NAMED)),
                () => None,
            };
            record.owners.iter().for_each(|owner| drop(inside.own(owner)));
            for (turn, digest, is_sent) in record.turns {
                inside.turns.restore(turn, digest, is_sent);
            }
            inside.turns.restore_left(&record.left);
            inside.position = record.position;
            inside.count_rounds();
        });
        Some((keys, entry))
    }
}

impl TaskEntry {
    /// Returns the key of the row of the task.
    pub(crate) fn row_key(&self) -> Vec<u8> {
        self.peek(|inside| row_key(self.agent(), inside.work.task_id.as_deref(), self.local()))
    }
}

/// Returns the key of the row of an entry.
pub(crate) fn row_key(agent: &str, task_id: Option<&str>, local: [u8; 16]) -> Vec<u8> {
    let mut key = agent.as_bytes().to_vec();
    match task_id {
        Some(id) => {
            key.push(0);
            key.extend_from_slice(id.as_bytes());
        }
        None => {
            key.push(1);
            key.extend_from_slice(&local);
        }
    }
    key
}

/// Returns the key in the map for the key of a row; `None` if it is malformed.
pub(super) fn key_of(key: &[u8]) -> Option<EntryKey> {
    let at = key.iter().position(|byte| *byte < 2)?;
    let (agent, rest) = key.split_at_checked(at)?;
    let (kind, rest) = rest.split_first()?;
    match kind {
        0 => {
            let agent = std::str::from_utf8(agent).ok()?.into();
            Some(EntryKey::Task { agent, id: std::str::from_utf8(rest).ok()?.into() })
        }
        _ => rest.try_into().ok().map(EntryKey::Local),
    }
}

/// Converts a past moment to both clocks. A moment that the clock of this process cannot represent
/// becomes `now`.
fn instant_from_age(unix_ms: u64, now: Timestamp) -> Timestamp {
    let since = Duration::from_millis(now.unix_ms.saturating_sub(unix_ms));
    Timestamp {
        instant: now.instant.checked_sub(since).unwrap_or(now.instant),
        unix_ms: unix_ms.min(now.unix_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Artifact, Fingerprint, Part, PartBody, StreamResponse, Task, TaskState, TaskStatus};
    use crate::tasks::AnswerClaim;

    fn entry(text: &str) -> TaskEntry {
        entry_with(text, None)
    }

    fn entry_with(text: &str, metadata: Option<Box<RawValue>>) -> TaskEntry {
        let artifact = Artifact {
            artifact_id: "a".into(),
            name: None,
            description: None,
            parts: vec![Part::new(PartBody::Text(text.into()))],
            extensions: Vec::new(),
            metadata: None,
        };
        let status =
            TaskStatus { state: TaskState::Completed, message: None, timestamp: Some("then".into()) };
        let (artifacts, history) = (vec![artifact], Default::default());
        let task =
            Task { id: "t-1".into(), context_id: Some("c-1".into()), status, artifacts, history, metadata };
        let mut work = AgentOutput::new(1 << 20);
        work.apply(StreamResponse::Task(task)).unwrap();
        TaskEntry::new("bard".into(), [7; 16], work, Timestamp::now())
    }

    fn back(entry: &TaskEntry, most: usize) -> (Vec<EntryKey>, TaskEntry) {
        let (_, value) = entry.to_record(RowContent::Output(most)).unwrap();
        TaskEntry::from_record(
            &value,
            RestorePolicy { artifact_bytes: 1 << 20, may_be_named: false },
            Timestamp::now(),
        )
        .unwrap()
    }

    fn text(entry: &TaskEntry) -> String {
        entry.visible_state(|inside| {
            let parts = inside.work.artifacts().flat_map(|artifact| artifact.parts.clone());
            parts.map(|part| format!("{:?}", part.body)).collect()
        })
    }

    #[test]
    fn records_are_restored_under_their_keys() {
        let written = std::sync::Arc::new(entry("a song"));
        written.own("alice");
        written.update(|work| work.skill = Some("sing".into()));
        written.set_verdict(ClientOverride::Cancelled);
        assert_eq!(written.claim_answer([1; 16], [2; 16]), AnswerClaim::Ours);
        written.mark_answer_sent([1; 16]);
        assert_eq!(written.claim_answer([3; 16], [4; 16]), AnswerClaim::Ours);
        let (keys, read) = back(&written, 1 << 20);
        assert_eq!(
            keys,
            [EntryKey::Task { agent: "bard".into(), id: "t-1".into() }, EntryKey::Local([7; 16])]
        );
        let (key, _) = written.to_record(RowContent::Output(1 << 20)).unwrap();
        assert_eq!(key_of(&key), keys.first().cloned());
        assert_eq!(text(&read), text(&written));
        assert!(read.is_owner("alice") && !read.is_owner("bob"));
        assert_eq!(read.visible_state(|inside| inside.verdict), Some(ClientOverride::Cancelled));
        // An answer that was certainly sent is never given again; an unconfirmed one can be, and
        // another one after the agent is seen to show the question still.
        assert_eq!(read.claim_answer([1; 16], [9; 16]), AnswerClaim::Other);
        assert_eq!(read.claim_answer([3; 16], [9; 16]), AnswerClaim::Other);
        let (_, again) = back(&written, 1 << 20);
        assert_eq!(again.claim_answer([3; 16], [4; 16]), AnswerClaim::Ours);
        read.resolve_unconfirmed(Some(Fingerprint::from_bytes([3; 16])));
        assert_eq!(read.claim_answer([3; 16], [9; 16]), AnswerClaim::Ours);
    }

    #[test]
    fn large_artifacts_stay_at_the_agent() {
        let (_, read) = back(&entry(&"x".repeat(5000)), 4096);
        assert_eq!(text(&read), "");
        assert!(read.visible_state(|inside| inside.work.artifacts_shed && inside.is_finished()));
    }

    /// With `state.content: ids` a row tells nothing that the agent or the client has said.
    #[test]
    fn rows_of_ids_have_no_content() {
        let metadata = RawValue::from_string(r#"{"urn:a":"a secret"}"#.to_owned()).ok();
        let written = std::sync::Arc::new(entry_with("a secret", metadata));
        written.own("alice");
        let (_, value) = written.to_record(RowContent::Ids).unwrap();
        assert!(!String::from_utf8(value.clone()).unwrap().contains("secret"));
        let policy = RestorePolicy { artifact_bytes: 1 << 20, may_be_named: false };
        let (keys, read) = TaskEntry::from_record(&value, policy, Timestamp::now()).unwrap();
        assert_eq!(keys.first(), Some(&EntryKey::Task { agent: "bard".into(), id: "t-1".into() }));
        assert!(read.is_owner("alice"));
        // The agent is asked for the rest.
        assert!(read.visible_state(|inside| inside.is_finished() && inside.work.artifacts_shed));
        let whole = written.visible_state(|inside| inside.work.to_task()).unwrap();
        read.update(|work| work.restore_artifacts(whole)).unwrap();
        assert_eq!(text(&read), text(&written));
    }

    #[test]
    fn metadata_never_takes_the_place_of_artifacts() {
        let large = "x".repeat(3 << 20);
        let json = format!(r#"{{"urn:a":1,"urn:b":"{large}","plain":"{large}"}}"#);
        let written = entry_with("a song", RawValue::from_string(json).ok());
        let (_, value) = written.to_record(RowContent::Output(4096)).unwrap();
        assert!(value.len() < 4096);
        let (_, read) = back(&written, 4096);
        assert_eq!(text(&read), text(&written));
        read.visible_state(|inside| {
            let metadata = &inside.work.metadata;
            assert!(!inside.work.artifacts_shed);
            assert_eq!(metadata.members().map(|(name, _)| name).collect::<Vec<_>>(), ["urn:a"]);
            assert_eq!(metadata.omitted().collect::<Vec<_>>(), ["urn:b"]);
        });
    }

    #[test]
    fn a_call_that_was_not_named_is_over_after_a_restart_and_a_lost_task_stays_lost() {
        let unnamed = TaskEntry::new("bard".into(), [7; 16], AgentOutput::new(100), Timestamp::now());
        let (keys, read) = back(&unnamed, 100);
        assert_eq!(keys, [EntryKey::Local([7; 16])]);
        assert_eq!(
            key_of(&unnamed.to_record(RowContent::Output(100)).unwrap().0),
            Some(EntryKey::Local([7; 16]))
        );
        assert!(read.is_finished());
        let lost = entry("x");
        lost.end(Err(AgentFailure::TaskNotFound), Timestamp::now());
        assert_eq!(
            back(&lost, 1 << 20).1.visible_state(|inside| inside.over.clone()),
            Some(Err(AgentFailure::TaskNotFound))
        );
    }

    #[test]
    fn no_row_panics() {
        let policy = RestorePolicy { artifact_bytes: 100, may_be_named: false };
        for json in ["", "{}", "null", "[1]", r#"{"agent":7}"#] {
            assert!(TaskEntry::from_record(json.as_bytes(), policy, Timestamp::now()).is_none(), "{json}");
        }
    }
}
