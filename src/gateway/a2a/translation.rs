//! A client and an agent of two versions: what the one asks as the other reads it, and the answer in the client's words.
//!
//! Ids are exchanged on the way: handles for the agent's ids, and the names that clients of 0.1 make for the ids that newer agents
//! make. Not here: what is written how (see `a2a::relay`), which version a client speaks (see `spoken`).

use std::convert::Infallible;
use std::time::Instant;

use serde_json::value::RawValue;

use super::ids::Ids;
use super::names::{LONGEST, Names, Word};
use super::refusal::Stop;
use crate::a2a::relay::{Answer, IdKind, Operation, Refusal, Request, Telling};
use crate::a2a::{Dialect, Task, uuid};
use crate::fault::Fault;

/// What begins the names that the gateway makes for tasks of agents of A2A 0.1, on behalf of clients whose versions have agents make
/// them: so a client that asks for one is known for what it speaks.
const MADE: &str = "made-";

/// Whether a task of an agent of A2A 0.1 was begun by a client of a newer version.
pub(super) fn is_made(task: &str) -> bool {
    task.starts_with(MADE)
}

/// Who speaks what, and what is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Between {
    pub(super) client: Dialect,
    pub(super) agent: Dialect,
    pub(super) operation: Operation,
}

/// The translation of one exchange.
pub(super) struct Translation<'a> {
    between: Between,
    telling: Telling,
    /// Of a client of 0.1.
    own: Option<Own<'a>>,
    is_over: bool,
}

/// A request as the agent reads it.
pub(super) struct Asked {
    pub(super) params: String,
    /// The task that it is about, by the agent's id.
    pub(super) task: Option<String>,
}

/// The names of a client of 0.1.
pub(super) struct Own<'a> {
    names: &'a Names,
    /// The caller and the agent.
    pair: (String, String),
    task: Known,
    context: Known,
}

/// What this exchange knows of a name.
#[derive(Default)]
struct Known {
    client: Option<String>,
    agent: Option<String>,
}

impl<'a> Own<'a> {
    /// Those of this caller, at an agent.
    pub(super) fn new(names: &'a Names, caller: &str, agent: &str) -> Self {
        let pair = (caller.to_owned(), agent.to_owned());
        Self { names, pair, task: Known::default(), context: Known::default() }
    }

    /// Whether the client names a task so.
    pub(super) fn has(&self, task: &str) -> bool {
        self.id_of(task).is_some()
    }

    /// The agent's id of a task that the client names so.
    pub(super) fn id_of(&self, task: &str) -> Option<String> {
        self.find((IdKind::Task, Word::Client, task))
    }

    /// What the client calls what the agent calls so, if it has named it.
    pub(super) fn name_of(&self, kind: IdKind, id: &str) -> Option<String> {
        self.find((kind, Word::Agent, id))
    }

    fn find(&self, word: (IdKind, Word, &str)) -> Option<String> {
        self.names.find((&self.pair.0, &self.pair.1), word, Instant::now())
    }

    /// Puts the agent's ids in the place of the client's names. What is new has none yet.
    fn open(&mut self, request: &mut Request) -> Result<(), Fault> {
        let known = |kind, word: Option<&str>| Known {
            client: word.map(str::to_owned),
            agent: word.and_then(|word| self.find((kind, Word::Client, word))),
        };
        let (task, context) =
            (known(IdKind::Task, request.task_id()), known(IdKind::Context, request.context_id()));
        if [&task, &context]
            .into_iter()
            .any(|known| known.client.as_ref().is_some_and(|name| name.len() > LONGEST))
        {
            return Err(Fault::BadParams(format!("ids of tasks and sessions have at most {LONGEST} bytes")));
        }
        let is_new = task.agent.is_none();
        if is_new && !request.operation().says() {
            return Err(Fault::UnknownTask);
        }
        let is_new_session = context.client.is_some() && context.agent.is_none();
        if (is_new || is_new_session) && !self.names.has_room((&self.pair.0, &self.pair.1)) {
            return Err(Fault::TasksFull);
        }
        request.forget_new(task.agent.is_none(), context.agent.is_none());
        (self.task, self.context) = (task, context);
        let exchanged = request.ids_mut(|kind, id| {
            let known = match kind {
                IdKind::Task => &self.task,
                IdKind::Context => &self.context,
                IdKind::Reference => return Ok::<_, Infallible>(()),
            };
            if let Some(own) = &known.agent {
                id.clone_from(own);
            }
            Ok(())
        });
        exchanged.map_err(|never| match never {})
    }

    /// Notes what the client calls what is known of this exchange.
    fn note(&self, ids: &mut Ids<'_>) {
        for Known { client, agent } in [&self.task, &self.context] {
            if let (Some(client), Some(agent)) = (client, agent) {
                ids.note(agent, client);
            }
        }
    }

    /// What the client calls what the agent calls so; `None`, if it has no name for it.
    fn name(&mut self, kind: IdKind, id: &str, shown: impl FnOnce() -> String) -> Option<String> {
        let known = match kind {
            IdKind::Task => &self.task,
            IdKind::Context => &self.context,
            IdKind::Reference => return None,
        };
        if known.agent.as_deref() == Some(id) && known.client.is_some() {
            return known.client.clone();
        }
        if known.agent.is_some() {
            return None;
        }
        // The first that the agent speaks of.
        let client = known.client.clone().or_else(|| self.name_of(kind, id)).unwrap_or_else(shown);
        self.names.put((&self.pair.0, &self.pair.1), kind, (&client, id), Instant::now());
        let known = Known { client: Some(client.clone()), agent: Some(id.to_owned()) };
        match kind {
            IdKind::Task => self.task = known,
            IdKind::Context => self.context = known,
            IdKind::Reference => {}
        }
        Some(client)
    }
}

impl<'a> Translation<'a> {
    /// Reads what a client asks, and writes it for the agent.
    ///
    /// # Errors
    ///
    /// [`Fault`], if it cannot be read, or is about a task that is none of the caller's.
    pub(super) fn begin(
        between: Between,
        params: Option<&RawValue>,
        tenant: Option<&str>,
        (mut own, mut ids): (Option<Own<'a>>, Option<&mut Ids<'_>>),
    ) -> Result<(Self, Asked), Stop> {
        let Between { client, agent, operation } = between;
        let bad = |why: &str| Fault::BadParams(why.to_owned());
        let mut request = Request::read(client, operation, params).map_err(|why| bad(why.0))?;
        let mut telling = Telling::new(client, &request);
        match (&mut own, &mut ids) {
            (Some(own), ids) => {
                own.open(&mut request)?;
                if let Some(ids) = ids {
                    own.note(ids);
                }
            }
            (None, Some(ids)) => request.ids_mut(|kind, handle| {
                let id = ids.open(kind, handle).ok_or(Fault::UnknownTask)?;
                ids.note(&id, handle);
                *handle = id;
                Ok::<_, Fault>(())
            })?,
            (None, None) => {}
        }
        let is_new = (request.task_id().is_none(), request.context_id().is_none());
        request.complete(agent, || {
            let id = uuid(rand::random());
            if agent.asker_names_tasks() { format!("{MADE}{id}") } else { id }
        });
        // What the gateway has named: the agent's answers may leave it out.
        let made = [
            (IdKind::Task, request.task_id().filter(|_| is_new.0)),
            (IdKind::Context, request.context_id().filter(|_| is_new.1)),
        ];
        for (kind, id) in made.into_iter().filter_map(|(kind, id)| Some((kind, id?))) {
            telling.names(kind, ids.as_mut().map_or_else(|| id.to_owned(), |ids| ids.seal(kind, id)));
        }
        let params = String::from_utf8(request.write(agent, tenant)).unwrap_or_default();
        let asked = Asked { params, task: request.task_id().map(str::to_owned) };
        Ok((Self { between, telling, own, is_over: false }, asked))
    }

    /// The result of a JSON-RPC response of the agent's, for the client.
    ///
    /// # Errors
    ///
    /// The agent's refusal, as the client reads it.
    pub(super) fn result(&mut self, ids: Option<&mut Ids<'_>>, response: &str) -> Result<String, Refusal> {
        let answer = self.read(ids, response)?;
        let told = self.telling.result(answer);
        told.map(text).map_err(|error| Refusal::of(&error, self.between.client))
    }

    /// The results that say the same as one event of the agent's; none, if the client's version has no word for it.
    ///
    /// # Errors
    ///
    /// The agent's refusal, as the client reads it.
    pub(super) fn events(
        &mut self,
        ids: Option<&mut Ids<'_>>,
        response: &str,
    ) -> Result<Vec<String>, Refusal> {
        let answer = self.read(ids, response)?;
        self.is_over = answer.ends();
        Ok(self.telling.events(answer).into_iter().map(text).collect())
    }

    /// The results that tell of a task as an agent of this version gives it.
    pub(super) fn task(&mut self, ids: Option<&mut Ids<'_>>, task: Task, agent: Dialect) -> Vec<String> {
        let mut answer = Answer::of_task(task, agent);
        self.exchange(ids, &mut answer);
        self.telling.events(answer).into_iter().map(text).collect()
    }

    /// Whether the last event was the last one: not every version says so on the wire.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn read(&mut self, ids: Option<&mut Ids<'_>>, response: &str) -> Result<Answer, Refusal> {
        let Between { client, agent, operation } = self.between;
        let mut answer = Answer::read(agent, operation, response.as_bytes())
            .map_err(|error| Refusal::of(&error, client))?;
        self.exchange(ids, &mut answer);
        Ok(answer)
    }

    /// Puts what the client calls things in the place of the agent's ids.
    fn exchange(&mut self, mut ids: Option<&mut Ids<'_>>, answer: &mut Answer) {
        let own = &mut self.own;
        let exchanged = answer.ids_mut(|kind, id| {
            let mut shown = || ids.as_mut().map_or_else(|| id.clone(), |ids| ids.seal(kind, id));
            *id = match own {
                None => shown(),
                Some(own) => own.name(kind, id, &mut shown).unwrap_or_else(shown),
            };
            Ok::<_, Infallible>(())
        });
        match exchanged {
            Ok(()) => {}
            Err(never) => match never {},
        }
        if let (Some(own), Some(ids)) = (&self.own, ids) {
            own.note(ids);
        }
    }
}

/// What is written is text.
fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}
