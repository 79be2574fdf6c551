//! How fast logs are read and decided, and in how much memory: `cargo run --release -p tollkeeper-tune --example measure -- LINES [PAGE.html]`.
//!
//! A sample log of that many lines is written to a file first, then read with three rules by as many threads as there are cores, and by one.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Instant;

use tollkeeper::{Policy, Rule};
use tollkeeper_tune::{Log, MAX_KEYS, Naming, Options, Progress, Report, Source, write_page, write_sample};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let lines: u64 = arguments.next().ok_or("how many lines?")?.parse()?;
    let page = arguments.next();
    let path = std::env::temp_dir().join(format!("tollkeeper-measure-{}.log", std::process::id()));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    write_sample(lines, 1, &mut file)?;
    file.flush()?;
    drop(file);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut last = None;
    for workers in [cores, 1] {
        let began = Instant::now();
        let report = run(&path.display().to_string(), workers)?;
        let wall = began.elapsed().as_secs_f64();
        println!("{workers} workers: {wall:.2} s, {:.0} lines a second; {}", lines as f64 / wall, usage());
        last = Some(report);
    }
    std::fs::remove_file(&path)?;
    if let (Some(page), Some(report)) = (page, last) {
        write_page(&report, &mut File::create(page)?)?;
    }
    Ok(())
}

fn run(path: &str, workers: usize) -> Result<Report, Box<dyn Error>> {
    let logs = Log::open(Source::named(&[path.to_owned()])?, None, 0)?;
    let policy = Policy::new([
        Rule::new("per-address").key("{ip}").limit("20/min").burst(10),
        Rule::new("login").key("{ip}").limit("5/min").when("path", "/login"),
        Rule::new("everybody").key("global").limit("5000/s"),
    ])?;
    let options =
        Options { naming: Naming::default(), policy: Some(policy), compared: None, workers, max_keys: MAX_KEYS };
    let plain = |_: &Rule, _: u16, key: &str| key.to_owned();
    Ok(Report::of(logs, options, &Progress::default(), &plain))
}

/// What this process has used so far, as Linux tells it.
fn usage() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // In hundredths of a second, after the name in parentheses: user and system time.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let time = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    format!("{:.1} s of CPU so far, at most {most}", time(11) + time(12))
}
