//! Discovery: the tools and agents that a caller may find, in lists, documents and searches.
//!
//! See also `bridge::catalogue` (the tools of a card) and `bridge::search` (matching).

mod catalogue;
mod documents;
mod unmatched;

use std::sync::Arc;

use http::HeaderName;
use serde::Serialize;
use serde_json::json;

use crate::a2a::AgentCard;
use crate::access::{Authorizer, OAuthMetadata, Requester};
use crate::agents::{Agent, Directory, EndpointState};
use crate::auth::Caller;
use crate::bridge::catalogue::Catalogue;
use crate::bridge::resource_view::Reachability;
use crate::bridge::search::{AgentMatch, AgentQuery};
use crate::bridge::task_tools::TaskTool;
use crate::http_edge::Route;
use crate::limits::Limits;
use crate::seal::Sealer;

pub use catalogue::tools_of;
pub(crate) use catalogue::{LiveCatalogue, tools_of_cards, view};
pub(crate) use unmatched::{unmatched_settings, unmatched_skills};

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
    // Nothing that is only listed is audited.
    Requester { caller, route, scope: None }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentState<'a> {
    name: &'a str,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    tools: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointHealth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointHealth {
    url: String,
    up: bool,
    /// Seconds until the gateway tries this endpoint again.
    #[serde(skip_serializing_if = "Option::is_none")]
    tried_in: Option<u64>,
    requests: usize,
}

fn endpoint_health(endpoint: EndpointState) -> EndpointHealth {
    let EndpointState { url, busy, rests } = endpoint;
    EndpointHealth { url, up: rests.is_none(), tried_in: rests, requests: busy }
}

/// The state of an agent, with its card.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentDetail<'a> {
    #[serde(flatten)]
    state: AgentState<'a>,
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<u64>,
    skills: Vec<SkillState<'a>>,
    /// True if the card has more skills than are listed.
    has_more: bool,
    card_problems: &'a [String],
}

/// The state of an agent in a list.
#[derive(Serialize)]
struct AgentRow<'a> {
    #[serde(flatten)]
    state: AgentState<'a>,
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// True until its card has been fetched or tried once.
    waiting: bool,
}

impl<'a> AgentRow<'a> {
    fn new(agent: &'a Agent, catalogue: &'a Catalogue) -> Self {
        let known = agent.known();
        let text = |of: fn(&AgentCard) -> &String| known.as_ref().map(|known| of(&known.card).clone());
        Self {
            state: agent_state(agent, catalogue),
            card: agent.settings.card.without_secrets(),
            title: text(|card| &card.name),
            version: text(|card| &card.version),
            waiting: !agent.is_initialized(),
        }
    }
}

/// A skill, and the tool that it became.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SkillState<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
}

/// Most agents on a page.
const MAX_LISTED_AGENTS: usize = 100;
/// Most skills in the state of one agent.
const MAX_LISTED_SKILLS: usize = 200;

impl Discovery {
    /// Returns the state of each agent as JSON.
    pub(crate) fn agent_states(&self) -> String {
        let catalogue = self.catalogue.load_full();
        let states = self.directory.agents().iter().map(|agent| agent_state(agent, &catalogue));
        serde_json::to_string(&states.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Returns a page of the states of agents as JSON, from this number on, and the number of all.
    pub(crate) fn agent_page(&self, offset: usize) -> String {
        let catalogue = self.catalogue.load_full();
        let agents = self.directory.agents();
        let states = agents.iter().skip(offset).take(MAX_LISTED_AGENTS);
        let states: Vec<_> = states.map(|agent| AgentRow::new(agent, &catalogue)).collect();
        json!({ "total": agents.len(), "offset": offset, "agents": states }).to_string()
    }

    /// Returns the state of the agent of this name, with its card, as JSON.
    pub(crate) fn agent_state(&self, name: &str) -> Option<String> {
        let catalogue = self.catalogue.load_full();
        let agent = self.directory.find(name)?;
        let known = agent.known();
        let card = known.as_ref().map(|known| &*known.card);
        let tool_of = |skill: &str| {
            let mut tools = catalogue.all().of_agents().filter(|tool| *tool.agent == *agent.settings.name);
            tools.find(|tool| tool.skill.as_deref() == Some(skill)).map(|tool| tool.name.as_str())
        };
        let skills = card.iter().flat_map(|card| &card.skills);
        let listed = skills.clone().take(MAX_LISTED_SKILLS);
        let listed =
            listed.map(|skill| SkillState { id: &skill.id, name: &skill.name, tool: tool_of(&skill.id) });
        let detail = AgentDetail {
            state: agent_state(agent, &catalogue),
            card: agent.settings.card.without_secrets(),
            title: card.map(|card| card.name.as_str()),
            version: card.map(|card| card.version.as_str()),
            description: card.map(|card| card.description.as_str()),
            provider: card.and_then(|card| card.provider.as_deref()),
            last_seen: agent.last_seen(),
            skills: listed.collect(),
            has_more: skills.count() > MAX_LISTED_SKILLS,
            card_problems: card.map(|card| card.problems.as_slice()).unwrap_or_default(),
        };
        serde_json::to_string(&detail).ok()
    }
}

/// Returns the state of an agent with the names of its tools.
fn agent_state<'a>(agent: &'a Agent, catalogue: &'a Catalogue) -> AgentState<'a> {
    let known = agent.known();
    let obstacle = agent.unsupported_required();
    let is_usable = obstacle.is_none();
    let tools = catalogue.all().of_agents().filter(|tool| is_usable && *tool.agent == *agent.settings.name);
    AgentState {
        name: &agent.settings.name,
        ready: known.is_some() && is_usable,
        protocol: known.as_ref().map(|known| known.interface.version_name()),
        streaming: known.as_ref().map(|known| known.card.streaming),
        tools: tools.map(|tool| tool.name.as_str()).collect(),
        endpoints: agent.endpoints().into_iter().map(endpoint_health).collect(),
        problem: agent.problem().or(obstacle),
    }
}
