//! JSON-RPC 2.0: parsing and encoding of messages.
//!
//! Pure. Out of scope: MCP and A2A; the layers above define methods and their params.

mod id;
mod message;
#[cfg(feature = "gateway")]
pub(crate) mod raw_object;
mod scan;
mod text;

pub use id::Id;
pub use message::{
    Message, MessageKind, elements, is_batch, parse, parse_envelope, recover_id, write_error, write_result,
};
pub use message::{ParseError, RawParams};
pub(crate) use message::{parse_raw, write_notification, write_request};
pub use scan::{Malformed, Scan, each_name, well_formed};
pub use text::{Object, Text};
