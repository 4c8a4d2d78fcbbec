//! The keys that must sign the card of an agent, as the file of keys has them now.
//!
//! A file that is missing or broken changes nothing: the error is logged and counted, and the
//! previous keys remain. See also `signature` and `credentials`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::JwkSet;
use tokio::sync::watch;

use super::card_fetch::CardFetchError;
use crate::auth::{FileStamps, KeySet};
use crate::config::CardSignature;
use crate::telemetry::label::Reload;
use crate::telemetry::metrics::AgentMetrics;

/// The keys of one agent's card.
pub(super) struct CardKeys {
    signature: CardSignature,
    current: ArcSwap<KeySet>,
    /// The number of key sets since the start.
    sets: watch::Sender<u64>,
}

/// The state between two checks of the file.
#[derive(Clone, Default)]
pub(super) struct Seen {
    stamps: FileStamps,
    set: Option<JwkSet>,
    /// The error of the last check; the file is read again until there is none.
    problem: Option<String>,
}

impl CardKeys {
    pub(super) fn new(signature: &CardSignature) -> Result<Self, CardFetchError> {
        let keys = KeySet::new(&signature.keys)
            .map_err(|problem| CardFetchError::Setting(format!("signature.keys: {problem}")))?;
        let (current, sets) = (ArcSwap::from_pointee(keys), watch::Sender::new(0));
        Ok(Self { signature: signature.clone(), current, sets })
    }

    /// Returns the current keys.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.current.load_full()
    }

    /// Returns true if a card without a good signature is rejected.
    pub(super) fn required(&self) -> bool {
        self.signature.required
    }

    /// Subscribes to changes of the keys.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.sets.subscribe()
    }

    /// Checks the file, and uses its keys from now on if they are others. Blocks.
    pub(super) fn look_again(&self, seen: Seen, agent: &str, metrics: &AgentMetrics) -> Seen {
        let stamps = FileStamps::of([self.signature.file.as_path()].into_iter());
        let has_changed = stamps != seen.stamps;
        if !has_changed && seen.problem.is_none() {
            return seen;
        }
        let read = self.signature.read_again().and_then(|set| Ok((KeySet::new(&set)?, set)));
        match read {
            Ok((keys, set)) => {
                if *seen.set.as_ref().unwrap_or(&self.signature.keys) != set {
                    self.current.store(Arc::new(keys));
                    self.sets.send_modify(|count| *count += 1);
                    tracing::info!(agent, "card keys reloaded");
                    metrics.reload(Reload::Used);
                }
                Seen { stamps, set: Some(set), problem: None }
            }
            Err(problem) => {
                // Logged once, though the file is read again and again.
                if has_changed || seen.problem.as_ref() != Some(&problem) {
                    tracing::warn!(agent, error = problem, "failed to reload card keys");
                    metrics.reload(Reload::Refused);
                }
                Seen { stamps, set: seen.set, problem: Some(problem) }
            }
        }
    }
}
