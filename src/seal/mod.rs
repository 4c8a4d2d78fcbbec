//! Sealed handles: every string that a client holds and hands back (task, context, session, cursor,
//! request state).
//!
//! Pure: no I/O, no clock, no randomness; a nonce is an argument. AES-SIV (RFC 5297) under a key
//! derived from the configured secret, bound to a [`TokenPurpose`] and to the caller's stable name.
//! So a handle cannot be guessed, forged, used for another purpose or used by another caller, and
//! any replica with the same secret can read it. Out of scope: callers (see `auth`), the existence
//! of a handle's task, expiry (the caller of `open` compares the times of a [`SessionTicket`] or a
//! [`RequestState`]).

mod handles;
mod sealer;
mod tickets;

pub use handles::{AgentTaskId, ContextHandle, ContextRef, LocalRef, TaskHandle, TaskRef};
pub use sealer::{MAX_TOKEN, NoKey, Sealer, TokenPurpose};
pub use tickets::ListKind;
pub use tickets::PushTicket;
pub use tickets::{ElicitationTicket, RequestState, TaskKey};
pub(crate) use tickets::{MAX_WEBHOOK_URL, WebhookAuthentication, WebhookTicket};
pub use tickets::{PageCursor, SessionTicket};
