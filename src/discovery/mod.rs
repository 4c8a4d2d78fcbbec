//! Discovery: the tools and agents that a caller may find, in lists, documents and searches.
//!
//! See also `bridge::catalogue` (the tools of a card) and `bridge::search` (matching).

mod catalogue;
mod documents;
mod health;
mod skills;

use std::sync::Arc;

use http::HeaderName;

use crate::access::{Authorizer, OAuthMetadata, Requester};
use crate::agents::{Agent, Directory};
use crate::auth::Caller;
use crate::bridge::catalogue::Catalogue;
use crate::bridge::resource_view::Reachability;
use crate::bridge::search::{AgentMatch, AgentQuery};
use crate::bridge::task_tools::TaskTool;
use crate::http_edge::Route;
use crate::limits::Limits;
use crate::seal::Sealer;

pub use catalogue::tools_of;
pub(crate) use catalogue::{LiveCatalogue, view};

/// Method in the rules for a message to an agent through the A2A server, with any skill.
const SEND_MESSAGE: &str = "SendMessage";

/// Finds agents and skills for callers.
pub(crate) struct Discovery {
    pub(crate) directory: Arc<Directory>,
    pub(crate) catalogue: Arc<LiveCatalogue>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metadata: Arc<OAuthMetadata>,
    pub(crate) sealer: Sealer,
    /// Header with the API key, which the documents depend on.
    pub(crate) key_header: Option<HeaderName>,
    /// Most entries on one page of a list.
    pub(crate) page_size: usize,
}

impl Discovery {
    /// Returns the matching agents on a route that a caller may use, the best first, with the
    /// skills that the caller may use.
    pub(crate) fn search<'i>(
        &'i self,
        catalogue: &'i Catalogue,
        by: Requester<'_>,
        query: &AgentQuery,
    ) -> Vec<AgentMatch<'i>> {
        let visible = self.directory.agents().iter().filter(|agent| self.authorizer.can_see(by, agent));
        let names = visible.map(|agent| agent.settings.name.as_str());
        catalogue.index().search(query, names, |agent, tool| match tool {
            Some((skill, tool)) => self.authorizer.may_call(by.caller, agent, skill, tool),
            None => {
                self.authorizer.may_use(by.caller, agent, TaskTool::Start)
                    || self.authorizer.may_send(by.caller, SEND_MESSAGE, agent)
            }
        })
    }

    /// Adds the reachability of a found agent.
    pub(crate) fn with_reachability<'i>(&self, found: AgentMatch<'i>) -> (AgentMatch<'i>, Reachability) {
        let reachability =
            self.directory.find(found.name).map_or(Reachability::Unknown, |agent| reachability(agent));
        (found, reachability)
    }
}

/// Returns the reachability of an agent as of the last fetch of its card.
pub(crate) fn reachability(agent: &Agent) -> Reachability {
    match (agent.problem(), agent.known()) {
        (Some(_), _) => Reachability::Unreachable,
        (None, Some(known)) if agent.obstacle_of(&known.card).is_some() => Reachability::Unusable,
        (None, Some(_)) => Reachability::Ready,
        (None, None) => Reachability::Unknown,
    }
}

fn requester<'a>(caller: &'a Caller, route: Route<'a>) -> Requester<'a> {
    Requester { caller, route }
}
