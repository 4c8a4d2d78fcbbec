//! Any configuration file is read or refused with at least one problem, and no secret shows.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::ffi::OsString;
use std::fs;
use std::sync::LazyLock;

use mcp_a2a_gateway::config::load_with;
use tempfile::TempDir;

fuzz::program!(config);

const SECRET: &str = "canary-0123456789abcdef0123456789abcdef";

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fn config(bytes: &[u8]) {
    let path = FOLDER.path().join("gateway.yaml");
    fs::write(&path, bytes).expect("writable");
    let environment = |name: &str| (name == "SECRET").then(|| OsString::from(SECRET));
    let told = match load_with(&path, &environment) {
        Ok(settings) => format!("{settings:?}"),
        Err(problems) => {
            let told = problems.to_string();
            assert!(!told.trim().is_empty(), "refused without a word");
            told
        }
    };
    assert!(!told.contains(SECRET), "a secret shows: {told}");
}
