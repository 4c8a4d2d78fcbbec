//! JSON-RPC 2.0 grammar: what bytes are one message, and what an answer looks like.
//!
//! Pure. Knows neither MCP nor A2A: what a method is called and what its params mean is for the layers above.

mod id;
mod incoming;
mod member_names;
mod precheck;
mod text;
mod write;

pub use id::Id;
pub use incoming::{
    Message, MessageKind, ParseError, RawParams, elements, is_batch, parse, parse_envelope, parse_raw,
    recover_id,
};
pub use member_names::{Scan, each_name};
pub use precheck::{Malformed, well_formed};
pub use text::{Object, Text};
pub use write::{write_error, write_notification, write_request, write_result};
