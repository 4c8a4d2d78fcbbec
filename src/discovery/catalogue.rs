//! The catalogue of tools, rebuilt whenever the card of an agent changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use crate::a2a::AgentCard;
use crate::agents::Directory;
use crate::bridge::catalogue::{BuiltinTool, Catalogue, CatalogueView, SkillPlan, ToolPlan};
use crate::bridge::search::tool as find_agent;
use crate::bridge::task_tools::TaskTool;
use crate::config::{Agent, Mcp, TaskMode, ToolGranularity};
use crate::http_edge::Route;
use crate::mcp::tools::TaskSupport;

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

fn tool_plan(agent: &Agent) -> ToolPlan {
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
pub(crate) fn tools_of_cards(agents: &[(Agent, Arc<AgentCard>)]) -> Catalogue {
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
