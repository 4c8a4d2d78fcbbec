//! The write queue: the newest change of each key, bounded in bytes.
//!
//! The writer takes batches from it (see `Store::flush` for waiters).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{StoreProblem, StoreTable};
use crate::sync::{lock, recover};

/// The newest change of each key: a value, or a removal.
pub(super) type PendingChanges = BTreeMap<(StoreTable, Vec<u8>), Option<Vec<u8>>>;

/// Bytes of a change besides its content: its slot in the map.
const PLACE: usize = 96;

/// Changes of one transaction.
pub(super) struct WriteBatch {
    changes: PendingChanges,
    /// The number of the last change in it.
    upto: u64,
}

impl WriteBatch {
    pub(super) fn changes(&self) -> &PendingChanges {
        &self.changes
    }
}

pub(super) struct WriteQueue {
    waiting: Mutex<QueuedWrites>,
    wake: Condvar,
    most: usize,
    linger: Duration,
}

#[derive(Default)]
struct QueuedWrites {
    changes: PendingChanges,
    /// The cost of `changes`.
    bytes: usize,
    /// The cost of the batch that is being written.
    under_way: usize,
    /// The number of changes so far.
    number: u64,
    /// The time of the first of `changes`.
    since: Option<Instant>,
    /// True if a caller waits for `changes`.
    hurry: bool,
    closed: bool,
}

impl WriteQueue {
    pub(super) fn new(most: usize, linger: Duration) -> Self {
        Self { waiting: Mutex::default(), wake: Condvar::new(), most, linger }
    }

    /// Adds a change, if there is room.
    pub(super) fn add(
        &self,
        table: StoreTable,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    ) -> Result<(), StoreProblem> {
        let cost = cost(&key, value.as_ref());
        if cost > self.most {
            return Err(StoreProblem::TooLarge(cost));
        }
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(StoreProblem::Closed);
        }
        let key = (table, key);
        let replaced = waiting.changes.get(&key).map_or(0, |old| self::cost(&key.1, old.as_ref()));
        let bytes = waiting.bytes.saturating_sub(replaced).saturating_add(cost);
        if bytes.saturating_add(waiting.under_way) > self.most {
            waiting.hurry = true;
            self.wake.notify_one();
            return Err(StoreProblem::Full);
        }
        waiting.changes.insert(key, value);
        waiting.bytes = bytes;
        waiting.number = waiting.number.saturating_add(1);
        if waiting.since.is_none() {
            waiting.since = Some(Instant::now());
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Records that a caller waits; returns the number of the last change to wait for.
    pub(super) fn request_flush(&self) -> u64 {
        let mut waiting = lock(&self.waiting);
        if !waiting.changes.is_empty() && !waiting.hurry {
            waiting.hurry = true;
            self.wake.notify_one();
        }
        waiting.number
    }

    /// Waits for the next batch, but returns none before that time unless the queue was closed.
    /// `None`: no more will come.
    pub(super) fn next(&self, not_before: Option<Instant>) -> Option<WriteBatch> {
        let mut waiting = lock(&self.waiting);
        loop {
            let now = Instant::now();
            let due = waiting.due(self.linger).max(not_before.filter(|_| !waiting.changes.is_empty()));
            waiting = match due {
                _ if waiting.closed => return (!waiting.changes.is_empty()).then(|| waiting.take()),
                Some(at) if at <= now => return Some(waiting.take()),
                Some(at) => {
                    let rest = at.saturating_duration_since(now);
                    recover(self.wake.wait_timeout(waiting, rest)).0
                }
                None => recover(self.wake.wait(waiting)),
            };
        }
    }

    /// Removes a batch that is durable; returns the number of its last change.
    pub(super) fn done(&self, batch: &WriteBatch) -> u64 {
        lock(&self.waiting).under_way = 0;
        batch.upto
    }

    /// Enqueues a batch again that could not be written, behind newer changes. Returns true if the
    /// queue is closed.
    pub(super) fn requeue(&self, batch: WriteBatch) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.under_way = 0;
        for (key, value) in batch.changes {
            let cost = cost(&key.1, value.as_ref());
            if let Entry::Vacant(free) = waiting.changes.entry(key) {
                free.insert(value);
                waiting.bytes = waiting.bytes.saturating_add(cost);
            }
        }
        waiting.since.get_or_insert_with(Instant::now);
        waiting.closed
    }

    /// Accepts no more changes. Waiting ones are still written.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.wake.notify_one();
    }

    /// Returns the cost of waiting changes and of those being written.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn bytes(&self) -> usize {
        let waiting = lock(&self.waiting);
        waiting.bytes.saturating_add(waiting.under_way)
    }
}

impl QueuedWrites {
    /// Returns the time at which the changes are to be written.
    fn due(&self, linger: Duration) -> Option<Instant> {
        self.since.map(|since| match since.checked_add(linger) {
            Some(later) if !self.hurry => later,
            _ => since,
        })
    }

    fn take(&mut self) -> WriteBatch {
        self.under_way = std::mem::take(&mut self.bytes);
        self.since = None;
        self.hurry = false;
        WriteBatch { changes: std::mem::take(&mut self.changes), upto: self.number }
    }
}

fn cost(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    key.len().saturating_add(value.map_or(0, Vec::len)).saturating_add(PLACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: usize = 100 + PLACE;

    fn add(queue: &WriteQueue, key: u8, value: u8) -> Result<(), StoreProblem> {
        queue.add(StoreTable::Tasks, vec![key], Some(vec![value; 99]))
    }

    fn values(batch: &WriteBatch) -> Vec<(u8, u8)> {
        batch.changes().iter().map(|((_, key), value)| (key[0], value.as_ref().unwrap()[0])).collect()
    }

    #[test]
    fn a_full_queue_takes_only_what_makes_it_no_larger() {
        let queue = WriteQueue::new(2 * ROW, Duration::from_secs(3600));
        add(&queue, 1, 1).unwrap();
        add(&queue, 2, 1).unwrap();
        assert_eq!(add(&queue, 3, 1), Err(StoreProblem::Full));
        add(&queue, 2, 2).unwrap();
        // The rejected writer has requested a flush.
        let batch = queue.next(None).unwrap();
        assert_eq!(values(&batch), [(1, 1), (2, 2)]);
        assert_eq!(add(&queue, 2, 3), Err(StoreProblem::Full), "what is under way still counts");
        assert_eq!((queue.done(&batch), queue.bytes()), (3, 0));
        add(&queue, 2, 3).unwrap();
        let large = queue.add(StoreTable::Tasks, vec![], Some(vec![0; 2 * ROW]));
        assert_eq!(large, Err(StoreProblem::TooLarge(2 * ROW + PLACE)));
    }

    #[test]
    fn failed_writes_wait_behind_newer_ones() {
        let queue = WriteQueue::new(9 * ROW, Duration::ZERO);
        add(&queue, 1, 1).unwrap();
        add(&queue, 2, 1).unwrap();
        let batch = queue.next(None).unwrap();
        add(&queue, 1, 2).unwrap();
        add(&queue, 3, 2).unwrap();
        assert!(!queue.requeue(batch));
        assert_eq!(queue.bytes(), 3 * ROW);
        queue.close();
        assert_eq!(add(&queue, 4, 4), Err(StoreProblem::Closed));
        let batch = queue.next(Some(Instant::now() + Duration::from_secs(3600))).unwrap();
        assert_eq!(values(&batch), [(1, 2), (2, 1), (3, 2)]);
        assert!(queue.next(None).is_none());
    }
}
