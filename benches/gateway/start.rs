//! The time from the start of the gateway until it is ready, with one agent, and its memory then.

use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::options::Options;
use super::process::{Process, free_port};
use super::report::median;
use super::way::write_config;

const PROBE: &[u8] = b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n";
/// Between two probes.
const APART: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts the gateway in each round, and prints the medians.
pub(crate) fn run(options: &Options) {
    let agent = Process::agent(options);
    let (mut ready, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let [port, admin] = [(); 2].map(|()| free_port());
        let more = format!("admin: {{ address: \"127.0.0.1:{admin}\" }}\n");
        let config = write_config(&[(port, String::new())], agent.port, options, (&more, &["plain"]));
        let begun = Instant::now();
        let gateway = Process::spawn_gateway(config.path(), port);
        while !is_ready(admin) {
            assert!(begun.elapsed() < PATIENCE, "the gateway is not ready");
            thread::sleep(APART);
        }
        ready.push(begun.elapsed().as_secs_f64() * 1e3);
        resident.push(gateway.resident());
    }
    let all =
        |figures: &[f64]| figures.iter().map(|figure| format!("{figure:.1}")).collect::<Vec<_>>().join(" ");
    println!("ready after {:.1} ms ({})", median(ready.clone()).unwrap(), all(&ready));
    println!("then {:.1} MiB ({})", median(resident.clone()).unwrap(), all(&resident));
}

/// Returns true if the admin listener says that the gateway is ready.
fn is_ready(port: u16) -> bool {
    probe(port).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200"))
}

fn probe(port: u16) -> io::Result<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    io::Write::write_all(&mut socket, PROBE)?;
    io::read_to_string(socket)
}
