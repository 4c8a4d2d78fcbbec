//! `tools/call`: from the request to its result.
//!
//! Not here: waiting and telling (see `pump`), the words (see `bridge`).

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Gone, reply};
use super::exchange::Exchange;
use super::pump::{Ending, Patience, Pump, To};
use super::running::Entry;
use super::source::{Leaving, Own, Source};
use super::{Asker, Inner};
use crate::agents::{Agent, Errand, start};
use crate::bridge::arguments;
use crate::bridge::catalogue::{ToolEntry, View};
use crate::bridge::order::{Order, Sender, Trace, order, unknown_task};
use crate::bridge::outcome::Audience;
use crate::bridge::progress::Teller;
use crate::bridge::work::{Standing, Work};
use crate::fault::{Fault, Trouble};
use crate::follow::Key;
use crate::jsonrpc::Id;
use crate::mcp::content::Block;
use crate::mcp::tools::CallResult;
use crate::mcp::{Era, Params};
use crate::telemetry::label::Outcome;

/// Why a call ends before an agent is asked.
enum Early {
    /// The request is wrong.
    Fault(Fault),
    /// The call is wrong in a way that a model can put right, or the agent is not there.
    Told(CallResult, Outcome),
}

impl Inner {
    /// Carries a call out within a budget. The body of its response goes to the client, or comes back for the batch.
    pub(super) async fn call_tool(
        &self,
        (to, budget): (To<'_>, Duration),
        (asker, exchange): (&Asker, &mut Exchange),
        (id, params): (&Id, &Params<'_>),
        view: &View,
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        let (source, agent) = match self.begin(asker, exchange, params, view) {
            Ok(begun) => begun,
            Err(Early::Fault(fault)) => return Err(Ok(fault)),
            Err(Early::Told(result, outcome)) => {
                exchange.outcome = outcome;
                let body = self.writer(asker.version.era()).spoken(id, &result);
                let To::Client(http) = to else { return Ok(Some(body)) };
                reply(http, asker.takes, body, None).await.map_err(Err)?;
                return Ok(None);
            }
        };
        let running = asker.session.as_ref().map(|session| self.running.enter(session.key, id));
        let meta = params.meta();
        let teller = Teller::new(meta.progress.clone(), asker.level, &agent.settings.name);
        let streams = agent.metrics.clone();
        let pump = Pump::new(to, asker.takes, teller, self.patience(budget), &streams);
        let work = Pumped { pump, source, agent, running };
        self.pump(work, asker, exchange, id).await.map_err(Err)
    }

    fn patience(&self, budget: Duration) -> Patience {
        let calls = &self.settings.calls;
        Patience { budget, stream_after: calls.stream_after, keep_alive: calls.keep_alive }
    }

    /// Finds the tool, reads the arguments, and decides what is to be done at the agent.
    fn begin(
        &self,
        asker: &Asker,
        exchange: &mut Exchange,
        params: &Params<'_>,
        view: &View,
    ) -> Result<(Source, Arc<Agent>), Early> {
        let name = params
            .name
            .as_ref()
            .ok_or_else(|| Early::Fault(Fault::BadParams("name is missing: the tool to call".into())))?;
        let unknown = || Early::Fault(Fault::NoSuchTool(name.as_str().chars().take(100).collect()));
        let tool = view.find(name.as_str()).ok_or_else(unknown)?;
        let agent = self.directory.find(&tool.agent).cloned().ok_or_else(unknown)?;
        exchange.tool = Some(tool.name.clone());
        exchange.agent = Some(agent.clone());
        let told = |text: String| Early::Told(CallResult::failure(text), Outcome::ClientFault);
        let order = self.order(asker, params, tool).map_err(told)?;
        let source = self.source(order, &agent).map_err(|refusal| match refusal {
            Refusal::UnknownTask => told(unknown_task()),
            Refusal::Trouble(trouble) => {
                let text = trouble.told(&agent.settings.name);
                Early::Told(CallResult::failure(text), Outcome::AgentFault)
            }
        })?;
        Ok((source, agent))
    }

    fn order(&self, asker: &Asker, params: &Params<'_>, tool: &ToolEntry) -> Result<Order, String> {
        let asked = arguments::read(&tool.input, params.arguments)?;
        let meta = params.meta();
        let sender = Sender {
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent: &tool.agent,
            skill: tool.skill.as_deref(),
            trace: Trace {
                parent: meta.traceparent.as_ref().map(|text| text.as_str()),
                state: meta.tracestate.as_ref().map(|text| text.as_str()),
            },
            message_id: rand::random(),
        };
        order(asked, &sender)
    }

    fn source(&self, order: Order, agent: &Arc<Agent>) -> Result<Source, Refusal> {
        let name = &agent.settings.name;
        let task = |task: &str| Key::Task(name.clone(), task.to_owned());
        match order {
            Order::Say(message) => self.own(Errand::Say(message), agent, rand::random(), |_| ()),
            Order::Await(id) => match self.watch(&task(id.as_str())) {
                Some(watched) => Ok(watched),
                None => self.own(Errand::Await(id.into_string()), agent, rand::random(), |own| {
                    (own.held, own.patient) = (true, true);
                }),
            },
            Order::Continue(id, message) => {
                let errand = Errand::Continue(id.into_string(), message);
                self.own(errand, agent, rand::random(), |own| own.held = true)
            }
            Order::AwaitLocal(number) => self.watch(&Key::Local(number)).ok_or(Refusal::UnknownTask),
            Order::ContinueLocal(number, message) => {
                let followed = self.followers.find(&Key::Local(number)).ok_or(Refusal::UnknownTask)?;
                let named = followed.look(|work| work.task_id.clone());
                let id = named.ok_or(Refusal::Trouble(Trouble::Refused(
                    "it has not accepted the first message yet; wait for it with taskId alone".into(),
                )))?;
                self.own(Errand::Continue(id, message), agent, rand::random(), |own| own.held = true)
            }
        }
    }

    fn watch(&self, key: &Key) -> Option<Source> {
        let followed = self.followers.find(key)?;
        let local = match key {
            Key::Local(number) => *number,
            Key::Task(..) => rand::random(),
        };
        // What ended without the task's own end says nothing about the task now: the agent is asked again.
        let is_stale = followed.over().is_some() && followed.look(Work::standing) != Standing::Finished;
        if is_stale && matches!(key, Key::Task(..)) {
            return None;
        }
        let changes = followed.changes();
        Some(Source::Watched { followed, changes, local, patient: true })
    }

    fn own(
        &self,
        errand: Errand,
        agent: &Arc<Agent>,
        local: [u8; 16],
        adjust: impl FnOnce(&mut Own),
    ) -> Result<Source, Refusal> {
        let known = agent.known().ok_or_else(|| {
            let why = agent.problem().map_or("its card has not come yet", |_| "its card cannot be had");
            Refusal::Trouble(Trouble::NotSeen(why.to_owned()))
        })?;
        let drive = start(self.client.clone(), known.clone(), self.caps(), errand);
        let mut own = Own::new(drive, Work::new(self.settings.limits.artifacts), known, local);
        adjust(&mut own);
        Ok(Source::Own(Box::new(own)))
    }

    async fn pump(
        &self,
        work: Pumped<'_>,
        asker: &Asker,
        exchange: &mut Exchange,
        id: &Id,
    ) -> Result<Option<Vec<u8>>, Gone> {
        let Pumped { mut pump, mut source, agent, running } = work;
        let name = agent.settings.name.as_str();
        let audience = Audience {
            version: asker.version,
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent: name,
            helper_tools: false,
        };
        let ending = pump.run(&mut source, running.as_ref()).await;
        agent.metrics.events(source.heard());
        exchange.agent_took = source.agent_took();
        exchange.outcome = outcome(&ending, &source);
        let (result, finished) = match ending {
            Ending::Settled if source.standing() == Standing::Finished => {
                (Some(source.result(&audience)), Some(source))
            }
            Ending::Settled | Ending::OutOfPatience => {
                let handle = source.result(&audience);
                let leads_back = source.leave(&self.followers, name, Leaving::WithHandle);
                (Some(if leads_back { handle } else { no_room(name) }), None)
            }
            Ending::Failed(trouble) => {
                exchange.fault = Some(trouble.word());
                (Some(failure(&trouble, name, &source, &audience)), None)
            }
            Ending::Cancelled | Ending::Gone => {
                let stops = matches!(ending, Ending::Cancelled) || asker.version.era() == Era::Modern;
                let leaving = if stops { Leaving::Stopping } else { Leaving::Silently };
                source.leave(&self.followers, name, leaving);
                (None, None)
            }
        };
        if exchange.outcome == Outcome::ClientGone {
            return Err(Gone);
        }
        let body = result.map(|result| self.writer(asker.version.era()).spoken(id, &result));
        let answered = pump.finish(body).await;
        if let Some(source) = finished {
            source.wind_down().await;
        }
        answered
    }
}

/// A call under way, with its client.
struct Pumped<'s> {
    pump: Pump<'s>,
    source: Source,
    agent: Arc<Agent>,
    running: Option<Entry>,
}

/// Why nothing can be done at the agent.
enum Refusal {
    UnknownTask,
    Trouble(Trouble),
}

fn outcome(ending: &Ending, source: &Source) -> Outcome {
    match ending {
        Ending::Settled => match source.standing() {
            Standing::Asking => Outcome::InputRequired,
            Standing::Finished | Standing::Running => Outcome::Ok,
        },
        Ending::OutOfPatience => Outcome::Continues,
        Ending::Failed(_) => Outcome::AgentFault,
        Ending::Cancelled => Outcome::Cancelled,
        Ending::Gone => Outcome::ClientGone,
    }
}

/// What a model is told when nothing would lead back to the work: the agent has not named it, and nobody can listen any longer.
fn no_room(agent: &str) -> CallResult {
    CallResult::failure(
        Trouble::Gateway("too many calls are followed already; its answer is lost").told(agent),
    )
}

/// What a model is told when an agent failed: what happened, and how to look again if there is a task.
fn failure(trouble: &Trouble, agent: &str, source: &Source, audience: &Audience<'_>) -> CallResult {
    let mut told = CallResult::failure(trouble.told(agent));
    if source.is_named() && source.standing() != Standing::Finished && *trouble != Trouble::TaskLost {
        let handle = source.result(audience);
        told.content.push(Block::text("The task may still be running at the agent; its last known state:"));
        told.content.extend(handle.content);
        told.structured_content = handle.structured_content;
    }
    told
}
