//! Credentials that continue to follow a task when those of its follower are refused.
//!
//! One follower listens to an agent for all watchers of a task, with the credentials of the caller
//! that started it. A watcher that joins later leaves its own credentials here. When the token of the
//! first caller is refused, the follower takes them and continues, so that no watcher waits for an
//! event that never arrives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::agents::ResolvedAgent;
use crate::sync::lock;
use crate::tasks::TaskEntry;

/// The newest successor of each followed task.
///
/// Bounded by the number of followed tasks: the follower takes the successor when it ends.
#[derive(Default)]
pub(super) struct FollowerCredentials(Mutex<HashMap<usize, FollowerCredential>>);

/// The weak reference keeps the address of the entry, which is the key, from being used again.
struct FollowerCredential {
    entry: Weak<TaskEntry>,
    known: Arc<ResolvedAgent>,
}

/// Number of successors above which those of entries without a follower are removed.
const PRUNE_ABOVE: usize = 64;

impl FollowerCredentials {
    /// Inserts the credentials that the follower of `entry` is to continue with. The newest win.
    pub(super) fn insert(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let successor = FollowerCredential { entry: Arc::downgrade(entry), known: known.clone() };
        let mut successors = lock(&self.0);
        successors.insert(key(entry), successor);
        // Doubling keeps the cost of pruning constant for each insertion.
        if successors.len() > PRUNE_ABOVE && successors.len().is_power_of_two() {
            let is_followed = |entry: Arc<TaskEntry>| entry.visible_state(|inside| inside.is_followed());
            successors.retain(|_, successor| successor.entry.upgrade().is_some_and(is_followed));
        }
    }

    /// Removes and returns the credentials to continue with.
    pub(super) fn take(&self, entry: &Arc<TaskEntry>) -> Option<Arc<ResolvedAgent>> {
        Some(lock(&self.0).remove(&key(entry))?.known)
    }
}

fn key(entry: &Arc<TaskEntry>) -> usize {
    Arc::as_ptr(entry).addr()
}
