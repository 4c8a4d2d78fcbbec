//! Health and agent state as JSON, for load balancers and operators.

use http::{Method, StatusCode};
use pingora::proxy::Session;
use serde::Serialize;

use super::Inner;
use super::response::{ClientGone, empty, json};
use crate::agents::EndpointState;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthReport {
    ok: bool,
    active_sse: i64,
    tasks: usize,
    uptime: u64,
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

fn shown(endpoint: EndpointState) -> EndpointHealth {
    let EndpointState { url, busy, rests } = endpoint;
    EndpointHealth { url, up: rests.is_none(), tried_in: rests, requests: busy }
}

impl Inner {
    pub(super) fn health(&self) -> String {
        let health = HealthReport {
            ok: true,
            active_sse: self.metrics.open_streams(),
            tasks: self.tasks.len(),
            uptime: self.begun.instant.elapsed().as_secs(),
        };
        serde_json::to_string(&health).unwrap_or_default()
    }

    pub(super) fn agents(&self) -> String {
        let catalogue = self.catalogue.load_full();
        let states = self.directory.agents().iter().map(|agent| {
            let known = agent.known();
            let obstacle = agent.unsupported_required();
            let usable = obstacle.is_none();
            let tools =
                catalogue.all().of_agents().filter(|tool| usable && *tool.agent == *agent.settings.name);
            AgentState {
                name: &agent.settings.name,
                ready: known.is_some() && usable,
                protocol: known.as_ref().map(|known| known.interface.dialect.version()),
                streaming: known.as_ref().map(|known| known.card.streaming),
                tools: tools.map(|tool| tool.name.as_str()).collect(),
                endpoints: agent.endpoints().into_iter().map(shown).collect(),
                problem: agent.problem().or(obstacle),
            }
        });
        serde_json::to_string(&states.collect::<Vec<_>>()).unwrap_or_default()
    }

    pub(super) async fn serve_health(&self, http: &mut Session, method: &Method) -> Result<(), ClientGone> {
        match *method {
            Method::GET => json(http, StatusCode::OK, self.health().into_bytes(), None).await,
            Method::HEAD => empty(http, StatusCode::OK, Vec::new()).await,
            _ => {
                let allow = (http::header::ALLOW, http::HeaderValue::from_static("GET, HEAD"));
                http.set_keepalive(None);
                empty(http, StatusCode::METHOD_NOT_ALLOWED, vec![allow]).await
            }
        }
    }
}
