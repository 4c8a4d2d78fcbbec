//! The test kit: a scripted agent, the real gateway as a child process, and a client that shows
//! every byte's effect.
//!
//! Nothing here sleeps to wait for something, and no port is fixed: a test waits for a condition
//! under a deadline, or gives a [`Signal`]. Nothing here uses the gateway's own code, so a mistake
//! there cannot hide itself. Out of scope: the journeys (see `tests/gateway`).

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of the kit")]
#![allow(unreachable_pub, reason = "a module of test binaries, not an API")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a kit that fails loudly; the exemption for tests reaches only functions marked as tests"
)]

pub mod agent;
pub mod card;
pub mod certs;
pub mod client;
pub mod events;
pub mod gateway;
pub mod grpc;
pub mod payload;
mod player;
pub mod reply;
pub mod session;
pub mod signal;
pub mod tasks;
pub mod wire;

mod proofs;

use std::time::Duration;

pub use agent::{Log, ScriptedAgent};
pub use card::Card;
pub use certs::{Authority, Identity};
pub use client::{Answer, McpClient};
pub use events::SseEvent;
pub use gateway::{Ports, TestGateway, free_port};
pub use reply::{Reply, in_order};
pub use session::LegacySession;
pub use signal::Signal;
pub use wire::Request;

/// How long anything may take before a test fails. Generous: the machine may be busy, and a pass
/// never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Awaits under the deadline; `what` says in the failure what did not happen.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}
