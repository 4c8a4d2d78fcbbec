//! Detection of a client's A2A version, and translation of one exchange between a client and an agent
//! of two versions.
//!
//! The version shows in the method and in `A2A-Version`, and if both are ambiguous, in the task id:
//! 0.1 and 0.2/0.3 share three method names (`tasks/get`, `tasks/cancel`, `tasks/resubscribe`), and
//! their clients send no version. In a translation ids are replaced on the way: the agent's ids by
//! handles, and the ids that clients of 0.1 make by those of newer agents. See also `a2a::translate`
//! (method names and wire formats).

use std::convert::Infallible;
use std::time::Instant;

use serde_json::value::RawValue;

use super::error::A2aError;
use super::ids::ExchangeIds;
use super::ids::{AssignedIds, ClientIdMap, IdKey, MAX_CLIENT_ID_BYTES, OwnerKey, Side};
use crate::a2a::translate::{
    AgentResponse, ClientRequest, IdKind, Operation, OperationError, ResponseTranslator, RpcError,
    splice_params,
};
use crate::a2a::{Dialect, Task, uuid};
use crate::fault::{Abort, Fault};

/// Prefix of the task ids that the gateway makes for agents of A2A 0.1, on behalf of clients of
/// versions in which the agent makes them: the id shows the client's version later.
const GENERATED_PREFIX: &str = "made-";

/// Returns true if a client of a newer version began a task of an agent of A2A 0.1.
pub(super) fn is_generated(task: &str) -> bool {
    task.starts_with(GENERATED_PREFIX)
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
    direction: Direction,
    translator: ResponseTranslator,
    /// Ids of a client of 0.1.
    client_ids: Option<ClientIds<'a>>,
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
    map: &'a ClientIdMap,
    owner: OwnerKey,
    task: IdPair,
    context: IdPair,
}

/// Both ids of one task or context, as far as this exchange knows them.
#[derive(Default)]
struct IdPair {
    client: Option<String>,
    agent: Option<String>,
}

/// Ids that replace those of a request, in the order of preference of a client of 0.1.
pub(super) struct RequestIds<'r, 'x, 'a> {
    /// Sealed ids; `None` if ids stay as they are.
    pub(super) sealed: Option<&'r mut ExchangeIds<'x>>,
    /// Ids that a client of 0.1 made; `None` for other clients.
    pub(super) client: Option<ClientIds<'a>>,
}

impl RequestIds<'_, '_, '_> {
    /// Returns the agent's id for a task id of the client.
    pub(super) fn open(&self, task: &str) -> Option<String> {
        match &self.client {
            Some(client) => client.id_of(task),
            None => self.sealed.as_deref()?.open(IdKind::Task, task),
        }
    }
}

impl<'a> ClientIds<'a> {
    /// Returns the ids of this caller at an agent.
    pub(super) fn new(map: &'a ClientIdMap, owner: OwnerKey) -> Self {
        Self { map, owner, task: IdPair::default(), context: IdPair::default() }
    }

    /// Returns true if the client made an id for this task.
    pub(super) fn has(&self, task: &str) -> bool {
        self.id_of(task).is_some()
    }

    /// Returns the agent's id for a task id of the client.
    fn id_of(&self, task: &str) -> Option<String> {
        self.find(IdKind::Task, Side::Client, task)
    }

    /// Returns the client's id for an id of the agent, if there is one.
    pub(super) fn name_of(&self, kind: IdKind, id: &str) -> Option<String> {
        self.find(kind, Side::Agent, id)
    }

    fn find(&self, kind: IdKind, side: Side, id: &str) -> Option<String> {
        self.map.find(&self.owner, IdKey { kind, side, id: id.into() }, Instant::now())
    }

    /// Replaces the client's ids by those of the agent. New ones have no counterpart yet.
    fn open(&mut self, request: &mut ClientRequest) -> Result<(), Fault> {
        let known = |kind, id: Option<&str>| IdPair {
            client: id.map(str::to_owned),
            agent: id.and_then(|id| self.find(kind, Side::Client, id)),
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
        if (is_new || is_new_session) && !self.map.has_room(&self.owner) {
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
    fn record_shown(&self, ids: &mut ExchangeIds<'_>) {
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
        self.map.put(&self.owner, AssignedIds { kind, client: &client, agent: id }, Instant::now());
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
        direction: Direction,
        params: Option<&RawValue>,
        tenant: Option<&str>,
        ids: RequestIds<'_, '_, 'a>,
    ) -> Result<(Self, TranslatedRequest), Abort<A2aError>> {
        let Direction { client, agent, operation } = direction;
        let RequestIds { sealed: mut ids, client: mut client_ids } = ids;
        let bad = |why: &str| Fault::InvalidParams(why.to_owned());
        let mut request = ClientRequest::read(client, operation, params).map_err(|why| bad(why.0))?;
        let mut translator = ResponseTranslator::new(client, &request);
        match (&mut client_ids, &mut ids) {
            (Some(client_ids), ids) => {
                client_ids.open(&mut request)?;
                if let Some(ids) = ids {
                    client_ids.record_shown(ids);
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
            if agent.client_generates_task_ids() { format!("{GENERATED_PREFIX}{id}") } else { id }
        });
        // Ids that the gateway made: the agent's responses may leave them out.
        let generated = [
            (IdKind::Task, request.task_id().filter(|_| is_new.0)),
            (IdKind::Context, request.context_id().filter(|_| is_new.1)),
        ];
        for (kind, id) in generated.into_iter().filter_map(|(kind, id)| Some((kind, id?))) {
            translator.names(kind, ids.as_mut().map_or_else(|| id.to_owned(), |ids| ids.seal(kind, id)));
        }
        let params = String::from_utf8(request.write(agent, tenant)).unwrap_or_default();
        let translated = TranslatedRequest { params, task: request.task_id().map(str::to_owned) };
        Ok((Self { direction, translator, client_ids, is_over: false }, translated))
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
        let result = self.translator.result(answer);
        result.map(text).map_err(|error| RpcError::of(&error, self.direction.client))
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
        Ok(self.translator.events(answer).into_iter().map(text).collect())
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
        self.translator.events(answer).into_iter().map(text).collect()
    }

    /// Returns true if the last event ended the stream: not every version marks this on the wire.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn read(&mut self, ids: Option<&mut ExchangeIds<'_>>, response: &str) -> Result<AgentResponse, RpcError> {
        let Direction { client, agent, operation } = self.direction;
        let mut answer = AgentResponse::read(agent, operation, response.as_bytes())
            .map_err(|error| RpcError::of(&error, client))?;
        self.replace_ids(ids, &mut answer);
        Ok(answer)
    }

    /// Replaces the agent's ids by those of the client.
    fn replace_ids(&mut self, mut ids: Option<&mut ExchangeIds<'_>>, answer: &mut AgentResponse) {
        let client_ids = &mut self.client_ids;
        let exchanged = answer.ids_mut(|kind, id| {
            let mut shown = || ids.as_mut().map_or_else(|| id.clone(), |ids| ids.seal(kind, id));
            *id = match client_ids {
                None => shown(),
                Some(client_ids) => client_ids.name(kind, id, &mut shown).unwrap_or_else(shown),
            };
            Ok::<_, Infallible>(())
        });
        match exchanged {
            Ok(()) => {}
            Err(never) => match never {},
        }
        if let (Some(client_ids), Some(ids)) = (&self.client_ids, ids) {
            client_ids.record_shown(ids);
        }
    }
}

/// Encoded JSON is valid UTF-8.
fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}

/// Parts of a request that show its version.
pub(super) struct VersionHints<'a> {
    pub(super) method: &'a str,
    /// `A2A-Version`.
    pub(super) version: Option<&'a str>,
    pub(super) params: Option<&'a str>,
}

/// Dialect of the agent that the request is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentDialect {
    pub(super) dialect: Dialect,
    /// True if clients of other versions are served.
    pub(super) translates: bool,
}

/// Returns the client's dialect and the operation; `None` for a method of an extension. `is_oldest`
/// returns true if a client of 0.1 made this task id.
///
/// # Errors
///
/// [`A2aError`] if version and method do not match, or the client's version is not served here.
pub(super) fn detect(
    hints: &VersionHints<'_>,
    agent: AgentDialect,
    is_oldest: impl FnOnce(&str) -> bool,
) -> Result<Option<(Dialect, Operation)>, A2aError> {
    let unknown = || A2aError::Fault(Fault::UnknownMethod(hints.method.chars().take(100).collect()));
    let (client, operation) = match Operation::of(hints.method, hints.version) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(OperationError::Method) => return Err(unknown()),
        Err(OperationError::Version) => return Err(A2aError::Version),
    };
    let is_agents_own = operation.name(agent.dialect) == Some(hints.method);
    if !agent.translates {
        return if is_agents_own { Ok(Some((agent.dialect, operation))) } else { Err(unknown()) };
    }
    let has_version = hints.version.is_some_and(|version| !version.trim().is_empty());
    if has_version || !is_ambiguous(client, operation) {
        return Ok(Some((client, operation)));
    }
    let task = hints.params.and_then(|params| task_of(params, client, operation));
    let is_oldest = task.is_some_and(|task| is_oldest(&task));
    Ok(Some((if is_oldest { Dialect::V0_1 } else { Dialect::V0_3 }, operation)))
}

/// Returns the dialect for errors to a client that cannot be served: from its method, its headers,
/// or else that of the agent.
pub(super) fn default_version(method: Option<&str>, version: Option<&str>, agent: Dialect) -> Dialect {
    let is_of = |dialect| {
        let name = |operation: &Operation| operation.name(dialect) == method;
        method.is_some() && Operation::ALL.iter().any(name)
    };
    match version.map(str::trim) {
        _ if is_of(Dialect::V1) => Dialect::V1,
        Some(version) if version.starts_with("1.") => Dialect::V1,
        Some(version) if version.starts_with("0.1") => Dialect::V0_1,
        _ if is_of(Dialect::V0_3) => Dialect::V0_3,
        _ if is_of(Dialect::V0_1) => Dialect::V0_1,
        None | Some("") => agent,
        Some(_) => Dialect::V0_3,
    }
}

fn is_ambiguous(client: Dialect, operation: Operation) -> bool {
    client != Dialect::V1 && operation.name(Dialect::V0_1) == operation.name(Dialect::V0_3)
}

/// Returns the task that params are about.
pub(super) fn task_of(params: &str, dialect: Dialect, operation: Operation) -> Option<String> {
    let mut task = None;
    let walked = splice_params(params, dialect, operation, |kind, id| {
        if kind == IdKind::Task {
            task = Some(id.to_owned());
        }
        Ok::<_, ()>(None)
    });
    // Malformed params are rejected later.
    task.filter(|_| walked.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{V0_1, V0_3, V1};

    fn of(
        method: &str,
        version: Option<&str>,
        dialect: Dialect,
        translates: bool,
    ) -> Result<Option<(Dialect, Operation)>, A2aError> {
        let params = Some(r#"{"id":"mine"}"#);
        let agent = AgentDialect { dialect, translates };
        detect(&VersionHints { method, version, params }, agent, |task| task == "mine")
    }

    #[test]
    fn a_client_is_known_by_its_words() {
        for (method, version, client) in [
            ("message/send", None, V0_3),
            ("tasks/send", None, V0_1),
            ("SendMessage", Some("1.0"), V1),
            ("tasks/get", Some("0.3"), V0_3),
            ("tasks/get", Some("0.1"), V0_1),
            // By the task.
            ("tasks/get", None, V0_1),
            ("tasks/resubscribe", Some(""), V0_1),
        ] {
            for agent in [V0_1, V0_3, V1] {
                let found = of(method, version, agent, true).unwrap().unwrap();
                assert_eq!(found.0, client, "{method} {version:?} {agent:?}");
            }
        }
        let hints = VersionHints { method: "tasks/get", version: None, params: Some(r#"{"id":"other"}"#) };
        let agent = AgentDialect { dialect: V0_1, translates: true };
        assert_eq!(detect(&hints, agent, |task| task == "mine"), Ok(Some((V0_3, Operation::Get))));
    }

    #[test]
    fn where_nothing_is_translated_only_the_agents_own_words_are_taken() {
        for (method, version, agent, is_taken) in [
            ("message/send", None, V0_3, true),
            ("message/send", None, V1, false),
            ("tasks/send", None, V0_3, false),
            ("tasks/get", None, V0_1, true),
            ("tasks/get", None, V0_3, true),
            ("SendMessage", Some("1.0"), V0_3, false),
            ("acme/tune", None, V1, true),
        ] {
            assert_eq!(of(method, version, agent, false).is_ok(), is_taken, "{method} {agent:?}");
        }
        assert_eq!(of("acme/tune", Some("1.0"), V1, true), Ok(None));
        assert_eq!(of("SendMessage", None, V1, true), Err(A2aError::Version));
        assert!(matches!(of("message/send", Some("1.0"), V0_3, true), Err(A2aError::Fault(_))));
    }

    #[test]
    fn an_error_is_written_as_the_client_s_version_has_it() {
        for (method, version, agent, client) in [
            (None, None, V1, V1),
            (None, None, V0_1, V0_1),
            (None, Some("1.0"), V0_3, V1),
            (None, Some("0.3"), V1, V0_3),
            (None, Some("9"), V1, V0_3),
            (Some("SendMessage"), None, V0_3, V1),
            (Some("SendMessage"), Some("99.0"), V0_3, V1),
            (Some("message/send"), None, V1, V0_3),
            (Some("message/send"), Some("1.0"), V0_3, V1),
            (Some("tasks/send"), None, V1, V0_1),
            (Some("acme/tune"), None, V1, V1),
        ] {
            assert_eq!(default_version(method, version, agent), client, "{method:?} {version:?}");
        }
    }
}
