//! The audit log: one line per decision about a caller, of target `audit`.
//!
//! Contains caller, action, decision and rule, and no secrets: no credentials, no handles, no
//! bodies. See `access_log` for the ends of requests.

use std::fmt::Display;

use tracing::field;

use super::access_log::Sanitized;

/// A decision by the rules of the configuration. `None` for absent fields.
#[derive(Debug, Clone, Copy)]
pub struct AuditDecision<'a> {
    /// The stable name of the caller.
    pub caller: &'a str,
    /// The method of MCP or A2A, or the client's text in its position.
    pub method: &'a str,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The name of the tool.
    pub tool: Option<&'a str>,
    /// The URI of the resource.
    pub resource: Option<&'a str>,
    /// The arguments of a call, as far as they may be logged.
    pub arguments: Option<&'a str>,
    /// True if the action is allowed.
    pub is_allowed: bool,
    /// The rule that decided; `None`: no rule allows it.
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

/// Returns the part of a method that a line may hold: a client chooses its text.
fn prefix(method: &str) -> &str {
    const MAX_METHOD_CHARS: usize = 200;
    method.char_indices().nth(MAX_METHOD_CHARS).and_then(|(end, _)| method.get(..end)).unwrap_or(method)
}

/// Writes the line of a failed authentication. `why` is one of a few words.
pub fn not_admitted(from: Option<&impl Display>, why: &'static str) {
    tracing::info!(target: "audit", decision = "not_admitted", from = from.map(field::display), why);
}
