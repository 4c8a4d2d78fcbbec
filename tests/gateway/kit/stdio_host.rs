//! A host that starts the gateway as a process and speaks to it over its standard streams.
//!
//! Each line of standard output must be a message. Out of scope: the listeners (see
//! `tests/support/gateway.rs`).

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{ScriptedAgent, in_time};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");
const POLL: Duration = Duration::from_millis(10);
/// The revision of the modern era.
const MODERN: &str = "2026-07-28";

/// Runs the gateway until it is dropped.
pub(crate) struct StdioHost {
    child: Child,
    input: Option<ChildStdin>,
    /// Messages of the gateway, once they are read.
    messages: UnboundedReceiver<Value>,
    /// Messages that no test has asked for yet.
    passed: VecDeque<Value>,
    log: Arc<Mutex<String>>,
    last_id: u64,
    capabilities: Value,
    unread: Option<ChildStdout>,
    _directory: TempDir,
}

impl StdioHost {
    /// The gateway before the agent `bard`, with more lines at the top of its configuration.
    pub(crate) fn before(agent: &ScriptedAgent, settings: &str) -> Self {
        Self::with_config(&format!("{settings}\nagents: {{ bard: {{ card: \"{}\" }} }}\n", agent.card_url()))
    }

    /// The gateway with this configuration.
    pub(crate) fn with_config(config: &str) -> Self {
        let mut host = Self::unread(config);
        host.read();
        host
    }

    /// The gateway with these arguments.
    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        let mut host = Self::launch(TempDir::new().unwrap(), arguments);
        host.read();
        host
    }

    /// The same, with a host that does not read.
    pub(crate) fn unread(config: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("gateway.yaml");
        std::fs::write(&file, config).unwrap();
        Self::launch(directory, &["--config", file.to_str().unwrap()])
    }

    fn launch(directory: TempDir, arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.arg("stdio").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (into, mut from) = (log.clone(), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        Self {
            input: child.stdin.take(),
            unread: child.stdout.take(),
            child,
            messages: unbounded_channel().1,
            passed: VecDeque::new(),
            log,
            last_id: 0,
            capabilities: json!({}),
            _directory: directory,
        }
    }

    /// Reads standard output from now on.
    pub(crate) fn read(&mut self) {
        let (tell, messages) = unbounded_channel();
        let output = BufReader::new(self.unread.take().expect("read once"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "no message": line }));
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        self.messages = messages;
    }

    /// Closes standard output at the end of the host.
    pub(crate) fn close_output(&mut self) {
        self.unread = None;
    }

    /// Declares these capabilities from now on.
    pub(crate) fn declare(&mut self, capabilities: Value) {
        self.capabilities = capabilities;
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Everything on standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the gateway has logged this.
    pub(crate) async fn wait_for_log(&self, text: &str) {
        let logged = async {
            while !self.log().contains(text) {
                tokio::time::sleep(POLL).await;
            }
        };
        in_time(text, logged).await;
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("an open input");
        input.write_all(bytes).and_then(|()| input.flush()).unwrap();
    }

    /// Takes standard input, to write on another thread.
    pub(crate) fn take_input(&mut self) -> ChildStdin {
        self.input.take().expect("an open input")
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Cancels the request with this id.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    }

    /// Sends a request of the session, and returns its id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Sends a request of the modern era, and returns its id.
    pub(crate) fn ask_modern(&mut self, method: &str, mut params: Value) -> u64 {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        if let Some(own) = params["_meta"].as_object() {
            meta.as_object_mut().unwrap().extend(own.clone());
        }
        params["_meta"] = meta;
        self.ask(method, params)
    }

    /// Begins a session of this revision, and returns the result of `initialize`.
    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let client = json!({ "name": "test-host", "version": "1" });
        let capabilities = self.capabilities.clone();
        let params =
            json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
        let id = self.ask("initialize", params);
        let result = self.result(id).await;
        self.notify("notifications/initialized", json!({}));
        result
    }

    /// Waits for the first message that fulfils the condition; the others stay.
    pub(crate) async fn message(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&is_wanted) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let next = in_time("a message", self.messages.recv()).await;
            let message =
                next.unwrap_or_else(|| panic!("the output ended; {:?}; {}", self.passed, self.log()));
            assert!(message.is_array() || message["jsonrpc"] == "2.0", "{message}");
            if is_wanted(&message) {
                return message;
            }
            self.passed.push_back(message);
        }
    }

    /// The response to a request.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        self.message(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// The result of a request that must have one.
    pub(crate) async fn result(&mut self, id: u64) -> Value {
        let mut response = self.response(id).await;
        assert!(response["result"].is_object(), "{response}");
        response["result"].take()
    }

    /// The next notification with this method.
    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        self.message(|message| message["method"] == method).await
    }

    /// The messages that were read and not asked for.
    pub(crate) fn passed(&self) -> &VecDeque<Value> {
        &self.passed
    }

    /// Ends standard input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits until the process has ended, and returns its code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let code = in_time("the process to end", ended).await;
        while let Some(message) = self.messages.recv().await {
            self.passed.push_back(message);
        }
        code
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process_id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Memory that the process holds now, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for StdioHost {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
        if std::thread::panicking() {
            eprintln!("the gateway logged:\n{}", self.log());
        }
    }
}
