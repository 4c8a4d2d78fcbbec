//! Journeys through the running binary: a real client, the real gateway, a scripted agent.
//!
//! A folder per subject, a file per journey. Scenes that several journeys share are in `kit`; a few
//! journeys lend a function to others (`auth::rules`). File names are unique across the folders, so
//! that `cargo test --test gateway rules::` runs one file. Out of scope: the tools that scenes are
//! built from (`tests/support`).

// Always true here. Clippy takes it as a sign that functions beside the tests are tests as well.
#![cfg(test)]

mod a2a;
mod agents;
mod auth;
mod kit;
mod mcp;
mod operations;
mod security;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod tls;
