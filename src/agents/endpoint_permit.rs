//! The permit to send one request to an endpoint, and the record of its outcome.
//!
//! Failures are: no connection, no response in time, cut off before one, HTTP 502, 503 and 504; a
//! rejection is a response. See `endpoints` for the choice and `breaker` for the consequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use http::StatusCode;
use tokio::time::Instant;
use tracing::{info, warn};

use super::breaker::{Breaker, BreakerPermit, Transition};
use super::endpoints::Endpoints;
use crate::telemetry::metrics::EndpointMetrics;
use crate::transport::TransportError;

/// One endpoint, or the address of a single method.
pub(super) struct EndpointTracker {
    pub(super) agent: String,
    pub(super) name: String,
    pub(super) breaker: Breaker,
    pub(super) busy: AtomicUsize,
    pub(super) metrics: EndpointMetrics,
    pub(super) shared: Arc<EndpointsShared>,
}

/// State that all endpoints of one set share.
#[derive(Default)]
pub(super) struct EndpointsShared {
    /// The number of times that any of them failed or returned.
    pub(super) rounds: AtomicU32,
    /// Set once the newest card does not name them any more: others have their metrics then.
    pub(super) is_retired: AtomicBool,
}

/// The permit to send one request to one endpoint. Released when it is dropped.
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
    /// Creates a permit from that of the breaker. If there are `several` endpoints, the request is
    /// counted while it is under way.
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
    /// Returns the number of the endpoint.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Records that a response has begun. The request is under way until the returned guard is
    /// dropped.
    pub(super) fn record_success(mut self, status: StatusCode) -> Option<InFlightGuard> {
        match status.as_u16() {
            502..=504 => self.fail(),
            _ => self.site.note(self.site.breaker.answered(self.pass)),
        }
        self.pass = BreakerPermit::Plain;
        self.busy.take()
    }

    /// Records a successful check.
    pub(super) fn record_check(mut self) {
        self.site.note(self.site.breaker.checked(self.pass));
        self.pass = BreakerPermit::Plain;
    }

    /// Records that there was no response.
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
            // The endpoint is available, even if its response is unusable.
            TransportError::Unasked(_)
            | TransportError::Encoded
            | TransportError::HeaderTooLarge
            | TransportError::TooLarge { .. }
            | TransportError::TooManyPieces
            | TransportError::NoRoom(_) => self.site.note(self.site.breaker.answered(self.pass)),
            // No request was sent.
            TransportError::BadUri(_) | TransportError::OpenFiles => return,
        }
        self.pass = BreakerPermit::Plain;
    }

    /// Records a check without a good response in time.
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
    /// Sets the gauge of this endpoint, unless it belongs to another one by now.
    pub(super) fn show_up(&self, is_up: bool) {
        if !self.shared.is_retired.load(Ordering::Acquire) {
            self.metrics.up.set(is_up.into());
        }
    }

    /// Logs and counts a transition, once.
    fn note(&self, change: Transition) {
        match change {
            Transition::None => {}
            Transition::Ejected(pause) => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.metrics.ejections.inc();
                self.show_up(false);
                warn!(agent = self.agent, endpoint = self.name, ?pause, "endpoint ejected");
            }
            Transition::Returned => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.show_up(true);
                info!(agent = self.agent, endpoint = self.name, "endpoint is back");
            }
        }
    }
}
