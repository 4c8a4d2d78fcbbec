//! The grammar of `text/event-stream` (W3C server-sent events): decoding of chunks of any size, and
//! encoding.
//!
//! Pure. Out of scope: the meaning of the events, the end of a stream, keep-alive.

mod decoder;
pub mod encoder;

pub use decoder::EventTooLarge;
pub use decoder::{Decoder, Event};
