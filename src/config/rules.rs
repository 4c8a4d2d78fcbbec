//! `rules`: the permissions of callers.
//!
//! See also `auth::rules` for the evaluation of a rule.

use super::Auth;
use super::auth::TokenScope;
use super::certificate::check_spiffe_pattern;
use super::forms::checked_text;
use super::resolve::ResolveContext;
use super::section::section;
use super::spanned::{OneOrMany, Spanned};

section! {
    /// A rule of authorization. The first rule that matches decides; once there is one, actions
    /// that none allows are denied. In patterns `*` is any text.
    keys RuleKeys("Rule") {
        /// Its name in the output of `check --as` and in the audit log. Without it: its number.
        name: String => Option<String> [example forecasts],
        /// True if it denies instead of allowing.
        deny: bool => bool = false,
        /// Patterns for the caller's name: `key:NAME` for the holder of an API key,
        /// `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID` for a token without a subject,
        /// `uri:URI` (SPIFFE ids too), `dns:NAME` and `cn:NAME` for certificates, `anonymous`.
        /// Without it: any caller.
        callers: OneOrMany<Spanned<Pattern>> [example ["key:ci", "token:https://login.example.com#*"]],
        /// Patterns for the SANs of the caller's certificate. Without it: any certificate, or none.
        certificates: OneOrMany<Spanned<Pattern>> [example ["spiffe://example.com/*"]],
        /// Scopes that the caller's token must have, all of them. A client that lacks only scopes
        /// is told their names.
        scopes: Vec<Spanned<TokenScope>> => Vec<String> [example [weather.read]],
        /// Groups, of which the caller's token must name one. Without it: any.
        groups: OneOrMany<Spanned<Pattern>> [example [forecasters]],
        /// Patterns for agents, by their name in the configuration. Without it: all.
        agents: OneOrMany<Spanned<Pattern>> [example [weather]],
        /// Patterns for skills, by their id or by the name of the tool. Without it: all.
        tools: OneOrMany<Spanned<Pattern>> [example [forecast]],
        /// Patterns for methods: of MCP, such as `tools/call` or `tasks/*`; of A2A, by their names
        /// in 1.0, such as `SendMessage`. Without it: all.
        methods: OneOrMany<Spanned<Pattern>> [example ["tools/*", "tasks/*"]],
        /// Patterns for URIs of resources, such as `a2a-agent://weather`. Without it: all.
        resources: OneOrMany<Spanned<Pattern>> [example ["a2a-agent://weather"]],
    }
}

/// A rule of authorization. The first that matches decides; once there is one, actions that none
/// allows are denied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Its name in the output of `check` and in the audit log.
    pub name: String,
    /// True if it denies instead of allowing.
    pub deny: bool,
    /// Patterns for the caller's name; `None`: any caller.
    pub callers: Option<Vec<String>>,
    /// Patterns for the SANs of the caller's certificate; `None`: any, or none.
    pub certificates: Option<Vec<String>>,
    /// Scopes that its token must have, all of them. Empty: none.
    pub scopes: Vec<String>,
    /// Groups of which its token must name one; `None`: any.
    pub groups: Option<Vec<String>>,
    /// Patterns for agents; `None`: all.
    pub agents: Option<Vec<String>>,
    /// Patterns for skills, by their id or the tool's name; `None`: all.
    pub tools: Option<Vec<String>>,
    /// Patterns for methods of MCP, and of A2A by their names in 1.0; `None`: all.
    pub methods: Option<Vec<String>>,
    /// Patterns for URIs of resources; `None`: all.
    pub resources: Option<Vec<String>>,
}

checked_text!(Pattern as "pattern", |pattern: &str| {
    let is_pattern = !pattern.is_empty() && pattern.len() <= 512;
    if is_pattern { Ok(()) } else { Err("is not a pattern (1 to 512 characters)") }
});

/// Returns the rules, each with a name.
pub(super) fn rules(
    written: Spanned<Vec<Spanned<RuleKeys>>>,
    auth: &Auth,
    agents: &[&str],
    context: &mut ResolveContext<'_>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for keys in written.value().unwrap_or_default().into_iter().filter_map(Spanned::open) {
        let place = keys.section.clone();
        let rule = keys.resolve(rules.len() + 1, agents, context);
        if auth.tokens.is_empty() && (!rule.scopes.is_empty() || rule.groups.is_some()) {
            let problem = "asks for scopes or groups, which only tokens have: there is no auth.tokens";
            context.problem(&place, problem);
        }
        rules.push(rule);
    }
    rules
}

impl RuleKeys {
    fn resolve(mut self, number: usize, agents: &[&str], context: &mut ResolveContext<'_>) -> Rule {
        let agents_place = self.agents.place().unwrap_or(&self.section).clone();
        let rule = Rule {
            name: self.name(context).unwrap_or_else(|| number.to_string()),
            deny: self.deny(context),
            scopes: self.scopes(context),
            callers: identities(self.callers, "uri:", context),
            certificates: identities(self.certificates, "", context),
            groups: patterns(self.groups, context),
            agents: patterns(self.agents, context),
            tools: patterns(self.tools, context),
            methods: patterns(self.methods, context),
            resources: patterns(self.resources, context),
        };
        for pattern in rule.agents.iter().flatten().filter(|pattern| !pattern.contains('*')) {
            if !agents.contains(&pattern.as_str()) {
                context.problem(&agents_place, format!("there is no agent {pattern:?}"));
            }
        }
        rule
    }
}

/// Reads patterns for names of certificates. Reports those that no SPIFFE id matches, so that their
/// rule would never apply; an id stands after `prefix`.
fn identities(
    written: Spanned<OneOrMany<Spanned<Pattern>>>,
    prefix: &str,
    context: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    let place = written.place().cloned().unwrap_or_default();
    let patterns = patterns(written, context)?;
    for pattern in &patterns {
        // The name of a caller with several credentials has ` & ` between them.
        let mut ids = pattern.split(" & ").filter_map(|part| part.strip_prefix(prefix));
        if let Some(error) = ids.find_map(|id| check_spiffe_pattern(id).err()) {
            context.problem(&place, format!("{pattern:?} fits no SPIFFE id: {error}"));
        }
    }
    Some(patterns)
}

fn patterns(
    written: Spanned<OneOrMany<Spanned<Pattern>>>,
    context: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    if written.get()?.0.is_empty() {
        let place = written.place()?;
        context.problem(place, "is an empty list: nothing would fit (remove it for all)");
    }
    written.resolve(context).map(|(_, patterns)| patterns)
}
