//! One request of an A2A client: whether it may, what goes on to the agent, and how the answer comes back.
//!
//! Not here: reading it (see `asked`, `rest`), what becomes of answers (see `answers`), of their bytes (see `passing`).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use pingora::proxy::Session;
use tokio::sync::OwnedSemaphorePermit;

use super::answers::Answers;
use super::asked::Asked;
use super::asking::Going;
use super::envelope::Binding;
use super::hooks::hooks;
use super::ids::Ids;
use super::listing::{Lister, Whole};
use super::operation::{agent_method, label};
use super::passing::{self, Bounds, Translate as _, while_there};
use super::places::may_lead;
use super::pushing::Pushing;
use super::refusal::{Refusal, Stop};
use super::spelling::Spelling;
use super::translation::Own;
use super::{EXTENSIONS, Visit, write};
use crate::a2a::Dialect;
use crate::a2a::relay::Operation;
use crate::agents::{Asking, Known, Passed, look, pass};
use crate::config::AgentMethod;
use crate::fault::{Fault, Trouble};
use crate::gateway::Inner;
use crate::gateway::answer::gone;
use crate::gateway::exchange::Exchange;
use crate::gateway::queue::Place;
use crate::gateway::shares::{Part, Use};
use crate::quota::AnswerRoom;
use crate::telemetry::label::Method as Label;

/// Most extensions of a request that are looked at; no more are named to an agent.
const MOST_EXTENSIONS: usize = 32;

/// A request for an agent.
pub(super) struct Call<'a> {
    pub(super) visit: &'a Visit<'a>,
    pub(super) known: Arc<Known>,
    pub(super) binding: Binding,
    /// What the client speaks.
    pub(super) client: Dialect,
    /// `None`: a method of an extension.
    pub(super) operation: Option<Operation>,
    pub(super) asked: &'a Asked<'a>,
    /// The body that it came in, if that is JSON-RPC.
    pub(super) body: Option<&'a Bytes>,
    /// What the names in its params say; of a method of an extension they say nothing.
    pub(super) spelling: Spelling,
}

/// What a call uses while it lasts.
struct Room {
    _caller: Option<Part>,
    _all: OwnedSemaphorePermit,
    _agent: Option<Place>,
}

impl Call<'_> {
    /// What the agent speaks.
    pub(super) fn dialect(&self) -> Dialect {
        self.known.interface.dialect
    }

    /// Whether the client is to be told first how a task stands, which the agent does not do: A2A 1.0 begins every stream so.
    fn wants_task_first(&self) -> bool {
        let is_older = self.client == Dialect::V1 && self.dialect() != Dialect::V1;
        is_older && self.operation == Some(Operation::Subscribe)
    }
}

/// Returns whether the answer to an operation is a card, which the gateway writes anew.
fn shows_card(operation: Option<Operation>) -> bool {
    operation == Some(Operation::ExtendedCard)
}

impl Inner {
    /// Puts a request to the agent, and passes its answer on.
    pub(super) async fn call_agent(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        call: Call<'_>,
    ) -> Result<(), Stop> {
        let Call { visit, operation, asked, .. } = call;
        exchange.method = operation.map_or(Label::A2a, label);
        self.permit_call(exchange, &call)?;
        let _room = self.room_for(http, exchange, &call).await?;
        let mut ids = self.ids(exchange, &call);
        let mut pushing = self.webhooks(&call, ids.as_ref())?;
        let names_tasks = call.client == Dialect::V0_1 && call.dialect() != Dialect::V0_1;
        let own = names_tasks.then(|| Own::new(&self.names, exchange.caller.name(), visit.name()));
        let Going { written, task, translation, is_bare, list } =
            call.going(ids.as_mut(), own, pushing.as_mut())?;
        let hooks = places(&call)?;
        if !hooks.is_empty() {
            while_there(http, Box::pin(self.check_hooks(visit.name(), hooks)).as_mut()).await??;
        }
        let method = operation.map_or(AgentMethod::Other, agent_method);
        let known = named_extensions(&call, &http.req_header().headers);
        let mut answers = Answers {
            agent: visit.name(),
            client: call.client,
            is_bare,
            id: &asked.id,
            operation,
            binding: call.binding,
            ids,
            translation,
            pushing,
            first: Vec::new(),
            front: shows_card(operation)
                .then(|| self.front(http, exchange, visit, (&call.known, vec![call.client]))),
        };
        let mut room = self.shares.answer_room(exchange.whose.as_ref());
        let since = Instant::now();
        let broken = match list {
            Some(params) => {
                let ids = self.ids_of(exchange, &call);
                let lister =
                    Lister { client: &self.client, known, call: &call, shows_all: answers.ids.is_none() };
                // Boxed: what few calls do must not make all of them larger.
                let mut listed = Box::pin(lister.list(&params, &ids, &mut room));
                let whole = while_there(http, listed.as_mut()).await?;
                drop(listed);
                answers.is_bare = false;
                match whole {
                    Ok(whole) => tell(http, (whole, &mut room), &mut answers).await,
                    Err(stop) => Err(stop),
                }
            }
            None => {
                let asking = Asking { method, task, written, at: None };
                self.put_to_agent(http, &call, (known, asking, &mut room), &mut answers).await
            }
        };
        exchange.agent_took = Some(since.elapsed());
        if let Some(trouble) = broken? {
            self.note(exchange, &Refusal::Trouble(trouble));
        }
        Ok(())
    }

    /// The webhooks of the caller, if the request is about any and ids are sealed.
    fn webhooks<'a>(
        &'a self,
        call: &Call<'a>,
        ids: Option<&Ids<'_>>,
    ) -> Result<Option<Pushing<'a>>, Refusal> {
        let Some(ids) = ids.filter(|_| call.has_push()) else { return Ok(None) };
        let webhooks = self.pushing(ids.caller(), &call.visit.agent, call.client);
        webhooks.map(Some).ok_or(Refusal::NoPush)
    }

    /// Asks, and passes the answer on. Says what broke it off after it had begun.
    async fn put_to_agent(
        &self,
        http: &mut Session,
        call: &Call<'_>,
        (known, asking, room): (Arc<Known>, Asking, &mut AnswerRoom),
        answers: &mut Answers<'_>,
    ) -> Result<Option<Trouble>, Stop> {
        if let Some(task) = asking.task.as_deref().filter(|_| call.wants_task_first()) {
            let mut looked = Box::pin(look(&self.client, &known, task, room));
            // If it cannot be had, the agent says so in a moment.
            if let Ok(task) = while_there(http, looked.as_mut()).await? {
                answers.begin(task, call.dialect());
            }
        }
        let passed = self.before_the_end(http, pin!(pass(&self.client, known, asking, room))).await??;
        self.hand_on(http, call.visit, (passed, room), answers).await
    }

    /// Waits for something of an agent's for as long as the client is there and the process does not end.
    async fn before_the_end<T>(
        &self,
        http: &mut Session,
        waited_for: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            found = while_there(http, waited_for) => Ok(found?),
            () = self.closing.answers_due() => Err(Fault::Ending.into()),
        }
    }

    /// Passes an answer on. Says what broke it off after it had begun.
    async fn hand_on(
        &self,
        http: &mut Session,
        visit: &Visit<'_>,
        (mut passed, room): (Passed, &mut AnswerRoom),
        answers: &mut Answers<'_>,
    ) -> Result<Option<Trouble>, Stop> {
        let limits = &self.settings.limits;
        let keep_alive = self.settings.calls.keep_alive;
        let closing = &self.closing;
        let bounds = Bounds { response: limits.response, event: limits.event, keep_alive, closing };
        if passed.is_stream() {
            let metrics = &visit.agent.metrics;
            return Ok(passing::stream(http, &mut passed, (bounds, room), answers, metrics).await?);
        }
        let status = passed.status();
        if status.is_success() && status != StatusCode::NO_CONTENT && !answers.change_it() {
            let id = Some(answers.id).filter(|_| answers.binding == Binding::Rpc);
            return passing::value(http, &mut passed, (bounds, id), answers.media_type(status)).await;
        }
        let headers = answers.headers(passed.headers());
        let body = self.before_the_end(http, pin!(passed.whole(room))).await??;
        tell(http, (Whole { status, headers, body }, room), answers).await
    }

    /// Refuses a request that has an agent push to a place that only somebody inside can reach.
    async fn check_hooks(&self, agent: &str, all: Vec<String>) -> Result<(), Refusal> {
        for url in all {
            let uri: Uri = url.parse().map_err(|_| Refusal::BadPush("it is no URL".to_owned()))?;
            let Err(why) = may_lead(&uri, &self.settings.outbound.webhooks).await else { continue };
            tracing::info!(agent, why, "a place to push to is refused");
            let https = if self.settings.outbound.webhooks.http { "" } else { "https " };
            return Err(Refusal::BadPush(format!("it is no {https}address that agents may push to")));
        }
        Ok(())
    }

    /// The ids of the caller; `None` where nobody can prove who it is, so that they are nobody's.
    fn ids<'a>(&'a self, exchange: &Exchange, call: &Call<'a>) -> Option<Ids<'a>> {
        (!self.require.of.is_empty()).then(|| self.ids_of(exchange, call))
    }

    fn ids_of<'a>(&'a self, exchange: &Exchange, call: &Call<'a>) -> Ids<'a> {
        let agent = (call.visit.name(), call.dialect());
        Ids::new(&self.sealer, &self.handed, exchange.caller.clone(), agent)
    }

    /// Lets a caller use an operation, or a method of an extension, or not.
    fn permit_call(&self, exchange: &Exchange, call: &Call<'_>) -> Result<(), Fault> {
        let (visit, method) = (call.visit, call.asked.method.as_str());
        let who = (&exchange.caller, visit.door);
        match call.operation {
            Some(operation) if !operation.says() => self.permit_own(who, (operation.word(), visit.name())),
            Some(operation) => self.permit_whole(who, (operation.word(), visit.name())),
            None if !self.require.of.is_empty() => self.permit_unknown(who, (method, visit.name())),
            None => self.permit_whole(who, (method, visit.name())),
        }
    }

    /// Room for one more call, or one more stream that may never end.
    async fn room_for(&self, http: &mut Session, exchange: &Exchange, call: &Call<'_>) -> Result<Room, Stop> {
        if self.closing.is_due() {
            return Err(Fault::Ending.into());
        }
        let (what, all, busy) = match call.operation {
            Some(Operation::Subscribe) => (Use::Stream, &self.streams, "too many open streams"),
            _ => (Use::Call, &self.calls, "too many calls are under way"),
        };
        let caller = exchange.whose.as_ref().map(|whose| self.shares.take(whose, what)).transpose()?;
        let all = all.clone().try_acquire_owned().map_err(|_| Fault::Busy(busy))?;
        let agent = self.shares.call_of(call.visit.name(), gone(http)).await;
        let agent = agent.map_err(|why| why.map_or_else(Stop::from, Stop::from))?;
        Ok(Room { _caller: caller, _all: all, _agent: agent })
    }
}

/// The places that a request has an agent push to.
fn places(call: &Call<'_>) -> Result<Vec<String>, Refusal> {
    match call.operation.zip(call.asked.params).filter(|_| call.spelling.pushes) {
        Some((operation, params)) if operation.says() || operation == Operation::SetPush => {
            hooks(params.get()).ok_or_else(|| Refusal::BadPush("it cannot be read".to_owned()))
        }
        _ => Ok(Vec::new()),
    }
}

/// The agent, told of the extensions that its client names besides those that the operator does.
fn named_extensions(call: &Call<'_>, headers: &HeaderMap) -> Arc<Known> {
    // As nearly always.
    if !headers.keys().any(|name| EXTENSIONS.contains(name)) {
        return call.known.clone();
    }
    let named = EXTENSIONS.iter().flat_map(|name| headers.get_all(name));
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    let own = &call.visit.agent.settings.extensions;
    let mut all: Vec<String> = own.clone();
    for uri in named.map(str::trim).filter(|uri| !uri.is_empty()).take(MOST_EXTENSIONS) {
        if !all.iter().any(|known| known == uri) {
            all.push(uri.to_owned());
        }
    }
    if all.len() == own.len() { call.known.clone() } else { call.known.clone().naming(&all) }
}

/// Answers with the whole of what an agent said.
async fn tell(
    http: &mut Session,
    (whole, room): (Whole, &mut AnswerRoom),
    answers: &mut Answers<'_>,
) -> Result<Option<Trouble>, Stop> {
    let Whole { status, headers, body } = whole;
    let text = str::from_utf8(&body).map_err(|_| Trouble::Misbehaved("its answer is not UTF-8".into()))?;
    let (status, text) = answers.answer(text, status)?;
    // It is held once while the client reads it.
    drop(body);
    room.permit.set(text.len()).map_err(Trouble::from)?;
    write(http, status, headers, answers.body(status, text)).await?;
    Ok(None)
}
