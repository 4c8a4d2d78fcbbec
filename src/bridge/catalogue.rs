//! The tools of all agents and the built-in tools with their names, ready to be listed and found.
//!
//! Rebuilt whenever a card changes, and swapped as a whole. Each tool is encoded as JSON when it is
//! listed for the first time, not once per client.
//!
//! Hosts prepend a prefix to names, limit them to about sixty characters and often allow only
//! `[A-Za-z0-9_-]`; so names here have at most 50 of these. A name that is invalid, too long,
//! reserved or requested twice gets a suffix made from the agent and the skill, so that no card can
//! take the name of another agent's tool.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::arguments::{CustomSchema, FLAT_SCHEMA, ToolInput};
use super::provider_tools::ProviderTool;
use super::search::{AgentIndex, AgentToolName};
use crate::a2a::{AgentCard, AgentSkill};
use crate::mcp::Version;
use crate::mcp::tools::{TaskSupport, Tool, ToolAnnotations};

pub use super::response_mode::{SkillPlan, ToolPlan};

/// The tools of one endpoint, sorted by name.
#[derive(Debug, Default)]
pub struct CatalogueView {
    tools: Vec<ToolRef>,
    places: HashMap<String, usize>,
}

impl CatalogueView {
    /// Returns the tool with this name.
    pub fn find(&self, name: &str) -> Option<&ToolRef> {
        self.tools.get(*self.places.get(name)?)
    }

    /// Returns at most `most` of the tools after the name `after` for which `is_shown` returns
    /// true, and the name at which the next page continues, if there is one.
    pub fn page(
        &self,
        after: Option<&str>,
        most: usize,
        is_shown: impl Fn(&ToolRef) -> bool,
    ) -> (Vec<&ToolRef>, Option<&str>) {
        let start = after.map_or(0, |after| self.tools.partition_point(|tool| tool.name() <= after));
        let rest = self.tools.get(start..).unwrap_or_default();
        let mut shown = rest.iter().filter(|tool| is_shown(tool));
        let page: Vec<&ToolRef> = shown.by_ref().take(most).collect();
        let next = shown.next().and(page.last()).map(|last| last.name());
        (page, next)
    }

    /// Returns all tools.
    pub fn tools(&self) -> &[ToolRef] {
        &self.tools
    }

    /// Returns the tools of agents.
    pub(crate) fn of_agents(&self) -> impl Iterator<Item = &ToolEntry> {
        self.tools.iter().filter_map(ToolRef::of_agent)
    }
}

/// Every tool, by endpoint.
#[derive(Debug, Default)]
pub struct Catalogue {
    all: CatalogueView,
    single: HashMap<String, CatalogueView>,
    /// The built-in tools beside those of one agent, for agents without a known card.
    own: CatalogueView,
    index: AgentIndex,
}

impl Catalogue {
    /// Builds the tools of agents with known cards, and adds the built-in tools `own`.
    pub fn build(agents: &[(ToolPlan, Arc<AgentCard>)], own: &[BuiltinTool]) -> Self {
        let drafts: Vec<Vec<UnnamedTool<'_>>> =
            agents.iter().map(|(plan, card)| drafts(plan, card)).collect();
        let single = agents.iter().zip(&drafts).map(|((plan, _), drafts)| {
            let its: Vec<&UnnamedTool<'_>> = drafts.iter().collect();
            let own = own.iter().filter(|tool| tool.is_with_one_agent());
            (plan.agent.clone(), view(&its, UnnamedTool::alone, own))
        });
        let single = single.collect();
        let alone = own.iter().filter(|tool| tool.is_with_one_agent());
        let of_none = view(&[], UnnamedTool::alone, alone);
        let all = view(&drafts.iter().flatten().collect::<Vec<_>>(), UnnamedTool::visible_to, own.iter());
        let names = all.of_agents().map(|tool| AgentToolName {
            agent: &tool.agent,
            skill: tool.skill.as_deref(),
            tool: &tool.name,
        });
        let index = AgentIndex::build(agents, names);
        Self { all, single, own: of_none, index }
    }

    /// Returns the tools of all agents.
    pub fn all(&self) -> &CatalogueView {
        &self.all
    }

    /// Returns the tools of one agent; only the built-in tools while its card is unknown.
    pub fn of(&self, agent: &str) -> &CatalogueView {
        self.single.get(agent).unwrap_or(&self.own)
    }

    /// Returns the search index of the agents.
    pub fn index(&self) -> &AgentIndex {
        &self.index
    }
}

/// A tool without a name.
struct UnnamedTool<'a> {
    agent: Arc<str>,
    skill: Option<&'a AgentSkill>,
    given: Option<&'a str>,
    title: &'a str,
    description: Arc<str>,
    input: Arc<ToolInput>,
    task: TaskSupport,
}

impl UnnamedTool<'_> {
    fn name_request(&self, natural: String) -> NameRequest<'_> {
        let skill = self.skill.map(|skill| skill.id.as_str());
        NameRequest { agent: &self.agent, skill, natural, given: self.given }
    }

    fn alone(&self) -> NameRequest<'_> {
        self.name_request(self.skill.map_or_else(
            || self.agent.to_string(),
            |skill| readable_name(&skill.id, &skill.name).into_owned(),
        ))
    }

    fn visible_to(&self) -> NameRequest<'_> {
        self.name_request(match self.skill {
            Some(skill) => format!("{}_{}", self.agent, readable_name(&skill.id, &skill.name)),
            None => self.agent.to_string(),
        })
    }
}

fn drafts<'a>(plan: &'a ToolPlan, card: &'a AgentCard) -> Vec<UnnamedTool<'a>> {
    let agent: Arc<str> = plan.agent.as_str().into();
    if plan.per_agent || card.skills.is_empty() {
        let description = plan.description.as_deref().unwrap_or(&card.description);
        return vec![UnnamedTool {
            agent,
            skill: None,
            given: plan.tool_name.as_deref(),
            title: &card.name,
            description: described(description, SkillAuthor { agent: &card.name, about: None }, &[]).into(),
            input: Arc::new(ToolInput::Flat),
            task: plan.task,
        }];
    }
    let shown =
        card.skills.iter().filter(|skill| !plan.skills.get(&skill.id).is_some_and(|plan| plan.hidden));
    shown.map(|skill| draft(&agent, plan, card, skill)).collect()
}

fn draft<'a>(
    agent: &Arc<str>,
    whole: &'a ToolPlan,
    card: &'a AgentCard,
    skill: &'a AgentSkill,
) -> UnnamedTool<'a> {
    let plan = whole.skills.get(&skill.id);
    let own =
        plan.and_then(|plan| plan.input_schema.as_ref()).and_then(|schema| CustomSchema::new(schema).ok());
    let description = plan.and_then(|plan| plan.description.as_deref()).unwrap_or(&skill.description);
    let author = SkillAuthor { agent: &card.name, about: whole.description.as_deref() };
    UnnamedTool {
        agent: agent.clone(),
        skill: Some(skill),
        given: plan.and_then(|plan| plan.tool_name.as_deref()),
        title: &skill.name,
        description: (described(description, author, &skill.examples) + &modes_of(skill)).into(),
        input: Arc::new(own.map_or(ToolInput::Flat, ToolInput::Own)),
        task: plan.and_then(|plan| plan.task).unwrap_or(whole.task),
    }
}

/// The agent that a description names as its author.
#[derive(Debug, Clone, Copy)]
struct SkillAuthor<'a> {
    /// The agent's name on its card.
    agent: &'a str,
    /// The operator's description of the agent.
    about: Option<&'a str>,
}

/// Returns a description that is never empty and names its author: a card is not the gateway's
/// text.
fn described(description: &str, author: SkillAuthor<'_>, examples: &[String]) -> String {
    let SkillAuthor { agent, about } = author;
    let about = about.map(|about| format!(": {about}")).unwrap_or_default();
    let mut out =
        format!("{description}\n(Skill of the A2A agent {agent:?}{about}.)").trim_start().to_owned();
    for example in examples.iter().take(3) {
        out.push_str("\nExample: ");
        out.push_str(example);
    }
    out
}

/// Returns a line with the media types that a skill declares in place of the card's; nothing if it
/// declares none.
fn modes_of(skill: &AgentSkill) -> String {
    let kinds = [("Input", &skill.input_modes), ("Output", &skill.output_modes)];
    let declared = kinds.iter().filter(|(_, modes)| !modes.is_empty());
    let lines: Vec<String> = declared.map(|(kind, modes)| format!("{kind}: {}.", modes.join(", "))).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.join(" ")) }
}

fn view<'a>(
    drafts: &[&'a UnnamedTool<'a>],
    wish: impl Fn(&'a UnnamedTool<'a>) -> NameRequest<'a>,
    own: impl Iterator<Item = &'a BuiltinTool> + Clone,
) -> CatalogueView {
    let wishes: Vec<NameRequest<'a>> = drafts.iter().map(|draft| wish(draft)).collect();
    let mut tools: Vec<ToolEntry> =
        drafts.iter().zip(assign(&wishes)).map(|(draft, name)| entry(draft, name)).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    // Equal names with suffixes are made on purpose: neither tool gets the name.
    let twice: HashSet<String> =
        tools.windows(2).filter(|pair| same_name(pair)).flatten().map(|tool| tool.name.clone()).collect();
    // The operator can assign any name except those of built-in tools.
    tools.retain(|tool| !twice.contains(&tool.name) && own.clone().all(|own| own.name != tool.name));
    let tools = tools.into_iter().map(ToolRef::Agent);
    let mut tools: Vec<ToolRef> = tools.chain(own.cloned().map(ToolRef::Own)).collect();
    tools.sort_by(|one, other| one.name().cmp(other.name()));
    let places = tools.iter().enumerate().map(|(place, tool)| (tool.name().to_owned(), place)).collect();
    CatalogueView { tools, places }
}

fn same_name(pair: &[ToolEntry]) -> bool {
    matches!(pair, [one, other] if one.name == other.name)
}

fn entry(draft: &UnnamedTool<'_>, name: String) -> ToolEntry {
    ToolEntry {
        agent: draft.agent.clone(),
        skill: draft.skill.map(|skill| skill.id.as_str().into()),
        input: draft.input.clone(),
        name,
        task: draft.task,
        title: draft.title.into(),
        description: draft.description.clone(),
        forms: Default::default(),
    }
}

/// A built-in tool as JSON, in each form that some revision needs.
#[derive(Debug)]
pub(super) struct EncodedTool {
    /// JSON for clients without structured output.
    plain: Box<RawValue>,
    titled: Box<RawValue>,
    /// JSON for clients with core tasks, if it differs.
    with_tasks: Option<Box<RawValue>>,
}

impl EncodedTool {
    pub(super) fn write(write: impl Fn(Version) -> Option<Box<RawValue>>) -> Option<Self> {
        let plain = write(Version::V2025_03_26)?;
        let titled = write(Version::V2026_07_28)?;
        let with_tasks = write(Version::V2025_11_25)?;
        let with_tasks = (with_tasks.get() != titled.get()).then_some(with_tasks);
        Some(Self { plain, titled, with_tasks })
    }

    fn of(&self, version: Version) -> &RawValue {
        match &self.with_tasks {
            Some(form) if version.has_core_tasks() => form,
            _ if version.has_structured_output() => &self.titled,
            _ => &self.plain,
        }
    }
}

/// A tool of an agent.
#[derive(Debug)]
pub struct ToolEntry {
    /// The agent that the tool belongs to.
    pub agent: Arc<str>,
    /// The skill that the tool stands for; `None` for the one tool of an agent.
    pub skill: Option<Arc<str>>,
    /// The tool's input.
    pub input: Arc<ToolInput>,
    /// The tool's name.
    pub name: String,
    /// The support of its calls for core tasks.
    pub task: TaskSupport,
    title: Box<str>,
    description: Arc<str>,
    /// Its JSON, encoded when a client lists it for the first time: most agents have tools that no
    /// client lists at the endpoint of the agent, and most forms are of revisions that none speaks.
    forms: [OnceLock<Box<RawValue>>; 3],
}

impl ToolEntry {
    /// Returns the tool as JSON for clients of this revision.
    fn encoded(&self, version: Version) -> &RawValue {
        let execution = self.task.execution().filter(|_| version.has_core_tasks());
        let [plain, titled, with_tasks] = &self.forms;
        let form = match version.has_structured_output() {
            true if execution.is_some() => with_tasks,
            true => titled,
            false => plain,
        };
        form.get_or_init(|| {
            // The title is in `annotations` if the revision has no other member for it.
            let (title, annotated) = match version.has_structured_output() {
                true => (Some(&*self.title), None),
                false => (None, Some(&*self.title)),
            };
            let tool = Tool {
                name: &self.name,
                title,
                description: &self.description,
                input_schema: self.input.schema().unwrap_or(flat_schema()),
                output_schema: None,
                annotations: ToolAnnotations::of_an_agent(annotated),
                execution,
            };
            // Texts and valid JSON can be encoded.
            serde_json::value::to_raw_value(&tool).unwrap_or_default()
        })
    }
}

/// Returns the schema of the default input.
fn flat_schema() -> &'static RawValue {
    serde_json::from_str(FLAT_SCHEMA).unwrap_or(RawValue::NULL)
}

/// A tool of the gateway itself.
#[derive(Debug, Clone)]
pub struct BuiltinTool {
    /// The tool's name, which an agent's tool cannot have (see `is_reserved`).
    pub name: &'static str,
    with_one_agent: bool,
    forms: Arc<EncodedTool>,
}

impl BuiltinTool {
    /// Creates a tool that `write` encodes for the clients of a revision. The tool is listed among
    /// those of all agents, and if `with_one_agent` also among those of each single one. Returns
    /// `None` if it cannot be encoded.
    pub fn new(
        name: &'static str,
        with_one_agent: bool,
        write: impl Fn(Version) -> Option<Box<RawValue>>,
    ) -> Option<Self> {
        Some(Self { name, with_one_agent, forms: Arc::new(EncodedTool::write(write)?) })
    }

    pub(super) fn is_with_one_agent(&self) -> bool {
        self.with_one_agent
    }
}

/// A tool that can be called.
#[derive(Debug)]
pub enum ToolRef {
    /// A tool of an agent.
    Agent(ToolEntry),
    /// A tool of the gateway.
    Own(BuiltinTool),
}

impl ToolRef {
    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Agent(tool) => &tool.name,
            Self::Own(tool) => tool.name,
        }
    }

    /// Returns the tool as a client of this revision sees it.
    pub fn listed(&self, version: Version) -> &RawValue {
        match self {
            Self::Agent(tool) => tool.encoded(version),
            Self::Own(tool) => tool.forms.of(version),
        }
    }

    /// Returns the tool, if it is an agent's.
    pub fn of_agent(&self) -> Option<&ToolEntry> {
        match self {
            Self::Agent(tool) => Some(tool),
            Self::Own(_) => None,
        }
    }

    /// Returns the name, if the tool is built-in.
    pub fn own(&self) -> Option<&'static str> {
        match self {
            Self::Agent(_) => None,
            Self::Own(tool) => Some(tool.name),
        }
    }
}

/// Maximum length of a tool name.
pub(crate) const MAX_TOOL_NAME_CHARS: usize = 50;

/// A tool's request for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRequest<'a> {
    /// The agent's name in the configuration.
    pub(crate) agent: &'a str,
    /// The skill's id on the card; `None` for the one tool of an agent.
    pub(crate) skill: Option<&'a str>,
    /// The preferred name: `{agent}_{skill}` or `{skill}`.
    pub(crate) natural: String,
    /// The name that the operator assigned.
    pub(crate) given: Option<&'a str>,
}

/// Assigns a different name to each request, in the order of the requests.
///
/// Names of the operator are used as they are (the configuration ensures that they differ). The
/// result does not depend on the order of the requests.
pub(crate) fn assign(wishes: &[NameRequest<'_>]) -> Vec<String> {
    let mut names: Vec<String> = wishes.iter().map(first_choice).collect();
    // A name with a suffix can equal a natural one that imitates it; then that one gets a suffix
    // too.
    for _ in 0..3 {
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *wanted.entry(name).or_default() += 1;
        }
        let clashes: Vec<bool> = names.iter().map(|name| wanted.get(name.as_str()) > Some(&1)).collect();
        if !clashes.contains(&true) {
            return names;
        }
        for ((name, wish), clash) in names.iter_mut().zip(wishes).zip(clashes) {
            if clash && wish.given.is_none() {
                *name = suffixed(wish);
            }
        }
    }
    names
}

fn first_choice(wish: &NameRequest<'_>) -> String {
    match wish.given {
        Some(given) => given.to_owned(),
        None if is_plain(&wish.natural) && !is_reserved(&wish.natural) => wish.natural.clone(),
        None => suffixed(wish),
    }
}

/// Maximum length of a name made from a skill's title.
const MAX_TITLE: usize = 32;

/// Returns the id of a skill, or a name made from its title if the id was generated (a UUID, a
/// hash): such an id means nothing to a model.
pub(crate) fn readable_name<'a>(id: &'a str, title: &str) -> Cow<'a, str> {
    if !is_generated(id) {
        return Cow::Borrowed(id);
    }
    let mut name = String::with_capacity(MAX_TITLE);
    for letter in title.chars() {
        if letter.is_ascii_alphanumeric() {
            name.push(letter.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
        if name.len() >= MAX_TITLE {
            break;
        }
    }
    let name = name.trim_end_matches('_');
    if name.is_empty() { Cow::Borrowed(id) } else { Cow::Owned(name.to_owned()) }
}

/// Returns true for a UUID, a hexadecimal number of 16 digits or more, and a ULID.
fn is_generated(id: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = id.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && id.split('-').all(is_hex);
    let has_digit = id.bytes().any(|byte| byte.is_ascii_digit());
    let is_number = id.len() >= 16 && is_hex(id) && has_digit;
    let is_ulid = id.len() == 26
        && has_digit
        && id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    is_uuid || is_number || is_ulid
}

/// Returns true if a name can be used as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    (1..=MAX_TOOL_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Returns true if the name is reserved for built-in tools.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("subagent_") || name == "find_agent" || ProviderTool::from_name(name).is_some()
}

fn suffixed(wish: &NameRequest<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update(wish.agent);
    hash.update([0]);
    hash.update(wish.skill.unwrap_or_default());
    let tail = HEXLOWER.encode(hash.finalize().get(..8).unwrap_or_default());
    let clean = wish.natural.chars().map(|letter| match letter {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => letter,
        _ => '_',
    });
    let head: String = clean.take(MAX_TOOL_NAME_CHARS - tail.len() - 1).collect();
    let head = if is_reserved(&head) {
        format!("x_{head}").chars().take(MAX_TOOL_NAME_CHARS - tail.len() - 1).collect()
    } else {
        head
    };
    format!("{head}_{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use std::collections::BTreeMap;

    use super::*;

    const VERSIONS: [Version; 5] = [
        Version::V2024_11_05,
        Version::V2025_03_26,
        Version::V2025_06_18,
        Version::V2025_11_25,
        Version::V2026_07_28,
    ];

    fn card() -> Arc<AgentCard> {
        let card =
            br#"{"name":"W","url":"http://h/","skills":[{"id":"a","name":"A"},{"id":"z","name":"Z"}]}"#;
        Arc::new(AgentCard::parse(card).unwrap())
    }

    fn plan(task: TaskSupport, of_z: Option<TaskSupport>, tool_name: Option<&str>) -> ToolPlan {
        let tool_name = tool_name.map(str::to_owned);
        let skill = SkillPlan { task: of_z, tool_name, ..SkillPlan::default() };
        ToolPlan {
            agent: "w".into(),
            task,
            skills: BTreeMap::from([("z".into(), skill)]),
            ..ToolPlan::default()
        }
    }

    fn own() -> [BuiltinTool; 2] {
        let own = |name, with_one_agent| {
            let write = |version: Version| {
                let output = version.has_structured_output().then_some("structured");
                to_raw_value(&json!({ "name": name, "output": output })).ok()
            };
            BuiltinTool::new(name, with_one_agent, write).unwrap()
        };
        [own("subagent_wait", true), own("subagent_start", false)]
    }

    fn names<'a>(entries: impl IntoIterator<Item = &'a ToolRef>) -> Vec<&'a str> {
        entries.into_iter().map(ToolRef::name).collect()
    }

    fn listed(view: &CatalogueView, name: &str, version: Version) -> Value {
        serde_json::from_str(view.find(name).unwrap().listed(version).get()).unwrap()
    }

    #[test]
    fn only_the_revision_with_core_tasks_hears_of_them() {
        use TaskSupport::{Never, Optional, Required};
        for (agent, skill, written) in [
            (Optional, None, json!({ "taskSupport": "optional" })),
            (Required, None, json!({ "taskSupport": "required" })),
            (Never, None, Value::Null),
            (Optional, Some(Never), Value::Null),
            (Never, Some(Required), json!({ "taskSupport": "required" })),
        ] {
            let catalogue = Catalogue::build(&[(plan(agent, skill, None), card())], &[]);
            for version in VERSIONS {
                let tool = listed(catalogue.all(), "w_z", version);
                let expected = if version == Version::V2025_11_25 { &written } else { &Value::Null };
                assert_eq!(&tool["execution"], expected, "{version:?} {agent:?} {skill:?}");
                let titled = version.has_structured_output();
                assert_eq!((&tool["title"] == "Z", &tool["annotations"]["title"] == "Z"), (titled, !titled));
            }
            let entry = catalogue.all().find("w_z").and_then(ToolRef::of_agent).unwrap();
            assert_eq!(entry.task, skill.unwrap_or(agent));
        }
    }

    #[test]
    fn own_tools_are_listed_in_their_place_and_told_apart() {
        let catalogue = Catalogue::build(&[(plan(TaskSupport::Optional, None, None), card())], &own());
        let all = catalogue.all();
        assert_eq!(names(all.tools()), ["subagent_start", "subagent_wait", "w_a", "w_z"]);
        let (page, next) = all.page(None, 3, |_| true);
        assert_eq!((names(page), next), (vec!["subagent_start", "subagent_wait", "w_a"], Some("w_a")));
        assert_eq!(names(all.page(next, 3, |_| true).0), ["w_z"]);
        assert!(
            matches!(all.find("subagent_start"), Some(ToolRef::Own(tool)) if tool.name == "subagent_start")
        );
        assert!(matches!(all.find("w_a"), Some(ToolRef::Agent(tool)) if tool.name == "w_a"));
        assert_eq!(listed(all, "subagent_wait", Version::V2025_03_26)["output"], Value::Null);
        assert_eq!(listed(all, "subagent_wait", Version::V2025_06_18)["output"], "structured");
        assert_eq!(names(catalogue.of("w").tools()), ["a", "subagent_wait", "z"]);
        assert_eq!(names(catalogue.of("other").tools()), ["subagent_wait"]);
    }

    #[test]
    fn hidden_tools_take_no_room() {
        let catalogue = Catalogue::build(&[(plan(TaskSupport::Optional, None, None), card())], &own());
        let all = catalogue.all();
        // A tool that is not shown takes no room on a page, and is never the position of a cursor.
        let (page, next) = all.page(None, 1, |tool| tool.name().starts_with("w_"));
        assert_eq!((names(page), next), (vec!["w_a"], Some("w_a")));
        assert_eq!(all.page(next, 1, |tool| tool.name() == "w_a").1, None);
    }

    #[test]
    fn an_operator_cannot_hide_a_tool_of_the_gateway() {
        let plan = plan(TaskSupport::Optional, None, Some("subagent_wait"));
        let catalogue = Catalogue::build(&[(plan, card())], &own());
        assert!(matches!(catalogue.all().find("subagent_wait"), Some(ToolRef::Own(_))));
        assert_eq!(names(catalogue.all().tools()), ["subagent_start", "subagent_wait", "w_a"]);
    }
}

#[cfg(test)]
mod tool_names_tests {
    use super::*;

    fn wish<'a>(agent: &'a str, skill: &'a str) -> NameRequest<'a> {
        NameRequest { agent, skill: Some(skill), natural: format!("{agent}_{skill}"), given: None }
    }

    #[test]
    fn a_good_name_stays() {
        assert_eq!(assign(&[wish("weather", "forecast")]), ["weather_forecast"]);
    }

    #[test]
    fn bad_long_and_reserved_names_get_a_suffix() {
        let long = "x".repeat(80);
        for skill in ["a b", "é", "a.b/c", long.as_str(), ""] {
            let name = assign(&[NameRequest { natural: skill.into(), ..wish("w", skill) }]).remove(0);
            assert!(is_plain(&name) && name.len() <= MAX_TOOL_NAME_CHARS, "{skill} → {name}");
            assert_ne!(name, skill);
        }
        for reserved in ["subagent_start", "find_agent"] {
            let name = assign(&[NameRequest { natural: reserved.into(), ..wish("w", reserved) }]).remove(0);
            assert!(is_plain(&name) && !is_reserved(&name), "{name}");
        }
    }

    #[test]
    fn generated_ids_give_way_to_titles() {
        for (id, title, expected) in [
            ("123e4567-e89b-12d3-a456-426614174000", "Weather (daily)", "weather_daily"),
            ("d41d8cd98f00b204e9800998ecf8427e", "Wetter für heute", "wetter_f_r_heute"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "x"),
            ("123e4567-e89b-12d3-a456-426614174000", "天気", "123e4567-e89b-12d3-a456-426614174000"),
            ("forecast", "Weather", "forecast"),
            ("deadbeef", "Weather", "deadbeef"),
            ("daily-forecast-2026-for-all", "Weather", "daily-forecast-2026-for-all"),
        ] {
            assert_eq!(readable_name(id, title), expected, "{id}");
        }
    }

    #[test]
    fn no_card_can_take_the_name_of_another_agents_tool() {
        let names = assign(&[wish("a", "b_c"), wish("a_b", "c")]);
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name != "a_b_c"));
        let imitation = names[0].strip_prefix("a_").unwrap().to_owned();
        let names = assign(&[wish("a", "b_c"), wish("a_b", "c"), wish("a", &imitation)]);
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{names:?}");
    }

    #[test]
    fn names_do_not_depend_on_the_order() {
        let one = assign(&[wish("a", "b_c"), wish("a_b", "c"), wish("z", "q")]);
        let mut other = assign(&[wish("z", "q"), wish("a_b", "c"), wish("a", "b_c")]);
        other.reverse();
        assert_eq!(one, other);
    }

    #[test]
    fn the_operator_is_obeyed() {
        let given = NameRequest { given: Some("mine"), ..wish("a", "b") };
        let other = NameRequest { natural: "mine".into(), ..wish("c", "d") };
        let names = assign(&[given, other]);
        assert_eq!(names[0], "mine");
        assert_ne!(names[1], "mine");
    }
}
