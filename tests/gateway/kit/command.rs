//! A command of the binary that runs beside its test: with pipes, or at a pseudo-terminal as people
//! have it.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use tokio::sync::watch;

use crate::support::in_time;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");

/// Ends with the test.
pub(crate) struct RunningCommand {
    child: Child,
    /// The keyboard, at a terminal.
    keyboard: Option<File>,
    out: watch::Receiver<String>,
    /// The same as `out` at a terminal.
    err: watch::Receiver<String>,
}

impl RunningCommand {
    /// Runs a command without a terminal, in this folder.
    pub(crate) fn start_in(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(arguments, environment);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = collect(child.stdout.take().unwrap());
        let err = collect(child.stderr.take().unwrap());
        Self { child, keyboard: None, out, err }
    }

    /// Runs a command without a terminal.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(Path::new("."), arguments, &[])
    }

    /// Runs a command at a terminal.
    pub(crate) fn at_terminal(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let screen = File::from(terminal.slave);
        let mut command = command(arguments, environment);
        command.stdin(screen.try_clone().unwrap()).stdout(screen.try_clone().unwrap()).stderr(screen);
        let child = command.spawn().unwrap();
        // The screen closes with the command only if the test does not hold it.
        drop(command);
        let keyboard = File::from(terminal.master);
        let out = collect(keyboard.try_clone().unwrap());
        Self { child, keyboard: Some(keyboard), err: out.clone(), out }
    }

    /// Standard output so far.
    pub(crate) fn out(&self) -> String {
        self.out.borrow().clone()
    }

    /// Standard error so far.
    pub(crate) fn err(&self) -> String {
        self.err.borrow().clone()
    }

    /// Waits until standard output, or the screen, has this.
    pub(crate) async fn prints(&mut self, text: &str) {
        wait(&mut self.out, text).await;
    }

    /// Waits until standard error, or the screen, has this.
    pub(crate) async fn reports(&mut self, text: &str) {
        wait(&mut self.err, text).await;
    }

    /// The ports on which it listens now.
    pub(crate) fn listening_ports(&self) -> Vec<u16> {
        let folder = format!("/proc/{}", self.child.id());
        let link = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
        let links = std::fs::read_dir(format!("{folder}/fd")).expect("Linux").filter_map(link);
        let own: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
        let sockets = std::fs::read_to_string(format!("{folder}/net/tcp")).unwrap();
        let port = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_own = own.contains(&format!("socket:[{}]", words.get(9)?));
            let is_listening = words[3] == "0A" && is_own;
            let (_, port) = words[1].split_once(':').filter(|_| is_listening)?;
            u16::from_str_radix(port, 16).ok()
        };
        sockets.lines().filter_map(port).collect()
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        self.keyboard.as_mut().expect("a terminal").write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends it a signal by name: `INT`, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end and its whole output; the exit code, if it ended by itself.
    pub(crate) async fn ended(mut self) -> Ended {
        let closed = async |pipe: &mut watch::Receiver<String>| while pipe.changed().await.is_ok() {};
        in_time(&format!("the end of a command that printed {}{}", self.out(), self.err()), async {
            closed(&mut self.out).await;
            closed(&mut self.err).await;
        })
        .await;
        let status: ExitStatus = self.child.wait().unwrap();
        Ended { code: status.code(), out: self.out(), err: self.err() }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_remove("MCP_A2A_GATEWAY_CONFIG").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    command
}

async fn wait(output: &mut watch::Receiver<String>, text: &str) {
    let found = in_time(text, output.wait_for(|output| output.contains(text))).await.is_ok();
    assert!(found, "it ended without {text:?}: {}", output.borrow().as_str());
}

fn collect(mut from: impl Read + Send + 'static) -> watch::Receiver<String> {
    let (sender, receiver) = watch::channel(String::new());
    std::thread::spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        // A terminal ends with an error.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            sender.send_replace(text);
        }
    });
    receiver
}
