//! The cost of telemetry: a call through a gateway with the access log, spans of one request of 100 and a scrape each
//! second, beside one with none of these. Both take turns in one run, and the ratio is made within a round.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::load::Load;
use super::options::Options;
use super::process::{Process, free_port};
use super::way::{Way, calls, question, write_config};

/// The time between two scrapes: each costs, whatever the load.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// Measures the way of a plain call, and prints the CPU of a call with and without telemetry.
pub(crate) async fn run(options: &Options) {
    let agent = Process::role("agent", &[]);
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    tokio::spawn(collect(collector));
    let admin = free_port();
    let on = Options { log: "info".to_owned(), ..options.clone() };
    let more = format!(
        "admin: {{ address: \"127.0.0.1:{admin}\" }}\ntracing: {{ endpoint: \"{endpoint}\", ratio: 0.01 }}\n"
    );
    let [off_port, on_port] = [(); 2].map(|()| free_port());
    let agents = ["plain", "flowing"];
    let off_config = write_config(off_port, agent.port, options, ("", &agents));
    let on_config = write_config(on_port, agent.port, &on, (&more, &agents));
    let sides =
        [Process::gateway(off_config.path(), off_port), Process::quiet_gateway(on_config.path(), on_port)];
    tokio::spawn(scrape(admin));
    let mut ratios = Vec::new();
    for round in 0..options.rounds {
        let mut cpu = [0.0; 2];
        // Every other round backwards.
        for place in if round.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            cpu[place] = cost(&sides[place], &agent, round, options).await;
        }
        println!("round {round}: {:.1} us without, {:.1} us with telemetry", cpu[0], cpu[1]);
        ratios.push(cpu[1] / cpu[0]);
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    println!(
        "telemetry: {:+.1} % CPU of a call ({:+.1} to {:+.1} %)",
        percent(median),
        percent(least),
        percent(most)
    );
}

/// Returns the CPU of one call at this gateway, in microseconds.
async fn cost(gateway: &Process, agent: &Process, round: usize, options: &Options) -> f64 {
    let asked = question(Way::Gateway, [agent.port, gateway.port, gateway.port]).await;
    let mut load = Load::open(&asked, options.connections_of(round)).await;
    let (before, begun) = (gateway.cpu(), Instant::now());
    let times = load.run(options.period).await;
    assert!(begun.elapsed() >= options.period);
    (gateway.cpu() - before) * 1e6 / calls(times.len())
}

/// Accepts each batch of spans.
async fn collect(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(accept_batches(stream));
    }
}

async fn accept_batches(mut stream: TcpStream) {
    let mut received = Vec::new();
    let mut piece = [0; 16 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        received.extend_from_slice(&piece[..read]);
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let whole = end + 4 + length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
        if received.len() >= whole {
            received.drain(..whole);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    }
}

/// Scrapes the metrics, without end.
async fn scrape(admin: u16) {
    loop {
        tokio::time::sleep(SCRAPE_INTERVAL).await;
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", admin)).await else { continue };
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut page = Vec::new();
        stream.read_to_end(&mut page).await.unwrap();
        assert!(page.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&page));
    }
}
