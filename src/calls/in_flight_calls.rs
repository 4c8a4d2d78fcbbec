//! Running calls of legacy sessions, so that `notifications/cancelled` finds them.
//!
//! Local to one instance: a cancellation that reaches another replica has no effect.

use std::collections::{HashMap, hash_map};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::jsonrpc::Id;
use crate::sync::lock;

type CallKey = ([u8; 16], String);

/// Running calls of one gateway; each entry lasts no longer than its request.
#[derive(Default)]
pub(crate) struct InFlightCalls {
    calls: Arc<Mutex<HashMap<CallKey, Arc<Notify>>>>,
}

/// Guard of a running call; removes the entry when it is dropped.
pub(crate) struct InFlightCall {
    calls: Arc<Mutex<HashMap<CallKey, Arc<Notify>>>>,
    key: CallKey,
    cancelled: Arc<Notify>,
}

impl InFlightCalls {
    /// Registers a call of a session.
    pub(crate) fn register(&self, session: [u8; 16], id: &Id) -> InFlightCall {
        let key = (session, id.as_json().to_owned());
        let cancelled = Arc::new(Notify::new());
        let mut calls = lock(&self.calls);
        calls.insert(key.clone(), cancelled.clone());
        InFlightCall { calls: self.calls.clone(), key, cancelled }
    }

    /// Cancels a call, if it is running.
    pub(crate) fn cancel(&self, session: [u8; 16], id: &Id) {
        let calls = lock(&self.calls);
        if let Some(call) = calls.get(&(session, id.as_json().to_owned())) {
            call.notify_one();
        }
    }
}

impl InFlightCall {
    /// Waits until the call is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        if let hash_map::Entry::Occupied(there) = calls.entry(std::mem::take(&mut self.key))
            && Arc::ptr_eq(there.get(), &self.cancelled)
        {
            there.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_cancelled_by_its_session_and_its_exact_id_only() {
        let running = InFlightCalls::default();
        let id: Id = serde_json::from_str("1").unwrap();
        let other: Id = serde_json::from_str("\"1\"").unwrap();
        let entry = running.register([1; 16], &id);
        running.cancel([2; 16], &id);
        running.cancel([1; 16], &other);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), entry.cancelled()).await;
        assert!(waited.is_err());
        running.cancel([1; 16], &id);
        entry.cancelled().await;
        drop(entry);
        assert!(running.calls.lock().unwrap().is_empty());
    }
}
