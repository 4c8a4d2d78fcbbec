//! The recorder of affinity: reads from a forwarded response which task and conversation the
//! endpoint holds.
//!
//! Only for agents with several endpoints, and only as far as needed: the events of a stream until
//! both are known, a single response up to a limit. A response that cannot be read is not recorded;
//! its task can be located later (see `locate`). See `forward` for the forwarding.

use std::sync::Arc;

use super::resolved::ResolvedAgent;
use super::rpc::BodyKind;
use crate::a2a::StreamResponse;
use crate::sse::Decoder;

/// The maximum size of a response, or event, that is read for this, in bytes.
const MAX_OBSERVED_BYTES: usize = 1 << 20;
/// The maximum number of events of a stream that are read for this.
const MOST_EVENTS: usize = 16;

/// Observes the response of one endpoint.
pub(super) struct AffinityRecorder {
    known: Arc<ResolvedAgent>,
    at: usize,
    heard: Observed,
}

/// The part of the response that was observed.
enum Observed {
    Value(Vec<u8>),
    Events(Decoder, usize),
    /// All that is needed, or more than is read.
    Enough,
}

impl AffinityRecorder {
    /// Observes a response of this form, from the beginning.
    pub(super) fn new(known: Arc<ResolvedAgent>, at: usize, form: BodyKind) -> Self {
        let heard = match form {
            BodyKind::Json => Observed::Value(Vec::new()),
            BodyKind::Stream => Observed::Events(Decoder::new(MAX_OBSERVED_BYTES), MOST_EVENTS),
        };
        Self { known, at, heard }
    }

    /// Observes the next bytes.
    pub(super) fn observe(&mut self, bytes: &[u8]) {
        let is_enough = match &mut self.heard {
            Observed::Value(body) if body.len().saturating_add(bytes.len()) <= MAX_OBSERVED_BYTES => {
                body.extend_from_slice(bytes);
                false
            }
            Observed::Value(_) | Observed::Enough => true,
            Observed::Events(decoder, left) => {
                let Ok(events) = decoder.push(bytes) else {
                    self.heard = Observed::Enough;
                    return;
                };
                *left = left.saturating_sub(events.len());
                let is_last = *left == 0;
                let told = events.iter().filter(|event| self.known.is_done(self.at, &event.data)).count();
                is_last || told > 0
            }
        };
        if is_enough {
            self.heard = Observed::Enough;
        }
    }

    /// Observes the end of the response.
    pub(super) fn end(&mut self) {
        if let Observed::Value(body) = std::mem::replace(&mut self.heard, Observed::Enough) {
            self.known.is_done(self.at, &body);
        }
    }
}

impl ResolvedAgent {
    /// Records the endpoint of the task and conversation of a response. Returns true if the
    /// response names both, or can name no more.
    fn is_done(&self, at: usize, json: &[u8]) -> bool {
        let Ok(event) = self.interface.event(json) else { return false };
        self.endpoints.hear(at, &event);
        match &event {
            StreamResponse::Task(task) => task.context_id.is_some(),
            StreamResponse::Message(_) => true,
            StreamResponse::Status { task_id, context_id, .. }
            | StreamResponse::Artifact { task_id, context_id, .. } => {
                task_id.is_some() && context_id.is_some()
            }
            StreamResponse::Unknown => false,
        }
    }
}
