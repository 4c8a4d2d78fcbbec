//! Every journey through the running binary: a real client, the real gateway, a scripted agent.
//!
//! One file per journey; each test's name is the promise that it keeps. Not here: the kit (`tests/support`).

#[cfg(test)]
mod a2a_bare;
#[cfg(test)]
mod a2a_cards;
#[cfg(test)]
mod a2a_listing;
#[cfg(test)]
mod a2a_names;
#[cfg(test)]
mod a2a_owned;
#[cfg(test)]
mod a2a_passing;
#[cfg(test)]
mod a2a_push;
#[cfg(test)]
mod a2a_push_scene;
#[cfg(test)]
mod a2a_pushed;
#[cfg(test)]
mod a2a_rest;
#[cfg(test)]
mod a2a_scene;
#[cfg(test)]
mod a2a_spelling;
#[cfg(test)]
mod a2a_streams;
#[cfg(test)]
mod a2a_versions;
#[cfg(test)]
mod a2a_webhooks;
#[cfg(test)]
mod a2a_words;
#[cfg(test)]
mod admin;
#[cfg(test)]
mod advisories;
#[cfg(test)]
mod advisories_callers;
#[cfg(test)]
mod advisories_http2;
#[cfg(test)]
mod advisories_versions;
#[cfg(test)]
mod advisories_wire;
#[cfg(test)]
mod agent_floods;
#[cfg(test)]
mod agent_misbehaves;
#[cfg(test)]
mod agent_tokens;
#[cfg(test)]
mod agents;
#[cfg(test)]
mod answer_forms;
#[cfg(test)]
mod answer_here;
#[cfg(test)]
mod answers_lost;
#[cfg(test)]
mod answers_once;
#[cfg(test)]
mod authorizations;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod byte_shares;
#[cfg(test)]
mod call;
#[cfg(test)]
mod callers;
#[cfg(test)]
mod cancel_grace;
#[cfg(test)]
mod cancelling;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod check;
#[cfg(test)]
mod client_floods;
#[cfg(test)]
mod client_leaves;
#[cfg(test)]
mod client_proof;
#[cfg(test)]
mod client_table;
#[cfg(test)]
mod client_wire;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod core_tasks;
#[cfg(test)]
mod counted;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod cross_delivery;
#[cfg(test)]
mod denied_skills;
#[cfg(test)]
mod deviations;
#[cfg(test)]
mod disk_full;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod ejection;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod ended_tokens;
#[cfg(test)]
mod endpoint_limits;
#[cfg(test)]
mod endpoints;
#[cfg(test)]
mod eras;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod ext_tasks;
#[cfg(test)]
mod extensions;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod finding_documents;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod handover;
#[cfg(test)]
mod homes;
#[cfg(test)]
mod http_json;
#[cfg(test)]
mod https;
#[cfg(test)]
mod issuer;
#[cfg(test)]
mod ladder;
#[cfg(test)]
mod large_body;
#[cfg(test)]
mod listen;
#[cfg(test)]
mod log_text;
#[cfg(test)]
mod log_unread;
#[cfg(test)]
mod loose_ends;
#[cfg(test)]
mod lost_tasks;
#[cfg(test)]
mod manifest_secrets;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod odd_answers;
#[cfg(test)]
mod origin;
#[cfg(test)]
mod outbound;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod path_ids;
#[cfg(test)]
mod push;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod questions_in_parts;
#[cfg(test)]
mod questions_on_stream;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod quiz;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod room;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod same_questions;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod seen;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod signatures;
#[cfg(test)]
mod stalled;
#[cfg(test)]
mod start;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod subagents;
#[cfg(test)]
mod subscriptions;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod taken_questions;
#[cfg(test)]
mod task_life;
#[cfg(test)]
mod tasks_seen;
#[cfg(test)]
mod tls_certificates;
#[cfg(test)]
mod tls_clients;
#[cfg(test)]
mod tls_cost;
#[cfg(test)]
mod tls_readme;
#[cfg(test)]
mod tls_reload;
#[cfg(test)]
mod tls_scene;
#[cfg(test)]
mod tls_weak;
#[cfg(test)]
mod token_bound;
#[cfg(test)]
mod token_claims;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod transport;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod v0_1;
#[cfg(test)]
mod versions;
