//! The cost of a call in the gateway, compared with a bare Pingora pass-through to the same agent
//! in the same run.
//!
//! `cargo bench --bench gateway -- [--json] [--rounds N] [--seconds S] [--connections N]
//! [--threads N] [--log LEVEL] [--only WAYS] [--tasks N] [--tls] [--abuse] [--telemetry]
//! [--beside BINARY] [--instructions]`.
//!
//! Five processes on loopback: the load (this one), the agent, the pass-through for HTTP/1.1 and the
//! one for gRPC, and the real gateway. The ways to the agent take turns in every round; figures are medians over rounds, and
//! ratios are made within a round, so that other work of the machine affects both sides. CPU is
//! that of the process on the way alone, never of load or agent. With `--instructions` instead: the
//! number of instructions of a call (needs valgrind). With `--tls` instead: the cost of
//! TLS, compared with nginx. With `--abuse` instead: the effect of abusive callers on good ones.
//! With `--telemetry` instead: the cost of metrics, access log and traces together.
//! With `--beside BINARY` instead: the cost of each way in this gateway and in another binary of it.
//! With `--tasks N` instead: the cost of a query for one task among N. See also `benches/translate`
//! for the cost of translation alone.

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
mod instructions;
mod load;
mod mcp;
mod options;
mod pass;
mod process;
mod report;
mod telemetry;
mod tls;
mod way;

use options::{Options, Role};

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    match Role::of_this_process() {
        Role::Agent { port } => agent::run(port),
        Role::Pass { port, agent, threads, is_http2 } => pass::run(port, agent, threads, is_http2),
        Role::Load(options) => measure(&options),
    }
}

fn measure(options: &Options) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if options.tls {
        return runtime.block_on(tls::run(options));
    }
    if options.abuse {
        return runtime.block_on(abuse::run(options));
    }
    if options.telemetry {
        return runtime.block_on(telemetry::run(options));
    }
    if let Some(binary) = &options.beside {
        return runtime.block_on(beside::run(binary, options));
    }
    if options.instructions {
        return runtime.block_on(instructions::run(options));
    }
    if let Some(tasks) = options.tasks {
        return runtime.block_on(crowd::run(tasks, options));
    }
    let rounds = runtime.block_on(async {
        tokio::select! {
            rounds = rounds(options) => rounds,
            () = process::told_to_end() => Vec::new(),
        }
    });
    report::print(options, &rounds);
}

async fn rounds(options: &Options) -> Vec<Vec<way::Sample>> {
    let mut field = way::Field::set_up(options).await;
    let mut rounds = Vec::with_capacity(options.rounds);
    for round in 0..options.rounds {
        rounds.push(field.round(round, options).await);
    }
    rounds
}
