//! Logs, read by several threads and handed out in order of time.
//!
//! One thread a log cuts it into chunks of whole lines, workers turn chunks into requests, and the caller's thread takes the chunks of each log
//! in their order, merges logs by time and puts requests in order. So what comes out does not depend on how many workers there are.

use std::borrow::Cow;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread, vec};

use tollkeeper_logs::{Entry, Format, Precision};

use crate::input::{Source, unpacked};
use crate::order::{Order, Timed};

/// How many bytes of lines a worker takes at a time; few in tests, so that short logs have many chunks.
const CHUNK: usize = if cfg!(test) { 1 << 13 } else { 1 << 18 };
/// How many bytes detection looks at.
const SAMPLE_BYTES: u64 = 1 << 16;
/// A longer line is not a request.
const LONGEST_LINE: usize = 1 << 20;
/// How many lines detection looks at.
const SAMPLE_LINES: usize = 200;
/// How many requests a chunk may stand for: a record of our own violations may count many.
const MOST_OF_CHUNK: usize = 200_000;
/// How long before its first request a log is opened, in microseconds.
const AHEAD: u64 = 60_000_000;
/// How many unreadable lines are shown.
const SHOWN: usize = 5;

/// A log whose format is known.
#[derive(Debug)]
pub struct Log {
    source: Source,
    format: Format,
    /// When its first request came; the first of all when that is unknown.
    first_us: u64,
    /// Whether nothing tells its format.
    is_empty: bool,
    /// What was read to find that out, of a source that can be read once.
    start: Option<Started>,
    /// Names of attributes that its first lines have.
    names: Vec<String>,
}

/// A source that has been begun.
struct Started {
    read: Vec<u8>,
    rest: Box<dyn Read + Send>,
}

/// Reports what went wrong when a source was begun.
struct Damaged(Option<io::Error>);

impl Read for Damaged {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Started({} bytes)", self.read.len())
    }
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be opened.
    #[error("{0}: {1}")]
    Unreadable(String, io::Error),
    /// No format reads its first lines.
    #[error(
        "{name}: no known format reads its first lines, such as {line:?}; say which with --format, as it is written in the configuration of nginx or Apache"
    )]
    UnknownFormat {
        /// The source.
        name: String,
        /// One of its lines.
        line: String,
    },
}

/// How far reading is, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read, compressed as they are.
    pub bytes: Arc<AtomicU64>,
    /// Lines read.
    pub lines: AtomicU64,
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadLine {
    /// The source.
    pub source: String,
    /// Counted from 1.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
    /// How the line begins.
    pub text: String,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReadReport {
    /// Each format and the number of sources in it.
    pub formats: Vec<(String, u64)>,
    /// All lines.
    pub lines: u64,
    /// Those that are requests.
    pub requests: u64,
    /// Those that could not be read.
    pub unreadable: u64,
    /// The first few of these.
    pub first_unreadable: Vec<BadLine>,
    /// Requests whose time is a whole second, spread evenly over it.
    pub spread_over_their_second: u64,
    /// Lines that came too late to be sorted in.
    pub too_late: u64,
    /// The time of the first request, in microseconds since the epoch.
    pub first_us: u64,
    /// The time of the last request.
    pub last_us: u64,
    /// Sources that ended in an error, after what was read of them.
    pub broken: Vec<String>,
}

struct Chunk {
    log: usize,
    is_first: bool,
    bytes: Vec<u8>,
    format: Format,
    too_long: u64,
}

struct Batch<L> {
    /// When each request of `made` came.
    requests: Vec<Timed<u32>>,
    /// What became of them; nothing if there are none.
    made: Option<L>,
    lines: u64,
    unreadable: u64,
    /// With their number in this chunk.
    shown: Vec<BadLine>,
    broken: Option<String>,
}

type Ordered<L> = Receiver<Receiver<Batch<L>>>;
type Work<L> = (Chunk, SyncSender<Batch<L>>);

/// Makes of the entries of a chunk what its caller needs of them.
pub(crate) trait Worker {
    /// What becomes of a chunk.
    type Lines: Send;

    /// Takes over a request; the first of a chunk is number 0.
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), String>;

    /// What was taken over since the last call.
    fn take(&mut self) -> Self::Lines;
}

/// A request of a chunk that is on the shelf.
#[derive(Debug, Clone, Copy)]
struct Item {
    chunk: u32,
    index: u32,
}

/// What became of chunks, until the last of their requests has been handed out.
struct Shelf<L> {
    chunks: Vec<Option<(L, usize)>>,
    free: Vec<u32>,
}

impl<L> Shelf<L> {
    fn put(&mut self, made: L, requests: usize) -> u32 {
        let chunk = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            (self.chunks.len() - 1) as u32
        });
        self.chunks[chunk as usize] = Some((made, requests));
        chunk
    }

    fn hand_out(&mut self, item: Item, sink: impl FnOnce(&mut L, usize)) {
        let place = &mut self.chunks[item.chunk as usize];
        let Some((made, left)) = place else { return };
        sink(made, item.index as usize);
        *left -= 1;
        if *left == 0 {
            *place = None;
            self.free.push(item.chunk);
        }
    }
}

impl Log {
    /// Looks at the first lines of each source. Times that name no zone are `offset_seconds` east of UTC.
    pub fn open(sources: Vec<Source>, format: Option<&Format>, offset_seconds: i64) -> Result<Vec<Log>, LogError> {
        let opened = sources.into_iter().map(|source| {
            let is_read_once = !source.can_be_read_again();
            let reader = source.open(Arc::default());
            Log::probe(source, reader, is_read_once, format, offset_seconds)
        });
        opened.collect()
    }

    /// The same of a source that its caller has opened, and of which nothing was taken.
    pub fn opened(
        source: Source,
        reader: impl Read + Send + 'static,
        format: Option<&Format>,
        offset_seconds: i64,
    ) -> Result<Log, LogError> {
        Log::probe(source, unpacked(reader), true, format, offset_seconds)
    }

    fn probe(
        source: Source,
        reader: io::Result<Box<dyn Read + Send>>,
        is_read_once: bool,
        format: Option<&Format>,
        offset_seconds: i64,
    ) -> Result<Log, LogError> {
        let unreadable = |error: io::Error| LogError::Unreadable(source.name(), error);
        let mut reader = reader.map_err(unreadable)?;
        let mut read = Vec::new();
        let ended = reader.by_ref().take(SAMPLE_BYTES).read_to_end(&mut read);
        let rest = match ended {
            Ok(_) => reader,
            Err(error) if read.is_empty() => return Err(unreadable(error)),
            // A file that is damaged is still worth reading up to there. Its decoder may say so only once.
            Err(error) => Box::new(Damaged(Some(error))),
        };
        let text = String::from_utf8_lossy(&read);
        let mut lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().take(SAMPLE_LINES).collect();
        // The last line may be cut off.
        if lines.len() > 1 && lines.len() < SAMPLE_LINES && !text.ends_with('\n') {
            lines.pop();
        }
        let is_empty = lines.iter().all(|line| line.trim().is_empty());
        let detected = match format {
            Some(format) => Some(format.clone()),
            // Any will do.
            None if is_empty => Format::named("combined").ok(),
            None => Format::detect(&lines),
        };
        let Some(format) = detected else {
            let line = lines.iter().find(|line| !line.trim().is_empty()).unwrap_or(&"");
            return Err(LogError::UnknownFormat { name: source.name(), line: line.chars().take(120).collect() });
        };
        let mut format = format.at_offset(offset_seconds);
        let (mut first_us, mut names) = (None, Vec::new());
        for line in lines {
            let Ok(Some(entry)) = format.read(line) else { continue };
            first_us.get_or_insert(entry.at_us);
            if entry.user.is_some() && !names.iter().any(|name| name == "user_id") {
                names.push("user_id".to_owned());
            }
            for (name, _) in &entry.others {
                if !names.iter().any(|known| known == name) {
                    names.push(name.clone().into_owned());
                }
            }
        }
        let start = is_read_once.then_some(Started { read, rest });
        Ok(Log { source, format, first_us: first_us.unwrap_or(0), is_empty, start, names })
    }

    /// The name of its format.
    #[must_use]
    pub fn format(&self) -> String {
        self.format.to_string()
    }

    /// Whether its times name no zone.
    #[must_use]
    pub fn is_zoneless(&self) -> bool {
        self.format.is_zoneless()
    }

    /// Names of attributes beside address, method, path and host that its first lines have.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Its size in bytes, if it has one.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.source.size()
    }
}

/// Reads logs with this many workers, each made by `worker`; `sink` gets the requests in order of time: what became of their chunk, and
/// their number in it.
pub(crate) fn read<W: Worker>(
    logs: Vec<Log>,
    workers: usize,
    progress: &Progress,
    worker: impl Fn() -> W + Sync,
    mut sink: impl FnMut(u64, &mut W::Lines, usize),
) -> ReadReport {
    let mut report = ReadReport::default();
    for log in logs.iter().filter(|log| !log.is_empty) {
        match report.formats.iter_mut().find(|(name, _)| *name == log.format()) {
            Some((_, count)) => *count += 1,
            None => report.formats.push((log.format(), 1)),
        }
    }
    let names: Vec<String> = logs.iter().map(|log| log.source.name()).collect();
    let (work, waiting) = sync_channel::<Work<W::Lines>>(workers * 2);
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut worker = worker();
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((chunk, done)) = next else { break };
                    // Nobody waits for it when reading was given up.
                    let _ = done.send(parse(chunk, &names, &mut worker));
                }
            });
        }
        let mut pending: Vec<(usize, Log)> = logs.into_iter().enumerate().collect();
        // The earliest last, to be taken from the end; of equal ones the first named.
        pending.sort_by_key(|(place, log)| std::cmp::Reverse((log.first_us, *place)));
        let mut streams: Vec<Stream<W::Lines>> = Vec::new();
        let mut order = Order::new();
        let mut shelf = Shelf { chunks: Vec::new(), free: Vec::new() };
        loop {
            // Before a request is handed out, all logs are open that begin by then, and a while later, because they may begin with late lines.
            while let Some((_, next)) = pending.last()
                && earliest_of(&streams)
                    .is_none_or(|earliest| next.first_us <= streams[earliest].next_us().saturating_add(AHEAD))
            {
                let Some((place, log)) = pending.pop() else { break };
                let (ordered, batches) = sync_channel(workers * 2 + 2);
                let work = work.clone();
                let bytes = progress.bytes.clone();
                let name = log.source.name();
                scope.spawn(move || split(place, &name, log, &work, &ordered, bytes));
                let mut stream = Stream { batches, requests: Vec::new().into_iter(), chunk: 0, lines: 0, head: None };
                if stream.advance(&mut report, progress, &mut shelf) {
                    streams.push(stream);
                }
            }
            let Some(next) = earliest_of(&streams) else { break };
            // A log that is the only one goes on until the next begins.
            let until = match (streams.len(), pending.last()) {
                (1, None) => u64::MAX,
                (1, Some((_, log))) => log.first_us.saturating_sub(AHEAD),
                _ => 0,
            };
            let stream = &mut streams[next];
            let mut goes_on = true;
            while let Some(one) = stream.head.take() {
                order.push(one, |at, item| {
                    note_time(&mut report, at);
                    shelf.hand_out(item, |made, index| sink(at, made, index));
                });
                goes_on = stream.advance(&mut report, progress, &mut shelf);
                if stream.next_us() >= until {
                    break;
                }
            }
            if !goes_on {
                streams.remove(next);
            }
        }
        order.finish(|at, item| {
            note_time(&mut report, at);
            shelf.hand_out(item, |made, index| sink(at, made, index));
        });
        report.too_late = order.late();
        report.spread_over_their_second = order.spread();
        drop(work);
    });
    report
}

fn note_time(report: &mut ReadReport, at_us: u64) {
    if report.requests == 0 {
        report.first_us = at_us;
    }
    report.requests += 1;
    report.last_us = at_us;
}

fn earliest_of<L>(streams: &[Stream<L>]) -> Option<usize> {
    (0..streams.len()).min_by_key(|place| streams[*place].next_us())
}

/// The requests of one log.
struct Stream<L> {
    batches: Ordered<L>,
    requests: vec::IntoIter<Timed<u32>>,
    /// Which chunk these belong to.
    chunk: u32,
    /// Lines up to there.
    lines: u64,
    head: Option<Timed<Item>>,
}

impl<L> Stream<L> {
    fn next_us(&self) -> u64 {
        self.head.as_ref().map_or(u64::MAX, |one| one.at_us)
    }

    /// Takes the next request; false at the end of the log.
    fn advance(&mut self, report: &mut ReadReport, progress: &Progress, shelf: &mut Shelf<L>) -> bool {
        loop {
            let chunk = self.chunk;
            self.head = self.requests.next().map(|Timed { at_us, precision, item: index }| Timed {
                at_us,
                precision,
                item: Item { chunk, index },
            });
            if self.head.is_some() {
                return true;
            }
            let Ok(batch) = self.batches.recv() else { return false };
            let Ok(batch) = batch.recv() else { return false };
            report.lines += batch.lines;
            report.unreadable += batch.unreadable;
            let room = SHOWN - report.first_unreadable.len();
            let shown = batch.shown.into_iter().take(room);
            report.first_unreadable.extend(shown.map(|bad| BadLine { line: self.lines + bad.line, ..bad }));
            self.lines += batch.lines;
            report.broken.extend(batch.broken);
            progress.lines.fetch_add(batch.lines, Ordering::Relaxed);
            if let Some(made) = batch.made.filter(|_| !batch.requests.is_empty()) {
                self.chunk = shelf.put(made, batch.requests.len());
            }
            self.requests = batch.requests.into_iter();
        }
    }
}

/// Cuts a log into chunks of whole lines.
fn split<L: Send>(
    place: usize,
    name: &str,
    log: Log,
    work: &SyncSender<Work<L>>,
    ordered: &SyncSender<Receiver<Batch<L>>>,
    bytes: Arc<AtomicU64>,
) {
    let opened = match log.start {
        Some(Started { read, rest }) => {
            bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
            Ok(Box::new(io::Cursor::new(read).chain(rest)) as Box<dyn Read + Send>)
        }
        None => log.source.open(bytes),
    };
    let mut is_first = true;
    let mut hand_on = |buffer: Vec<u8>, too_long: u64| {
        let is_first = std::mem::replace(&mut is_first, false);
        let chunk = Chunk { log: place, is_first, bytes: buffer, format: log.format.clone(), too_long };
        let (done, batch) = sync_channel(1);
        work.send((chunk, done)).is_ok() && ordered.send(batch).is_ok()
    };
    let ended = opened.and_then(|reader| chunks(reader, &mut hand_on));
    if let Err(error) = ended {
        let broken = Some(format!("{name}: {error}; what came before it was read"));
        let (done, batch) = sync_channel(1);
        let _ =
            done.send(Batch { requests: Vec::new(), made: None, lines: 0, unreadable: 0, shown: Vec::new(), broken });
        let _ = ordered.send(batch);
    }
}

fn chunks(mut reader: impl Read, hand_on: &mut impl FnMut(Vec<u8>, u64) -> bool) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(CHUNK + 4_096);
    let mut is_too_long = false;
    loop {
        let filled = buffer.len();
        let wanted = CHUNK.saturating_sub(filled).max(CHUNK / 4);
        let read = reader.by_ref().take(wanted as u64).read_to_end(&mut buffer);
        let failed = match read {
            Ok(0) => {
                if !buffer.is_empty() && !is_too_long {
                    hand_on(buffer, 0);
                }
                return Ok(());
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if is_too_long {
            // Goes on behind the line that was too long.
            let Some(end) = memchr::memchr(b'\n', &buffer[filled..]) else {
                buffer.clear();
                if let Some(error) = failed {
                    return Err(error);
                }
                continue;
            };
            buffer.drain(..filled + end + 1);
            is_too_long = false;
        }
        match memchr::memrchr(b'\n', &buffer) {
            Some(end) => {
                let rest = buffer.split_off(end + 1);
                let whole = std::mem::replace(&mut buffer, Vec::with_capacity(CHUNK + 4_096));
                buffer.extend_from_slice(&rest);
                if !hand_on(whole, 0) {
                    return Ok(());
                }
            }
            None if buffer.len() > LONGEST_LINE => {
                buffer.clear();
                is_too_long = true;
                if !hand_on(Vec::new(), 1) {
                    return Ok(());
                }
            }
            None => {}
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}

fn parse<W: Worker>(chunk: Chunk, names: &[String], worker: &mut W) -> Batch<W::Lines> {
    let Chunk { log, is_first, bytes, mut format, too_long } = chunk;
    let mut batch = Batch {
        requests: Vec::with_capacity(bytes.len() / 128),
        made: None,
        lines: too_long,
        unreadable: too_long,
        shown: Vec::new(),
        broken: None,
    };
    if too_long > 0 {
        let reason = format!("longer than {LONGEST_LINE} bytes");
        batch.shown.push(BadLine { source: names[log].clone(), line: 1, reason, text: String::new() });
    }
    // Checking is much faster than replacing, and logs are rarely invalid.
    let text = std::str::from_utf8(&bytes).map_or_else(|_| String::from_utf8_lossy(&bytes), Cow::Borrowed);
    let mut lines = text.as_ref();
    if is_first {
        lines = lines.trim_start_matches('\u{feff}');
    }
    let mut entry = Entry::default();
    while !lines.is_empty() {
        let (line, rest) = match memchr::memchr(b'\n', lines.as_bytes()) {
            Some(end) => (&lines[..end], &lines[end + 1..]),
            None => (lines, ""),
        };
        lines = rest;
        batch.lines += 1;
        let read = match format.read_into(line, &mut entry) {
            Ok(false) => None,
            Ok(true) if batch.requests.len() + entry.count as usize > MOST_OF_CHUNK => {
                Some(Err(format!("stands for {} requests, which is too many to read at once", entry.count)))
            }
            Ok(true) => Some((0..entry.count).try_for_each(|_| worker.add(&entry))),
            Err(error) => Some(Err(error.to_string())),
        };
        match read {
            None => {}
            Some(Ok(())) => {
                let Entry { at_us, count, .. } = entry;
                let whole = format.precision() == Precision::Seconds && at_us.is_multiple_of(1_000_000) && count == 1;
                let precision = if whole { Precision::Seconds } else { Precision::Fine };
                for place in 0..count {
                    let at_us = at_us + u64::from(place) * 1_000_000 / u64::from(count);
                    batch.requests.push(Timed { at_us, precision, item: batch.requests.len() as u32 });
                }
            }
            Some(Err(reason)) => {
                batch.unreadable += 1;
                if batch.shown.len() < SHOWN {
                    let text = line.chars().take(120).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
                    batch.shown.push(BadLine { source: names[log].clone(), line: batch.lines, reason, text });
                }
            }
        }
    }
    batch.made = Some(worker.take());
    batch
}
