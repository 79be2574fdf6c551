//! `./run soak` and `./run bench overload`: the service under load for minutes, and under more than it can do.
//!
//! `soak MINUTES` keeps it busy with everything that grows if something leaks: new keys, denials, slots, reservations,
//! short connections. It samples memory, open files and latency, and fails on any error, or if memory or files grow.
//!
//! `overload SVG [SECONDS]` offers more and more, from far below to far above what the machine can do, each load for some
//! seconds, and draws how much is answered, admitted and shed. Requests are sent when they are due, whether or not earlier
//! ones were answered (open loop). It fails if the one key that all clients share gets more than its limit.
//!
//! Both run the service on a real Redis, on loopback, and print a table.

#[path = "../../chance.rs"]
mod chance;
mod client;
mod overload;
mod plot;
mod quantiles;
mod service;
mod soak;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: soak MINUTES | overload SVG [SECONDS]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was well.
fn run() -> Result<bool, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<f64>().ok().filter(|it| *it > 0.0).ok_or(format!("{text:?}: {USAGE}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match words[..] {
        ["soak", minutes] => Ok(runtime.block_on(soak::run(Duration::from_secs_f64(number(minutes)? * 60.0)))),
        ["overload", svg, ref seconds @ ..] if seconds.len() < 2 => {
            let seconds = seconds.first().map_or(Ok(6.0), |seconds| number(seconds))?;
            let steps = runtime.block_on(overload::run(Duration::from_secs_f64(seconds)));
            std::fs::write(svg, plot::draw(&steps))?;
            Ok(overload::is_limited(&steps))
        }
        _ => Err(USAGE.into()),
    }
}
