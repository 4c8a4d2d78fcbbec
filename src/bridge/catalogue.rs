//! All tools of all agents, ready to be listed and found.
//!
//! Made anew whenever a card changes, and swapped as a whole. Each tool is written as JSON once, not once per client. Not here:
//! where cards come from, who may see what.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::arguments::{FLAT_SCHEMA, Input, OwnSchema};
use super::names::{Wish, assign};
use crate::a2a::{Card, Skill};
use crate::mcp::Version;
use crate::mcp::tools::{Annotations, Tool};

/// What the configuration says about the tools of one agent.
#[derive(Debug, Default, Clone)]
pub struct Plan {
    /// The agent's name.
    pub agent: String,
    /// One tool for the whole agent, and not one a skill.
    pub per_agent: bool,
    /// Name of the one tool.
    pub tool_name: Option<String>,
    /// Description of the agent, instead of the card's.
    pub description: Option<String>,
    /// What differs for single skills, by the skill's id.
    pub skills: BTreeMap<String, SkillPlan>,
}

/// What the configuration says about one skill.
#[derive(Debug, Default, Clone)]
pub struct SkillPlan {
    /// Name of its tool.
    pub tool_name: Option<String>,
    /// Its description, instead of the card's.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub input_schema: Option<serde_json::Value>,
    /// Whether it is kept back.
    pub hidden: bool,
}

/// A tool that can be called.
#[derive(Debug)]
pub struct ToolEntry {
    /// The agent that it belongs to.
    pub agent: Arc<str>,
    /// The skill that it stands for; `None` for the one tool of an agent.
    pub skill: Option<Arc<str>>,
    /// What it takes.
    pub input: Arc<Input>,
    /// Its name.
    pub name: String,
    plain: Box<RawValue>,
    titled: Box<RawValue>,
}

impl ToolEntry {
    /// The tool as a client of this revision sees it.
    pub fn listed(&self, version: Version) -> &RawValue {
        if version.has_structured_output() { &self.titled } else { &self.plain }
    }
}

/// The tools of one endpoint, sorted by name.
#[derive(Debug, Default)]
pub struct View {
    tools: Vec<ToolEntry>,
    places: HashMap<String, usize>,
}

impl View {
    /// The tool of this name.
    pub fn find(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.get(*self.places.get(name)?)
    }

    /// At most `most` tools that come after the name `after`, and the name to go on after, if there are more.
    pub fn page(&self, after: Option<&str>, most: usize) -> (&[ToolEntry], Option<&str>) {
        let start = after.map_or(0, |after| self.tools.partition_point(|tool| tool.name.as_str() <= after));
        let rest = self.tools.get(start..).unwrap_or_default();
        match rest.split_at_checked(most) {
            Some((page, more)) if !more.is_empty() => (page, page.last().map(|tool| tool.name.as_str())),
            _ => (rest, None),
        }
    }

    /// All of them.
    pub fn tools(&self) -> &[ToolEntry] {
        &self.tools
    }
}

/// Every tool, by endpoint.
#[derive(Debug, Default)]
pub struct Catalogue {
    all: View,
    single: HashMap<String, View>,
}

impl Catalogue {
    /// Makes the tools of agents whose cards are known.
    pub fn build(agents: &[(Plan, Arc<Card>)]) -> Self {
        let drafts: Vec<Draft<'_>> = agents.iter().flat_map(|(plan, card)| drafts(plan, card)).collect();
        let single = agents.iter().map(|(plan, _)| {
            let own: Vec<&Draft<'_>> = drafts.iter().filter(|draft| *draft.agent == *plan.agent).collect();
            (plan.agent.clone(), view(&own, Draft::alone))
        });
        let single = single.collect();
        let all = view(&drafts.iter().collect::<Vec<_>>(), Draft::among_others);
        Self { all, single }
    }

    /// The tools of all agents.
    pub fn all(&self) -> &View {
        &self.all
    }

    /// The tools of one agent; `None` if its card is not known.
    pub fn of(&self, agent: &str) -> Option<&View> {
        self.single.get(agent)
    }
}

/// A tool without a name.
struct Draft<'a> {
    agent: Arc<str>,
    skill: Option<&'a Skill>,
    given: Option<&'a str>,
    title: &'a str,
    description: String,
    input: Arc<Input>,
}

impl Draft<'_> {
    fn wish(&self, natural: String) -> Wish<'_> {
        let skill = self.skill.map(|skill| skill.id.as_str());
        Wish { agent: &self.agent, skill, natural, given: self.given }
    }

    fn alone(&self) -> Wish<'_> {
        self.wish(self.skill.map_or_else(|| self.agent.to_string(), |skill| skill.id.clone()))
    }

    fn among_others(&self) -> Wish<'_> {
        self.wish(match self.skill {
            Some(skill) => format!("{}_{}", self.agent, skill.id),
            None => self.agent.to_string(),
        })
    }
}

fn drafts<'a>(plan: &'a Plan, card: &'a Card) -> Vec<Draft<'a>> {
    let agent: Arc<str> = plan.agent.as_str().into();
    if plan.per_agent || card.skills.is_empty() {
        let description = plan.description.as_deref().unwrap_or(&card.description);
        return vec![Draft {
            agent,
            skill: None,
            given: plan.tool_name.as_deref(),
            title: &card.name,
            description: described(description, (&card.name, None), &[]),
            input: Arc::new(Input::Flat),
        }];
    }
    let shown =
        card.skills.iter().filter(|skill| !plan.skills.get(&skill.id).is_some_and(|plan| plan.hidden));
    shown.map(|skill| draft(&agent, plan, card, skill)).collect()
}

fn draft<'a>(agent: &Arc<str>, whole: &'a Plan, card: &'a Card, skill: &'a Skill) -> Draft<'a> {
    let plan = whole.skills.get(&skill.id);
    let own = plan.and_then(|plan| plan.input_schema.as_ref()).and_then(|schema| OwnSchema::new(schema).ok());
    let description = plan.and_then(|plan| plan.description.as_deref()).unwrap_or(&skill.description);
    Draft {
        agent: agent.clone(),
        skill: Some(skill),
        given: plan.and_then(|plan| plan.tool_name.as_deref()),
        title: &skill.name,
        description: described(description, (&card.name, whole.description.as_deref()), &skill.examples),
        input: Arc::new(own.map_or(Input::Flat, Input::Own)),
    }
}

/// Never empty, and says whose words these are: a card is not the gateway's.
fn described(description: &str, (agent, about): (&str, Option<&str>), examples: &[String]) -> String {
    let about = about.map(|about| format!(": {about}")).unwrap_or_default();
    let mut out =
        format!("{description}\n(Skill of the A2A agent {agent:?}{about}.)").trim_start().to_owned();
    for example in examples.iter().take(3) {
        out.push_str("\nExample: ");
        out.push_str(example);
    }
    out
}

fn view<'a>(drafts: &[&'a Draft<'a>], wish: impl Fn(&'a Draft<'a>) -> Wish<'a>) -> View {
    let wishes: Vec<Wish<'a>> = drafts.iter().map(|draft| wish(draft)).collect();
    let mut tools: Vec<ToolEntry> =
        drafts.iter().zip(assign(&wishes)).filter_map(|(draft, name)| entry(draft, name)).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    // Suffixes that meet were made to: neither gets the name.
    let twice: HashSet<String> =
        tools.windows(2).filter(|pair| same_name(pair)).flatten().map(|tool| tool.name.clone()).collect();
    tools.retain(|tool| !twice.contains(&tool.name));
    let places = tools.iter().enumerate().map(|(place, tool)| (tool.name.clone(), place)).collect();
    View { tools, places }
}

fn same_name(pair: &[ToolEntry]) -> bool {
    matches!(pair, [one, other] if one.name == other.name)
}

fn entry(draft: &Draft<'_>, name: String) -> Option<ToolEntry> {
    let flat: &RawValue = serde_json::from_str(FLAT_SCHEMA).ok()?;
    let schema = draft.input.schema().unwrap_or(flat);
    let write = |title, annotated| {
        let annotations = Annotations::of_an_agent(annotated);
        let description = draft.description.as_str();
        let tool = Tool { name: &name, title, description, input_schema: schema, annotations };
        serde_json::value::to_raw_value(&tool).ok()
    };
    let plain = write(None, Some(draft.title))?;
    let titled = write(Some(draft.title), None)?;
    let skill = draft.skill.map(|skill| skill.id.as_str().into());
    Some(ToolEntry { agent: draft.agent.clone(), skill, input: draft.input.clone(), name, plain, titled })
}
