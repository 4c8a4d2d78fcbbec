//! By whom the card of an agent must be signed, as the file of keys says now.
//!
//! A file that is missing or broken changes nothing: it is logged and counted, and the keys that were there go on. Not here: judging a
//! card (see `signature`), when the file is looked at (see `showing`).

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
    /// How many sets of keys there have been.
    sets: watch::Sender<u64>,
}

/// What is remembered between two looks at the file.
#[derive(Clone, Default)]
pub(super) struct Seen {
    stamps: FileStamps,
    set: Option<JwkSet>,
    /// What was wrong at the last look; the file is read again until nothing is.
    problem: Option<String>,
}

impl CardKeys {
    pub(super) fn new(signature: &CardSignature) -> Result<Self, CardFetchError> {
        let keys = KeySet::new(&signature.keys)
            .map_err(|problem| CardFetchError::Setting(format!("signature.keys: {problem}")))?;
        let (current, sets) = (ArcSwap::from_pointee(keys), watch::Sender::new(0));
        Ok(Self { signature: signature.clone(), current, sets })
    }

    /// The keys as they are now.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.current.load_full()
    }

    /// Whether a card without a good signature is refused.
    pub(super) fn required(&self) -> bool {
        self.signature.required
    }

    /// Hears of other keys.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.sets.subscribe()
    }

    /// Looks at the file, and uses the keys in it from now on if they are others. Blocks.
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
                    tracing::info!(agent, "keys that sign the agent's card were read again");
                    metrics.reload(Reload::Used);
                }
                Seen { stamps, set: Some(set), problem: None }
            }
            Err(problem) => {
                // Said once, though it is tried again and again.
                if has_changed || seen.problem.as_ref() != Some(&problem) {
                    tracing::warn!(agent, problem, "keys that sign the agent's card stay as they were");
                    metrics.reload(Reload::Refused);
                }
                Seen { stamps, set: seen.set, problem: Some(problem) }
            }
        }
    }
}
