//! Authorization: the methods, tools and resources that a caller may use and see. A forbidden item
//! looks as if it did not exist.
//!
//! `auth::Rules` evaluates the rules; handles open only for their caller.

use serde_json::Value;
use serde_json::value::RawValue;

use super::oauth_metadata::{ChallengeContext, challenge};
use super::resources::resource_not_found;
use super::route::Route;
use super::{ClientContext, Inner};
use crate::agents::Agent;
use crate::auth::{Action, Caller, PolicyDecision};
use crate::bridge::catalogue::ToolRef;
use crate::bridge::task_tools::TaskTool;
use crate::fault::Fault;
use crate::mcp::{Era, Method};
use crate::telemetry::access_log;

impl Inner {
    /// Returns true if the agent exists for this caller. A caller that needs more scopes gets a
    /// challenge later.
    pub(super) fn is_visible(&self, caller: &Caller, agent: &str) -> bool {
        let wanted = Action { agent: Some(agent), ..Action::default() };
        self.directory.find(agent).is_some()
            && (self.rules.sees(caller, agent)
                || matches!(self.rules.evaluate(caller, &wanted), PolicyDecision::ScopesNeeded(..)))
    }

    /// Returns true if this caller sees an agent on this route.
    pub(super) fn can_see(&self, caller: &Caller, door: Route<'_>, agent: &Agent) -> bool {
        let name = agent.settings.name.as_str();
        door.agent().is_none_or(|door| name == door) && self.rules.sees(caller, name)
    }

    /// Authorizes a method.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) fn authorize_method(
        &self,
        asker: &ClientContext,
        door: Route<'_>,
        method: Method,
    ) -> Result<(), Fault> {
        let wanted = Action { method: method.as_str(), agent: door.agent(), ..Action::default() };
        // The rules for the tool itself are evaluated, and logged, later.
        if method == Method::ToolsCall && self.rules.allow(&asker.caller, &wanted) {
            return Ok(());
        }
        self.evaluate((asker, door), &wanted, None, || Fault::Forbidden)
    }

    /// Authorizes a method on a task of an agent. The resources of a task belong to its caller, so
    /// rules for resources do not apply to them.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) fn authorize_task(
        &self,
        asking: (&ClientContext, Route<'_>),
        method: Method,
        agent: &Agent,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        let wanted =
            Action { method: method.as_str(), agent: Some(&agent.settings.name), ..Action::default() };
        self.evaluate(asking, &wanted, None, unseen)
    }

    /// Authorizes a tool, by skill and name.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected, as if the tool did not exist.
    pub(super) fn authorize_tool(
        &self,
        asking: (&ClientContext, Route<'_>),
        agent: Option<&Agent>,
        (tool, arguments): ((&str, &str), Option<&RawValue>),
    ) -> Result<(), Fault> {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted = Action { agent, tool: Some(tool), ..CALL };
        let verdict = self.judge_tool(&asking.0.caller, &wanted);
        let unseen = || Fault::NoSuchTool(tool.1.to_owned());
        self.audit((&asking.0.caller, asking.1), (&wanted, arguments), verdict, unseen)
    }

    /// Authorizes the start of a task at an agent without a skill.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected, as if the tool did not exist.
    pub(super) fn permit_start(
        &self,
        (asker, door): (&ClientContext, Route<'_>),
        agent: &Agent,
    ) -> Result<(), Fault> {
        let wanted = start_of(&agent.settings.name);
        let verdict = self.judge_start(&asker.caller, &agent.settings.name);
        let unseen = || Fault::NoSuchTool(TaskTool::Start.name().to_owned());
        self.audit((&asker.caller, door), (&wanted, None), verdict, unseen)
    }

    /// Authorizes a message in a task: as a call of the tool of its skill, or as a message to the
    /// agent as a whole if there is no such tool.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the message is rejected, as if the task did not exist.
    pub(super) fn permit_words(
        &self,
        (asker, door): (&ClientContext, Route<'_>),
        agent: &Agent,
        (method, skill): (Method, Option<&str>),
    ) -> Result<(), Fault> {
        let (name, method) = (agent.settings.name.as_str(), method.as_str());
        let catalogue = self.catalogue.load();
        let mut tools = self.catalogue_view(&catalogue, door).of_agents();
        let tool = tools.find(|tool| *tool.agent == *name && tool.skill.as_deref() == skill);
        let tool = tool.map(|tool| (skill.unwrap_or_default(), tool.name.as_str()));
        let wanted = Action { method, agent: Some(name), tool, resource: None };
        let verdict = match tool {
            Some(_) => self.judge_tool(&asker.caller, &wanted),
            None => self.rules.evaluate_any(&asker.caller, method, name),
        };
        self.audit((&asker.caller, door), (&wanted, None), verdict, || Fault::UnknownTask)
    }

    /// Returns true if a caller may use a built-in tool on an agent.
    pub(super) fn may_use(&self, caller: &Caller, agent: &str, tool: TaskTool) -> bool {
        match tool {
            TaskTool::Start => self.judge_start(caller, agent).is_allowed(),
            tool => {
                let wanted = Action { agent: Some(agent), tool: Some((tool.name(), tool.name())), ..CALL };
                self.rules.allow(caller, &wanted)
            }
        }
    }

    /// Returns true if a caller may call a tool of an agent, by skill id and tool name.
    pub(super) fn may_call(&self, caller: &Caller, agent: &str, tool: (&str, &str)) -> bool {
        self.judge_tool(caller, &Action { agent: Some(agent), tool: Some(tool), ..CALL }).is_allowed()
    }

    /// Evaluates the rules for a tool. The single tool of an agent names no skill, so a rule that
    /// denies any skill of the card denies the tool.
    fn judge_tool(&self, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'_> {
        let has_skill = wanted.tool.is_none_or(|(skill, _)| !skill.is_empty());
        if has_skill || self.rules.is_empty() {
            return self.rules.evaluate(caller, wanted);
        }
        let known = wanted.agent.and_then(|agent| self.directory.find(agent)?.known());
        let skills = known.iter().flat_map(|known| &known.card.skills).map(|skill| skill.id.as_str());
        self.rules.judge_any(caller, wanted, skills)
    }

    fn judge_start(&self, caller: &Caller, agent: &str) -> PolicyDecision<'_> {
        self.rules.judge_skilless(caller, &start_of(agent))
    }

    /// Authorizes reading a resource.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected, as if the resource did not exist.
    pub(super) fn authorize_resource(
        &self,
        asking: (&ClientContext, Route<'_>),
        agent: Option<&Agent>,
        uri: &str,
    ) -> Result<(), Fault> {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted =
            Action { method: Method::ResourcesRead.as_str(), agent, tool: None, resource: Some(uri) };
        self.evaluate(asking, &wanted, None, || resource_not_found(uri))
    }

    /// Returns true if a caller may read a resource.
    pub(super) fn may_read(&self, asker: &ClientContext, agent: Option<&Agent>, uri: &str) -> bool {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let wanted =
            Action { method: Method::ResourcesRead.as_str(), agent, tool: None, resource: Some(uri) };
        self.rules.allow(&asker.caller, &wanted)
    }

    /// Returns true if a tool is listed for a caller.
    pub(super) fn is_tool_visible(&self, asker: &ClientContext, entry: &ToolRef) -> bool {
        let caller = &asker.caller;
        match entry.of_agent() {
            Some(tool) => {
                self.may_call(caller, &tool.agent, (tool.skill.as_deref().unwrap_or_default(), &tool.name))
            }
            None if entry.name() == TaskTool::Start.name() && !self.rules.is_empty() => {
                let mut agents = self.directory.agents().iter();
                agents.any(|agent| self.may_use(caller, &agent.settings.name, TaskTool::Start))
            }
            None => {
                let tool = Some((entry.name(), entry.name()));
                self.rules.allow(caller, &Action { tool, ..CALL })
            }
        }
    }

    /// Authorizes an A2A method on an agent as a whole.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) fn authorize_agent(
        &self,
        (caller, door): (&Caller, Route<'_>),
        (method, agent): (&str, &str),
    ) -> Result<(), Fault> {
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        let verdict = self.rules.evaluate_any(caller, method, agent);
        self.audit((caller, door), (&wanted, None), verdict, || Fault::Forbidden)
    }

    /// Authorizes a method that A2A does not define. The gateway does not know where ids are in its
    /// params, so it could concern a task of any caller; the name of an MCP method in rules means
    /// the MCP server.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) fn authorize_unknown(
        &self,
        (caller, door): (&Caller, Route<'_>),
        (method, agent): (&str, &str),
    ) -> Result<(), Fault> {
        let unknown = || Fault::UnknownMethod(method.chars().take(100).collect());
        if [Era::Legacy, Era::Modern].into_iter().any(|era| Method::named(method, era).is_some()) {
            return Err(unknown());
        }
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        let verdict = self.rules.evaluate_agent(caller, method, agent);
        self.audit((caller, door), (&wanted, None), verdict, unknown)
    }

    /// Authorizes an A2A method on the caller's own tasks at an agent.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) fn authorize_builtin_tool(
        &self,
        (caller, door): (&Caller, Route<'_>),
        (method, agent): (&str, &str),
    ) -> Result<(), Fault> {
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        self.audit((caller, door), (&wanted, None), self.rules.evaluate(caller, &wanted), || Fault::Forbidden)
    }

    fn evaluate(
        &self,
        (asker, door): (&ClientContext, Route<'_>),
        wanted: &Action<'_>,
        arguments: Option<&RawValue>,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        let verdict = self.rules.evaluate(&asker.caller, wanted);
        self.audit((&asker.caller, door), (wanted, arguments), verdict, unseen)
    }

    /// Writes a decision to the audit log, and returns the fault if it is negative.
    fn audit(
        &self,
        (caller, door): (&Caller, Route<'_>),
        (wanted, arguments): (&Action<'_>, Option<&RawValue>),
        verdict: PolicyDecision<'_>,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        // Without authentication and rules there is no decision to log.
        if self.rules.is_empty() && caller.is_anonymous() {
            return Ok(());
        }
        let log = &self.settings.log;
        let arguments =
            arguments.filter(|_| log.audit_arguments).map(|arguments| redacted(arguments, &log.redact));
        let (is_allowed, rule) = match verdict {
            PolicyDecision::Allowed(rule) => (true, rule),
            PolicyDecision::Refused(rule) => (false, rule),
            PolicyDecision::ScopesNeeded(rule, _) => (false, Some(rule)),
        };
        let decision = access_log::AuditDecision {
            caller: caller.name(),
            method: wanted.method,
            agent: wanted.agent,
            tool: wanted.tool.map(|(_, name)| name),
            resource: wanted.resource,
            arguments: arguments.as_deref(),
            is_allowed,
            rule,
        };
        decision.write();
        match verdict {
            PolicyDecision::Allowed(_) => Ok(()),
            PolicyDecision::Refused(_) => Err(unseen()),
            PolicyDecision::ScopesNeeded(_, scopes) => {
                // A token is for the endpoint that the client uses, also if the tool is of another
                // agent.
                let at = ChallengeContext { settings: &self.settings, endpoint: door.endpoint() };
                Err(Fault::InsufficientScope(challenge(&at, Some("insufficient_scope"), scopes)))
            }
        }
    }
}

/// Action for a call of a tool.
const CALL: Action<'static> =
    Action { method: Method::ToolsCall.as_str(), agent: None, tool: None, resource: None };

/// Returns the action for a call of `subagent_start`.
fn start_of(agent: &str) -> Action<'_> {
    Action { agent: Some(agent), tool: Some((TaskTool::Start.name(), TaskTool::Start.name())), ..CALL }
}

/// Most bytes of arguments in one line of the audit log.
const MAX_AUDITED_ARGUMENT_BYTES: usize = 2048;

/// Pointers to handles: any client can use the handle of an anonymous caller.
const HANDLES: [&str; 2] = ["/taskId", "/contextId"];

/// Returns arguments for the audit log, with the values at `pointers` redacted. Unreadable
/// arguments are left out: they could not be redacted.
fn redacted(arguments: &RawValue, pointers: &[String]) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(arguments.get()) else {
        return "(unreadable)".to_owned();
    };
    for pointer in pointers.iter().map(String::as_str).chain(HANDLES) {
        if let Some(secret) = value.pointer_mut(pointer) {
            *secret = Value::String("***".to_owned());
        }
    }
    let text = value.to_string();
    match text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_AUDITED_ARGUMENT_BYTES).last() {
        Some(end) if text.len() > MAX_AUDITED_ARGUMENT_BYTES => {
            format!("{}…", text.get(..end).unwrap_or_default())
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str, pointers: &[&str]) -> String {
        let pointers: Vec<String> = pointers.iter().map(|pointer| (*pointer).to_owned()).collect();
        redacted(serde_json::from_str(json).unwrap(), &pointers)
    }

    #[test]
    fn what_a_pointer_points_to_is_not_shown_and_the_rest_is() {
        let json = r#"{"a":{"b":[1,{"c/d":"secret"}]},"e":"shown"}"#;
        assert_eq!(shown(json, &["/a/b/1/c~1d", "/nowhere"]), r#"{"a":{"b":[1,{"c/d":"***"}]},"e":"shown"}"#);
        assert_eq!(shown(json, &["/a"]), r#"{"a":"***","e":"shown"}"#);
        assert_eq!(shown(r#"{"taskId":"handle"}"#, &[]), r#"{"taskId":"***"}"#);
        // Of a duplicate member the last counts, as elsewhere.
        assert_eq!(shown(r#"{"a":"first","a":"second"}"#, &["/a"]), r#"{"a":"***"}"#);
    }

    #[test]
    fn long_arguments_are_cut() {
        let long = shown(&format!("{{\"a\":\"{}\"}}", "\u{e9}".repeat(4000)), &[]);
        assert!(long.len() <= MAX_AUDITED_ARGUMENT_BYTES + '…'.len_utf8() && long.ends_with('…'));
    }
}
