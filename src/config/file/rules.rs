//! `rules` as in the file: the permissions of callers.
//!
//! See also `auth::rules` for the evaluation of a rule.

use schemars::JsonSchema;
use serde::Deserialize;

use super::auth::scopes;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::spiffe::check_spiffe_pattern;
use crate::config::{Auth, Rule};

/// A rule of authorization. Of the rules the first that fits decides; once there is one, what none allows is refused. In patterns
/// `*` stands for any text.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Rule")]
#[derive(Default)]
pub(super) struct RuleFile {
    /// Its name in answers of `check --as` and in the audit log. Without it: its number.
    name: Spanned<String>,
    /// Refuses what fits instead of allowing it.
    #[schemars(extend("default" = false))]
    deny: Spanned<bool>,
    /// Patterns for the caller's name: `key:NAME` for the holder of an API key,
    /// `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID` for a token without a subject, `uri:URI`
    /// (SPIFFE ids too), `dns:NAME` and `cn:NAME` for certificates, `anonymous`. Without it:
    /// anybody.
    callers: Spanned<OneOrMany<Spanned<String>>>,
    /// Patterns for the SANs of the caller's certificate. Without it: any certificate, or none.
    certificates: Spanned<OneOrMany<Spanned<String>>>,
    /// Scopes that the caller's token must have, all of them. A client that lacks only scopes is told which.
    scopes: Spanned<Vec<Spanned<String>>>,
    /// Groups, of which the caller's token must name one.
    groups: Spanned<OneOrMany<Spanned<String>>>,
    /// Patterns for agents, by their name in the configuration. Without it: all.
    agents: Spanned<OneOrMany<Spanned<String>>>,
    /// Patterns for skills, by their id or by the name of the tool. Without it: all.
    tools: Spanned<OneOrMany<Spanned<String>>>,
    /// Patterns for methods: of MCP, such as `tools/call` or `tasks/*`; of A2A, by their names in 1.0, such as `SendMessage`.
    /// Without it: all.
    methods: Spanned<OneOrMany<Spanned<String>>>,
    /// Patterns for URIs of resources, such as `a2a-agent://weather`. Without it: all.
    resources: Spanned<OneOrMany<Spanned<String>>>,
}

/// Returns the rules, each with a name.
pub(super) fn resolve(
    written: Spanned<Vec<Spanned<RuleFile>>>,
    (auth, agents): (&Auth, &[&str]),
    reading: &mut ResolveContext<'_>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (place, file) in written.value().unwrap_or_default().into_iter().filter_map(Spanned::take) {
        let rule = file.resolve(rules.len() + 1, &place, agents, reading);
        if auth.tokens.is_empty() && (!rule.scopes.is_empty() || rule.groups.is_some()) {
            reading.problem(
                &place,
                "asks for scopes or groups, which only tokens have: there is no auth.tokens",
            );
        }
        rules.push(rule);
    }
    rules
}

impl RuleFile {
    fn resolve(
        self,
        number: usize,
        section: &Location,
        agents: &[&str],
        reading: &mut ResolveContext<'_>,
    ) -> Rule {
        let agents_place = self.agents.place().cloned();
        let rule = Rule {
            name: self.name.value().unwrap_or_else(|| number.to_string()),
            deny: self.deny.value().unwrap_or(false),
            callers: identities(self.callers, "uri:", reading),
            certificates: identities(self.certificates, "", reading),
            scopes: scopes(self.scopes, reading),
            groups: patterns(self.groups, reading),
            agents: patterns(self.agents, reading),
            tools: patterns(self.tools, reading),
            methods: patterns(self.methods, reading),
            resources: patterns(self.resources, reading),
        };
        let place = agents_place.unwrap_or_else(|| section.clone());
        for pattern in rule.agents.iter().flatten().filter(|pattern| !pattern.contains('*')) {
            if !agents.contains(&pattern.as_str()) {
                reading.problem(&place, format!("there is no agent {pattern:?}"));
            }
        }
        rule
    }
}

/// Reads patterns for names of certificates. Reports those that no SPIFFE id matches, so that their
/// rule would never apply; an id stands after `prefix`.
fn identities(
    written: Spanned<OneOrMany<Spanned<String>>>,
    prefix: &str,
    reading: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    let place = written.place().cloned().unwrap_or_default();
    let patterns = patterns(written, reading)?;
    for pattern in &patterns {
        // The name of a caller with several credentials has ` & ` between them.
        let mut ids = pattern.split(" & ").filter_map(|part| part.strip_prefix(prefix));
        if let Some(error) = ids.find_map(|id| check_spiffe_pattern(id).err()) {
            reading.problem(&place, format!("{pattern:?} fits no SPIFFE id: {error}"));
        }
    }
    Some(patterns)
}

fn patterns(
    written: Spanned<OneOrMany<Spanned<String>>>,
    reading: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    let (place, OneOrMany(list)) = written.take()?;
    if list.is_empty() {
        reading.problem(&place, "is an empty list: nothing would fit (remove it for all)");
    }
    let mut patterns = Vec::new();
    for (place, pattern) in list.into_iter().filter_map(Spanned::take) {
        if pattern.is_empty() || pattern.len() > 512 {
            reading.problem(&place, "is not a pattern (1 to 512 characters)");
        }
        patterns.push(pattern);
    }
    Some(patterns)
}
