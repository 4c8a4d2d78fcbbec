//! `completion/complete`: values for the variables of resource templates.
//!
//! Completes agents that the caller may use, tasks and live streams of a named caller, and
//! artifacts of a task by its handle. Other arguments, and prompts, have no completions. Reads
//! docs/spec/mcp.md §2.6. See also `bridge::resource_uri`.

use super::resources::is_live;
use super::route::Route;
use super::{ClientContext, Inner};
use crate::bridge::resource_uri::TemplateVariable;
use crate::fault::Fault;
use crate::jsonrpc::{Id, Object, Text};
use crate::mcp::ClientParams;
use crate::mcp::resources::{CompleteResult, Completion};
use crate::mcp::result_writer::ResultWriter;

/// Most values of one completion; the limit of MCP.
const MOST_VALUES: usize = 100;

impl Inner {
    /// Returns the completions of an argument.
    pub(super) async fn complete(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        writer: &ResultWriter<'_>,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let (Some(Object(reference)), Some(Object(argument))) = (&params.reference, &params.argument) else {
            return Err(Fault::InvalidParams("ref and argument are needed".into()));
        };
        let template = reference.uri.as_ref().map(Text::as_str).unwrap_or_default();
        let mut all = match TemplateVariable::read(template, argument.name.as_str()) {
            Some(TemplateVariable::Agent) => self.agent_names(door, asker),
            Some(TemplateVariable::Task) => self.task_handles(door, asker, false),
            Some(TemplateVariable::Stream) => self.task_handles(door, asker, true),
            Some(TemplateVariable::Artifact) => self.artifact_ids(door, asker, params.filled("id")).await?,
            None => Vec::new(),
        };
        all.retain(|value| value.starts_with(argument.value.as_str()));
        let total = all.len();
        let values: Vec<&str> = all.iter().take(MOST_VALUES).map(String::as_str).collect();
        let has_more = total > values.len();
        Ok(writer.uncacheable(id, &CompleteResult { completion: Completion { values, total, has_more } }))
    }

    fn agent_names(&self, door: Route<'_>, asker: &ClientContext) -> Vec<String> {
        self.seen(asker, door).iter().map(|(agent, _)| agent.settings.name.clone()).collect()
    }

    fn task_handles(&self, door: Route<'_>, asker: &ClientContext, only_live: bool) -> Vec<String> {
        let owned = self.tasks_of_caller(door, asker).into_iter();
        let wanted = owned.filter(|(_, entry)| !only_live || is_live(entry));
        wanted.map(|(handle, _)| handle).collect()
    }

    /// Returns the artifacts of the task that was filled in before; none if the task is unknown or
    /// its agent does not answer.
    async fn artifact_ids(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        task: Option<&str>,
    ) -> Result<Vec<String>, Fault> {
        let Some(task) = task else { return Ok(Vec::new()) };
        let entry = match Box::pin(self.readable(asker, door, task)).await {
            Ok(Some((entry, _))) => entry,
            Ok(None) | Err(Fault::AgentUnavailable) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        Ok(entry
            .visible_state(|inside| inside.work.artifacts().map(|made| made.artifact_id.clone()).collect()))
    }
}
