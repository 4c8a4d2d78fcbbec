//! JSON-RPC 2.0: parsing and encoding of messages.
//!
//! Pure. Out of scope: MCP and A2A; the layers above define methods and their params.

mod id;
mod message;
mod scan;
mod text;

pub use id::Id;
pub use message::{
    Message, MessageKind, ParseError, RawParams, elements, is_batch, parse, parse_envelope, parse_raw,
    recover_id, write_error, write_notification, write_request, write_result,
};
pub use scan::{Malformed, Scan, each_name, well_formed};
pub use text::{Object, Text};
