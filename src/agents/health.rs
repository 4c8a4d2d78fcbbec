//! Health checks of endpoints, if the operator configures them: one small loop per endpoint, in the
//! background.
//!
//! By default the card is fetched: every agent serves it without authentication, and it costs no
//! work. A check counts as any request does; a successful one brings an endpoint with an open
//! breaker back, but on probation (see `breaker`).

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Request};

use super::agent::Agent;
use super::directory::Directory;
use super::resolved::ResolvedAgent;
use crate::auth::AccessToken;
use crate::config::Health;
use crate::fault::AgentFailure;

/// The maximum size of a response, in bytes; it is read only to reuse the connection.
const ANSWER: usize = 1 << 20;

impl Directory {
    /// Checks one endpoint of an agent, without end. Returns at once if no checks are configured.
    pub(crate) async fn run_health_checks(&self, agent: &Arc<Agent>, at: usize) {
        let Some(health) = &agent.settings.health else { return };
        let Ok(path) = health.path.parse::<PathAndQuery>() else { return };
        loop {
            // With jitter: endpoints must not be checked together.
            tokio::time::sleep(health.interval.mul_f64(rand::random::<f64>() * 0.2 + 0.9)).await;
            if let Some(known) = agent.known() {
                self.check(agent, (&known, at), (health, &path)).await;
            }
        }
    }

    /// Checks each configured endpoint once, for the `agents` command; returns which are available.
    pub async fn check_once(&self, agent: &Agent) -> Vec<(String, bool)> {
        let Some(known) = agent.known().filter(|_| !agent.settings.endpoints.is_empty()) else {
            return Vec::new();
        };
        let health = agent.settings.health.clone().unwrap_or_default();
        let Ok(path) = health.path.parse::<PathAndQuery>() else { return Vec::new() };
        let pass = agent.token().await;
        let mut found = Vec::new();
        for (at, endpoint) in agent.endpoints().into_iter().enumerate() {
            let answer = tokio::time::timeout(
                health.timeout,
                self.fetch_from(agent, (&known, at), (&path, pass.as_ref())),
            );
            found.push((endpoint.url, matches!(answer.await, Ok(Ok(true)))));
        }
        found
    }

    async fn check(
        &self,
        agent: &Agent,
        (known, at): (&ResolvedAgent, usize),
        asked: (&Health, &PathAndQuery),
    ) {
        let (health, path) = asked;
        // A failure to fetch credentials before the check says nothing about the endpoint.
        let pass = agent.token().await;
        let Some(turn) = known.endpoints.check(at) else { return };
        let asking = self.fetch_from(agent, (known, at), (path, pass.as_ref()));
        match tokio::time::timeout(health.timeout, asking).await {
            Ok(Ok(true)) => turn.record_check(),
            Ok(Ok(false)) | Err(_) => turn.record_unreachable(),
            Ok(Err(AgentFailure::Internal(why))) => {
                tracing::warn!(agent = agent.settings.name, error = why, "failed to prepare health check");
            }
            Ok(Err(trouble)) => {
                tracing::debug!(agent = agent.settings.name, endpoint = at, error = %trouble, "failed to check endpoint");
                turn.record_unreachable();
            }
        }
    }

    /// Returns true if the endpoint gives a good response.
    async fn fetch_from(
        &self,
        agent: &Agent,
        (known, at): (&ResolvedAgent, usize),
        (path, pass): (&PathAndQuery, Option<&AccessToken>),
    ) -> Result<bool, AgentFailure> {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        agent.apply_credentials(&mut request, path, pass).map_err(AgentFailure::Internal)?;
        let target = known.ways.load().own.get(at).map(|way| way.target.clone());
        let target = target.ok_or(AgentFailure::Internal("there is no such endpoint"))?;
        let failed = |error| super::rpc::to_failure(&error, known);
        let mut reply = self.client.send(&target, request).await.map_err(failed)?;
        let is_good = reply.status().as_u16() < 500;
        if is_good {
            reply.collect(ANSWER).await.map_err(failed)?;
        }
        Ok(is_good)
    }
}
