//! The audit log: one line per decision about a caller, of target `audit`.
//!
//! Who wanted what, whether it was allowed, and by which rule. Has no room for secrets: no credentials, no handles, no bodies. Not here:
//! how requests end (see `access`).

use std::fmt::Display;

use tracing::field;

use super::access::Tame;

/// A decision by the rules of the configuration. `None` where there is nothing to say.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
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

impl Decision<'_> {
    /// Writes the line.
    pub fn write(&self) {
        tracing::info!(
            target: "audit",
            decision = if self.is_allowed { "allowed" } else { "refused" },
            caller = %Tame(self.caller),
            method = beginning(self.method),
            agent = self.agent.map(|text| field::display(Tame(text))),
            tool = self.tool.map(|text| field::display(Tame(text))),
            resource = self.resource.map(|text| field::display(Tame(text))),
            arguments = self.arguments.map(field::display),
            rule = self.rule.map(|text| field::display(Tame(text))),
        );
    }
}

/// As much of a method as a line may hold: a client may call one what it likes.
fn beginning(method: &str) -> &str {
    const LONGEST: usize = 200;
    method.char_indices().nth(LONGEST).and_then(|(end, _)| method.get(..end)).unwrap_or(method)
}

/// Somebody did not prove who it is. `why` is one of a few words.
pub fn not_admitted(from: Option<&impl Display>, why: &'static str) {
    tracing::info!(target: "audit", decision = "not_admitted", from = from.map(field::display), why);
}
