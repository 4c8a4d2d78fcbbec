//! Session store: the table of sessions, kept on disk and in step with another process.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};
use tracing::debug;

use super::{
    Agreed, Row, Session, SessionClient, SessionKey, SessionStart, Sessions, ended_row, since_1970,
    unix_seconds,
};
use crate::fault::Fault;
use crate::mcp::notifications::LoggingLevel;
use crate::seal::Sealer;
use crate::sync::lock;
use crate::tasks::TaskJournal;
use crate::tasks::store::SuccessorMessage;

/// Most messages that wait for the predecessor to read them.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// Process that this one takes over from.
pub(crate) struct Predecessor {
    /// True while it may still learn changes of the tasks.
    lives: watch::Sender<bool>,
    messages: mpsc::Sender<SuccessorMessage>,
    /// Receiver of the messages, until they are sent.
    unsent: Mutex<Option<mpsc::Receiver<SuccessorMessage>>>,
}

impl Predecessor {
    pub(crate) fn none() -> Self {
        let (messages, unsent) = mpsc::channel(MAX_QUEUED_MESSAGES);
        Self { lives: watch::Sender::new(false), messages, unsent: Mutex::new(Some(unsent)) }
    }

    /// Records whether the predecessor may still learn changes of the tasks.
    pub(crate) fn set_lives(&self, lives: bool) {
        self.lives.send_replace(lives);
    }

    /// Returns true while the predecessor may still learn changes of the tasks.
    pub(crate) fn lives(&self) -> bool {
        *self.lives.borrow()
    }

    /// Waits until the predecessor has ended.
    pub(crate) async fn ended(&self) {
        if self.lives.subscribe().wait_for(|lives| !lives).await.is_err() {
            debug!("lost state of predecessor");
        }
    }

    /// Returns the receiver of the messages to the predecessor; `None` the second time.
    pub(crate) fn take_messages(&self) -> Option<mpsc::Receiver<SuccessorMessage>> {
        lock(&self.unsent).take()
    }

    /// Sends a message, if there is a predecessor and it reads.
    pub(crate) fn notify(&self, message: SuccessorMessage) {
        if self.lives() && self.messages.try_send(message).is_err() {
            debug!("failed to notify predecessor: it has ended, or does not read");
        }
    }

    /// Sends a message, after the messages before it. Returns false if the predecessor has ended.
    pub(crate) async fn send(&self, message: SuccessorMessage) -> bool {
        self.messages.send(message).await.is_ok()
    }
}

/// Sessions of one gateway. Changes of a session become rows of the journal; an end is also sent to
/// a process that may still serve the session.
pub(crate) struct SessionStore {
    table: Sessions,
    sealer: Sealer,
    opened: OpenedSessions,
    journal: Arc<TaskJournal>,
    predecessor: Arc<Predecessor>,
}

impl SessionStore {
    /// Creates the store for sessions that live for `ttl` seconds; at most `limit` changed and
    /// `limit` ended sessions are stored.
    pub(crate) fn new(
        ttl: u64,
        limit: usize,
        sealer: Sealer,
        journal: Arc<TaskJournal>,
        predecessor: Arc<Predecessor>,
    ) -> Self {
        let (table, opened) = (Sessions::new(ttl, limit), OpenedSessions::new());
        Self { table, sealer, opened, journal, predecessor }
    }

    /// Begins a session and returns its id.
    pub(crate) fn begin(&self, client: &SessionClient<'_>, agreed: Agreed) -> String {
        let at = SessionStart { now: since_1970(), random: rand::random() };
        self.table.begin(&self.sealer, client, agreed, at)
    }

    /// Returns the session of an id, and the least level of log messages that it wants; `None` if
    /// it is unknown, expired, ended or of another caller.
    pub(crate) fn find(&self, caller: &str, id: &str) -> Option<(Session, Option<LoggingLevel>)> {
        let session = self.opened.find(caller, id, || Session::open(&self.sealer, caller, id))?;
        let level = self.table.level(&session, unix_seconds())?;
        Some((session, level))
    }

    /// Ends a session, and waits for the disk.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if the end could not be recorded; the session continues then.
    pub(crate) async fn end(&self, session: &Session) -> Result<(), Fault> {
        self.table.end(session)?;
        self.predecessor.notify(SuccessorMessage::Ended(session.key, session.expires));
        self.journal.note_session(self.table.row(session).0, None);
        let (key, value) = ended_row(session.key, session.expires);
        self.journal.keep_session(key, value).await;
        Ok(())
    }

    /// Ends a session that another process has ended.
    pub(crate) fn revoke(&self, key: SessionKey, expires: u64) {
        self.table.revoke(key, expires);
    }

    /// Subscribes to a resource with the present mark of its content, and waits for the disk.
    /// Returns true if there was room.
    pub(crate) async fn subscribe(&self, session: &Session, uri: &str, mark: Option<u64>) -> bool {
        let has_room = self.table.subscribe(session, uri, mark);
        if has_room {
            self.persist(session).await;
        }
        has_room
    }

    /// Removes a subscription, and waits for the disk.
    pub(crate) async fn unsubscribe(&self, session: &Session, uri: &str) {
        self.table.unsubscribe(session, uri);
        self.persist(session).await;
    }

    /// Records that the session began a core task, so that its stream sends changes of it. The
    /// oldest are forgotten.
    pub(crate) fn add_task(&self, session: &Session, handle: &str) {
        self.table.add_task(session, handle);
        self.note(session);
    }

    /// Records the least level of log messages wanted.
    pub(crate) fn set_level(&self, session: &Session, level: LoggingLevel) {
        self.table.set_level(session, level);
        self.note(session);
    }

    /// Returns the handles of the core tasks that the session began.
    pub(crate) fn tasks(&self, session: &Session) -> std::collections::BTreeSet<String> {
        self.table.tasks(session)
    }

    /// Returns the mark of a resource at its subscription, the first time; `None` if the
    /// subscription is of another process.
    pub(crate) fn take_mark(&self, session: &Session, uri: &str) -> Option<u64> {
        self.table.take_mark(session, uri)
    }

    /// Returns the resources that the session subscribed to.
    pub(crate) fn subscriptions(&self, session: &Session) -> std::collections::BTreeSet<String> {
        self.table.subscriptions(session)
    }

    /// Returns a receiver for changes of any session.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.table.changes()
    }

    /// Returns true if the changes of the session are known: they are stored here, or all are on
    /// disk.
    pub(crate) fn is_remembered(&self, session: &Session) -> bool {
        self.journal.keeps_rows() || self.table.is_remembered(session)
    }

    /// Returns true if the session has ended or expired.
    pub(crate) fn is_over(&self, session: &Session) -> bool {
        self.table.is_revoked(session) || session.has_expired(unix_seconds())
    }

    /// Deletes the state of sessions that have expired.
    pub(crate) fn sweep(&self) {
        self.table.sweep(unix_seconds());
    }

    /// Applies the rows on disk, and writes those that are only here.
    pub(crate) fn load(&self) {
        let now = unix_seconds();
        self.journal.sessions(|key, value| self.table.learn(key, Some(value), now));
        self.note_all();
    }

    /// Removes the rows on disk that are no longer needed.
    pub(crate) fn prune(&self) {
        let now = unix_seconds();
        self.journal.sessions(|key, value| self.table.is_of_use(key, value, now));
    }

    /// Queues all rows for the disk.
    pub(crate) fn note_all(&self) {
        for (key, value) in self.table.rows() {
            self.journal.note_session(key, value);
        }
    }

    /// Applies a row of another process, and queues it for the disk.
    pub(crate) fn learn(&self, key: &[u8], value: Option<&[u8]>) {
        if self.table.learn(key, value, unix_seconds()) {
            self.journal.note_learned_session(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }

    /// Queues the changes of a session for the disk.
    fn note(&self, session: &Session) {
        let (key, value): Row = self.table.row(session);
        self.journal.note_session(key, value);
    }

    /// Persists the changes of a session, and waits for the disk.
    async fn persist(&self, session: &Session) {
        let (key, value): Row = self.table.row(session);
        self.journal.keep_session(key, value).await;
    }
}

/// Number of opened ids that are kept.
const OPENED_SLOTS: usize = 1024;

/// Sessions of the ids that were opened last. A client sends the id with each request, and to open it costs as
/// much as to parse the request. Only valid ids are kept, at most one for each slot. A session that is found here
/// may have expired or ended.
struct OpenedSessions {
    slots: Vec<Mutex<Option<Box<OpenedSession>>>>,
    /// Keyed at random, so that no client can choose its slot.
    hasher: RandomState,
}

struct OpenedSession {
    caller: Box<str>,
    id: Box<str>,
    session: Session,
}

impl OpenedSessions {
    fn new() -> Self {
        Self { slots: (0..OPENED_SLOTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Returns the session of an id of this caller. If it is not kept, `open` opens the id.
    fn find(&self, caller: &str, id: &str, open: impl FnOnce() -> Option<Session>) -> Option<Session> {
        let at = usize::try_from(self.hasher.hash_one(id) % OPENED_SLOTS as u64).ok()?;
        let slot = self.slots.get(at)?;
        let known = lock(slot)
            .as_ref()
            .filter(|opened| *opened.id == *id && *opened.caller == *caller)
            .map(|opened| opened.session.clone());
        known.or_else(|| {
            let session = open()?;
            let opened = OpenedSession { caller: caller.into(), id: id.into(), session: session.clone() };
            *lock(slot) = Some(Box::new(opened));
            Some(session)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{ClientCapabilities, Version};

    fn session(number: u8) -> Session {
        let (version, capabilities) = (Version::STATELESS, ClientCapabilities::from_bits(0));
        Session {
            key: [number; 16],
            digest: 0,
            version,
            capabilities,
            client: None,
            software: None,
            expires: 0,
        }
    }

    #[test]
    fn id_is_opened_once_and_for_its_caller_only() {
        let opened = OpenedSessions::new();
        let find = |caller: &str, id: &str, open: Option<u8>| {
            opened.find(caller, id, || open.map(session)).map(|session| session.key[0])
        };
        assert_eq!(find("ann", "id", None), None, "an invalid one is not kept");
        assert_eq!(find("ann", "id", Some(1)), Some(1));
        assert_eq!(find("ann", "id", None), Some(1));
        assert_eq!(find("ben", "id", None), None);
        assert_eq!(find("ann", "id2", None), None);
        assert_eq!(find("ann", "id", None), Some(1), "what was not found has taken no slot");
    }

    #[test]
    fn number_of_ids_is_bounded() {
        let opened = OpenedSessions::new();
        for number in 0..3 * OPENED_SLOTS {
            let id = number.to_string();
            assert!(opened.find("ann", &id, || Some(session(1))).is_some());
            assert!(opened.find("ann", &id, || None).is_some());
        }
        let kept = opened.slots.iter().filter(|slot| lock(slot).is_some()).count();
        assert!(kept <= OPENED_SLOTS && kept > OPENED_SLOTS / 2, "{kept}");
    }
}
