//! Finding agents by what they can do: whom a caller finds, at every door, and the tool `find_agent`.
//!
//! Nobody finds what it may not use. Not here: the search and the words (see `bridge::finding`), the documents (see `documents`).

use super::answer::Gone;
use super::exchange::Exchange;
use super::pump::To;
use super::reading::reach;
use super::route::Door;
use super::{Asker, Inner};
use crate::auth::Caller;
use crate::bridge::catalogue::Catalogue;
use crate::bridge::finding::{Found, Query, tool};
use crate::bridge::registry::Reach;
use crate::bridge::subagent::Tool;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::Params;
use crate::mcp::tools::CallResult;
use crate::telemetry::label::Outcome;

/// What rules call saying something to an agent through the A2A face, whichever skill it is of.
const SEND_MESSAGE: &str = "SendMessage";

impl Inner {
    /// The agents behind a door that fit, the best first, of those that a caller may use, with the skills that it may use.
    pub(super) fn found<'i>(
        &'i self,
        catalogue: &'i Catalogue,
        (caller, door): (&Caller, Door<'_>),
        query: &Query,
    ) -> Vec<Found<'i>> {
        let behind = self.directory.agents().iter().filter(|agent| self.sees(caller, door, agent));
        let names = behind.map(|agent| agent.settings.name.as_str());
        catalogue.index().search(query, names, |agent, tool| match tool {
            Some(tool) => self.may_call(caller, agent, tool),
            None => {
                self.may_use(caller, agent, Tool::Start)
                    || self.rules.judge_whole(caller, (SEND_MESSAGE, agent)).is_allowed()
            }
        })
    }

    /// Carries out a call of `find_agent`.
    pub(super) async fn find_agent(
        &self,
        to: To<'_>,
        door: Door<'_>,
        (asker, exchange): (&Asker, &mut Exchange),
        (id, params, catalogue): (&Id, &Params<'_>, &Catalogue),
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        exchange.tool = Some(tool::NAME.to_owned());
        let result = match tool::read(params.arguments) {
            Ok(query) => {
                let found = self.found(catalogue, (&asker.caller, door), &query);
                let found: Vec<_> = found.into_iter().map(|found| self.with_reach(found)).collect();
                tool::result(&found, asker.version)
            }
            Err(told) => {
                exchange.outcome = Outcome::ClientFault;
                CallResult::failure(told)
            }
        };
        let body = self.writer(asker.version.era()).spoken(id, &result);
        self.answer_with(to, (asker, exchange), body).await
    }

    /// An agent that was found, and whether it can be called.
    pub(super) fn with_reach<'i>(&self, found: Found<'i>) -> (Found<'i>, Reach) {
        let reach = self.directory.find(found.name).map_or(Reach::Unknown, |agent| reach(agent));
        (found, reach)
    }
}
