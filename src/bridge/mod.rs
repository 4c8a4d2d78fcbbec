//! The mapping between MCP and A2A: agents as tools, calls as messages, events as notifications,
//! tasks as results.
//!
//! Pure: no I/O, no clock, no randomness; time and random bytes are arguments. The steps of a call:
//! [`catalogue`] finds the tool, [`arguments`] reads the model's input, `agent_action` makes the
//! A2A message, `output` collects the agent's events, `tool_result` makes the result. Out of scope:
//! wire formats (see `mcp`, `a2a`), communication.

pub mod agent_action;
pub mod arguments;
pub mod catalogue;
pub(crate) mod content;
pub mod elicitation;
pub mod extension;
mod handle;
pub mod output;
pub mod provider_tools;
pub(crate) mod resource_uri;
pub(crate) mod resource_view;
pub(crate) mod response_mode;
pub(crate) mod search;
pub mod task_status;
pub mod task_tools;
pub mod tool_result;
pub mod user_response;
