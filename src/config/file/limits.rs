//! `limits` as in the file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Limits;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::units::{ByteSize, HumanDuration};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Limits for what peers send.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(super) struct LimitsFile {
    /// A request's body.
    #[schemars(extend("default" = "4MiB"))]
    body: Spanned<ByteSize>,
    /// Nesting of JSON.
    #[schemars(range(min = 8, max = 120), extend("default" = 64))]
    depth: Spanned<u64>,
    /// An agent's response that is not a stream.
    #[schemars(extend("default" = "16MiB"))]
    response: Spanned<ByteSize>,
    /// One event of an agent's stream.
    #[schemars(extend("default" = "4MiB"))]
    event: Spanned<ByteSize>,
    /// Bytes of the artifacts of one task.
    #[schemars(extend("default" = "16MiB"))]
    artifacts: Spanned<ByteSize>,
    /// Messages in a JSON-RPC batch.
    #[schemars(range(min = 1, max = 1000), extend("default" = 32))]
    batch: Spanned<u64>,
    /// How long a client may take to send its request's headers.
    #[schemars(extend("default" = "10s"))]
    header_read: Spanned<HumanDuration>,
    /// How long a client may take to send its request's body.
    #[schemars(extend("default" = "30s"))]
    body_read: Spanned<HumanDuration>,
    /// How long a client may leave a response unread.
    #[schemars(extend("default" = "30s"))]
    write_stall: Spanned<HumanDuration>,
    /// How long an idle client connection is kept.
    #[schemars(extend("default" = "75s"))]
    keep_alive: Spanned<HumanDuration>,
    /// Open GET and listen streams.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1024))]
    streams: Spanned<u64>,
    /// Calls under way. More are refused with 503.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 10_000))]
    calls: Spanned<u64>,
    /// Requests of one caller in a second; 0 is any number. More are refused with 429. Callers that are nobody are told apart by their
    /// address, here and below.
    #[schemars(range(max = 1_000_000), extend("default" = 0))]
    caller_rate: Spanned<u64>,
    /// Requests that one caller may send at once after a rest; 0 is as many as in a second.
    #[schemars(range(max = 1_000_000), extend("default" = 0))]
    caller_burst: Spanned<u64>,
    /// Calls of one caller under way. More are refused with 429.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    caller_calls: Spanned<u64>,
    /// Open GET and listen streams of one caller; never more than three quarters of `streams`.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 256))]
    caller_streams: Spanned<u64>,
    /// Live tasks of one caller; those of callers without a name count together. More are not begun: 429.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    caller_tasks: Spanned<u64>,
    /// Bytes that requests and answers hold in memory, of all callers. Up to 16 KiB of each are not counted. Beyond, requests are
    /// refused with 503, and answers of agents with an error.
    #[schemars(extend("default" = "256MiB"))]
    bytes: Spanned<ByteSize>,
    /// Those of one caller; never more than three quarters of `bytes`. Beyond, requests are refused with 429.
    #[schemars(extend("default" = "32MiB"))]
    caller_bytes: Spanned<ByteSize>,
    /// Bad credentials from one address in a second, and failed TLS handshakes, which count by
    /// themselves; ten times as many at once. Beyond, for a while, credentials that are not known
    /// to be good are refused with 429 without a check, and connections are closed before a
    /// handshake. 0 is any number: for a gateway behind a proxy that hides addresses.
    #[schemars(range(max = 1_000_000), extend("default" = 10))]
    auth_failures: Spanned<u64>,
    /// A request's header: its path and all lines. Longer ones are refused with 431.
    #[schemars(extend("default" = "32KiB"))]
    header: Spanned<ByteSize>,
    /// Connections of clients, on each listener. More are closed at once.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 10_000))]
    connections: Spanned<u64>,
    /// Of these, connections from one address (of IPv6 from one /64 network). More are closed at
    /// once. 0 is any number: behind a proxy, which is one address. Without it: a tenth of
    /// `connections`, at least 16.
    #[schemars(range(max = 1_000_000))]
    address_connections: Spanned<u64>,
}

impl LimitsFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Limits {
        let default = Limits::default();
        let connections = reading.count(self.connections, 1..=1_000_000, default.connections);
        let share = (connections / 10).max(Limits::LEAST_ADDRESS_CONNECTIONS);
        Limits {
            body: reading.size(self.body, KIB..=GIB, default.body),
            // 128 is where serde_json stops by itself.
            depth: reading.count(self.depth, 8..=120, default.depth),
            response: reading.size(self.response, KIB..=GIB, default.response),
            event: reading.size(self.event, KIB..=GIB, default.event),
            artifacts: reading.size(self.artifacts, KIB..=GIB, default.artifacts),
            batch: reading.count(self.batch, 1..=1000, default.batch),
            header_read: reading.wait(self.header_read, SECOND..=HOUR, default.header_read),
            body_read: reading.wait(self.body_read, SECOND..=HOUR, default.body_read),
            write_stall: reading.wait(self.write_stall, SECOND..=HOUR, default.write_stall),
            keep_alive: reading.wait(self.keep_alive, SECOND..=HOUR, default.keep_alive),
            streams: reading.count(self.streams, 1..=1_000_000, default.streams),
            calls: reading.count(self.calls, 1..=1_000_000, default.calls),
            caller_rate: reading.count(self.caller_rate, 0..=1_000_000, default.caller_rate),
            caller_burst: reading.count(self.caller_burst, 0..=1_000_000, default.caller_burst),
            caller_calls: reading.count(self.caller_calls, 1..=1_000_000, default.caller_calls),
            caller_streams: reading.count(self.caller_streams, 1..=1_000_000, default.caller_streams),
            caller_tasks: reading.count(self.caller_tasks, 1..=1_000_000, default.caller_tasks),
            bytes: reading.size(self.bytes, MIB..=TIB, default.bytes),
            caller_bytes: reading.size(self.caller_bytes, MIB..=TIB, default.caller_bytes),
            auth_failures: reading.count(self.auth_failures, 0..=1_000_000, default.auth_failures),
            header: reading.size(self.header, KIB..=1024 * KIB, default.header),
            connections,
            address_connections: reading.count(self.address_connections, 0..=1_000_000, share),
        }
    }
}
