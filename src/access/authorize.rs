//! Authorization: the methods, tools and resources that a caller may use and see. A forbidden item
//! looks as if it did not exist.
//!
//! `auth::Rules` evaluates the rules; handles open only for their caller.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::OAuthMetadata;
use crate::agents::{Agent, Directory};
use crate::auth::{Action, Caller, PolicyDecision, Rules};
use crate::bridge::catalogue::ToolRef;
use crate::bridge::task_tools::TaskTool;
use crate::config::Log;
use crate::fault::Fault;
use crate::http_edge::Route;
use crate::mcp::{Era, Method};
use crate::telemetry::access_log;
use crate::telemetry::trace::RequestScope;

/// The caller of a request, and the route of the request.
#[derive(Clone, Copy)]
pub(crate) struct Requester<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) route: Route<'a>,
    /// Id, client address and trace of the request; `None` for work without one.
    pub(crate) scope: Option<&'a RequestScope>,
}

/// A tool to be called.
#[derive(Clone, Copy)]
pub(crate) struct ToolUse<'a> {
    /// Skill of the tool; for a built-in tool its name; empty for the only tool of an agent.
    pub(crate) skill: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a RawValue>,
}

impl<'a> ToolUse<'a> {
    /// Returns the use of a built-in tool.
    pub(crate) fn builtin(name: &'a str, arguments: Option<&'a RawValue>) -> Self {
        Self { skill: name, name, arguments }
    }
}

/// A message in a task.
#[derive(Clone, Copy)]
pub(crate) struct TaskMessage<'a> {
    pub(crate) method: Method,
    pub(crate) skill: Option<&'a str>,
    /// Name of the tool of this skill, if the agent has one.
    pub(crate) tool: Option<&'a str>,
}

/// An action that the rules evaluate, as the audit log shows it.
struct AuditedAction<'a> {
    action: Action<'a>,
    arguments: Option<&'a RawValue>,
}

impl<'a> From<Action<'a>> for AuditedAction<'a> {
    fn from(action: Action<'a>) -> Self {
        Self { action, arguments: None }
    }
}

/// Authorizes requests by the rules, and logs the decisions.
pub(crate) struct Authorizer {
    rules: Rules,
    directory: Arc<Directory>,
    metadata: Arc<OAuthMetadata>,
    /// True if arguments of tools are logged.
    audit_arguments: bool,
    /// Pointers to values in arguments that are not logged.
    redact: Vec<String>,
}

impl Authorizer {
    pub(crate) fn new(
        rules: Rules,
        directory: Arc<Directory>,
        metadata: Arc<OAuthMetadata>,
        log: &Log,
    ) -> Self {
        Self { rules, directory, metadata, audit_arguments: log.audit_arguments, redact: log.redact.clone() }
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns true if the agent exists for this caller. A caller that needs more scopes gets a
    /// challenge later.
    pub(crate) fn is_visible(&self, caller: &Caller, agent: &str) -> bool {
        let wanted = Action { agent: Some(agent), ..Action::default() };
        self.directory.find(agent).is_some()
            && (self.rules.sees(caller, agent)
                || matches!(self.rules.evaluate(caller, &wanted), PolicyDecision::ScopesNeeded(..)))
    }

    /// Returns true if the caller sees an agent on this route.
    pub(crate) fn can_see(&self, by: Requester<'_>, agent: &Agent) -> bool {
        let name = agent.settings.name.as_str();
        by.route.agent().is_none_or(|only| name == only) && self.rules.sees(by.caller, name)
    }

    /// Returns the agents that the caller sees on this route.
    pub(crate) fn visible_agents<'s>(&'s self, by: Requester<'s>) -> impl Iterator<Item = &'s Arc<Agent>> {
        self.directory.agents().iter().filter(move |agent| self.can_see(by, agent))
    }

    /// Authorizes a method.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) fn authorize_method(&self, by: Requester<'_>, method: Method) -> Result<(), Fault> {
        let wanted = Action { method: method.as_str(), agent: by.route.agent(), ..Action::default() };
        // The rules for the tool itself are evaluated, and logged, later.
        if method == Method::ToolsCall && self.rules.allow(by.caller, &wanted) {
            return Ok(());
        }
        self.evaluate(by, wanted, || Fault::Forbidden)
    }

    /// Authorizes a method on a task of an agent. The resources of a task belong to its caller, so
    /// rules for resources do not apply to them.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) fn authorize_task(
        &self,
        by: Requester<'_>,
        method: Method,
        agent: &Agent,
    ) -> Result<(), Fault> {
        let wanted =
            Action { method: method.as_str(), agent: Some(&agent.settings.name), ..Action::default() };
        self.evaluate(by, wanted, || Fault::UnknownTask)
    }

    /// Authorizes a tool, by skill and name.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected, as if the tool did not exist.
    pub(crate) fn authorize_tool(
        &self,
        by: Requester<'_>,
        agent: Option<&Agent>,
        tool: ToolUse<'_>,
    ) -> Result<(), Fault> {
        let agent = agent.map(|agent| agent.settings.name.as_str());
        let action = Action { agent, tool: Some((tool.skill, tool.name)), ..CALL };
        let decision = self.evaluate_tool(by.caller, &action);
        let unseen = || Fault::NoSuchTool(tool.name.to_owned());
        self.audit(by, &AuditedAction { action, arguments: tool.arguments }, decision, unseen)
    }

    /// Authorizes the start of a task at an agent without a skill.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the call is rejected, as if the tool did not exist.
    pub(crate) fn authorize_start(&self, by: Requester<'_>, agent: &Agent) -> Result<(), Fault> {
        let wanted = start_of(&agent.settings.name);
        let decision = self.evaluate_start(by.caller, &agent.settings.name);
        let unseen = || Fault::NoSuchTool(TaskTool::Start.name().to_owned());
        self.audit(by, &wanted.into(), decision, unseen)
    }

    /// Authorizes a message in a task: as a call of the tool of its skill, or as a message to the
    /// agent as a whole if there is no such tool.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the message is rejected, as if the task did not exist.
    pub(crate) fn authorize_message(
        &self,
        by: Requester<'_>,
        agent: &Agent,
        message: TaskMessage<'_>,
    ) -> Result<(), Fault> {
        let (name, method) = (agent.settings.name.as_str(), message.method.as_str());
        let tool = message.tool.map(|tool| (message.skill.unwrap_or_default(), tool));
        let wanted = Action { method, agent: Some(name), tool, resource: None };
        let decision = match tool {
            Some(_) => self.evaluate_tool(by.caller, &wanted),
            None => self.rules.evaluate_any(by.caller, method, name),
        };
        self.audit(by, &wanted.into(), decision, || Fault::UnknownTask)
    }

    /// Returns true if a caller may use a built-in tool on an agent, and the agent accepts it.
    pub(crate) fn may_use(&self, caller: &Caller, agent: &str, tool: TaskTool) -> bool {
        self.may_use_on(caller, agent, self.directory.find(agent).map(|found| &**found), tool)
    }

    /// Returns the same as [`Authorizer::may_use`]; `found` is the agent of this name.
    pub(crate) fn may_use_on(
        &self,
        caller: &Caller,
        agent: &str,
        found: Option<&Agent>,
        tool: TaskTool,
    ) -> bool {
        if found.is_some_and(|agent| !agent.settings.accepts_tool(tool.name())) {
            return false;
        }
        match tool {
            TaskTool::Start => self.evaluate_start(caller, agent).is_allowed(),
            tool => {
                let wanted = Action { agent: Some(agent), tool: Some((tool.name(), tool.name())), ..CALL };
                self.rules.allow(caller, &wanted)
            }
        }
    }

    /// Returns true if a caller may call a built-in tool that is for no agent.
    pub(crate) fn may_call_builtin(&self, caller: &Caller, tool: &str) -> bool {
        self.rules.allow(caller, &Action { tool: Some((tool, tool)), ..CALL })
    }

    /// Returns true if a caller may call a tool of an agent, by skill id and tool name.
    pub(crate) fn may_call(&self, caller: &Caller, agent: &str, skill: &str, tool: &str) -> bool {
        let wanted = Action { agent: Some(agent), tool: Some((skill, tool)), ..CALL };
        self.evaluate_tool(caller, &wanted).is_allowed()
    }

    /// Evaluates the rules for a tool. The single tool of an agent names no skill, so a rule that
    /// denies any skill of the card denies the tool.
    fn evaluate_tool(&self, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'_> {
        let has_skill = wanted.tool.is_none_or(|(skill, _)| !skill.is_empty());
        if has_skill || self.rules.is_empty() {
            return self.rules.evaluate(caller, wanted);
        }
        let known = wanted.agent.and_then(|agent| self.directory.find(agent)?.known());
        let skills = known.iter().flat_map(|known| &known.card.skills).map(|skill| skill.id.as_str());
        self.rules.judge_any(caller, wanted, skills)
    }

    fn evaluate_start(&self, caller: &Caller, agent: &str) -> PolicyDecision<'_> {
        self.rules.judge_skilless(caller, &start_of(agent))
    }

    /// Authorizes reading a resource. The rules see the URI without needless percent-encoding.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected, as if the resource did not exist.
    pub(crate) fn authorize_resource(
        &self,
        by: Requester<'_>,
        agent: Option<&Agent>,
        uri: &str,
    ) -> Result<(), Fault> {
        let plain = without_needless_encoding(uri);
        self.evaluate(by, read_of(agent, &plain), || Fault::no_such_resource(uri))
    }

    /// Returns true if a caller may read a resource. The rules see the URI without needless
    /// percent-encoding.
    pub(crate) fn may_read(&self, caller: &Caller, agent: Option<&Agent>, uri: &str) -> bool {
        self.rules.allow(caller, &read_of(agent, &without_needless_encoding(uri)))
    }

    /// Returns true if a caller may get a prompt of the operator. For the rules it is a tool of its
    /// name.
    pub(crate) fn may_get_prompt(&self, caller: &Caller, agent: Option<&str>, name: &str) -> bool {
        let method = Method::PromptsGet.as_str();
        self.rules.allow(caller, &Action { method, agent, tool: Some((name, name)), resource: None })
    }

    /// Returns true if a tool is listed for a caller. A task tool needs an agent on the route that
    /// accepts it.
    pub(crate) fn is_tool_visible(&self, by: Requester<'_>, entry: &ToolRef) -> bool {
        let caller = by.caller;
        let is_on_route =
            |agent: &&Arc<Agent>| by.route.agent().is_none_or(|only| agent.settings.name == only);
        let mut on_route = self.directory.agents().iter().filter(is_on_route);
        if entry.own().is_some() && !on_route.any(|agent| agent.settings.accepts_tool(entry.name())) {
            return false;
        }
        match entry.of_agent() {
            Some(tool) => {
                self.may_call(caller, &tool.agent, tool.skill.as_deref().unwrap_or_default(), &tool.name)
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

    /// Returns true if a caller may send messages to an agent by this A2A method, with any skill.
    pub(crate) fn may_send(&self, caller: &Caller, method: &str, agent: &str) -> bool {
        self.rules.evaluate_any(caller, method, agent).is_allowed()
    }

    /// Authorizes an A2A method on an agent as a whole.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) fn authorize_agent(&self, by: Requester<'_>, method: &str, agent: &str) -> Result<(), Fault> {
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        let decision = self.rules.evaluate_any(by.caller, method, agent);
        self.audit(by, &wanted.into(), decision, || Fault::Forbidden)
    }

    /// Authorizes a method that A2A does not define. The gateway does not know where ids are in its
    /// params, so it could concern a task of any caller; the name of an MCP method in rules means
    /// the MCP server.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) fn authorize_unknown_method(
        &self,
        by: Requester<'_>,
        method: &str,
        agent: &str,
    ) -> Result<(), Fault> {
        let unknown = || Fault::unknown_method(method);
        if [Era::Legacy, Era::Modern].into_iter().any(|era| Method::named(method, era).is_some()) {
            return Err(unknown());
        }
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        let decision = self.rules.evaluate_agent(by.caller, method, agent);
        self.audit(by, &wanted.into(), decision, unknown)
    }

    /// Authorizes an A2A method on the caller's own tasks at an agent.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) fn authorize_own_tasks(
        &self,
        by: Requester<'_>,
        method: &str,
        agent: &str,
    ) -> Result<(), Fault> {
        let wanted = Action { method, agent: Some(agent), ..Action::default() };
        self.evaluate(by, wanted, || Fault::Forbidden)
    }

    fn evaluate(
        &self,
        by: Requester<'_>,
        wanted: Action<'_>,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        let decision = self.rules.evaluate(by.caller, &wanted);
        self.audit(by, &wanted.into(), decision, unseen)
    }

    /// Writes a decision to the audit log, and returns the fault if it is negative.
    fn audit(
        &self,
        by: Requester<'_>,
        audited: &AuditedAction<'_>,
        decision: PolicyDecision<'_>,
        unseen: impl FnOnce() -> Fault,
    ) -> Result<(), Fault> {
        // Without authentication and rules there is no decision to log.
        if self.rules.is_empty() && by.caller.is_anonymous() {
            return Ok(());
        }
        let wanted = &audited.action;
        let arguments = audited.arguments.filter(|_| self.audit_arguments);
        let arguments = arguments.map(|arguments| redacted(arguments, &self.redact));
        let (is_allowed, rule) = match decision {
            PolicyDecision::Allowed(rule) => (true, rule),
            PolicyDecision::Refused(rule) => (false, rule),
            PolicyDecision::ScopesNeeded(rule, _) => (false, Some(rule)),
        };
        let audited = access_log::AuditDecision {
            scope: by.scope,
            caller: by.caller.name(),
            method: wanted.method,
            agent: wanted.agent,
            tool: wanted.tool.map(|(_, name)| name),
            resource: wanted.resource,
            arguments: arguments.as_deref(),
            is_allowed,
            rule,
        };
        audited.write();
        match decision {
            PolicyDecision::Allowed(_) => Ok(()),
            PolicyDecision::Refused(_) => Err(unseen()),
            PolicyDecision::ScopesNeeded(_, scopes) => {
                // A token is for the endpoint that the client uses, also if the tool is of another
                // agent.
                let endpoint = by.route.endpoint();
                let challenge = self.metadata.challenge(endpoint, Some("insufficient_scope"), scopes);
                Err(Fault::InsufficientScope(challenge))
            }
        }
    }
}

/// Returns the action for reading a resource.
fn read_of<'a>(agent: Option<&'a Agent>, uri: &'a str) -> Action<'a> {
    let agent = agent.map(|agent| agent.settings.name.as_str());
    Action { method: Method::ResourcesRead.as_str(), agent, tool: None, resource: Some(uri) }
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

/// Returns a URI in which each character that needs no percent-encoding in a segment (RFC 3986 §3.3,
/// `pchar`) is written as itself, so that no spelling of a URI leads past a rule.
fn without_needless_encoding(uri: &str) -> Cow<'_, str> {
    if !uri.contains('%') {
        return Cow::Borrowed(uri);
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = uri.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = digit(bytes.get(at + 1)).zip(digit(bytes.get(at + 2))).filter(|_| *byte == b'%');
        let decoded = digits.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match decoded {
            Some(decoded) if is_plain_in_segment(decoded) => plain.push(decoded),
            Some(decoded) => plain.extend(format!("%{decoded:02X}").into_bytes()),
            None => plain.push(*byte),
        }
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8(plain).map_or(Cow::Borrowed(uri), Cow::Owned)
}

fn is_plain_in_segment(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

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
    fn spellings_of_a_uri_are_one() {
        for (uri, expected) in [
            ("memory://data/%73ecret/x", "memory://data/secret/x"),
            ("memory://data/n/task%3a1", "memory://data/n/task:1"),
            ("memory://data/a%2fb/c%20d", "memory://data/a%2Fb/c%20d"),
            ("memory://data/%zz/%4", "memory://data/%zz/%4"),
            ("memory://data/%25%37%33", "memory://data/%2573"),
            ("memory://data/n/k", "memory://data/n/k"),
        ] {
            assert_eq!(without_needless_encoding(uri), expected, "{uri}");
        }
    }

    #[test]
    fn redacted_members_are_hidden() {
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
