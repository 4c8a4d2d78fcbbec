//! Locks a mutex and recovers it if it is poisoned.
//!
//! A lock is held for one statement or a few, and no statement under a lock leaves its state half
//! changed: a panic elsewhere in the thread must not make every later request fail.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks the mutex, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    recover(mutex.lock())
}

/// Returns the value of a lock, poisoned or not.
pub(crate) fn recover<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisoned_lock_is_recovered() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                let _guard = lock(&mutex);
                panic!("poisons the lock");
            });
            assert!(panicked.join().is_err());
        });
        assert!(mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(*lock(&mutex), 2);
    }
}
