//! The skills of an agent that a caller may see, and the agent's card and manifest without the
//! other skills.
//!
//! A skill is left out if the operator hides it, or if the rules let the caller use it neither
//! through the MCP server nor through the A2A server. Cards and manifests from which nothing is
//! left out stay byte for byte the same.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Discovery;
use crate::a2a::skill_id;
use crate::agents::Agent;
use crate::auth::{Action, Caller, Rules};
use crate::config;
use crate::jsonrpc::Text;
use crate::jsonrpc::raw_object::RawObject;
use crate::mcp::Method;

/// Filter for the skills of an agent that a caller may see.
pub(crate) struct VisibleSkills<'a> {
    rules: &'a Rules,
    caller: Caller,
    agent: &'a config::Agent,
    /// Names of the agent's tools, by skill id.
    tools: HashMap<Arc<str>, String>,
    /// True if the agent has one tool without skills, and the caller may use that tool.
    has_tool: bool,
}

/// Member of a manifest that names a tool.
#[derive(Deserialize)]
struct NamedTool<'a> {
    #[serde(borrow)]
    name: Text<'a>,
}

impl Discovery {
    /// Returns the filter for the skills of `agent` that `caller` may see.
    pub(crate) fn visible_skills<'a>(&'a self, caller: &Caller, agent: &'a Agent) -> VisibleSkills<'a> {
        let name = agent.settings.name.as_str();
        let catalogue = self.catalogue.load();
        let all = || catalogue.of(name).of_agents();
        let whole = all().find(|tool| tool.skill.is_none());
        let tools = all().filter_map(|tool| Some((tool.skill.clone()?, tool.name.clone())));
        VisibleSkills {
            rules: self.authorizer.rules(),
            caller: caller.clone(),
            agent: &agent.settings,
            tools: tools.collect(),
            has_tool: whole.is_some_and(|tool| self.authorizer.may_call(caller, name, "", &tool.name)),
        }
    }
}

impl VisibleSkills<'_> {
    /// Returns true if the caller sees all skills of the agent.
    fn are_all(&self) -> bool {
        self.rules.is_empty() && !self.agent.skills.values().any(|skill| skill.hidden)
    }

    /// Returns true if the caller sees this skill.
    pub(crate) fn has(&self, skill: &str) -> bool {
        if self.agent.skills.get(skill).is_some_and(|skill| skill.hidden) {
            return false;
        }
        let tool = self.tools.get(skill).map_or(skill, String::as_str);
        // Through the MCP server or the A2A server.
        self.has_tool
            || [Method::ToolsCall.as_str(), "SendMessage"].into_iter().any(|method| {
                let agent = Some(self.agent.name.as_str());
                let wanted = Action { method, agent, tool: Some((skill, tool)), resource: None };
                self.rules.allow(&self.caller, &wanted)
            })
    }

    /// Returns the agent's card without hidden skills; `None` if the card is not readable.
    pub(crate) fn card<'c>(&self, card: &'c RawValue) -> Option<Cow<'c, RawValue>> {
        if self.are_all() {
            return Some(Cow::Borrowed(card));
        }
        let mut members = RawObject::read(card.get())?;
        if let Some(skills) = members.find("skills") {
            let skills: Vec<&RawValue> = serde_json::from_str(skills.get()).ok()?;
            let is_seen = |skill: &&RawValue| {
                let id = RawObject::read(skill.get()).and_then(|skill| skill.text("id"));
                // Under the name that the rules and the settings use.
                id.is_some_and(|id| self.has(&skill_id(&id)))
            };
            let seen: Vec<&RawValue> = skills.into_iter().filter(is_seen).collect();
            let seen = serde_json::value::to_raw_value(&seen).ok()?;
            members.set("skills", seen);
        }
        Some(Cow::Owned(members.written()))
    }

    /// Returns the manifest without hidden skills and their tools; `None` if it is not readable.
    pub(crate) fn manifest<'m>(&self, manifest: &'m str) -> Option<Cow<'m, str>> {
        if self.are_all() {
            return Some(Cow::Borrowed(manifest));
        }
        let mut members = RawObject::read(manifest)?;
        let mut untold: Vec<String> = Vec::new();
        if let Some(mut a2a) = inner(&members, "a2a")?
            && let Some(skills) = inner(&a2a, "skills")?
        {
            let mut kept = RawObject::default();
            for (id, tool) in skills.into_each() {
                match self.has(&id) {
                    true => kept.set(&id, tool),
                    false => untold.extend(serde_json::from_str::<String>(tool.get()).ok()),
                }
            }
            a2a.set("skills", kept.written());
            members.set("a2a", a2a.written());
        }
        if let Some(mut bridge) = inner(&members, "mcpBridge")?
            && let Some(tools) = bridge.find("tools")
        {
            let tools: Vec<&RawValue> = serde_json::from_str(tools.get()).ok()?;
            let is_told = |tool: &&RawValue| {
                let named = serde_json::from_str::<NamedTool<'_>>(tool.get());
                named.is_ok_and(|tool| !untold.iter().any(|untold| untold == tool.name.as_str()))
            };
            let told: Vec<&RawValue> = tools.into_iter().filter(is_told).collect();
            let told = serde_json::value::to_raw_value(&told).ok()?;
            bridge.set("tools", told);
            members.set("mcpBridge", bridge.written());
        }
        Some(Cow::Owned(members.written().get().to_owned()))
    }
}

/// Returns the object in a member; `Some(None)` if the member is absent, `None` if it is not an
/// object.
fn inner(members: &RawObject, name: &str) -> Option<Option<RawObject>> {
    let Some(value) = members.find(name).filter(|value| value.get() != "null") else { return Some(None) };
    RawObject::read(value.get()).map(Some)
}
