//! A client and an agent of two versions: what the one asks as the other reads it, and the answer in the client's words.
//!
//! Ids are exchanged on the way: handles for the agent's ids, and the names that clients of 0.1 make for the ids that newer agents
//! make. Not here: what is written how (see `a2a::relay`), which version a client speaks (see `spoken`).

use std::convert::Infallible;
use std::time::Instant;

use serde_json::value::RawValue;

use super::client_ids::{ClientIdMap, MAX_CLIENT_ID_BYTES, Side};
use super::error::Stop;
use super::ids::ExchangeIds;
use crate::a2a::translate::{AgentResponse, ClientRequest, IdKind, Operation, ResponseTranslator, RpcError};
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
pub(super) struct Direction {
    pub(super) client: Dialect,
    pub(super) agent: Dialect,
    pub(super) operation: Operation,
}

/// The translation of one exchange.
pub(super) struct ExchangeTranslation<'a> {
    between: Direction,
    telling: ResponseTranslator,
    /// Of a client of 0.1.
    own: Option<ClientIds<'a>>,
    is_over: bool,
}

/// A request as the agent reads it.
pub(super) struct TranslatedRequest {
    pub(super) params: String,
    /// The task that it is about, by the agent's id.
    pub(super) task: Option<String>,
}

/// The names of a client of 0.1.
pub(super) struct ClientIds<'a> {
    names: &'a ClientIdMap,
    /// The caller and the agent.
    pair: (String, String),
    task: IdPair,
    context: IdPair,
}

/// What this exchange knows of a name.
#[derive(Default)]
struct IdPair {
    client: Option<String>,
    agent: Option<String>,
}

impl<'a> ClientIds<'a> {
    /// Those of this caller, at an agent.
    pub(super) fn new(names: &'a ClientIdMap, caller: &str, agent: &str) -> Self {
        let pair = (caller.to_owned(), agent.to_owned());
        Self { names, pair, task: IdPair::default(), context: IdPair::default() }
    }

    /// Whether the client names a task so.
    pub(super) fn has(&self, task: &str) -> bool {
        self.id_of(task).is_some()
    }

    /// The agent's id of a task that the client names so.
    pub(super) fn id_of(&self, task: &str) -> Option<String> {
        self.find((IdKind::Task, Side::Client, task))
    }

    /// What the client calls what the agent calls so, if it has named it.
    pub(super) fn name_of(&self, kind: IdKind, id: &str) -> Option<String> {
        self.find((kind, Side::Agent, id))
    }

    fn find(&self, word: (IdKind, Side, &str)) -> Option<String> {
        self.names.find((&self.pair.0, &self.pair.1), word, Instant::now())
    }

    /// Puts the agent's ids in the place of the client's names. What is new has none yet.
    fn open(&mut self, request: &mut ClientRequest) -> Result<(), Fault> {
        let known = |kind, word: Option<&str>| IdPair {
            client: word.map(str::to_owned),
            agent: word.and_then(|word| self.find((kind, Side::Client, word))),
        };
        let (task, context) =
            (known(IdKind::Task, request.task_id()), known(IdKind::Context, request.context_id()));
        if [&task, &context]
            .into_iter()
            .any(|known| known.client.as_ref().is_some_and(|name| name.len() > MAX_CLIENT_ID_BYTES))
        {
            return Err(Fault::InvalidParams(format!(
                "ids of tasks and sessions have at most {MAX_CLIENT_ID_BYTES} bytes"
            )));
        }
        let is_new = task.agent.is_none();
        if is_new && !request.operation().version_of() {
            return Err(Fault::UnknownTask);
        }
        let is_new_session = context.client.is_some() && context.agent.is_none();
        if (is_new || is_new_session) && !self.names.has_room((&self.pair.0, &self.pair.1)) {
            return Err(Fault::TasksFull);
        }
        request.drop_client_ids(task.agent.is_none(), context.agent.is_none());
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
    fn note(&self, ids: &mut ExchangeIds<'_>) {
        for IdPair { client, agent } in [&self.task, &self.context] {
            if let (Some(client), Some(agent)) = (client, agent) {
                ids.record_shown(agent, client);
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
        let known = IdPair { client: Some(client.clone()), agent: Some(id.to_owned()) };
        match kind {
            IdKind::Task => self.task = known,
            IdKind::Context => self.context = known,
            IdKind::Reference => {}
        }
        Some(client)
    }
}

impl<'a> ExchangeTranslation<'a> {
    /// Reads what a client asks, and writes it for the agent.
    ///
    /// # Errors
    ///
    /// [`Fault`], if it cannot be read, or is about a task that is none of the caller's.
    pub(super) fn begin(
        between: Direction,
        params: Option<&RawValue>,
        tenant: Option<&str>,
        (mut own, mut ids): (Option<ClientIds<'a>>, Option<&mut ExchangeIds<'_>>),
    ) -> Result<(Self, TranslatedRequest), Stop> {
        let Direction { client, agent, operation } = between;
        let bad = |why: &str| Fault::InvalidParams(why.to_owned());
        let mut request = ClientRequest::read(client, operation, params).map_err(|why| bad(why.0))?;
        let mut telling = ResponseTranslator::new(client, &request);
        match (&mut own, &mut ids) {
            (Some(own), ids) => {
                own.open(&mut request)?;
                if let Some(ids) = ids {
                    own.note(ids);
                }
            }
            (None, Some(ids)) => request.ids_mut(|kind, handle| {
                let id = ids.open(kind, handle).ok_or(Fault::UnknownTask)?;
                ids.record_shown(&id, handle);
                *handle = id;
                Ok::<_, Fault>(())
            })?,
            (None, None) => {}
        }
        let is_new = (request.task_id().is_none(), request.context_id().is_none());
        request.generate_missing_ids(agent, || {
            let id = uuid(rand::random());
            if agent.client_generates_task_ids() { format!("{MADE}{id}") } else { id }
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
        let asked = TranslatedRequest { params, task: request.task_id().map(str::to_owned) };
        Ok((Self { between, telling, own, is_over: false }, asked))
    }

    /// The result of a JSON-RPC response of the agent's, for the client.
    ///
    /// # Errors
    ///
    /// The agent's refusal, as the client reads it.
    pub(super) fn result(
        &mut self,
        ids: Option<&mut ExchangeIds<'_>>,
        response: &str,
    ) -> Result<String, RpcError> {
        let answer = self.read(ids, response)?;
        let told = self.telling.result(answer);
        told.map(text).map_err(|error| RpcError::of(&error, self.between.client))
    }

    /// The results that say the same as one event of the agent's; none, if the client's version has no word for it.
    ///
    /// # Errors
    ///
    /// The agent's refusal, as the client reads it.
    pub(super) fn events(
        &mut self,
        ids: Option<&mut ExchangeIds<'_>>,
        response: &str,
    ) -> Result<Vec<String>, RpcError> {
        let answer = self.read(ids, response)?;
        self.is_over = answer.is_final();
        Ok(self.telling.events(answer).into_iter().map(text).collect())
    }

    /// The results that tell of a task as an agent of this version gives it.
    pub(super) fn task(
        &mut self,
        ids: Option<&mut ExchangeIds<'_>>,
        task: Task,
        agent: Dialect,
    ) -> Vec<String> {
        let mut answer = AgentResponse::of_task(task, agent);
        self.replace_ids(ids, &mut answer);
        self.telling.events(answer).into_iter().map(text).collect()
    }

    /// Whether the last event was the last one: not every version says so on the wire.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn read(&mut self, ids: Option<&mut ExchangeIds<'_>>, response: &str) -> Result<AgentResponse, RpcError> {
        let Direction { client, agent, operation } = self.between;
        let mut answer = AgentResponse::read(agent, operation, response.as_bytes())
            .map_err(|error| RpcError::of(&error, client))?;
        self.replace_ids(ids, &mut answer);
        Ok(answer)
    }

    /// Puts what the client calls things in the place of the agent's ids.
    fn replace_ids(&mut self, mut ids: Option<&mut ExchangeIds<'_>>, answer: &mut AgentResponse) {
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
