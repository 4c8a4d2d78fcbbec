//! The right to ask one place of an agent, and what came of it.
//!
//! What counts as a failure: no connection, no answer in time, cut off before one, HTTP 502, 503 and 504; a refusal is an answer.
//! Not here: which place is asked (see `endpoints`), when one is left alone (see `breaker`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use http::StatusCode;
use tokio::time::Instant;
use tracing::{info, warn};

use super::breaker::{Breaker, BreakerPermit, Transition};
use super::endpoints::Endpoints;
use crate::telemetry::endpoints::EndpointMetrics;
use crate::transport::TransportError;

/// One place.
pub(super) struct EndpointTracker {
    pub(super) agent: String,
    pub(super) name: String,
    pub(super) breaker: Breaker,
    pub(super) busy: AtomicUsize,
    pub(super) metrics: EndpointMetrics,
    pub(super) shared: Arc<EndpointsShared>,
}

/// State that all places of one set of endpoints have in common.
#[derive(Default)]
pub(super) struct EndpointsShared {
    /// How often any of them went or came back.
    pub(super) rounds: AtomicU32,
    /// Set when the newest card does not name them any more: others have their metrics then.
    pub(super) is_retired: AtomicBool,
}

/// The right to ask one place once. Given up when it is dropped.
pub(super) struct EndpointPermit<'a> {
    at: usize,
    site: &'a EndpointTracker,
    pass: BreakerPermit,
    busy: Option<InFlightGuard>,
}

/// A request that is under way at an endpoint, while this lives.
pub(super) struct InFlightGuard {
    endpoints: Arc<Endpoints>,
    at: usize,
}

impl<'a> EndpointPermit<'a> {
    /// The right to send one request to a place that let it pass. Where there are `several`, it is counted while it is under way.
    pub(super) fn new(
        (at, site): (usize, &'a EndpointTracker),
        pass: BreakerPermit,
        several: Option<&Arc<Endpoints>>,
    ) -> Self {
        site.metrics.requests.inc();
        if pass == BreakerPermit::Probe {
            site.metrics.probes.inc();
        }
        let busy = several.map(|endpoints| {
            site.busy.fetch_add(1, Ordering::Relaxed);
            InFlightGuard { endpoints: Arc::clone(endpoints), at }
        });
        Self { at, site, pass, busy }
    }
}

impl EndpointPermit<'_> {
    /// Which place it is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Notes that an answer has begun. The request is under way until what is returned is dropped.
    pub(super) fn record_success(mut self, status: StatusCode) -> Option<InFlightGuard> {
        match status.as_u16() {
            502..=504 => self.fail(),
            _ => self.site.note(self.site.breaker.answered(self.pass)),
        }
        self.pass = BreakerPermit::Plain;
        self.busy.take()
    }

    /// Notes that a check was answered.
    pub(super) fn record_check(mut self) {
        self.site.note(self.site.breaker.checked(self.pass));
        self.pass = BreakerPermit::Plain;
    }

    /// Notes that there was no answer.
    pub(super) fn failed(mut self, error: &TransportError) {
        match error {
            TransportError::Resolve(_)
            | TransportError::Refused { .. }
            | TransportError::Connect(_)
            | TransportError::ConnectTimeout
            | TransportError::Tls(_)
            | TransportError::FirstByteTimeout
            | TransportError::IdleTimeout
            | TransportError::TotalTimeout
            | TransportError::Unsent(_)
            | TransportError::Broken(_)
            | TransportError::Truncated => self.fail(),
            // It is there, whatever it says.
            TransportError::Unasked(_)
            | TransportError::Encoded
            | TransportError::HeaderTooLarge
            | TransportError::TooLarge { .. }
            | TransportError::TooManyPieces
            | TransportError::NoRoom(_) => self.site.note(self.site.breaker.answered(self.pass)),
            // Nobody was asked.
            TransportError::BadUri(_) | TransportError::OpenFiles => return,
        }
        self.pass = BreakerPermit::Plain;
    }

    /// Notes that a check was not answered in time, or badly.
    pub(super) fn record_unreachable(mut self) {
        self.fail();
        self.pass = BreakerPermit::Plain;
    }

    fn fail(&self) {
        self.site.metrics.failures.inc();
        self.site.note(self.site.breaker.failed(self.pass, Instant::now(), rand::random()));
    }
}

impl Drop for EndpointPermit<'_> {
    fn drop(&mut self) {
        if self.pass == BreakerPermit::Probe {
            self.site.breaker.given_up(self.pass, Instant::now());
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if let Some(site) = self.endpoints.site(self.at) {
            site.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl EndpointTracker {
    /// Sets the gauge of this place, unless it is that of another place by now.
    pub(super) fn show_up(&self, is_up: bool) {
        if !self.shared.is_retired.load(Ordering::Acquire) {
            self.metrics.up.set(is_up.into());
        }
    }

    /// Tells of what changed, once.
    fn note(&self, change: Transition) {
        match change {
            Transition::None => {}
            Transition::Ejected(pause) => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.metrics.ejections.inc();
                self.show_up(false);
                warn!(
                    agent = self.agent,
                    endpoint = self.name,
                    ?pause,
                    "endpoint fails again and again; it is left alone"
                );
            }
            Transition::Returned => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.show_up(true);
                info!(agent = self.agent, endpoint = self.name, "endpoint is back");
            }
        }
    }
}
