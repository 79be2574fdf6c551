//! The logs of a shard. They have no fixed size, so entries only point to them.

use tollkeeper_core::{Change, Log, State, Timestamp};

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
}

/// What a log costs beside its entries: its place here, twice, because vectors grow by doubling.
const PLACE_BYTES: usize = 2 * (size_of::<Kept>() + size_of::<u32>());

impl Logs {
    pub(super) fn state(&self, index: u32) -> &State {
        &self.kept[index as usize].state
    }

    pub(super) fn add(&mut self, id: Id) -> u32 {
        let kept = Kept { state: State::Fresh, id, until: Timestamp::default() };
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

/// What a state takes outside the table, in bytes.
pub(super) fn bytes(state: &State) -> usize {
    match state {
        State::Log(log) => PLACE_BYTES + log.heap_bytes(),
        _ => 0,
    }
}

/// The most by which a change may enlarge a state outside the table.
pub(super) fn growth(state: &State, change: &Change) -> usize {
    // The initial capacity of a deque; it doubles when full.
    const FIRST_BYTES: usize = 4 * size_of::<tollkeeper_core::Entry>();
    match change {
        Change::Replace(State::Log(log)) => PLACE_BYTES + log.heap_bytes(),
        Change::Record { expired, .. } => match state {
            State::Log(log) if is_full(log) && !frees_one(log, *expired) => log.heap_bytes().max(FIRST_BYTES),
            State::Log(_) => 0,
            _ => PLACE_BYTES + FIRST_BYTES,
        },
        Change::None | Change::Replace(_) | Change::Rebase(_) => 0,
    }
}

fn is_full(log: &Log) -> bool {
    let (count, _) = log.entries().size_hint();
    count * size_of::<tollkeeper_core::Entry>() >= log.heap_bytes()
}

fn frees_one(log: &Log, expired: Option<Timestamp>) -> bool {
    log.entries().next().is_some_and(|oldest| Some(oldest.hold.at) <= expired)
}

/// Applies a change. A log in which nothing counts any more is replaced by a new one, to free its memory.
pub(super) fn apply(state: &mut State, change: Change) {
    if let (State::Log(log), Change::Record { expired, .. }) = (&*state, &change)
        && log.last() <= *expired
    {
        *state = State::Fresh;
    }
    state.apply(change);
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
