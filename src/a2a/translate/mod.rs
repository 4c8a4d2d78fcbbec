//! Translation between an A2A client and an A2A agent.
//!
//! Pure. Within one version, only ids are replaced and every other byte stays (`rewrite_ids`);
//! between two, messages are decoded into the canonical model and encoded again. Out of scope: the
//! ids that a client may name, HTTP, sending.

mod decode_request;
mod decode_response;
mod encode_request;
mod encode_response;
mod error;
mod http_json;
mod operation;
mod push_config;
mod push_payload;
mod rewrite_ids;

pub use decode_request::{BadParams, ClientRequest};
pub use decode_response::AgentResponse;
pub use encode_response::ResponseTranslator;
pub use error::RpcError;
pub use http_json::{EXTENDED_CARD_OF_0_2, to_json_rpc};
pub use operation::{Operation, OperationError};
pub use push_config::{PushAuthentication, PushConfig};
pub use push_payload::PushPayload;
pub use rewrite_ids::{IdKind, RewriteError, params as splice_params, result as splice_result};
