//! Detects if an event changed anything: watchers are woken only then.
//!
//! A polled agent repeats the same state again and again.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::a2a::{Part, PartBody};
use crate::bridge::output::AgentOutput;

/// Digest of the output that a watcher can see.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VisibleState(u64);

impl VisibleState {
    /// Computes the digest. `deep` includes the content of artifacts: for events that replace them
    /// all.
    pub(super) fn at(work: &AgentOutput, deep: bool) -> Self {
        let mut hasher = DefaultHasher::new();
        work.state.map(crate::a2a::TaskState::as_str).hash(&mut hasher);
        (&work.task_id, &work.context_id, work.reply.is_some(), work.bytes()).hash(&mut hasher);
        if let Some(status) = &work.status {
            // Some agents make another id each time that they show a question.
            status.message_id.as_ref().filter(|_| work.asking().is_none()).hash(&mut hasher);
            status.parts.iter().for_each(|part| hash_part(part, &mut hasher));
        }
        for artifact in work.artifacts().filter(|_| deep) {
            (&artifact.artifact_id, &artifact.name).hash(&mut hasher);
            artifact.parts.iter().for_each(|part| hash_part(part, &mut hasher));
        }
        Self(hasher.finish())
    }
}

fn hash_part(part: &Part, hasher: &mut impl Hasher) {
    std::mem::discriminant(&part.body).hash(hasher);
    match &part.body {
        PartBody::Text(text) | PartBody::Raw(text) | PartBody::Url(text) => text.hash(hasher),
        PartBody::Data(json) | PartBody::Unknown(json) => json.get().hash(hasher),
    }
}
