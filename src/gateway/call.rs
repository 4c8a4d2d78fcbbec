//! `tools/call`: from the request to the work at the agent.
//!
//! Not here: what becomes of it (see `serve`), the gateway's own tools (see `subagents`), the words (see `bridge`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::Gone;
use super::answers::{answered_already, in_form_of_question, last_question};
use super::early::Early;
use super::endpoint_limits::EndpointLimits;
use super::exchange::Exchange;
use super::hold::NotFound;
use super::pump::{Patience, Pump, To};
use super::queue::Place;
use super::route::Door;
use super::serve::Serving;
use super::shares::Use;
use super::source::{Own, Source, Watched};
use super::{Asker, Inner, now};
use crate::a2a::{Fingerprint, Message};
use crate::agents::{Agent, Errand, start};
use crate::bridge::arguments;
use crate::bridge::catalogue::{self, ToolEntry, View};
use crate::bridge::extension::Offered;
use crate::bridge::given;
use crate::bridge::ladder::{self, Client, Rung, Then, Thresholds, Unserved, rung};
use crate::bridge::order::{Order, Sender, Trace, order, unknown_task};
use crate::bridge::progress::Teller;
use crate::bridge::subagent::Tool;
use crate::bridge::work::Work;
use crate::config::Hold;
use crate::fault::{Fault, Trouble};
use crate::jsonrpc::Id;
use crate::mcp::{Capabilities, Method, Params};
use crate::seal::{Named, RequestState};
use crate::tasks::{Entry, Inside, Phase, Turn};

/// A call that has been understood.
struct Begun<'a> {
    source: Source,
    serving: Serving<'a>,
    /// Of what the agent is called for at once.
    place: Option<Place>,
}

impl Inner {
    /// Carries a call out, whoever's tool it is of.
    pub(super) async fn call(
        &self,
        to: (To<'_>, Duration),
        door: Door<'_>,
        asking: (&Asker, &mut Exchange),
        (id, params): (&Id, &Params<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        let _part = match &asking.1.whose {
            Some(whose) => Some(self.shares.take(whose, Use::Call).map_err(Ok)?),
            None => None,
        };
        if self.closing.is_due() {
            // Refused before anything is said to the agent.
            return Err(Ok(Fault::Ending));
        }
        let busy = |_| Ok(Fault::Busy("too many calls are under way"));
        let _turn = self.calls.clone().try_acquire_owned().map_err(busy)?;
        let catalogue = self.catalogue.load_full();
        let view = self.view(&catalogue, door);
        // One that is switched off is not in the view, and its name is anybody's.
        let own = params.name.as_ref().and_then(|name| view.find(name.as_str())?.own());
        let Some(own) = own else { return self.call_tool(to, asking, (id, params), (view, door)).await };
        self.permit_tool((asking.0, door), None, ((own, own), params.arguments)).map_err(Ok)?;
        match Tool::named(own) {
            Some(tool) => Box::pin(self.call_own(to, door, asking, (id, params, tool))).await,
            None => self.find_agent(to.0, door, asking, (id, params, &catalogue)).await,
        }
    }

    /// Carries a call of an agent's tool out within a budget. The body of its response goes to the client, or comes back for the batch.
    async fn call_tool(
        &self,
        (mut to, budget): (To<'_>, Duration),
        (asker, exchange): (&Asker, &mut Exchange),
        (id, params): (&Id, &Params<'_>),
        through: (&View, Door<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        let in_batch = matches!(to, To::Batch(_));
        let since = Instant::now();
        let begun = match self.begin(asker, exchange, (id, params), through, &mut to).await {
            Ok(begun) => begun,
            Err(Early::Fault(fault)) => return Err(Ok(fault)),
            Err(Early::Gone) => return Err(Err(Gone)),
            Err(Early::Told(result, outcome)) => {
                exchange.outcome = outcome;
                let body = self.writer(asker.version.era()).spoken(id, &result);
                return self.answer_with(to, (asker, exchange), body).await;
            }
        };
        let Begun { source, serving, place: _place } = begun;
        let budget = if in_batch { Some(budget) } else { serving.rung.patience };
        // The client has been waiting while the agent was looked at.
        let budget = budget.map(|budget| budget.saturating_sub(since.elapsed()));
        self.carry_out((to, budget), (source, serving), exchange, params).await.map_err(Err)
    }

    /// How long a client waits, and for what.
    pub(super) fn patience(&self, budget: Option<Duration>) -> Patience<'_> {
        let calls = &self.settings.calls;
        let (stream_after, keep_alive) = (calls.stream_after, calls.keep_alive);
        Patience { budget, stream_after, keep_alive, closing: &self.closing }
    }

    /// Serves a call that has begun, with all that belongs to its client.
    pub(super) async fn carry_out(
        &self,
        (to, budget): (To<'_>, Option<Duration>),
        (source, serving): (Source, Serving<'_>),
        exchange: &mut Exchange,
        params: &Params<'_>,
    ) -> Result<Option<Vec<u8>>, Gone> {
        let asker = serving.asker;
        let earlier = self.earlier_calls(&serving).await;
        let budget = budget.map(|budget| earlier.as_ref().map_or(budget, |calls| calls.budget().min(budget)));
        let serving = Serving { earlier, ..serving };
        let running = asker.session.as_ref().map(|session| self.running.enter(session.key, serving.id));
        let teller = Teller::new(params.meta().progress.clone(), asker.level, &serving.agent.settings.name);
        let patience = self.patience(budget);
        let metrics = serving.agent.metrics.clone();
        let pump = Pump::new(to, asker.takes, teller, patience, &metrics);
        self.serve((pump, source, running), serving, exchange).await
    }

    /// Finds the tool, reads the arguments, and decides what is to be done at the agent.
    async fn begin<'a>(
        &self,
        asker: &'a Asker,
        exchange: &mut Exchange,
        (id, params): (&'a Id, &'a Params<'a>),
        (view, door): (&View, Door<'_>),
        to: &mut To<'_>,
    ) -> Result<Begun<'a>, Early> {
        let name = params
            .name
            .as_ref()
            .ok_or_else(|| Early::Fault(Fault::BadParams("name is missing: the tool to call".into())))?;
        let unknown = || Early::Fault(Fault::NoSuchTool(name.as_str().chars().take(100).collect()));
        let tool = view.find(name.as_str()).and_then(catalogue::Entry::of_agent).ok_or_else(unknown)?;
        let agent = self.directory.find(&tool.agent).cloned().ok_or_else(unknown)?;
        let skill = tool.skill.as_deref().unwrap_or_default();
        let named = ((skill, tool.name.as_str()), params.arguments);
        self.permit_tool((asker, door), Some(&agent), named).map_err(Early::Fault)?;
        let in_batch = matches!(to, To::Batch(_));
        let place = self.shares.call_of(&agent.settings.name, to.left()).await?;
        exchange.tool = Some(tool.name.clone());
        exchange.agent = Some(agent.clone());
        let mut client = Client {
            version: asker.version,
            capabilities: asker.capabilities,
            wants_task: params.task.is_some(),
            round: 0,
            in_batch,
            makes_legs: asker.limits.legs.unwrap_or_else(|| asker.capabilities.can_be_asked()),
        };
        let is_late = params.request_state.is_some();
        let resumed = match params.request_state.as_ref().filter(|_| is_late) {
            None => None,
            Some(state) => Some(self.resume(asker, params, (tool, &agent), state.as_str()).await?),
        };
        client.round = resumed.as_ref().map_or(0, |(_, round)| *round);
        let rung = self.rung(&client, asker.limits, tool)?;
        let serving = Serving {
            rung,
            round: client.round,
            call: (name.as_str(), params.arguments),
            along: params.input_responses.filter(|_| resumed.is_none()),
            ..Serving::plain(asker, id, agent.clone())
        };
        if let Some((source, _)) = resumed {
            return Ok(Begun { source, serving, place });
        }
        if rung.then == Then::CoreTask && !self.tasks.has_room(Instant::now()) {
            // Refused before anything is said to the agent.
            return Err(Early::Fault(Fault::TasksFull));
        }
        let order = self.order(asker, params, tool).map_err(Early::told)?;
        let began_here = matches!(order, Order::Say(_));
        if let Order::Continue(named, _) = &order {
            self.permit_continuing((asker, door), (tool, &agent), named)?;
        }
        let ordered = (order, tool.skill.clone());
        let source = self.source(asker, ordered, &agent).await.map_err(|refusal| match refusal {
            NotFound::Unknown => Early::told(unknown_task()),
            NotFound::Trouble(trouble) => Early::trouble(&trouble, &agent.settings.name),
            NotFound::Unfit(told) => Early::told(told),
        })?;
        let is_task = rung.then == Then::CoreTask;
        let _promise = if is_task { self.place_for(asker, &source).map_err(Early::Fault)? } else { None };
        Ok(Begun { source, serving: Serving { began_here, _promise, ..serving }, place })
    }

    /// Lets a caller say something in a task by this tool, or not: the task may be of another skill.
    fn permit_continuing(
        &self,
        asking: (&Asker, Door<'_>),
        (tool, agent): (&ToolEntry, &Agent),
        named: &Named,
    ) -> Result<(), Early> {
        let skill = self.skill_of(&agent.settings.name, named);
        if skill == tool.skill {
            return Ok(());
        }
        self.permit_words(asking, agent, (Method::ToolsCall, skill.as_deref())).map_err(Early::of_task)
    }

    fn rung(&self, client: &Client, limits: EndpointLimits, tool: &ToolEntry) -> Result<Rung, Early> {
        let calls = &self.settings.calls;
        let times = Thresholds {
            budget: limits.budget(calls.budget),
            task_after: calls.task_after,
            leg: calls.leg,
            legs: u8::try_from(calls.legs).unwrap_or(u8::MAX),
            hold: calls.hold == Hold::Forever,
        };
        rung(client, &times, tool.task).map_err(|unserved| {
            Early::Fault(match unserved {
                Unserved::NeedsExtension => Fault::MissingCapability(Capabilities::TASKS_EXTENSION),
                Unserved::NeedsTask => Fault::TaskNeeded(tool.name.clone()),
                Unserved::NoTask => Fault::NoTaskHere(tool.name.clone()),
            })
        })
    }

    /// Goes on with a call that its client was asked to make again.
    async fn resume(
        &self,
        asker: &Asker,
        params: &Params<'_>,
        (tool, agent): (&ToolEntry, &Arc<Agent>),
        state: &str,
    ) -> Result<(Source, u8), Early> {
        let caller = asker.caller.name();
        let state = RequestState::open(&self.sealer, caller, state)
            .filter(|state| state.is_live(now()) && state.agent == agent.settings.name)
            .filter(|state| state.digest == ladder::digest(&tool.name, params.arguments))
            .ok_or(Early::Fault(Fault::BadState))?;
        let found = self.entry(asker, agent, &state.task).await;
        let (entry, known) = found.map_err(|not_found| match not_found {
            NotFound::Unknown => Early::Fault(Fault::BadState),
            NotFound::Trouble(trouble) => Early::trouble(&trouble, &agent.settings.name),
            NotFound::Unfit(told) => Early::told(told),
        })?;
        self.freshen(&entry, &known).await;
        let mut answered = None;
        if let (Some(responses), Some(turn)) = (params.input_responses, state.turn) {
            // A question that is not open any more has been answered: this is the same answer once more.
            answered = Some(turn);
            entry.adopt_round(Fingerprint::from_bytes(turn));
            let question = last_question(&entry).filter(|question| question.turn.to_bytes() == turn);
            if let Some(question) = &question {
                let offered = self.offered(params, &agent.settings.name);
                let taken = self.take_answers(&entry, &known, (question, offered), Some(responses)).await;
                taken.map_err(Early::Fault)?;
                // Of several things some may still be open.
                let is_over = |inside: &Inside| {
                    inside.is_taken(turn) || inside.refusal(turn).is_some() || inside.failure(turn).is_some()
                };
                answered = answered.filter(|_| entry.look(is_over));
            }
            // Parts of an answer differ from each other; whole ones must not.
            let is_whole = question.as_ref().is_none_or(|question| question.inputs.len() == 1);
            let response = ladder::digest("", Some(responses));
            if answered.is_some() && is_whole && !entry.is_same_response(turn, response) {
                return Err(Early::Fault(answered_already()));
            }
        }
        let mut watched = Watched::new(entry, known, false);
        watched.asked = answered;
        Ok((Source::Watched(Box::new(watched)), state.round))
    }

    fn order(&self, asker: &Asker, params: &Params<'_>, tool: &ToolEntry) -> Result<Order, String> {
        let asked = arguments::read(&tool.input, params.arguments)?;
        order(asked, &self.sender(asker, params, &tool.agent, tool.skill.as_deref()))
    }

    /// Who says something to an agent, and along with what.
    pub(super) fn sender<'a>(
        &'a self,
        asker: &'a Asker,
        params: &'a Params<'_>,
        agent: &'a str,
        skill: Option<&'a str>,
    ) -> Sender<'a> {
        let meta = params.meta();
        Sender {
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent,
            skill,
            trace: Trace {
                parent: meta.traceparent.as_ref().map(|text| text.as_str()),
                state: meta.tracestate.as_ref().map(|text| text.as_str()),
            },
            message_id: rand::random(),
            extensions: self.offered(params, agent),
        }
    }

    /// What is given with this for the extensions of an agent.
    pub(super) fn offered<'a>(&'a self, params: &'a Params<'_>, agent: &str) -> Offered<'a> {
        Offered { given: Some(&params.meta().extensions), active: self.active(agent) }
    }

    /// Where the events of what is ordered come from; a task that begins is of this skill.
    pub(super) async fn source(
        &self,
        asker: &Asker,
        (order, skill): (Order, Option<Arc<str>>),
        agent: &Arc<Agent>,
    ) -> Result<Source, NotFound> {
        match order {
            Order::Say(message) => self.begin_anew(asker, agent, (message, skill)),
            Order::Await(named) => self.wait_for(asker, agent, &named).await,
            Order::Continue(named, message) => self.go_on(asker, agent, &named, (message, skill)).await,
        }
    }

    pub(super) async fn wait_for(
        &self,
        asker: &Asker,
        agent: &Arc<Agent>,
        named: &Named,
    ) -> Result<Source, NotFound> {
        let (entry, known) = self.entry(asker, agent, named).await?;
        self.freshen(&entry, &known).await;
        Ok(Source::Watched(Box::new(Watched::new(entry, known, true))))
    }

    /// Says something in a task; after it, in its conversation, if it is over.
    async fn go_on(
        &self,
        asker: &Asker,
        agent: &Arc<Agent>,
        named: &Named,
        (message, skill): (Message, Option<Arc<str>>),
    ) -> Result<Source, NotFound> {
        let (entry, known) = self.entry(asker, agent, named).await?;
        entry.begin_turn();
        self.freshen(&entry, &known).await;
        let (phase, task, context) = entry
            .look(|inside| (inside.phase(), inside.work.task_id.clone(), inside.work.context_id.clone()));
        let mut message = Message { context_id: context.or(message.context_id), ..message };
        if let Phase::Failed(trouble) = phase {
            return Err(NotFound::Trouble(trouble));
        }
        if phase == Phase::Finished {
            message.reference_task_ids.extend(task);
            return self.begin_anew(asker, agent, (message, skill));
        }
        let Some(task) = task else {
            return Err(NotFound::Trouble(Trouble::Refused(
                "it has not accepted the first message yet; wait for it with taskId alone".into(),
            )));
        };
        message.parts = in_form_of_question(&entry, message.parts).map_err(NotFound::Unfit)?;
        let answers = self.turn_for(&entry, &task, &mut message);
        let mut watched = Watched::new(entry.clone(), known.clone(), false);
        match answers {
            // It has been said; this is its client's second try.
            Words::Again(turn) => watched.asked = Some(turn),
            Words::Answer(turn) => {
                watched.asked = Some(turn.to_bytes());
                watched.said = Some(self.followers.say(&entry, &known, (task, message, Some(turn))));
            }
            Words::Other => return Err(NotFound::Trouble(Trouble::Gateway(ON_ITS_WAY))),
            Words::Free => watched.said = Some(self.followers.say(&entry, &known, (task, message, None))),
        }
        Ok(Source::Watched(Box::new(watched)))
    }

    fn begin_anew(
        &self,
        asker: &Asker,
        agent: &Arc<Agent>,
        (message, skill): (Message, Option<Arc<str>>),
    ) -> Result<Source, NotFound> {
        let known = self.known(asker, agent).map_err(NotFound::Trouble)?;
        let room = self.shares.answer_room(asker.whose.as_ref());
        let permit = room.permit.clone();
        let drive = start(self.client.clone(), known.clone(), (self.terms(), room), Errand::Say(message));
        let mut work = Work::new(self.settings.limits.artifacts);
        work.skill = skill;
        Ok(Source::Own(Box::new(Own::new((drive, permit), work, known))))
    }

    /// What a message is in its task. One that answers the open question is the same however often it is made.
    pub(super) fn turn_for(&self, entry: &Entry, task: &str, message: &mut Message) -> Words {
        let digest = given::digest_of_parts(&message.parts);
        let (open, last, is_repeated) =
            entry.look(|inside| (inside.open_turn(), inside.last_answered(), inside.is_answered_by(digest)));
        let Some(turn) = open else {
            // Until the agent says something new, the same words are the same answer.
            let (is_shown, is_under_way) = entry.look(|inside| {
                let is_under_way = inside.answer_under_way().is_some() || inside.is_in_doubt();
                (inside.work.question_turn().is_some(), is_under_way)
            });
            return match last {
                Some(turn) if is_repeated && is_shown => Words::Again(turn),
                // They would be another answer to the question whose answer the agent does not have yet.
                _ if is_shown && is_under_way => Words::Other,
                _ => Words::Free,
            };
        };
        match entry.take_turn(turn, digest) {
            Turn::Ours => {
                let turn = Fingerprint::from_bytes(turn);
                message.message_id = Some(given::message_id(task, turn, digest));
                self.metrics.tasks.answered();
                Words::Answer(turn)
            }
            Turn::Same => Words::Again(turn),
            Turn::Other => Words::Other,
        }
    }
}

/// What words of a model are in a task.
pub(super) enum Words {
    /// The answer to this question.
    Answer(Fingerprint),
    /// The answer to this question, once more.
    Again([u8; 16]),
    /// Another answer to a question whose answer is on its way: not said.
    Other,
    /// Something else.
    Free,
}

/// Why another answer is not said.
pub(super) const ON_ITS_WAY: &str =
    "an answer to the question of this task is on its way already, and nothing was sent; wait for the task";
