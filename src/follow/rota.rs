//! Live tasks for which there is no room to listen: they are polled in turn.
//!
//! Each task is in the queue once; one that is over or forgotten leaves it. A task moves back to a stream as soon as there is a
//! place. Not here: streams (see `listener`).

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::debug;

use super::followers::Followers;
use crate::agents::Known;
use crate::bridge::work::Standing;
use crate::tasks::Entry;

/// Questions to agents at once.
const AT_ONCE: usize = 8;
/// The shortest time between two questions about one task.
const ROUND: Duration = Duration::from_secs(1);

/// The queue.
#[derive(Default)]
pub(super) struct Rota {
    inside: Mutex<Inside>,
    added: Notify,
}

#[derive(Default)]
struct Inside {
    queue: VecDeque<Place>,
    present: HashSet<usize>,
}

struct Place {
    entry: Weak<Entry>,
    known: Arc<Known>,
    number: usize,
    not_before: Instant,
}

impl Rota {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a task into the queue, if it is not there.
    pub(super) fn add(&self, entry: &Arc<Entry>, known: Arc<Known>) {
        let number = Arc::as_ptr(entry).addr();
        let mut inside = self.inside();
        if inside.present.insert(number) {
            let not_before = Instant::now() + ROUND;
            inside.queue.push_back(Place { entry: Arc::downgrade(entry), known, number, not_before });
            self.added.notify_one();
        }
    }

    /// Takes the next task out of the queue once it is due.
    async fn next(&self) -> Place {
        loop {
            let due = {
                let mut inside = self.inside();
                match inside.queue.front().map(|place| place.not_before) {
                    Some(due) if due <= Instant::now() => match inside.queue.pop_front() {
                        Some(place) => {
                            inside.present.remove(&place.number);
                            return place;
                        }
                        None => None,
                    },
                    due => due,
                }
            };
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => self.added.notified().await,
            }
        }
    }

    /// Polls to the end of the process.
    pub(super) async fn run(&self, followers: &Arc<Followers>) {
        let mut asked = JoinSet::new();
        loop {
            tokio::select! {
                place = self.next(), if asked.len() < AT_ONCE => {
                    let followers = followers.clone();
                    asked.spawn(async move { followers.take_turn(place).await });
                }
                Some(ended) = asked.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        followers.metrics.panicked();
                    }
                }
            }
        }
    }
}

impl Followers {
    async fn take_turn(&self, place: Place) {
        let Some(entry) = place.entry.upgrade() else { return };
        if entry.is_gone() || entry.look(|inside| inside.is_finished()) {
            return;
        }
        if let Err(trouble) = self.look(&entry, &place.known).await {
            debug!(agent = %entry.agent(), %trouble, "agent does not say how a task stands");
            if trouble == crate::fault::Trouble::TaskLost {
                return entry.end(Err(trouble), crate::tasks::Times::now());
            }
        }
        let is_live = entry.look(|inside| inside.work.standing() == Standing::Running);
        // An open question changes only for those who wait for it.
        if is_live || entry.is_watched(Instant::now()) {
            self.attend(&entry, &place.known);
        }
    }
}
