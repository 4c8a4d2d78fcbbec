//! The idle and the shared connections of one upstream.
//!
//! An idle HTTP/1.1 connection is not polled; its state is checked when it is taken and when the
//! pool is swept. See `connect` for opening.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::Semaphore;

use super::http1::Http1Connection;
use super::http2::{Http2Connection, StreamPermit};
use crate::sync::lock;

/// The maximum number of HTTP/2 connections that one upstream shares; those above it serve one
/// request.
const TRUNKS: usize = 16;

/// The connections of one upstream.
pub(super) struct ConnectionPool {
    inside: Mutex<PoolState>,
    max_idle: usize,
    idle_for: Duration,
    /// One opening at a time while HTTP/2 is possible, or a burst would open a connection per
    /// request.
    pub(super) opening: Semaphore,
    http1_only: AtomicBool,
    /// True if the client has registered this pool and sweeps it.
    pub(super) known: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    /// Oldest first.
    lines: Vec<IdleList>,
    trunks: Vec<PoolShared>,
}

struct IdleList {
    line: Box<Http1Connection>,
    since: Instant,
}

struct PoolShared {
    trunk: Http2Connection,
    unused_since: Option<Instant>,
}

/// A connection that was idle, and its idle time.
pub(super) struct IdleConnection {
    pub(super) line: Box<Http1Connection>,
    pub(super) rested: Duration,
}

impl ConnectionPool {
    pub(super) fn new(max_idle: usize, idle_for: Duration) -> Self {
        Self {
            inside: Mutex::default(),
            max_idle,
            idle_for,
            opening: Semaphore::new(1),
            http1_only: AtomicBool::new(false),
            known: AtomicBool::new(false),
        }
    }

    /// Takes the most recently used connection of this runtime, alive or not. It was idle until
    /// `now`.
    pub(super) fn take_idle(&self, home: runtime::Id, now: Instant) -> Option<IdleConnection> {
        let resting = {
            let mut inside = lock(&self.inside);
            let at = inside.lines.iter().rposition(|resting| resting.line.return_to_pool() == home)?;
            inside.lines.remove(at)
        };
        Some(IdleConnection { line: resting.line, rested: now.saturating_duration_since(resting.since) })
    }

    /// Returns the maximum idle time of a connection.
    pub(super) fn idle_for(&self) -> Duration {
        self.idle_for
    }

    /// Adds an idle connection; the oldest is evicted if the pool is full.
    pub(super) fn put_idle(&self, line: Box<Http1Connection>) {
        let resting = IdleList { line, since: Instant::now() };
        // Dropping closes a socket: not under the lock.
        let surplus = {
            let mut inside = lock(&self.inside);
            inside.lines.push(resting);
            (inside.lines.len() > self.max_idle).then(|| inside.lines.remove(0))
        };
        drop(surplus);
    }

    /// Acquires a permit for a stream on a shared connection that has one.
    pub(super) fn join(&self) -> Option<StreamPermit> {
        let mut inside = lock(&self.inside);
        inside.trunks.iter_mut().find_map(|shared| {
            let stream = shared.trunk.join()?;
            shared.unused_since = None;
            Some(stream)
        })
    }

    /// Shares a new connection, unless there are too many.
    pub(super) fn share(&self, trunk: Http2Connection) {
        let surplus = {
            let mut inside = lock(&self.inside);
            if inside.trunks.len() < TRUNKS {
                inside.trunks.push(PoolShared { trunk, unused_since: None });
                None
            } else {
                Some(trunk)
            }
        };
        drop(surplus);
    }

    /// Removes this connection from the pool.
    pub(super) fn forget(&self, trunk: &Http2Connection) {
        let forgotten: Vec<PoolShared> =
            lock(&self.inside).trunks.extract_if(.., |shared| shared.trunk.is(trunk)).collect();
        drop(forgotten);
    }

    /// Returns true if the agent has chosen HTTP/1.1 although HTTP/2 was offered.
    pub(super) fn is_http1_only(&self) -> bool {
        self.http1_only.load(Ordering::Acquire)
    }

    /// Records that the agent has chosen HTTP/1.1.
    pub(super) fn set_http1_only(&self) {
        self.http1_only.store(true, Ordering::Release);
    }

    /// Closes connections that have been idle too long at `now`, and those that the agent has
    /// closed.
    pub(super) fn sweep(&self, now: Instant) {
        let idle_for = self.idle_for;
        let (lines, trunks): (Vec<IdleList>, Vec<PoolShared>) = {
            let mut inside = lock(&self.inside);
            let lines = inside
                .lines
                .extract_if(.., |resting| {
                    now.saturating_duration_since(resting.since) >= idle_for || !resting.line.is_alive()
                })
                .collect();
            (lines, inside.trunks.extract_if(.., |shared| shared.is_over(now, idle_for)).collect())
        };
        drop((lines, trunks));
    }

    /// Returns the number of connections that are open and not in use.
    pub(super) fn idle(&self) -> usize {
        let inside = lock(&self.inside);
        inside.lines.len() + inside.trunks.iter().filter(|shared| shared.trunk.streams() == 0).count()
    }
}

impl PoolShared {
    fn is_over(&mut self, now: Instant, idle_for: Duration) -> bool {
        if self.trunk.streams() > 0 {
            self.unused_since = None;
            return !self.trunk.is_alive();
        }
        let since = *self.unused_since.get_or_insert(now);
        !self.trunk.is_alive() || now.saturating_duration_since(since) >= idle_for
    }
}
