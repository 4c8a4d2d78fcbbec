//! Agent search: the tool `find_agent`, and the matching for all lists of agents.
//!
//! A caller finds only agents that it may use. See also `bridge::search` and `documents`.

use super::access_record::AccessRecord;
use super::resources::reach;
use super::responder::ResponseTarget;
use super::response::ClientGone;
use super::route::Route;
use super::{ClientContext, Inner};
use crate::auth::Caller;
use crate::bridge::catalogue::Catalogue;
use crate::bridge::resource_view::Reachability;
use crate::bridge::search::{AgentMatch, AgentQuery, tool};
use crate::bridge::task_tools::TaskTool;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::ClientParams;
use crate::mcp::tools::CallToolResult;
use crate::telemetry::label::Outcome;

/// Method in the rules for a message to an agent through the A2A server, with any skill.
const SEND_MESSAGE: &str = "SendMessage";

impl Inner {
    /// Returns the matching agents on a route that a caller may use, the best first, with the
    /// skills that the caller may use.
    pub(super) fn search<'i>(
        &'i self,
        catalogue: &'i Catalogue,
        (caller, door): (&Caller, Route<'_>),
        query: &AgentQuery,
    ) -> Vec<AgentMatch<'i>> {
        let behind = self.directory.agents().iter().filter(|agent| self.can_see(caller, door, agent));
        let names = behind.map(|agent| agent.settings.name.as_str());
        catalogue.index().search(query, names, |agent, tool| match tool {
            Some(tool) => self.may_call(caller, agent, tool),
            None => {
                self.may_use(caller, agent, TaskTool::Start)
                    || self.rules.evaluate_any(caller, SEND_MESSAGE, agent).is_allowed()
            }
        })
    }

    /// Handles a call of `find_agent`.
    pub(super) async fn find_agent(
        &self,
        to: ResponseTarget<'_>,
        door: Route<'_>,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (id, params, catalogue): (&Id, &ClientParams<'_>, &Catalogue),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        exchange.tool = Some(tool::NAME.to_owned());
        let result = match tool::read(params.arguments) {
            Ok(query) => {
                let found = self.search(catalogue, (&asker.caller, door), &query);
                let found: Vec<_> = found.into_iter().map(|found| self.with_reachability(found)).collect();
                tool::result(&found, asker.version)
            }
            Err(told) => {
                exchange.outcome = Outcome::ClientFault;
                CallToolResult::failure(told)
            }
        };
        let body = self.writer(asker.version.era()).uncacheable(id, &result);
        self.answer_with(to, (asker, exchange), body).await
    }

    /// Adds the reachability of a found agent.
    pub(super) fn with_reachability<'i>(&self, found: AgentMatch<'i>) -> (AgentMatch<'i>, Reachability) {
        let reach = self.directory.find(found.name).map_or(Reachability::Unknown, |agent| reach(agent));
        (found, reach)
    }
}
