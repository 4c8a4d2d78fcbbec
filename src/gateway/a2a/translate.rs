//! Translation of one exchange between a client and an agent of two versions.
//!
//! Ids are replaced on the way: the agent's ids by handles, and the ids that clients of 0.1 make by
//! those of newer agents. See also `a2a::translate` (wire formats) and `detect_version`.

use std::convert::Infallible;
use std::time::Instant;

use serde_json::value::RawValue;

use super::client_ids::{ClientIdMap, MAX_CLIENT_ID_BYTES, Side};
use super::error::Stop;
use super::ids::ExchangeIds;
use crate::a2a::translate::{AgentResponse, ClientRequest, IdKind, Operation, ResponseTranslator, RpcError};
use crate::a2a::{Dialect, Task, uuid};
use crate::fault::Fault;

/// Prefix of the task ids that the gateway makes for agents of A2A 0.1, on behalf of clients of
/// versions in which the agent makes them: the id shows the client's version later.
const MADE: &str = "made-";

/// Returns true if a client of a newer version began a task of an agent of A2A 0.1.
pub(super) fn is_made(task: &str) -> bool {
    task.starts_with(MADE)
}

/// Dialects and operation of an exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Direction {
    pub(super) client: Dialect,
    pub(super) agent: Dialect,
    pub(super) operation: Operation,
}

/// Translation state of one exchange.
pub(super) struct ExchangeTranslation<'a> {
    between: Direction,
    telling: ResponseTranslator,
    /// Ids of a client of 0.1.
    own: Option<ClientIds<'a>>,
    is_over: bool,
}

/// Request in the agent's version.
pub(super) struct TranslatedRequest {
    pub(super) params: String,
    /// The task that it is about, by the agent's id.
    pub(super) task: Option<String>,
}

/// Ids that a client of 0.1 made.
pub(super) struct ClientIds<'a> {
    names: &'a ClientIdMap,
    /// The caller and the agent.
    pair: (String, String),
    task: IdPair,
    context: IdPair,
}

/// Both ids of one task or context, as far as this exchange knows them.
#[derive(Default)]
struct IdPair {
    client: Option<String>,
    agent: Option<String>,
}

impl<'a> ClientIds<'a> {
    /// Returns the ids of this caller at an agent.
    pub(super) fn new(names: &'a ClientIdMap, caller: &str, agent: &str) -> Self {
        let pair = (caller.to_owned(), agent.to_owned());
        Self { names, pair, task: IdPair::default(), context: IdPair::default() }
    }

    /// Returns true if the client made an id for this task.
    pub(super) fn has(&self, task: &str) -> bool {
        self.id_of(task).is_some()
    }

    /// Returns the agent's id for a task id of the client.
    pub(super) fn id_of(&self, task: &str) -> Option<String> {
        self.find((IdKind::Task, Side::Client, task))
    }

    /// Returns the client's id for an id of the agent, if there is one.
    pub(super) fn name_of(&self, kind: IdKind, id: &str) -> Option<String> {
        self.find((kind, Side::Agent, id))
    }

    fn find(&self, word: (IdKind, Side, &str)) -> Option<String> {
        self.names.find((&self.pair.0, &self.pair.1), word, Instant::now())
    }

    /// Replaces the client's ids by those of the agent. New ones have no counterpart yet.
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
        if is_new && !request.operation().sends_message() {
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

    /// Records the client's ids of this exchange, for errors.
    fn note(&self, ids: &mut ExchangeIds<'_>) {
        for IdPair { client, agent } in [&self.task, &self.context] {
            if let (Some(client), Some(agent)) = (client, agent) {
                ids.record_shown(agent, client);
            }
        }
    }

    /// Returns the client's id for an id of the agent, and assigns one if it is the first; `None`
    /// if the client has no id for it.
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
        // The first id that the agent sends.
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
    /// Translates the client's request for the agent.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the request is not readable, or is about a task of another caller.
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
        // Ids that the gateway made: the agent's responses may leave them out.
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

    /// Translates the result of an agent's JSON-RPC response for the client.
    ///
    /// # Errors
    ///
    /// The agent's error, in the client's version.
    pub(super) fn result(
        &mut self,
        ids: Option<&mut ExchangeIds<'_>>,
        response: &str,
    ) -> Result<String, RpcError> {
        let answer = self.read(ids, response)?;
        let told = self.telling.result(answer);
        told.map(text).map_err(|error| RpcError::of(&error, self.between.client))
    }

    /// Translates one event of the agent into results for the client; none if the client's version
    /// has no counterpart.
    ///
    /// # Errors
    ///
    /// The agent's error, in the client's version.
    pub(super) fn events(
        &mut self,
        ids: Option<&mut ExchangeIds<'_>>,
        response: &str,
    ) -> Result<Vec<String>, RpcError> {
        let answer = self.read(ids, response)?;
        self.is_over = answer.is_final();
        Ok(self.telling.events(answer).into_iter().map(text).collect())
    }

    /// Returns the results that represent a task of an agent with this dialect.
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

    /// Returns true if the last event ended the stream: not every version marks this on the wire.
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

    /// Replaces the agent's ids by those of the client.
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

/// Encoded JSON is valid UTF-8.
fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}
