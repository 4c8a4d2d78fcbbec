//! JSON-RPC 2.0 grammar: what bytes are one message, and what an answer looks like.
//!
//! Pure. Knows neither MCP nor A2A: what a method is called and what its params mean is for the layers above.

mod answer;
mod id;
mod incoming;
mod names;
mod scan;
mod text;

pub use answer::{write_error, write_notification, write_request, write_result};
pub use id::Id;
pub use incoming::{
    Message, MessageKind, ParseError, RawParams, elements, is_batch, parse, parse_envelope, parse_raw,
    recover_id,
};
pub use names::{Scan, each_name};
pub use scan::{Malformed, well_formed};
pub use text::{Object, Text};
