//! What is counted of places that the gateway would not go to.
//!
//! Not here: which places those are (see `transport` and `agents`).

use prometheus::{IntCounterVec, Registry};

use super::metrics::{opts, register};

/// The metrics of what was not called. Clones count together.
#[derive(Debug, Clone)]
pub struct OutboundMetrics {
    refused: IntCounterVec,
}

impl OutboundMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = opts(
            "outbound_refused_total",
            "Places that the gateway was sent to and did not call, by reason.",
        );
        Ok(Self { refused: register(registry, IntCounterVec::new(opts, &["reason"])?)? })
    }

    /// Counts a place that was not called. The reason is a name of the gateway's own, never a peer's text.
    pub fn refused(&self, reason: &'static str) {
        self.refused.with_label_values(&[reason]).inc();
    }
}
