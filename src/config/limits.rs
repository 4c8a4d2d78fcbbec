//! `limits`: limits for data that peers send, and shares of callers.

use std::time::Duration;

use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::units::ByteSize;

section! {
    /// Limits for what peers send. Sizes are in bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// A request's body.
        body: usize as ByteSize = 4MiB in 1KiB..=1GiB,
        /// Nesting of JSON in a request's body.
        depth: usize = 64 in 8..=120,
        /// An agent's response that is not a stream.
        response: usize as ByteSize = 16MiB in 1KiB..=1GiB,
        /// One event of an agent's stream.
        event: usize as ByteSize = 4MiB in 1KiB..=1GiB,
        /// Total size of one task's artifacts.
        artifacts: usize as ByteSize = 16MiB in 1KiB..=1GiB,
        /// Messages in a JSON-RPC batch.
        batch: usize = 32 in 1..=1000,
        /// Time that a client has to send its request's headers.
        header_read: Duration = 10s in 1s..=1h,
        /// Time that a client has to send its request's body.
        body_read: Duration = 30s in 1s..=1h,
        /// Time for which a client may leave a response unread; then its connection is closed, and
        /// the rest of the response is dropped.
        write_stall: Duration = 30s in 1s..=1h,
        /// Time for which an idle client connection is kept; the header of its next request must be
        /// complete by then.
        keep_alive: Duration = 75s in 1s..=1h,
        /// Open GET, `subscriptions/listen` and `SubscribeToTask` streams.
        streams: usize = 1024 in 1..=1000000,
        /// Concurrent calls of all callers. More are refused with 503.
        calls: usize = 10000 in 1..=1000000,
        /// Requests of one caller in a second; 0 is any number. More are refused with 429 and
        /// `Retry-After`. Here and below, anonymous callers are distinguished by their address.
        caller_rate: usize = 0 in 0..=1000000,
        /// Requests that one caller may send at once after a pause; 0 is as many as in a second.
        caller_burst: usize = 0 in 0..=1000000,
        /// Concurrent calls of one caller. More are refused with 429.
        caller_calls: usize = 1000 in 1..=1000000,
        /// Open streams of one caller; at most three quarters of `streams`. More are refused with
        /// 429.
        caller_streams: usize = 256 in 1..=1000000,
        /// Live tasks of one caller; those of all anonymous callers count together. Core tasks and
        /// `subagent_start` beyond the limit are refused with 429; a plain call never is.
        caller_tasks: usize = 1000 in 1..=1000000,
        /// Bytes that requests and responses of all callers hold in memory, beyond 16 KiB each.
        /// Beyond the limit requests are refused with 503, and responses of agents fail.
        bytes: usize as ByteSize = 256MiB in 1MiB..=1024GiB,
        /// Bytes that requests and responses of one caller hold; at most three quarters of `bytes`.
        /// Beyond the limit requests are refused with 429.
        caller_bytes: usize as ByteSize = 32MiB in 1MiB..=1024GiB,
        /// Bad credentials from one address in a second, and failed TLS handshakes, which count
        /// separately; ten times as many at once. Beyond the limit, for a while, credentials that
        /// are not known to be good are refused with 429 without a check, and connections are
        /// closed before a handshake. 0 is any number: for a gateway behind a proxy that hides
        /// addresses.
        auth_failures: usize = 10 in 0..=1000000,
        /// A request's header: its path and all lines. Longer ones are refused with 431. Over
        /// HTTP/2 each line counts 32 bytes more (RFC 9113 §6.5.2).
        header: usize as ByteSize = 32KiB in 1KiB..=1MiB,
        /// Connections of clients, on each listener. More are closed at once.
        connections: usize = 10000 in 1..=1000000,
    }
    keys {
        /// Of these, connections from one address (of IPv6 from one /64 network). More are closed
        /// at once. 0 is any number: for a gateway behind a proxy or a load balancer, which is one
        /// address. Without it: a tenth of `connections`, at least 16.
        address_connections: u64 => Option<usize> = none in 0..=1000000 [example 1000],
    }
    fields {
        /// Of these, connections from one address (of IPv6 from one /64 network); 0: any number.
        /// Default: a tenth, at least [`Limits::LEAST_ADDRESS_CONNECTIONS`].
        address_connections: usize = 1000,
    }
    check check_limits
}

impl Limits {
    /// The fewest connections that one address may have by default: as many as a client with a
    /// pool.
    pub const LEAST_ADDRESS_CONNECTIONS: usize = 16;
}

fn check_limits(limits: Limits, mut keys: KeysOf<Limits>, context: &mut ResolveContext<'_>) -> Limits {
    let tenth = (limits.connections / 10).max(Limits::LEAST_ADDRESS_CONNECTIONS);
    Limits { address_connections: keys.address_connections(context).unwrap_or(tenth), ..limits }
}
