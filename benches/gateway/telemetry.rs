//! The cost of telemetry: a call through a gateway with the access log, with spans of one request of 100, and with both
//! and a scrape each second, beside one with none of these. All take turns in one run, and each ratio is made within a
//! round.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::beside::{cost, spread};
use super::options::Options;
use super::process::{Process, free_port};
use super::way::{Way, write_config};

/// The time between two scrapes: each costs, whatever the load.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// The gateways that are compared; the first one has no telemetry but its metrics.
const SIDES: [&str; 4] = ["none", "access log", "traces", "all"];

/// Rounds with one set of processes. The cost of a call differs by some percent from process to process, because code and
/// data lie elsewhere in memory. So more processes improve the result more than more rounds do.
const ROUNDS_PER_PROCESS: usize = 6;

/// Measures the way of a plain call, and prints the CPU of a call with each part of telemetry.
pub(crate) async fn run(options: &Options) {
    let agent = Process::agent(options);
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    tokio::spawn(collect(collector));
    let mut sides = Sides::start(&agent, &endpoint, options);
    let mut ratios = [(); SIDES.len()].map(|()| Vec::new());
    for round in 0..options.rounds {
        if round > 0 && round.is_multiple_of(ROUNDS_PER_PROCESS) {
            sides = Sides::start(&agent, &endpoint, options);
        }
        let mut cpu = [0.0; SIDES.len()];
        let mut places: Vec<usize> = (0..SIDES.len()).collect();
        // Every other round backwards.
        if !round.is_multiple_of(2) {
            places.reverse();
        }
        for place in places {
            cpu[place] = cost(Way::Gateway, &sides.gateways[place].1, round, options).await;
        }
        println!("round {round}: {cpu:.1?} us with {SIDES:?}");
        for (ratios, cpu_of_side) in ratios.iter_mut().zip(cpu) {
            ratios.push(cpu_of_side / cpu[0]);
        }
    }
    let sets = options.rounds.div_ceil(ROUNDS_PER_PROCESS);
    for (side, mut ratios) in SIDES.into_iter().zip(ratios).skip(1) {
        let [low, high] = resampled(&ratios).map(|ratio| (ratio - 1.0) * 100.0);
        let [least, median, most] = spread(&mut ratios).map(|ratio| (ratio - 1.0) * 100.0);
        println!(
            "telemetry: {side}: {median:+.1} % CPU of a call ({low:+.1} to {high:+.1} % in 95 of 100 resamples of {sets} sets \
             of processes; single rounds {least:+.1} to {most:+.1} %)"
        );
    }
}

/// The gateways that are compared, and the scrape of the one with all telemetry. They end when it is dropped.
struct Sides {
    gateways: Vec<(NamedTempFile, Process)>,
    scrape: JoinHandle<()>,
}

impl Sides {
    fn start(agent: &Process, collector: &str, options: &Options) -> Self {
        let admin = free_port();
        let logging = Options { log: "info".to_owned(), ..options.clone() };
        let traces = format!("tracing: {{ endpoint: \"{collector}\", ratio: 0.01 }}\n");
        let all = format!("admin: {{ address: \"127.0.0.1:{admin}\" }}\n{traces}");
        let sides = [(options, ""), (&logging, ""), (options, &*traces), (&logging, &*all)];
        let gateways = sides.map(|(options, more)| {
            let port = free_port();
            let ways = (more, &["plain", "flowing"][..]);
            let config = write_config(&[(port, String::new())], agent.port, options, ways);
            let process = Process::quiet_gateway(config.path(), port);
            (config, process)
        });
        Self { gateways: gateways.into(), scrape: tokio::spawn(scrape(admin)) }
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        self.scrape.abort();
    }
}

/// The range of the median in 95 of 100 resamples. All rounds of one set of processes are drawn together.
fn resampled(ratios: &[f64]) -> [f64; 2] {
    const RESAMPLES: usize = 2000;
    let groups: Vec<&[f64]> = ratios.chunks(ROUNDS_PER_PROCESS).collect();
    let mut random = SmallRng::seed_from_u64(1);
    let mut median = || {
        let drawn = groups.iter().map(|_| groups[random.gen_range(0..groups.len())]);
        spread(&mut drawn.collect::<Vec<_>>().concat())[1]
    };
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| median()).collect();
    medians.sort_by(f64::total_cmp);
    [RESAMPLES / 40, RESAMPLES - 1 - RESAMPLES / 40].map(|at| medians[at])
}

/// Accepts each batch of spans.
pub(crate) async fn collect(listener: TcpListener) {
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
