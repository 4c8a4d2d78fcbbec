//! A call under way: what its client gets, and in which form, when the agent answers, asks, fails or takes too long.
//!
//! Reads mcp.md §3.1. Not here: waiting and telling (see `pump`), how a client is asked (see `ask`), the words (see `bridge`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::Gone;
use super::cancelled_calls::{CancelledCall, EarlierCalls};
use super::exchange::{Exchange, blamed};
use super::pump::{Ending, Pump, WaitFor};
use super::running::Entry as Running;
use super::shares::Promise;
use super::source::{Source, Watched};
use super::tasks::was_cancelled;
use super::{Asker, Inner};
use crate::agents::Agent;
use crate::bridge::earlier::{self, EarlierCall};
use crate::bridge::ladder::{Rung, Then};
use crate::bridge::outcome::{self, Audience, TaskTools};
use crate::bridge::subagent::Tool;
use crate::bridge::work::Standing;
use crate::fault::{Delay, Fault, Trouble};
use crate::follow::Leaving;
use crate::jsonrpc::{Id, write_error};
use crate::mcp::Era;
use crate::mcp::content::Block;
use crate::mcp::tasks::{TaskSnapshot, TaskStatus};
use crate::mcp::tools::CallResult;
use crate::quota::BytePermit;
use crate::telemetry::label::Outcome;
use serde_json::value::{RawValue, to_raw_value};

/// What kind of answer is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// The result of the tool.
    Tool,
    /// The result of a core task of this handle.
    CoreResult(String),
    /// `subagent_start`: as soon as the agent has named the task.
    Start,
    /// `subagent_wait`.
    Wait,
}

/// One call, its client, and how it is served.
pub(super) struct Serving<'a> {
    pub(super) asker: &'a Asker,
    pub(super) id: &'a Id,
    pub(super) agent: Arc<Agent>,
    pub(super) rung: Rung,
    pub(super) form: Form,
    /// How many legs of this call the client has been through.
    pub(super) round: u8,
    /// What the call is told from another by: its tool and arguments. Worked out only for a call that is to be made again.
    pub(super) call: (&'a str, Option<&'a RawValue>),
    /// Answers that came along with the call, before anything was asked.
    pub(super) along: Option<&'a RawValue>,
    /// The elicitation that is open on the stream to the client.
    pub(super) elicitation: Option<super::ask::Elicitation>,
    /// How many questions have been put on the stream.
    pub(super) asked: u8,
    /// What is waited for now.
    pub(super) wait_for: WaitFor,
    /// Whether this call began the work, and nobody holds a handle of it.
    pub(super) began_here: bool,
    /// When the client began to wait.
    pub(super) since: Instant,
    /// Calls of the same tool that the client cancelled: the result names their tasks.
    pub(super) earlier: Option<EarlierCalls>,
    /// The place of the task that it begins, until somebody holds that.
    pub(super) _promise: Option<Promise>,
}

/// What happens next in a call.
pub(super) enum Next {
    /// It goes on.
    Go(Source),
    /// The client gets this; nothing, if it wants no answer any more.
    Say(Option<Vec<u8>>),
    /// The client gets this, and the exchange comes to its end.
    Finish(Source, Vec<u8>),
}

/// Longest wait for the name of a task that a client is to get, beyond its patience.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

impl Inner {
    /// Serves a call to its end, or until its client has what leads back to it. The body of its response goes to the client, or
    /// comes back for the batch.
    pub(super) async fn serve(
        &self,
        (mut pump, mut source, running): (Pump<'_>, Source, Option<Running>),
        mut serving: Serving<'_>,
        exchange: &mut Exchange,
    ) -> Result<Option<Vec<u8>>, Gone> {
        let metrics = serving.agent.metrics.clone();
        if serving.form == Form::Start || serving.rung.then == Then::CoreTask {
            serving.wait_for = WaitFor::Name;
        }
        loop {
            let ending = pump.run(&mut source, running.as_ref(), serving.wait_for).await;
            metrics.events(source.take_heard());
            exchange.agent_took = source.agent_took().or(exchange.agent_took);
            exchange.outcome = outcome(&ending, &source);
            if let Ending::Failed(trouble) = &ending {
                exchange.fault = Some(trouble.word());
            }
            let entry = source.entry();
            let next = self.decide(&mut pump, source, ending, &mut serving).await?;
            if !matches!(next, Next::Go(_)) {
                self.close_elicitation(&mut pump, entry, &mut serving).await?;
            }
            match next {
                Next::Go(next) => source = next,
                Next::Say(body) => {
                    let body = body.map(|body| self.counted(exchange, None, (&serving, body)));
                    return pump.finish(body).await;
                }
                Next::Finish(mut source, body) => {
                    let body = self.counted(exchange, source.take_permit(), (&serving, body));
                    // The work is dropped while a slow client reads the result.
                    let (answered, ()) = tokio::join!(pump.finish(Some(body)), source.wind_down());
                    return answered;
                }
            }
        }
    }

    /// Counts the bytes of an answer while its client reads it, in place of those of the work. Without room for it the answer
    /// becomes an error.
    fn counted(
        &self,
        exchange: &mut Exchange,
        work: Option<BytePermit>,
        (serving, body): (&Serving<'_>, Vec<u8>),
    ) -> Vec<u8> {
        let Err(no_room) = exchange.hold(&self.shares, work, body.len()) else { return body };
        let trouble = Trouble::from(no_room);
        (exchange.outcome, exchange.fault) = (blamed(&trouble), Some(trouble.word()));
        self.written(serving, &CallResult::failure(trouble.told(&serving.agent.settings.name)))
    }

    /// What happens after a wait.
    async fn decide(
        &self,
        pump: &mut Pump<'_>,
        source: Source,
        ending: Ending,
        serving: &mut Serving<'_>,
    ) -> Result<Next, Gone> {
        Ok(match ending {
            Ending::Gone => {
                self.abandon(source, serving, serving.asker.version.era() == Era::Modern);
                return Err(Gone);
            }
            Ending::Cancelled => {
                self.cancel_call(source, serving);
                Next::Say(None)
            }
            Ending::Settled if source.is_cancelled() => {
                Next::Say(Some(self.written(serving, &was_cancelled())))
            }
            Ending::Settled if source.standing() == Standing::Finished && !serving.is_task() => {
                let body = self.written(serving, &self.told(&source, serving));
                Next::Finish(source, body)
            }
            Ending::Failed(trouble) => Next::Say(Some(self.failed(source, serving, &trouble).await)),
            Ending::Settled | Ending::OutOfPatience | Ending::Stalled if serving.is_task() => {
                Next::Say(Some(self.begin_task(source, serving).await))
            }
            Ending::Settled => {
                self.close_elicitation(pump, source.entry(), serving).await?;
                Box::pin(self.put_question(source, serving, pump)).await?
            }
            Ending::OutOfPatience if serving.waits_for_name(&source) => {
                serving.wait_for = WaitFor::Name;
                pump.wait_until(Instant::now() + NAMED_WITHIN.min(self.settings.calls.budget));
                Next::Go(source)
            }
            Ending::OutOfPatience => Next::Say(Some(self.put_off(source, serving, false).await)),
            Ending::Stalled => Next::Say(Some(self.put_off(source, serving, true).await)),
        })
    }

    /// The client cancelled the request. The work of a session lives on for a while: many clients cancel because their own time
    /// is over, and want the result all the same.
    fn cancel_call(&self, source: Source, serving: &Serving<'_>) {
        let is_begun_here = serving.began_here || matches!(source, Source::Own(_));
        let lives_on = is_begun_here && self.cancelled_calls.is_on() && !self.closing.is_due();
        let Some(session) = serving.asker.session.as_ref().filter(|_| lives_on) else {
            return self.abandon(source, serving, true);
        };
        let Some(task) = source.keep_cancelled(&self.followers, &serving.agent.settings.name) else { return };
        let (tool, waited) = (serving.call.0.to_owned(), serving.since.elapsed());
        self.cancelled_calls.insert(CancelledCall { session: session.key, tool, task, waited });
    }

    /// Takes the calls of the same tool that the client of a session cancelled. It gets handles of their tasks.
    pub(super) async fn earlier_calls(&self, serving: &Serving<'_>) -> Option<EarlierCalls> {
        let session = serving.asker.session.as_ref().filter(|_| serving.rung.then != Then::CoreTask)?;
        let mut earlier = self.cancelled_calls.take(session.key, serving.call.0)?;
        let mut warning = None;
        for task in earlier.tasks() {
            warning = self.hand_out(&task.entry, serving.asker).await.or(warning);
        }
        earlier.warning = warning;
        Some(earlier)
    }

    /// Returns the result with the tasks of earlier calls that the client cancelled.
    fn with_earlier(
        &self,
        serving: &Serving<'_>,
        mut result: CallResult,
        calls: &EarlierCalls,
    ) -> CallResult {
        for task in calls.tasks() {
            let audience = self.audience(serving.asker, task.entry.agent());
            let local = task.entry.local();
            let is_own_tool = serving.form != Form::Tool;
            let told = task.entry.show_work(|work| EarlierCall { work, local, is_own_tool }.told(&audience));
            earlier::add(&mut result, &told);
        }
        if let Some(warning) = calls.warning {
            earlier::add(&mut result, warning);
        }
        calls.set_told();
        result
    }

    /// The client is not there any more, or wants no answer.
    fn abandon(&self, source: Source, serving: &Serving<'_>, stops: bool) {
        match source {
            Source::Watched(watched) if stops && serving.began_here => {
                self.followers.cancel(&watched.entry, &watched.known);
            }
            source => {
                let leaving = if stops { Leaving::Stop } else { Leaving::Drain };
                source.leave(&self.followers, &serving.agent.settings.name, leaving);
            }
        }
    }

    /// What is known, as the result that this call wants.
    pub(super) fn told(&self, source: &Source, serving: &Serving<'_>) -> CallResult {
        let agent = &serving.agent.settings.name;
        let audience = self.audience(serving.asker, agent);
        let mut told = match &serving.form {
            Form::Tool | Form::CoreResult(_) => {
                source.tell(|work, local| outcome::result(work, &audience, local))
            }
            Form::Start => source.tell(|work, local| outcome::started(work, &audience, local)),
            Form::Wait => source.tell(|work, local| outcome::snapshot(work, &audience, local)),
        };
        tell_delay(&mut told, source.delay().filter(|_| source.standing() == Standing::Running), agent);
        told
    }

    pub(super) fn audience<'a>(&'a self, asker: &'a Asker, agent: &'a str) -> Audience<'a> {
        let has = |tool| self.settings.mcp.subagent_tools && self.may_use(&asker.caller, agent, tool);
        Audience {
            version: asker.version,
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent,
            task_tools: TaskTools { wait: has(Tool::Wait), send: has(Tool::Send) },
            extensions: self.active(agent),
            links: self.settings.mcp.resource_links,
        }
    }

    /// The extensions of A2A that the operator activated for an agent.
    pub(super) fn active(&self, agent: &str) -> &[String] {
        self.directory.find(agent).map_or(&[], |agent| &agent.settings.extensions)
    }

    /// The result as the response of this call.
    pub(super) fn written(&self, serving: &Serving<'_>, result: &CallResult) -> Vec<u8> {
        let with_earlier =
            serving.earlier.as_ref().map(|calls| self.with_earlier(serving, result.clone(), calls));
        let result = with_earlier.as_ref().unwrap_or(result);
        let writer = self.writer(serving.asker.version.era());
        match &serving.form {
            Form::CoreResult(task) => writer.core_task_result(serving.id, result, task),
            Form::Tool | Form::Start | Form::Wait => writer.spoken(serving.id, result),
        }
    }

    /// The client's patience has ended before the work has.
    /// A client of a task that is stalled is not asked to wait on.
    async fn put_off(&self, source: Source, serving: &Serving<'_>, is_stalled: bool) -> Vec<u8> {
        if let Form::CoreResult(_) = serving.form {
            // Waits for as long as it takes, but for the end of the process: the task goes on.
            let fault = Fault::Ending;
            let code = fault.on_wire(serving.asker.version.era()).code;
            return write_error(Some(serving.id), code, &fault.to_string(), None);
        }
        let named = source.is_named();
        let mut handle = self.told(&source, serving);
        let watched = match source.keep(&self.followers, &serving.agent.settings.name) {
            Ok(watched) => watched,
            // What is named is found again at the agent.
            Err(_) if named => return self.written(serving, &handle),
            Err(trouble) => {
                let text = trouble.told(&serving.agent.settings.name);
                return self.written(serving, &CallResult::failure(text));
            }
        };
        if self.closing.is_due() && !watched.entry.is_named() {
            // A handle of it would end with the process.
            let trouble = Trouble::Gateway("it ends before the agent has named a task; the agent may go on");
            return self.written(serving, &CallResult::failure(trouble.told(&serving.agent.settings.name)));
        }
        let warning = self.hand_out(&watched.entry, serving.asker).await;
        handle.content.extend(warning.map(Block::text));
        match serving.rung.then {
            Then::Task => self.hand_over(&watched, serving, warning).await,
            Then::Leg if !is_stalled => {
                watched.entry.expect(Instant::now() + self.settings.calls.leg_grace);
                self.another_leg(&watched, serving, None)
            }
            Then::CoreTask | Then::Handle | Then::Leg => self.written(serving, &handle),
        }
    }

    /// A call that its client wants as a core task: it gets one, whatever has come meanwhile.
    async fn begin_task(&self, source: Source, serving: &Serving<'_>) -> Vec<u8> {
        match source.keep(&self.followers, &serving.agent.settings.name) {
            Ok(watched) => {
                let warning = self.hand_out(&watched.entry, serving.asker).await;
                self.hand_over(&watched, serving, warning).await
            }
            Err(trouble) => {
                let text = trouble.told(&serving.agent.settings.name);
                self.writer(serving.asker.version.era()).spoken(serving.id, &CallResult::failure(text))
            }
        }
    }

    /// Gives the client the task in the form of its protocol.
    async fn hand_over(
        &self,
        watched: &Watched,
        serving: &Serving<'_>,
        warning: Option<&'static str>,
    ) -> Vec<u8> {
        let handle = self.handle_of(&watched.entry, serving.asker);
        let mut task = self.snapshot(&watched.entry, &handle, serving.asker);
        if let Some(warning) = warning {
            let said = task.status_message.map(|said| format!("{said} ")).unwrap_or_default();
            task.status_message = Some(said + warning);
        }
        let writer = self.writer(serving.asker.version.era());
        watched.entry.expect(Instant::now() + self.settings.calls.leg_grace);
        match serving.asker.version.era() {
            Era::Modern => writer.task_created(serving.id, &task),
            Era::Legacy => {
                if let Some(session) = &serving.asker.session {
                    self.sessions.add_task(session, &handle);
                    self.note_session(session);
                }
                let told =
                    format!("The agent {:?} works on it; the task is {handle}.", serving.agent.settings.name);
                writer.core_task_created(
                    serving.id,
                    &TaskSnapshot { status: TaskStatus::Working, ..task },
                    &told,
                )
            }
        }
    }

    /// What a model is told when an agent failed: what happened, and how to look again if there is a task.
    async fn failed(&self, source: Source, serving: &Serving<'_>, trouble: &Trouble) -> Vec<u8> {
        if serving.is_task() {
            return self.begin_task(source, serving).await;
        }
        let agent = &serving.agent.settings.name;
        let mut told = CallResult::failure(trouble.told(agent));
        if source.is_named() && source.standing() != Standing::Finished && *trouble != Trouble::TaskLost {
            let is_refused = matches!(trouble, Trouble::Refused(_)) && source.standing() == Standing::Asking;
            let handle = if is_refused {
                let audience = self.audience(serving.asker, agent);
                source.tell(|work, local| outcome::refused(work, &audience, local))
            } else {
                let text = "The task may still be running at the agent; its last known state:";
                told.content.push(Block::text(text));
                self.told(&source, serving)
            };
            told.content.extend(handle.content);
            told.structured_content = handle.structured_content;
        }
        self.written(serving, &told)
    }
}

impl<'a> Serving<'a> {
    /// A call that is served in the plainest way.
    pub(super) fn plain(asker: &'a Asker, id: &'a Id, agent: Arc<Agent>) -> Self {
        Self {
            asker,
            id,
            agent,
            rung: Rung { patience: None, then: Then::Handle },
            form: Form::Tool,
            round: 0,
            call: ("", None),
            along: None,
            elicitation: None,
            asked: 0,
            wait_for: WaitFor::Answer,
            began_here: false,
            since: Instant::now(),
            earlier: None,
            _promise: None,
        }
    }

    /// Whether the client gets a core task, whatever comes.
    fn is_task(&self) -> bool {
        self.rung.then == Then::CoreTask && self.form == Form::Tool
    }

    /// A task is handed out by its name; one that the agent has not named yet is waited for a little longer.
    fn waits_for_name(&self, source: &Source) -> bool {
        self.rung.then == Then::Task && self.wait_for == WaitFor::Answer && !source.is_named()
    }
}

/// Says of a live task why it does not go on at present.
pub(super) fn tell_delay(told: &mut CallResult, delay: Option<Delay>, agent: &str) {
    let Some(said) = delay.map(|delay| delay.told(agent)) else { return };
    // Some clients show their model the structured content alone.
    let members = told.structured_content.as_deref().map(RawValue::get);
    let members: Option<BTreeMap<String, Box<RawValue>>> =
        members.and_then(|json| serde_json::from_str(json).ok());
    if let Some(mut members) = members
        && let Some(text) = members.get_mut("text")
        && let Ok(before) = serde_json::from_str::<String>(text.get())
        && let Ok(both) = to_raw_value(&format!("{before}\n{said}"))
    {
        *text = both;
        told.structured_content = to_raw_value(&members).ok();
    }
    told.content.push(Block::text(said));
}

fn outcome(ending: &Ending, source: &Source) -> Outcome {
    match ending {
        Ending::Settled => match source.standing() {
            Standing::Asking => Outcome::InputRequired,
            Standing::Finished | Standing::Running => Outcome::Ok,
        },
        Ending::OutOfPatience | Ending::Stalled => Outcome::Continues,
        Ending::Failed(trouble) => blamed(trouble),
        Ending::Cancelled => Outcome::Cancelled,
        Ending::Gone => Outcome::ClientGone,
    }
}
