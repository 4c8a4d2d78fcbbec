//! Legacy sessions: what `initialize` settled travels sealed in the session id; what changes later is kept here.
//!
//! Losing what is kept here only resets defaults, so it is bounded and may forget: revocations last. Not here: the seal itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::mcp::notifications::Level;
use crate::mcp::{Capabilities, Version};
use crate::seal::{Sealer, SessionTicket};

/// Most resources that one session can subscribe to.
const MOST_SUBSCRIPTIONS: usize = 64;
/// Longest URI that can be subscribed to, in bytes.
const LONGEST_URI: usize = 1024;

/// A session that stands.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// What it is remembered by.
    pub(super) key: [u8; 16],
    /// The revision that was agreed on.
    pub(super) version: Version,
    /// What the client can do.
    pub(super) capabilities: Capabilities,
    expires: u64,
}

impl Session {
    /// When it ends, in Unix seconds.
    pub(super) fn expires(&self) -> u64 {
        self.expires
    }

    /// Whether its time is over at `now`.
    pub(super) fn has_expired(&self, now: u64) -> bool {
        now >= self.expires
    }
}

/// What changed in a session since it began.
#[derive(Debug, Default, Clone)]
pub(super) struct Changes {
    revoked: bool,
    /// Least level of log messages wanted.
    pub(super) level: Option<Level>,
    /// Resources that the client wants to hear of.
    pub(super) subscriptions: BTreeSet<String>,
    /// Handles of the core tasks that the session began, oldest first.
    tasks: VecDeque<String>,
    expires: u64,
    order: u64,
}

#[derive(Default)]
struct Table {
    changes: HashMap<[u8; 16], Changes>,
    /// Oldest first: revocations are forgotten last.
    queue: BTreeMap<(bool, u64), [u8; 16]>,
    counter: u64,
}

/// The sessions of one bridge.
pub(super) struct Sessions {
    table: Mutex<Table>,
    changed: watch::Sender<u64>,
    most: usize,
    ttl: u64,
}

impl Sessions {
    /// Sessions live for `ttl` seconds; at most `most` of them are remembered to have changed.
    pub(super) fn new(ttl: u64, most: usize) -> Self {
        Self { table: Mutex::default(), changed: watch::Sender::new(0), most: most.max(1), ttl }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session; returns its id.
    pub(super) fn begin(
        &self,
        (sealer, caller): (&Sealer, &str),
        (version, capabilities): (Version, Capabilities),
        now: u64,
        nonce: [u8; 16],
    ) -> String {
        let ticket = SessionTicket {
            version: version.number(),
            capabilities: capabilities.bits(),
            issued: now,
            expires: now.saturating_add(self.ttl),
            nonce,
        };
        ticket.seal(sealer, caller)
    }

    /// The session of an id, and what changed in it; `None` if it is unknown, expired, ended or somebody else's.
    pub(super) fn find(
        &self,
        sealer: &Sealer,
        caller: &str,
        id: &str,
        now: u64,
    ) -> Option<(Session, Changes)> {
        let ticket = SessionTicket::open(sealer, caller, id).filter(|ticket| ticket.is_live(now))?;
        let changes = self.table().changes.get(&ticket.nonce).cloned().unwrap_or_default();
        let session = Session {
            key: ticket.nonce,
            version: Version::numbered(ticket.version)?,
            capabilities: Capabilities::from_bits(ticket.capabilities),
            expires: ticket.expires,
        };
        (!changes.revoked).then_some((session, changes))
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &Session) {
        self.change(session, |changes| {
            *changes = Changes { revoked: true, ..Changes::default() };
            true
        });
    }

    /// Ends a session that was ended before the process began.
    pub(super) fn revoke(&self, key: [u8; 16], expires: u64) {
        let session =
            Session { key, version: Version::V2025_11_25, capabilities: Capabilities::default(), expires };
        self.end(&session);
    }

    /// Remembers that the session began a core task, so that its stream tells of it. The oldest are forgotten.
    pub(super) fn add_task(&self, session: &Session, handle: &str) {
        self.change(session, |changes| {
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

    /// The handles of the core tasks that the session began.
    pub(super) fn tasks(&self, session: &Session) -> BTreeSet<String> {
        self.table()
            .changes
            .get(&session.key)
            .map(|changes| changes.tasks.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Hears of every change of any session.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Remembers the least level of log messages wanted.
    pub(super) fn set_level(&self, session: &Session, level: Level) {
        self.change(session, |changes| {
            changes.level = Some(level);
            true
        });
    }

    /// Subscribes to a resource. Says whether there was room.
    pub(super) fn subscribe(&self, session: &Session, uri: &str) -> bool {
        uri.len() <= LONGEST_URI
            && self.change(session, |changes| {
                let room = changes.subscriptions.len() < MOST_SUBSCRIPTIONS;
                if room {
                    changes.subscriptions.insert(uri.to_owned());
                }
                room || changes.subscriptions.contains(uri)
            })
    }

    /// Takes a subscription back.
    pub(super) fn unsubscribe(&self, session: &Session, uri: &str) {
        self.change(session, |changes| changes.subscriptions.remove(uri));
    }

    /// Whether the session wants to hear of any of the resources, and of which.
    pub(super) fn subscriptions(&self, session: &Session) -> BTreeSet<String> {
        self.table()
            .changes
            .get(&session.key)
            .map(|changes| changes.subscriptions.clone())
            .unwrap_or_default()
    }

    /// Whether the session has been ended.
    pub(super) fn is_ended(&self, session: &Session) -> bool {
        self.table().changes.get(&session.key).is_some_and(|changes| changes.revoked)
    }

    fn change(&self, session: &Session, change: impl FnOnce(&mut Changes) -> bool) -> bool {
        let mut table = self.table();
        let Table { changes, queue, counter } = &mut *table;
        *counter += 1;
        let entry = changes.entry(session.key).or_default();
        queue.remove(&(entry.revoked, entry.order));
        let done = change(entry);
        (entry.order, entry.expires) = (*counter, session.expires);
        queue.insert((entry.revoked, entry.order), session.key);
        while changes.len() > self.most {
            let Some((_, oldest)) = queue.pop_first() else { break };
            changes.remove(&oldest);
        }
        drop(table);
        self.changed.send_modify(|count| *count += 1);
        done
    }

    /// Forgets what belongs to sessions that are over at `now`.
    pub(super) fn sweep(&self, now: u64) {
        let mut table = self.table();
        let Table { changes, queue, .. } = &mut *table;
        changes.retain(|_, changes| changes.expires > now);
        queue.retain(|_, key| changes.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer() -> Sealer {
        Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap()
    }

    fn begin(sessions: &Sessions, number: u8) -> String {
        let client = (Version::V2025_06_18, Capabilities::FORM);
        sessions.begin((&sealer(), "me"), client, 1000, [number; 16])
    }

    #[test]
    fn a_session_carries_what_was_agreed_on() {
        let sessions = Sessions::new(60, 10);
        let id = begin(&sessions, 1);
        let (session, changes) = sessions.find(&sealer(), "me", &id, 1059).unwrap();
        assert_eq!(session.version, Version::V2025_06_18);
        assert!(session.capabilities.has(Capabilities::FORM));
        assert!(changes.level.is_none());
        assert!(sessions.find(&sealer(), "me", &id, 1060).is_none(), "expired");
        assert!(sessions.find(&sealer(), "you", &id, 1001).is_none(), "somebody else's");
    }

    #[test]
    fn an_ended_session_stays_ended_while_others_come_and_go() {
        let sessions = Sessions::new(60, 3);
        let id = begin(&sessions, 0);
        let (ended, _) = sessions.find(&sealer(), "me", &id, 1001).unwrap();
        sessions.end(&ended);
        for number in 1..20 {
            let id = begin(&sessions, number);
            let (session, _) = sessions.find(&sealer(), "me", &id, 1001).unwrap();
            sessions.set_level(&session, Level::Info);
        }
        assert!(sessions.find(&sealer(), "me", &id, 1001).is_none());
        assert!(sessions.table().changes.len() <= 3);
    }

    #[test]
    fn subscriptions_are_bounded() {
        let sessions = Sessions::new(60, 3);
        let id = begin(&sessions, 0);
        let (session, _) = sessions.find(&sealer(), "me", &id, 1001).unwrap();
        for number in 0..MOST_SUBSCRIPTIONS {
            assert!(sessions.subscribe(&session, &format!("a:{number}")));
        }
        assert!(sessions.subscribe(&session, "a:0"));
        assert!(!sessions.subscribe(&session, "a:more"));
        sessions.unsubscribe(&session, "a:0");
        assert!(sessions.subscribe(&session, "a:more"));
        for number in (0..=MOST_SUBSCRIPTIONS).rev() {
            sessions.add_task(&session, &format!("t-{number:03}"));
        }
        let tasks = sessions.tasks(&session);
        assert!(tasks.len() == MOST_SUBSCRIPTIONS && tasks.contains("t-000"), "the oldest went");
        assert!(!sessions.subscribe(&session, &"x".repeat(5000)));
        sessions.sweep(1060);
        assert!(sessions.table().changes.is_empty() && sessions.table().queue.is_empty());
    }
}
