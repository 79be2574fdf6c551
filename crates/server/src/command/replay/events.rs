//! Events in the order in which they come.
//!
//! Each thread takes a block of lines all the way from its bytes to its output, so that nothing it allocates changes hands;
//! blocks are decided one after the other, and written one after the other. A block is whatever has arrived, so a caller that
//! sends one event at a time gets its answer at once.

use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::{Handle, Runtime};
use tollkeeper::{Limiter, ManualClock, Policy};

use super::decide::{Event, decide, write_lines};
use super::in_order::InOrder;
use crate::wire;

/// Bytes that are read at once.
const BLOCK: usize = 1 << 18;
/// More threads would wait for their turn to decide.
const MAX_THREADS: usize = 8;

pub(super) fn replay(
    input: Box<dyn BufRead + Send>,
    size: Option<u64>,
    limiter: &Arc<Limiter>,
    clock: ManualClock,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let replay = Arc::new(Replay {
        lines: Mutex::new(Lines { input, rest: Vec::new(), blocks: 0, lines: 0, is_over: false }),
        limiter: limiter.clone(),
        clock,
        runtime: runtime.handle().clone(),
        decided: InOrder::default(),
        written: InOrder::default(),
        progress: progress(size),
        is_sized: size.is_some(),
    });
    // At least two, so that one reads while the other waits for whoever reads the output.
    let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, MAX_THREADS);
    let (ended, end) = sync_channel(threads);
    for _ in 0..threads {
        let (replay, end) = (replay.clone(), End(ended.clone()));
        // Nobody waits for these threads: one may wait for input when all is over.
        thread::spawn(move || {
            if let Some(result) = replay.blocks() {
                end.is(result);
            }
        });
    }
    let result = end.recv().expect("this thread has a sender too");
    replay.progress.finish_and_clear();
    result
}

/// Where a thread says how it all ended, or that it panicked: the others would wait for its turn forever.
struct End(SyncSender<anyhow::Result<()>>);

impl End {
    fn is(&self, result: anyhow::Result<()>) {
        // There is room for one of each thread.
        let _ = self.0.try_send(result);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            self.is(Err(anyhow!("a thread panicked")));
        }
    }
}

struct Replay {
    lines: Mutex<Lines>,
    limiter: Arc<Limiter>,
    clock: ManualClock,
    runtime: Handle,
    decided: InOrder,
    written: InOrder,
    progress: ProgressBar,
    /// Whether the progress is in bytes, rather than in events.
    is_sized: bool,
}

impl Replay {
    /// Takes blocks until there are no more. `Some` of the thread that wrote the last one.
    fn blocks(&self) -> Option<anyhow::Result<()>> {
        let policy = self.limiter.policy();
        let (mut text, mut output) = (Vec::new(), Vec::new());
        loop {
            let block = self.lines.lock().unwrap_or_else(PoisonError::into_inner).block(&mut text)?;
            let (events, invalid) = events_of(&text, block.lines_before, &policy);
            let turn = self.decided.turn(block.number)?;
            let (decided, undecided) = self.runtime.block_on(decide(events, &self.limiter, &self.clock));
            let failed = undecided.or(invalid).or(block.unread);
            let is_last = block.is_last || failed.is_some();
            match is_last {
                true => turn.end_all(),
                false => drop(turn),
            }
            output.clear();
            write_lines(&mut output, &decided);
            let turn = self.written.turn(block.number)?;
            if let Err(error) = write(&output) {
                // Nothing may be decided when the store is cleared.
                self.decided.close();
                turn.end_all();
                return Some(Err(error.into()));
            }
            self.progress.inc(if self.is_sized { text.len() } else { decided.len() } as u64);
            if is_last {
                return Some(failed.map_or(Ok(()), Err));
            }
        }
    }
}

fn write(lines: &[u8]) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(lines)?;
    output.flush()
}

/// Input that is taken in blocks of whole lines.
struct Lines {
    input: Box<dyn BufRead + Send>,
    /// The beginning of a line.
    rest: Vec<u8>,
    blocks: u64,
    lines: u64,
    is_over: bool,
}

struct Block {
    number: u64,
    lines_before: u64,
    is_last: bool,
    /// Why nothing follows, if that is not the end.
    unread: Option<anyhow::Error>,
}

impl Lines {
    /// Puts the lines that can be read at once in `text`; `None` if there are no more.
    fn block(&mut self, text: &mut Vec<u8>) -> Option<Block> {
        if self.is_over {
            return None;
        }
        text.clear();
        text.append(&mut self.rest);
        let (number, lines_before, mut unread) = (self.blocks, self.lines, None);
        loop {
            let had = text.len();
            text.resize(had + BLOCK, 0);
            let read = self.input.read(&mut text[had..]);
            text.truncate(had + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => self.is_over = true,
                Ok(_) => match text[had..].iter().rposition(|byte| *byte == b'\n') {
                    Some(end) => self.rest.extend(text.drain(had + end + 1..)),
                    None => continue,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.is_over = true;
                    unread = Some(error);
                }
            }
            break;
        }
        self.blocks += 1;
        self.lines += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        let unread = unread.map(|error| anyhow::Error::from(error).context(format!("line {}", self.lines + 1)));
        Some(Block { number, lines_before, is_last: self.is_over, unread })
    }
}

/// Events, and what is wrong with the one after them.
fn events_of(lines: &[u8], lines_before: u64, policy: &Policy) -> (Vec<Event>, Option<anyhow::Error>) {
    let mut events = Vec::new();
    for (number, line) in (lines_before + 1..).zip(lines.split_inclusive(|byte| *byte == b'\n')) {
        match event_of(line, number, policy).with_context(|| format!("line {number}")) {
            Ok(event) => events.extend(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// `None` of an empty line.
fn event_of(line: &[u8], number: u64, policy: &Policy) -> anyhow::Result<Option<Event>> {
    let text = std::str::from_utf8(line).context("stream did not contain valid UTF-8")?;
    let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let event = wire::parse_event(text).map_err(anyhow::Error::msg)?;
    let charges = policy.charges(&event.request)?;
    Ok(Some(Event { line: Some(number), at_us: event.at_us, charges }))
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
