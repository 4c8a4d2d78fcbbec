//! Discovery: the tools and agents that a caller may find, in lists, documents and searches; the
//! catalogue of tools, rebuilt whenever the card of an agent changes; and the settings that fit nothing: a skill, a rule, a tool or a phase that no card has.
//!
//! Such a setting is no problem: a card may change. It is a warning, because a rule or a `hidden`
//! without effect protects nothing. Only agents with a known card are judged.
//!
//! See also `bridge::catalogue` (the tools of a card) and `bridge::search` (matching).

mod documents;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use http::HeaderName;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use crate::a2a::AgentCard;
use crate::access::{Authorizer, OAuthMetadata, Requester};
use crate::agents::{Agent, Directory, EndpointState, ResolvedAgent};
use crate::auth::{Caller, fits_pattern};
use crate::bridge::catalogue::{BuiltinTool, Catalogue, CatalogueView, SkillPlan, ToolPlan};
use crate::bridge::provider_tools::ProviderTool;
use crate::bridge::resource_view::Reachability;
use crate::bridge::search::{AgentMatch, AgentQuery, tool as find_agent};
use crate::bridge::task_tools::TaskTool;
use crate::config::{self, Mcp, Problem, Rule, Settings, SkillOverride, TaskMode, ToolGranularity};
use crate::http_edge::Route;
use crate::limits::Limits;
use crate::mcp::tools::TaskSupport;
use crate::seal::Sealer;

pub(crate) use documents::ServedAddress;

pub(crate) use crate::bridge::search::ServedInterface;

/// Method in the rules for a message to an agent through the A2A server, with any skill.
const SEND_MESSAGE: &str = "SendMessage";

/// Finds agents and skills for callers.
pub(crate) struct Discovery {
    pub(crate) directory: Arc<Directory>,
    pub(crate) catalogue: Arc<LiveCatalogue>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metadata: Arc<OAuthMetadata>,
    pub(crate) sealer: Sealer,
    /// Header with the API key, which the documents depend on.
    pub(crate) key_header: Option<HeaderName>,
    /// Most entries on one page of a list.
    pub(crate) page_size: usize,
}

impl Discovery {
    /// Returns the matching agents on a route that a caller may use, the best first, with the
    /// skills that the caller may use.
    pub(crate) fn search<'i>(
        &'i self,
        catalogue: &'i Catalogue,
        by: Requester<'_>,
        query: &AgentQuery,
    ) -> Vec<AgentMatch<'i>> {
        let visible = self.directory.agents().iter().filter(|agent| self.authorizer.can_see(by, agent));
        let names = visible.map(|agent| agent.settings.name.as_str());
        catalogue.index().search(query, names, |agent, tool| match tool {
            Some((skill, tool)) => self.authorizer.may_call(by.caller, agent, skill, tool),
            None => {
                self.authorizer.may_use(by.caller, agent, TaskTool::Start)
                    || self.authorizer.may_send(by.caller, SEND_MESSAGE, agent)
            }
        })
    }

    /// Adds the reachability of a found agent.
    pub(crate) fn with_reachability<'i>(&self, found: AgentMatch<'i>) -> (AgentMatch<'i>, Reachability) {
        let reachability =
            self.directory.find(found.name).map_or(Reachability::Unknown, |agent| reachability(agent));
        (found, reachability)
    }
}

/// Returns the reachability of an agent as of the last fetch of its card.
pub(crate) fn reachability(agent: &Agent) -> Reachability {
    match (agent.problem(), agent.known()) {
        (Some(_), _) => Reachability::Unreachable,
        (None, Some(known)) if agent.obstacle_of(&known.card).is_some() => Reachability::Unusable,
        (None, Some(_)) => Reachability::Ready,
        (None, None) => Reachability::Unknown,
    }
}

fn requester<'a>(caller: &'a Caller, route: Route<'a>) -> Requester<'a> {
    // Nothing that is only listed is audited.
    Requester { caller, route, scope: None }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentState<'a> {
    name: &'a str,
    /// The source that named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    /// The name of its binding in cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    tools: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointHealth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointHealth {
    url: String,
    up: bool,
    /// Seconds until the gateway tries this endpoint again.
    #[serde(skip_serializing_if = "Option::is_none")]
    tried_in: Option<u64>,
    requests: usize,
}

fn endpoint_health(endpoint: EndpointState) -> EndpointHealth {
    let EndpointState { url, busy, rests } = endpoint;
    EndpointHealth { url, up: rests.is_none(), tried_in: rests, requests: busy }
}

/// The state of an agent, with its card.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentDetail<'a> {
    #[serde(flatten)]
    state: AgentState<'a>,
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<u64>,
    skills: Vec<SkillState<'a>>,
    /// True if the card has more skills than are listed.
    has_more: bool,
    card_problems: &'a [String],
}

/// The state of an agent in a list.
#[derive(Serialize)]
struct AgentRow<'a> {
    #[serde(flatten)]
    state: AgentState<'a>,
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// True until its card has been fetched or tried once.
    waiting: bool,
}

impl<'a> AgentRow<'a> {
    fn new(agent: &'a Agent, catalogue: &'a Catalogue) -> Self {
        let known = agent.known();
        let text = |of: fn(&AgentCard) -> &String| known.as_ref().map(|known| of(&known.card).clone());
        Self {
            state: agent_state(agent, catalogue),
            card: agent.settings.card.without_secrets(),
            title: text(|card| &card.name),
            version: text(|card| &card.version),
            waiting: !agent.is_initialized(),
        }
    }
}

/// A skill, and the tool that it became.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SkillState<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
}

/// Most agents on a page.
const MAX_LISTED_AGENTS: usize = 100;
/// Most skills in the state of one agent.
const MAX_LISTED_SKILLS: usize = 200;

impl Discovery {
    /// Returns the state of each agent as JSON.
    pub(crate) fn agent_states(&self) -> String {
        let catalogue = self.catalogue.load_full();
        let states = self.directory.agents().iter().map(|agent| agent_state(agent, &catalogue));
        serde_json::to_string(&states.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Returns a page of the states of agents as JSON, from this number on, and the number of all.
    pub(crate) fn agent_page(&self, offset: usize) -> String {
        let catalogue = self.catalogue.load_full();
        let agents = self.directory.agents();
        let states = agents.iter().skip(offset).take(MAX_LISTED_AGENTS);
        let states: Vec<_> = states.map(|agent| AgentRow::new(agent, &catalogue)).collect();
        json!({ "total": agents.len(), "offset": offset, "agents": states }).to_string()
    }

    /// Returns the state of the agent of this name, with its card, as JSON.
    pub(crate) fn agent_state(&self, name: &str) -> Option<String> {
        let catalogue = self.catalogue.load_full();
        let agent = self.directory.find(name)?;
        let known = agent.known();
        let card = known.as_ref().map(|known| &*known.card);
        let tool_of = |skill: &str| {
            let mut tools = catalogue.all().of_agents().filter(|tool| *tool.agent == *agent.settings.name);
            tools.find(|tool| tool.skill.as_deref() == Some(skill)).map(|tool| tool.name.as_str())
        };
        let skills = card.iter().flat_map(|card| &card.skills);
        let listed = skills.clone().take(MAX_LISTED_SKILLS);
        let listed =
            listed.map(|skill| SkillState { id: &skill.id, name: &skill.name, tool: tool_of(&skill.id) });
        let detail = AgentDetail {
            state: agent_state(agent, &catalogue),
            card: agent.settings.card.without_secrets(),
            title: card.map(|card| card.name.as_str()),
            version: card.map(|card| card.version.as_str()),
            description: card.map(|card| card.description.as_str()),
            provider: card.and_then(|card| card.provider.as_deref()),
            last_seen: agent.last_seen(),
            skills: listed.collect(),
            has_more: skills.count() > MAX_LISTED_SKILLS,
            card_problems: card.map(|card| card.problems.as_slice()).unwrap_or_default(),
        };
        serde_json::to_string(&detail).ok()
    }
}

/// Returns the state of an agent with the names of its tools.
fn agent_state<'a>(agent: &'a Agent, catalogue: &'a Catalogue) -> AgentState<'a> {
    let known = agent.known();
    let obstacle = agent.unsupported_required();
    let is_usable = obstacle.is_none();
    let tools = catalogue.all().of_agents().filter(|tool| is_usable && *tool.agent == *agent.settings.name);
    AgentState {
        name: &agent.settings.name,
        source: agent.settings.source.as_ref().map(|source| source.name.as_str()),
        ready: known.is_some() && is_usable,
        protocol: known.as_ref().map(|known| known.interface.version_name()),
        binding: known.as_ref().map(|known| known.interface.binding.name()),
        streaming: known.as_ref().map(|known| known.card.streaming),
        tools: tools.map(|tool| tool.name.as_str()).collect(),
        endpoints: agent.endpoints().into_iter().map(endpoint_health).collect(),
        problem: agent.problem().or(obstacle),
    }
}

/// Most ids of skills in one warning.
const MAX_NAMED_SKILLS: usize = 10;

/// Returns a warning for each setting that fits nothing on the cards that are known. A rule or a
/// phase is judged once the cards of all agents that it is about are known.
pub(crate) fn unmatched_settings(settings: &Settings, directory: &Directory) -> Vec<Problem> {
    let tools = match settings.rules.iter().any(|rule| rule.tools.is_some()) {
        true => tools_by_agent(directory),
        false => HashMap::new(),
    };
    let known = |agent: &Arc<Agent>| (agent.clone(), agent.known());
    let known: Vec<_> = directory.agents().iter().map(known).collect();
    let agents: Vec<KnownAgent<'_>> = known
        .iter()
        .map(|(agent, card)| KnownAgent {
            settings: &agent.settings,
            card: card.as_ref(),
            tools: tools.get(&agent.settings.name).map_or(&[], Vec::as_slice),
        })
        .collect();
    let of_agents = agents.iter().flat_map(|agent| {
        agent.card.map(|card| unmatched_skills(agent.settings, &card.card)).unwrap_or_default()
    });
    let mut warnings: Vec<Problem> = of_agents.collect();
    for (index, rule) in settings.rules.iter().enumerate() {
        warnings.extend(unmatched_tools(index, rule, &agents));
    }
    let phases = settings.resources.sparc.iter().flat_map(|sparc| &sparc.phases);
    for (phase, patterns) in phases {
        let at = format!("resources.sparc.phases.{phase}");
        let fits = |pattern: &String| agents.iter().any(|agent| agent.has_skill(pattern));
        let about: Vec<&KnownAgent<'_>> = agents.iter().collect();
        warnings.extend(unmatched(&at, patterns, &about, fits, "fits no skill of any agent"));
    }
    warnings
}

/// Returns a warning for each key of `skills` of an agent that is no skill on its card.
pub(crate) fn unmatched_skills(agent: &config::Agent, card: &AgentCard) -> Vec<Problem> {
    let unknown = agent.skills.iter().filter(|(id, _)| !card.skills.iter().any(|skill| skill.id == **id));
    let warning = |(id, skill): (&String, &SkillOverride)| {
        let known: Vec<&str> =
            card.skills.iter().take(MAX_NAMED_SKILLS).map(|skill| skill.id.as_str()).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
        let effect = if skill.hidden { "hides nothing" } else { "has no effect" };
        let problem = format!("{effect}: the card has no skill of this id (its skills: {known})");
        Problem { file: None, line: None, at: format!("agents.{}.skills.{id}", agent.name), problem }
    };
    unknown.map(warning).collect()
}

/// Returns the names of the tools of each agent with a known card, on `/mcp` and on `/mcp/AGENT`.
fn tools_by_agent(directory: &Directory) -> HashMap<String, Vec<String>> {
    let known = directory.agents().iter().filter_map(|agent| Some((agent, agent.known()?)));
    let cards: Vec<_> = known.map(|(agent, known)| (agent.settings.clone(), known.card.clone())).collect();
    let catalogue = tools_of_cards(&cards);
    let alone = cards.iter().flat_map(|(agent, _)| catalogue.of(&agent.name).of_agents());
    let mut tools: HashMap<String, Vec<String>> = HashMap::new();
    for tool in catalogue.all().of_agents().chain(alone) {
        tools.entry(tool.agent.to_string()).or_default().push(tool.name.clone());
    }
    tools
}

/// An agent of the directory, with its card as it is known now.
struct KnownAgent<'a> {
    settings: &'a config::Agent,
    card: Option<&'a Arc<ResolvedAgent>>,
    /// The names of its tools.
    tools: &'a [String],
}

impl KnownAgent<'_> {
    fn has_skill(&self, pattern: &str) -> bool {
        let skills = self.card.iter().flat_map(|known| &known.card.skills);
        skills.into_iter().any(|skill| fits_pattern(pattern, &skill.id))
    }

    fn has_tool(&self, pattern: &str) -> bool {
        self.has_skill(pattern) || self.tools.iter().any(|tool| fits_pattern(pattern, tool))
    }
}

/// Returns the warnings for the tools of a rule.
fn unmatched_tools(index: usize, rule: &Rule, agents: &[KnownAgent<'_>]) -> Vec<Problem> {
    let Some(patterns) = &rule.tools else { return Vec::new() };
    let is_about = |agent: &&KnownAgent<'_>| {
        let fits = |named: &Vec<String>| named.iter().any(|one| fits_pattern(one, &agent.settings.name));
        rule.agents.as_ref().is_none_or(fits)
    };
    let about: Vec<&KnownAgent<'_>> = agents.iter().filter(is_about).collect();
    let is_builtin = |pattern: &String| {
        let of_tasks = TaskTool::ALL.into_iter().map(TaskTool::name);
        let provided = ProviderTool::MEMORY.into_iter().chain(ProviderTool::BATCH).map(ProviderTool::name);
        of_tasks.chain(provided).chain([find_agent::NAME]).any(|name| fits_pattern(pattern, name))
    };
    let fits = |pattern: &String| is_builtin(pattern) || about.iter().any(|agent| agent.has_tool(pattern));
    let problem = match rule.deny {
        true => "fits no skill and no tool of these agents: it denies nothing",
        false => "fits no skill and no tool of these agents: it allows nothing",
    };
    unmatched(&format!("rules[{index}].tools"), patterns, &about, fits, problem)
}

/// Returns a warning for each pattern that fits nothing; none while an agent that it is about has no
/// card, or is not there yet: sources may add it.
fn unmatched(
    at: &str,
    patterns: &[String],
    about: &[&KnownAgent<'_>],
    fits: impl Fn(&String) -> bool,
    problem: &str,
) -> Vec<Problem> {
    if about.is_empty() || about.iter().any(|agent| agent.card.is_none()) {
        return Vec::new();
    }
    let idle = patterns.iter().filter(|pattern| !fits(pattern));
    let warning = |pattern: &String| {
        let problem = format!("{pattern:?} {problem}");
        Problem { file: None, line: None, at: at.to_owned(), problem }
    };
    idle.map(warning).collect()
}

/// The pause after a rebuild, as a multiple of the time that it took: the cards of many agents come
/// one after another, and each rebuild encodes the tools of all.
const REBUILD_PAUSE: u32 = 4;
/// A rebuild that takes this long is followed by a pause, and the next one runs on another thread.
const LONG_REBUILD: Duration = Duration::from_millis(1);
/// The longest pause after a rebuild.
const MAX_REBUILD_PAUSE: Duration = Duration::from_millis(250);

/// The present catalogue of the built-in tools and the tools of all agents with known cards.
pub(crate) struct LiveCatalogue {
    directory: Arc<Directory>,
    builtin: Vec<BuiltinTool>,
    current: ArcSwap<Catalogue>,
    /// Number of the agents' cards in the current catalogue (see [`Directory::versions`]).
    built: AtomicU64,
    changes: watch::Sender<u64>,
}

impl LiveCatalogue {
    /// Creates the catalogue of the cards that are known already. `more` are built-in tools besides
    /// the task tools and `find_agent`; changes are sent to `changes`.
    pub(crate) fn new(
        directory: Arc<Directory>,
        settings: &Mcp,
        more: Vec<BuiltinTool>,
        changes: watch::Sender<u64>,
    ) -> Self {
        let mut builtin = builtin_tools(settings);
        builtin.extend(more);
        let built = AtomicU64::new(directory.versions());
        let current = ArcSwap::from_pointee(build(&directory, &builtin));
        Self { directory, builtin, current, built, changes }
    }

    /// Returns the present catalogue, for a short use.
    pub(crate) fn load(&self) -> Guard<Arc<Catalogue>> {
        self.current.load()
    }

    /// Returns the present catalogue.
    pub(crate) fn load_full(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    /// Returns a receiver for changes of the catalogue.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns true if the catalogue has the tools of all cards that are known.
    pub(crate) fn is_current(&self) -> bool {
        self.built.load(Ordering::Acquire) == self.directory.versions()
    }

    /// Returns the name of an agent's tool for a skill.
    pub(crate) fn tool_of(&self, route: Route<'_>, agent: &str, skill: Option<&str>) -> Option<String> {
        let catalogue = self.load();
        let mut tools = view(&catalogue, route).of_agents();
        let tool = tools.find(|tool| *tool.agent == *agent && tool.skill.as_deref() == skill)?;
        Some(tool.name.clone())
    }

    /// Rebuilds the catalogue whenever a card has changed. Runs until it is dropped.
    pub(crate) async fn run(self: &Arc<Self>) {
        let mut fetched = self.directory.changes();
        let mut took = Duration::ZERO;
        loop {
            took = match took < LONG_REBUILD {
                true => self.timed_rebuild(),
                // Thousands of tools take a while, and this runtime follows calls.
                false => {
                    let catalogue = self.clone();
                    let rebuilt = tokio::task::spawn_blocking(move || catalogue.timed_rebuild()).await;
                    rebuilt.unwrap_or_else(|error| {
                        tracing::warn!(%error, "failed to rebuild catalogue of tools");
                        MAX_REBUILD_PAUSE
                    })
                }
            };
            if took >= LONG_REBUILD {
                tokio::time::sleep((took * REBUILD_PAUSE).min(MAX_REBUILD_PAUSE)).await;
            }
            if fetched.changed().await.is_err() {
                return;
            }
        }
    }

    /// Rebuilds the catalogue if a card has changed since, and returns the time that it took.
    fn timed_rebuild(&self) -> Duration {
        let began = Instant::now();
        self.rebuild();
        began.elapsed()
    }

    /// Rebuilds the catalogue if a card has changed since. Takes about 10 µs for each tool.
    pub(crate) fn rebuild(&self) {
        let present = self.directory.versions();
        if self.built.load(Ordering::Acquire) != present {
            self.current.store(Arc::new(build(&self.directory, &self.builtin)));
            self.built.store(present, Ordering::Release);
            self.notify_changed();
        }
    }

    /// Notifies the receivers of changes.
    pub(crate) fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Returns the tools of a catalogue on a route.
pub(crate) fn view<'c>(catalogue: &'c Catalogue, route: Route<'_>) -> &'c CatalogueView {
    match route {
        Route::OneAgent(agent) | Route::A2a(agent, _) => catalogue.of(agent),
        Route::AllAgents
        | Route::Grpc
        | Route::Agents
        | Route::ApiCatalog
        | Route::Health
        | Route::Push(_)
        | Route::Metadata(_) => catalogue.all(),
    }
}

fn build(directory: &Directory, builtin: &[BuiltinTool]) -> Catalogue {
    let seen = directory.agents().iter().filter_map(|agent| {
        let known = agent.known()?;
        Some((tool_plan(&agent.settings), known.card.clone()))
    });
    Catalogue::build(&seen.collect::<Vec<_>>(), builtin)
}

/// Returns the built-in tools that are switched on.
fn builtin_tools(settings: &Mcp) -> Vec<BuiltinTool> {
    let of_tasks = TaskTool::ALL.into_iter().filter(|_| settings.subagent_tools).filter_map(|tool| {
        BuiltinTool::new(tool.name(), tool.is_with_one_agent(), |version| tool.json(version))
    });
    let finder =
        settings.find_agent.then(|| BuiltinTool::new(find_agent::NAME, false, find_agent::json)).flatten();
    of_tasks.chain(finder).collect()
}

fn tool_plan(agent: &config::Agent) -> ToolPlan {
    let skills = agent.skills.iter().map(|(id, skill)| {
        let plan = SkillPlan {
            tool_name: skill.tool_name.clone(),
            description: skill.description.clone(),
            input_schema: skill.input_schema.clone(),
            task: skill.task.map(task_support),
            hidden: skill.hidden,
        };
        (id.clone(), plan)
    });
    ToolPlan {
        agent: agent.name.clone(),
        per_agent: agent.tools == ToolGranularity::Agent,
        tool_name: agent.tool_name.clone(),
        description: agent.description.clone(),
        task: task_support(agent.task),
        skills: skills.collect(),
    }
}

fn task_support(task: TaskMode) -> TaskSupport {
    match task {
        TaskMode::Optional => TaskSupport::Optional,
        TaskMode::Required => TaskSupport::Required,
        TaskMode::Never => TaskSupport::Never,
    }
}

/// Returns the skills of a card and their tools, for agents that have no directory yet: all of them
/// together, since names of tools are unique.
pub(crate) fn tools_of_cards(agents: &[(config::Agent, Arc<AgentCard>)]) -> Catalogue {
    let planned: Vec<_> = agents.iter().map(|(agent, card)| (tool_plan(agent), card.clone())).collect();
    Catalogue::build(&planned, &[])
}

/// Returns the skills of an agent and their tools on `/mcp`, for the `agents` command.
pub fn tools_of(directory: &Directory, agent: &str) -> Vec<(String, String)> {
    let catalogue = build(directory, &[]);
    let is_usable = directory.find(agent).is_none_or(|agent| agent.unsupported_required().is_none());
    let own = catalogue.all().of_agents().filter(|tool| is_usable && *tool.agent == *agent);
    own.map(|tool| (tool.skill.as_deref().unwrap_or("-").to_owned(), tool.name.clone())).collect()
}
