//! The stored form of a state, implemented a second time: the tests do not trust the library's own encoding.

use redis::{Pipeline, Value};
use tollkeeper_core::{Log, Quota, State, Timestamp};

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Nothing,
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
    Hash,
}

impl Stored {
    pub(super) fn of(state: &State) -> Stored {
        match state {
            State::Fresh => Stored::Nothing,
            State::Bucket(bucket) if bucket.part == 0 => {
                Stored::Text(format!("-{}{:03}", bucket.full_at.as_micros(), bucket.tag).into_bytes())
            }
            State::Bucket(bucket) if bucket.part < 1 << 22 => {
                text(b'b', bucket.full_at, &[u32::from(bucket.tag) << 22 | bucket.part])
            }
            State::Bucket(bucket) => match text(b'b', bucket.full_at, &[bucket.part]) {
                Stored::Text(bytes) => Stored::Text([&bytes[..], &bucket.tag.to_be_bytes()].concat()),
                other => other,
            },
            State::Window(window) => text(b'w', window.start, &[window.admitted]),
            State::Counter(counter) => text(b'c', counter.start, &[counter.current, counter.previous]),
            State::Log(log) => list(log),
        }
    }

    /// Writes it to the server.
    pub(super) fn seed(&self, key: &str, pipe: &mut Pipeline) {
        pipe.cmd("DEL").arg(key);
        match self {
            Stored::Nothing => {}
            Stored::Text(text) => _ = pipe.cmd("SET").arg(key).arg(text.as_slice()),
            Stored::Hash => _ = pipe.cmd("HSET").arg(key).arg("field").arg(1),
            Stored::List(items) => {
                for items in items.chunks(5_000) {
                    let command = pipe.cmd("RPUSH").arg(key);
                    for item in items {
                        command.arg(item.as_slice());
                    }
                }
            }
        }
    }
}

fn text(kind: u8, at: Timestamp, counts: &[u32]) -> Stored {
    let mut out = vec![kind];
    out.extend(&at.as_micros().to_be_bytes()[1..]);
    out.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    Stored::Text(out)
}

fn list(log: &Log) -> Stored {
    let Some(last) = log.entries().last() else { return Stored::Nothing };
    let hold = |at: Timestamp, nth: u32| [&at.as_micros().to_be_bytes()[1..], &nth.to_be_bytes()[1..]].concat();
    let total: u32 = log.entries().map(|entry| entry.cost).sum();
    let header = [&b"l"[..], &total.to_be_bytes(), &hold(last.hold.at, last.hold.nth)].concat();
    let entries = log
        .entries()
        .map(|entry| [hold(entry.hold.at, entry.hold.nth).as_slice(), &entry.cost.to_be_bytes()[1..]].concat());
    Stored::List(std::iter::once(header).chain(entries).collect())
}

/// The time to live of a state written at `now`, in milliseconds: at least a day, because the caller gives the time.
pub(super) fn ttl_ms(state: &State, quota: &Quota, now: Timestamp) -> i64 {
    const DAY_MS: i64 = 86_400_000;
    // Logs live a millisecond longer: see log.lua.
    let more = i64::from(matches!(state, State::Log(_)));
    let until = beyond_known_windows(state, quota, now).unwrap_or_else(|| state.until(quota));
    (until.since(now).as_millis_ceil().max(1) as i64 + more).max(DAY_MS)
}

/// How long the scripts keep a calendar window that starts so far ahead that they were not told its end, as after a clock that ran
/// three days ahead: longer than it lasts, which nobody can observe.
fn beyond_known_windows(state: &State, quota: &Quota, now: Timestamp) -> Option<Timestamp> {
    let State::Window(window) = state else { return None };
    let starts = quota.calendar()?.starts_around(now);
    let (first, last) = (*starts.first()?, *starts.last()?);
    (window.start >= last).then(|| window.start + last.since(first))
}

/// Reads a key back: its type, its time to live, and its content if it is of this type.
pub(super) fn read_back(expected: &Stored, key: &str, pipe: &mut Pipeline) {
    pipe.cmd("TYPE").arg(key).cmd("PTTL").arg(key);
    match expected {
        Stored::Text(_) => pipe.cmd("MGET").arg(key),
        Stored::List(_) => pipe.cmd("LRANGE").arg(key).arg(0).arg(-1),
        Stored::Nothing | Stored::Hash => pipe.cmd("EXISTS").arg(key),
    };
}

/// What was read back, and the time to live.
pub(super) fn found(replies: &[Value]) -> (Stored, i64) {
    let text = |value: &Value| redis::from_redis_value_ref::<Vec<u8>>(value).unwrap_or_default();
    let items = || match &replies[2] {
        Value::Array(items) => items.iter().map(text).collect(),
        _ => Vec::new(),
    };
    let stored = match redis::from_redis_value_ref::<String>(&replies[0]).unwrap().as_str() {
        "none" => Stored::Nothing,
        "string" => Stored::Text(items().pop().unwrap_or_default()),
        "list" => Stored::List(items()),
        _ => Stored::Hash,
    };
    (stored, redis::from_redis_value_ref(&replies[1]).unwrap())
}
