//! `tollkeeper replay`: decides recorded requests in virtual time. Each event sets the clock.

use std::fs::File;
use std::io::{BufRead, ErrorKind, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::Runtime;
use tollkeeper::{Charge, Limiter, ManualClock, Policy, Rule, Store, Timestamp, Verdict};
use tollkeeper_logs::Format;
use tollkeeper_tune::words::counted;
use tollkeeper_tune::{Log, Naming, Options, Paint, Progress, Report, Source, each_request, summary};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use super::tune::offset;
use crate::privacy::Privacy;
use crate::settings::{self, Loaded};
use crate::wire;

/// Decide recorded requests in virtual time: events or access logs in, decisions or a summary out
#[derive(Debug, clap::Args)]
#[command(after_help = "Each line in:  {\"at_us\": 3000000, \"attributes\": {\"user_id\": \"42\"}, \"cost\": 1}
Each line out: {\"at_us\": 3000000, \"allowed\": true, \"limiting\": null, \"retry_after_us\": 0, \"rules\": [...]}
Access logs are read too, in the formats of `tollkeeper tune`; their requests are decided in order of time.

Examples:
  tollkeeper replay --config tollkeeper.yaml < events.jsonl > decisions.jsonl
  tollkeeper replay --store redis://127.0.0.1:6379 --input events.jsonl
  tollkeeper replay --config tollkeeper.yaml --input access.log --summary
  tollkeeper replay --input events.jsonl | jq -c 'select(.allowed | not)'")]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Where state lives, instead of the store in the file: `memory:`, `redis://`, `redis+cluster://` or `redis+sentinel://`
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_STORE")]
    store: Option<String>,
    /// Read events from a file rather than standard input
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_INPUT")]
    input: Option<PathBuf>,
    /// The format of an access log: a name such as `combined`, or as written in the configuration of nginx or Apache
    #[arg(long, value_name = "FORMAT", env = "TOLLKEEPER_FORMAT")]
    format: Option<String>,
    /// The UTC offset of times without a time zone, such as +02:00 (HAProxy)
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", value_parser = offset, allow_hyphen_values = true, env = "TOLLKEEPER_UTC_OFFSET")]
    utc_offset: i64,
    /// Print a summary instead of each decision: what every rule denied, and whom
    #[arg(long, env = "TOLLKEEPER_SUMMARY", value_parser = clap::builder::FalseyValueParser::new())]
    summary: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut loaded = args.config.load_with_rules()?;
    operations::warn(&loaded);
    if let Some(store) = &args.store {
        loaded.config.store.url.clone_from(store);
    }
    if args.summary {
        if !loaded.config.store.url.starts_with("memory:") {
            bail!("--summary decides in memory: leave out --store, or give --store memory:");
        }
        return summarise(logs(&args)?, loaded);
    }
    let clock = ManualClock::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = runtime.block_on(settings::store(&loaded.config, clock.clone().into()))?;
    let limiter = Limiter::new(loaded.policy, store);
    if args.format.is_some() || is_access_log(&args.input)? {
        let logs = logs(&args)?;
        let naming = Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify.clone() };
        let replayed = replay_logs(logs, &naming, &limiter, &clock, &runtime);
        return ended(&runtime, &limiter, replayed);
    }
    let (input, size): (Box<dyn Read + Send>, _) = match &args.input {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            let size = file.metadata().ok().map(|metadata| metadata.len());
            (Box::new(file), size)
        }
        None => (Box::new(std::io::stdin()), None),
    };
    let replayed = replay(input, size, &limiter, &clock, &runtime);
    ended(&runtime, &limiter, replayed)
}

fn ended(runtime: &Runtime, limiter: &Limiter, replayed: anyhow::Result<()>) -> anyhow::Result<Ending> {
    if let Store::Redis(redis) = limiter.store() {
        runtime.block_on(redis.clear()).context("the keys of the replay could not be removed from the store")?;
    }
    replayed?;
    Ok(Ending::Fine)
}

fn logs(args: &Args) -> anyhow::Result<Vec<Log>> {
    let name = args.input.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
    let format = args.format.as_deref().map(Format::named).transpose().context("--format")?;
    Ok(Log::open(Source::named(&[name])?, format.as_ref(), args.utc_offset)?)
}

/// Whether the first line is not an event. Nothing of the input is consumed.
fn is_access_log(input: &Option<PathBuf>) -> anyhow::Result<bool> {
    let mut start = Vec::new();
    match input {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            file.take(4_096).read_to_end(&mut start)?;
        }
        // Standard input has one buffer, whoever reads it.
        None => start.extend_from_slice(std::io::stdin().lock().fill_buf()?),
    }
    let text = String::from_utf8_lossy(&start);
    let lines: Vec<&str> =
        text.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty()).take(1).collect();
    // What is neither is an event with a mistake, which is reported as such.
    let is_event = lines.first().is_none_or(|line| {
        line.trim_start().starts_with('{') && (line.contains("\"at_us\"") || line.contains("\"attributes\""))
    });
    Ok(!is_event
        && (start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5]) || Format::detect(&lines).is_some()))
}

/// Rules on a log, with the report of `tollkeeper tune`.
fn summarise(logs: Vec<Log>, loaded: Loaded) -> anyhow::Result<Ending> {
    let privacy = Privacy::new(&loaded.config.identify);
    let shown = |rule: &Rule, variant: u16, key: &str| privacy.shown_key(rule, variant, key).into_owned();
    let options = Options {
        naming: Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify },
        policy: Some(loaded.policy),
        compared: None,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        max_keys: tollkeeper_tune::MAX_KEYS,
    };
    let report = Report::of(logs, options, &Progress::default(), &shown);
    let mut out = std::io::stdout().lock();
    let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    write!(out, "{}", summary(&report, if colours { Paint::Colours } else { Paint::Plain }))?;
    Ok(Ending::Fine)
}

/// Each request of access logs, in order of time.
fn replay_logs(
    logs: Vec<Log>,
    naming: &Naming,
    limiter: &Limiter,
    clock: &ManualClock,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let policy = limiter.policy();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let (verdicts, decided) = sync_channel::<Vec<(u64, Verdict)>>(AHEAD);
    let writer = thread::spawn(move || write_verdicts(&decided));
    let (mut failed, mut is_read) = (None, true);
    let mut decide = |events: Vec<Event>| {
        if failed.is_none() && is_read {
            let (batch, undecided) = runtime.block_on(decide_events(events, limiter, clock));
            // The writer has gone if nobody reads the output any more; it says so.
            is_read = verdicts.send(batch).is_ok();
            failed = undecided;
        }
    };
    let mut events = Vec::with_capacity(TOGETHER);
    let read = each_request(
        logs,
        naming,
        workers,
        &Progress::default(),
        |request| policy.charges(request).map_err(|error| error.to_string()),
        |at_us, charges| {
            events.push(Event { line: None, at_us, charges });
            if events.len() == TOGETHER {
                decide(std::mem::replace(&mut events, Vec::with_capacity(TOGETHER)));
            }
        },
    );
    decide(events);
    drop(verdicts);
    let written = writer.join().unwrap_or_else(|_| bail!("the output could not be written"));
    failed.map_or(written, Err)?;
    for bad in &read.first_unreadable {
        writeln!(std::io::stderr(), "warning: {}:{}: {}", bad.source, bad.line, bad.reason)?;
    }
    if read.unreadable > 0 {
        writeln!(std::io::stderr(), "warning: {} could not be read", counted(read.unreadable, "line"))?;
    }
    Ok(())
}

/// Events in the order in which they come. One thread reads and understands them, this one decides, and one writes; each hands on whatever is
/// complete, so a caller that sends one event at a time gets its answer at once.
fn replay(
    mut input: Box<dyn Read + Send>,
    size: Option<u64>,
    limiter: &Limiter,
    clock: &ManualClock,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let progress = progress(size);
    let policy = limiter.policy();
    let (events, understood) = sync_channel::<Events>(AHEAD);
    let (verdicts, decided) = sync_channel::<Vec<(u64, Verdict)>>(AHEAD);
    // Nobody waits for the reader: it may wait for input when all is over.
    thread::spawn(move || understand(&mut *input, &policy, &events));
    let writer = thread::spawn(move || write_verdicts(&decided));
    let mut failed = None;
    for Events { events, bytes, broken } in understood {
        progress.inc(if size.is_some() { bytes } else { events.len() as u64 });
        let (batch, undecided) = runtime.block_on(decide_events(events, limiter, clock));
        // The writer has gone if nobody reads the output any more; it says so.
        let is_read = verdicts.send(batch).is_ok();
        failed = undecided.or(broken);
        if failed.is_some() || !is_read {
            break;
        }
    }
    drop(verdicts);
    let written = writer.join().unwrap_or_else(|_| bail!("the output could not be written"));
    progress.finish_and_clear();
    failed.map_or(written, Err)
}

/// Batches that may wait for the next thread.
const AHEAD: usize = 4;
/// Requests of a log that are decided before they are handed on.
const TOGETHER: usize = 1_024;
/// Bytes that are read at once.
const BLOCK: usize = 1 << 18;

/// Some events, and what is wrong with the one after them.
struct Events {
    events: Vec<Event>,
    bytes: u64,
    broken: Option<anyhow::Error>,
}

struct Event {
    /// Where it stands, counted from 1; not known of a log, whose requests are put in order.
    line: Option<u64>,
    at_us: u64,
    charges: Vec<Charge>,
}

/// Reads events until the input ends, a line is invalid, or nobody waits for more.
fn understand(input: &mut dyn Read, policy: &Policy, events: &SyncSender<Events>) {
    let (mut rest, mut line) = (Vec::new(), 0);
    loop {
        let had = rest.len();
        rest.resize(had + BLOCK, 0);
        let (read, broken) = match input.read(&mut rest[had..]) {
            Ok(read) => (read, None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                rest.truncate(had);
                continue;
            }
            Err(error) => (0, Some(anyhow::Error::from(error).context(format!("line {}", line + 1)))),
        };
        rest.truncate(had + read);
        let ends = match read {
            0 => rest.len(),
            _ => rest[had..].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| had + end + 1),
        };
        let mut batch = events_of(&rest[..ends], &mut line, policy);
        batch.broken = batch.broken.or(broken);
        rest.drain(..ends);
        let goes_on = read > 0 && batch.broken.is_none();
        if events.send(batch).is_err() || !goes_on {
            return;
        }
    }
}

fn events_of(lines: &[u8], number: &mut u64, policy: &Policy) -> Events {
    let mut found = Events { events: Vec::new(), bytes: lines.len() as u64, broken: None };
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        *number += 1;
        match event_of(line, *number, policy).with_context(|| format!("line {number}")) {
            Ok(event) => found.events.extend(event),
            Err(error) => {
                found.broken = Some(error);
                break;
            }
        }
    }
    found
}

/// `None` of an empty line.
fn event_of(line: &[u8], number: u64, policy: &Policy) -> anyhow::Result<Option<Event>> {
    let text = std::str::from_utf8(line).context("stream did not contain valid UTF-8")?;
    let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let event = wire::parse_event(text).map_err(anyhow::Error::msg)?;
    let charges = policy.charges(&event.descriptor)?;
    Ok(Some(Event { line: Some(number), at_us: event.at_us, charges }))
}

/// The verdicts, up to the first event that could not be decided.
async fn decide_events(
    events: Vec<Event>,
    limiter: &Limiter,
    clock: &ManualClock,
) -> (Vec<(u64, Verdict)>, Option<anyhow::Error>) {
    let mut verdicts = Vec::with_capacity(events.len());
    for Event { line, at_us, charges } in events {
        clock.set(Timestamp::from_micros(at_us));
        let error = match limiter.check_charges(charges).await {
            Ok(verdict) if verdict.is_degraded() => anyhow::anyhow!("the store did not answer"),
            Ok(verdict) => {
                verdicts.push((at_us, verdict));
                continue;
            }
            Err(error) => anyhow::Error::from(error),
        };
        let error = match line {
            Some(line) => error.context(format!("line {line}")),
            None => error,
        };
        return (verdicts, Some(error));
    }
    (verdicts, None)
}

fn write_verdicts(decided: &Receiver<Vec<(u64, Verdict)>>) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let mut lines = Vec::new();
    for batch in decided {
        for (at_us, verdict) in &batch {
            wire::write_replay_line(&mut lines, *at_us, verdict);
            lines.push(b'\n');
        }
        output.write_all(&lines)?;
        output.flush()?;
        lines.clear();
    }
    Ok(())
}

/// Shown in a terminal only, not when output or errors go to a file or a pipe.
fn progress(size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:40} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {human_pos} events, {per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
