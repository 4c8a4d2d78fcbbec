//! The bridge between MCP clients and A2A agents.
//!
//! The translation core (`jsonrpc`, `sse`, `mcp`, `a2a`, `fault`, `seal`, `bridge`) is pure: no I/O, no clock, no
//! randomness. It builds with `--no-default-features`, so the compiler proves it. Everything that touches the network
//! sits behind the default feature `gateway`.

pub mod a2a;
pub mod bridge;
pub mod fault;
pub mod jsonrpc;
pub mod mcp;
pub mod seal;
pub mod sse;

#[cfg(feature = "gateway")]
pub mod telemetry;
#[cfg(feature = "gateway")]
pub mod tls;
#[cfg(feature = "gateway")]
pub mod transport;
