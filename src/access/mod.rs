//! Access: authenticates the caller of a request, and authorizes what the request does.
//!
//! Authentication and rules themselves are in `auth`, which knows no HTTP request of the gateway.

mod authenticate;
mod authorize;
mod oauth_metadata;

pub(crate) use authenticate::{RequestAuthenticator, subject_token};
pub(crate) use authorize::{Authorizer, Requester, TaskMessage, ToolUse};
pub(crate) use oauth_metadata::OAuthMetadata;
