//! The manifest that an agent came from.

use std::path::PathBuf;

/// An ARDF manifest (`subagent@v0.1`) as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its file.
    pub path: PathBuf,
    /// The `id` that it gives its agent.
    pub id: String,
    /// Its text as written: references are not resolved, so it holds no secret.
    pub text: String,
}
