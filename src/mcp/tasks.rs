//! Tasks on the wire: how a task stands, as a client sees it.
//!
//! Reads mcp.md §2.13, §2.14. Not here: which status an agent's task has (see `bridge`), where tasks are kept.

use serde::Serialize;

/// How a task stands, as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It is being worked on.
    Working,
    /// It waits for the user.
    InputRequired,
    /// It is done.
    Completed,
    /// It failed; what counts as failure differs between the core and the extension.
    Failed,
    /// It was cancelled.
    Cancelled,
}
