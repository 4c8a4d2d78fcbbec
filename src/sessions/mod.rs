//! Legacy sessions: the result of `initialize` is sealed inside the session id; later changes are
//! kept here.
//!
//! Losing the changes of a live session only resets defaults. They are therefore bounded, and the
//! owner with most of them loses its oldest. They become rows, from which the next process restores
//! them. The end of a session is never forgotten. When there is no room for one more, the oldest
//! ended sessions of one owner are merged into a point in time: all sessions of that
//! owner which began by then are over, live ones too.

mod client_limits;
mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::fault::Fault;
use crate::mcp::notifications::LoggingLevel;
use crate::mcp::{ClientCapabilities, ClientSoftware, Version};
use crate::quota::QuotaOwner;
use crate::seal::{Sealer, SessionTicket, TokenPurpose};
use crate::sync::lock;

pub(crate) use client_limits::{ClientLimitTable, ClientLimits, ClientMark};
pub(crate) use store::{Predecessor, SessionStore};

/// Most resources that one session can subscribe to.
const MOST_SUBSCRIPTIONS: usize = 64;
/// Longest URI that can be subscribed to, in bytes.
const LONGEST_URI: usize = 1024;

/// Key of a session: its stamp, then its owner.
pub(crate) type SessionKey = [u8; 16];

/// Start of a session in microseconds since 1970, followed by random bits. Later stamps of an owner
/// are larger, and no two are equal.
type SessionStamp = u64;

/// Number of random bits in a stamp.
const RANDOM_BITS: u32 = 12;

fn stamp(now: Duration, random: u16) -> SessionStamp {
    let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let random = u64::from(random) & ((1 << RANDOM_BITS) - 1);
    (micros << RANDOM_BITS) | random
}

fn stamp_of(key: &SessionKey) -> SessionStamp {
    key.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// Short form of the owner of a session. It is part of the session id, so that every replica and
/// the next process know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionOwner([u8; 8]);

impl SessionOwner {
    fn of(owner: &QuotaOwner) -> Self {
        let text = match owner {
            QuotaOwner::Caller(name) => format!("caller\0{name}"),
            QuotaOwner::Address(address) => format!("address\0{address}"),
            QuotaOwner::Agent(name) => format!("agent\0{name}"),
        };
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        Self(digest.first_chunk().copied().unwrap_or_default())
    }

    pub(crate) fn of_key(key: &SessionKey) -> Self {
        Self(key.last_chunk().copied().unwrap_or_default())
    }

    /// Returns the key of a session of this owner.
    fn key(self, stamp: SessionStamp) -> SessionKey {
        let mut key = SessionKey::default();
        let bytes = stamp.to_be_bytes().into_iter().chain(self.0);
        key.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        key
    }
}

/// A valid session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// Key under which changes are stored.
    pub(crate) key: SessionKey,
    /// Keyed digest of it, for logs and spans.
    pub(crate) digest: u64,
    /// Negotiated revision.
    pub(crate) version: Version,
    /// Capabilities of the client.
    pub(crate) capabilities: ClientCapabilities,
    /// Mark of the client, if it is a known one.
    pub(crate) client: Option<ClientMark>,
    /// Software of the client, if the client told it.
    pub(crate) software: Option<Arc<ClientSoftware>>,
    expires: u64,
}

impl Session {
    /// Returns the session of an id of this caller; `None` if it is not one. It may have expired or ended.
    fn open(sealer: &Sealer, caller: &str, id: &str) -> Option<Self> {
        let ticket = SessionTicket::open(sealer, caller, id)?;
        let version = Some(ticket.software_version).filter(|version| !version.is_empty());
        let software = Some(ticket.software).filter(|name| !name.is_empty());
        Some(Self {
            key: ticket.nonce,
            digest: sealer.id_digest(TokenPurpose::Session, "").of(&ticket.nonce),
            version: Version::numbered(ticket.version)?,
            capabilities: ClientCapabilities::from_bits(ticket.capabilities),
            client: ClientMark::from_bytes(ticket.client),
            software: software.map(|name| Arc::new(ClientSoftware { name, version })),
            expires: ticket.expires,
        })
    }
}

/// Result of `initialize`.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    /// Revision.
    pub(crate) version: Version,
    /// Capabilities of the client.
    pub(crate) capabilities: ClientCapabilities,
    /// Mark of the client, if it is a known one.
    pub(crate) client: Option<ClientMark>,
    /// Software of the client, if the client told it.
    pub(crate) software: Option<ClientSoftware>,
}

impl Session {
    /// Returns the start of the session, since 1970.
    pub(crate) fn began(&self) -> Duration {
        Duration::from_micros(stamp_of(&self.key) >> RANDOM_BITS)
    }

    /// Returns true if the session has expired at `now`.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        now >= self.expires
    }
}

/// State of a session that changed after its start.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SessionState {
    /// Least level of log messages wanted.
    level: Option<LoggingLevel>,
    /// Resources that the client subscribed to.
    subscriptions: BTreeSet<String>,
    /// Marks of the resources at their subscription, until a stream of the session compares them.
    #[serde(skip)]
    marks: BTreeMap<String, u64>,
    /// Handles of the core tasks that the session began, oldest first.
    tasks: VecDeque<String>,
    expires: u64,
    #[serde(skip)]
    order: u64,
}

/// Key and value in the store. Without a value, the key is deleted.
type Row = (Vec<u8>, Option<Vec<u8>>);

/// Suffix of the key of a row with the changes of a session. The key of an ended session has no
/// suffix.
const CHANGED: u8 = 1;
/// Suffix of the key of a row that ends all sessions of an owner which began by a time.
const OVER: u8 = 2;

/// Subject of a row, by its key.
enum About {
    Ended(SessionKey),
    Changed(SessionKey),
    Over(SessionKey),
}

impl About {
    fn of(key: &[u8]) -> Option<Self> {
        if let Ok(ended) = key.try_into() {
            return Some(Self::Ended(ended));
        }
        let (last, key) = key.split_last()?;
        let key = key.try_into().ok()?;
        match *last {
            CHANGED => Some(Self::Changed(key)),
            OVER => Some(Self::Over(key)),
            _ => None,
        }
    }
}

/// Returns the row that marks a session as ended until `expires`.
fn ended_row(key: SessionKey, expires: u64) -> Row {
    (key.to_vec(), Some(expires.to_be_bytes().to_vec()))
}

fn marked(key: SessionKey, mark: u8) -> Vec<u8> {
    key.into_iter().chain([mark]).collect()
}

fn time(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

/// Sessions of one owner.
#[derive(Default)]
struct OwnerSessions {
    /// Sessions with changes, in the order of their last changes.
    changed: BTreeMap<u64, SessionKey>,
    /// Ended sessions, with their expiry (Unix seconds).
    ended: BTreeMap<SessionStamp, u64>,
    /// All sessions that began by this stamp are over; the second value is the expiry of the last
    /// of them.
    over: Option<(SessionStamp, u64)>,
}

impl OwnerSessions {
    /// Returns the number of entries for ended sessions.
    fn weight(&self) -> usize {
        self.ended.len() + usize::from(self.over.is_some())
    }

    fn has_ended(&self, stamp: SessionStamp) -> bool {
        self.over.is_some_and(|(over, _)| stamp <= over) || self.ended.contains_key(&stamp)
    }

    /// Returns the stamp after which no session of this owner has ended.
    fn last_ended(&self) -> SessionStamp {
        let over = self.over.map_or(0, |(over, _)| over);
        self.ended.last_key_value().map_or(over, |(last, _)| over.max(*last))
    }

    /// Merges the oldest ended sessions into a point in time, until they take fewer entries.
    fn merge(&mut self) {
        let before = self.weight();
        while self.weight() >= before
            && let Some((stamp, expires)) = self.ended.pop_first()
        {
            let (over, last) = self.over.unwrap_or_default();
            self.over = Some((over.max(stamp), last.max(expires)));
        }
    }

    fn forget(&mut self, now: u64) {
        self.ended.retain(|_, expires| *expires > now);
        self.over = self.over.filter(|(_, last)| *last > now);
    }
}

/// Owners ordered by their number of entries, to find the owner with most.
type OwnerRanks = BTreeSet<(usize, SessionOwner)>;

#[derive(Default)]
struct SessionTable {
    changes: HashMap<SessionKey, SessionState>,
    owners: HashMap<SessionOwner, OwnerSessions>,
    by_changes: OwnerRanks,
    by_ended: OwnerRanks,
    /// Number of entries for all ended sessions.
    ended: usize,
    counter: u64,
}

impl SessionTable {
    fn update(&mut self, owner: SessionOwner, change: impl FnOnce(&mut OwnerSessions)) {
        let owned = self.owners.entry(owner).or_default();
        let before = (owned.changed.len(), owned.weight());
        change(owned);
        let after = (owned.changed.len(), owned.weight());
        if after == (0, 0) {
            self.owners.remove(&owner);
        }
        rank(&mut self.by_changes, owner, before.0, after.0);
        rank(&mut self.by_ended, owner, before.1, after.1);
        self.ended = self.ended.saturating_sub(before.1).saturating_add(after.1);
    }

    fn owned<R>(&self, owner: SessionOwner, read: impl FnOnce(&OwnerSessions) -> R) -> Option<R> {
        self.owners.get(&owner).map(read)
    }

    fn has_ended(&self, key: &SessionKey) -> bool {
        self.owned(SessionOwner::of_key(key), |owned| owned.has_ended(stamp_of(key))).unwrap_or_default()
    }

    /// Deletes the changes of a session.
    fn drop_changes(&mut self, key: &SessionKey) {
        if let Some(changes) = self.changes.remove(key) {
            self.update(SessionOwner::of_key(key), |owned| {
                owned.changed.remove(&changes.order);
            });
        }
    }

    /// Makes room for the changes of one more session of this owner. Returns true if there is room.
    fn make_room(&mut self, owner: SessionOwner, most: usize) -> bool {
        if self.changes.len() < most {
            return true;
        }
        let own = self.owned(owner, |owned| owned.changed.len()).unwrap_or_default();
        let oldest = yields(&self.by_changes, owner, own).and_then(|owner| {
            self.owned(owner, |owned| owned.changed.first_key_value().map(|(_, key)| *key))
        });
        let Some(oldest) = oldest.flatten() else { return false };
        self.drop_changes(&oldest);
        true
    }

    /// Records that all sessions of an owner are over that began by this one.
    fn pass(&mut self, key: &SessionKey, expires: u64) {
        self.update(SessionOwner::of_key(key), |owned| {
            let (over, last) = owned.over.unwrap_or_default();
            owned.over = Some((over.max(stamp_of(key)), last.max(expires)));
        });
    }

    /// Records the end of a session, within `most` entries. Returns true if there was room.
    fn end(&mut self, key: SessionKey, expires: u64, most: usize) -> bool {
        let owner = SessionOwner::of_key(&key);
        let is_full = self.ended >= most;
        let own = self.owned(owner, OwnerSessions::weight).unwrap_or_default();
        let merged = yields(&self.by_ended, owner, own).filter(|_| is_full);
        if is_full && merged.is_none() {
            return false;
        }
        self.drop_changes(&key);
        self.update(owner, |owned| {
            owned.ended.insert(stamp_of(&key), expires);
        });
        if let Some(merged) = merged {
            self.update(merged, OwnerSessions::merge);
        }
        true
    }
}

/// Moves an owner to the rank of its new number of entries.
fn rank(ranks: &mut OwnerRanks, owner: SessionOwner, before: usize, after: usize) {
    if before != after {
        ranks.remove(&(before, owner));
        if after > 0 {
            ranks.insert((after, owner));
        }
    }
}

/// Returns the owner that must give up its oldest entry for a new entry of `owner`, which has `own`
/// entries: the owner with most, unless the two are about even. `None` if `owner` has none and all
/// others have one each.
fn yields(ranks: &OwnerRanks, owner: SessionOwner, own: usize) -> Option<SessionOwner> {
    match ranks.last() {
        Some((most, largest)) if *most > own + 1 => Some(*largest),
        _ => (own > 0).then_some(owner),
    }
}

/// Owner of a new session.
#[derive(Clone, Copy)]
pub(crate) struct SessionClient<'a> {
    /// Name of the caller.
    pub(crate) caller: &'a str,
    pub(crate) owner: &'a QuotaOwner,
}

/// Time at which a session begins, and random bits that make its stamp unique.
#[derive(Debug, Clone, Copy)]
struct SessionStart {
    /// Since 1970.
    now: Duration,
    random: u16,
}

/// Returns the seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    since_1970().as_secs()
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Table of the sessions of one gateway.
struct Sessions {
    table: Mutex<SessionTable>,
    changed: watch::Sender<u64>,
    most: usize,
    ttl: u64,
}

impl Sessions {
    /// Creates the table for sessions that live for `ttl` seconds; at most `most` changed and
    /// `most` ended sessions are stored.
    fn new(ttl: u64, most: usize) -> Self {
        Self { table: Mutex::default(), changed: watch::Sender::new(0), most: most.max(1), ttl }
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        lock(&self.table)
    }

    /// Begins a session and returns its id.
    fn begin(&self, sealer: &Sealer, client: &SessionClient<'_>, agreed: Agreed, at: SessionStart) -> String {
        let owner = SessionOwner::of(client.owner);
        let SessionStart { now, random } = at;
        // A clock that was set back must not begin sessions that are over.
        let last = self.table().owned(owner, OwnerSessions::last_ended).unwrap_or_default();
        let stamp = stamp(now, random).max(last.saturating_add(1));
        let software = agreed.software.map(|told| (told.name, told.version.unwrap_or_default()));
        let (software, software_version) = software.unwrap_or_default();
        let ticket = SessionTicket {
            version: agreed.version.number(),
            capabilities: agreed.capabilities.bits(),
            issued: now.as_secs(),
            expires: now.as_secs().saturating_add(self.ttl),
            nonce: owner.key(stamp),
            client: ClientMark::to_bytes(agreed.client),
            software,
            software_version,
        };
        ticket.seal(sealer, client.caller)
    }

    /// Returns the least level of log messages that a session wants; `None` if it has expired at `now`, or was
    /// ended.
    fn level(&self, session: &Session, now: u64) -> Option<Option<LoggingLevel>> {
        let table = self.table();
        let is_live = now < session.expires && !table.has_ended(&session.key);
        is_live.then(|| table.changes.get(&session.key).and_then(|changes| changes.level))
    }

    /// Ends a session.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if the end could not be recorded; the session continues then.
    fn end(&self, session: &Session) -> Result<(), Fault> {
        let is_noted = self.table().end(session.key, session.expires, self.most);
        if !is_noted {
            return Err(Fault::Busy("too many sessions have been ended lately"));
        }
        self.tell();
        Ok(())
    }

    /// Ends a session that another process has ended. All rows that were stored have room.
    fn revoke(&self, key: SessionKey, expires: u64) {
        self.table().end(key, expires, usize::MAX);
        self.tell();
    }

    /// Applies a row from the store or from another process. Returns true if the row is valid at
    /// `now`.
    fn learn(&self, key: &[u8], value: Option<&[u8]>, now: u64) -> bool {
        match (About::of(key), value) {
            (Some(About::Ended(key)), Some(value)) => {
                let expires = time(value).filter(|expires| *expires > now);
                expires.map(|expires| self.revoke(key, expires)).is_some()
            }
            (Some(About::Over(key)), Some(value)) => {
                let expires = time(value).filter(|expires| *expires > now);
                expires.map(|expires| self.table().pass(&key, expires)).is_some()
            }
            (Some(About::Changed(key)), Some(value)) => {
                let changes = serde_json::from_slice(value).ok();
                let changes = changes.filter(|changes: &SessionState| changes.expires > now);
                changes.is_some_and(|changes| self.restore(key, changes))
            }
            (Some(About::Changed(key)), None) => {
                self.table().drop_changes(&key);
                self.tell();
                true
            }
            _ => false,
        }
    }

    fn restore(&self, key: SessionKey, mut kept: SessionState) -> bool {
        let expires = kept.expires;
        kept.subscriptions.retain(|uri| uri.len() <= LONGEST_URI);
        while kept.subscriptions.len() > MOST_SUBSCRIPTIONS {
            kept.subscriptions.pop_last();
        }
        kept.tasks.truncate(MOST_SUBSCRIPTIONS);
        self.change_of(key, expires, |changes| {
            *changes = SessionState { order: changes.order, ..kept };
            true
        })
    }

    /// Returns true if a stored row is still needed at `now`.
    fn is_of_use(&self, key: &[u8], value: &[u8], now: u64) -> bool {
        match About::of(key) {
            Some(About::Ended(_) | About::Over(_)) => time(value).is_some_and(|expires| expires > now),
            Some(About::Changed(key)) => self.table().changes.contains_key(&key),
            None => false,
        }
    }

    /// Returns the row with the changes of a session.
    fn row(&self, session: &Session) -> Row {
        let table = self.table();
        let changes = table.changes.get(&session.key);
        (marked(session.key, CHANGED), changes.and_then(|changes| serde_json::to_vec(changes).ok()))
    }

    /// Returns all rows to store.
    fn rows(&self) -> Vec<Row> {
        let table = self.table();
        let changed = table
            .changes
            .iter()
            .map(|(key, changes)| (marked(*key, CHANGED), serde_json::to_vec(changes).ok()));
        let ended = table.owners.iter().flat_map(|(owner, owned)| {
            let over = owned.over.map(|(stamp, expires)| {
                (marked(owner.key(stamp), OVER), Some(expires.to_be_bytes().to_vec()))
            });
            let ended = owned.ended.iter().map(|(stamp, expires)| ended_row(owner.key(*stamp), *expires));
            ended.chain(over)
        });
        changed.chain(ended).collect()
    }

    /// Records that the session began a core task, so that its stream sends changes of it. The
    /// oldest are forgotten.
    fn add_task(&self, session: &Session, handle: &str) {
        self.update(session, |changes| {
            if changes.tasks.iter().any(|known| known == handle) {
                return false;
            }
            if changes.tasks.len() >= MOST_SUBSCRIPTIONS {
                changes.tasks.pop_front();
            }
            changes.tasks.push_back(handle.to_owned());
            true
        });
    }

    /// Returns the handles of the core tasks that the session began.
    fn tasks(&self, session: &Session) -> BTreeSet<String> {
        self.table()
            .changes
            .get(&session.key)
            .map(|changes| changes.tasks.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns a receiver for changes of any session.
    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Records the least level of log messages wanted.
    fn set_level(&self, session: &Session, level: LoggingLevel) {
        self.update(session, |changes| {
            changes.level = Some(level);
            true
        });
    }

    /// Subscribes to a resource with the present mark of its content. Returns true if there was
    /// room.
    fn subscribe(&self, session: &Session, uri: &str, mark: Option<u64>) -> bool {
        uri.len() <= LONGEST_URI
            && self.update(session, |changes| {
                let room = changes.subscriptions.len() < MOST_SUBSCRIPTIONS;
                if room && changes.subscriptions.insert(uri.to_owned()) {
                    changes.marks.extend(mark.map(|mark| (uri.to_owned(), mark)));
                }
                room || changes.subscriptions.contains(uri)
            })
    }

    /// Removes a subscription.
    fn unsubscribe(&self, session: &Session, uri: &str) {
        self.update(session, |changes| {
            changes.marks.remove(uri);
            changes.subscriptions.remove(uri)
        });
    }

    /// Returns the mark of a resource at its subscription, the first time.
    fn take_mark(&self, session: &Session, uri: &str) -> Option<u64> {
        self.table().changes.get_mut(&session.key)?.marks.remove(uri)
    }

    /// Returns the resources that the session subscribed to.
    fn subscriptions(&self, session: &Session) -> BTreeSet<String> {
        self.table()
            .changes
            .get(&session.key)
            .map(|changes| changes.subscriptions.clone())
            .unwrap_or_default()
    }

    /// Returns true if changes of the session are stored.
    fn is_remembered(&self, session: &Session) -> bool {
        self.table().changes.contains_key(&session.key)
    }

    /// Returns true if the session has been ended.
    fn is_revoked(&self, session: &Session) -> bool {
        self.table().has_ended(&session.key)
    }

    fn update(&self, session: &Session, change: impl FnOnce(&mut SessionState) -> bool) -> bool {
        self.change_of(session.key, session.expires, change)
    }

    /// Applies `change` to the session with this key and expiry, and returns its result; `false` if
    /// there is no room.
    fn change_of(
        &self,
        key: SessionKey,
        expires: u64,
        change: impl FnOnce(&mut SessionState) -> bool,
    ) -> bool {
        let owner = SessionOwner::of_key(&key);
        let done = {
            let mut table = self.table();
            let is_known = table.changes.contains_key(&key);
            if table.has_ended(&key) || !(is_known || table.make_room(owner, self.most)) {
                return false;
            }
            table.counter += 1;
            let order = table.counter;
            let changes = table.changes.entry(key).or_default();
            let done = change(changes);
            let before = std::mem::replace(&mut changes.order, order);
            changes.expires = expires;
            table.update(owner, |owned| {
                owned.changed.remove(&before);
                owned.changed.insert(order, key);
            });
            done
        };
        self.tell();
        done
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Deletes the state of sessions that have expired at `now`.
    fn sweep(&self, now: u64) {
        let mut table = self.table();
        let over = table.changes.iter().filter(|(_, changes)| changes.expires <= now);
        let over: Vec<SessionKey> = over.map(|(key, _)| *key).collect();
        over.iter().for_each(|key| table.drop_changes(key));
        let ended: Vec<SessionOwner> = table.by_ended.iter().map(|(_, owner)| *owner).collect();
        ended.into_iter().for_each(|owner| table.update(owner, |owned| owned.forget(now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(
        sessions: &Sessions,
        caller: &str,
        id: &str,
        now: u64,
    ) -> Option<(Session, Option<LoggingLevel>)> {
        let session = Session::open(&sealer(), caller, id)?;
        let level = sessions.level(&session, now)?;
        Some((session, level))
    }

    fn sealer() -> Sealer {
        Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap()
    }

    fn owner(name: &str) -> QuotaOwner {
        QuotaOwner::Caller(name.into())
    }

    fn begin(sessions: &Sessions, number: u8) -> String {
        begin_at(sessions, ("me", number), 1000)
    }

    fn begin_at(sessions: &Sessions, (name, number): (&str, u8), now: u64) -> String {
        let client = Agreed {
            version: Version::V2025_06_18,
            capabilities: ClientCapabilities::FORM,
            client: None,
            software: None,
        };
        let at = SessionStart { now: Duration::from_secs(now), random: u16::from(number) };
        let owner = owner(name);
        sessions.begin(&sealer(), &SessionClient { caller: name, owner: &owner }, client, at)
    }

    /// Returns a session of this caller, and its id.
    fn session(sessions: &Sessions, (name, number): (&str, u8), now: u64) -> (Session, String) {
        let id = begin_at(sessions, (name, number), now);
        (find(sessions, name, &id, now).unwrap().0, id)
    }

    fn lives(sessions: &Sessions, name: &str, id: &str) -> bool {
        find(sessions, name, id, 1100).is_some()
    }

    #[test]
    fn a_session_carries_what_was_agreed_on() {
        let sessions = Sessions::new(60, 10);
        let id = begin(&sessions, 1);
        let (session, level) = find(&sessions, "me", &id, 1059).unwrap();
        assert_eq!(session.version, Version::V2025_06_18);
        assert!(session.capabilities.has(ClientCapabilities::FORM));
        assert!(level.is_none());
        assert!(find(&sessions, "me", &id, 1060).is_none(), "expired");
        assert!(find(&sessions, "you", &id, 1001).is_none(), "of another caller");
    }

    #[test]
    fn an_ended_session_stays_ended_while_others_come_and_go() {
        let sessions = Sessions::new(60, 3);
        let id = begin(&sessions, 0);
        let (ended, _) = find(&sessions, "me", &id, 1001).unwrap();
        sessions.end(&ended).unwrap();
        for number in 1..20 {
            let id = begin(&sessions, number);
            let (session, _) = find(&sessions, "me", &id, 1001).unwrap();
            sessions.set_level(&session, LoggingLevel::Info);
        }
        assert!(find(&sessions, "me", &id, 1001).is_none());
        assert!(sessions.table().changes.len() <= 3);
    }

    #[test]
    fn the_caller_with_most_changes_gives_way() {
        let sessions = Sessions::new(1000, 8);
        let (first, _) = session(&sessions, ("ben", 0), 1000);
        assert!(sessions.subscribe(&first, "a:0", None));
        let flood = |from: u8| {
            for number in from..from + 30 {
                let (session, _) = session(&sessions, ("ann", number), 1000);
                assert!(sessions.subscribe(&session, "a:0", None));
            }
        };
        flood(0);
        let more: Vec<Session> = (1..4).map(|number| session(&sessions, ("ben", number), 1000).0).collect();
        assert!(more.iter().all(|session| sessions.subscribe(session, "a:0", None)));
        flood(30);
        for session in more.iter().chain([&first]) {
            assert_eq!(sessions.subscriptions(session).len(), 1);
        }
        assert_eq!(sessions.table().changes.len(), 8);
        // With one entry for each owner there is no room for another owner.
        let sessions = Sessions::new(1000, 2);
        for (name, fits) in [("ann", true), ("ben", true), ("eve", false), ("ben", true)] {
            let (session, _) = session(&sessions, (name, 7), 1000);
            assert_eq!(sessions.subscribe(&session, "a:0", None), fits, "{name}");
        }
    }

    #[test]
    fn ended_sessions_stay_ended_beyond_the_room_for_them() {
        let sessions = Sessions::new(1000, 8);
        let mut ended = Vec::new();
        let (live, live_id) = session(&sessions, ("ben", 99), 1000);
        let (_, old) = session(&sessions, ("ann", 200), 1000);
        let mut end = |who, now| {
            let (session, id) = session(&sessions, who, now);
            sessions.end(&session).unwrap();
            ended.push((who.0, id));
        };
        end(("ben", 0), 1000);
        for number in 0..40 {
            end(("ann", number), 1001);
        }
        for number in 1..3 {
            end(("ben", number), 1001);
        }
        let (_, new) = session(&sessions, ("ann", 201), 1040);
        for (name, id) in &ended {
            assert!(!lives(&sessions, name, id), "{name}");
        }
        assert!(sessions.table().ended <= 8);
        assert!(lives(&sessions, "ben", &live_id) && !sessions.is_revoked(&live));
        assert!(lives(&sessions, "ann", &new) && !lives(&sessions, "ann", &old), "one's own older ones end");
        // Also while the clock is behind.
        let id = begin_at(&sessions, ("ann", 202), 900);
        assert!(find(&sessions, "ann", &id, 900).is_some());
        // A sweep deletes nothing before its time, and all of it afterwards.
        sessions.sweep(1100);
        assert!(ended.iter().all(|(name, id)| !lives(&sessions, name, id)));
        sessions.sweep(2100);
        let table = sessions.table();
        assert!(table.owners.is_empty() && table.by_ended.is_empty() && table.ended == 0);
    }

    #[test]
    fn a_session_that_cannot_be_noted_goes_on() {
        let sessions = Sessions::new(1000, 2);
        for (name, ends) in [("ann", true), ("ben", true), ("eve", false)] {
            let (session, id) = session(&sessions, (name, 0), 1000);
            assert_eq!(sessions.end(&session).is_ok(), ends, "{name}");
            assert_eq!(lives(&sessions, name, &id), !ends, "{name}");
        }
        let (session, id) = session(&sessions, ("eve", 1), 1000);
        sessions.revoke(session.key, session.expires);
        assert!(!lives(&sessions, "eve", &id), "what was kept is always noted");
    }

    #[test]
    fn subscriptions_are_bounded() {
        let sessions = Sessions::new(60, 3);
        let id = begin(&sessions, 0);
        let (session, _) = find(&sessions, "me", &id, 1001).unwrap();
        for number in 0..MOST_SUBSCRIPTIONS {
            assert!(sessions.subscribe(&session, &format!("a:{number}"), None));
        }
        assert!(sessions.subscribe(&session, "a:0", None));
        assert!(!sessions.subscribe(&session, "a:more", None));
        sessions.unsubscribe(&session, "a:0");
        assert!(sessions.subscribe(&session, "a:more", None));
        for number in (0..=MOST_SUBSCRIPTIONS).rev() {
            sessions.add_task(&session, &format!("t-{number:03}"));
        }
        let tasks = sessions.tasks(&session);
        assert!(tasks.len() == MOST_SUBSCRIPTIONS && tasks.contains("t-000"), "the oldest went");
        assert!(!sessions.subscribe(&session, &"x".repeat(5000), None));
        sessions.sweep(1060);
        let table = sessions.table();
        assert!(table.changes.is_empty() && table.owners.is_empty() && table.by_changes.is_empty());
    }
    #[test]
    fn rows_say_all_to_the_next_process() {
        let (sessions, next) = (Sessions::new(1000, 2), Sessions::new(1000, 10));
        let (live, live_id) = session(&sessions, ("ann", 9), 1005);
        assert!(sessions.subscribe(&live, "a:1", None));
        sessions.set_level(&live, LoggingLevel::Error);
        sessions.add_task(&live, "t-1");
        let ended: Vec<String> = (0..3)
            .map(|number| {
                let (session, id) = session(&sessions, ("ben", number), 1001);
                sessions.end(&session).unwrap();
                id
            })
            .collect();
        for (key, value) in sessions.rows() {
            assert!(next.learn(&key, value.as_deref(), 1010) && next.is_of_use(&key, &value.unwrap(), 1010));
        }
        assert!(ended.iter().all(|id| !lives(&next, "ben", id)));
        let (found, level) = find(&next, "ann", &live_id, 1010).unwrap();
        assert_eq!((next.subscriptions(&found).len(), level), (1, Some(LoggingLevel::Error)));
        assert!(next.tasks(&found).contains("t-1"));
        let (key, value) = next.row(&found);
        assert!(value.is_some() && next.learn(&key, None, 1010) && next.subscriptions(&found).is_empty());
        for (key, value) in [(&[][..], None), (&[1; 16], Some(&[1][..])), (&[CHANGED; 17], Some(b"{"))] {
            assert!(!next.learn(key, value, 1010), "{key:?}");
        }
    }
}
