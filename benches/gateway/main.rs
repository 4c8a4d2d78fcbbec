//! The cost of a call in the gateway, compared with a bare Pingora pass-through to the same agent
//! in the same run.
//!
//! `cargo bench --bench gateway -- [--json] [--plot FILE] [--rounds N] [--seconds S] [--connections N] [--threads N]
//! [--log LEVEL] [--only WAYS] [--text BYTES] [--listener plain|tls|mtls] [--http2]`, and one of `--tasks N`, `--tls`,
//! `--abuse`, `--telemetry`, `--beside BINARY`, `--instructions`, `--idle N`, `--flat`, `--start`, `--delay` for another
//! measurement than calls.
//!
//! `BENCH_GATEWAY=FILE` measures that binary of the gateway in place of the one of this build.
//!
//! Several processes on loopback: the load (this one), the agent, the pass-through for HTTP/1.1 and the
//! one for gRPC, nginx and HAProxy where they are installed, and the real gateway. The ways to the agent take turns in every
//! round; figures are medians over rounds, and ratios are made within a round, so that other work of the machine affects both
//! sides. CPU is that of the process on the way alone, never of load or agent. With `--instructions` instead: the
//! number of instructions of a call (needs valgrind). With `--tls` instead: the cost of
//! TLS, compared with nginx. With `--abuse` instead: the effect of abusive callers on good ones.
//! With `--telemetry` instead: the cost of metrics, access log and traces together.
//! With `--beside BINARY` instead: the cost of each way in this gateway and in another binary of it.
//! With `--tasks N` instead: the cost of a query for one task among N. With `--idle N` instead: the memory of connections
//! and streams without traffic. With `--flat` instead: a call with few and with many agents, rules, streams and workers.
//! With `--start` instead: the time until the gateway is ready. With `--delay` instead: the time that events take. See also `benches/translate` for the cost of translation
//! alone, and `benches/report`, which runs all of these.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement that fails loudly"
)]

mod abuse;
mod agent;
mod beside;
mod connection;
mod crowd;
mod delay;
mod flat;
mod idle;
mod instructions;
mod keys;
mod load;
mod mcp;
mod options;
mod pass;
mod peers;
mod plot;
mod process;
mod report;
mod start;
mod telemetry;
mod tls;
mod way;

use options::{Measurement, Options, Role};

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    match Role::of_this_process() {
        Role::Agent(role) => agent::run(&role),
        Role::Pass(role) => pass::run(&role),
        Role::Load(options) => measure(&options),
    }
}

fn measure(options: &Options) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            () = run(options) => {}
            () = process::told_to_end() => {}
        }
    });
}

async fn run(options: &Options) {
    // Binaries of other profiles differ by 40 percent.
    eprintln!("gateway: {}", process::gateway_binary());
    match &options.measurement {
        Measurement::Ways => report::print(options, &rounds(options).await),
        Measurement::Tasks(tasks) => crowd::run(*tasks, options).await,
        Measurement::Tls => tls::run(options).await,
        Measurement::Abuse => abuse::run(options).await,
        Measurement::Telemetry => telemetry::run(options).await,
        Measurement::Beside(binary) => beside::run(binary, options).await,
        Measurement::Instructions => instructions::run(options).await,
        Measurement::Idle(most) => idle::run(*most, options).await,
        Measurement::Flat => flat::run(options).await,
        Measurement::Start => start::run(options),
        Measurement::Delay => delay::run(options).await,
    }
}

async fn rounds(options: &Options) -> Vec<Vec<way::Sample>> {
    let mut field = way::Field::set_up(options).await;
    let mut rounds = Vec::with_capacity(options.rounds);
    for round in 0..options.rounds {
        rounds.push(field.round(round, options).await);
    }
    rounds
}
