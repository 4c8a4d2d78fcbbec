//! Abuse: published advisories, floods, limits, browsers, addresses, secrets and signatures.

mod advisories;
mod advisories_callers;
mod advisories_http2;
mod advisories_versions;
mod advisories_wire;
mod agent_floods;
mod byte_shares;
mod client_floods;
mod egress;
mod memory;
mod origin;
mod outbound;
mod path_ids;
mod resource_owners;
mod secrets;
mod shares;
mod signatures;
