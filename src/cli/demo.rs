//! `demo`: the main use case on an embedded agent, without preparation.
//!
//! See also the module `demo` at the root for the agent itself.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{failed, print_error, print_line, program, start_log};
use crate::config::{Admin, Agent, Listener, Settings};
use crate::demo::DemoAgent;
use crate::gateway::Gateway;
use crate::server::prepare;

/// The port that is tried first.
const PORT: u16 = 8080;
/// Time that the demo has to start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The port of the agent alone, as `examples/weather.yaml` expects.
const AGENT_PORT: u16 = 9999;

/// Runs the agent alone until the process ends.
pub(super) fn run_agent(port: Option<u16>) -> ExitCode {
    let agent = match start_agent(port.unwrap_or(AGENT_PORT)) {
        Ok(agent) => agent,
        Err(error) => return failed(&agent_problem(&error)),
    };
    print_line(&format!("A2A agent      {}", agent.card));
    print_line("\nIn another terminal, a gateway in front of it:\n");
    print_line(&format!("{} init {}", program(), agent.card));
    print_line(&format!("{} serve", program()));
    print_line("\nCtrl-C ends the agent.");
    if agent.thread.join().is_err() {
        return failed("the demo agent ended");
    }
    ExitCode::SUCCESS
}

fn agent_problem(error: &std::io::Error) -> String {
    format!("the demo agent cannot start: {error}; choose another --agent-port")
}

pub(super) fn run(port: Option<u16>, agent_port: Option<u16>) -> ExitCode {
    let card = match start_agent(agent_port.unwrap_or(0)) {
        Ok(agent) => agent.card,
        Err(error) => return failed(&agent_problem(&error)),
    };
    let mut agent = Agent::new("demo", card.clone());
    agent.timeouts.idle = Duration::from_secs(60);
    let mut settings = Settings::new(vec![agent]);
    let address = match free(port) {
        Ok(address) => address,
        Err(error) => return failed(&format!("cannot listen: {error}; choose another --port")),
    };
    settings.listeners = vec![Listener::new(address)];
    settings.admin = free(Some(0)).ok().map(Admin::new);
    settings.log.level = "warn".to_owned();
    let admin = settings.admin.clone();
    start_log(&settings);
    match prepare(settings, false, None) {
        Ok(ready) => {
            let gateway = ready.gateway.clone();
            std::thread::spawn(move || announce(&gateway, address, admin.map(|admin| admin.address), &card));
            ready.run()
        }
        Err(problem) => failed(&problem.to_string()),
    }
}

/// An agent that runs on a thread of its own.
struct RunningAgent {
    /// The URL of its card.
    card: String,
    thread: JoinHandle<()>,
}

/// Starts the agent on a thread of its own: it is a peer, not a part of the gateway.
fn start_agent(port: u16) -> std::io::Result<RunningAgent> {
    let (told, hears) = mpsc::channel();
    let thread = std::thread::Builder::new().name("demo-agent".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let serve = |runtime: tokio::runtime::Runtime| {
            runtime.block_on(async {
                let agent = DemoAgent::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
                let url = agent.card_url();
                if told.send(Ok(url)).is_ok() {
                    agent.run().await;
                }
                Ok(())
            })
        };
        if let Err(error) = runtime.and_then(serve)
            && told.send(Err(error)).is_err()
        {
            tracing::trace!("demo start was abandoned");
        }
    })?;
    let card = hears.recv().unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")))?;
    Ok(RunningAgent { card, thread })
}

/// Returns the requested address; else the usual one, or any if that is taken.
pub(super) fn free(port: Option<u16>) -> std::io::Result<SocketAddr> {
    let at = |port| {
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .and_then(|socket| socket.local_addr())
    };
    match port {
        Some(port) => at(port),
        None => at(PORT).or_else(|_| at(0)),
    }
}

/// Prints instructions once the gateway can be used.
fn announce(gateway: &Gateway, address: SocketAddr, admin: Option<SocketAddr>, card: &str) {
    let until = Instant::now() + STARTS_WITHIN;
    while !(gateway.is_ready() && TcpStream::connect(address).is_ok()) {
        if Instant::now() > until {
            return print_error("the demo did not start in time");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let url = format!("http://{address}/mcp");
    let call = |tool: &str, text: &str, extra: &str| {
        format!(
            "curl -sN {url} -H 'Content-Type: application/json'{extra} -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\
             \"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"text\":\"{text}\"}},\
             \"_meta\":{{\"progressToken\":1}}}}}}'"
        )
    };
    let stream = " -H 'Accept: application/json, text/event-stream'";
    print_line(&format!("MCP endpoint   {url}"));
    print_line(&format!("A2A agent      {card}"));
    if let Some(admin) = admin {
        print_line(&format!("admin          http://{admin}/metrics"));
    }
    print_line("\nPaste this to call the agent:\n");
    print_line(&call("demo_echo", "Hello, agent", ""));
    print_line("\nand this to watch a task that takes several seconds:\n");
    print_line(&call("demo_countdown", "5", stream));
    let program = program();
    print_line(
        "\nTry next, in another terminal: live progress; a question; a configuration for your own agent:\n",
    );
    print_line(&format!("{program} call demo_countdown --text 5 --url {url}"));
    print_line(&format!("{program} call demo_ask --text tea --url {url}"));
    print_line(&format!("{program} init URL"));
    print_line("\nCtrl-C ends the demo.");
}
