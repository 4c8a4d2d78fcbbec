//! Search for agents by their abilities: index, ranking, visibility to a caller; and the agents as
//! documents over HTTP.
//!
//! Pure. The searched text is written once per catalogue, in lower case and bounded; a search
//! compares a few words with it. A skill that is hidden from a caller does not match for that
//! caller. The tool `find_agent` is in `tool`. Out of scope: authorization.
//!
//! The documents are the list for A2A clients, and the API catalog of RFC 9727: a linkset (RFC 9264)
//! with one context for each agent: its endpoint as anchor, `service-desc` and `describedby` its
//! card, `service-doc` the documentation that the card names, `service-meta` the OAuth metadata
//! (RFC 9728). RFC 9727 is the one published standard for such a list. The drafts of AI catalogs and
//! agent registries (`ai-catalog.json` and others) are left out: they still change, and agree on
//! nothing beyond the content of the card itself.

pub(crate) mod tool;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::resource_view::{AgentCapabilities, Reachability, json};
use super::response_mode::ToolPlan;
use crate::a2a::{AgentCard, AgentExtension, AgentSkill};

/// The agents with known cards, ready to be searched.
#[derive(Debug, Default)]
pub struct AgentIndex {
    profiles: HashMap<String, AgentProfile>,
}

/// A matching agent.
#[derive(Debug)]
pub struct AgentMatch<'i> {
    /// The agent's name in the configuration.
    pub name: &'i str,
    /// The agent's description of itself; `None` until its card has been seen.
    pub profile: Option<&'i AgentProfile>,
    /// The visible skills that match, the best first.
    pub skills: Vec<&'i SkillProfile>,
    /// The score: a word that is a name or an id counts 1000, one in a tag 100, one that begins a
    /// word of a name 10, one anywhere else 1. Zero for an empty query.
    pub score: u32,
}

/// The name of a tool of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentToolName<'a> {
    /// The agent's name in the configuration.
    pub(super) agent: &'a str,
    /// The id of the skill; `None` if the tool stands for the whole agent.
    pub(super) skill: Option<&'a str>,
    /// The name of the tool.
    pub(super) tool: &'a str,
}

impl AgentIndex {
    /// Builds the index of the agents; `names` are the names of their tools.
    pub(super) fn build<'a>(
        agents: &[(ToolPlan, Arc<AgentCard>)],
        names: impl Iterator<Item = AgentToolName<'a>>,
    ) -> Self {
        let tools: HashMap<(&str, Option<&str>), &str> =
            names.map(|name| ((name.agent, name.skill), name.tool)).collect();
        let profiles = agents.iter().map(|(plan, card)| {
            let tool = |skill: Option<&str>| tools.get(&(plan.agent.as_str(), skill)).copied();
            (plan.agent.clone(), AgentProfile::new(plan, card, tool))
        });
        Self { profiles: profiles.collect() }
    }

    /// Returns the matching ones of `agents`, the best first, and by name within equal scores.
    /// `may` returns true if the caller may use a tool of an agent, by its names in the rules: the
    /// id of the skill and the name of its tool; or the agent as a whole. An agent without any
    /// usable tool does not match.
    pub fn search<'i>(
        &'i self,
        query: &AgentQuery,
        agents: impl Iterator<Item = &'i str>,
        may: impl Fn(&str, Option<(&str, &str)>) -> bool,
    ) -> Vec<AgentMatch<'i>> {
        let mut found: Vec<AgentMatch<'i>> = agents
            .filter_map(|name| match self.profiles.get(name) {
                Some(profile) => matches(query, name, profile, |tool| may(name, tool)),
                None => match_by_name(query, name).filter(|_| may(name, None)),
            })
            .collect();
        found.sort_by_key(|found| (Reverse(found.score), found.name));
        found
    }
}

fn matches<'i>(
    query: &AgentQuery,
    name: &'i str,
    profile: &'i AgentProfile,
    may: impl Fn(Option<(&str, &str)>) -> bool,
) -> Option<AgentMatch<'i>> {
    let shown: Vec<&SkillProfile> = profile.skills.iter().filter(|skill| may(Some(skill.names()))).collect();
    if shown.is_empty() && !may(profile.tool.as_deref().map(|tool| ("", tool))) && !may(None) {
        return None;
    }
    let texts = || std::iter::once(&profile.text).chain(shown.iter().map(|skill| &skill.text));
    let score = score(query, texts)?;
    let worth = |skill: &SkillProfile| query.words().map(|word| skill.text.score(query, word)).sum::<u32>();
    let mut skills: Vec<(Reverse<u32>, &SkillProfile)> = shown
        .iter()
        .filter(|skill| query.matches_skill(&skill.text))
        .map(|skill| (Reverse(worth(skill)), *skill))
        .collect();
    if query.names_skill() && skills.is_empty() {
        return None;
    }
    // Stable: equal scores keep the order of the card.
    skills.sort_by_key(|(worth, _)| *worth);
    let skills = skills.into_iter().map(|(_, skill)| skill).collect();
    Some(AgentMatch { name, profile: Some(profile), skills, score })
}

/// Matches an agent of which only the name is known.
fn match_by_name<'i>(query: &AgentQuery, name: &'i str) -> Option<AgentMatch<'i>> {
    let text = FoldedText::of_name(name);
    let score = score(query, || std::iter::once(&text)).filter(|_| !query.names_skill())?;
    Some(AgentMatch { name, profile: None, skills: Vec::new(), score })
}

/// Returns the score of all words together; `None` if one of them does not occur.
fn score<'t, T: Iterator<Item = &'t FoldedText>>(query: &AgentQuery, texts: impl Fn() -> T) -> Option<u32> {
    let mut sum = 0;
    for word in query.words() {
        let best = texts().map(|text| text.score(query, word)).max().filter(|best| *best > 0)?;
        sum += best;
    }
    Some(sum)
}

/// Maximum length of a text in a query, in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 256;
/// Maximum number of words. So many matches of one kind count less than one match of the next kind.
const MOST_WORDS: usize = 8;

/// A query, in lower case. An empty one matches all agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentQuery {
    whole: String,
    words: Vec<String>,
    skill: Option<String>,
    tag: Option<String>,
}

/// The reason why a query is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    /// A text is longer than [`MAX_QUERY_BYTES`].
    #[error("a text to look for has at most {MAX_QUERY_BYTES} bytes")]
    TooLong,
    /// The query has too many words.
    #[error("at most {MOST_WORDS} words can be looked for at once: use fewer")]
    TooMany,
}

impl AgentQuery {
    /// Creates a query for agents in which all words of `text` occur, with a skill that has `skill`
    /// in its name or id, and this tag.
    ///
    /// # Errors
    ///
    /// [`BadQuery`] if the query exceeds a limit.
    pub fn new(text: &str, skill: Option<&str>, tag: Option<&str>) -> Result<Self, BadQuery> {
        if [Some(text), skill, tag].into_iter().flatten().any(|text| text.len() > MAX_QUERY_BYTES) {
            return Err(BadQuery::TooLong);
        }
        let whole = lowercased(text);
        let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_owned();
        let words: Vec<String> = whole.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
        if words.len() > MOST_WORDS {
            return Err(BadQuery::TooMany);
        }
        let wanted = |text: Option<&str>| text.map(lowercased).filter(|text| !text.is_empty());
        Ok(Self { whole, words, skill: wanted(skill), tag: wanted(tag) })
    }

    /// Returns the words that must all occur.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns the whole query as one text.
    pub(super) fn whole(&self) -> &str {
        &self.whole
    }

    /// Returns true if the query names a skill, so that agents without one do not match.
    pub(super) fn names_skill(&self) -> bool {
        self.skill.is_some() || self.tag.is_some()
    }

    /// Returns true if a skill matches the query's skill and tag.
    pub(super) fn matches_skill(&self, text: &FoldedText) -> bool {
        self.skill.as_ref().is_none_or(|skill| text.name_matches(skill))
            && self.tag.as_ref().is_none_or(|tag| text.has_tag(tag))
    }
}

/// Searched length of a description, in bytes.
const SEARCHED: usize = 1024;
/// Maximum number of tags per skill that are searched and shown.
const MOST_TAGS: usize = 16;

/// An agent's description of itself.
#[derive(Debug)]
pub struct AgentProfile {
    /// The agent's name on its card.
    pub title: String,
    /// The agent's description.
    pub description: String,
    pub(super) skills: Vec<SkillProfile>,
    /// The one tool of the agent, if its skills have none of their own.
    pub(super) tool: Option<String>,
    pub(super) text: FoldedText,
}

/// One skill of an agent.
#[derive(Debug)]
pub struct SkillProfile {
    /// Id on the card.
    pub id: String,
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// The skill's tool in the catalogue of all agents, if there is one.
    pub tool: Option<String>,
    is_called_alone: bool,
    pub(super) text: FoldedText,
}

impl SkillProfile {
    fn new(skill: &AgentSkill, description: &str, tool: Option<&str>, is_called_alone: bool) -> Self {
        let tags: Vec<String> = skill.tags.iter().take(MOST_TAGS).cloned().collect();
        let text = FoldedText::new(&[&skill.id, &skill.name, tool.unwrap_or_default()], &tags, description);
        Self {
            id: skill.id.clone(),
            name: skill.name.clone(),
            description: description.to_owned(),
            tags,
            tool: tool.map(str::to_owned),
            is_called_alone,
            text,
        }
    }

    /// Returns the names used in rules: the id of the skill, which the one tool of a whole agent
    /// does not have, and the name of the tool.
    pub(super) fn names(&self) -> (&str, &str) {
        let id = if self.is_called_alone { self.id.as_str() } else { "" };
        (id, self.tool.as_deref().unwrap_or_default())
    }
}

impl AgentProfile {
    /// Creates the profile; `tool` returns the name of the tool of a skill, or of the whole agent.
    pub(super) fn new<'t>(
        plan: &ToolPlan,
        card: &AgentCard,
        tool: impl Fn(Option<&str>) -> Option<&'t str>,
    ) -> Self {
        let whole = tool(None);
        let skills = card.skills.iter().filter_map(|skill| {
            let plan = plan.skills.get(&skill.id);
            if plan.is_some_and(|plan| plan.hidden) {
                return None;
            }
            let description = plan.and_then(|plan| plan.description.as_deref());
            let description = description.unwrap_or(&skill.description);
            let own = tool(Some(&skill.id));
            Some(SkillProfile::new(skill, description, own.or(whole), whole.is_none()))
        });
        let description = plan.description.as_deref().unwrap_or(&card.description);
        Self {
            title: card.name.clone(),
            description: description.to_owned(),
            skills: skills.collect(),
            tool: whole.map(str::to_owned),
            text: FoldedText::new(&[&plan.agent, &card.name], &[], description),
        }
    }
}

/// Searchable text, in lower case.
#[derive(Debug)]
pub(super) struct FoldedText {
    names: Vec<String>,
    tags: Vec<String>,
    prose: String,
}

impl FoldedText {
    fn new(names: &[&str], tags: &[String], description: &str) -> Self {
        let end = description.floor_char_boundary(SEARCHED);
        Self {
            names: names.iter().filter(|name| !name.is_empty()).map(|name| lowercased(name)).collect(),
            tags: tags.iter().map(|tag| lowercased(tag)).collect(),
            prose: lowercased(description.get(..end).unwrap_or_default()),
        }
    }

    /// Returns the text of an agent of which only the name is known.
    pub(super) fn of_name(name: &str) -> Self {
        Self::new(&[name], &[], "")
    }

    /// Returns the score of one word of a query; 0 if it does not occur.
    pub(super) fn score(&self, query: &AgentQuery, word: &str) -> u32 {
        let is = |text: &String| text == word || text == query.whole();
        if self.names.iter().any(is) {
            return 1000;
        }
        if self.tags.iter().any(|tag| is(tag) || pieces(tag).any(|piece| piece == word)) {
            return 100;
        }
        if self.names.iter().any(|name| pieces(name).any(|piece| piece.starts_with(word))) {
            return 10;
        }
        let occurs = |text: &String| text.contains(word);
        u32::from(occurs(&self.prose) || self.names.iter().any(occurs) || self.tags.iter().any(occurs))
    }

    /// Returns true if a name or an id contains `part`.
    pub(super) fn name_matches(&self, part: &str) -> bool {
        self.names.iter().any(|name| name.contains(part))
    }

    /// Returns true if `wanted` is one of the tags.
    pub(super) fn has_tag(&self, wanted: &str) -> bool {
        self.tags.iter().any(|tag| tag == wanted)
    }
}

/// Returns text in the form in which it is compared.
pub(super) fn lowercased(text: &str) -> String {
    text.trim().to_lowercase()
}

/// Returns the words of a text; an id is split too.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|piece| !piece.is_empty())
}

/// An interface of an agent at the gateway, as cards of 1.0 and the list name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServedInterface<'a> {
    /// URL; `host:port` for gRPC.
    pub(crate) url: &'a str,
    /// Name of the binding in cards.
    pub(crate) protocol_binding: &'static str,
    /// Version of A2A.
    pub(crate) protocol_version: &'static str,
    /// Tenant to write into messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<&'a str>,
}

/// One agent of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedAgent<'a> {
    /// The agent's name in the configuration.
    pub(crate) name: &'a str,
    /// The agent's name on its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'a str>,
    /// The agent's description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'a str>,
    /// The version of the agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<&'a str>,
    /// URL of the agent's endpoint.
    pub(crate) url: &'a str,
    /// URL of the agent's card.
    pub(crate) card: String,
    /// The agent's reachability.
    pub(crate) status: Reachability,
    /// The A2A versions that clients may use for it here; its own is the first.
    pub(crate) protocol_versions: Vec<&'static str>,
    /// The bindings that clients may use.
    pub(crate) bindings: Vec<&'static str>,
    /// The interfaces on its card here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) supported_interfaces: Vec<ServedInterface<'a>>,
    /// The agent's capabilities, if its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capabilities: Option<AgentCapabilities>,
    /// The skills that match.
    pub(crate) skills: Vec<ListedSkill<'a>>,
    /// The extensions that the agent supports.
    pub(crate) extensions: Vec<ListedExtension<'a>>,
}

/// One skill of an agent in the list.
#[derive(Debug, Serialize)]
pub(crate) struct ListedSkill<'a> {
    id: &'a str,
    name: &'a str,
    tags: &'a [String],
}

/// An extension that an agent supports.
#[derive(Debug, Serialize)]
pub(crate) struct ListedExtension<'a> {
    uri: &'a str,
    required: bool,
}

impl<'a> From<&'a SkillProfile> for ListedSkill<'a> {
    fn from(skill: &'a SkillProfile) -> Self {
        Self { id: &skill.id, name: &skill.name, tags: &skill.tags }
    }
}

impl<'a> From<&'a AgentExtension> for ListedExtension<'a> {
    fn from(extension: &'a AgentExtension) -> Self {
        Self { uri: &extension.uri, required: extension.required }
    }
}

/// Encodes one page of the list as JSON.
pub(crate) fn page(agents: &[ListedAgent<'_>], total: usize, next_cursor: Option<&str>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct AgentListPage<'a> {
        agents: &'a [ListedAgent<'a>],
        total: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    }
    json(&AgentListPage { agents, total, next_cursor })
}

/// One agent of the catalog.
#[derive(Debug)]
pub(crate) struct CatalogEntry<'a> {
    /// URL of the agent's endpoint.
    pub(crate) url: String,
    /// URL of the agent's card.
    pub(crate) card: String,
    /// The agent's name on its card.
    pub(crate) title: Option<&'a str>,
    /// URL of the documentation for people.
    pub(crate) documentation: Option<&'a str>,
    /// URL of the OAuth protected resource metadata.
    pub(crate) metadata: Option<String>,
}

/// A link with its media type and title.
#[derive(Serialize)]
struct CatalogLink<'a> {
    href: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LinkContext<'a> {
    anchor: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    item: Vec<CatalogLink<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_desc: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    describedby: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_doc: Option<[CatalogLink<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_meta: Option<[CatalogLink<'a>; 1]>,
}

/// Encodes the API catalog with the URL `place` as JSON: first its items, then a context for each
/// agent.
pub(crate) fn catalog(place: &str, agents: &[CatalogEntry<'_>]) -> String {
    #[derive(Serialize)]
    struct Linkset<'a> {
        linkset: Vec<LinkContext<'a>>,
    }
    let none = |anchor| LinkContext {
        anchor,
        item: Vec::new(),
        service_desc: None,
        describedby: None,
        service_doc: None,
        service_meta: None,
    };
    let item = |agent| CatalogLink { media_type: None, ..link(agent) };
    let all = LinkContext { item: agents.iter().map(item).collect(), ..none(place) };
    let each = agents.iter().map(|agent| LinkContext {
        service_desc: Some([CatalogLink { href: &agent.card, ..link(agent) }]),
        describedby: Some([CatalogLink { href: &agent.card, ..link(agent) }]),
        service_doc: agent.documentation.map(|href| [CatalogLink { href, media_type: None, title: None }]),
        service_meta: agent
            .metadata
            .as_deref()
            .map(|href| [CatalogLink { href, title: None, ..link(agent) }]),
        ..none(&agent.url)
    });
    json(&Linkset { linkset: std::iter::once(all).chain(each).collect() })
}

fn link<'a>(agent: &'a CatalogEntry<'a>) -> CatalogLink<'a> {
    CatalogLink { href: &agent.url, media_type: Some("application/json"), title: agent.title }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::super::resource_view::Reachability;
    use super::tool::{read, result};
    use super::*;
    use crate::bridge::arguments::validator;
    use crate::bridge::catalogue::{Catalogue, SkillPlan};
    use crate::mcp::Version;

    fn card(name: &str, about: &str, skills: Value) -> Arc<AgentCard> {
        let card = json!({ "name": name, "description": about, "url": "http://h/", "skills": skills });
        Arc::new(AgentCard::parse(card.to_string().as_bytes()).unwrap())
    }

    fn plan(agent: &str) -> ToolPlan {
        ToolPlan { agent: agent.into(), ..ToolPlan::default() }
    }

    fn skill(id: &str, name: &str, about: &str, tags: &[&str]) -> Value {
        json!({ "id": id, "name": name, "description": about, "tags": tags })
    }

    /// Returns agents with `rain` as a name, as a tag, as a word of a skill's name and as one of a
    /// description.
    fn town() -> Catalogue {
        let agents = [
            (plan("a-said"), card("Said", "", json!([skill("x", "X", "Tells of rain and snow", &[])]))),
            (plan("b-word"), card("Word", "", json!([skill("y", "Rainy days", "", &[])]))),
            (
                plan("c-tag"),
                card("Tag", "", json!([skill("z", "Z", "", &["Rain", "sky"]), skill("q", "Q", "", &[])])),
            ),
            (plan("d-name"), card("Name", "", json!([skill("rain", "Wet", "", &[])]))),
            (plan("none"), card("None", "Nothing of the kind", json!([]))),
        ];
        Catalogue::build(&agents, &[])
    }

    const NAMES: [&str; 6] = ["a-said", "b-word", "c-tag", "d-name", "none", "unseen"];

    fn search(
        catalogue: &Catalogue,
        (text, skill, tag): (&str, Option<&str>, Option<&str>),
    ) -> Vec<(String, u32)> {
        let query = AgentQuery::new(text, skill, tag).unwrap();
        let found = catalogue.index().search(&query, NAMES.into_iter(), |_, _| true);
        found.into_iter().map(|found| (found.name.to_owned(), found.score)).collect()
    }

    fn names(catalogue: &Catalogue, query: (&str, Option<&str>, Option<&str>)) -> Vec<String> {
        search(catalogue, query).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn names_go_before_tags_before_words_of_names_before_descriptions() {
        let scores: Vec<u32> =
            search(&town(), ("RAIN", None, None)).into_iter().map(|(_, score)| score).collect();
        assert_eq!(names(&town(), (" Rain, ", None, None)), ["d-name", "c-tag", "b-word", "a-said"]);
        assert_eq!(scores, [1000, 100, 10, 1]);
    }

    #[test]
    fn all_words_must_occur_wherever_they_do() {
        for (text, found) in [
            ("rain snow", vec!["a-said"]),
            ("rain Tag", vec!["c-tag"]),
            ("rain days", vec!["b-word"]),
            ("rain nothing", vec![]),
            ("c-tag", vec!["c-tag"]),
            ("unseen", vec!["unseen"]),
            ("*", NAMES.to_vec()),
            ("", NAMES.to_vec()),
        ] {
            assert_eq!(names(&town(), (text, None, None)), found, "{text}");
        }
    }

    #[test]
    fn a_skill_and_a_tag_leave_out_agents_without_one() {
        for (query, found) in [
            (("", Some("RAI"), None), vec!["b-word", "d-name"]),
            (("", None, Some("sky")), vec!["c-tag"]),
            (("", None, Some("sk")), vec![]),
            (("", Some("q"), Some("sky")), vec![]),
            (("rain", Some("z"), Some("rain")), vec!["c-tag"]),
        ] {
            assert_eq!(names(&town(), query), found, "{query:?}");
        }
    }

    #[test]
    fn a_skill_that_is_not_shown_finds_nothing_and_is_not_told() {
        let town = town();
        let query = AgentQuery::new("rain", None, None).unwrap();
        let found = town.index().search(&query, NAMES.into_iter(), |agent, tool| {
            let (skill, tool) = tool.unwrap_or_default();
            assert!(tool.is_empty() || tool.starts_with(agent), "{agent} {tool}");
            !["", "rain", "x"].contains(&skill)
        });
        assert_eq!(found.iter().map(|found| found.name).collect::<Vec<_>>(), ["c-tag", "b-word"]);
        let hidden = SkillPlan { hidden: true, ..SkillPlan::default() };
        let plan = ToolPlan { skills: BTreeMap::from([("rain".into(), hidden)]), ..plan("d-name") };
        let card = card("Name", "", json!([skill("rain", "Wet", "", &[])]));
        let kept_back = Catalogue::build(&[(plan, card)], &[]);
        assert!(kept_back.index().search(&query, ["d-name"].into_iter(), |_, _| true).is_empty());
    }

    #[test]
    fn an_agent_of_which_nothing_may_be_used_is_not_found() {
        let town = town();
        let found = |may: fn(&str, Option<(&str, &str)>) -> bool| {
            let found = town.index().search(&AgentQuery::default(), NAMES.into_iter(), may);
            found.into_iter().map(|found| found.name).collect::<Vec<_>>()
        };
        assert!(found(|_, _| false).is_empty());
        assert_eq!(found(|_, tool| tool == Some(("rain", "d-name_rain"))), ["d-name"]);
        assert_eq!(
            found(|_, tool| tool == Some(("", "none"))),
            ["none"],
            "the one tool of an agent without skills"
        );
        assert_eq!(
            found(|agent, tool| tool.is_none() && agent != "none"),
            ["a-said", "b-word", "c-tag", "d-name", "unseen"]
        );
    }

    #[test]
    fn the_one_tool_of_an_agent_does_all_its_skills() {
        let plan = ToolPlan { per_agent: true, ..plan("w") };
        let catalogue =
            Catalogue::build(&[(plan, card("W", "", json!([skill("rain", "Wet", "", &[])])))], &[]);
        let query = AgentQuery::new("rain", None, None).unwrap();
        let found =
            catalogue.index().search(&query, ["w"].into_iter(), |_, known_as| known_as == Some(("", "w")));
        assert_eq!(found[0].skills[0].tool.as_deref(), Some("w"));
    }

    #[test]
    fn a_query_is_bounded() {
        assert_eq!(AgentQuery::new(&"x".repeat(257), None, None), Err(BadQuery::TooLong));
        assert_eq!(AgentQuery::new("", None, Some(&"x".repeat(257))), Err(BadQuery::TooLong));
        assert_eq!(AgentQuery::new(&"x ".repeat(9), None, None), Err(BadQuery::TooMany));
        let told = |json: &str| read(Some(serde_json::from_str(json).unwrap())).unwrap_err();
        for (json, complaint) in [
            ("{}", "\"query\" is a required property"),
            (r#"{"query":"x","max":3}"#, "'max' was unexpected"),
            (r#"{"query":7}"#, "/query: 7 is not of type \"string\""),
            (r#"{"query":"1 2 3 4 5 6 7 8 9"}"#, "use fewer"),
        ] {
            assert!(told(json).contains(complaint), "{}", told(json));
        }
    }

    #[test]
    fn a_result_keeps_its_promise_and_is_one_line_an_agent() {
        let skills: Vec<Value> =
            (0..30).map(|number| skill(&format!("s{number}"), "S", "a\nb", &["t"])).collect();
        let agents: Vec<(ToolPlan, Arc<AgentCard>)> = (10..40)
            .map(|number| (plan(&format!("agent-{number}")), card("A", "one\ntwo", json!(skills))))
            .collect();
        let catalogue = Catalogue::build(&agents, &[]);
        let names: Vec<&str> = agents.iter().map(|(plan, _)| plan.agent.as_str()).chain(["unseen"]).collect();
        let search = |text| {
            let query = AgentQuery::new(text, None, None).unwrap();
            let found = catalogue.index().search(&query, names.iter().copied(), |_, _| true);
            found.into_iter().map(|found| (found, Reachability::Unreachable)).collect::<Vec<_>>()
        };
        for (text, told_agents, lines) in [("agent", 20, 21), ("unseen", 1, 2), ("nothing", 0, 1)] {
            let found = search(text);
            for version in [Version::V2025_03_26, Version::V2025_06_18, Version::V2026_07_28] {
                let told = serde_json::to_value(result(&found, version)).unwrap();
                let text = told["content"][0]["text"].as_str().unwrap();
                assert_eq!((text.lines().count(), &told["isError"]), (lines, &json!(false)), "{text}");
                if !version.has_structured_output() {
                    assert_eq!(told.get("structuredContent"), None);
                    continue;
                }
                let listed: Value = serde_json::from_str(tool::json(version).unwrap().get()).unwrap();
                let schema = validator(&listed["outputSchema"]).unwrap();
                let structured = &told["structuredContent"];
                assert_eq!(
                    schema.iter_errors(structured).map(|error| error.to_string()).next(),
                    None,
                    "{told}"
                );
                assert_eq!(structured["agents"].as_array().unwrap().len(), told_agents);
                assert_eq!(told["content"].as_array().unwrap().len(), 1 + told_agents, "a link to each");
            }
        }
        let first = &serde_json::to_value(result(&search("agent-10"), Version::V2025_06_18)).unwrap()["structuredContent"];
        let first = &first["agents"][0];
        assert_eq!((first["skills"].as_array().unwrap().len(), &first["skillsTotal"]), (20, &json!(30)));
        assert_eq!(
            (&first["uri"], &first["skills"][0]["tool"]),
            (&json!("a2a-agent://agent-10"), &json!("agent-10_s0"))
        );
    }

    #[test]
    fn the_catalog_is_a_linkset_of_arrays_of_links() {
        let agent = CatalogEntry {
            url: "https://gw/a2a/w".into(),
            card: "https://gw/a2a/w/.well-known/agent-card.json".into(),
            title: Some("W"),
            documentation: Some("https://docs.example/"),
            metadata: Some("https://gw/.well-known/oauth-protected-resource/a2a/w".into()),
        };
        let bare =
            CatalogEntry { title: None, documentation: None, metadata: None, ..entry("https://gw/a2a/x") };
        let told: Value = serde_json::from_str(&catalog("https://gw/c", &[agent, bare])).unwrap();
        let card = json!([{ "href": "https://gw/a2a/w/.well-known/agent-card.json", "type": "application/json", "title": "W" }]);
        let meta = "https://gw/.well-known/oauth-protected-resource/a2a/w";
        assert_eq!(
            told,
            json!({ "linkset": [
                { "anchor": "https://gw/c", "item": [
                    { "href": "https://gw/a2a/w", "title": "W" }, { "href": "https://gw/a2a/x" },
                ] },
                {
                    "anchor": "https://gw/a2a/w", "service-desc": card, "describedby": card,
                    "service-doc": [{ "href": "https://docs.example/" }],
                    "service-meta": [{ "href": meta, "type": "application/json" }],
                },
                {
                    "anchor": "https://gw/a2a/x",
                    "service-desc": [{ "href": "https://gw/a2a/x/card", "type": "application/json" }],
                    "describedby": [{ "href": "https://gw/a2a/x/card", "type": "application/json" }],
                },
            ] })
        );
        let empty: Value = serde_json::from_str(&catalog("https://gw/c", &[])).unwrap();
        assert_eq!(empty, json!({ "linkset": [{ "anchor": "https://gw/c" }] }));
    }

    fn entry(url: &str) -> CatalogEntry<'static> {
        CatalogEntry {
            url: url.into(),
            card: format!("{url}/card"),
            title: None,
            documentation: None,
            metadata: None,
        }
    }
}
