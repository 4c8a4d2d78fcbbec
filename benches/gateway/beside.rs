//! The cost of calls in two gateways, this one and another binary of it, as from another commit: both take turns in one
//! run, and each ratio is made within a round.
//!
//! The other binary gets the same arguments, `serve --config FILE`. One that needs an older configuration is wrapped
//! in a script that rewrites the file and ends with `exec`.

use super::load::Load;
use super::options::Options;
use super::process::{Process, free_port};
use super::way::{Way, calls, question, write_config};

const WAYS: [Way; 4] = [Way::Gateway, Way::Face, Way::GatewayStream, Way::FaceStream];

/// Measures each way, and prints the CPU of a call in both gateways.
pub(crate) async fn run(binary: &str, options: &Options) {
    let agent = Process::agent(options);
    let sides = [None, Some(binary)].map(|binary| {
        let port = free_port();
        let config = write_config(&[(port, String::new())], agent.port, options, ("", &["plain", "flowing"]));
        let process = match binary {
            Some(binary) => Process::other_gateway(binary, config.path(), port),
            None => Process::quiet_gateway(config.path(), port),
        };
        (config, process)
    });
    for way in WAYS.into_iter().filter(|way| options.wants(way.name())) {
        let mut costs = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        for round in 0..options.rounds {
            // Every other round backwards.
            let places = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for place in places {
                costs[place].push(cost(way, &sides[place].1, round, options).await);
            }
            ratios.push(costs[0][round] / costs[1][round]);
        }
        let [here, other] = costs.map(|mut costs| spread(&mut costs)[1]);
        let [least, median, most] = spread(&mut ratios).map(|ratio| (ratio - 1.0) * 100.0);
        let name = way.name();
        println!(
            "{name}: {here:.1} us of CPU a call, {other:.1} us in the other one: {median:+.1} % ({least:+.1} to {most:+.1} %)"
        );
    }
}

/// Returns the CPU of one call at this gateway, in microseconds.
pub(crate) async fn cost(way: Way, gateway: &Process, round: usize, options: &Options) -> f64 {
    let asked = question(way, gateway.port, options).await;
    let mut load = Load::open(&asked, options.connections_of(round)).await;
    let before = gateway.cpu();
    let times = load.run(options.period).await;
    (gateway.cpu() - before) * 1e6 / calls(times.len())
}

/// Returns the least, the median and the largest of figures.
pub(crate) fn spread(figures: &mut [f64]) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [figures[0], figures[figures.len() / 2], figures[figures.len() - 1]]
}
