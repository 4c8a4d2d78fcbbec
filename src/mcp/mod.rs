//! The protocol of the clients: MCP, every revision, over Streamable HTTP.
//!
//! Pure. Shapes, names and rules of the wire: revisions and eras, headers, methods, params,
//! results. Two eras have two serializers (`result_writer`): a legacy result cannot carry
//! `resultType`, a modern one cannot lack it. Out of scope: A2A, the mapping of tool calls (see
//! `bridge`), sessions (see `gateway`).

pub mod classify;
pub mod elicitation;
pub mod lifecycle;
pub mod notifications;
pub mod params;
pub(crate) mod resources;
pub mod result_writer;
pub(crate) mod tasks;
pub mod tools;
pub mod version;

pub use lifecycle::ClientCapabilities;
pub use params::{ClientParams, ClientSoftware};
pub use version::{Era, Method, Version};
