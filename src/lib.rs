//! The bridge between MCP clients and A2A agents.
//!
//! The translation core (`jsonrpc`, `sse`, `mcp`, `a2a`, `fault`, `seal`, `bridge`) is pure: no I/O, no clock, no
//! randomness. It builds with `--no-default-features`, so the compiler proves it. Everything that touches the network
//! sits behind the default feature `gateway`.
//!
//! # The journey of one request
//!
//! 1. `server` accepts the connection (Pingora: TLS, HTTP/1.1 and HTTP/2) and hands the request to `gateway`, which checks
//!    `Host` and `Origin`, then reads the body under a limit and a deadline.
//! 2. [`jsonrpc`] and [`mcp::classify`] say what it is, of which era, and whether headers and body agree.
//! 3. Most methods are answered from the [`bridge::catalogue`]. A `tools/call` becomes an order ([`bridge::arguments`],
//!    [`bridge::order`]).
//! 4. `agents` carries it out through `transport`: one owned drive, which says the message once and listens until the agent has
//!    said its last word.
//! 5. What the agent says is put together in [`bridge::work`], told as progress while it flows, and at the end becomes a result
//!    ([`bridge::outcome`]).
//! 6. If the client leaves or its patience ends first, `follow` keeps the drive, and the handle that the client holds leads back
//!    to it.

pub mod a2a;
pub mod bridge;
pub mod fault;
pub mod jsonrpc;
pub mod mcp;
pub mod seal;
pub mod sse;

#[cfg(feature = "gateway")]
pub mod admin;
#[cfg(feature = "gateway")]
pub mod agents;
#[cfg(feature = "gateway")]
pub mod auth;
#[cfg(feature = "gateway")]
pub mod cli;
#[cfg(feature = "gateway")]
pub mod config;
#[cfg(feature = "gateway")]
pub mod demo;
#[cfg(feature = "gateway")]
pub mod follow;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
pub mod server;
#[cfg(feature = "gateway")]
pub mod tasks;
#[cfg(feature = "gateway")]
pub mod telemetry;
#[cfg(feature = "gateway")]
pub mod tls;
#[cfg(feature = "gateway")]
pub mod transport;
