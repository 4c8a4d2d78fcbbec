//! A gateway between MCP clients and A2A agents, as a library.
//!
//! MCP clients of any revision call the skills of A2A agents of any version as tools, follow their
//! tasks and answer their questions. The binary `mcp-a2a-gateway` is this library with a command
//! line ([`cli`]). A program with a Pingora proxy of its own embeds a [`Gateway`](gateway::Gateway):
//! it passes each request on first, and serves those that the gateway does not handle.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use mcp_a2a_gateway::gateway::{Gateway, Handled};
//! use mcp_a2a_gateway::{config, tls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Every problem of the file at once, each with line and remedy.
//! let settings = config::load(Path::new("gateway.yaml"))?;
//! tls::install_provider();
//! let (gateway, background) = Gateway::new(settings)?;
//!
//! let mut server = pingora::server::Server::new(None)?;
//! server.bootstrap();
//! // Cards and tasks: without this service the gateway knows no agents.
//! let cards = pingora::services::background::background_service("gateway", background);
//! server.add_service(cards);
//! # Ok(())
//! # }
//!
//! // In the `request_filter` of the program's proxy:
//! async fn filter(gateway: &Gateway, http: &mut pingora::proxy::Session) -> bool {
//!     gateway.handle(http).await == Handled::Served
//! }
//! ```
//!
//! `examples/embed.rs` is a whole program. The public interface is [`gateway`], [`config`], [`cli`],
//! [`tls::install_provider`] and the translation core below; the feature `testing` makes further
//! modules public for the tests of this repository.
//!
//! # The translation core
//!
//! [`jsonrpc`], [`sse`], [`mcp`], [`a2a`], [`fault`], [`seal`] and [`bridge`] are pure: no I/O, no
//! clock, no randomness. They build with `--no-default-features`, so the compiler proves it. All
//! code that touches the network is behind the default feature `gateway`.
//!
//! # The journey of one request
//!
//! 1. `server` accepts the connection (by Pingora), reads its requests, and passes each to
//!    [`gateway`], which selects the server for its path. `http_edge` checks `Host` and `Origin`, and
//!    reads the body under a limit and a deadline; `access` authenticates the caller. `stdio` makes
//!    such a request of each message on standard input.
//! 2. [`jsonrpc`] and [`mcp::classify`] determine its kind and era, and check that headers and body
//!    agree.
//! 3. `mcp_server` answers most methods from the [`bridge::catalogue`]. A `tools/call` becomes, in
//!    `calls`, an agent action ([`bridge::arguments`], [`bridge::agent_action`]).
//! 4. `agents` runs it through `transport`: one detachable call, which sends the message once and
//!    reads events until the agent has reported a final state.
//! 5. The events are collected in [`bridge::output`] and sent as progress while they arrive; at the
//!    end they become a result ([`bridge::tool_result`]).
//! 6. If the agent asks a question, it becomes an elicitation for the user of this client
//!    ([`bridge::elicitation`]); the answer is validated ([`bridge::user_response`]) and sent in
//!    the same task, once.
//! 7. If the client leaves or its waiting time ends first (`bridge::response_mode`), `follow`
//!    keeps the call, and the task goes into the map of `tasks`: a cache, kept on disk if the
//!    operator wants that. The sealed handle of the client ([`seal`]) leads back to the task, and
//!    through the map or, failing that, by a request to the agent, to the result.
//! 8. Watchers read a task from the map; a push of the agent, or a stream that broke off, only
//!    makes `follow` refresh the task.

// The feature `testing` makes modules public for the tests and benches of this repository.
#![cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "public for tests alone"))]
#![cfg_attr(
    not(feature = "gateway"),
    allow(
        dead_code,
        unused_imports,
        reason = "what only the gateway uses of the core is no part of its interface"
    )
)]

pub mod a2a;
pub mod bridge;
pub mod fault;
mod hex;
pub mod jsonrpc;
pub mod mcp;
mod protobuf;
pub mod seal;
pub mod sse;

#[cfg(feature = "gateway")]
mod a2a_server;
#[cfg(feature = "gateway")]
mod access;
#[cfg(feature = "gateway")]
mod admin;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod agents;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod agents;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod auth;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod auth;
#[cfg(feature = "gateway")]
mod batch;
#[cfg(feature = "gateway")]
mod calls;
#[cfg(feature = "gateway")]
pub mod cli;
#[cfg(feature = "gateway")]
pub mod config;
#[cfg(feature = "gateway")]
mod demo;
#[cfg(feature = "gateway")]
mod discovery;
#[cfg(feature = "gateway")]
mod file_watcher;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod follow;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod follow;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
mod http_edge;
#[cfg(feature = "gateway")]
mod limits;
#[cfg(feature = "gateway")]
mod mcp_server;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod memory;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod memory;
#[cfg(feature = "gateway")]
mod otlp;
#[cfg(feature = "gateway")]
mod push_receiver;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod quota;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod quota;
#[cfg(feature = "gateway")]
mod resources;
#[cfg(feature = "gateway")]
mod server;
#[cfg(feature = "gateway")]
mod sessions;
#[cfg(feature = "gateway")]
mod shared_state;
#[cfg(feature = "gateway")]
mod stdio;
#[cfg(feature = "gateway")]
mod sync;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod tasks;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod tasks;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod telemetry;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod telemetry;
#[cfg(feature = "gateway")]
mod timing;
#[cfg(feature = "gateway")]
pub mod tls;
#[cfg(feature = "gateway")]
mod tls_stream;
#[cfg(all(feature = "gateway", not(feature = "testing")))]
mod transport;
#[cfg(all(feature = "gateway", feature = "testing"))]
pub mod transport;
