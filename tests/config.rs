//! The configuration as an operator meets it: files in, settings or the whole list of problems out.

// Always true here. Clippy takes it as a sign that functions beside the tests are tests as well.
#![cfg(test)]

#[path = "config/agent_defaults.rs"]
mod agent_defaults;
#[path = "config/auth_problems.rs"]
mod auth_problems;
#[path = "config/credentials.rs"]
mod credentials;
#[path = "config/defaults.rs"]
mod defaults;
#[path = "config/desk.rs"]
mod desk;
#[path = "config/include.rs"]
mod include;
#[path = "config/manifest_problems.rs"]
mod manifest_problems;
#[path = "config/manifests.rs"]
mod manifests;
#[path = "config/problems.rs"]
mod problems;
#[path = "config/prompts.rs"]
mod prompts;
#[path = "config/references.rs"]
mod references;
#[path = "config/secrets.rs"]
mod secrets;
#[path = "config/settings.rs"]
mod settings;
#[path = "config/sources.rs"]
mod sources;
#[path = "config/stand_in.rs"]
mod stand_in;
#[path = "config/tls.rs"]
mod tls;
#[path = "config/yaml.rs"]
mod yaml;
