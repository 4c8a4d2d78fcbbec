//! MCP clients: requests, calls, sessions, streams, lists and searches.

mod answer_here;
mod bad_input;
mod batches;
mod bounds;
mod call;
mod client_http2;
mod client_leaves;
mod client_table;
mod client_wire;
mod cross_delivery;
mod endpoint_limits;
mod eras;
pub(crate) mod finding;
mod http_resources;
mod ladder;
mod large_body;
mod listen;
mod memory_bank;
mod prompts;
mod resources;
mod sessions;
mod static_resources;
mod stdio;
mod stream;
mod subagents;
mod subscriptions;
