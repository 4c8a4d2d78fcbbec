//! The gateway between MCP clients and A2A agents.
//!
//! The translation core (`jsonrpc`, `sse`, `mcp`, `a2a`, `fault`, `seal`, `bridge`) is pure: no
//! I/O, no clock, no randomness. It builds with `--no-default-features`, so the compiler proves it.
//! All code that touches the network is behind the default feature `gateway`.
//!
//! # The journey of one request
//!
//! 1. `server` accepts the connection (Pingora: TLS, HTTP/1.1 and HTTP/2) and passes the request to
//!    `gateway`, which checks `Host` and `Origin`, then reads the body under a limit and a
//!    deadline.
//! 2. [`jsonrpc`] and [`mcp::classify`] determine its kind and era, and check that headers and body
//!    agree.
//! 3. Most methods are answered from the [`bridge::catalogue`]. A `tools/call` becomes an agent
//!    action ([`bridge::arguments`], [`bridge::agent_action`]).
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
pub mod jsonrpc;
pub mod mcp;
pub mod seal;
pub mod sse;

#[cfg(feature = "gateway")]
mod a2a_server;
#[cfg(feature = "gateway")]
mod access;
#[cfg(feature = "gateway")]
mod admin;
#[cfg(feature = "gateway")]
pub mod agents;
#[cfg(feature = "gateway")]
mod alarm;
#[cfg(feature = "gateway")]
pub mod auth;
#[cfg(feature = "gateway")]
mod backoff;
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
#[cfg(feature = "gateway")]
pub mod follow;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
mod http_edge;
#[cfg(feature = "gateway")]
mod limits;
#[cfg(feature = "gateway")]
mod mcp_server;
#[cfg(feature = "gateway")]
mod push_receiver;
#[cfg(feature = "gateway")]
pub mod quota;
#[cfg(feature = "gateway")]
mod server;
#[cfg(feature = "gateway")]
mod sessions;
#[cfg(feature = "gateway")]
mod sync;
#[cfg(feature = "gateway")]
pub mod tasks;
#[cfg(feature = "gateway")]
pub mod telemetry;
#[cfg(feature = "gateway")]
pub mod tls;
#[cfg(feature = "gateway")]
pub mod transport;
