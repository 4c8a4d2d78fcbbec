//! The product, pure: agents as tools, calls as messages, events as notifications, tasks as results.
//!
//! No I/O, no clock, no randomness: whatever varies is an argument. The journey of a call: [`catalogue`] finds the tool,
//! [`arguments`] reads what the model wrote, [`order`] makes the A2A message, [`work`] takes in what the agent says,
//! [`outcome`] makes the result. Not here: any wire form (see `mcp`, `a2a`), talking to anybody.

pub mod agent_action;
pub mod arguments;
mod auth_url;
mod builtin_tool;
pub mod catalogue;
pub mod content;
pub mod earlier;
pub mod elicitation;
mod envelope;
pub mod extension;
mod handle;
mod judge;
pub mod output;
pub mod progress;
pub mod registry;
pub mod resource_uri;
pub mod resource_view;
pub mod response_mode;
pub mod search;
pub mod task_status;
pub mod task_tools;
mod tool_entry;
pub mod tool_names;
pub mod tool_result;
mod unique_object;
pub mod user_response;
