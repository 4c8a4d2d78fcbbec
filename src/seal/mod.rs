//! Sealed handles: every string that a client holds and hands back (task, context, session, cursor, request state).
//!
//! Pure: no I/O, no clock, no randomness; a nonce is an argument. AES-SIV (RFC 5297) under a key derived from the
//! configured secret, bound to a [`Purpose`] and to the caller's stable name, so a handle can be neither guessed, forged,
//! put to another use, nor used by another caller; and any replica with the same secret reads it.
//! Not here: what a caller is (see `auth`), whether a handle's task still exists, expiry (whoever opens a
//! [`SessionTicket`] or a [`RequestState`] compares its times).

mod handles;
mod payload;
mod push_token;
mod request_state;
mod sealer;
mod ticket;
mod webhook_token;

pub use handles::{AgentTaskId, ContextHandle, ContextRef, LocalRef, MAX_HANDLE, TaskHandle, TaskRef};
pub use push_token::PushTicket;
pub use request_state::{ElicitationTicket, RequestState, TaskKey};
pub use sealer::{MAX_TOKEN, NoKey, Sealer, TokenPurpose};
pub use ticket::{ListKind, PageCursor, SessionTicket};
pub use webhook_token::{MAX_WEBHOOK_URL, WebhookAuthentication, WebhookTicket};
