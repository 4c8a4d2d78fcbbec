//! The gateway's own tools: start a task of any agent, send to it, look at it, wait for it, cancel it.
//!
//! Not here: what they take and how they are listed (see `bridge::subagent`), their results (see `bridge::outcome`).

use std::sync::Arc;
use std::time::Duration;

use super::answer::Gone;
use super::answers::in_form_of_question;
use super::call::{ON_ITS_WAY, Words};
use super::early::Early;
use super::exchange::Exchange;
use super::hold::NotFound;
use super::pump::To;
use super::queue::Place;
use super::route::Door;
use super::serve::{Form, Serving, tell_delay};
use super::shares::Promise;
use super::source::Source;
use super::{Asker, Inner};
use crate::a2a::Message;
use crate::agents::{Agent, Known};
use crate::bridge::arguments;
use crate::bridge::ladder::{Rung, Then};
use crate::bridge::order::{Order, order, unknown_task};
use crate::bridge::outcome;
use crate::bridge::subagent::{self, Asked, Tool};
use crate::fault::{Fault, Trouble};
use crate::jsonrpc::Id;
use crate::mcp::tools::CallResult;
use crate::mcp::{Method, Params};
use crate::tasks::{Entry, Phase};

/// How long `subagent_start` and `subagent_send` wait for the agent's first word; the task goes on beyond.
const FIRST_WORD: Duration = Duration::from_secs(10);

impl Inner {
    /// Carries out a call of one of the gateway's own tools.
    pub(super) async fn call_own(
        &self,
        (mut to, budget): (To<'_>, Duration),
        door: Door<'_>,
        (asker, exchange): (&Asker, &mut Exchange),
        (id, params, tool): (&Id, &Params<'_>, Tool),
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        exchange.tool = Some(tool.name().to_owned());
        let asked = subagent::read(tool, params.arguments).map_err(Early::told);
        let done = match asked {
            Ok(Asked::Start { agent, text }) => {
                self.start((door, &mut to), asker, params, (agent, text)).await
            }
            Ok(Asked::Wait { task, seconds }) => self.wait(door, asker, &task, seconds, budget).await,
            Ok(Asked::Get { task }) => self.look_at(door, asker, &task).await.map(Done::Told),
            Ok(Asked::Send { task, said }) => {
                self.send((door, &mut to), asker, params, (&task, *said)).await.map(Done::Told)
            }
            Ok(Asked::Cancel { task }) => self.cancel_one(door, asker, &task).await.map(Done::Told),
            Err(early) => Err(early),
        };
        let result = match done {
            Ok(Done::Goes(source, agent, (form, _promise, _place), patience)) => {
                exchange.agent = Some(agent.clone());
                let rung = Rung { patience: Some(patience), then: Then::Handle };
                let began_here = form == Form::Start;
                let call = (tool.name(), params.arguments);
                let serving =
                    Serving { rung, form, began_here, call, _promise, ..Serving::plain(asker, id, agent) };
                let going =
                    self.carry_out((to, Some(patience.min(budget))), (source, serving), exchange, params);
                return going.await.map_err(Err);
            }
            Ok(Done::Told(result)) => result,
            Err(Early::Fault(fault)) => return Err(Ok(fault)),
            Err(Early::Gone) => return Err(Err(Gone)),
            Err(Early::Told(result, outcome)) => {
                exchange.outcome = outcome;
                result
            }
        };
        let body = self.writer(asker.version.era()).spoken(id, &result);
        self.answer_with(to, (asker, exchange), body).await
    }

    async fn start(
        &self,
        (door, to): (Door<'_>, &mut To<'_>),
        asker: &Asker,
        params: &Params<'_>,
        (name, text): (String, String),
    ) -> Result<Done, Early> {
        let agent = self.directory.find(&name).filter(|agent| self.sees(&asker.caller, door, agent));
        let agent = agent.ok_or_else(|| Early::told(self.no_such_agent(asker, door, &name)))?.clone();
        self.permit_start((asker, door), &agent).map_err(|fault| match fault {
            // It is no secret that it is there.
            Fault::NoSuchTool(_) => Early::told(format!(
                "You may not begin a task of agent {name:?} without naming a skill: call the tool of a skill instead."
            )),
            fault => Early::Fault(fault),
        })?;
        let place = self.shares.call_of(&name, to.left()).await?;
        let asked = arguments::Asked { text: Some(text), ..arguments::Asked::default() };
        let said = order(asked, &self.sender(asker, params, &name, None)).map_err(Early::told)?;
        let source =
            self.source(asker, (said, None), &agent).await.map_err(|not_found| early(not_found, &name))?;
        let promise = self.place_for(asker, &source).map_err(Early::Fault)?;
        Ok(Done::Goes(source, agent, (Form::Start, promise, place), FIRST_WORD))
    }

    fn no_such_agent(&self, asker: &Asker, door: Door<'_>, name: &str) -> String {
        let shown: String = name.chars().take(64).collect();
        let behind = self.directory.agents().iter().filter(|agent| {
            let name = &agent.settings.name;
            self.sees(&asker.caller, door, agent) && self.may_use(&asker.caller, name, Tool::Start)
        });
        let uris: Vec<String> =
            behind.take(20).map(|agent| crate::bridge::resources::agent_uri(&agent.settings.name)).collect();
        let others = if uris.is_empty() { "none".to_owned() } else { uris.join(", ") };
        format!("Unknown subagentUri: there is no agent {shown:?} here. There are: {others}.")
    }

    async fn wait(
        &self,
        door: Door<'_>,
        asker: &Asker,
        handle: &str,
        seconds: Option<u64>,
        budget: Duration,
    ) -> Result<Done, Early> {
        let (entry, known, agent) = self.own_task(Tool::Wait, (door, asker), handle).await?;
        let patience = seconds.map_or(budget, Duration::from_secs).min(budget);
        self.freshen(&entry, &known).await;
        let source = Source::Watched(Box::new(super::source::Watched::new(entry, known, true)));
        Ok(Done::Goes(source, agent, (Form::Wait, None, None), patience))
    }

    async fn look_at(&self, door: Door<'_>, asker: &Asker, handle: &str) -> Result<CallResult, Early> {
        let (entry, known, agent) = self.own_task(Tool::Get, (door, asker), handle).await?;
        self.freshen(&entry, &known).await;
        let name = &agent.settings.name;
        let audience = self.audience(asker, name);
        if let Phase::Failed(trouble) = entry.look(|inside| inside.phase()) {
            return Err(Early::trouble(&trouble, name));
        }
        let mut told = entry.show_work(|work| outcome::snapshot(work, &audience, entry.local()));
        let delay = entry.look(|inside| inside.delay.filter(|_| inside.phase() == Phase::Running));
        tell_delay(&mut told, delay, name);
        Ok(told)
    }

    /// Says something in a task; a finished one goes on as a new one in its conversation.
    async fn send(
        &self,
        (door, to): (Door<'_>, &mut To<'_>),
        asker: &Asker,
        params: &Params<'_>,
        (handle, said): (&str, arguments::Asked),
    ) -> Result<CallResult, Early> {
        let (entry, known, agent) = self.own_task(Tool::Send, (door, asker), handle).await?;
        let name = &agent.settings.name;
        let skill = entry.look(|inside| inside.work.skill.clone());
        self.permit_words((asker, door), &agent, (Method::ToolsCall, skill.as_deref()))
            .map_err(Early::of_task)?;
        self.freshen(&entry, &known).await;
        match entry.look(|inside| inside.phase()) {
            Phase::Finished => return Err(Early::told(self.has_ended((door, asker), name))),
            Phase::Failed(trouble) => return Err(Early::trouble(&trouble, name)),
            Phase::Running | Phase::Asking(..) => {}
        }
        let sender = self.sender(asker, params, name, None);
        let Order::Say(message) = order(said, &sender).map_err(Early::told)? else {
            return Err(Early::Fault(Fault::Internal));
        };
        let unnamed =
            || Early::told("The agent has not accepted the first message yet: wait for it first.".into());
        let task = entry.task_id().ok_or_else(unnamed)?;
        let parts = in_form_of_question(&entry, message.parts).map_err(Early::told)?;
        entry.begin_turn();
        let context_id = entry.look(|inside| inside.work.context_id.clone());
        let mut message = Message { context_id, parts, ..message };
        let turn = match self.turn_for(&entry, &task, &mut message) {
            Words::Answer(turn) => Some(Some(turn)),
            Words::Free => Some(None),
            Words::Again(_) => None,
            Words::Other => return Err(Early::trouble(&Trouble::Gateway(ON_ITS_WAY), name)),
        };
        if let Some(turn) = turn {
            let _place = self.shares.call_of(name, to.left()).await?;
            let said = self.followers.say(&entry, &known, (task, message, turn));
            // Longer silence is no failure: the agent works on it.
            let said = tokio::select! {
                said = tokio::time::timeout(FIRST_WORD, said) => said,
                () = self.closing.answers_due() => Ok(Ok(Ok(()))),
            };
            if let Ok(Ok(Err(trouble))) = said {
                return Err(Early::trouble(&trouble, name));
            }
        }
        let audience = self.audience(asker, name);
        Ok(entry.show_work(|work| outcome::sent(work, &audience, entry.local())))
    }

    /// What a model is told that says something in a task which is over.
    fn has_ended(&self, (door, asker): (Door<'_>, &Asker), agent: &str) -> String {
        let starts = door == Door::AllAgents && self.may_use(&asker.caller, agent, Tool::Start);
        let begin = if starts { "Begin a new one with subagent_start, or call" } else { "Call" };
        format!(
            "The task has ended and takes no more messages. {begin} the agent's own tool with the contextId to go on with the \
             conversation."
        )
    }

    async fn cancel_one(&self, door: Door<'_>, asker: &Asker, handle: &str) -> Result<CallResult, Early> {
        let (entry, known, agent) = self.own_task(Tool::Cancel, (door, asker), handle).await?;
        self.freshen(&entry, &known).await;
        if let Phase::Failed(trouble) = entry.look(|inside| inside.phase()) {
            return Err(Early::trouble(&trouble, &agent.settings.name));
        }
        let was_over = entry.look(|inside| inside.is_finished());
        if !was_over {
            let stopping = self.followers.stop_now(&entry, &known);
            if tokio::time::timeout(FIRST_WORD, stopping).await.is_err() {
                tracing::debug!(agent = %entry.agent(), "agent takes long to stop a task");
            }
        }
        let audience = self.audience(asker, &agent.settings.name);
        let canceled = entry.look(|inside| inside.work.state == Some(crate::a2a::State::Canceled));
        let is_remembered = !was_over && !entry.is_named();
        Ok(entry.look(|inside| {
            outcome::cancelled(&inside.work, &audience, entry.local(), canceled || is_remembered)
        }))
    }

    async fn own_task(
        &self,
        tool: Tool,
        (door, asker): (Door<'_>, &Asker),
        handle: &str,
    ) -> Result<(Arc<Entry>, Arc<Known>, Arc<Agent>), Early> {
        let (agent, named) = self.opened(asker, door, handle).ok_or_else(|| Early::told(unknown_task()))?;
        // By the agent whose task it is; which agent that is was not known when the tool was.
        let own = ((tool.name(), tool.name()), None);
        self.permit_tool((asker, door), Some(&agent), own).map_err(Early::of_task)?;
        let found = self.entry(asker, &agent, &named).await;
        let (entry, known) = found.map_err(|not_found| early(not_found, &agent.settings.name))?;
        Ok((entry, known, agent))
    }
}

/// What one of the gateway's own tools comes to.
enum Done {
    /// A call to be served: where its events come from, whose they are, what is answered, with the places of a task that it
    /// begins and of the call, and for how long it is waited for.
    Goes(Source, Arc<Agent>, (Form, Option<Promise>, Option<Place>), Duration),
    /// A result.
    Told(CallResult),
}

fn early(not_found: NotFound, agent: &str) -> Early {
    match not_found {
        NotFound::Unknown => Early::told(unknown_task()),
        NotFound::Trouble(trouble) => Early::trouble(&trouble, agent),
        NotFound::Unfit(told) => Early::told(told),
    }
}
