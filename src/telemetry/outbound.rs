//! Metrics of addresses that the gateway refuses to call.
//!
//! See `transport` and `agents` for the refusals.

use prometheus::{IntCounterVec, Registry};

use super::metrics::{opts, register};

/// The metrics of refused addresses. Clones count together.
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

    /// Counts a refused address. The reason is a label of the gateway's own, never a peer's text.
    pub fn refused(&self, reason: &'static str) {
        self.refused.with_label_values(&[reason]).inc();
    }
}
