//! `tollkeeper draw`: the same traffic under each algorithm, drawn from real decisions. Narrow, with large letters, so that it can be
//! read on a phone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use tollkeeper::{Algorithm, Decision, Outcome, Quota, Span, Timestamp};
use tollkeeper_core::{State, decide};

use super::ending::Ending;

/// Draw how each algorithm treats the same traffic, from real decisions, as SVG
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  tollkeeper draw --out algorithms.svg")]
pub struct Args {
    /// The file to write; standard output by default
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_OUT")]
    out: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<Ending> {
    let svg = picture()?;
    match args.out {
        Some(path) => std::fs::write(&path, svg).with_context(|| format!("{}", path.display()))?,
        None => std::io::stdout().write_all(svg.as_bytes())?,
    }
    Ok(Ending::Fine)
}

const LIMIT: u32 = 10;
const SECONDS: u64 = 5;
/// How long a request of the concurrency lane keeps its slot.
const WORK_US: u64 = 400_000;
/// Whole seconds, so that windows start at the marks of the axis.
const ORIGIN_US: u64 = 1_700_000_000_000_000;

/// What a lane shows, beside its algorithm's name.
const LANES: [(Algorithm, &str); 6] = [
    (Algorithm::TokenBucket, "bursts pass while tokens last, then one every 100 ms"),
    (Algorithm::LeakyBucket, "queued and forwarded evenly; drawn at their turn"),
    (Algorithm::FixedWindow, "a burst around the edge of a window passes twice"),
    (Algorithm::SlidingWindowLog, "never more than 10 in any second"),
    (Algorithm::SlidingWindowCounter, "nearly the same from two counters"),
    (Algorithm::Concurrency, "10 at the same time, each busy for 400 ms"),
];

/// When requests arrive: few, a burst across the edge of a second, few, then steadily twice the limit.
fn arrivals() -> Vec<u64> {
    let calm = (0..6).map(|i| 100_000 + i * 120_000);
    let burst = (0..30).map(|i| 880_000 + i * 8_000);
    let later = (0..6).map(|i| 1_900_000 + i * 150_000);
    let overload = (0..40).map(|i| 3_000_000 + i * 50_000);
    calm.chain(burst).chain(later).chain(overload).collect()
}

/// A request of a lane: when it arrived, and when it was let through if admitted.
struct Mark {
    arrived_us: u64,
    passed_us: Option<u64>,
}

fn lane(algorithm: Algorithm) -> anyhow::Result<Vec<Mark>> {
    let quota = Quota::per(LIMIT, Span::SECOND).algorithm(algorithm).build()?;
    let mut state = State::Fresh;
    let mut busy: Vec<(u64, Decision)> = Vec::new();
    let mut marks = Vec::new();
    for arrived_us in arrivals() {
        busy.retain(|(until, decision)| {
            let done = *until <= arrived_us;
            if let (true, Some(hold)) = (done, decision.hold) {
                state.release(hold);
            }
            !done
        });
        let (decision, change) = decide(&quota, 1, &state, Timestamp::from_micros(ORIGIN_US + arrived_us));
        state.apply(change);
        let passed_us = match decision.outcome {
            Outcome::Allowed { delay } => Some(arrived_us + delay.as_micros()),
            Outcome::Denied { .. } => None,
        };
        if passed_us.is_some() {
            busy.push((arrived_us + WORK_US, decision));
        }
        marks.push(Mark { arrived_us, passed_us });
    }
    Ok(marks)
}

const WIDTH: f64 = 480.0;
const LEFT: f64 = 20.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 118.0;
const LANE: f64 = 154.0;
/// Where the words of a lane are, above what is drawn.
const WORDS: f64 = 62.0;
const CURVE: f64 = 52.0;

fn x(micros: u64) -> f64 {
    LEFT + micros as f64 / (SECONDS * 1_000_000) as f64 * (WIDTH - LEFT - RIGHT)
}

fn picture() -> anyhow::Result<String> {
    let height = TOP + LANE * LANES.len() as f64 + 8.0;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="How each algorithm admits the same traffic">"#
    )?;
    svg.push_str(STYLE);
    writeln!(svg, r#"<rect class="paper" width="{WIDTH}" height="{height}" rx="10"/>"#)?;
    writeln!(
        svg,
        r#"<text class="title" x="{LEFT}" y="34">The same {} requests, a limit of {LIMIT} a second</text>"#,
        arrivals().len()
    )?;
    writeln!(
        svg,
        r#"<circle class="yes" cx="26" cy="57" r="4"/><text x="38" y="62">admitted</text><circle class="no" cx="126" cy="57" r="3.5"/><text x="138" y="62">denied</text><path class="limit" d="M214 57 h24"/><text x="246" y="62">the limit</text><path class="curve" d="M20 86 v-9 h12 v9z"/><text x="38" y="86">let through in the last second</text>"#
    )?;
    for second in 0..=SECONDS {
        let x = x(second * 1_000_000);
        writeln!(svg, r#"<text class="tick" x="{x:.1}" y="{}">{second} s</text>"#, TOP - 6.0)?;
    }
    for (index, (algorithm, note)) in LANES.into_iter().enumerate() {
        draw_lane(&mut svg, TOP + LANE * index as f64, algorithm, note)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn draw_lane(svg: &mut String, top: f64, algorithm: Algorithm, note: &str) -> anyhow::Result<()> {
    let marks = lane(algorithm)?;
    let admitted = marks.iter().filter(|mark| mark.passed_us.is_some()).count();
    for second in 0..=SECONDS {
        let x = x(second * 1_000_000);
        writeln!(svg, r#"<path class="grid" d="M{x:.1} {:.1} V{:.1}"/>"#, top + WORDS - 6.0, top + LANE - 14.0)?;
    }
    writeln!(svg, r#"<text class="name" x="{LEFT}" y="{:.1}">{algorithm}</text>"#, top + 24.0)?;
    let end = WIDTH - RIGHT;
    writeln!(
        svg,
        r#"<text class="sum" x="{end}" y="{:.1}">{admitted} of {} admitted</text>"#,
        top + 24.0,
        marks.len()
    )?;
    writeln!(svg, r#"<text class="note" x="{LEFT}" y="{:.1}">{note}</text>"#, top + 45.0)?;
    let dots = top + WORDS;
    for mark in &marks {
        match mark.passed_us {
            Some(passed) if passed <= SECONDS * 1_000_000 => {
                writeln!(svg, r#"<circle class="yes" cx="{:.1}" cy="{dots:.1}" r="4"/>"#, x(passed))?;
            }
            Some(_) => {}
            None => {
                let below = dots + 11.0;
                writeln!(svg, r#"<circle class="no" cx="{:.1}" cy="{below:.1}" r="3.5"/>"#, x(mark.arrived_us))?;
            }
        }
    }
    draw_curve(svg, top + LANE - 14.0, &marks)
}

/// How many were let through in the second before each moment.
fn draw_curve(svg: &mut String, base: f64, marks: &[Mark]) -> anyhow::Result<()> {
    let mut passed: Vec<u64> = marks.iter().filter_map(|mark| mark.passed_us).collect();
    passed.sort_unstable();
    let height = |count: usize| CURVE * count as f64 / 22.0;
    let mut path = format!("M{:.1} {base:.1}", x(0));
    for step in 0..=SECONDS * 100 {
        let now = step * 10_000;
        let from = passed.partition_point(|at| *at + 1_000_000 <= now);
        let to = passed.partition_point(|at| *at <= now);
        let y = base - height(to - from);
        write!(path, " L{:.1} {y:.1}", x(now))?;
    }
    let limit = base - height(LIMIT as usize);
    writeln!(svg, r#"<path class="curve" d="{path} L{:.1} {base:.1}z"/>"#, x(SECONDS * 1_000_000))?;
    writeln!(svg, r#"<path class="limit" d="M{:.1} {limit:.1} H{:.1}"/>"#, x(0), x(SECONDS * 1_000_000))?;
    Ok(())
}

const STYLE: &str = "<style>
text{font:15px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#3d4852}
.title{font-size:17px;font-weight:600;fill:#1a202c}
.name{font:600 16px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1a202c}
.note{fill:#5b6b7b}.sum{font-weight:600;text-anchor:end}
.tick{text-anchor:middle;font-size:14px;fill:#5b6b7b}
.paper{fill:#fdfdfc;stroke:#dfe3e8}.grid{stroke:#e4e8ec;stroke-width:1}
.yes{fill:#1f8a5b;fill-opacity:.75}.no{fill:none;stroke:#c53d3d;stroke-width:1.4}
.curve{fill:#1f8a5b;fill-opacity:.2;stroke:#1f8a5b;stroke-width:1.2}
.limit{stroke:#c98a1b;stroke-width:1.4;stroke-dasharray:5 4;fill:none}
@media (prefers-color-scheme:dark){
text{fill:#c3ccd6}.title,.name{fill:#f2f5f8}.note,.tick{fill:#93a1b0}
.paper{fill:#14181d;stroke:#2a323b}.grid{stroke:#262d35}
.yes{fill:#44c78d}.curve{fill:#44c78d;stroke:#44c78d}.no{stroke:#f07878}.limit{stroke:#e6b04d}}
</style>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_differ_as_the_laws_say() {
        let in_any_second = |algorithm| {
            let passed: Vec<u64> = lane(algorithm).expect("a quota").iter().filter_map(|mark| mark.passed_us).collect();
            let count = |from: u64| passed.iter().filter(|at| (from..from + 1_000_000).contains(*at)).count();
            passed.iter().map(|from| count(*from)).max().unwrap_or(0)
        };
        assert_eq!(in_any_second(Algorithm::SlidingWindowLog), 10);
        assert!(in_any_second(Algorithm::FixedWindow) > 10, "the picture shows the double burst");
        assert!(in_any_second(Algorithm::LeakyBucket) <= 11);
    }
}
