//! Rows at the engine: tasks, with the index of their owners, and rows of tables that every replica
//! holds in memory. They are written behind the work, each key in order; reads go to the engine.
//!
//! A task's row is set only if no later one is there; its position is that of the last event which is
//! part of it. A row of a table is announced in a log that all replicas read, or it is not, and they
//! read it by its key.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::debug;

use super::engine::{EngineError, StateKey, StateKind, TaskRow};
use super::{REPLICA_BYTES, SharedState, task_key};
use crate::agents::{AffinityId, EndpointSharing};
use crate::config::StateContent;
use crate::sync::lock;
use crate::tasks::store::StoreTable;
use crate::tasks::{RowContent, SharedRows, SharedTaskRow};

/// Rows that wait for the engine, and their bytes; beyond, the oldest are dropped: a task is written
/// again with its next change.
const MOST_ROWS: usize = 8192;
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Largest row.
const MOST_ROW_BYTES: usize = 4 * 1024 * 1024;
/// Rows that are in flight to the engine.
const MOST_IN_FLIGHT: usize = 32;
/// Pause after an operation without a result.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Tasks of one caller that are read from its index.
const MOST_OF_OWNER: usize = 1000;

/// A change that waits for the engine.
#[derive(Debug, Clone)]
enum RowChange {
    Task(SharedTaskRow),
    /// The agent has named the task: its row is under this key now.
    Renamed(Vec<u8>),
    /// The endpoint of a task or a conversation, and its key.
    Affinity(StateKey, Box<str>),
    Table(TableChange),
}

/// A change of a row of a table.
#[derive(Debug, Clone)]
struct TableChange {
    table: StoreTable,
    /// `None`: the row is removed.
    value: Option<Vec<u8>>,
    ttl: Duration,
    /// True if the change is announced in the log.
    is_logged: bool,
}

/// A row of a table as the engine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SharedRow {
    /// The row.
    Present(Vec<u8>),
    /// It was removed, or has expired.
    Absent,
    /// The engine does not answer.
    Unknown,
}

impl RowChange {
    fn bytes(&self) -> usize {
        match self {
            Self::Task(row) => row.value.len(),
            Self::Renamed(key) => key.len(),
            Self::Affinity(_, endpoint) => endpoint.len(),
            Self::Table(change) => change.value.as_ref().map_or(0, Vec::len),
        }
    }

    /// Announces the change if the one that it replaces was to be announced.
    fn replace(&mut self, before: &Self) {
        if let (Self::Table(change), Self::Table(before)) = (self, before) {
            change.is_logged |= before.is_logged;
        }
    }
}

/// Changes that wait for the engine, by their keys; the newest of a key counts.
#[derive(Default)]
pub(super) struct RowQueue {
    waiting: Mutex<Waiting>,
    added: Notify,
    /// Number of the last change that has left the queue.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Waiting {
    changes: HashMap<Vec<u8>, RowChange>,
    /// The keys, in order, with the number of the change.
    order: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// Number of the last change.
    last: u64,
}

impl RowQueue {
    /// Returns the number of rows that the engine does not have yet. Those on their way to it are at least
    /// one together: 0 means that the engine has all.
    pub(super) fn len(&self) -> usize {
        let waiting = lock(&self.waiting);
        let has_all = *self.done.borrow() >= waiting.last;
        if has_all { 0 } else { waiting.changes.len().max(1) }
    }

    /// Tries again what waits.
    pub(super) fn wake(&self) {
        self.added.notify_one();
    }

    fn add(&self, key: Vec<u8>, mut change: RowChange) {
        if change.bytes() > MOST_ROW_BYTES {
            // A write of it might never end in time; the agent has the task.
            return debug!(bytes = change.bytes(), "row too large for the engine");
        }
        let mut waiting = lock(&self.waiting);
        if let Some(before) = waiting.changes.get(&key) {
            change.replace(before);
        }
        waiting.last += 1;
        waiting.bytes += change.bytes();
        let number = waiting.last;
        match waiting.changes.insert(key.clone(), change) {
            Some(before) => waiting.bytes -= before.bytes(),
            None => waiting.order.push_back((number, key)),
        }
        while waiting.changes.len() > MOST_ROWS || waiting.bytes > MOST_BYTES {
            let Some((_, oldest)) = waiting.order.pop_front() else { break };
            if let Some(dropped) = waiting.changes.remove(&oldest) {
                waiting.bytes -= dropped.bytes();
            }
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Removes and returns the oldest changes.
    fn take(&self) -> (Vec<(Vec<u8>, RowChange)>, u64) {
        let mut waiting = lock(&self.waiting);
        let mut taken = Vec::new();
        while taken.len() < MOST_IN_FLIGHT
            && let Some((_, key)) = waiting.order.pop_front()
        {
            if let Some(change) = waiting.changes.remove(&key) {
                waiting.bytes -= change.bytes();
                taken.push((key, change));
            }
        }
        // Every change before the first one that still waits has left, or is in `taken`.
        let upto = waiting.order.front().map_or(waiting.last, |(first, _)| first - 1);
        (taken, upto)
    }

    /// Puts a change back, unless a newer one of its key waits.
    fn put_back(&self, key: Vec<u8>, change: RowChange) {
        let mut waiting = lock(&self.waiting);
        if let Some(newer) = waiting.changes.get_mut(&key) {
            newer.replace(&change);
        } else {
            waiting.bytes += change.bytes();
            waiting.changes.insert(key.clone(), change);
            let number = waiting.order.front().map_or(waiting.last, |(first, _)| *first);
            waiting.order.push_front((number, key));
        }
    }
}

#[async_trait]
impl SharedRows for SharedState {
    fn put_task(&self, row_key: Vec<u8>, row: SharedTaskRow) {
        self.rows.add(row_key, RowChange::Task(row));
    }

    fn rename_task(&self, row_key: Vec<u8>, named: Vec<u8>) {
        self.rows.add(row_key, RowChange::Renamed(named));
    }

    fn put_table_row(&self, table: StoreTable, key: &[u8], value: Option<Vec<u8>>, ttl: Duration) {
        self.add_row(key, TableChange { table, value, ttl, is_logged: true });
    }

    fn content(&self) -> RowContent {
        match self.content {
            StateContent::All => RowContent::Output(usize::MAX),
            StateContent::Ids => RowContent::Ids,
        }
    }

    async fn flush_rows(&self) -> bool {
        let upto = lock(&self.rows.waiting).last;
        let mut done = self.rows.done.subscribe();
        if *done.borrow_and_update() >= upto {
            return true;
        }
        if !self.is_available() {
            return false;
        }
        let written = tokio::time::timeout(self.timeout, done.wait_for(|done| *done >= upto)).await;
        matches!(written, Ok(Ok(_)))
    }
}

#[async_trait]
impl EndpointSharing for SharedState {
    async fn find(&self, kept: AffinityId) -> Option<String> {
        if !self.is_available() {
            return None;
        }
        let row = affinity_key(kept);
        let read = tokio::time::timeout(self.timeout, self.engine.get(&row)).await;
        let endpoint = self.sealer.open_bytes(&row.hash, &read.ok()?.ok()??)?;
        String::from_utf8(endpoint).ok()
    }

    fn remember(&self, kept: AffinityId, endpoint: &str) {
        let row = affinity_key(kept);
        // No row of a table or a task has a key that begins so.
        let queued = [&[0xff], row.hash.as_bytes()].concat();
        self.rows.add(queued, RowChange::Affinity(row, endpoint.into()));
    }

    fn affinity_age(&self) -> Duration {
        self.task_ttl / 2
    }

    fn note_breaker(&self, agent: &str, endpoint: &str, open: Option<Duration>) {
        self.breakers.note(agent, endpoint, open);
    }

    fn is_open_elsewhere(&self, agent: &str, endpoint: &str) -> bool {
        self.breakers.is_open_elsewhere(agent, endpoint)
    }
}

fn affinity_key(kept: AffinityId) -> StateKey {
    StateKey::of_hash(StateKind::Affinity, &HEXLOWER.encode(&kept.0))
}

impl SharedState {
    fn add_row(&self, key: &[u8], change: TableChange) {
        let queued = [&[change.table.number(), 0xff], key].concat();
        self.rows.add(queued, RowChange::Table(change));
    }

    /// Enqueues a row of a table, or its removal, that is not announced: other replicas read it with
    /// [`SharedState::read_row`].
    pub(crate) fn put_unlogged_row(
        &self,
        table: StoreTable,
        key: &[u8],
        value: Option<Vec<u8>>,
        ttl: Duration,
    ) {
        self.add_row(key, TableChange { table, value, ttl, is_logged: false });
    }

    /// Returns the present row of a table. Waits for at most `state.timeout`.
    pub(crate) async fn read_row(&self, table: StoreTable, key: &[u8]) -> SharedRow {
        if !self.is_available() {
            return SharedRow::Unknown;
        }
        match tokio::time::timeout(self.timeout, self.table_row(table, key)).await {
            Ok(Ok(Some(row))) if !row.is_empty() => SharedRow::Present(row),
            Ok(Ok(_)) => SharedRow::Absent,
            Ok(Err(_)) | Err(_) => SharedRow::Unknown,
        }
    }

    /// Writes rows as they are enqueued. Runs until it is dropped.
    pub(super) async fn write_rows(&self) {
        loop {
            let (taken, upto) = self.rows.take();
            if taken.is_empty() {
                self.rows.done.send_replace(upto);
                self.rows.added.notified().await;
                continue;
            }
            let written = taken.iter().map(|(key, change)| self.write(key, change));
            let results = join_all(written).await;
            let mut has_failed = false;
            for ((key, change), result) in taken.into_iter().zip(results) {
                match result {
                    Ok(()) => {}
                    // Another try would be refused as well, unlike one of an engine that is full now.
                    Err(EngineError::Refused(reason)) => debug!(reason, "engine refused row"),
                    Err(_) => {
                        has_failed = true;
                        self.rows.put_back(key, change);
                    }
                }
            }
            if has_failed {
                tokio::time::sleep(RETRY_PAUSE).await;
            } else {
                self.rows.done.send_replace(upto);
            }
        }
    }

    async fn write(&self, key: &[u8], change: &RowChange) -> Result<(), EngineError> {
        match change {
            RowChange::Task(row) => self.write_task(key, row).await,
            RowChange::Renamed(named) => {
                let alias = StateKey::new(StateKind::Row, key);
                let sealed = self.sealer.seal_bytes(&alias.hash, named);
                self.engine.set(&alias, &sealed, self.task_ttl).await
            }
            RowChange::Affinity(row, endpoint) => {
                let sealed = self.sealer.seal_bytes(&row.hash, endpoint.as_bytes());
                self.engine.set(row, &sealed, self.task_ttl).await
            }
            RowChange::Table(TableChange { table, value, ttl, is_logged }) => {
                let Some(key) = key.get(2..) else { return Ok(()) };
                let row = table_key(*table, key);
                // A removed row is an empty one, so that it differs from one that has expired.
                let sealed = self.sealer.seal_bytes(&row.hash, value.as_deref().unwrap_or_default());
                self.engine.set(&row, &sealed, *ttl).await?;
                if !is_logged {
                    return Ok(());
                }
                let logged = [&self.replica[..], &[table.number()], key].concat();
                self.engine.log(&self.sealer.seal_bytes(LOG_OWNER, &logged)).await
            }
        }
    }

    async fn write_task(&self, row_key: &[u8], row: &SharedTaskRow) -> Result<(), EngineError> {
        let indexed = row.owners.iter().map(|owner| self.index_task(row_key, owner, row.changed));
        // Together: an engine may be far away.
        let (put, indexed) = tokio::join!(self.put_task_row(row_key, row), join_all(indexed));
        put?;
        indexed.into_iter().collect()
    }

    async fn put_task_row(&self, row_key: &[u8], row: &SharedTaskRow) -> Result<(), EngineError> {
        let task = task_key(row_key);
        let sealed =
            |row: &SharedTaskRow| TaskRow { at: row.at, row: self.sealer.seal_bytes(&task.hash, &row.value) };
        if let Some(later) = self.engine.put_row(&task, &sealed(row), self.task_ttl).await?
            && let Some(value) = self.sealer.open_bytes(&task.hash, &later.row)
            && let Some(merged) = self.learn(StoreTable::Tasks, row_key, Some(&value))
        {
            // Both know something of the task that the other does not.
            self.engine.put_row(&task, &sealed(&merged), self.task_ttl).await?;
        }
        Ok(())
    }

    async fn index_task(&self, row_key: &[u8], owner: &str, changed: u64) -> Result<(), EngineError> {
        let index = StateKey::new(StateKind::Owner, owner.as_bytes());
        // Sealed: an entry of an index makes its caller an owner.
        let member = HEXLOWER.encode(&self.sealer.seal_bytes(&index.hash, task_key(row_key).hash.as_bytes()));
        self.engine.index(&index, &member, changed, self.task_ttl).await
    }

    /// Returns the row of a task that another replica has written.
    pub(crate) async fn task_row(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        if !self.is_available() {
            return None;
        }
        tokio::time::timeout(self.timeout, self.find_task_row(row_key)).await.ok().flatten()
    }

    async fn find_task_row(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        // The row of a call stays when the agent names its task, and tells nothing new then.
        let alias = StateKey::new(StateKind::Row, row_key);
        let task = task_key(row_key);
        let (renamed, row) = tokio::join!(self.engine.get(&alias), self.task_row_of(&task));
        if let Some(sealed) = renamed.ok()?
            && let Some(named) = self.sealer.open_bytes(&alias.hash, &sealed)
            && let Some(row) = self.task_row_of(&task_key(&named)).await
        {
            return Some(row);
        }
        row
    }

    pub(super) async fn task_row_of(&self, task: &StateKey) -> Option<Vec<u8>> {
        let row = self.engine.row(task).await.ok()??;
        self.sealer.open_bytes(&task.hash, &row.row)
    }

    /// Passes the rows of the tasks that a caller holds a handle of to `learn`, a few at a time, those
    /// with the latest changes first. `is_known` tells which are left out.
    pub(crate) async fn rows_of_owner(
        &self,
        owner: &str,
        is_known: impl Fn(&str) -> bool,
        mut learn: impl FnMut(&[u8]),
    ) {
        let index = StateKey::new(StateKind::Owner, owner.as_bytes());
        let deadline = Instant::now() + self.timeout;
        let Ok(tasks) = self.engine.indexed(&index, MOST_OF_OWNER).await else { return };
        let opened = tasks.iter().filter_map(|member| {
            let hash = self.sealer.open_bytes(&index.hash, &HEXLOWER.decode(member.as_bytes()).ok()?)?;
            String::from_utf8(hash).ok()
        });
        let wanted: Vec<_> = opened.filter(|hash| !is_known(hash)).collect();
        for page in wanted.chunks(MOST_IN_FLIGHT) {
            let keys: Vec<_> = page.iter().map(|hash| StateKey::of_hash(StateKind::Task, hash)).collect();
            let read = join_all(keys.iter().map(|key| self.task_row_of(key)));
            // Those that come too late are in the list of the next request.
            let Ok(read) = tokio::time::timeout_at(deadline, read).await else { return };
            read.iter().flatten().for_each(|row| learn(row));
        }
    }

    /// Returns the hash by which an index names the task with this row key.
    pub(crate) fn task_hash(row_key: &[u8]) -> Box<str> {
        task_key(row_key).hash
    }

    /// Returns the present row of a table, empty if it was removed; `None` if it has expired.
    pub(super) async fn table_row(
        &self,
        table: StoreTable,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let row = table_key(table, key);
        let sealed = self.engine.get(&row).await?;
        Ok(sealed.and_then(|sealed| self.sealer.open_bytes(&row.hash, &sealed)))
    }

    /// Opens an entry of the log: the replica that wrote it, the table, and the key of the row.
    pub(super) fn open_logged(&self, sealed: &[u8]) -> Option<([u8; REPLICA_BYTES], StoreTable, Vec<u8>)> {
        let entry = self.sealer.open_bytes(LOG_OWNER, sealed)?;
        let (replica, rest) = entry.split_first_chunk::<REPLICA_BYTES>()?;
        let (table, key) = rest.split_first()?;
        Some((*replica, StoreTable::numbered(*table)?, key.to_vec()))
    }
}

/// The owner for which entries of the log are sealed.
const LOG_OWNER: &str = "log";

fn table_key(table: StoreTable, key: &[u8]) -> StateKey {
    StateKey::new(StateKind::Row, &[b"row\0", &[table.number()][..], key].concat())
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::shared_state::REPORT_INTERVAL;
    use crate::shared_state::tests::replicas;

    #[tokio::test(start_paused = true)]
    async fn endpoints_of_tasks_and_conversations_are_shared() {
        let replicas = replicas(2);
        let [one, two] = replicas.as_slice() else { panic!("two replicas") };
        let [task, context, other] = [1, 2, 3].map(|number| AffinityId([number; 16]));
        one.remember(task, "1");
        one.remember(context, "2");
        assert!(one.flush_rows().await);
        assert_eq!(two.find(task).await.as_deref(), Some("1"));
        assert_eq!(two.find(context).await.as_deref(), Some("2"));
        assert_eq!(two.find(other).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn open_breakers_are_hints_until_they_close() {
        let replicas = replicas(2);
        let [one, two] = replicas.as_slice() else { panic!("two replicas") };
        one.note_breaker("agent", "1", Some(REPORT_INTERVAL * 10));
        one.note_breaker("agent", "2", Some(REPORT_INTERVAL * 10));
        sleep(REPORT_INTERVAL * 3).await;
        assert!(two.is_open_elsewhere("agent", "1") && two.is_open_elsewhere("agent", "2"));
        assert!(!two.is_open_elsewhere("other", "1") && !one.is_open_elsewhere("agent", "1"));
        one.note_breaker("agent", "2", None);
        sleep(REPORT_INTERVAL * 3).await;
        assert!(two.is_open_elsewhere("agent", "1") && !two.is_open_elsewhere("agent", "2"));
        sleep(REPORT_INTERVAL * 8).await;
        assert!(!two.is_open_elsewhere("agent", "1"), "a probe is due");
    }
}
