//! The agents behind the gateway: their cards, how each is reached, and one call to one of them.
//!
//! [`Directory`] holds them all and keeps their cards fresh in the background; [`Drive`] is a call that is under way. Not here:
//! MCP, tools (see `bridge`), what becomes of a call whose client left (see `follow`).

mod along;
mod breaker;
mod call;
mod directory;
mod drive;
mod ear;
mod endpoints;
mod extension;
mod fetch;
mod health;
mod homes;
mod interface;
mod judge;
mod kept;
mod known;
mod pass;
mod reach;
mod refresh;
mod rpc;
mod seek;
mod showing;
mod signature;
mod signers;
mod standing;
mod stream;
mod turn;

pub use along::ForwardedContext;
pub use call::{AgentOperation, CallLimits, FollowUpMessage, KnownQuestions, WebhookTarget, start};
pub use directory::{Agent, Directory};
pub use drive::{Bearing, DetachableCall, DriveEvent};
pub use extension::DeclaredExtension;
pub use fetch::{CardFetchError, FetchedCard};
pub use judge::is_away;
pub use known::ResolvedAgent;
pub use pass::{ForwardRequest, ForwardedResponse, forward};
pub use rpc::get_task as look;
pub use standing::EndpointState;
