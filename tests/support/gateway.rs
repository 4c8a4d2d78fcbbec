//! The real gateway: the binary as a child process, on ports of its own, with a configuration of
//! the test's.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::McpClient;
use super::{PATIENCE, ScriptedAgent, in_time};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");
/// How often a start is tried again when another process took a port in between.
const ATTEMPTS: usize = 5;
/// Between two looks at another process, where there is nothing to wait on.
const POLL: Duration = Duration::from_millis(20);

/// Runs until dropped.
pub struct TestGateway {
    child: Child,
    ports: Ports,
    output: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    directory: TempDir,
}

/// Where this gateway is to listen and where its files are; goes into its configuration.
#[derive(Clone, Debug)]
pub struct Ports {
    pub main: u16,
    pub admin: u16,
    /// For a second listener.
    pub other: u16,
    /// Empty, and gone with the gateway: for certificates and other files that the configuration
    /// names.
    pub directory: PathBuf,
}

impl Ports {
    /// The lines that every configuration begins with: one plain listener and the admin listener.
    pub fn listeners(&self) -> String {
        let Self { main, admin, .. } = self;
        format!("listeners:\n  - address: 127.0.0.1:{main}\nadmin:\n  address: 127.0.0.1:{admin}\n")
    }

    fn pick(directory: &Path) -> Self {
        let [main, admin, other] = [(); 3].map(|()| free_port());
        Self { main, admin, other, directory: directory.to_owned() }
    }
}

/// Below the ports that systems give to outgoing connections, so that none of those takes it
/// meanwhile.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago, another one each time: Pingora cannot tell which one it got
/// for 0.
pub fn free_port() -> u16 {
    // Test processes that run side by side begin at different places.
    let begin = std::process::id().wrapping_mul(2_654_435_761);
    let count = u32::from(PORTS.end - PORTS.start);
    for _ in 0..count {
        let next = begin.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + u16::try_from(next).expect("fits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

impl TestGateway {
    /// The gateway before these agents, with defaults for everything else.
    pub async fn before(agents: &[(&str, &ScriptedAgent)]) -> Self {
        let agents: String = agents
            .iter()
            .map(|(name, agent)| format!("  {name}:\n    card: {}\n", agent.card_url()))
            .collect();
        Self::start(|ports| format!("{}agents:\n{agents}", ports.listeners())).await
    }

    /// The gateway with this configuration.
    pub async fn start(config: impl Fn(&Ports) -> String) -> Self {
        Self::start_with(&[], config).await
    }

    /// The same with environment variables. Waits until it is ready; fails with what it printed if
    /// it does not become so.
    pub async fn start_with(environment: &[(&str, &str)], config: impl Fn(&Ports) -> String) -> Self {
        let mut attempt = 1;
        loop {
            let mut gateway = Self::launch(environment, &config);
            match gateway.wait_until_ready().await {
                Ok(()) => return gateway,
                Err(problem) if attempt < ATTEMPTS && gateway.lost_its_port() => {
                    eprintln!("attempt {attempt}: {problem}");
                    attempt += 1;
                }
                Err(problem) => panic!("{problem}; it printed:\n{}", gateway.output()),
            }
        }
    }

    /// The gateway with this configuration, in a process with these options of `ulimit`.
    pub async fn start_with_open_files(options: &str, config: impl Fn(&Ports) -> String) -> Self {
        Self::start_in_shell(&format!("ulimit {options}"), config).await
    }

    /// The gateway with this configuration, in the process of a shell that has run these commands.
    pub async fn start_in_shell(commands: &str, config: impl Fn(&Ports) -> String) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{commands}; exec \"$0\" \"$@\""), BINARY]);
        let mut gateway = Self::launch_by(shell, config);
        gateway.wait_until_ready().await.unwrap_or_else(|problem| panic!("{problem}: {}", gateway.output()));
        gateway
    }

    fn launch(environment: &[(&str, &str)], config: impl Fn(&Ports) -> String) -> Self {
        let mut command = Command::new(BINARY);
        command.envs(environment.iter().copied());
        Self::launch_by(command, config)
    }

    /// A second process on the ports of this one, which is to take its sockets over. It is not
    /// ready before it has them.
    pub fn successor(&self, config: impl Fn(&Ports) -> String) -> Self {
        self.successor_with(&[], config)
    }

    /// The same with environment variables.
    pub fn successor_with(&self, environment: &[(&str, &str)], config: impl Fn(&Ports) -> String) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let ports = Ports { directory: directory.path().to_owned(), ..self.ports.clone() };
        let mut command = Command::new(BINARY);
        command.envs(environment.iter().copied());
        Self::launch_at((directory, ports), command, &["--upgrade"], config)
    }

    fn launch_by(command: Command, config: impl Fn(&Ports) -> String) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let ports = Ports::pick(directory.path());
        Self::launch_at((directory, ports), command, &[], config)
    }

    fn launch_at(
        (directory, ports): (TempDir, Ports),
        mut command: Command,
        more: &[&str],
        config: impl Fn(&Ports) -> String,
    ) -> Self {
        let file = directory.path().join("gateway.yaml");
        std::fs::write(&file, config(&ports)).expect("a configuration file");
        let mut child = command
            .args(["serve", "--config"])
            .arg(&file)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = Arc::new(Mutex::new(String::new()));
        let readers = vec![
            collect("out", child.stdout.take().expect("stdout"), &output),
            collect("err", child.stderr.take().expect("stderr"), &output),
        ];
        Self { child, ports, output, readers, directory }
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let admin = McpClient::new(&self.admin_url("/readyz"));
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the child's status") {
                self.join_readers();
                return Err(format!("the gateway ended with {status} before it was ready"));
            }
            if self.lost_its_port() {
                return Err("somebody took its port".to_owned());
            }
            if let Ok(Ok(answer)) =
                tokio::time::timeout(Duration::from_secs(2), admin.try_send("GET", &[], Vec::new())).await
                && answer.status == 200
                && self.listens().await
            {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(format!("the gateway was not ready within {PATIENCE:?}"))
    }

    /// Each listener binds its own socket, so that the admin listener can be there before the
    /// others.
    async fn listens(&self) -> bool {
        tokio::net::TcpStream::connect(self.address()).await.is_ok()
    }

    fn lost_its_port(&self) -> bool {
        let output = self.output();
        ["ddress already in use", "AddrInUse", "is in use, will try again"]
            .iter()
            .any(|sign| output.contains(sign))
    }

    /// A client of `/mcp`.
    pub fn client(&self) -> McpClient {
        McpClient::new(&self.url("/mcp"))
    }

    /// A client of `/mcp/{agent}`.
    pub fn client_of(&self, agent: &str) -> McpClient {
        McpClient::new(&self.url(&format!("/mcp/{agent}")))
    }

    pub fn admin(&self) -> McpClient {
        McpClient::new(&self.admin_url("/"))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports.main)
    }

    pub fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports.admin)
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports.main).into()
    }

    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Memory that the process holds now, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// The most memory that the process has held so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
        line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
    }

    /// The text of the metrics page.
    pub async fn metrics(&self) -> String {
        self.admin().at("/metrics").get(&[]).await.text().await
    }

    /// Its output so far, both streams, each line marked `out` or `err`.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Asks it to end (SIGTERM) and waits until it did; the code, if it ended by itself.
    pub async fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.ended().await
    }

    /// Waits until it has ended; the code, if it ended by itself.
    pub async fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the child's status") {
                self.join_readers();
                return status.code();
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("the gateway did not end within {PATIENCE:?}; it printed:\n{}", self.output());
    }

    /// Sends it a signal by name: `TERM`, `HUP`, `QUIT`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(&id).status();
        assert!(sent.expect("kill runs").success(), "kill -{name} {id}");
    }

    /// Waits until it has printed this.
    pub async fn wait_for_output(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.output().contains(text) {
            assert!(Instant::now() < deadline, "never printed: {text}; it printed:\n{}", self.output());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Runs the binary to its end, for the commands that are not `serve`.
    pub async fn run_command(arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).stdin(Stdio::null());
        // Not on this thread: the command may call an agent that lives here.
        let run = tokio::task::spawn_blocking(move || command.output());
        in_time("the command to end", run).await.expect("no panic").expect("the binary runs")
    }

    /// Runs a command with `--config` and a file of this content.
    pub async fn run_with_config(command: &str, config: &str) -> Output {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("gateway.yaml");
        std::fs::write(&file, config).expect("a configuration file");
        Self::run_command(&[command, "--config", file.to_str().expect("a UTF-8 path")]).await
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader");
        }
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
        if std::thread::panicking() {
            eprintln!("the gateway printed:\n{}", self.output());
        }
    }
}

fn collect(
    name: &'static str,
    from: impl Read + Send + 'static,
    into: &Arc<Mutex<String>>,
) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut into = into.lock().unwrap();
            into.push_str(name);
            into.push_str(": ");
            into.push_str(&line);
            into.push('\n');
        }
    })
}
