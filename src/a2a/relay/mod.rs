//! Between an A2A client and an A2A agent: what one of them says, as the other understands it.
//!
//! Pure. Of one version, only ids are replaced and every other byte stays (`splice`); of two, what is said is read into the
//! canonical model and written again. Not here: which ids a client may name, HTTP, sending.

mod answer;
mod ask;
mod operation;
mod pushed;
mod refusal;
mod request;
mod route;
mod splice;
mod tell;
mod webhook;

pub use answer::AgentResponse;
pub use operation::{Operation, OperationError};
pub use pushed::PushPayload;
pub use refusal::RpcError;
pub use request::{BadParams, ClientRequest};
pub use route::{EXTENDED_CARD_OF_0_2, to_json_rpc};
pub use splice::{IdKind, RewriteError, params as splice_params, result as splice_result};
pub use tell::ResponseTranslator;
pub use webhook::{PushAuthentication, PushConfig};
