//! Takeover between two processes: which one persists, and the messages between them.
//!
//! The process that ends gives its store up and sends each row to the successor instead, which
//! applies and persists it. The successor reports the sessions that were ended at it. See also
//! `server::upgrade` for the connection between the two and for the sockets of clients.

use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::sessions::{Session, ended_row};
use super::{Gateway, Inner, now};
use crate::sync::lock;
use crate::tasks::Timestamp;
use crate::tasks::store::{RowFrame, Store, StoreTable, SuccessorMessage};

/// Most messages that wait for the predecessor to read them.
const MAX_QUEUED_MESSAGES: usize = 1024;
/// Longest wait of a row for the store to be opened; then the predecessor is notified that it is
/// not persisted.
const STORE_OPEN_TIMEOUT: Duration = Duration::from_secs(8);
/// Pause between two checks whether the store is open.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Process that this one takes over from.
pub(super) struct Predecessor {
    /// True while it may still learn changes of the tasks.
    lives: watch::Sender<bool>,
    words: mpsc::Sender<SuccessorMessage>,
    /// Receiver of the messages, until they are sent.
    waiting: Mutex<Option<mpsc::Receiver<SuccessorMessage>>>,
}

impl Predecessor {
    pub(super) fn none() -> Self {
        let (words, waiting) = mpsc::channel(MAX_QUEUED_MESSAGES);
        Self { lives: watch::Sender::new(false), words, waiting: Mutex::new(Some(waiting)) }
    }

    pub(super) fn lives(&self) -> bool {
        *self.lives.borrow()
    }

    /// Waits until the predecessor has ended.
    pub(super) async fn ended(&self) {
        if self.lives.subscribe().wait_for(|lives| !lives).await.is_err() {
            debug!("lost state of predecessor");
        }
    }

    fn tell(&self, told: SuccessorMessage) {
        if self.lives() && self.words.try_send(told).is_err() {
            debug!("failed to notify predecessor: it has ended, or does not read");
        }
    }
}

impl Gateway {
    /// Records that another process works with the same tasks until [`Gateway::follow_predecessor`] has
    /// returned.
    pub(crate) fn expect_predecessor(&self) {
        self.inner.predecessor.lives.send_replace(true);
    }

    /// Applies the changes that the process at the other end sends, until that process ends.
    pub(crate) async fn follow_predecessor(&self, stream: UnixStream) {
        let (from, mut to) = stream.into_split();
        let predecessor = &self.inner.predecessor;
        let told = lock(&predecessor.waiting).take();
        let Some(mut told) = told else { return warn!("rejected second predecessor") };
        let speak = async {
            while let Some(word) = told.recv().await {
                if to.write_all(&word.to_bytes()).await.is_err() {
                    break;
                }
            }
            // Continues until the other half ends.
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = self.inner.receive_all(from) => {}
            () = speak => {}
        }
        info!("predecessor has ended");
        predecessor.lives.send_replace(false);
    }

    /// Returns true if changes can be persisted, or if there is no data directory.
    pub(crate) fn has_store(&self) -> bool {
        self.inner.settings.tasks.data_dir.is_none() || self.inner.ledger.is_enabled()
    }

    /// Notifies the predecessor that the listeners of this process accept connections.
    pub(crate) fn notify_serving(&self) {
        self.inner.predecessor.tell(SuccessorMessage::Serves);
    }

    /// Sends all persisted state to the process at the other end, from now on. The data directory
    /// is free for that process when `greet` is called, and nothing is sent on the stream before.
    /// Returns a receiver that turns true when that process serves. Waits for the disk.
    ///
    /// # Errors
    ///
    /// The I/O error; the caller must then call [`Gateway::resume_store`].
    pub(crate) fn hand_over_store(
        &self,
        stream: BlockingStream,
        greet: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<watch::Receiver<bool>> {
        let (serves, heard) = watch::channel(false);
        let inner = Arc::downgrade(&self.inner);
        let link = Store::over(stream, move |word| match word {
            SuccessorMessage::Serves => drop(serves.send_replace(true)),
            SuccessorMessage::Ended(session, expires) => end(&inner, session, expires),
            SuccessorMessage::Kept(_) => {}
        });
        let link = Arc::new(link.map_err(io::Error::other)?);
        let mut is_on_disk = false;
        link.while_held(|| {
            is_on_disk = self.inner.ledger.attach_store(Some(link.clone())) == Some(true);
            self.inner.directory.own_cards(false);
            greet()
        })?;
        self.inner.closing.hand_over();
        if !is_on_disk {
            tokio::spawn(self.inner.clone().send_all());
        }
        Ok(heard)
    }

    /// Persists changes in this process again: no process has taken over.
    pub(crate) async fn resume_store(&self) {
        let inner = self.inner.clone();
        let closed = tokio::task::spawn_blocking(move || inner.ledger.attach_store(None)).await;
        debug!(?closed, "no process has taken over, this process persists again");
        let inner = self.inner.clone();
        tokio::spawn(async move { inner.take_over_store().await });
    }
}

fn end(inner: &Weak<Inner>, session: [u8; 16], expires: u64) {
    if let Some(inner) = inner.upgrade() {
        inner.sessions.revoke(session, expires);
    }
}

impl Inner {
    /// Persists the end of a session, and notifies a process that may still serve it.
    pub(super) async fn keep_end(&self, session: &Session) {
        self.predecessor.tell(SuccessorMessage::Ended(session.key, session.expires()));
        self.ledger.note_session(self.sessions.row(session).0, None);
        let (key, value) = ended_row(session.key, session.expires());
        self.ledger.keep_session(key, value).await;
    }

    /// Persists the changes of a session, and waits for the disk.
    pub(super) async fn keep_session(&self, session: &Session) {
        let (key, value) = self.sessions.row(session);
        self.ledger.keep_session(key, value).await;
    }

    /// Queues the changes of a session for the disk.
    pub(super) fn note_session(&self, session: &Session) {
        let (key, value) = self.sessions.row(session);
        self.ledger.note_session(key, value);
    }

    /// Sends all state of this process, for a successor that cannot read it from disk.
    async fn send_all(self: Arc<Self>) {
        for (key, value) in self.sessions.rows() {
            self.ledger.note_session(key, value);
        }
        self.ledger.catch_up_slowly(&self.tasks, Timestamp::now()).await;
    }

    async fn receive_all(&self, from: OwnedReadHalf) {
        let mut from = BufReader::new(from);
        loop {
            match RowFrame::read(&mut from).await {
                Ok(Some(RowFrame::Row(table, key, value))) => self.learn(table, &key, value.as_deref()),
                Ok(Some(RowFrame::End)) => {
                    let kept = SuccessorMessage::Kept(self.has_kept().await);
                    if self.predecessor.words.send(kept).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return warn!(%error, "failed to read from predecessor"),
            }
        }
    }

    fn learn(&self, table: StoreTable, key: &[u8], value: Option<&[u8]>) {
        match (table, value) {
            (StoreTable::Tasks, Some(value)) => {
                let limit = self.settings.limits.artifacts;
                match self.ledger.learn(&self.tasks, value, limit, Timestamp::now()) {
                    Some(entry) => self.keep_for_later(entry),
                    None => warn!("failed to take over task of predecessor: no room, or not readable"),
                }
            }
            (StoreTable::Sessions, value) if self.sessions.learn(key, value, now()) => {
                self.ledger.note_session(key.to_vec(), value.map(<[u8]>::to_vec));
            }
            // A removed row: of a task that got an id, or one that this process removes in its own
            // time.
            (StoreTable::Tasks | StoreTable::Turns | StoreTable::Sessions, _) => {}
        }
    }

    /// Returns true if all received rows are safe on disk, or if there is no data directory.
    async fn has_kept(&self) -> bool {
        let deadline = Instant::now() + STORE_OPEN_TIMEOUT;
        while self.settings.tasks.data_dir.is_some() && !self.ledger.is_enabled() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.ledger.is_safe().await
    }
}
