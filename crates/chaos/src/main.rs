//! `./run chaos`: fault injection, judged by an auditor that knows only what clients saw.
//!
//! Three instances of the service share a real store; clients keep every limit exhausted while the store, the network
//! or the instances fail. Then every interval of every key is judged against the bound that `docs/guide/bounds.md`
//! publishes for this fault and this kind of rule. The seed determines the faults.

mod chance;
mod client;
mod fleet;
mod link;
mod plot;
mod report;
mod scenarios;
mod stage;

use std::error::Error;
use std::process::ExitCode;

use tollkeeper_auditor::Bounds;
use tollkeeper_testkit::repository;

use report::Report;

const USAGE: &str = "usage: chaos [--short] [--seed N] [--only TEXT] [--report FOLDER]";

/// The arguments.
#[derive(Default)]
struct Wanted {
    is_short: bool,
    seed: u64,
    only: String,
    report: Option<String>,
}

fn main() -> ExitCode {
    match wanted().and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(2)
        }
    }
}

fn wanted() -> Result<Wanted, Box<dyn Error>> {
    let mut wanted = Wanted { seed: 1, ..Wanted::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--short" => wanted.is_short = true,
            "--seed" => wanted.seed = value()?.parse()?,
            "--only" => wanted.only = value()?,
            "--report" => wanted.report = Some(value()?),
            _ => return Err(format!("{word:?} is not known; {USAGE}").into()),
        }
    }
    Ok(wanted)
}

/// Whether every bound held.
fn run(wanted: Wanted) -> Result<bool, Box<dyn Error>> {
    let page = std::fs::read_to_string(repository().join("docs/guide/bounds.md"))?;
    let bounds = Bounds::read(&page)?;
    let mut report = Report::new(wanted.seed);
    for scenario in &scenarios::ALL {
        if (wanted.is_short && !scenario.is_short) || !scenario.name.contains(&wanted.only) {
            continue;
        }
        eprintln!("{} ...", scenario.name);
        let recording = (scenario.run)(wanted.seed);
        for line in report.add(scenario, &bounds, recording)? {
            println!("{line}");
        }
    }
    if let Some(folder) = wanted.report {
        report.write(folder.as_ref())?;
    }
    report.is_complete().then_some(report.holds()).ok_or_else(|| "no scenario has this name".into())
}
