//! Scenes that many journeys share: an agent, the gateway in front of it, and its clients.
//!
//! Out of scope: the tools that a scene is built from (`tests/support`).

pub(crate) mod a2a_push_scene;
pub(crate) mod a2a_scene;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod grpc_call;
pub(crate) mod issuer;
pub(crate) mod quiz;
pub(crate) mod scene;
pub(crate) mod stdio_host;
pub(crate) mod tls_scene;
