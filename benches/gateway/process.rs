//! The processes besides the load: started, measured through `/proc`, ended with this one.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tokio::signal::unix::{SignalKind, signal};

/// A process that ends with its owner.
pub(crate) struct Process {
    child: Child,
    /// The port on which it listens on loopback.
    pub(crate) port: u16,
}

/// Under callgrind a start takes some seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// `utime` and `stime` are counted in these, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// Starts this program once more, in another role. Its arguments are the role, the port, and
    /// `words`.
    pub(crate) fn role(role: &str, words: &[String]) -> Self {
        let port = free_port();
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(role).arg(port.to_string()).args(words);
        Self::start(command, port)
    }

    /// Starts the gateway, with a configuration that makes it listen on `port`.
    pub(crate) fn gateway(config: &Path, port: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-a2a-gateway"));
        command.arg("serve").arg("--config").arg(config);
        Self::start(command, port)
    }

    /// Starts the gateway with a reader of its log that takes every line.
    pub(crate) fn quiet_gateway(config: &Path, port: u16) -> Self {
        Self::other_gateway(env!("CARGO_BIN_EXE_mcp-a2a-gateway"), config, port)
    }

    /// Starts another binary of the gateway, as the one of this build is started.
    pub(crate) fn other_gateway(binary: &str, config: &Path, port: u16) -> Self {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(config).stderr(Stdio::null());
        Self::start(command, port)
    }

    /// Starts the gateway under callgrind, which writes profiles to `profile` with a number appended.
    pub(crate) fn counted(config: &Path, port: u16, profile: &Path) -> Self {
        let mut command = Command::new("valgrind");
        command
            .arg("--tool=callgrind")
            .arg("--quiet")
            .arg(format!("--callgrind-out-file={}", profile.display()));
        command.arg(env!("CARGO_BIN_EXE_mcp-a2a-gateway")).arg("serve").arg("--config").arg(config);
        Self::start(command, port)
    }

    /// Starts nginx, with a configuration that makes it listen on `port` and be one process. `None`
    /// if it is not installed.
    pub(crate) fn nginx(config: &Path, port: u16) -> Option<Self> {
        let program =
            ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|program| Path::new(program).exists())?;
        let mut command = Command::new(program);
        command.arg("-c").arg(config);
        Some(Self::start(command, port))
    }

    fn start(mut command: Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut process = Self { child, port };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < until, "{command:?} does not listen");
            assert_eq!(process.child.try_wait().unwrap(), None, "{command:?} has ended");
            thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time so far, in seconds: user and system, of all threads.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        // The name in parentheses may contain anything; utime and stime are the 12th and 13th field
        // after it.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u32 = fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u32>().unwrap()).sum();
        f64::from(ticks) / TICKS_PER_SECOND
    }

    /// Returns the resident memory, in MiB.
    pub(crate) fn resident(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may be gone already: then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits for a signal to end, so that the other processes are ended too and not left behind.
pub(crate) async fn told_to_end() {
    let [mut terminate, mut interrupt] =
        [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).unwrap());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Returns a port without a listener.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
