//! What the library logs about stores and databases, for the host to report in its own way.
//!
//! The threads that log must neither wait nor run code of the host. They leave their lines in a fixed number of places, without a lock
//! that a fork could find held, and lines that find no place are left out. The host takes them with an answer, or with its next request.
//! Each limiter logs sparingly, but a host may have thousands that use the same server: there is a bound for all of them.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Once};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::fork;

/// A line of the log. It contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub text: String,
    generation: u64,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know: a server answers again.
    Info,
    /// An operator should know: a server cannot be reached.
    Warning,
}

/// More lines than this are left out until the host has taken some.
const PLACES: usize = 16;

/// More lines than this are left out in one minute.
const MOST_A_MINUTE: u32 = 60;

static LOG: Log = Log::new();

/// Collects lines from now on. Only the library in this extension is heard: the host's other extensions have their own `tracing`.
pub(crate) fn listen() {
    static LISTEN: Once = Once::new();
    // A program in Rust that uses the engine, such as a benchmark, may have a subscriber, which stays.
    fork::still(|| LISTEN.call_once(|| drop(tracing::subscriber::set_global_default(Listener(&LOG)))));
}

/// Whether there is something to take.
pub(crate) fn has_lines() -> bool {
    LOG.is_any.load(Relaxed)
}

/// What all limiters of this process have logged since the last call.
pub fn take_lines() -> Vec<Line> {
    LOG.take()
}

struct Log {
    places: [ArcSwapOption<Line>; PLACES],
    is_any: AtomicBool,
    /// The minute of the last line, since 1970.
    minute: AtomicU64,
    /// How many lines it has.
    lines: AtomicU32,
    /// How many were left out since the last line.
    left_out: AtomicU32,
}

impl Log {
    const fn new() -> Log {
        Log {
            places: [const { ArcSwapOption::const_empty() }; PLACES],
            is_any: AtomicBool::new(false),
            minute: AtomicU64::new(0),
            lines: AtomicU32::new(0),
            left_out: AtomicU32::new(0),
        }
    }

    /// Threads that put lines at the same time may put a few more of them than there should be.
    fn put(&self, minute: u64, level: Level, mut text: String) {
        if self.minute.swap(minute, Relaxed) != minute {
            self.lines.store(0, Relaxed);
        }
        // Taken at once: threads that read the same number would both report it.
        let left_out = self.left_out.swap(0, Relaxed);
        if left_out > 0 {
            // Writing to a text does not fail.
            let _ = write!(text, " ({left_out} other lines were left out)");
        }
        let line = Some(Arc::new(Line { level, text, generation: fork::generation() }));
        let is_put = |place: &ArcSwapOption<Line>| place.compare_and_swap(&None::<Arc<Line>>, line.clone()).is_none();
        if self.lines.load(Relaxed) < MOST_A_MINUTE && self.places.iter().any(is_put) {
            self.lines.fetch_add(1, Relaxed);
            self.is_any.store(true, Release);
        } else {
            self.left_out.fetch_add(left_out + 1, Relaxed);
        }
    }

    fn take(&self) -> Vec<Line> {
        // Cleared before looking: a line that is put from now on sets it again.
        if !self.is_any.swap(false, AcqRel) {
            return Vec::new();
        }
        let lines = self.places.iter().filter_map(|place| place.swap(None)).map(Arc::unwrap_or_clone);
        // What a parent had not reported before it forked, it reports itself.
        lines.filter(|line| line.generation == fork::generation()).collect()
    }
}

/// Puts the library's lines into a log.
struct Listener(&'static Log);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Those of dependencies are for whoever repairs this library.
        metadata.is_event() && metadata.target().starts_with("tollkeeper") && *metadata.level() <= tracing::Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let is_warning = *event.metadata().level() <= tracing::Level::WARN;
        let mut text = Text(String::new());
        event.record(&mut text);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.0.put(now.as_secs() / 60, if is_warning { Level::Warning } else { Level::Info }, text.0);
    }

    // Spans are not enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(log: &'static Log, run: impl FnOnce()) -> Vec<(Level, String)> {
        tracing::subscriber::with_default(Listener(log), run);
        log.take().into_iter().map(|Line { level, text, .. }| (level, text)).collect()
    }

    /// An operator who looks for the cause of an outage needs the library's lines, and not those of what it is built of.
    #[test]
    fn what_the_library_logs_is_kept_in_order() {
        static LOG: Log = Log::new();
        let lines = logged(&LOG, || {
            tracing::error!("the store at {} does not answer", "10.0.0.1:6379");
            tracing::warn!(node = 7, "cannot reach it yet");
            tracing::info!("it answers again");
            tracing::debug!("it is asked");
            tracing::warn!(target: "rustls::conn", "of a dependency");
            let _span = tracing::error_span!("a span").entered();
        });
        let expected = [
            (Level::Warning, "the store at 10.0.0.1:6379 does not answer"),
            (Level::Warning, "cannot reach it yet node=7"),
            (Level::Info, "it answers again"),
        ];
        assert_eq!(lines, expected.map(|(level, text)| (level, text.to_string())));
        assert_eq!(LOG.take(), [], "each line is taken once");
    }

    /// A host that sends no request for days takes no line either: they must not fill its memory.
    #[test]
    fn lines_that_do_not_fit_are_left_out() {
        static LOG: Log = Log::new();
        let lines = logged(&LOG, || (0..1000).for_each(|line| tracing::warn!("line {line}")));
        let texts: Vec<String> = lines.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, (0..PLACES).map(|line| format!("line {line}")).collect::<Vec<_>>());
        let later = logged(&LOG, || tracing::warn!("later"));
        assert_eq!(
            later,
            [(Level::Warning, "later (984 other lines were left out)".to_string())],
            "there is room again"
        );
        assert_eq!(logged(&LOG, || tracing::warn!("the last"))[0].1, "the last");
    }

    /// Two threads reported the same lines as left out and subtracted them twice, so that 4294967295 others were left out.
    #[test]
    fn each_line_is_put_or_left_out_once() {
        static LOG: Log = Log::new();
        let put = || (0..20_000).for_each(|line| LOG.put(line / 100, Level::Warning, "a line".to_string()));
        let put_and_taken = || {
            let taken = |line: u64| {
                LOG.put(line / 100, Level::Warning, "a line".to_string());
                LOG.take()
            };
            (0..20_000).flat_map(taken).map(|line| line.text).collect::<Vec<String>>()
        };
        let mut texts = std::thread::scope(|threads| {
            let putting = [threads.spawn(put), threads.spawn(put)];
            let taking = [threads.spawn(put_and_taken), threads.spawn(put_and_taken)];
            putting.into_iter().for_each(|thread| thread.join().expect("no panic"));
            taking.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        texts.extend(LOG.take().into_iter().map(|line| line.text));
        let others = |text: &String| match text.strip_prefix("a line (") {
            Some(rest) => rest.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number"),
            None => 0,
        };
        let left_out = texts.iter().map(others).sum::<u64>() + u64::from(LOG.left_out.load(Relaxed));
        assert_eq!(texts.len() as u64 + left_out, 80_000);
    }

    /// Each of a thousand limiters on a server that is unreachable reported it.
    #[test]
    fn there_are_so_many_lines_a_minute() {
        static LOG: Log = Log::new();
        let lines = |minute| {
            let put = |line: u32| {
                LOG.put(minute, Level::Warning, format!("line {line}"));
                LOG.take().into_iter().map(|line| line.text)
            };
            (0..1000).flat_map(put).collect::<Vec<_>>()
        };
        assert_eq!(lines(7).len(), MOST_A_MINUTE as usize);
        let next = lines(8);
        assert_eq!((next.len(), &*next[0]), (60, "line 0 (940 other lines were left out)"));
        assert_eq!(next[1], "line 1");
    }
}
