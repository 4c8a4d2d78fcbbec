//! `agent_defaults`: settings of all agents that do not state them.
//!
//! An agent takes the keys over that it lacks, also within its sections such as `timeouts`. A
//! manifest wins over them. Defaults that have a problem by themselves are not taken over, so that
//! it is reported once, at its own line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::Agent;
use super::agent::{AgentKeys, CardSignature};
use super::forms::KeyForm;
use super::manifest::ManifestAgent;
use super::resolve::ResolveContext;
use super::yaml::{Location, Spanned};

/// The key of the section.
const SECTION: &str = "agent_defaults";
/// Keys that no default may have, and the remedy.
const REFUSED: [(&str, &str); 16] = [
    ("card", OF_ONE_AGENT),
    ("manifest", OF_ONE_AGENT),
    ("endpoints", OF_ONE_AGENT),
    ("tool_name", OF_ONE_AGENT),
    ("description", OF_ONE_AGENT),
    ("skills", OF_ONE_AGENT),
    ("a2a.host", OF_ONE_AGENT),
    ("tls.server_name", OF_ONE_AGENT),
    ("headers", CREDENTIAL),
    ("auth", CREDENTIAL),
    ("tls.certificate", CREDENTIAL),
    ("tls.key", CREDENTIAL),
    ("forward_headers", CREDENTIAL),
    ("allow_hosts", CREDENTIAL),
    ("signature", "cannot be a default (write cards.signature, which is for all agents)"),
    ("proxy", "cannot be a default (write outbound.proxy, which is for all agents)"),
];
const OF_ONE_AGENT: &str = "cannot be a default: it identifies one agent (write it below agents.NAME)";
const CREDENTIAL: &str = "cannot be a default: every agent would receive credentials or headers that are meant for one (write \
     it below agents.NAME)";

/// Settings of all agents that do not state them, and the agents that take each of them over.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefaults {
    /// An agent without a name and a card that has the defaults.
    pub(crate) template: Agent,
    /// The agents that take a key over, by its path.
    pub(crate) uses: BTreeMap<String, Vec<String>>,
}

impl Default for AgentDefaults {
    fn default() -> Self {
        Self { template: Agent::new("", ""), uses: BTreeMap::new() }
    }
}

/// The keys of an agent, as defaults.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct AgentDefaultKeys(AgentKeys);

impl AgentDefaultKeys {
    /// Returns the keys of the section that can be taken over: none after a problem.
    pub(super) fn resolve(
        written: Spanned<Self>,
        context: &mut ResolveContext<'_>,
    ) -> Option<AgentDefaultSource> {
        let (place, Self(mut keys)) = written.take()?;
        keys.section = place.clone();
        let mut places = Vec::new();
        keys.add_places(&place, &mut places);
        for place in &places {
            let key =
                place.at.strip_prefix(SECTION).and_then(|key| key.strip_prefix('.')).unwrap_or_default();
            let is_in = |refused: &str| {
                key.strip_prefix(refused).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if let Some((_, remedy)) = REFUSED.iter().find(|(refused, _)| is_in(refused)) {
                context.problem(place, *remedy);
            }
        }
        if context.has_problem(is_agent_default) {
            return None;
        }
        let template = keys.clone().settings(String::new(), None, context);
        if context.has_problem(is_agent_default) {
            return None;
        }
        let uses = places.into_iter().map(|place| (place.at, Vec::new())).collect();
        Some(AgentDefaultSource { keys, defaults: AgentDefaults { template, uses } })
    }
}

/// The defaults while agents are read.
pub(super) struct AgentDefaultSource {
    keys: AgentKeys,
    defaults: AgentDefaults,
}

impl AgentDefaultSource {
    /// Gives the keys of an agent the defaults that it and its manifest lack.
    pub(super) fn complete(&mut self, agent: &mut AgentKeys, name: &str, described: Option<&ManifestAgent>) {
        agent.complete(self.keys.clone());
        if let Some(described) = described {
            described.displace(agent);
        }
        let mut places = Vec::new();
        agent.add_places(&Location::default(), &mut places);
        for Location { at, .. } in places {
            if let Some(agents) = self.defaults.uses.get_mut(&at) {
                agents.push(name.to_owned());
            }
        }
    }

    /// Returns the defaults, with the agents that take them over and the signature that their cards
    /// must have.
    pub(super) fn finish(source: Option<Self>, signature: Option<CardSignature>) -> AgentDefaults {
        let mut defaults = source.map(|source| source.defaults).unwrap_or_default();
        defaults.template.signature = signature;
        defaults
    }
}

impl<F> Spanned<F> {
    /// Returns true if the value is a default of all agents.
    pub(super) fn is_default(&self) -> bool {
        self.place().is_some_and(|place| is_agent_default(&place.at))
    }
}

/// Returns true if this is the path of a default of all agents.
pub(super) fn is_agent_default(at: &str) -> bool {
    at.strip_prefix(SECTION).is_some_and(|rest| rest.starts_with('.'))
}

impl KeyForm for AgentDefaultKeys {
    fn describe() -> String {
        "section: keys of `agents.NAME`".to_owned()
    }
}

impl JsonSchema for AgentDefaultKeys {
    fn schema_name() -> Cow<'static, str> {
        "AgentDefaults".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = AgentKeys::json_schema(generator);
        schema.remove("anyOf");
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.retain(|key, _| !REFUSED.iter().any(|(refused, _)| refused == key));
        }
        schema
    }
}
