//! Tasks that clients hold: from a handle to the entry in the map and back.
//!
//! A handle says whose task it is; what the map has forgotten is asked of the agent. Not here: the map (see `tasks`), sealing (see
//! `seal`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::route::Door;
use super::shares::Promise;
use super::source::Source;
use super::{Asker, Inner};
use crate::a2a::{PathSegmentError, State};
use crate::agents::{Agent, Along, Known};
use crate::bridge::status::{self, Standpoint};
use crate::bridge::work::Work;
use crate::fault::{Fault, Trouble};
use crate::mcp::tasks::{TaskSnapshot, TaskStatus, iso8601};
use crate::seal::{Named, TaskRef};
use crate::tasks::{Entry, Key, Phase, Times, Verdict};

/// Longest wait for an agent that is asked how a task stands while a client waits.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Waits until something is known of a task that another request is asking for; says whether it is.
async fn is_told(entry: &Entry) -> bool {
    let mut changes = entry.changes();
    let told = async {
        while entry.look(|inside| inside.is_blank() && !inside.is_followed()) {
            if entry.is_gone() || changes.changed().await.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(ASKED_WITHIN, told).await.unwrap_or(false)
}

/// How an agent is called, with what goes along.
pub(super) fn known(agent: &Agent, along: Option<&Arc<Along>>) -> Result<Arc<Known>, Trouble> {
    let known = agent.known().ok_or_else(|| {
        let why = agent.problem().map_or("its card has not come yet", |_| "its card cannot be had");
        Trouble::NotSeen(why.to_owned())
    })?;
    match agent.obstacle_of(&known.card) {
        Some(why) => Err(Trouble::Unusable(why)),
        None => Ok(known.along(along)),
    }
}

/// Why a task is not found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// There is none, or none of this caller's.
    Unknown,
    /// The agent cannot say.
    Trouble(Trouble),
    /// It is there, and what was said does not answer its question: how to, for the model.
    Unfit(String),
}

impl NotFound {
    /// The fault of a request about such a task.
    pub(super) fn fault(self) -> Fault {
        match self {
            Self::Unknown => Fault::UnknownTask,
            Self::Unfit(told) => Fault::BadParams(told),
            Self::Trouble(Trouble::UnsafeId) => Fault::BadParams(PathSegmentError::TEXT.to_owned()),
            Self::Trouble(trouble) => {
                tracing::debug!(%trouble, "agent cannot be asked for a task");
                Fault::AgentSilent
            }
        }
    }
}

impl Inner {
    /// The agent and the task that a handle of this caller's stands for, if the agent is behind this door.
    pub(super) fn opened(&self, asker: &Asker, door: Door<'_>, handle: &str) -> Option<(Arc<Agent>, Named)> {
        let (agent, named) = Named::open(&self.sealer, asker.caller.name(), handle)?;
        let agent = self.directory.find(&agent)?.clone();
        self.sees(&asker.caller, door, &agent).then_some((agent, named))
    }

    /// The entry of a task; what is not in the map is asked of the agent.
    pub(super) async fn entry(
        &self,
        asker: &Asker,
        agent: &Arc<Agent>,
        named: &Named,
    ) -> Result<(Arc<Entry>, Arc<Known>), NotFound> {
        let known = self.known(asker, agent).map_err(NotFound::Trouble)?;
        let name: Arc<str> = agent.settings.name.as_str().into();
        let now = Times::now();
        let (key, task) = match named {
            Named::Local(number) => {
                let entry = self.tasks.find(&Key::Local(*number), now.instant);
                return entry.map(|entry| (entry, known)).ok_or(NotFound::Unknown);
            }
            Named::Task(id, _) => (Key::Task { agent: name.clone(), id: id.clone() }, id.as_str()),
        };
        let skill = || named.skill().map(Arc::from);
        let make = || {
            let mut work = Work::new(self.settings.limits.artifacts);
            work.task_id = Some(task.to_owned());
            work.skill = skill();
            Entry::new(name.clone(), rand::random(), work, now)
        };
        // Where there is no room to remember it, it is known for this request.
        let (entry, is_new) =
            self.tasks.admit(key, make, now.instant).unwrap_or_else(|_| (Arc::new(make()), true));
        if is_new || !is_told(&entry).await {
            self.ask(&entry, &known).await.map_err(|trouble| {
                self.tasks.forget(&entry);
                match trouble {
                    Trouble::TaskLost => NotFound::Unknown,
                    trouble => NotFound::Trouble(trouble),
                }
            })?;
        }
        if named.skill().is_some() && entry.look(|inside| inside.work.skill.is_none()) {
            entry.rework(|work| work.skill = skill());
        }
        Ok((entry, known))
    }

    /// The skill whose tool began a task of an agent, if that is known.
    pub(super) fn skill_of(&self, agent: &str, named: &Named) -> Option<Arc<str>> {
        let key = match named {
            Named::Task(_, Some(skill)) => return Some(skill.as_str().into()),
            Named::Task(id, None) => Key::Task { agent: agent.into(), id: id.clone() },
            Named::Local(number) => Key::Local(*number),
        };
        self.tasks.peek(&key, Instant::now())?.look(|inside| inside.work.skill.clone())
    }

    /// How an agent is called for this request.
    pub(super) fn known(&self, asker: &Asker, agent: &Agent) -> Result<Arc<Known>, Trouble> {
        known(agent, asker.along.as_ref())
    }

    /// Asks the agent how a task stands, for no longer than a client waits.
    async fn ask(&self, entry: &Arc<Entry>, known: &Arc<Known>) -> Result<(), Trouble> {
        let asked = tokio::time::timeout(ASKED_WITHIN, self.followers.look(entry, known)).await;
        asked.unwrap_or(Err(Trouble::Slow("it does not say how the task stands")))
    }

    /// Brings a task up to date that nobody follows.
    pub(super) async fn freshen(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        let (phase, is_followed) = entry.look(|inside| (inside.phase(), inside.is_followed()));
        if is_followed || matches!(phase, Phase::Finished | Phase::Failed(_)) {
            let refilled = tokio::time::timeout(ASKED_WITHIN, self.followers.refill(entry, known)).await;
            if let Err(trouble) =
                refilled.unwrap_or(Err(Trouble::Slow("it does not give its artifacts again")))
            {
                tracing::warn!(agent = %entry.agent(), %trouble, "artifacts that were left to the agent are not to be had");
            }
            // The follower continues with these credentials when its own are refused.
            if is_followed {
                self.followers.attend(entry, known);
            }
            return;
        }
        if let Err(trouble) = self.ask(entry, known).await {
            tracing::debug!(agent = %entry.agent(), %trouble, "agent does not say how a task stands");
            // Anything else may pass; whoever follows it finds out.
            if trouble == Trouble::TaskLost {
                self.followers.note_end(entry, trouble);
            }
        }
        // An authorization is given elsewhere: the agent goes on without a word from here.
        if matches!(
            entry.look(|inside| inside.phase()),
            Phase::Running | Phase::Asking(_, State::AuthRequired)
        ) {
            self.followers.attend(entry, known);
        }
    }

    /// A place for the task that a call is about to begin, if it begins one. Its agent has heard nothing yet.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if the caller has as many as may be.
    pub(super) fn place_for(&self, asker: &Asker, source: &Source) -> Result<Option<Promise>, Fault> {
        match source {
            Source::Own(own) => self.shares.promise(&asker.caller, own.local).map(Some),
            Source::Watched(_) => Ok(None),
        }
    }

    /// The client will hold a handle of the task: it is remembered, and kept where tasks are kept. Returns a warning for
    /// the client, if the disk does not take it.
    pub(super) async fn hand_out(&self, entry: &Arc<Entry>, asker: &Asker) -> Option<&'static str> {
        entry.own(asker.caller.name());
        self.shares.hold(&asker.caller, entry);
        if self.ledger.acknowledge(entry).await {
            return None;
        }
        Some(
            "The gateway cannot keep this task on disk now. If the gateway restarts, the task is found only while its \
             agent remembers it, or not at all.",
        )
    }

    /// The handle of a task for this caller.
    pub(super) fn handle_of(&self, entry: &Entry, asker: &Asker) -> String {
        self.named(entry).seal(&self.sealer, asker.caller.name(), entry.agent()).into_string()
    }

    /// How a task is named in what is sealed: by the agent's id where that fits.
    pub(super) fn named(&self, entry: &Entry) -> Named {
        let agent = entry.agent().to_string();
        let known = entry.look(|inside| {
            let skill = inside.work.skill.as_deref().map(str::to_owned);
            inside.work.task_id.as_deref().map(|task| TaskRef { agent, task: task.into(), skill })
        });
        let known = known.and_then(TaskRef::fitting);
        known.map_or(Named::Local(entry.local()), |known| Named::Task(known.task, known.skill))
    }

    /// How a task stands for this client.
    pub(super) fn standpoint(&self, entry: &Entry, asker: &Asker) -> Standpoint {
        let askable = self.can_be_asked(entry, asker);
        entry.look(|inside| {
            let cancelled = inside.verdict == Some(Verdict::Cancelled);
            let standpoint = Standpoint::of(&inside.work, cancelled, askable);
            match inside.phase() {
                Phase::Failed(_) => Standpoint { state: State::Failed, ..standpoint },
                // The agent repeats a question that has been answered, or has not been told yet that it was.
                Phase::Running if standpoint.state.is_interrupted() => {
                    Standpoint { state: State::Working, ..standpoint }
                }
                Phase::Running | Phase::Asking(..) | Phase::Finished => standpoint,
            }
        })
    }

    /// A task in numbers, with the status that core clients get.
    pub(super) fn snapshot<'h>(&self, entry: &Entry, handle: &'h str, asker: &Asker) -> TaskSnapshot<'h> {
        let standpoint = self.standpoint(entry, asker);
        let status = standpoint.core();
        let said = entry.show_work(|work| status::message(work, status == TaskStatus::Cancelled));
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        entry.look(|inside| {
            let message = match inside.phase() {
                Phase::Failed(trouble) => Some(trouble.told(entry.agent())),
                Phase::Running | Phase::Asking(..) | Phase::Finished => {
                    let delay = inside.delay.filter(|_| inside.phase() == Phase::Running);
                    match (said, delay.map(|delay| delay.told(entry.agent()))) {
                        (Some(said), Some(delay)) => Some(format!("{delay} The agent last said: {said}")),
                        (said, delay) => delay.or(said),
                    }
                }
            };
            TaskSnapshot {
                task_id: handle,
                status,
                status_message: message,
                created_at: iso8601(inside.created.unix_ms),
                last_updated_at: iso8601(inside.changed.unix_ms),
                ttl_ms: Some(millis(self.settings.tasks.ttl)),
                poll_interval_ms: millis(self.settings.tasks.poll_interval),
            }
        })
    }
}
