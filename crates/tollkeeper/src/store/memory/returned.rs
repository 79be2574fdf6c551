//! Memory that the system gets back.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::slots::Slot;

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
    let page = system::page_size();
    if per_shard * size_of::<T>() >= page {
        release_pages(&items[emptied.first * per_shard..][..emptied.count * per_shard], page);
    } else if emptied.all {
        release_pages(items, page);
    }
}

/// The addresses of the whole pages in a range of addresses. The system rounds a length up to its pages, so with too small a page
/// here it would take memory behind the range too.
fn whole_pages(range: Range<usize>, page: usize) -> Range<usize> {
    let first = range.start.next_multiple_of(page);
    first..(range.end / page * page).max(first)
}

fn release_pages<T: Zeroed>(items: &[T], page: usize) {
    let start = items.as_ptr().addr();
    let pages = whole_pages(start..start + size_of_val(items), page);
    if !pages.is_empty() {
        // They lie inside the items, which are atomics. The system replaces them by zeroes, which is what they are or may be: nothing
        // reads the rule of a free slot.
        system::release(items.as_ptr().cast::<u8>().wrapping_add(pages.start - start).cast_mut(), pages.len());
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::sync::OnceLock;

    /// 4, 16 or 64 KiB.
    pub(super) fn page_size() -> usize {
        static SIZE: OnceLock<usize> = OnceLock::new();
        *SIZE.get_or_init(|| {
            // SAFETY: it reads a number.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            // Where it is unknown, nothing is as long as a page.
            usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << (usize::BITS - 2))
        })
    }

    pub(super) fn release(start: *mut u8, length: usize) {
        // SAFETY: whole pages of one allocation of atomics, whose contents may become zero.
        unsafe { libc::madvise(start.cast(), length, libc::MADV_DONTNEED) };
    }
}

/// Returns nothing. Miri does not know the call.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn page_size() -> usize {
        4_096
    }

    pub(super) fn release(_: *mut u8, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages were taken to have 4 KiB. On kernels whose pages have 16 or 64 KiB, the system cleared the first slots of the next
    /// shard, which was in use.
    #[test]
    fn only_whole_pages_of_the_system_are_returned() {
        let (start, end) = (16_384 + 16, 16_384 + 16 + 50_688);
        assert_eq!(whole_pages(start..end, 4_096), 20_480..65_536);
        assert_eq!(whole_pages(start..end, 16_384), 32_768..65_536);
        assert!(whole_pages(start..end, 65_536).is_empty());
        assert!(whole_pages(start..start + 5_000, 16_384).is_empty());
    }

    #[test]
    fn pages_between_two_shards_are_returned_by_the_later_one() {
        let left = Left::new(4);
        assert_eq!(left.add(1), Emptied { first: 1, count: 1, all: false });
        assert_eq!(left.add(0), Emptied { first: 0, count: 2, all: false });
        assert_eq!(left.add(3), Emptied { first: 3, count: 1, all: false });
        assert_eq!(left.add(2), Emptied { first: 1, count: 3, all: true });
    }
}
