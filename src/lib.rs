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
//! 6. If the agent asks, its question becomes one that this client can put to its user ([`bridge::question`]); the answer is
//!    judged ([`bridge::given`]) and said in the same task, once.
//! 7. If the client leaves or its patience ends first ([`bridge::ladder`]), `follow` keeps the drive, and the task goes into the
//!    map of `tasks`: a cache, kept on disk if the operator wants that. The sealed handle that the client holds ([`seal`]) leads
//!    back to it, and through the map or, failing that, by asking the agent, to the result.
//! 8. Whoever watches a task reads it from the map; an agent that pushes, or a stream that broke off, only makes `follow` look.

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
mod alarm;
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
pub mod quota;
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
