//! The product, pure: agents as tools, calls as messages, events as notifications, tasks as results.
//!
//! No I/O, no clock, no randomness: whatever varies is an argument. The journey of a call: [`catalogue`] finds the tool,
//! [`arguments`] reads what the model wrote, [`order`] makes the A2A message, [`work`] takes in what the agent says,
//! [`outcome`] makes the result. Not here: any wire form (see `mcp`, `a2a`), talking to anybody.

pub mod arguments;
pub mod catalogue;
pub mod content;
pub mod earlier;
mod entry;
mod envelope;
pub mod extension;
pub mod finding;
pub mod given;
mod handle;
mod judge;
pub mod ladder;
mod members;
pub mod names;
pub mod order;
pub mod outcome;
mod own;
mod page;
pub mod progress;
pub mod question;
pub mod registry;
pub mod resources;
pub mod status;
pub mod subagent;
pub mod view;
pub mod work;
