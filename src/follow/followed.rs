//! One call that is followed, as its watchers see it.
//!
//! Not here: who polls it (see `followers`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::bridge::work::{Note, Work};
use crate::fault::Trouble;

/// A call that goes on without the client that made it.
#[derive(Debug)]
pub struct Followed {
    inside: Mutex<Inside>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inside {
    work: Work,
    last: Option<Note>,
    over: Option<Result<(), Trouble>>,
}

impl Followed {
    pub(super) fn new(work: Work) -> Self {
        Self { inside: Mutex::new(Inside { work, last: None, over: None }), changes: watch::Sender::new(0) }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the work.
    pub fn look<R>(&self, look: impl FnOnce(&Work) -> R) -> R {
        look(&self.inside().work)
    }

    /// The last thing that was new.
    pub fn last_note(&self) -> Option<Note> {
        self.inside().last.clone()
    }

    /// How it ended, if it has.
    pub fn over(&self) -> Option<Result<(), Trouble>> {
        self.inside().over.clone()
    }

    /// Hears of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn apply(&self, event: crate::a2a::Event) -> Result<(), Trouble> {
        let taken = {
            let mut inside = self.inside();
            inside.work.apply(event).map(|note| inside.last = note.or(inside.last.take()))
        };
        self.changes.send_modify(|count| *count += 1);
        taken.map_err(|too_much| Trouble::TooMuch(too_much.max_bytes, "its artifacts"))
    }

    /// Notes the end; says how many bytes the result takes.
    pub(super) fn end(&self, result: Result<(), Trouble>) -> usize {
        let bytes = {
            let mut inside = self.inside();
            inside.over = Some(result);
            inside.work.bytes()
        };
        self.changes.send_modify(|count| *count += 1);
        bytes
    }
}
