//! The summary of the rounds: medians, and ratios made within each round.

use super::options::Options;
use super::plot::{Bar, bars};
use super::way::{Sample, Way, calls};

/// The figures of one way.
struct Figures {
    way: Way,
    calls_per_second: f64,
    /// Microseconds, in user space and in all.
    user_cpu: Option<f64>,
    cpu: Option<f64>,
    p50: f64,
    p99: f64,
    p999: f64,
    resident: Option<f64>,
    beside: Vec<Ratios>,
}

/// Ratio of a way to one beside it.
struct Ratios {
    other: Way,
    cpu: f64,
    /// The least and the most of any round.
    cpu_range: (f64, f64),
    p50: f64,
    p99: f64,
}

/// Prints a table, or JSON, and draws the plot if there is to be one.
pub(crate) fn print(options: &Options, rounds: &[Vec<Sample>]) {
    let first = rounds.first().map(Vec::as_slice).unwrap_or_default();
    let all: Vec<Figures> = first.iter().map(|sample| figures(sample.way, rounds)).collect();
    if options.json {
        print_json(options, &all)
    } else {
        print_table(options, &all)
    }
    if let Some(file) = &options.plot {
        let drawn = all.iter().flat_map(|one| one.beside.iter().map(move |ratios| (one, ratios)));
        let drawn: Vec<Bar> = drawn
            .filter(|(_, ratios)| matches!(ratios.other, Way::Pass | Way::PassStream | Way::PassGrpc))
            .map(|(one, ratios)| Bar {
                name: one.way.name().to_owned(),
                figure: ratios.cpu,
                range: ratios.cpu_range,
            })
            .collect();
        bars(file, &format!("CPU of a call over bare Pingora, {}", setting(options)), &drawn);
    }
}

fn figures(way: Way, rounds: &[Vec<Sample>]) -> Figures {
    let of = |way: Way| rounds.iter().flatten().filter(move |sample| sample.way == way);
    let median_of =
        |figure: &dyn Fn(&Sample) -> f64| median(of(way).map(figure).collect()).unwrap_or_default();
    let beside = way.beside().iter().copied().filter(|other| of(*other).next().is_some());
    let beside = beside.map(|other| {
        let pairs = || of(way).zip(of(other));
        let ratios = pairs()
            .filter_map(|(one, other)| Some(one.cpu?.iter().sum::<f64>() / other.cpu?.iter().sum::<f64>()));
        let cpu: Vec<f64> = ratios.collect();
        Ratios {
            other,
            cpu_range: cpu.iter().fold((f64::MAX, 0.0), |(low, high), now| (low.min(*now), high.max(*now))),
            cpu: median(cpu).unwrap_or_default(),
            p50: median(pairs().map(|(one, other)| one.p50.div_duration_f64(other.p50)).collect())
                .unwrap_or_default(),
            p99: median(pairs().map(|(one, other)| one.p99.div_duration_f64(other.p99)).collect())
                .unwrap_or_default(),
        }
    });
    Figures {
        way,
        calls_per_second: median_of(&|sample| calls(sample.calls) / sample.wall.as_secs_f64()),
        user_cpu: median(of(way).filter_map(|sample| Some(sample.cpu?[0])).collect()),
        cpu: median(of(way).filter_map(|sample| Some(sample.cpu?.iter().sum())).collect()),
        p50: median_of(&|sample| sample.p50.as_secs_f64() * 1e6),
        p99: median_of(&|sample| sample.p99.as_secs_f64() * 1e6),
        p999: median_of(&|sample| sample.p999.as_secs_f64() * 1e6),
        resident: median(of(way).filter_map(|sample| sample.resident).collect()),
        beside: beside.collect(),
    }
}

/// Returns the middle of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Says which calls these were.
fn setting(options: &Options) -> String {
    let version = if options.is_http2 { "HTTP/2" } else { "HTTP/1.1" };
    format!("texts of {} bytes, {version}, {}", options.text_bytes, options.listener.name())
}

fn print_table(options: &Options, all: &[Figures]) {
    println!(
        "{} rounds of {:?}, {} connections and up to 7 more, {} thread(s), {}; medians",
        options.rounds,
        options.period,
        options.connections,
        options.threads,
        setting(options)
    );
    println!(
        "{:<16} {:>11} {:>8} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8}",
        "", "CPU µs/call", "in user", "µs/event", "calls/s", "p50 µs", "p99 µs", "p99.9 µs", "RSS MiB"
    );
    for one in all {
        let per_event = one.cpu.zip(one.way.events()).map(|(cpu, events)| cpu / f64::from(events));
        println!(
            "{:<16} {:>11} {:>8} {:>9} {:>9.0} {:>8.0} {:>8.0} {:>9.0} {:>8}",
            one.way.name(),
            or_dash(one.cpu),
            or_dash(one.user_cpu),
            or_dash(per_event),
            one.calls_per_second,
            one.p50,
            one.p99,
            one.p999,
            or_dash(one.resident),
        );
    }
    for one in all {
        for ratios in &one.beside {
            println!(
                "{} / {}: CPU {:.2}× ({:.2}–{:.2}), p50 {:.2}×, p99 {:.2}×",
                one.way.name(),
                ratios.other.name(),
                ratios.cpu,
                ratios.cpu_range.0,
                ratios.cpu_range.1,
                ratios.p50,
                ratios.p99,
            );
        }
    }
}

fn or_dash(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.1}"))
}

fn print_json(options: &Options, all: &[Figures]) {
    let ways: Vec<serde_json::Value> = all
        .iter()
        .map(|one| {
            let beside: Vec<serde_json::Value> = one
                .beside
                .iter()
                .map(|ratios| {
                    serde_json::json!({
                        "way": ratios.other.name(), "cpu": ratios.cpu, "cpuLeast": ratios.cpu_range.0,
                        "cpuMost": ratios.cpu_range.1, "p50": ratios.p50, "p99": ratios.p99,
                    })
                })
                .collect();
            serde_json::json!({
                "way": one.way.name(), "cpuMicros": one.cpu, "userCpuMicros": one.user_cpu,
                "callsPerSecond": one.calls_per_second, "p50Micros": one.p50, "p99Micros": one.p99,
                "p999Micros": one.p999, "residentMiB": one.resident, "eventsPerCall": one.way.events(),
                "beside": beside,
            })
        })
        .collect();
    let report = serde_json::json!({
        "rounds": options.rounds, "seconds": options.period.as_secs_f64(), "connections": options.connections,
        "threads": options.threads, "textBytes": options.text_bytes, "http2": options.is_http2,
        "listener": options.listener.name(), "ways": ways,
    });
    println!("{report:#}");
}
