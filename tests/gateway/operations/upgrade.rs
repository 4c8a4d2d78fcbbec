//! One gateway takes the sockets of another over, without losing a request. No other process gets
//! them.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tempfile::TempDir;

use crate::kit::scene::{TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Ports, Reply, ScriptedAgent, Signal, TestGateway, in_time};

/// The directory in which a test's gateways meet: the operator's choice, and not made yet.
fn place(folder: &TempDir) -> PathBuf {
    folder.path().join("upgrade")
}

fn config(ports: &Ports, agent: &ScriptedAgent, more: &str) -> String {
    let key = "seal_key: 0123456789abcdef0123456789abcdef";
    let card = agent.card_url();
    format!(
        "{}{key}\nshutdown: {{ grace: 0s, drain: 1s }}\n{more}agents:\n  bard:\n    card: {card}\n",
        ports.listeners()
    )
}

fn upgrade_in(directory: &Path) -> String {
    format!("upgrade: {{ directory: {} }}\n", directory.display())
}

async fn singer() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    agent
}

/// Asks on a connection of its own; returns the failure, if a result did not come.
async fn served(client: &McpClient) -> Result<(), String> {
    let call = client.request("tools/call", &json!({ "name": TOOL, "arguments": { "text": "x" } }));
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    match client.try_send("POST", &headers, call.to_string().into_bytes()).await {
        Ok(answer) => {
            let (status, text) = (answer.status, answer.text().await);
            if status == 200 && text.contains("la") { Ok(()) } else { Err(format!("{status}: {text}")) }
        }
        Err(error) => Err(format!("{error:?}")),
    }
}

/// The name of the gateway that answers.
async fn name_of(gateway: &TestGateway) -> String {
    let told = gateway.client().modern("server/discover", json!({})).await.text().await;
    ["old-gateway", "new-gateway"].into_iter().find(|name| told.contains(name)).unwrap_or("none").to_owned()
}

#[tokio::test]
async fn upgrade_loses_no_request() {
    let folder = TempDir::new().unwrap();
    let agent = singer().await;
    let named = |name: &str| format!("{}mcp: {{ server_name: {name} }}\n", upgrade_in(&place(&folder)));
    let mut old = TestGateway::start(|ports| config(ports, &agent, &named("old-gateway"))).await;
    let (end, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (client, end, count) = (old.client(), end.clone(), count.clone());
            tokio::spawn(async move {
                let mut lost = Vec::new();
                while !end.load(Ordering::Relaxed) {
                    lost.extend(served(&client).await.err());
                    count.fetch_add(1, Ordering::Relaxed);
                }
                lost
            })
        })
        .collect();
    let successor = old.successor(|ports| config(ports, &agent, &named("new-gateway")));
    successor.wait_for_output("waiting for the sockets").await;
    assert_eq!(fs::metadata(place(&folder)).unwrap().permissions().mode() & 0o7777, 0o700);
    // A process that comes and goes is not the one that is waited for.
    drop(UnixStream::connect(place(&folder).join("ready.sock")).unwrap());
    successor.wait_for_output("failed to get an offer of sockets").await;
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |request| match request.message()["parts"][0]["text"] == "slow" {
        true => Reply::stream()
            .event(v1::task("t", "c", "working"))
            .wait(&wait)
            .event(v1::completed("t", "c", "la slow")),
        false => Reply::events([v1::message("la")]),
    });
    let params = json!({ "name": TOOL, "arguments": { "text": "slow" }, "_meta": { "progressToken": 1 } });
    let mut slow = old.client().modern("tools/call", params).await;
    slow.next_message().await;
    old.signal("QUIT");
    successor.wait_for_output("gateway started").await;
    go.fire();
    assert_eq!(words(&slow.result().await), "la slow");
    assert_eq!(old.ended().await, Some(0));
    assert_eq!(name_of(&successor).await, "new-gateway");
    let so_far = count.load(Ordering::Relaxed);
    let on = async {
        while count.load(Ordering::Relaxed) < so_far + 10 {
            tokio::task::yield_now().await;
        }
    };
    in_time("more requests", on).await;
    end.store(true, Ordering::Relaxed);
    for client in clients {
        assert_eq!(client.await.unwrap(), Vec::<String>::new(), "of {}", count.load(Ordering::Relaxed));
    }
    assert_eq!(fs::read_dir(place(&folder)).unwrap().count(), 0, "no socket is left");
    for process in [&old, &successor] {
        assert!(!process.output().contains(" ERROR "), "{}", process.output());
    }
}

/// Whether a connection has come, without waiting for one.
fn has_come(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    !matches!(listener.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Pingora connects to any process that listens on its path; the gateway lets it only after a
/// successor has reported.
#[tokio::test]
async fn upgrade_needs_ready_report() {
    let folder = TempDir::new().unwrap();
    let agent = singer().await;
    let old = TestGateway::start(|ports| config(ports, &agent, &upgrade_in(&place(&folder)))).await;
    let thief = UnixListener::bind(place(&folder).join("sockets.sock")).unwrap();
    old.signal("QUIT");
    old.wait_for_output("no process waits for the sockets").await;
    for (report, told) in [
        ("", "does not report ready"),
        ("mcp-a2a-gateway\n", "does not report ready"),
        ("mcp-a2a-gateway ready\n", "does not listen on 127.0.0.1"),
        ("mcp-a2a-gateway ready 127.0.0.1:1\n", "does not listen on 127.0.0.1"),
    ] {
        let path = place(&folder).join("ready.sock");
        let successor = UnixListener::bind(&path).unwrap();
        let before = old.output().matches(told).count();
        old.signal("QUIT");
        let asked = tokio::task::spawn_blocking(move || successor.accept().unwrap().0);
        let mut asked = in_time("the gateway to look for a successor", asked).await.unwrap();
        asked.write_all(report.as_bytes()).unwrap();
        let refused = async {
            while old.output().matches(told).count() == before {
                tokio::task::yield_now().await;
            }
        };
        in_time(told, refused).await;
        fs::remove_file(path).unwrap();
    }
    assert!(!has_come(&thief), "no socket is offered");
    assert_eq!(served(&old.client()).await, Ok(()), "it goes on");
}

/// Only root can take the place of another user.
#[tokio::test]
async fn upgrade_needs_same_user() {
    const OTHER: u32 = 65_534;
    let (folder, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    if chown(theirs.path(), Some(OTHER), Some(OTHER)).is_err() {
        return eprintln!("not root: another user's process was not tried");
    }
    let agent = singer().await;
    let old = TestGateway::start(|ports| config(ports, &agent, &upgrade_in(&place(&folder)))).await;
    let path = theirs.path().join("ready.sock");
    let program = "use IO::Socket::UNIX; $| = 1; \
                   my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die; \
                   print qq(listens\\n); while (my $c = $s->accept) { print $c $ARGV[1]; }";
    let ports = old.ports();
    let report = format!("mcp-a2a-gateway ready 127.0.0.1:{} 127.0.0.1:{}\n", ports.main, ports.admin);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--clear-groups", "perl", "-e", program]).arg(&path).arg(report);
    let Ok(mut other) = other.stdout(Stdio::piped()).spawn() else {
        return eprintln!("no setpriv here: another user's process was not tried");
    };
    let mut said = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said.is_empty() {
        return eprintln!("no perl here: another user's process was not tried");
    }
    // Root alone could put it here.
    fs::rename(&path, place(&folder).join("ready.sock")).unwrap();
    let thief = UnixListener::bind(place(&folder).join("sockets.sock")).unwrap();
    old.signal("QUIT");
    old.wait_for_output("runs as another user (uid 65534)").await;
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!has_come(&thief), "no socket is offered");
    assert_eq!(served(&old.client()).await, Ok(()), "it goes on");
}

/// Starts a gateway with this directory; its exit code and its complaint.
async fn refusal(directory: &Path, more: &[&str]) -> (Option<i32>, String) {
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:{} }}]\nagents: {{ bard: {{ card: http://127.0.0.1:1/ }} }}\n{}",
        crate::support::free_port(),
        upgrade_in(directory)
    );
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, config).unwrap();
    let arguments = ["serve", "--config", file.to_str().unwrap()];
    let output = TestGateway::run_command(&[&arguments, more].concat()).await;
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn foreign_upgrade_directory_is_refused() {
    let folder = TempDir::new().unwrap();
    let made = |name: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    let (good, open) = (made("good", 0o700), made("open", 0o777));
    let below = open.join("below");
    fs::create_dir(&below).unwrap();
    fs::set_permissions(&below, Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(&good, &link).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let long = made(&"x".repeat(100), 0o700);
    let mut cases = vec![
        (made("readable", 0o755), "is open to other users (mode 755; run chmod 700)"),
        (made("group", 0o770), "is open to other users (mode 770; run chmod 700)"),
        (open, "is open to other users (mode 777; run chmod 700)"),
        (below, "where other users may write"),
        (link, "is no directory (a symbolic link to one is refused)"),
        (file, "is no directory"),
        (folder.path().join("none/below"), "cannot be made"),
        (long, "has too long a path for a socket"),
    ];
    let theirs = made("theirs", 0o700);
    if chown(&theirs, Some(65_534), None).is_ok() {
        cases.push((theirs, "belongs to another user (uid 65534, not 0)"));
    }
    for (directory, told) in cases {
        for more in [&[][..], &["--upgrade"]] {
            let (code, printed) = refusal(&directory, more).await;
            assert!(code == Some(1) && printed.contains(told), "{}: {printed}", directory.display());
            assert!(printed.contains("upgrade.directory"), "{printed}");
        }
    }
}

/// Without a word of the operator's: a directory for each user, made when it is needed.
#[tokio::test]
async fn upgrade_directory_is_of_user() {
    let (temporary, agent) = (TempDir::new().unwrap(), singer().await);
    let environment = [("TMPDIR", temporary.path().to_str().unwrap())];
    let old = TestGateway::start_with(&environment, |ports| config(ports, &agent, "")).await;
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "not before it is needed");
    let successor = old.successor_with(&environment, |ports| config(ports, &agent, ""));
    successor.wait_for_output("waiting for the sockets").await;
    let made = fs::read_dir(temporary.path()).unwrap().next().unwrap().unwrap();
    assert!(made.file_name().to_str().unwrap().starts_with("mcp-a2a-gateway-"), "{made:?}");
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    old.signal("QUIT");
    successor.wait_for_output("gateway started").await;
}

/// A service manager, as far as processes see one: a socket that receives reports.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        Self { folder, socket }
    }

    fn path(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// Receives the next report.
    async fn report(&self) -> String {
        let socket = self.socket.try_clone().unwrap();
        let received = tokio::task::spawn_blocking(move || {
            let mut message = [0; 512];
            let length = socket.recv(&mut message).unwrap();
            String::from_utf8(message[..length].to_vec()).unwrap()
        });
        received.await.unwrap()
    }
}

/// The service manager hears of the first process that it serves, and of the successor that it is the
/// main process; then the id is in the directory.
#[tokio::test]
async fn upgrade_reports_main_process() {
    let folder = TempDir::new().unwrap();
    let (agent, manager) = (singer().await, Manager::new());
    let more = upgrade_in(&place(&folder));
    let (path, pid) = (manager.path(), place(&folder).join("main.pid"));
    let environment = [("NOTIFY_SOCKET", path.as_str())];
    let mut old = TestGateway::start_with(&environment, |ports| config(ports, &agent, &more)).await;
    assert_eq!(manager.report().await, "READY=1\nSTATUS=agents ready: 1, tools: 1\n");
    let successor = old.successor_with(&environment, |ports| config(ports, &agent, &more));
    successor.wait_for_output("waiting for the sockets").await;
    old.signal("QUIT");
    let report = manager.report().await;
    let id = successor.process_id();
    assert_eq!(report, format!("MAINPID={id}\nREADY=1\nSTATUS=agents ready: 1, tools: 1\n"));
    let written = async {
        while fs::read_to_string(&pid).ok() != Some(format!("{id}\n")) {
            tokio::task::yield_now().await;
        }
    };
    in_time("the id of the successor", written).await;
    assert_eq!(old.ended().await, Some(0));
}
