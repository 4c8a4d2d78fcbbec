//! The state of each agent as JSON, for operators.

use serde::Serialize;

use super::Discovery;
use crate::agents::EndpointState;

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

impl Discovery {
    /// Returns the state of each agent as JSON.
    pub(crate) fn agent_states(&self) -> String {
        let catalogue = self.catalogue.load_full();
        let states = self.directory.agents().iter().map(|agent| {
            let known = agent.known();
            let obstacle = agent.unsupported_required();
            let is_usable = obstacle.is_none();
            let tools =
                catalogue.all().of_agents().filter(|tool| is_usable && *tool.agent == *agent.settings.name);
            AgentState {
                name: &agent.settings.name,
                ready: known.is_some() && is_usable,
                protocol: known.as_ref().map(|known| known.interface.dialect.version()),
                streaming: known.as_ref().map(|known| known.card.streaming),
                tools: tools.map(|tool| tool.name.as_str()).collect(),
                endpoints: agent.endpoints().into_iter().map(endpoint_health).collect(),
                problem: agent.problem().or(obstacle),
            }
        });
        serde_json::to_string(&states.collect::<Vec<_>>()).unwrap_or_default()
    }
}
