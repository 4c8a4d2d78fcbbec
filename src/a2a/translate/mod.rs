//! Translation between an A2A client and an A2A agent.
//!
//! Pure. Within one version, only ids are replaced and every other byte stays (`rewrite_ids`);
//! between two, messages are decoded into the canonical model and encoded again. Out of scope: the
//! ids that a client may name, HTTP, sending.

mod http_json;
mod push_payload;
mod request;
mod response;
mod rewrite_ids;

pub(crate) use self::http_json::{HttpAnswer, from_proto_json, to_json_rpc, to_proto_json};
pub(crate) use self::push_payload::PushPayload;
pub use self::request::BadParams;
pub use self::request::ClientRequest;
pub(crate) use self::request::context_of;
pub use self::response::{AgentResponse, ResponseTranslator};
pub(crate) use self::response::{event_json, read_event};
pub use self::rewrite_ids::{IdKind, RewriteError, params as splice_params, result as splice_result};
pub use super::error::RpcError;
pub use super::operation::Operation;
pub use super::operation::OperationError;
pub(crate) use super::operation::{EXTENDED_CARD_OF_0_2, RouteMatch, RouteParam};
