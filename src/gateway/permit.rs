//! What a caller may do and see, wherever it matters: what it may not use is not there for it.
//!
//! Not here: the rules themselves (see `auth::Rules`), whose tasks are whose (handles open for their caller only).

use super::metadata::{Endpoint, challenge};
use super::reading::no_such;
use super::route::Door;
use super::{Asker, Inner};
use crate::agents::Agent;
use crate::auth::{Caller, Verdict, Wanted};
use crate::bridge::catalogue::Entry;
use crate::fault::Fault;
use crate::mcp::Method;
use crate::telemetry::audit;

impl Inner {
    /// Whether there is such an agent, for this caller. Who could see it with more scopes is told so later.
    pub(super) fn is_there(&self, caller: &Caller, agent: &str) -> bool {
        let wanted = Wanted { agent: Some(agent), ..Wanted::default() };
        self.directory.find(agent).is_some()
            && (self.rules.sees(caller, agent)
                || matches!(self.rules.judge(caller, &wanted), Verdict::ScopesNeeded(..)))
    }

    /// Whether an agent is behind a door, for this caller.
    pub(super) fn sees(&self, caller: &Caller, door: Door<'_>, agent: &Agent) -> bool {
        let name = agent.settings.name.as_str();
        door.agent().is_none_or(|door| name == door) && self.rules.sees(caller, name)
    }

    /// Lets a caller use a method, or not.
    ///
    /// # Errors
    ///
    /// The fault that refuses it.
    pub(super) fn permit(&self, asker: &Asker, door: Door<'_>, method: Method) -> Result<(), Fault> {
        let wanted = Wanted { method: method.as_str(), agent: door.agent(), ..Wanted::default() };
        self.judged((asker, door), &wanted, || Fault::Forbidden)
    }

    /// Lets a caller use a tool, by skill and name, or not.
    ///
    /// # Errors
    ///
    /// The fault that refuses it; the tool might not be there.
    pub(super) fn permit_tool(
        &self,
        asking: (&Asker, Door<'_>),
        agent: Option<&Agent>,
        tool: (&str, &str),
    ) -> Result<(), Fault> {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted = Wanted { method: Method::ToolsCall.as_str(), agent, tool: Some(tool), resource: None };
        self.judged(asking, &wanted, || Fault::NoSuchTool(tool.1.to_owned()))
    }

    /// Lets a caller read a resource, or not.
    ///
    /// # Errors
    ///
    /// The fault that refuses it; the resource might not be there.
    pub(super) fn permit_resource(
        &self,
        asking: (&Asker, Door<'_>),
        agent: Option<&Agent>,
        uri: &str,
    ) -> Result<(), Fault> {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted =
            Wanted { method: Method::ResourcesRead.as_str(), agent, tool: None, resource: Some(uri) };
        self.judged(asking, &wanted, || no_such(uri))
    }

    /// Whether a caller may read a resource.
    pub(super) fn may_read(&self, asker: &Asker, agent: Option<&Agent>, uri: &str) -> bool {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted =
            Wanted { method: Method::ResourcesRead.as_str(), agent, tool: None, resource: Some(uri) };
        self.rules.allow(&asker.caller, &wanted)
    }

    /// Whether a tool is on a caller's list.
    pub(super) fn shows(&self, asker: &Asker, entry: &Entry) -> bool {
        let (agent, tool) = match entry.of_agent() {
            Some(tool) => (Some(&*tool.agent), (tool.skill.as_deref().unwrap_or_default(), &*tool.name)),
            None => (None, (entry.name(), entry.name())),
        };
        let wanted = Wanted { method: Method::ToolsCall.as_str(), agent, tool: Some(tool), resource: None };
        self.rules.allow(&asker.caller, &wanted)
    }

    fn judged(
        &self,
        (asker, door): (&Asker, Door<'_>),
        wanted: &Wanted<'_>,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let verdict = self.rules.judge(&asker.caller, wanted);
        let (is_allowed, rule) = match verdict {
            Verdict::Allowed(rule) => (true, rule),
            Verdict::Refused(rule) => (false, rule),
            Verdict::ScopesNeeded(rule, _) => (false, Some(rule)),
        };
        let decision = audit::Decision {
            caller: asker.caller.name(),
            method: wanted.method,
            agent: wanted.agent,
            tool: wanted.tool.map(|(_, name)| name),
            resource: wanted.resource,
            is_allowed,
            rule,
        };
        decision.write();
        match verdict {
            Verdict::Allowed(_) => Ok(()),
            Verdict::Refused(_) => Err(unseen()),
            Verdict::ScopesNeeded(_, scopes) => {
                // A token is for the door that the client uses, whichever agent the tool is of.
                let at = Endpoint { settings: &self.settings, agent: door.agent() };
                Err(Fault::ScopesNeeded(challenge(&at, Some("insufficient_scope"), scopes)))
            }
        }
    }
}
