//! What is found again by handle: calls that are followed, and for a while their results.
//!
//! Bounded in time and in bytes; what ended first goes first. Not here: following (see `followers`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::followed::Followed;
use super::followers::Key;

/// Calls by their keys.
pub(super) struct Kept {
    table: Mutex<Table>,
    /// How long a result is kept.
    keep: Duration,
    /// How many bytes of results are kept.
    most: usize,
}

#[derive(Default)]
struct Table {
    calls: HashMap<Key, Arc<Followed>>,
    /// Calls that are over, in the order of their ends.
    ended: VecDeque<Ended>,
    bytes: usize,
}

struct Ended {
    followed: Arc<Followed>,
    keys: Vec<Key>,
    bytes: usize,
    at: Instant,
}

impl Kept {
    pub(super) fn new(keep: Duration, most: usize) -> Self {
        Self { table: Mutex::default(), keep, most }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<Followed>> {
        self.table().calls.get(key).cloned()
    }

    pub(super) fn insert(&self, key: Key, followed: &Arc<Followed>) {
        self.table().calls.insert(key, followed.clone());
    }

    /// Notes that a call is over and its result has so many bytes; makes room for it.
    pub(super) fn ended(&self, followed: Arc<Followed>, keys: Vec<Key>, bytes: usize, now: Instant) {
        let mut table = self.table();
        table.bytes = table.bytes.saturating_add(bytes);
        table.ended.push_back(Ended { followed, keys, bytes, at: now });
        while table.bytes > self.most && table.forget_first() {}
    }

    /// Forgets what has been kept long enough at `now`.
    pub(super) fn sweep(&self, now: Instant) {
        let mut table = self.table();
        let is_old = |ended: &Ended| now.saturating_duration_since(ended.at) > self.keep;
        while table.ended.front().is_some_and(is_old) && table.forget_first() {}
    }
}

impl Table {
    fn forget_first(&mut self) -> bool {
        let Some(first) = self.ended.pop_front() else { return false };
        self.bytes = self.bytes.saturating_sub(first.bytes);
        self.remove(&first.followed, &first.keys);
        true
    }

    /// A key may lead to a later call of the same task by now; that one stays.
    fn remove(&mut self, followed: &Arc<Followed>, keys: &[Key]) {
        for key in keys {
            if self.calls.get(key).is_some_and(|kept| Arc::ptr_eq(kept, followed)) {
                self.calls.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::work::Work;

    fn call(kept: &Kept, number: u8) -> Arc<Followed> {
        let followed = Arc::new(Followed::new(Work::new(0)));
        kept.insert(Key::Local([number; 16]), &followed);
        followed
    }

    #[test]
    fn results_go_by_bytes_and_by_age_and_oldest_first() {
        let kept = Kept::new(Duration::from_secs(10), 100);
        let now = Instant::now();
        for number in 0..3 {
            let followed = call(&kept, number);
            kept.ended(followed, vec![Key::Local([number; 16])], 40, now);
        }
        assert!(kept.find(&Key::Local([0; 16])).is_none());
        assert!(kept.find(&Key::Local([1; 16])).is_some() && kept.find(&Key::Local([2; 16])).is_some());
        kept.sweep(now + Duration::from_secs(11));
        assert!(kept.find(&Key::Local([2; 16])).is_none());
        assert_eq!(kept.table().bytes, 0);
    }

    #[test]
    fn a_later_call_of_the_same_task_stays() {
        let kept = Kept::new(Duration::from_secs(10), 100);
        let (first, second) = (call(&kept, 1), call(&kept, 1));
        kept.ended(first, vec![Key::Local([1; 16])], 200, Instant::now());
        assert!(Arc::ptr_eq(&kept.find(&Key::Local([1; 16])).unwrap(), &second));
    }
}
