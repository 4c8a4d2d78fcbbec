//! All agents of the configuration, and the current state of each.
//!
//! The state is swapped as a whole; readers never wait. See `refresh` for its updates.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use tokio::sync::watch;

use super::agent::Agent;
use super::along::ForwardedContext;
use super::card_fetch::CardFetchError;
use super::kept::KeptCards;
use crate::auth::SubjectToken;
use crate::config::{self, Settings};
use crate::telemetry::metrics::{Metrics, OutboundMetrics};
use crate::transport::HttpClient;

/// All agents.
pub struct Directory {
    agents: Vec<Arc<Agent>>,
    places: HashMap<String, usize>,
    /// The names of the headers that are forwarded to any agent.
    forwards: Vec<HeaderName>,
    on_behalf: bool,
    changed: watch::Sender<u64>,
    pub(super) client: HttpClient,
    /// Counts addresses on cards that are not called.
    pub(super) refusals: OutboundMetrics,
    pub(super) cards: config::Cards,
    /// The store of cards, if there is one.
    pub(super) kept: Option<Arc<KeptCards>>,
}

impl Directory {
    /// Creates the directory; no card is fetched yet.
    ///
    /// # Errors
    ///
    /// [`CardFetchError::Setting`] with the agent's name, if its settings cannot be used.
    pub fn new(
        settings: &Settings,
        client: HttpClient,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, CardFetchError> {
        client.count_refusals(metrics.outbound.clone());
        let outbound = Arc::new(settings.outbound.allow.clone());
        let mut agents = Vec::with_capacity(settings.agents.len());
        for agent in &settings.agents {
            let name = agent.name.clone();
            let through = (client.clone(), outbound.clone());
            let agent = Agent::new(agent.clone(), through, metrics.agent(&name))
                .map_err(|problem| CardFetchError::Setting(format!("agents.{name}: {problem}")))?;
            agents.push(Arc::new(agent));
        }
        let places =
            agents.iter().enumerate().map(|(place, agent)| (agent.settings.name.clone(), place)).collect();
        let forwards = agents.iter().flat_map(|agent| agent.forwards.iter().cloned()).collect();
        let on_behalf = agents.iter().any(|agent| agent.uses_caller_token());
        let (changed, cards) = (watch::Sender::new(0), settings.cards);
        let refusals = metrics.outbound.clone();
        let kept = settings.tasks.data_dir.as_deref().map(KeptCards::new).map(Arc::new);
        Ok(Self { agents, places, forwards, on_behalf, changed, client, refusals, cards, kept })
    }

    /// Returns the parts of a client's request that are forwarded to agents; `None` if nothing is
    /// ever forwarded. `subject` returns the token that authenticated the caller, if a token did:
    /// agents under `grant: token_exchange` get the token that it is exchanged for.
    pub fn along(
        &self,
        request: &HeaderMap,
        subject: impl FnOnce() -> Option<SubjectToken>,
    ) -> Option<Arc<ForwardedContext>> {
        if self.forwards.is_empty() && !self.on_behalf {
            return None;
        }
        let subject = if self.on_behalf { subject() } else { None };
        Some(Arc::new(ForwardedContext::new(&self.forwards, request, subject)))
    }

    /// Returns every agent, sorted by name.
    pub fn agents(&self) -> &[Arc<Agent>] {
        &self.agents
    }

    /// Returns the number of cards of all agents since the start.
    pub fn versions(&self) -> u64 {
        self.agents.iter().map(|agent| agent.version()).sum()
    }

    /// Returns the agent of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.get(*self.places.get(name)?)
    }

    /// Subscribes to card fetches; [`Agent::version`] shows if the card changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn notify_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}
