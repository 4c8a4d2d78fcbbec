//! The grammar of `text/event-stream` (W3C server-sent events): reading it however it is cut, and writing it.
//!
//! Pure. Not here: what the events mean, when a stream has ended, keep-alive.

mod decoder;
pub mod encoder;

pub use decoder::{Decoder, Event, EventTooLarge};
