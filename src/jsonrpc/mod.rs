//! JSON-RPC 2.0: parsing and encoding of messages.
//!
//! Pure. Out of scope: MCP and A2A; the layers above define methods and their params.

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
