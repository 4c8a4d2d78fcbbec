//! How a task stands, asked for by itself.
//!
//! Not here: tasks that are followed (see `follow`), questions of clients (see `pass`).

use super::known::Known;
use super::rpc::get_task;
use crate::a2a::Task;
use crate::fault::Trouble;
use crate::transport::Client;

/// Asks an agent for a task, by the agent's own id of it.
///
/// # Errors
///
/// [`Trouble`], if it does not say, says it of another task, or in more than `limit` bytes.
pub async fn look(client: &Client, known: &Known, task: &str, limit: usize) -> Result<Task, Trouble> {
    get_task(client, known, task, limit).await
}
