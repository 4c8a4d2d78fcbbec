//! The agent's language: A2A, every version, as one vocabulary.
//!
//! Pure: no I/O, no clock, no randomness. The canonical model is shaped like A2A 1.0; every other version is a codec at
//! the edge. Nothing outside this folder asks which version an agent speaks beyond handing a [`Dialect`] back in.
//! Not here: MCP, what a tool call becomes (see `bridge`), fetching anything.

mod model;

pub use model::{Artifact, Event, Message, Part, PartBody, Role, State, Status, Task};
