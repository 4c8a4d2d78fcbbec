//! The agents behind the gateway: their cards, their routes, and one call to one of them.
//!
//! [`Directory`] holds them all and refreshes their cards in the background; [`DetachableCall`] is
//! a call that is under way. Out of scope: MCP, tools (see `bridge`), a call that its client has
//! left (see `follow`).

mod agent;
mod breaker;
mod call;
mod card_fetch;
mod credentials;
mod directory;
mod drive;
mod endpoints;
mod forward;
mod grpc;
mod locate;
mod request_head;
mod resolved;
mod rpc;
#[cfg(test)]
mod scripted;
mod stream;

pub use agent::{Agent, DeclaredExtension, EndpointState};
pub use call::start;
pub use card_fetch::CardFetchError;
pub(crate) use directory::AgentUpkeep;
pub use directory::Directory;
pub use drive::{Bearing, DetachableCall, DriveEvent};
pub(crate) use endpoints::{AffinityId, EndpointSharing};
pub(crate) use forward::AgentFile;
pub use forward::{ForwardRequest, ForwardedResponse, forward};
pub use locate::get_task as look;
pub use resolved::ResolvedAgent;
pub use rpc::{AgentOperation, CallLimits, FollowUpMessage, ForwardedContext, KnownQuestions, WebhookTarget};
#[cfg(test)]
pub(crate) use scripted::{ScriptedAgent, ScriptedExchange};
