//! Memory that the system gets back.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::slots::Slot;

/// Where pages are larger, nothing is returned.
const PAGE: usize = 4_096;

/// Items whose contents may become zero when no entry is there.
pub(super) trait Zeroed {}
impl Zeroed for Slot {}
impl Zeroed for std::sync::atomic::AtomicU8 {}

/// The shards that have left a level.
#[derive(Debug)]
pub(super) struct Left(Box<[AtomicBool]>);

/// Shards next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Emptied {
    first: usize,
    count: usize,
    /// Whether no shard is left.
    all: bool,
}

impl Left {
    pub(super) fn new(shards: usize) -> Left {
        Left((0..shards).map(|_| AtomicBool::new(false)).collect())
    }

    /// A shard leaves. What is empty now is this shard, and its neighbours if they had left before: the pages in which they meet.
    ///
    /// Of two that leave at the same time, the later one sees the other, and all that it did before.
    pub(super) fn add(&self, shard: usize) -> Emptied {
        self.0[shard].store(true, SeqCst);
        let has_left = |shard: usize| self.0.get(shard).is_some_and(|left| left.load(SeqCst));
        let first = shard - usize::from(shard > 0 && has_left(shard - 1));
        let count = shard - first + 1 + usize::from(has_left(shard + 1));
        Emptied { first, count, all: self.0.iter().all(|left| left.load(SeqCst)) }
    }
}

/// Returns the pages of shards that are empty, and stay so. They can still be read. Returning takes time, so this is done in parts,
/// except where many shards are on one page.
pub(super) fn release<T: Zeroed>(items: &[T], emptied: Emptied, per_shard: usize) {
    if per_shard * size_of::<T>() >= PAGE {
        release_pages(&items[emptied.first * per_shard..][..emptied.count * per_shard]);
    } else if emptied.all {
        release_pages(items);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn release_pages<T: Zeroed>(items: &[T]) {
    let start = items.as_ptr().addr();
    let first = start.next_multiple_of(PAGE);
    let length = (start + size_of_val(items)).saturating_sub(first) / PAGE * PAGE;
    if length > 0 {
        let inside = items.as_ptr().cast::<u8>().wrapping_add(first - start).cast_mut();
        // SAFETY: the range lies inside the items, which are atomics. The system replaces it by zeroes, which is what they are or may
        // be: nothing reads the rule of a free slot.
        unsafe { libc::madvise(inside.cast(), length, libc::MADV_DONTNEED) };
    }
}

// Miri does not know this call.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn release_pages<T: Zeroed>(_: &[T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_between_two_shards_are_returned_by_the_later_one() {
        let left = Left::new(4);
        assert_eq!(left.add(1), Emptied { first: 1, count: 1, all: false });
        assert_eq!(left.add(0), Emptied { first: 0, count: 2, all: false });
        assert_eq!(left.add(3), Emptied { first: 3, count: 1, all: false });
        assert_eq!(left.add(2), Emptied { first: 1, count: 3, all: true });
    }
}
