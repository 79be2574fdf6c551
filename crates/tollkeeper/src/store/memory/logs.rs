//! The logs of a shard. They have no fixed size, so entries only point to them.
//!
//! The memory of a log is reserved before it is allocated. An existing log can always be written:
//! - `concurrency` knows each slot by its name, so the room for all of them is reserved with the first;
//! - `sliding_window_log` grows as requests come. If it may not grow, it is thinned out: requests that are close to
//!   each other count at the latest of their times, so it admits less, never more.

use tollkeeper_core::{Algorithm, Change, Entry, Log, Quota, State, Timestamp};

use super::identity::Id;

/// Logs by index; freed indexes are reused.
#[derive(Debug, Default)]
pub(super) struct Logs {
    kept: Vec<Kept>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Kept {
    /// A log, or `Fresh` if the index is free.
    state: State,
    id: Id,
    until: Timestamp,
    /// The reserved bytes.
    bytes: usize,
}

/// What a log costs beside its entries: its place here, twice, because vectors grow by doubling.
const PLACE_BYTES: usize = 2 * (size_of::<Kept>() + size_of::<u32>());
/// How many entries a deque starts with.
const FIRST_ENTRIES: usize = 4;
/// What the smallest log takes.
pub(super) const SMALLEST_BYTES: usize = PLACE_BYTES + FIRST_ENTRIES * size_of::<Entry>();

impl Logs {
    pub(super) fn state(&self, index: u32) -> &State {
        &self.kept[index as usize].state
    }

    /// The reserved bytes of a log.
    pub(super) fn bytes(&self, index: u32) -> usize {
        self.kept[index as usize].bytes
    }

    pub(super) fn set_bytes(&mut self, index: u32, bytes: usize) {
        self.kept[index as usize].bytes = bytes;
    }

    pub(super) fn add(&mut self, id: Id) -> u32 {
        let kept = Kept { state: State::Fresh, id, until: Timestamp::default(), bytes: 0 };
        match self.free.pop() {
            Some(index) => {
                self.kept[index as usize] = kept;
                index
            }
            None => {
                self.kept.push(kept);
                (self.kept.len() - 1) as u32
            }
        }
    }

    /// Takes the state out, to be put back changed.
    pub(super) fn take(&mut self, index: u32) -> State {
        std::mem::take(&mut self.kept[index as usize].state)
    }

    pub(super) fn put(&mut self, index: u32, state: State, until: Timestamp) {
        let kept = &mut self.kept[index as usize];
        kept.state = state;
        kept.until = until;
    }

    pub(super) fn free(&mut self, index: u32) {
        self.take(index);
        self.free.push(index);
        if self.free.len() == self.kept.len() {
            *self = Logs::default();
        }
    }

    /// The buckets whose logs no longer count.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Id> {
        let is_expired = |kept: &&Kept| kept.state != State::Fresh && kept.until <= now;
        self.kept.iter().filter(is_expired).map(|kept| kept.id).collect()
    }
}

/// The memory that a change needs outside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No more than is reserved.
    Nothing,
    /// The first bytes of a log.
    New(usize),
    /// More bytes, without which a log has to be thinned out.
    More(usize),
    /// More bytes, without which the change cannot be made.
    Slots(usize),
}

/// The memory that a change needs, when this many bytes are reserved already.
pub(super) fn need(state: &State, bytes: usize, quota: &Quota, change: &Change) -> Need {
    let least = match change {
        Change::Replace(State::Log(log)) => bytes_of(log.len()),
        Change::Record { expired, .. } => match state {
            State::Log(log) if is_full(log, *expired) => bytes_of(next_capacity(log, quota)),
            State::Log(_) => return Need::Nothing,
            _ => 0,
        },
        Change::None | Change::Replace(_) | Change::Rebase(_) => return Need::Nothing,
    };
    if !matches!(state, State::Log(_)) {
        Need::New(first_bytes(quota).max(least))
    } else if least <= bytes {
        Need::Nothing
    } else if has_slots(quota) {
        // The limit was raised since.
        Need::Slots(first_bytes(quota).max(least) - bytes)
    } else {
        Need::More(least - bytes)
    }
}

/// What is reserved with the first entry of a log.
pub(super) fn first_bytes(quota: &Quota) -> usize {
    bytes_of(if has_slots(quota) { quota.limit() as usize } else { 0 })
}

/// Applies a change within this many bytes, and returns how many it takes. A log in which nothing counts any more is
/// replaced by a new one, to free its memory.
pub(super) fn apply(state: &mut State, mut change: Change, quota: &Quota, bytes: usize) -> usize {
    let entries = bytes.saturating_sub(PLACE_BYTES) / size_of::<Entry>();
    match (&mut *state, &mut change) {
        (_, Change::Replace(State::Log(log))) => {
            if log.len() > entries {
                log.thin_out(None, quota.period(), entries);
            }
            log.set_capacity(0);
        }
        (State::Log(log), Change::Record { expired, .. }) if log.last() <= *expired => *state = State::Fresh,
        (State::Log(log), Change::Record { expired, .. }) if is_full(log, *expired) => {
            match next_capacity(log, quota) {
                next if next <= entries => log.set_capacity(next),
                _ if log.capacity() < FIRST_ENTRIES => log.set_capacity(FIRST_ENTRIES),
                // Thinned to half, so that it is not needed again soon.
                _ => log.thin_out(*expired, quota.period(), (log.capacity() / 2).max(FIRST_ENTRIES - 1)),
            }
        }
        _ => {}
    }
    state.apply(change);
    match state {
        State::Log(_) if has_slots(quota) => bytes,
        State::Log(log) => bytes_of(log.capacity()),
        _ => 0,
    }
}

fn has_slots(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::Concurrency
}

fn bytes_of(entries: usize) -> usize {
    PLACE_BYTES + entries.max(FIRST_ENTRIES) * size_of::<Entry>()
}

/// The next capacity of a full log.
fn next_capacity(log: &Log, quota: &Quota) -> usize {
    let double = 2 * log.capacity().max(FIRST_ENTRIES / 2);
    if has_slots(quota) { double.min(quota.limit() as usize).max(log.len() + 1) } else { double }
}

/// Whether there is no room for one more entry, even after expired ones are removed.
fn is_full(log: &Log, expired: Option<Timestamp>) -> bool {
    log.len() == log.capacity() && log.entries().next().is_none_or(|oldest| Some(oldest.hold.at) > expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_used_again() {
        let mut logs = Logs::default();
        let (first, second) = (logs.add(Id::default()), logs.add(Id::default()));
        assert_ne!(first, second);
        logs.free(first);
        assert_eq!(logs.add(Id::default()), first);
        logs.free(first);
        logs.free(second);
        assert!(logs.kept.is_empty() && logs.free.is_empty(), "nothing is held for logs that are gone");
    }
}
