//! Hands the sockets to a successor: in a directory of the gateway's own user, after the successor
//! has reported ready.
//!
//! Pingora passes the sockets to any process that listens on the path that it is given. So the
//! successor listens on a second socket beside that one, and once it could serve (its agents' cards
//! have been fetched), it reports there the addresses that it takes. The process that must end
//! connects on SIGQUIT, checks the user and the addresses of the process at the other end, releases
//! the data directory, and only then leaves the rest to Pingora. The connection stays: over it the
//! successor receives changes until the other ends, and reports that it accepts connections (see
//! `gateway::succession`).
//!
//! The service manager that started the process learns (`sd_notify(3)`) that requests are served,
//! and after an upgrade which process is the main one. Without the variable `NOTIFY_SOCKET` nothing
//! is sent and nothing is written.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Write as _};
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use nix::unistd::geteuid;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, error, info, warn};

use super::end_process;
use crate::gateway::Gateway;

/// The socket on which Pingora passes descriptors.
const SOCKETS: &str = "sockets.sock";
/// The socket on which the successor reports.
const READY: &str = "ready.sock";
/// The maximum length of a path of a socket, on Linux.
const MAX_SOCKET_PATH: usize = 107;
/// Begins the report of a successor; its addresses follow, one line ends it.
const REPORT: &str = "mcp-a2a-gateway ready";
/// A word of the report: the connection may stay, and the successor applies the changes sent on it.
const LEARNS: &str = "learns";
/// Answers the report.
const ACCEPTED: &[u8] = b"accepted\n";
/// The time for which a process that must end searches a successor, which may have been started at
/// the same moment.
const SEARCH: Duration = Duration::from_secs(15);
/// The time for which a successor waits for its agents' cards. An agent that is down is no reason
/// to stay.
const CARDS: Duration = Duration::from_secs(8);
/// The time for which a successor waits until the other process has released the data directory.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(15);
/// The time for which it waits until the data directory is read. More would keep Pingora waiting
/// for too long.
const OPENED: Duration = Duration::from_secs(3);
/// The interval of repeated checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which one side waits for a line of the other.
const ANSWER: Duration = Duration::from_secs(5);
/// The time for which a successor waits for the process that must end.
const WAIT: Duration = Duration::from_secs(60);

/// The reason for which sockets are not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeProblem {
    /// The directory could be written by others, or they could put another in its place.
    #[error("{}: {why} (see upgrade.directory)", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason, with the remedy.
        why: String,
    },
    /// A socket cannot be used.
    #[error("{}: {error}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// No process listens as a successor.
    #[error("no process waits for the sockets (start it with serve --upgrade)")]
    NoSuccessor,
    /// No process has offered its sockets.
    #[error("no process has offered its sockets within {} s (send SIGQUIT to the one that is to end)", WAIT.as_secs())]
    NoOffer,
    /// The process on the other side is another user's.
    #[error("the process at the other end runs as another user (uid {0})")]
    OtherUser(u32),
    /// The process that waits does not report ready.
    #[error("the process that waits for the sockets does not report ready")]
    NotReady,
    /// The process that connected did not accept the report.
    #[error("the process that asked does not offer its sockets")]
    NotOffered,
    /// The successor would leave a socket without a process that accepts.
    #[error("the process that waits for the sockets does not listen on {0}")]
    OtherAddresses(SocketAddr),
}

/// Turns true when the successor accepts connections.
pub(super) type Serves = watch::Receiver<bool>;

/// The state of both sides of an upgrade.
#[derive(Debug, Clone)]
pub(super) struct UpgradeCoordinator {
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
}

/// Takes the sockets over. Listeners of the successor start after it.
pub(super) struct SocketTakeover {
    /// The gateway, which becomes ready meanwhile.
    pub(super) gateway: Gateway,
    /// The directory in which the processes meet.
    pub(super) upgrade: UpgradeCoordinator,
}

#[async_trait]
impl BackgroundService for SocketTakeover {
    async fn start_with_ready_notifier(&self, _: ShutdownWatch, notifier: ServiceReadyNotifier) {
        let ready = async {
            while !self.gateway.is_ready() {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(CARDS, ready).await.is_err() {
            warn!("taking over sockets without the cards of some agents");
        }
        let stream = match self.upgrade.report_ready().await {
            Ok(stream) => stream,
            Err(problem) => {
                // As Pingora ends, if it gets no sockets.
                error!(error = %problem, "failed to take over sockets");
                end_process(1);
            }
        };
        let gateway = self.gateway.clone();
        let learnt = tokio::spawn(async move { gateway.follow_predecessor(stream).await });
        let opened = async {
            while !self.gateway.has_store() {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(OPENED, opened).await.is_err() {
            warn!("accepting requests before the data directory is read");
        }
        notifier.notify_ready();
        if let Err(error) = learnt.await {
            warn!(%error, "failed to receive changes of the predecessor");
        }
    }
}

/// Reports that connections are accepted. Starts once the sockets are there.
pub(super) struct Serving {
    pub(super) gateway: Gateway,
    /// Turns true then.
    pub(super) is_serving: Arc<AtomicBool>,
}

#[async_trait]
impl BackgroundService for Serving {
    async fn start(&self, _: ShutdownWatch) {
        self.gateway.notify_serving();
        self.is_serving.store(true, Ordering::Release);
    }
}

impl UpgradeCoordinator {
    /// Creates it for a process with these addresses; `directory` is the operator's choice.
    pub(super) fn new(directory: Option<PathBuf>, addresses: Vec<SocketAddr>) -> Self {
        let own = || {
            let temporary = std::env::temp_dir();
            let temporary = temporary.canonicalize().unwrap_or(temporary);
            temporary.join(format!("mcp-a2a-gateway-{}", geteuid()))
        };
        Self { directory: directory.unwrap_or_else(own), addresses }
    }

    /// Returns the addresses of this process.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the path on which Pingora passes the sockets.
    pub(super) fn sockets(&self) -> PathBuf {
        self.directory.join(SOCKETS)
    }

    /// Creates the directory, if it does not exist, and checks it.
    ///
    /// # Errors
    ///
    /// [`UpgradeProblem::Directory`] if other users could write there.
    pub(super) fn prepare(&mut self) -> Result<(), UpgradeProblem> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.refused(format!("cannot be made: {error}"))),
        }
        self.directory = self.checked()?;
        Ok(())
    }

    /// Waits until the process that must end has accepted the report that this one is ready. It
    /// passes its sockets at once then.
    ///
    /// # Errors
    ///
    /// [`UpgradeProblem`] if none does so in time.
    async fn report_ready(&self) -> Result<UnixStream, UpgradeProblem> {
        let path = self.checked()?.join(READY);
        let failed = |error| UpgradeProblem::Socket { path: path.clone(), error };
        // An earlier process may have left them; the directory is this user's alone.
        [&self.sockets(), &path].into_iter().try_for_each(|path| remove(path)).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        info!(path = %path.display(), "waiting for the sockets of the predecessor");
        let deadline = Instant::now() + WAIT;
        let outcome = loop {
            match timeout_at(deadline, listener.accept()).await {
                Err(_) => break Err(UpgradeProblem::NoOffer),
                Ok(Err(error)) => break Err(failed(error)),
                Ok(Ok((stream, _))) => match self.report(stream).await {
                    Ok(stream) => break Ok(stream),
                    Err(problem) => warn!(error = %problem, "failed to get an offer of sockets"),
                },
            }
        };
        remove(&path).map_err(failed)?;
        outcome
    }

    /// Reports ready to one process; returns the stream if it accepts that.
    async fn report(&self, mut stream: UnixStream) -> Result<UnixStream, UpgradeProblem> {
        check_peer(&stream)?;
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let report = format!("{REPORT} {} {LEARNS}\n", addresses.join(" "));
        let mut answer = [0; ACCEPTED.len()];
        let exchange = async {
            stream.write_all(report.as_bytes()).await?;
            stream.read_exact(&mut answer).await
        };
        match timeout(ACCEPTED_WITHIN, exchange).await {
            Ok(Ok(_)) if answer == ACCEPTED => Ok(stream),
            Ok(_) | Err(_) => Err(UpgradeProblem::NotOffered),
        }
    }

    /// Finds a successor that is ready, and accepts it: the data directory belongs to it from then
    /// on. Returns the receiver of its report that it accepts connections, if it sends one.
    ///
    /// # Errors
    ///
    /// [`UpgradeProblem`] is the reason for which the sockets stay here.
    pub(super) async fn accept_successor(&self, gateway: &Gateway) -> Result<Option<Serves>, UpgradeProblem> {
        let mut stream = self.find_successor().await?;
        check_peer(&stream)?;
        let report = timeout(ANSWER, line(&mut stream)).await.ok().flatten();
        let report = report.ok_or(UpgradeProblem::NotReady)?;
        let addresses = report.strip_prefix(REPORT).ok_or(UpgradeProblem::NotReady)?;
        let taken: Vec<SocketAddr> =
            addresses.split(' ').filter_map(|address| address.parse().ok()).collect();
        if let Some(left) = self.addresses.iter().find(|address| !taken.contains(address)) {
            return Err(UpgradeProblem::OtherAddresses(*left));
        }
        let serves = if addresses.split(' ').any(|word| word == LEARNS) {
            Some(hand_over_store(stream, gateway).await?)
        } else {
            let accepted = timeout(ANSWER, stream.write_all(ACCEPTED)).await;
            accepted.ok().and_then(Result::ok).ok_or(UpgradeProblem::NotReady)?;
            None
        };
        // Pingora tries again a second later, if it comes too early.
        let until = Instant::now() + ANSWER;
        while !self.sockets().exists() && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
        }
        Ok(serves)
    }

    async fn find_successor(&self) -> Result<UnixStream, UpgradeProblem> {
        let deadline = Instant::now() + SEARCH;
        loop {
            if self.directory.exists() {
                match UnixStream::connect(self.checked()?.join(READY)).await {
                    Ok(stream) if !is_own(&stream) => return Ok(stream),
                    Ok(_) => return Err(UpgradeProblem::NoSuccessor),
                    Err(error) => debug!(%error, "failed to connect to successor"),
                }
            }
            if Instant::now() >= deadline {
                return Err(UpgradeProblem::NoSuccessor);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the directory without symbolic links, if no other user can write there or above.
    fn checked(&self) -> Result<PathBuf, UpgradeProblem> {
        resolved(&self.directory, geteuid().as_raw()).map_err(|why| self.refused(why))
    }

    fn refused(&self, why: String) -> UpgradeProblem {
        UpgradeProblem::Directory { path: self.directory.clone(), why }
    }
}

/// Releases the data directory, accepts the successor, and sends it from then on the changes to
/// persist.
async fn hand_over_store(stream: UnixStream, gateway: &Gateway) -> Result<Serves, UpgradeProblem> {
    let giver = gateway.clone();
    let pass = move || {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut greeted = stream.try_clone()?;
        giver.hand_over_store(stream, || greeted.write_all(ACCEPTED))
    };
    match tokio::task::spawn_blocking(pass).await {
        Ok(Ok(serves)) => Ok(serves),
        failed => {
            warn!(error = ?failed, "failed to hand over to successor");
            gateway.resume_store().await;
            Err(UpgradeProblem::NotReady)
        }
    }
}

fn resolved(directory: &Path, user: u32) -> Result<PathBuf, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    let found = fs::symlink_metadata(directory).map_err(unreadable)?;
    if !found.is_dir() {
        return Err("is no directory (a symbolic link to one is refused)".to_owned());
    }
    if found.uid() != user {
        return Err(format!("belongs to another user (uid {}, not {user})", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("is open to other users (mode {:o}; run chmod 700)", found.mode() & 0o7777));
    }
    let resolved = directory.canonicalize().map_err(unreadable)?;
    for above in resolved.ancestors().skip(1) {
        let found = fs::symlink_metadata(above).map_err(unreadable)?;
        if is_open(&found, user) {
            return Err(format!("lies in {}, where other users may write", above.display()));
        }
    }
    let length = resolved.join(SOCKETS).as_os_str().as_bytes().len();
    if length > MAX_SOCKET_PATH {
        return Err(format!("has too long a path for a socket ({length} bytes of {MAX_SOCKET_PATH})"));
    }
    Ok(resolved)
}

/// Returns true if another user could replace an entry of this directory.
fn is_open(directory: &Metadata, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    let is_own = directory.uid() == user || directory.uid() == 0;
    !is_own || (directory.mode() & 0o022 != 0 && directory.mode() & STICKY == 0)
}

/// Returns true if this process is at both ends: it waits for sockets itself.
fn is_own(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    peer.and_then(|peer| u32::try_from(peer).ok()) == Some(std::process::id())
}

/// Accepts a process of this user, or of root, as the peer.
fn check_peer(stream: &UnixStream) -> Result<(), UpgradeProblem> {
    let peer = stream.peer_cred().map_err(|_| UpgradeProblem::NotReady)?.uid();
    if peer == 0 || peer == geteuid().as_raw() { Ok(()) } else { Err(UpgradeProblem::OtherUser(peer)) }
}

/// Reads one line of a peer, without its end.
async fn line(stream: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    while line.len() < 4096 {
        match stream.read_u8().await.ok()? {
            b'\n' => return String::from_utf8(line).ok(),
            byte => line.push(byte),
        }
    }
    None
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The variable with the address of the service manager's socket.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The file in `upgrade.directory` with the id of the process that serves.
const PROCESS_ID: &str = "main.pid";

/// The service manager of this process, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<OsString>,
    /// The directory of the operator's choice in which the processes of an upgrade meet.
    directory: Option<PathBuf>,
    /// True if the process takes the sockets of another over.
    takes_over: bool,
}

impl ServiceManager {
    /// Finds the service manager in the environment.
    pub(super) fn new(directory: Option<PathBuf>, takes_over: bool) -> Self {
        let socket = std::env::var_os(NOTIFY_SOCKET).filter(|socket| !socket.is_empty());
        Self { socket, directory, takes_over }
    }

    /// Reports that this process serves requests, with one line for people. A successor reports that it
    /// is the main process from now on, and writes its id to the directory of upgrades, so that the
    /// command that started it knows when it is done.
    pub(crate) fn notify_serving(&self, status: &str) {
        let Some(socket) = &self.socket else { return };
        let id = std::process::id();
        let main = if self.takes_over { format!("MAINPID={id}\n") } else { String::new() };
        if let Err(error) = notify(socket, format!("{main}READY=1\nSTATUS={status}\n").as_bytes()) {
            error!(%error, "failed to notify service manager");
        }
        let written = self.directory.as_deref().map(|directory| write_id(directory, id));
        if let Some(Err(error)) = written {
            warn!(%error, "failed to write process id");
        }
    }
}

/// Replaces the file in one step: a reader finds a whole id.
fn write_id(directory: &Path, id: u32) -> io::Result<()> {
    let written = directory.join(format!("{PROCESS_ID}.{id}"));
    fs::write(&written, format!("{id}\n"))?;
    fs::rename(written, directory.join(PROCESS_ID))
}

/// Sends one message; an address that begins with `@` is in the abstract namespace.
fn notify(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        return sender
            .send_to_addr(message, &std::os::unix::net::SocketAddr::from_abstract_name(name)?)
            .map(drop);
    }
    sender.send_to(message, socket).map(drop)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn abstract_socket_gets_message() {
        let name = format!("mcp-a2a-gateway-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notify(OsStr::new(&format!("@{name}")), b"READY=1").unwrap();
        let mut message = [0; 16];
        let length = manager.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
    }
}
