//! The protocol of the agents: A2A, every version, in one model.
//!
//! Pure: no I/O, no clock, no randomness. The canonical model is shaped like A2A 1.0; every other
//! version is a codec at the edge. Code outside this folder does not depend on the version of an
//! agent; it only passes a [`Dialect`] back in. Out of scope: MCP, the mapping of tool calls (see
//! `bridge`), fetching.

mod answer;
mod artifacts;
mod binding;
mod card;
mod conversation;
mod decode;
mod depth;
mod dialect;
mod encode;
mod error;
mod history;
mod id;
mod input_request;
mod legacy_parts;
mod lenient;
mod model;
mod probe;
mod push;
mod sanitize;
pub mod translate;
mod v0_1;
mod v0_3;
mod v1;
mod write;

pub use answer::AnswerForm;
pub use artifacts::{ArtifactLimitExceeded, Artifacts, TextChange};
pub(crate) use binding::percent_encoded;
pub use binding::{Binding, BoundRequest, PathSegmentError};
pub use card::{
    AgentCard, AgentExtension, AgentInterface, AgentSkill, ApiKeyLocation, CanonicalForm, CardError,
    CardSignature, InterfaceCandidate, MAX_CARD_BYTES, MAX_SKILLS, SchemeKind, SecurityRequirement,
    SecurityScheme, SignedCard, SignedContent, VerifiedSignature, skill_id,
};
pub use conversation::context_of;
pub use depth::{MAX_DEPTH, depth_within};
pub use dialect::{Dialect, OperationRequest};
pub use error::{AgentError, ErrorKind};
pub use history::TaskHistory;
pub use id::uuid;
pub use input_request::{Content, Fingerprint, InputHints, InputItem, fingerprint, stamp_of, wording};
pub(crate) use input_request::{canonical, is_wording};
pub use model::{Artifact, Message, Part, PartBody, Role, StreamResponse, Task, TaskState, TaskStatus};
pub use probe::{ProbeOutcome, ProbeRequest};
pub use push::{
    MAX_PUSH_BYTES, PUSH_TOKEN, PushNotificationConfig, accepts, matches_token, push_task_id, validation_echo,
};
pub use sanitize::clean;
pub(crate) use sanitize::clean_line;
pub use write::{EncodedParts, read_task, task_json};
