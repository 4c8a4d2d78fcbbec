//! Authorization by the rules of the configuration: the first rule that matches decides.
//!
//! Pure. Without rules every caller may do everything; with rules, an action that none allows is
//! denied. To the client a denied action looks like a missing object (see `gateway`). In a pattern
//! `*` stands for any text, everything else for itself.
//!
//! Rules without `*` in their names of callers or agents are found by these names, so that the cost of
//! a decision does not grow with the rules about others.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::Caller;
use crate::config::{Rule, matches_pattern as matches};

/// An action of a caller. Methods that name no agent leave the other fields empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Action<'a> {
    /// The method: of MCP, or of A2A by its name in 1.0.
    pub(crate) method: &'a str,
    /// The agent of the action.
    pub(crate) agent: Option<&'a str>,
    /// The id of the skill and the name of its tool, if one is called or listed.
    pub(crate) tool: Option<(&'a str, &'a str)>,
    /// The URI, if a resource is read, listed or subscribed to.
    pub(crate) resource: Option<&'a str>,
}

/// The decision of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyDecision<'a> {
    /// Allowed by this rule; `None`: there are no rules.
    Allowed(Option<&'a str>),
    /// Denied by this rule; `None`: no rule allows it.
    Refused(Option<&'a str>),
    /// Denied, but a rule would allow it to a token with these scopes.
    ScopesNeeded(&'a str, &'a [String]),
}

impl PolicyDecision<'_> {
    /// Returns true if the action is allowed.
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// The rules of the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    all: Vec<Rule>,
    index: RuleIndex,
}

impl Rules {
    /// Creates the rules, in this order.
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self { index: RuleIndex::new(&rules), all: rules }
    }

    /// Returns true if every caller may do everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns every scope that a rule requires.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.all.iter().flat_map(|rule| rule.scopes.iter().map(String::as_str))
    }

    /// Returns the rules that can apply to a caller and an agent, or any agent, in their order.
    fn candidates(&self, caller: &Caller, agent: Option<&str>) -> impl Iterator<Item = &Rule> {
        self.index.find(caller, agent).filter_map(|place| self.all.get(place))
    }

    /// Evaluates the rules for an action of a caller.
    pub(crate) fn evaluate(&self, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'_> {
        self.decide(caller, wanted.agent, |rule| is_about(rule, wanted))
    }

    /// Evaluates the rules for the one tool of an agent with these skills. The tool names none of
    /// them, so that the agent picks one: a rule that denies any of them denies the tool.
    pub(crate) fn judge_any<'s>(
        &self,
        caller: &Caller,
        wanted: &Action<'_>,
        skills: impl Iterator<Item = &'s str> + Clone,
    ) -> PolicyDecision<'_> {
        let is_of = |rule: &Rule, skill| is_about(rule, &Action { tool: Some((skill, skill)), ..*wanted });
        self.decide(caller, wanted.agent, |rule| {
            is_about(rule, wanted) || (rule.deny && skills.clone().any(|skill| is_of(rule, skill)))
        })
    }

    /// Evaluates the rules for a method on an agent as a whole, with any skill: a rule that allows
    /// some of its tools does not allow that, and one that denies any of them does deny it.
    pub(crate) fn evaluate_any(&self, caller: &Caller, method: &str, agent: &str) -> PolicyDecision<'_> {
        self.decide(caller, Some(agent), |rule| is_whole(rule, method, agent))
    }

    /// Evaluates the rules for a tool that any skill of an agent may serve: they must allow the
    /// tool, and the method on the agent as a whole.
    pub(crate) fn judge_skilless(&self, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'_> {
        match (self.evaluate(caller, wanted), wanted.agent) {
            (PolicyDecision::Allowed(_), Some(agent)) => self.evaluate_any(caller, wanted.method, agent),
            (verdict, _) => verdict,
        }
    }

    /// Evaluates the rules for a method on an agent as a whole that the gateway does not know: only
    /// a rule that names it, or the beginning of its name, allows it.
    pub(crate) fn evaluate_agent(&self, caller: &Caller, method: &str, agent: &str) -> PolicyDecision<'_> {
        if self.is_empty() {
            return PolicyDecision::Refused(None);
        }
        let named = |pattern: &String| !pattern.starts_with('*') && matches(pattern, method);
        self.decide(caller, Some(agent), |rule| {
            is_whole(rule, method, agent) && (rule.deny || rule.methods.iter().flatten().any(named))
        })
    }

    fn decide(
        &self,
        caller: &Caller,
        agent: Option<&str>,
        is_about: impl Fn(&Rule) -> bool,
    ) -> PolicyDecision<'_> {
        if self.is_empty() {
            return PolicyDecision::Allowed(None);
        }
        let mut needed = None;
        for rule in self.candidates(caller, agent) {
            if !is_about(rule) || !is_for(rule, caller) {
                continue;
            }
            if !has_scopes(rule, caller) {
                // A denial that depends on scopes is no reason to request them.
                if !rule.deny {
                    needed = needed.or(Some(rule));
                }
                continue;
            }
            if !rule.deny {
                return PolicyDecision::Allowed(Some(&rule.name));
            }
            // A later rule that needs scopes would not be reached with them either, an earlier one
            // would.
            return refused(needed, caller, Some(&rule.name));
        }
        refused(needed, caller, None)
    }

    /// Returns true if a caller may do anything at all with an agent: otherwise the agent is
    /// invisible.
    pub(crate) fn sees(&self, caller: &Caller, agent: &str) -> bool {
        if self.is_empty() {
            return true;
        }
        for rule in self.candidates(caller, Some(agent)).filter(|rule| is_for(rule, caller)) {
            if !any_matches(rule.agents.as_deref(), agent) || !has_scopes(rule, caller) {
                continue;
            }
            let is_whole = rule.tools.is_none() && rule.methods.is_none() && rule.resources.is_none();
            if !rule.deny || is_whole {
                return !rule.deny;
            }
        }
        false
    }

    /// Returns true if a caller may do this.
    pub(crate) fn allow(&self, caller: &Caller, wanted: &Action<'_>) -> bool {
        self.evaluate(caller, wanted).is_allowed()
    }
}

/// The places of rules, by the callers and agents that they name without `*`.
///
/// A rule is found for every caller and agent to which it applies, and for some others.
#[derive(Debug, Clone, Default)]
struct RuleIndex {
    /// Rules that name all of their callers.
    callers: HashMap<String, AgentIndex>,
    /// Other rules that name all SANs of certificates.
    certificates: HashMap<String, AgentIndex>,
    /// Other rules that name all groups, and allow: one that denies also applies to unreadable groups.
    groups: HashMap<String, AgentIndex>,
    /// The others.
    others: AgentIndex,
}

/// The places of rules, by the agents that they name, in the order of the rules.
#[derive(Debug, Clone, Default)]
struct AgentIndex {
    /// Rules that name all of their agents.
    agents: HashMap<String, Vec<usize>>,
    /// The others.
    others: Vec<usize>,
    /// All of them.
    all: Vec<usize>,
}

/// The maximum number of agents of a rule that is found by both callers and agents: their pairs are
/// stored.
const MAX_PAIRED_AGENTS: usize = 8;

impl RuleIndex {
    fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (place, rule) in rules.iter().enumerate() {
            let agents = literals(rule.agents.as_ref());
            let paired = agents.filter(|agents| agents.len() <= MAX_PAIRED_AGENTS);
            let groups = rule.groups.as_ref().filter(|_| !rule.deny);
            let (map, names) = if let Some(names) = literals(rule.callers.as_ref()) {
                (&mut index.callers, names)
            } else if let Some(names) = literals(rule.certificates.as_ref()) {
                (&mut index.certificates, names)
            } else if let Some(names) = literals(groups) {
                (&mut index.groups, names)
            } else {
                index.others.add(place, agents);
                continue;
            };
            for name in names {
                map.entry(name.clone()).or_default().add(place, paired);
            }
        }
        index
    }

    /// Returns the places of the rules that can apply, ascending.
    fn find(&self, caller: &Caller, agent: Option<&str>) -> impl Iterator<Item = usize> {
        let mut lists = SmallVec::<[&[usize]; 6]>::new();
        self.others.find(agent, &mut lists);
        let callers = caller.names().filter_map(|name| self.callers.get(name));
        let certificates = caller.certificate().iter().filter_map(|name| self.certificates.get(name));
        let groups = caller.groups().iter().filter_map(|name| self.groups.get(name));
        for found in callers.chain(certificates).chain(groups) {
            found.find(agent, &mut lists);
        }
        std::iter::from_fn(move || {
            let next = lists.iter().filter_map(|list| list.first()).min().copied()?;
            for list in &mut lists {
                if let Some((_, rest)) = list.split_first().filter(|(first, _)| **first == next) {
                    *list = rest;
                }
            }
            Some(next)
        })
    }
}

impl AgentIndex {
    fn add(&mut self, place: usize, agents: Option<&Vec<String>>) {
        push_once(&mut self.all, place);
        match agents {
            Some(agents) => {
                for agent in agents {
                    push_once(self.agents.entry(agent.clone()).or_default(), place);
                }
            }
            None => push_once(&mut self.others, place),
        }
    }

    fn find<'a>(&'a self, agent: Option<&str>, lists: &mut SmallVec<[&'a [usize]; 6]>) {
        match agent {
            None => lists.push(&self.all),
            Some(agent) => {
                lists.push(&self.others);
                lists.extend(self.agents.get(agent).map(Vec::as_slice));
            }
        }
    }
}

/// Adds the place of the rule that is added now; a rule can state a name twice.
fn push_once(places: &mut Vec<usize>, place: usize) {
    if places.last() != Some(&place) {
        places.push(place);
    }
}

/// Returns patterns that match only themselves; `None` for others.
fn literals(patterns: Option<&Vec<String>>) -> Option<&Vec<String>> {
    patterns.filter(|patterns| !patterns.iter().any(|pattern| pattern.contains('*')))
}

fn refused<'a>(needed: Option<&'a Rule>, caller: &Caller, by: Option<&'a str>) -> PolicyDecision<'a> {
    match needed {
        // A caller without a token cannot get one with more scopes.
        Some(rule) if caller.has_token() => PolicyDecision::ScopesNeeded(&rule.name, &rule.scopes),
        _ => PolicyDecision::Refused(by),
    }
}

/// Returns true if a caller has the scopes that a rule requires. If they are unreadable, a rule
/// that denies by them denies.
fn has_scopes(rule: &Rule, caller: &Caller) -> bool {
    let unclear = rule.deny && caller.unclear().scopes;
    unclear || rule.scopes.iter().all(|scope| caller.scopes().contains(scope))
}

/// Returns true if a rule applies to this caller, its scopes apart. If its groups are unreadable, a
/// rule that denies by them applies.
fn is_for(rule: &Rule, caller: &Caller) -> bool {
    let has = |patterns: &Option<Vec<String>>, values: &[String]| match patterns {
        None => true,
        Some(patterns) => patterns.iter().any(|pattern| values.iter().any(|value| matches(pattern, value))),
    };
    // A caller with several names is matched by each: for rules that deny and for rules that allow.
    let is_named = caller.names().any(|name| any_matches(rule.callers.as_deref(), name));
    let is_in_group = (rule.deny && caller.unclear().groups) || has(&rule.groups, caller.groups());
    is_named && has(&rule.certificates, caller.certificate()) && is_in_group
}

/// Returns true if a rule applies to an action. A rule that names tools applies to no resource, and
/// the other way round. An action that names neither, or no agent, is allowed by every rule that
/// allows any of it (lists are filtered item by item), and denied only by a rule that denies
/// everything of that method.
fn is_about(rule: &Rule, wanted: &Action<'_>) -> bool {
    let agent = match (&rule.agents, wanted.agent) {
        (None, _) => true,
        (Some(patterns), Some(agent)) => any_matches(Some(patterns), agent),
        (Some(_), None) => !rule.deny,
    };
    let thing = match (&rule.tools, &rule.resources) {
        (None, None) => true,
        (tools, resources) => match (wanted.tool, wanted.resource) {
            (None, None) => !rule.deny,
            (tool, resource) => {
                let is_tool = |(skill, name)| {
                    tools
                        .as_ref()
                        .is_some_and(|all| all.iter().any(|one| matches(one, skill) || matches(one, name)))
                };
                let is_resource =
                    |uri| resources.as_ref().is_some_and(|all| all.iter().any(|one| matches(one, uri)));
                tool.is_some_and(is_tool) || resource.is_some_and(is_resource)
            }
        },
    };
    agent && thing && any_matches(rule.methods.as_deref(), wanted.method)
}

/// Returns true if a rule applies to a method on an agent as a whole.
fn is_whole(rule: &Rule, method: &str, agent: &str) -> bool {
    let is_whole = match (&rule.tools, &rule.resources) {
        (None, None) => true,
        (Some(tools), _) => rule.deny || tools.iter().any(|tool| tool == "*"),
        (None, Some(_)) => false,
    };
    is_whole && any_matches(rule.agents.as_deref(), agent) && any_matches(rule.methods.as_deref(), method)
}

/// Returns true if a text matches one of these patterns; all do if there are none.
fn any_matches(patterns: Option<&[String]>, text: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| matches(pattern, text)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::*;
    use crate::auth::{Identity, UnreadableClaims};

    fn list(all: &[&str]) -> Option<Vec<String>> {
        Some(all.iter().map(|one| (*one).to_owned()).collect())
    }

    fn rule(name: &str) -> Rule {
        Rule { name: name.to_owned(), ..Rule::default() }
    }

    fn call<'a>(agent: &'a str, skill: &'a str) -> Action<'a> {
        Action { method: "tools/call", agent: Some(agent), tool: Some((skill, skill)), resource: None }
    }

    fn who(name: &str) -> Caller {
        Caller::hypothetical(name, Vec::new(), Vec::new())
    }

    #[test]
    fn first_rule_denies_all_others() {
        assert_eq!(Rules::default().evaluate(&who("key:a"), &call("x", "y")), PolicyDecision::Allowed(None));
        let rules = Rules::new(vec![Rule { callers: list(&["key:a"]), ..rule("one") }]);
        assert_eq!(rules.evaluate(&who("key:a"), &call("x", "y")), PolicyDecision::Allowed(Some("one")));
        assert_eq!(rules.evaluate(&who("key:ab"), &call("x", "y")), PolicyDecision::Refused(None));
        assert_eq!(rules.evaluate(&Caller::anonymous(), &call("x", "y")), PolicyDecision::Refused(None));
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), ..rule("no money") },
            Rule { callers: list(&["key:*"]), agents: list(&["money", "weather"]), ..rule("keys") },
        ]);
        assert_eq!(
            rules.evaluate(&who("key:a"), &call("money", "s")),
            PolicyDecision::Refused(Some("no money"))
        );
        assert_eq!(
            rules.evaluate(&who("key:a"), &call("weather", "s")),
            PolicyDecision::Allowed(Some("keys"))
        );
        assert_eq!(rules.evaluate(&who("key:a"), &call("other", "s")), PolicyDecision::Refused(None));
    }

    #[test]
    fn agentless_methods_need_an_allowing_rule() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), ..rule("no money") },
            Rule { callers: list(&["key:a"]), tools: list(&["rain"]), ..rule("a") },
            Rule { callers: list(&["key:b"]), methods: list(&["tools/call"]), ..rule("b") },
        ]);
        let lists = Action { method: "tools/list", ..Action::default() };
        assert!(rules.allow(&who("key:a"), &lists));
        assert!(!rules.allow(&who("key:b"), &lists));
        assert!(rules.allow(&who("key:a"), &call("weather", "rain")));
        assert!(!rules.allow(&who("key:a"), &call("weather", "snow")));
    }

    #[test]
    fn a_rule_for_resources_allows_no_tool_and_the_other_way_round() {
        let rules = Rules::new(vec![
            Rule { callers: list(&["key:a"]), resources: list(&["a2a-agent://*"]), ..rule("read") },
            Rule { callers: list(&["key:b"]), tools: list(&["*"]), ..rule("call") },
        ]);
        let card = Action {
            method: "resources/read",
            agent: Some("weather"),
            resource: Some("a2a-agent://weather"),
            tool: None,
        };
        assert!(rules.allow(&who("key:a"), &card) && !rules.allow(&who("key:a"), &call("weather", "rain")));
        assert!(!rules.allow(&who("key:b"), &card) && rules.allow(&who("key:b"), &call("weather", "rain")));
        let task = Action { method: "tasks/get", agent: Some("weather"), ..Action::default() };
        assert!(rules.allow(&who("key:a"), &task) && rules.allow(&who("key:b"), &task));
    }

    #[test]
    fn an_agent_is_seen_by_who_may_do_anything_with_it() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), tools: list(&["steal"]), ..rule("no stealing") },
            Rule { deny: true, agents: list(&["secret"]), ..rule("secret") },
            Rule { callers: list(&["key:a"]), tools: list(&["pay"]), ..rule("pay") },
            Rule { scopes: vec!["all".to_owned()], ..rule("all") },
        ]);
        assert!(rules.sees(&who("key:a"), "money") && !rules.sees(&who("key:a"), "secret"));
        assert!(!rules.sees(&who("key:b"), "money"));
        assert!(Rules::default().sees(&who("key:b"), "secret"));
    }

    #[test]
    fn a_token_that_lacks_only_scopes_is_told_which() {
        let rules = Rules::new(vec![
            Rule { scopes: vec!["admin".to_owned()], agents: list(&["money"]), ..rule("admins") },
            Rule { agents: list(&["weather"]), ..rule("all") },
        ]);
        let token = |scopes: &[&str]| {
            Caller::hypothetical("token:i#s", scopes.iter().map(|s| (*s).to_owned()).collect(), Vec::new())
        };
        let admin = ["admin".to_owned()];
        assert_eq!(
            rules.evaluate(&token(&[]), &call("money", "s")),
            PolicyDecision::ScopesNeeded("admins", admin.as_slice())
        );
        assert_eq!(
            rules.evaluate(&token(&["admin"]), &call("money", "s")),
            PolicyDecision::Allowed(Some("admins"))
        );
        assert_eq!(rules.evaluate(&who("key:a"), &call("money", "s")), PolicyDecision::Refused(None));
        assert_eq!(rules.evaluate(&token(&[]), &call("weather", "s")), PolicyDecision::Allowed(Some("all")));
    }

    #[test]
    fn another_proof_does_not_hide_a_name_that_is_refused() {
        let rules = Rules::new(vec![
            Rule { deny: true, callers: list(&["token:i#bob"]), ..rule("not bob") },
            Rule { callers: list(&["uri:*"]), ..rule("certificates") },
            Rule { callers: list(&["token:i#ann"]), ..rule("ann") },
        ]);
        let both = |token: &str| who("uri:spiffe://corp/host").and(&who(token));
        assert_eq!(
            rules.evaluate(&both("token:i#bob"), &call("x", "y")),
            PolicyDecision::Refused(Some("not bob"))
        );
        assert_eq!(
            rules.evaluate(&both("token:i#ann"), &call("x", "y")),
            PolicyDecision::Allowed(Some("certificates"))
        );
    }

    #[test]
    fn an_agent_as_a_whole_is_for_those_who_may_use_all_of_it() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), tools: list(&["steal"]), ..rule("no stealing") },
            Rule { callers: list(&["key:a"]), tools: list(&["pay"]), ..rule("pay") },
            Rule { callers: list(&["key:b"]), tools: list(&["*"]), methods: list(&["Send*"]), ..rule("b") },
            Rule { callers: list(&["key:c"]), resources: list(&["*"]), ..rule("c") },
            Rule { callers: list(&["key:d"]), ..rule("d") },
        ]);
        let judged = |name: &str, method, agent| rules.evaluate_any(&who(name), method, agent).is_allowed();
        assert!(!judged("key:a", "SendMessage", "weather") && !judged("key:c", "SendMessage", "weather"));
        assert!(judged("key:b", "SendMessage", "weather") && !judged("key:b", "GetTask", "weather"));
        assert!(judged("key:d", "GetTask", "weather") && !judged("key:d", "SendMessage", "money"));
    }

    #[test]
    fn one_tool_is_denied_with_any_skill() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), tools: list(&["steal"]), ..rule("no stealing") },
            Rule { callers: list(&["key:a"]), tools: list(&["money"]), ..rule("a") },
        ]);
        let judged = |agent, skills: &[&str]| {
            let wanted = Action { tool: Some(("", "money")), ..call(agent, "") };
            rules.judge_any(&who("key:a"), &wanted, skills.iter().copied()).is_allowed()
        };
        assert!(judged("money", &[]) && judged("money", &["pay"]) && judged("bank", &["steal"]));
        assert!(!judged("money", &["pay", "steal"]));
    }

    #[test]
    fn unknown_method_needs_a_rule() {
        let rules = Rules::new(vec![
            Rule { deny: true, agents: list(&["money"]), ..rule("no money") },
            Rule { callers: list(&["key:a"]), methods: list(&["acme/*"]), ..rule("acme") },
            Rule { callers: list(&["key:a"]), ..rule("all") },
            Rule { callers: list(&["key:b"]), ..rule("b") },
            Rule { callers: list(&["key:c"]), methods: list(&["**", "*/*", "*"]), ..rule("c") },
        ]);
        let judged = |name: &str, method, agent| rules.evaluate_agent(&who(name), method, agent).is_allowed();
        assert!(judged("key:a", "acme/x", "weather") && !judged("key:a", "acme/x", "money"));
        assert!(!judged("key:a", "other/x", "weather"), "that a rule allows everything is not enough");
        assert!(!judged("key:b", "acme/x", "weather"), "the rule that names it is for somebody else");
        assert!(!judged("key:c", "acme/x", "weather"));
        assert!(!Rules::default().evaluate_agent(&who("key:a"), "acme/x", "weather").is_allowed());
    }

    #[test]
    fn unclear_groups_and_scopes_are_refused_and_allow_nothing() {
        let scopes = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let of = |scopes_unclear, groups_unclear| {
            let unclear = UnreadableClaims { scopes: scopes_unclear, groups: groups_unclear };
            Caller::from(Identity { name: "token:i#s".to_owned(), unclear, ..Identity::default() })
        };
        let rules = Rules::new(vec![
            Rule { groups: list(&["*"]), ..rule("by group") },
            Rule { scopes: scopes(&["x"]), ..rule("by scope") },
            Rule { deny: true, groups: list(&["banned"]), agents: list(&["money"]), ..rule("banned") },
            Rule { deny: true, scopes: scopes(&["old"]), agents: list(&["weather"]), ..rule("old") },
            rule("all"),
        ]);
        for (caller, money, weather) in [
            (of(false, false), "all", "all"),
            (of(false, true), "banned", "all"),
            (of(true, false), "all", "old"),
            (of(true, true), "banned", "old"),
            (who("key:k").and(&of(true, true)), "banned", "old"),
        ] {
            for (agent, expected) in [("money", money), ("weather", weather)] {
                let verdict = match expected {
                    "all" => PolicyDecision::Allowed(Some("all")),
                    by => PolicyDecision::Refused(Some(by)),
                };
                assert_eq!(rules.evaluate(&caller, &call(agent, "s")), verdict, "{caller:?} {agent}");
                assert_eq!(rules.sees(&caller, agent), expected == "all", "{caller:?} {agent}");
            }
        }
    }

    #[test]
    fn groups_and_certificates_must_be_there_to_fit() {
        let rules = Rules::new(vec![
            Rule { groups: list(&["ops"]), ..rule("ops") },
            Rule { certificates: list(&["spiffe://corp/*"]), ..rule("corp") },
        ]);
        assert!(!rules.allow(&who("key:a"), &call("x", "y")));
        assert!(rules.allow(&who("uri:spiffe://corp/a"), &call("x", "y")));
        let ops = Caller::hypothetical("token:i#s", Vec::new(), vec!["ops".to_owned()]);
        assert_eq!(rules.evaluate(&ops, &call("x", "y")), PolicyDecision::Allowed(Some("ops")));
    }

    #[test]
    fn a_star_is_any_text_and_nothing_else_is_special() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("A", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("ab*ba", "aba", false),
            ("*b*", "abc", true),
            ("*b*d", "abcd", true),
            ("*b*b", "ab", false),
            ("a**b", "ab", true),
            ("a.c", "abc", false),
            ("a?c", "abc", false),
            ("spiffe://corp/*", "spiffe://corp.evil/x", false),
            ("spiffe://corp/*", "spiffe://corp/x/y", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Returns the rules without an index: each is evaluated.
    fn unindexed(rules: Vec<Rule>) -> Rules {
        let places: Vec<usize> = (0..rules.len()).collect();
        let others = AgentIndex { others: places.clone(), all: places, agents: HashMap::new() };
        Rules { all: rules, index: RuleIndex { others, ..RuleIndex::default() } }
    }

    fn some_of(all: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<String>>> {
        let names = subsequence(all, 1..=2).prop_map(|names| list(&names));
        prop_oneof![3 => names, 2 => Just(None)]
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let callers = some_of(&["key:a", "key:b", "key:*", "uri:u", "*"]);
        let proofs = (some_of(&["u", "d", "u*"]), some_of(&["g", "h", "*"]));
        let scopes = some_of(&["x", "y"]).prop_map(Option::unwrap_or_default);
        let of = (some_of(&["one", "two", "t*", "two"]), some_of(&["p", "q", "*"]), some_of(&["r", "s"]));
        let methods = some_of(&["tools/call", "tools/*", "SendMessage"]);
        (any::<bool>(), callers, proofs, scopes, of, methods).prop_map(
            |(deny, callers, (certificates, groups), scopes, (agents, tools, resources), methods)| Rule {
                name: String::new(),
                deny,
                callers,
                certificates,
                scopes,
                groups,
                agents,
                tools,
                methods,
                resources,
            },
        )
    }

    fn any_caller() -> impl Strategy<Value = Caller> {
        let owned = |names: Option<Vec<String>>| names.unwrap_or_default();
        let name = prop_oneof![Just("key:a"), Just("key:b & uri:u"), Just("uri:u & dns:d"), Just("cn:x")];
        let claims = (some_of(&["x", "y"]).prop_map(owned), some_of(&["g", "h"]).prop_map(owned));
        (name, claims, any::<(bool, bool)>()).prop_map(|(name, (scopes, groups), (no_scopes, no_groups))| {
            let known = Caller::hypothetical(name, Vec::new(), Vec::new());
            Caller::from(Identity {
                name: name.to_owned(),
                parts: known.names().skip(1).map(str::to_owned).collect(),
                certificate: known.certificate().to_vec(),
                scopes,
                groups,
                unclear: UnreadableClaims { scopes: no_scopes, groups: no_groups },
                has_token: true,
            })
        })
    }

    proptest! {
        #[test]
        fn index_decides_as_a_walk_over_all_rules(
            rules in vec(any_rule(), 0..12),
            caller in any_caller(),
            agent in prop_oneof![Just(None), Just(Some("one")), Just(Some("two")), Just(Some("three"))],
            tool in prop_oneof![Just(None), Just(Some(("p", "q")))],
            resource in prop_oneof![Just(None), Just(Some("r"))],
            method in prop_oneof![Just("tools/call"), Just("tools/list"), Just("SendMessage")],
        ) {
            let rules = rules.into_iter().enumerate();
            let rules: Vec<_> = rules.map(|(place, rule)| Rule { name: place.to_string(), ..rule }).collect();
            let (indexed, walked) = (Rules::new(rules.clone()), unindexed(rules));
            let wanted = Action { method, agent, tool, resource };
            prop_assert_eq!(indexed.evaluate(&caller, &wanted), walked.evaluate(&caller, &wanted));
            let any = |rules: &Rules| rules.judge_any(&caller, &wanted, ["p", "z"].into_iter()).is_allowed();
            prop_assert_eq!(any(&indexed), any(&walked));
            if let Some(agent) = agent {
                let whole = |rules: &Rules| {
                    let one = rules.evaluate_any(&caller, method, agent).is_allowed();
                    (one, rules.evaluate_agent(&caller, method, agent).is_allowed(), rules.sees(&caller, agent))
                };
                prop_assert_eq!(whole(&indexed), whole(&walked));
            }
        }
    }

    /// 3,000 rules about other callers and agents are not looked at.
    #[test]
    fn rules_about_others_are_not_candidates() {
        let about = |callers, agents, number: usize| {
            let named = |kind: &str| list(&[&format!("{kind}{number}")]);
            Rule {
                callers: if callers { named("key:") } else { None },
                agents: if agents { named("agent") } else { None },
                ..rule("other")
            }
        };
        let kinds = [(true, false), (false, true), (true, true)];
        let others =
            kinds.iter().flat_map(|(callers, agents)| (1..=1000).map(|n| about(*callers, *agents, n)));
        let rules = Rules::new(others.chain([rule("last")]).collect());
        let found = |name: &str, agent| rules.candidates(&who(name), agent).count();
        assert_eq!((found("key:x", Some("y")), found("key:7", Some("agent7"))), (1, 4));
        assert_eq!(found("key:7", None), 1003, "any agent: its own two, and those about agents");
    }
}
