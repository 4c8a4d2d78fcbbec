//! Agents: cards, versions, bindings, endpoints, manifests, and behaviour that no specification
//! allows.

mod agent_cards;
mod agent_misbehaves;
mod causes;
mod deviations;
mod ejection;
mod endpoints;
mod extensions;
mod fallback;
pub(crate) mod files;
mod grpc;
mod homes;
mod http_json;
mod http_json_0_3;
mod manifest_secrets;
mod manifests;
mod moving;
mod odd_answers;
mod outputs;
mod queue;
mod sources;
mod specified_manifests;
mod transport;
mod v0_1;
mod versions;
