//! Authentication and authorization: callers, rules, tokens, and the credentials that agents get.

pub(crate) mod agent_tokens;
pub(crate) mod callers;
mod certificates;
mod client_proof;
mod credentials;
mod denied_skills;
mod ended_tokens;
mod exchange;
pub(crate) mod rotation;
pub(crate) mod rules;
mod token_bound;
mod token_claims;
pub(crate) mod tokens;
