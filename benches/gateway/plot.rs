//! Plots as SVG, in the colours of the reader's theme: bars with their spread, and lines over a logarithmic axis.

#![allow(dead_code, reason = "one bench draws bars, another one lines")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const COLOURS: [&str; 8] =
    ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#8c564b", "#ee8866"];
const STYLE: &str = "<style>text { fill: #444 } path { fill: none; stroke-width: 2 } .grid { stroke: #8886; \
                     stroke-width: 1 } .spread { stroke: #888; stroke-width: 1 }\n\
                     @media (prefers-color-scheme: dark) { text { fill: #ccc } }</style>\n";

/// A figure with the least and the most of any round.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) figure: f64,
    pub(crate) range: (f64, f64),
}

/// Texts of a plot of lines.
pub(crate) struct Axes<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) is_y_logarithmic: bool,
}

/// A line and its points.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws a bar for each figure, with a line where the figure is one.
pub(crate) fn bars(file: &Path, title: &str, all: &[Bar]) {
    let (left, right, row) = (130.0, 640.0, 26.0);
    let most = all.iter().map(|bar| bar.range.1).fold(1.0, f64::max);
    let x = |figure: f64| left + (right - left) * figure / most;
    let height = 60.0 + row * count(all.len());
    let mut svg = head(title, 720.0, height);
    writeln!(svg, "<text x=\"16\" y=\"18\">{title}</text>").unwrap();
    let (one, bottom) = (x(1.0), height - 12.0);
    writeln!(svg, "<path class=\"grid\" d=\"M{one:.1} 30V{bottom}\"/>").unwrap();
    for (index, bar) in all.iter().enumerate() {
        let top = 36.0 + row * count(index);
        let (colour, middle) = (COLOURS[index % COLOURS.len()], top + 8.0);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            top + 12.0,
            bar.name
        )
        .unwrap();
        let width = x(bar.figure) - left;
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width:.1}\" height=\"16\" fill=\"{colour}\"/>"
        )
        .unwrap();
        let (from, to) = (x(bar.range.0), x(bar.range.1));
        writeln!(svg, "<path class=\"spread\" d=\"M{from:.1} {middle}H{to:.1}\"/>").unwrap();
        writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{:.2}×</text>", to + 8.0, top + 12.0, bar.figure).unwrap();
    }
    svg.push_str("</svg>\n");
    fs::write(file, svg).unwrap();
    println!("the plot is in {}", file.display());
}

/// Draws lines against a logarithmic axis.
pub(crate) fn lines(file: &Path, axes: &Axes<'_>, all: &[Line]) {
    let [left, right, top, bottom] = [70.0, 470.0, 30.0, 330.0];
    let points = || all.iter().flat_map(|line| &line.points);
    let widest = points().fold((f64::MAX, f64::MIN), |range, (x, _)| (range.0.min(*x), range.1.max(*x)));
    let ticks = ticks(points().map(|(_, y)| *y).fold(0.0, f64::max), axes.is_y_logarithmic);
    let (least, most) = (ticks[0], ticks[ticks.len() - 1]);
    let x =
        |at: f64| left + (right - left) * (at / widest.0).log10() / (widest.1 / widest.0).log10().max(0.01);
    let y = |figure: f64| {
        let part = match axes.is_y_logarithmic {
            true => (figure.clamp(least, most) / least).log10() / (most / least).log10(),
            false => (figure - least) / (most - least),
        };
        bottom - part * (bottom - top)
    };
    let mut svg = head(axes.title, 720.0, 380.0);
    for tick in &ticks {
        let at = y(*tick);
        writeln!(svg, "<path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/>").unwrap();
        writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>", left - 8.0, at + 4.0)
            .unwrap();
    }
    let mut places: Vec<f64> = points().map(|(x, _)| *x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for place in places {
        let at = x(place);
        writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/>").unwrap();
        writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{place}</text>", bottom + 18.0)
            .unwrap();
    }
    writeln!(svg, "<text x=\"270\" y=\"368\" text-anchor=\"middle\">{}</text>", axes.x).unwrap();
    writeln!(svg, "<text x=\"16\" y=\"18\">{}</text>", axes.y).unwrap();
    for (index, line) in all.iter().enumerate() {
        let (colour, row) = (COLOURS[index % COLOURS.len()], top + 12.0 + 22.0 * count(index));
        let path: Vec<String> =
            line.points.iter().map(|(at, figure)| format!("{:.1} {:.1}", x(*at), y(*figure))).collect();
        writeln!(svg, "<path stroke=\"{colour}\" d=\"M{}\"/>", path.join("L")).unwrap();
        for (at, figure) in &line.points {
            let (at, figure) = (x(*at), y(*figure));
            writeln!(svg, "<circle cx=\"{at:.1}\" cy=\"{figure:.1}\" r=\"3\" fill=\"{colour}\"/>").unwrap();
        }
        writeln!(svg, "<rect x=\"490\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>", row - 6.0)
            .unwrap();
        writeln!(svg, "<text x=\"510\" y=\"{row:.1}\">{}</text>", line.name).unwrap();
    }
    svg.push_str("</svg>\n");
    fs::write(file, svg).unwrap();
    println!("the plot is in {}", file.display());
}

fn head(title: &str, width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n{STYLE}"
    )
}

/// Returns the marks of an axis up to this figure.
fn ticks(most: f64, is_logarithmic: bool) -> Vec<f64> {
    if is_logarithmic {
        return [0.1, 1.0, 10.0, 100.0, 1000.0].to_vec();
    }
    let steps = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];
    let step = steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(1000.0);
    (0..).map(|number| f64::from(number) * step).take_while(|tick| *tick < most + step).collect()
}

fn count(number: usize) -> f64 {
    f64::from(u16::try_from(number).unwrap())
}
