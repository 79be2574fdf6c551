//! How fast access logs are read and rules tried on them, beside goaccess on the same file.
//!
//! Every contestant is a process of its own: the real binary with three rules, on all cores and with one worker, and
//! `goaccess`, which counts the same file and decides nothing. They take turns. Processor time and peak memory are what the
//! system says of the process; a busy machine makes wall time worse and changes processor time little.
//!
//!     cargo build --profile dist && cargo run --release --manifest-path bench/Cargo.toml --bin tune [LINES] [ROUNDS] [BINARY]
//!
//! The log is that of `tollkeeper tune --sample LINES`: the same for everybody. Without `goaccess` (Debian: `apt-get install goaccess`)
//! its row is left out.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tollkeeper_bench::Samples;

/// One for each address, one for a route, one for everybody: a request takes from all of its buckets or from none.
const RULES: &str = "rules:
  - { name: per-address, key: '{ip}', limit: 20/min, burst: 10 }
  - { name: login, key: '{ip}', limit: 5/min, when: { path: /login } }
  - { name: everybody, key: global, limit: 5000/s }
";

fn main() -> std::io::Result<()> {
    let argument = |place: usize| std::env::args().nth(place);
    let lines: u64 = argument(1).and_then(|lines| lines.parse().ok()).unwrap_or(2_000_000);
    let rounds: usize = argument(2).and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let binary = argument(3).unwrap_or_else(|| "target/dist/tollkeeper".into());
    let folder = Folder::new()?;
    let (log, rules) = (folder.0.join("access.log"), folder.0.join("rules.yaml"));
    std::fs::write(&rules, RULES)?;
    let sample = ["tune", "--sample", &lines.to_string()].map(str::to_owned);
    let written = Command::new(&binary).args(sample).stdout(File::create(&log)?).status()?;
    assert!(written.success(), "{binary} tune --sample failed");
    let mut programs = programs(&binary, &log, &rules, &folder.0);
    for _ in 0..rounds {
        for program in &mut programs {
            let used = program.run()?;
            program.seconds.push(used.seconds);
            program.processor.push(used.processor);
            program.memory = program.memory.max(used.memory);
        }
    }
    let millions = lines as f64 / 1e6;
    let others = programs.iter().find(|program| program.name.starts_with("goaccess"));
    let reference = others.map(|program| program.processor.median());
    println!("| program | lines a second | processor s per million lines | of goaccess's | peak MiB |");
    println!("|---|---:|---:|---:|---:|");
    for program in &programs {
        let processor = program.processor.median();
        let ratio = reference.map_or("-".into(), |reference| format!("1/{:.1}", reference / processor));
        println!(
            "| {} | {:.0} | {:.2} | {ratio} | {:.0} |",
            program.name,
            lines as f64 / program.seconds.spread().0,
            processor / millions,
            program.memory
        );
    }
    Ok(())
}

fn programs(binary: &str, log: &Path, rules: &Path, folder: &Path) -> Vec<Program> {
    let (log, rules) = (log.display().to_string(), rules.display().to_string());
    let of = |name: &str, program: &str, arguments: &[&str]| Program {
        name: name.to_owned(),
        command: std::iter::once(program).chain(arguments.iter().copied()).map(str::to_owned).collect(),
        seconds: Samples::default(),
        processor: Samples::default(),
        memory: 0.0,
    };
    let mut programs = vec![
        of("tollkeeper tune, three rules", binary, &["tune", &log, "-c", &rules, "--json"]),
        of("the same with --workers 1", binary, &["tune", &log, "-c", &rules, "--json", "--workers", "1"]),
        of("tollkeeper tune, no rules", binary, &["tune", &log, "--json"]),
        of("tollkeeper replay --summary", binary, &["replay", "--input", &log, "--config", &rules, "--summary"]),
        of("tollkeeper replay", binary, &["replay", "--input", &log, "--config", &rules]),
    ];
    if Command::new("goaccess").arg("--version").stdout(Stdio::null()).status().is_ok() {
        let report = folder.join("report.json").display().to_string();
        let arguments = [log.as_str(), "--log-format=COMBINED", "--no-progress", "-o", &report];
        programs.push(of("goaccess", "goaccess", &arguments));
    } else {
        eprintln!("goaccess is not installed: its row is left out");
    }
    programs
}

/// A contestant.
struct Program {
    name: String,
    command: Vec<String>,
    seconds: Samples,
    processor: Samples,
    /// The most of all rounds, in MiB.
    memory: f64,
}

/// What a process used.
struct Used {
    seconds: f64,
    processor: f64,
    memory: f64,
}

impl Program {
    fn run(&self) -> std::io::Result<Used> {
        let began = Instant::now();
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (processor, memory) = ended(child, &self.name);
        Ok(Used { seconds: began.elapsed().as_secs_f64(), processor, memory })
    }
}

/// Waits for a process; its processor time in seconds and its peak memory in MiB.
fn ended(child: Child, name: &str) -> (f64, f64) {
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both are valid to write to, and nobody else waits for this process.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, usage.as_mut_ptr()) };
    assert!(waited > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{name} failed");
    // SAFETY: zeroed, which is valid for numbers, and then written.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0)
}

/// A folder that is gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("tollkeeper-bench-tune-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
