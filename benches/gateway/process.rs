//! The processes besides the load: started, measured through `/proc`, ended with this one.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tokio::signal::unix::{SignalKind, signal};

use super::options::Options;

/// A process that ends with its owner.
pub(crate) struct Process {
    child: Child,
    /// True for a gateway that must end by itself, as it writes its profile then.
    writes_profile: bool,
    /// The port on which it listens on loopback.
    pub(crate) port: u16,
}

/// Under callgrind a start takes some seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// Environment variable of LLVM: the file to which an instrumented binary writes its profile at exit (`deploy/build`).
const PROFILE_FILE: &str = "LLVM_PROFILE_FILE";
/// `utime` and `stime` are counted in these, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// Starts this program once more, in another role. Its arguments are the role, the port, and
    /// `words`.
    pub(crate) fn role(role: &str, words: &[impl AsRef<OsStr>]) -> Self {
        let port = free_port();
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(role).arg(port.to_string()).args(words);
        Self::start(command, port)
    }

    /// Starts the gateway, with a configuration that makes it listen on `port`.
    pub(crate) fn gateway(config: &Path, port: u16) -> Self {
        let mut command = Command::new(gateway_binary());
        command.arg("serve").arg("--config").arg(config);
        Self::start(command, port).ending_by_itself()
    }

    /// Starts the gateway with a reader of its log that takes every line.
    pub(crate) fn quiet_gateway(config: &Path, port: u16) -> Self {
        Self::other_gateway(&gateway_binary(), config, port)
    }

    /// Starts another binary of the gateway, as the one of this build is started.
    pub(crate) fn other_gateway(binary: &str, config: &Path, port: u16) -> Self {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(config).stderr(Stdio::null());
        Self::start(command, port).ending_by_itself()
    }

    fn ending_by_itself(mut self) -> Self {
        self.writes_profile = env::var_os(PROFILE_FILE).is_some();
        self
    }

    /// Starts the gateway under callgrind, which writes profiles to `profile` with a number appended.
    pub(crate) fn counted(config: &Path, port: u16, profile: &Path) -> Self {
        let mut command = Command::new("valgrind");
        command
            .arg("--tool=callgrind")
            .arg("--quiet")
            .arg(format!("--callgrind-out-file={}", profile.display()));
        command.arg(gateway_binary()).arg("serve").arg("--config").arg(config);
        // The access log is written to it.
        command.stderr(Stdio::null());
        Self::start(command, port)
    }

    /// Starts the agent; its answers have a text of `text_bytes`.
    pub(crate) fn agent(options: &Options) -> Self {
        Self::role("agent", &[options.text_bytes.to_string(), options.event_pause().to_string()])
    }

    /// Starts the agent with the certificates in this folder.
    pub(crate) fn tls_agent(options: &Options, folder: &Path) -> Self {
        let version = if options.is_http2 { "h2" } else { "h1" };
        let (text_bytes, pause) = (options.text_bytes.to_string(), options.event_pause().to_string());
        Self::role("agent", &[&*text_bytes, &*pause, version, &*folder.to_string_lossy()])
    }

    /// Starts nginx, with a configuration that makes it listen on `port` and be one process. `None`
    /// if it is not installed.
    pub(crate) fn nginx(config: &Path, port: u16) -> Option<Self> {
        let mut command = Self::installed(&["/usr/sbin/nginx", "/usr/bin/nginx"])?;
        command.arg("-c").arg(config);
        Some(Self::start(command, port))
    }

    /// Starts HAProxy, with a configuration that makes it listen on `port` and be one process. `None`
    /// if it is not installed.
    pub(crate) fn haproxy(config: &Path, port: u16) -> Option<Self> {
        let mut command = Self::installed(&["/usr/sbin/haproxy", "/usr/bin/haproxy"])?;
        command.arg("-q").arg("-db").arg("-f").arg(config);
        Some(Self::start(command, port))
    }

    fn installed(paths: &[&str]) -> Option<Command> {
        paths.iter().find(|path| Path::new(path).exists()).map(Command::new)
    }

    /// Starts the gateway and does not wait until it listens.
    pub(crate) fn spawn_gateway(config: &Path, port: u16) -> Self {
        let mut command = Command::new(gateway_binary());
        command.arg("serve").arg("--config").arg(config).stderr(Stdio::null());
        Self::spawn(&mut command, port)
    }

    fn spawn(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { child, writes_profile: false, port }
    }

    fn start(mut command: Command, port: u16) -> Self {
        let mut process = Self::spawn(&mut command, port);
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
        self.user_and_system_cpu().iter().sum()
    }

    /// Returns the CPU time so far, in seconds, of all threads: in user space, and in the system.
    pub(crate) fn user_and_system_cpu(&self) -> [f64; 2] {
        let stat = self.proc("stat");
        // The name in parentheses may contain anything; utime and stime are the 12th and 13th field
        // after it.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let mut ticks = fields.split_whitespace().skip(11).map(|ticks| ticks.parse::<u32>().unwrap());
        [(); 2].map(|()| f64::from(ticks.next().unwrap()) / TICKS_PER_SECOND)
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
        if self.writes_profile {
            // The shell has the command where no package does.
            let told = Command::new("sh").arg("-c").arg(format!("kill {}", self.child.id())).status();
            assert!(told.is_ok_and(|told| told.success()), "the gateway has ended before its time");
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        // The process may be gone already: then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the binary of the gateway: that of the variable `BENCH_GATEWAY`, else that of this build.
pub(crate) fn gateway_binary() -> String {
    let given = env::var("BENCH_GATEWAY").ok().filter(|given| !given.is_empty());
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_mcp-a2a-gateway").to_owned())
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
