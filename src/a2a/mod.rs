//! The protocol of the agents: A2A, every version, in one model.
//!
//! Pure: no I/O, no clock, no randomness. The canonical model is shaped like A2A 1.0; every other
//! version is a codec at the edge. Code outside this folder does not depend on the version of an
//! agent; it only passes a [`Dialect`] back in. Out of scope: MCP, the mapping of tool calls (see
//! `bridge`), fetching.

mod artifacts;
mod binding;
mod card;
mod decode;
mod dialect;
mod encode;
mod error;
pub mod grpc;
mod input_request;
mod lenient;
mod model;
mod operation;
mod proto_json;
mod push;
mod request;
mod sanitize;
pub mod translate;

pub use artifacts::ArtifactLimitExceeded;
pub use artifacts::{Artifacts, TextChange};
pub use binding::BoundRequest;
pub use card::{
    AgentCard, AgentInterface, ApiKeyLocation, CanonicalForm, CardError, CardSignature, MAX_SKILLS,
    SchemeKind, SecurityRequirement, SecurityScheme, SignedCard, SignedContent, VerifiedSignature,
};
pub use card::{AgentExtension, AgentSkill, InterfaceCandidate, InterfacePin};
pub(crate) use card::{MAX_CARD_BYTES, skill_id};
pub use decode::read_task;
pub(crate) use dialect::bindings_of;
pub use dialect::{Dialect, ProbeOutcome, ProbeRequest};
pub(crate) use encode::EncodedParts;
pub use encode::task_json;
pub use error::{AgentError, ErrorKind};
pub use input_request::AnswerForm;
pub use input_request::{Content, Fingerprint};
pub(crate) use input_request::{InputItem, fingerprint, stamp_of, wording};
pub(crate) use input_request::{canonical, is_wording};
pub use lenient::depth_within;
pub use model::{
    Artifact, Message, Part, PartBody, Role, StreamResponse, Task, TaskHistory, TaskState, TaskStatus, uuid,
};
pub use operation::Operation;
pub(crate) use operation::percent_encoded;
pub use operation::{Binding, PathSegmentError};
pub(crate) use push::{MAX_PUSH_BYTES, matches_token};
pub use push::{PUSH_TOKEN, PushNotificationConfig, accepts, push_task_id, validation_echo};
pub use request::OperationRequest;
pub use sanitize::clean;
pub(crate) use sanitize::clean_line;
pub(crate) use translate::context_of;
