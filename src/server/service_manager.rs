//! Reports to the service manager that starts the process (`sd_notify(3)`): that requests are
//! served, and after an upgrade which process is the main one.
//!
//! Without the variable `NOTIFY_SOCKET` nothing is sent and nothing is written.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt as _;
#[cfg(target_os = "linux")]
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The variable with the address of the service manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
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
        let socket = std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty());
        Self { socket, directory, takes_over }
    }

    /// Reports that this process serves requests, with one line for people. A successor reports that it
    /// is the main process from now on, and writes its id to the directory of upgrades, so that the
    /// command that started it knows when it is done.
    pub(crate) fn notify_serving(&self, status: &str) {
        let Some(socket) = &self.socket else { return };
        let id = std::process::id();
        let main = if self.takes_over { format!("MAINPID={id}\n") } else { String::new() };
        if let Err(error) = send(socket, format!("{main}READY=1\nSTATUS={status}\n").as_bytes()) {
            tracing::error!(%error, "failed to notify service manager");
        }
        let written = self.directory.as_deref().map(|directory| write_id(directory, id));
        if let Some(Err(error)) = written {
            tracing::warn!(%error, "failed to write process id");
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
fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        return sender.send_to_addr(message, &SocketAddr::from_abstract_name(name)?).map(drop);
    }
    sender.send_to(message, socket).map(drop)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn abstract_socket_gets_message() {
        let name = format!("mcp-a2a-gateway-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), b"READY=1").unwrap();
        let mut message = [0; 16];
        let length = manager.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
    }
}
