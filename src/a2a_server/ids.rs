//! Ids of tasks and contexts for A2A clients: sealed handles of the caller, the same as those of the
//! MCP server.
//!
//! A handle that does not open for the caller looks like an unknown task. Without authentication ids
//! stay as they are and this module is not used. In A2A 0.1 clients make ids themselves: the agent
//! then gets handles instead, so that two callers can never mean the same task. See also
//! `a2a::translate` for the positions of ids.
//!
//! In the texts of an agent's errors each id that the exchange has named so far, in the request and in
//! the response, is replaced by the handle that the client knows; in every string of the error,
//! including member names. Other text that looks like an id (a UUID) becomes "(an id)".
//!
//! The ids that clients of A2A 0.1 make, and the tasks of each agent that each client has seen, are
//! remembered in this process, bounded, and for a limited time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::list_tasks::PageToken;
use super::translate::ClientIds;
use crate::a2a::translate::{IdKind, Operation, RewriteError, splice_params, splice_result};
use crate::a2a::{Dialect, uuid};
use crate::auth::Caller;
use crate::config::Settings;
use crate::fault::{AgentFailure, Fault};
use crate::jsonrpc::Text;
use crate::seal::{ContextRef, Sealer, TaskRef, TokenPurpose};
use crate::sync::lock;

/// The ids of tasks and contexts of all callers: sealed, shown and made by clients.
pub(super) struct IdRegistry {
    sealer: Sealer,
    shown_tasks: ShownTasks,
    client_ids: ClientIdMap,
}

impl IdRegistry {
    /// Creates a registry without ids.
    pub(super) fn new(settings: &Settings, sealer: Sealer) -> Self {
        let (max, max_of_caller) = (settings.tasks.max, settings.limits.caller_tasks);
        Self::with_limits(sealer, ShownTasksLimits { max, max_of_caller, ttl: settings.tasks.ttl })
    }

    fn with_limits(sealer: Sealer, limits: ShownTasksLimits) -> Self {
        Self { sealer, shown_tasks: ShownTasks::new(limits), client_ids: ClientIdMap::new(limits) }
    }

    /// Returns the sealed ids of a caller at an agent with this dialect, for one exchange.
    pub(super) fn exchange_ids<'a>(
        &'a self,
        caller: Caller,
        agent: &'a str,
        dialect: Dialect,
    ) -> ExchangeIds<'a> {
        ExchangeIds {
            registry: self,
            caller,
            agent,
            dialect,
            task: None,
            context: None,
            requested: None,
            substitutions: IdSubstitutions::default(),
        }
    }

    /// Returns the ids that a client of A2A 0.1 made at an agent.
    pub(super) fn client_ids(&self, caller: &str, agent: &str) -> ClientIds<'_> {
        ClientIds::new(&self.client_ids, OwnerKey::new(caller, agent))
    }

    pub(super) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Removes ids that have not been used for too long.
    pub(super) fn sweep(&self, now: Instant) {
        self.shown_tasks.sweep(now);
        self.client_ids.sweep(now);
    }
}

/// An id of the agent, and the client's name for it.
struct NamedId {
    id: String,
    name: String,
}

/// The ids of one caller at one agent, for one exchange.
pub(super) struct ExchangeIds<'a> {
    registry: &'a IdRegistry,
    caller: Caller,
    agent: &'a str,
    dialect: Dialect,
    /// Last sealed id of each kind, with its handle: the events of a stream repeat the same ids.
    task: Option<NamedId>,
    context: Option<NamedId>,
    /// Task of the request, with the client's handle: a handle from the MCP server may hold more
    /// data.
    requested: Option<NamedId>,
    /// All ids that were named.
    substitutions: IdSubstitutions,
}

/// Params with the agent's ids.
#[derive(Debug)]
pub(super) struct OpenedParams<'p> {
    pub(super) params: Cow<'p, str>,
    /// The task that they are about, by the agent's id.
    pub(super) task: Option<String>,
}

impl ExchangeIds<'_> {
    /// Returns params with the agent's ids instead of handles, and the task that they are about.
    /// For a list in a conversation of another caller the id becomes a random one: the agent's
    /// response is then an empty list.
    ///
    /// # Errors
    ///
    /// [`Fault::UnknownTask`] for any other handle that does not open for this caller.
    pub(super) fn open_task_id<'p>(
        &mut self,
        params: &'p str,
        operation: Operation,
    ) -> Result<OpenedParams<'p>, Fault> {
        let (mut task, mut requested, mut named) = (None, None, Vec::new());
        let spliced = splice_params(params, self.dialect, operation, |kind, handle| {
            let own = || (self.dialect == Dialect::V0_1).then(|| self.handle(kind, handle));
            let unused = || (operation == Operation::List).then(|| uuid(rand::random()));
            let id = self.open(kind, handle).or_else(own).or_else(unused).ok_or(())?;
            named.push(NamedId { id: id.clone(), name: handle.to_owned() });
            if kind == IdKind::Task {
                let name = handle.to_owned();
                (task, requested) = (Some(id.clone()), Some(NamedId { id: id.clone(), name }));
            }
            Ok(Some(id))
        });
        self.requested = requested;
        named.iter().for_each(|NamedId { id, name }| self.substitutions.record(id, name));
        match spliced {
            Ok(params) => Ok(OpenedParams { params, task }),
            Err(RewriteError::Refused(())) => Err(Fault::UnknownTask),
            Err(RewriteError::NotText(_)) => Err(Fault::InvalidParams("an id must be a string".into())),
            Err(RewriteError::NotJson) => Err(Fault::InvalidParams("params are nested too deeply".into())),
        }
    }

    /// Returns a result with handles instead of the agent's ids.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::ProtocolViolation`] if the result is not readable: an id might be in it.
    pub(super) fn seal_task_id<'r>(
        &mut self,
        result: &'r str,
        operation: Operation,
    ) -> Result<Cow<'r, str>, AgentFailure> {
        let spliced =
            splice_result(result, self.dialect, operation, |kind, id| Ok::<_, ()>(Some(self.seal(kind, id))));
        spliced.map_err(|_| AgentFailure::ProtocolViolation("its answer cannot be read".into()))
    }

    /// Returns an error with handles instead of the ids that this exchange has named, and without
    /// other ids.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::ProtocolViolation`] if the error cannot be searched: an id might be in it.
    pub(super) fn redact(&self, error: &str) -> Result<String, AgentFailure> {
        self.substitutions
            .redact(error)
            .ok_or_else(|| AgentFailure::ProtocolViolation("its error cannot be read".into()))
    }

    /// Returns true if the caller is anonymous.
    pub(super) fn is_anonymous(&self) -> bool {
        self.caller.is_anonymous()
    }

    /// Returns the name of the caller.
    pub(super) fn caller(&self) -> &str {
        self.caller.name()
    }

    /// Seals the position in a list for the caller.
    pub(super) fn seal_page_token(&self, page: &PageToken) -> String {
        let PageToken { at, token, before, total } = page;
        let total = total.map(|total| total.to_string()).unwrap_or_default();
        let payload = format!("{}{at}\0{before}\0{total}\0{token}", self.page_prefix());
        self.registry.sealer.seal(TokenPurpose::Cursor, self.caller.name(), payload.as_bytes())
    }

    /// Opens the position in a list from the caller's token.
    pub(super) fn open_page_token(&self, handle: &str) -> Option<PageToken> {
        let payload = self.registry.sealer.open(TokenPurpose::Cursor, self.caller.name(), handle)?;
        let payload = String::from_utf8(payload.to_vec()).ok()?;
        let mut parts = payload.strip_prefix(&self.page_prefix())?.splitn(4, '\0');
        let (at, before) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let total = parts.next()?.parse().ok();
        Some(PageToken { at, before, total, token: parts.next()?.to_owned() })
    }

    /// Returns true if a task was shown to the caller. Anonymous callers share no tasks.
    pub(super) fn has(&self, task: &str) -> bool {
        !self.caller.is_anonymous() && self.registry.shown_tasks.was_shown(self.owner(), task, Instant::now())
    }

    /// Returns the number of the agent's tasks that were shown to the caller.
    pub(super) fn count(&self) -> usize {
        if self.caller.is_anonymous() { 0 } else { self.registry.shown_tasks.count(self.owner()) }
    }

    fn owner(&self) -> CallerAgent<'_> {
        CallerAgent { caller: self.caller.name(), agent: self.agent }
    }

    fn page_prefix(&self) -> String {
        format!("a2a\0{}\0", self.agent)
    }

    /// Records the caller's name for an id of the agent, where that is not a handle.
    pub(super) fn record_shown(&mut self, id: &str, name: &str) {
        self.substitutions.record(id, name);
    }

    /// Opens a handle of the caller.
    pub(super) fn open(&self, kind: IdKind, handle: &str) -> Option<String> {
        let (agent, id) = match kind {
            IdKind::Task | IdKind::Reference => {
                let TaskRef { agent, task, .. } =
                    TaskRef::open(&self.registry.sealer, self.caller.name(), handle)?;
                (agent, task.into_string())
            }
            IdKind::Context => {
                let ContextRef { agent, context } =
                    ContextRef::open(&self.registry.sealer, self.caller.name(), handle)?;
                (agent, context)
            }
        };
        (agent == self.agent).then_some(id)
    }

    /// Returns the id of the agent that was sealed last.
    pub(super) fn last_sealed(&self, kind: IdKind) -> Option<&str> {
        let last = match kind {
            IdKind::Task => &self.task,
            IdKind::Context => &self.context,
            IdKind::Reference => return None,
        };
        last.as_ref().map(|last| last.id.as_str())
    }

    fn handle(&self, kind: IdKind, id: &str) -> String {
        let (agent, caller) = (self.agent.to_owned(), self.caller.name());
        match kind {
            IdKind::Task | IdKind::Reference => TaskRef { agent, task: id.into(), skill: None }
                .seal(&self.registry.sealer, caller)
                .into_string(),
            IdKind::Context => {
                ContextRef { agent, context: id.into() }.seal(&self.registry.sealer, caller).into_string()
            }
        }
    }

    /// Returns the handle for an id of the agent, and records it as shown to the caller.
    pub(super) fn seal(&mut self, kind: IdKind, id: &str) -> String {
        let last = match kind {
            IdKind::Task => &self.task,
            IdKind::Context => &self.context,
            IdKind::Reference => &None,
        };
        if let Some(last) = last.as_ref().filter(|last| last.id == id) {
            return last.name.clone();
        }
        // If the agent got a handle instead of the client's own id, the client gets its own id
        // again.
        let own = if self.dialect == Dialect::V0_1 { self.open(kind, id) } else { None };
        let requested = self.requested.as_ref().filter(|named| kind == IdKind::Task && named.id == id);
        let own = own.or_else(|| requested.map(|named| named.name.clone()));
        let handle = own.unwrap_or_else(|| self.handle(kind, id));
        self.substitutions.record(id, &handle);
        let last = Some(NamedId { id: id.to_owned(), name: handle.clone() });
        match kind {
            IdKind::Task => {
                // Only A2A 1.0 lists tasks.
                if self.dialect == Dialect::V1 && !self.caller.is_anonymous() {
                    self.registry.shown_tasks.record(self.owner(), id, Instant::now());
                }
                self.task = last;
            }
            IdKind::Context => self.context = last,
            IdKind::Reference => {}
        }
        handle
    }
}

/// Most ids of one exchange that are replaced; an error of an exchange with more is not forwarded.
const MAX_SUBSTITUTIONS: usize = 256;

/// Longest error that is searched, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Ids from this length on are replaced at any position; a shorter one could be part of a word, and
/// is replaced only as a whole word.
const MIN_UNIQUE_BYTES: usize = 8;

/// Replacement for an id without a handle.
const REDACTED_ID: &str = "(an id)";

/// Ids that an exchange has named.
#[derive(Debug, Default)]
struct IdSubstitutions {
    /// The agent's id, and the client's name for it.
    known: Vec<(String, String)>,
    is_full: bool,
}

impl IdSubstitutions {
    /// Records an id of the agent, and the client's name for it.
    pub(super) fn record(&mut self, id: &str, handle: &str) {
        if self.known.iter().any(|(known, _)| known == id) {
            return;
        }
        if self.known.len() < MAX_SUBSTITUTIONS {
            self.known.push((id.to_owned(), handle.to_owned()));
        } else {
            self.is_full = true;
        }
    }

    /// Returns an error with all ids replaced; `None` if the ids in it cannot be determined.
    pub(super) fn redact(&self, error: &str) -> Option<String> {
        if self.is_full || error.len() > MAX_ERROR_BYTES {
            return None;
        }
        let mut out = String::with_capacity(error.len());
        let mut rest = error;
        while let Some(at) = rest.find('"') {
            let (before, from) = rest.split_at(at);
            let (string, after) = from.split_at_checked(length_of(from)?)?;
            let Text(text) = serde_json::from_str::<Text<'_>>(string).ok()?;
            out.push_str(before);
            match self.replaced(&text) {
                None => out.push_str(string),
                Some(new) => out.push_str(&serde_json::to_string(&new).ok()?),
            }
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }

    /// Returns a text with the ids replaced; `None` if it stays the same.
    fn replaced(&self, text: &str) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut before, mut is_same) = (text, None, true);
        while let Some(next) = rest.chars().next() {
            let found = self.at(rest, before);
            let length = found.map_or(next.len_utf8(), |(length, _)| length);
            let (piece, after) = rest.split_at_checked(length)?;
            out.push_str(found.map_or(piece, |(_, name)| name));
            is_same &= found.is_none();
            (rest, before) = (after, piece.chars().next_back());
        }
        (!is_same).then_some(out)
    }

    /// Returns the length of the id that a text begins with, and its replacement.
    fn at(&self, text: &str, before: Option<char>) -> Option<(usize, &str)> {
        let is_one = |(id, _): &&(String, String)| {
            let Some(after) = text.strip_prefix(id.as_str()) else { return false };
            !id.is_empty()
                && (id.len() >= MIN_UNIQUE_BYTES || !(is_id_char(before) || is_id_char(after.chars().next())))
        };
        let longest = self.known.iter().filter(is_one).max_by_key(|(id, _)| id.len());
        let known = longest.map(|(id, handle)| (id.len(), handle.as_str()));
        known.or_else(|| uuid_at(text, before).map(|length| (length, REDACTED_ID)))
    }
}

/// Returns true if a character next to a word is part of that word.
fn is_id_char(beside: Option<char>) -> bool {
    beside.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_')
}

/// Returns the length of the UUID that a text begins with, in either of its forms.
fn uuid_at(text: &str, before: Option<char>) -> Option<usize> {
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit();
    let long = text.as_bytes().get(..36).filter(|uuid| {
        uuid.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => is_hex(byte),
        })
    });
    if long.is_some() {
        return Some(36);
    }
    let is_alone =
        !before.is_some_and(|c| c.is_ascii_hexdigit()) && !text.as_bytes().get(32).is_some_and(is_hex);
    let plain = text.as_bytes().get(..32).filter(|uuid| is_alone && uuid.iter().all(is_hex));
    plain.map(|_| 32)
}

/// Returns the length of the JSON string that a text begins with, including quotes.
fn length_of(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Names of a caller and an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OwnerKey {
    caller: Arc<str>,
    agent: Arc<str>,
}

impl OwnerKey {
    pub(super) fn new(caller: &str, agent: &str) -> Self {
        Self { caller: caller.into(), agent: agent.into() }
    }
}

/// An id of a client or of an agent.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct IdKey {
    pub(super) kind: IdKind,
    /// The party that made the id.
    pub(super) side: Side,
    pub(super) id: Box<str>,
}

/// The ids of one object, one of each party.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssignedIds<'a> {
    pub(super) kind: IdKind,
    pub(super) client: &'a str,
    pub(super) agent: &'a str,
}

/// Table entries of one task: its own id and that of its conversation, in both directions.
const ENTRIES_PER_TASK: usize = 4;

/// Longest id that a client may make, in bytes.
pub(super) const MAX_CLIENT_ID_BYTES: usize = 512;

/// Party that made an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// The client.
    Client,
    /// The agent.
    Agent,
}

/// Client ids and agent ids of all callers.
pub(super) struct ClientIdMap {
    all: Mutex<ClientIdTables>,
    limits: ShownTasksLimits,
}

/// Ids of one caller at one agent.
type IdTable = HashMap<IdKey, Counterpart>;

#[derive(Default)]
struct ClientIdTables {
    of: HashMap<OwnerKey, IdTable>,
    count: usize,
}

/// Id of the other party for the same object.
struct Counterpart {
    id: Box<str>,
    until: Instant,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Agent,
            Self::Agent => Self::Client,
        }
    }
}

impl ClientIdMap {
    /// Creates an empty map.
    pub(super) fn new(limits: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), limits }
    }

    /// Returns true if there is room for one more task.
    pub(super) fn has_room(&self, owner: &OwnerKey) -> bool {
        let ShownTasksLimits { max, max_of_caller, .. } = self.limits;
        let all = self.all();
        let own = all.of.get(owner).map_or(0, HashMap::len);
        let room = |max: usize, used: usize| {
            used.saturating_add(ENTRIES_PER_TASK) <= max.saturating_mul(ENTRIES_PER_TASK)
        };
        room(max, all.count) && (max_of_caller == 0 || room(max_of_caller, own))
    }

    /// Returns the other party's id for an id of this party.
    pub(super) fn find(&self, owner: &OwnerKey, key: IdKey, now: Instant) -> Option<String> {
        let until = now + self.limits.ttl;
        let mut all = self.all();
        let own = all.of.get_mut(owner)?;
        let other = own.get_mut(&key).filter(|other| other.until > now)?;
        other.until = until;
        let found = other.id.to_string();
        // Both directions get the same expiry.
        let back = IdKey { kind: key.kind, side: key.side.other(), id: found.as_str().into() };
        if let Some(other) = own.get_mut(&back) {
            other.until = until;
        }
        Some(found)
    }

    /// Records the client's id and the agent's id of an object. Beyond a limit nothing is recorded;
    /// a new task is checked by [`ClientIdMap::has_room`] before.
    pub(super) fn put(&self, owner: &OwnerKey, ids: AssignedIds<'_>, now: Instant) {
        let AssignedIds { kind, client, agent } = ids;
        if client.len() > MAX_CLIENT_ID_BYTES || agent.len() > MAX_CLIENT_ID_BYTES {
            return;
        }
        let ShownTasksLimits { max, max_of_caller, ttl } = self.limits;
        let until = now + ttl;
        let mut all = self.all();
        let ClientIdTables { of, count } = &mut *all;
        let held = of.get(owner);
        let key = |side, id: &str| IdKey { kind, side, id: id.into() };
        let is_known = held.is_some_and(|own| own.contains_key(&key(Side::Client, client)));
        let is_full = |max: usize, held: usize| held >= max.saturating_mul(ENTRIES_PER_TASK);
        let has_no_room = is_full(max, *count)
            || (max_of_caller > 0 && is_full(max_of_caller, held.map_or(0, HashMap::len)));
        if !is_known && has_no_room {
            return;
        }
        let own = of.entry(owner.clone()).or_default();
        for (side, id, other) in [(Side::Client, client, agent), (Side::Agent, agent, client)] {
            let is_new = own.insert(key(side, id), Counterpart { id: other.into(), until }).is_none();
            *count += usize::from(is_new);
        }
    }

    /// Removes ids that have not been used for too long.
    pub(super) fn sweep(&self, now: Instant) {
        let mut all = self.all();
        all.of.retain(|_, own| {
            own.retain(|_, other| other.until > now);
            !own.is_empty()
        });
        all.count = all.of.values().map(HashMap::len).sum();
    }

    fn all(&self) -> MutexGuard<'_, ClientIdTables> {
        lock(&self.all)
    }
}

/// Names of a caller and an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerAgent<'a> {
    pub(super) caller: &'a str,
    pub(super) agent: &'a str,
}

impl From<CallerAgent<'_>> for OwnerKey {
    fn from(owner: CallerAgent<'_>) -> Self {
        Self::new(owner.caller, owner.agent)
    }
}

/// Record of shown tasks.
pub(super) struct ShownTasks {
    all: Mutex<Shards>,
    limits: ShownTasksLimits,
}

/// Limits of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownTasksLimits {
    /// Tasks in total.
    pub(super) max: usize,
    /// Tasks of one caller at one agent; 0 for the total limit.
    pub(super) max_of_caller: usize,
    /// Lifetime after a task was last shown.
    pub(super) ttl: Duration,
}

/// Longest id that is recorded, in bytes. Those of agents are mostly UUIDs.
const MAX_ID_BYTES: usize = 512;

#[derive(Default)]
struct Shards {
    tasks: HashMap<OwnerKey, HashMap<Box<str>, Instant>>,
    count: usize,
}

impl ShownTasks {
    /// Creates an empty record.
    pub(super) fn new(limits: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), limits }
    }

    /// Records that a task is shown. Beyond a limit it is not recorded.
    pub(super) fn record(&self, owner: CallerAgent<'_>, task: &str, now: Instant) {
        let ShownTasksLimits { max, max_of_caller, ttl } = self.limits;
        let until = now + ttl;
        let owner = OwnerKey::from(owner);
        let mut all = self.all();
        let Shards { tasks, count } = &mut *all;
        if let Some(known) = tasks.get_mut(&owner).and_then(|own| own.get_mut(task)) {
            *known = until;
            return;
        }
        let own = tasks.get(&owner).map_or(0, HashMap::len);
        if task.len() <= MAX_ID_BYTES && *count < max && (max_of_caller == 0 || own < max_of_caller) {
            *count += 1;
            tasks.entry(owner).or_default().insert(task.into(), until);
        }
    }

    /// Returns the number of tasks that were shown.
    pub(super) fn count(&self, owner: CallerAgent<'_>) -> usize {
        self.all().tasks.get(&OwnerKey::from(owner)).map_or(0, HashMap::len)
    }

    /// Returns true if a task was shown.
    pub(super) fn was_shown(&self, owner: CallerAgent<'_>, task: &str, now: Instant) -> bool {
        let all = self.all();
        let own = all.tasks.get(&OwnerKey::from(owner));
        own.and_then(|own| own.get(task)).is_some_and(|until| *until > now)
    }

    /// Removes tasks that were shown too long ago.
    pub(super) fn sweep(&self, now: Instant) {
        let mut all = self.all();
        all.tasks.retain(|_, own| {
            own.retain(|_, until| *until > now);
            !own.is_empty()
        });
        all.count = all.tasks.values().map(HashMap::len).sum();
    }

    fn all(&self) -> MutexGuard<'_, Shards> {
        lock(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use proptest::prelude::*;

    const REQUESTED: Operation = Operation::Get;

    fn registry() -> IdRegistry {
        let limits = ShownTasksLimits { max: 9, max_of_caller: 0, ttl: Duration::from_secs(9) };
        IdRegistry::with_limits(Sealer::new([b"secret".as_slice()]).unwrap(), limits)
    }

    fn caller(name: &str) -> Caller {
        Caller::hypothetical(name, Vec::new(), Vec::new())
    }

    fn handle(ids: &mut ExchangeIds<'_>, task: &str) -> String {
        let result = format!(r#"{{"id":"{task}"}}"#);
        let sealed = ids.seal_task_id(&result, Operation::Get).unwrap();
        sealed.split('"').nth(3).unwrap().to_owned()
    }

    #[test]
    fn handle_belongs_to_caller_and_agent() {
        let registry = registry();
        let of = |name: &str, agent| registry.exchange_ids(caller(name), agent, Dialect::V1);
        let mut ann = of("key:ann", "bard");
        let handle = handle(&mut ann, "t-1");
        let params = format!(r#"{{ "id":"{handle}" }}"#);
        let OpenedParams { params: opened, task } = ann.open_task_id(&params, REQUESTED).unwrap();
        assert_eq!((&*opened, task.as_deref()), (r#"{ "id":"t-1" }"#, Some("t-1")));
        for mut other in [of("key:ben", "bard"), of("key:ann", "bank"), of("anonymous", "bard")] {
            assert_eq!(other.open_task_id(&params, REQUESTED).unwrap_err(), Fault::UnknownTask);
        }
        for raw in ["t-1", "", "x"].iter().filter(|raw| !raw.is_empty()) {
            let params = format!(r#"{{"id":"{raw}"}}"#);
            assert_eq!(ann.open_task_id(&params, REQUESTED).unwrap_err(), Fault::UnknownTask, "{raw}");
        }
        assert!(ann.has("t-1") && !ann.has("t-2") && !of("key:ben", "bard").has("t-1"));
    }

    #[test]
    fn an_id_that_a_client_made_is_another_one_for_each_caller_and_its_own_again() {
        let registry = registry();
        let of = |name: &str| registry.exchange_ids(caller(name), "bard", Dialect::V0_1);
        let params = r#"{"id":"mine","sessionId":"s","message":{}}"#;
        let (mut ann, mut ben) = (of("key:ann"), of("key:ben"));
        let opened = ann.open_task_id(params, Operation::Send).unwrap().params.into_owned();
        assert!(
            !opened.contains("mine") && opened != ben.open_task_id(params, Operation::Send).unwrap().params
        );
        assert_eq!(ann.seal_task_id(&opened, Operation::Send).unwrap(), params);
        assert!(!ben.seal_task_id(&opened, Operation::Send).unwrap().contains("mine"));
        assert_eq!(
            ann.open_task_id(params, Operation::Send).unwrap().params,
            opened,
            "the same id is the same task"
        );
    }

    #[test]
    fn a_page_is_its_caller_s() {
        let registry = registry();
        let of = |name: &str, agent| registry.exchange_ids(caller(name), agent, Dialect::V1);
        for total in [None, Some(9)] {
            let place = PageToken { at: 1, token: "p\0 2".into(), before: 7, total };
            let page = of("key:ann", "bard").seal_page_token(&place);
            assert_eq!(of("key:ann", "bard").open_page_token(&page), Some(place));
            assert_eq!(of("key:ben", "bard").open_page_token(&page), None);
            assert_eq!(of("key:ann", "bank").open_page_token(&page), None);
        }
        assert_eq!(of("key:ann", "bard").open_page_token("p 2"), None);
    }

    const UUID: &str = "011534fb-ab96-4c5d-8e6f-0123456789ab";

    fn names(known: &[(&str, &str)]) -> IdSubstitutions {
        let mut names = IdSubstitutions::default();
        known.iter().for_each(|(id, handle)| names.record(id, handle));
        names
    }

    #[test]
    fn ids_are_replaced_in_every_string_and_nothing_else_changes() {
        let names = names(&[("task-1234", "H1"), ("task-12345", "H2"), ("t", "H3"), ("ü\"id\"", "H4")]);
        for (error, told) in [
            (
                r#"{ "code" : -32001, "message":"Task not found" }"#,
                r#"{ "code" : -32001, "message":"Task not found" }"#,
            ),
            (r#"{"message":"task-1234, task-12345!"}"#, r#"{"message":"H1, H2!"}"#),
            (
                r#"{"data":[{"task-1234":{"x":["xtask-1234x",1.0]}}]}"#,
                r#"{"data":[{"H1":{"x":["xH1x",1.0]}}]}"#,
            ),
            (r#"{"message":"t is not t-1 but 't'"}"#, r#"{"message":"H3 is not t-1 but 'H3'"}"#),
            (r#"{"message":"\u0074ask-\u0031234 \u00fc\"id\""}"#, r#"{"message":"H1 H4"}"#),
        ] {
            assert_eq!(names.redact(error).as_deref(), Some(told), "{error}");
        }
    }

    #[test]
    fn lookalike_ids_count_as_ids() {
        let names = names(&[(UUID, "H")]);
        let other = UUID.replace("0115", "0116");
        for (error, told) in [
            (format!("\"{UUID} and {other}\""), "\"H and (an id)\""),
            (format!("\"x{}\"", other.to_uppercase()), "\"x(an id)\""),
            (format!("\"{}.\"", other.replace('-', "")), "\"(an id).\""),
        ] {
            assert_eq!(names.redact(&error).as_deref(), Some(told), "{error}");
        }
        let digest = format!("\"{}\"", "ab".repeat(32));
        assert_eq!(names.redact(&digest), Some(digest), "a digest is none");
    }

    #[test]
    fn unreadable_data_is_not_forwarded() {
        let long = format!("\"{}\"", "x".repeat(MAX_ERROR_BYTES));
        for error in [r#""\ud800""#, r#""no end"#, &long] {
            assert_eq!(IdSubstitutions::default().redact(error), None, "{error:.20}");
        }
        let mut names = IdSubstitutions::default();
        (0..=MAX_SUBSTITUTIONS).for_each(|at| names.record(&format!("task-{at}"), "H"));
        assert_eq!(names.redact("{}"), None, "too many to know");
    }

    proptest! {
        #[test]
        fn a_known_id_is_never_told(id in "[a-zé-]{8,12}", around in prop::collection::vec("[a-zé \"\\\\-]{0,9}", 2..5)) {
            let error = serde_json::to_string(&[around.join(&id)]).unwrap();
            let told = names(&[(&id, "#")]).redact(&error).unwrap();
            let [text] = serde_json::from_str::<[String; 1]>(&told).unwrap();
            prop_assert!(!text.contains(&id), "{text}");
        }
    }
}

#[cfg(test)]
mod client_ids_tests {
    use super::*;

    fn ann() -> OwnerKey {
        OwnerKey::new("key:ann", "bard")
    }

    fn ben() -> OwnerKey {
        OwnerKey::new("key:ben", "bard")
    }

    fn put(map: &ClientIdMap, owner: &OwnerKey, kind: IdKind, [client, agent]: [&str; 2], now: Instant) {
        map.put(owner, AssignedIds { kind, client, agent }, now);
    }

    fn names(max: usize, max_of_caller: usize) -> ClientIdMap {
        ClientIdMap::new(ShownTasksLimits { max, max_of_caller, ttl: Duration::from_secs(9) })
    }

    #[test]
    fn a_name_leads_to_the_id_of_its_caller_s_task_and_back_for_a_time() {
        let (names, now) = (names(9, 0), Instant::now());
        put(&names, &ann(), IdKind::Task, ["mine", "t-1"], now);
        let find = |owner: &OwnerKey, kind, side, id: &str, now| {
            names.find(owner, IdKey { kind, side, id: id.into() }, now)
        };
        assert_eq!(find(&ann(), IdKind::Task, Side::Client, "mine", now).as_deref(), Some("t-1"));
        assert_eq!(find(&ann(), IdKind::Task, Side::Agent, "t-1", now).as_deref(), Some("mine"));
        assert_eq!(find(&ben(), IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(&OwnerKey::new("key:ann", "bank"), IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(&ann(), IdKind::Context, Side::Client, "mine", now), None);
        let later = now + Duration::from_secs(8);
        assert!(find(&ann(), IdKind::Task, Side::Client, "mine", later).is_some(), "its use keeps it");
        names.sweep(now + Duration::from_secs(10));
        assert!(find(&ann(), IdKind::Task, Side::Client, "mine", now + Duration::from_secs(16)).is_some());
        let back = find(&ann(), IdKind::Task, Side::Agent, "t-1", now + Duration::from_secs(16));
        assert_eq!(back.as_deref(), Some("mine"), "one goes with the other");
        names.sweep(now + Duration::from_secs(60));
        assert_eq!(names.all().count, 0);
    }

    #[test]
    fn names_are_bounded() {
        let (names, now) = (names(3, 2), Instant::now());
        for task in ["1", "2"] {
            assert!(names.has_room(&ann()));
            put(&names, &ann(), IdKind::Task, [task, &format!("t-{task}")], now);
            put(&names, &ann(), IdKind::Context, [task, &format!("c-{task}")], now);
        }
        assert!(!names.has_room(&ann()) && names.has_room(&ben()));
        put(&names, &ben(), IdKind::Task, [&"x".repeat(MAX_CLIENT_ID_BYTES + 1), "t"], now);
        assert!(!names.all().of.contains_key(&ben()));
        put(&names, &ben(), IdKind::Task, ["1", "t-9"], now);
        put(&names, &ben(), IdKind::Context, ["1", "c-9"], now);
        assert!(!names.has_room(&ben()), "there is room for three in all");
    }

    fn owner<'a>(caller: &'a str, agent: &'a str) -> CallerAgent<'a> {
        CallerAgent { caller, agent }
    }

    #[test]
    fn a_task_is_listed_to_whom_it_was_shown_and_for_a_time() {
        let limits = ShownTasksLimits { max: 2, max_of_caller: 0, ttl: Duration::from_secs(9) };
        let (shown, now) = (ShownTasks::new(limits), Instant::now());
        let (ann, ben) = (owner("key:ann", "bard"), owner("key:ben", "bard"));
        shown.record(ann, "1", now);
        shown.record(ann, "1", now);
        shown.record(ben, "2", now);
        shown.record(ben, "3", now);
        assert!(shown.was_shown(ann, "1", now) && !shown.was_shown(ben, "1", now));
        assert!(!shown.was_shown(owner("key:ann", "bank"), "1", now));
        assert!(shown.was_shown(ben, "2", now) && !shown.was_shown(ben, "3", now), "there is room for two");
        assert_eq!((shown.count(ann), shown.count(ben)), (1, 1));
        let later = now + Duration::from_secs(9);
        assert!(!shown.was_shown(ann, "1", later));
        shown.sweep(later);
        shown.record(ben, "3", later);
        assert!(shown.was_shown(ben, "3", later) && shown.count(ann) == 0);
    }

    #[test]
    fn one_caller_cannot_fill_the_list() {
        let shown =
            ShownTasks::new(ShownTasksLimits { max: 9, max_of_caller: 2, ttl: Duration::from_secs(9) });
        let (ann, ben, now) = (owner("key:ann", "bard"), owner("key:ben", "bard"), Instant::now());
        for task in ["1", "2", "3"] {
            shown.record(ann, task, now);
        }
        shown.record(ben, &"x".repeat(MAX_ID_BYTES + 1), now);
        assert_eq!((shown.count(ann), shown.count(ben)), (2, 0));
        shown.record(ben, "4", now);
        assert!(shown.was_shown(ben, "4", now) && !shown.was_shown(ann, "3", now));
    }
}
