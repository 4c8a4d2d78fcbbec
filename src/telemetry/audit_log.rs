//! The audit log: one line per decision about a caller, of target `audit`.
//!
//! Who wanted what, whether it was allowed, and by which rule. Has no room for secrets: no credentials, no handles, no bodies. Not here:
//! how requests end (see `access`).

use std::fmt::Display;

use tracing::field;

use super::access_log::Sanitized;

/// A decision by the rules of the configuration. `None` where there is nothing to say.
#[derive(Debug, Clone, Copy)]
pub struct AuditDecision<'a> {
    /// The stable name of the caller.
    pub caller: &'a str,
    /// The method of MCP or A2A, or what a client calls one.
    pub method: &'a str,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The name of the tool.
    pub tool: Option<&'a str>,
    /// The URI of the resource.
    pub resource: Option<&'a str>,
    /// The arguments of a call, as far as they may be logged.
    pub arguments: Option<&'a str>,
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// The rule that says so; `None`: no rule allows it.
    pub rule: Option<&'a str>,
}

impl AuditDecision<'_> {
    /// Writes the line.
    pub fn write(&self) {
        tracing::info!(
            target: "audit",
            decision = if self.is_allowed { "allowed" } else { "refused" },
            caller = %Sanitized(self.caller),
            method = prefix(self.method),
            agent = self.agent.map(|text| field::display(Sanitized(text))),
            tool = self.tool.map(|text| field::display(Sanitized(text))),
            resource = self.resource.map(|text| field::display(Sanitized(text))),
            arguments = self.arguments.map(field::display),
            rule = self.rule.map(|text| field::display(Sanitized(text))),
        );
    }
}

/// As much of a method as a line may hold: a client may call one what it likes.
fn prefix(method: &str) -> &str {
    const MAX_METHOD_CHARS: usize = 200;
    method.char_indices().nth(MAX_METHOD_CHARS).and_then(|(end, _)| method.get(..end)).unwrap_or(method)
}

/// Somebody did not prove who it is. `why` is one of a few words.
pub fn not_admitted(from: Option<&impl Display>, why: &'static str) {
    tracing::info!(target: "audit", decision = "not_admitted", from = from.map(field::display), why);
}
