//! The memory pages of a level: huge ones if it is large, because the TLB would miss on nearly every request otherwise. And what the
//! system gets back.
//!
//! The system clears a huge page when it is first touched, which takes up to milliseconds, and joining small pages to a huge one stops
//! everybody who uses them for as long. Neither is for a request to wait for. So the huge pages of a level are taken before any
//! request needs them, by a thread that ends when it has them.

use std::fmt;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use super::slots::Slot;

/// A level smaller than this gets ordinary pages, as its shards move there: the TLB covers it.
const SMALLEST: usize = 8 << 20;
/// Where pages are larger, nothing is returned.
#[cfg(all(target_os = "linux", not(miri)))]
const PAGE: usize = 4_096;
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;
/// Since Linux 5.14; not every C library names it.
#[cfg(all(target_os = "linux", not(miri)))]
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// The pages of a level.
pub(super) struct Pages {
    is_large: bool,
    preparing: OnceLock<Option<JoinHandle<()>>>,
}

impl Pages {
    pub(super) fn new(slots: &[Slot]) -> Pages {
        Pages { is_large: size_of_val(slots) >= SMALLEST, preparing: OnceLock::new() }
    }

    /// These slots are used soon.
    #[inline]
    pub(super) fn prepare(&self, slots: &[Slot]) {
        if self.is_large {
            self.preparing.get_or_init(|| take_huge(slots));
        }
    }
}

/// The slots must outlive the thread that works on them, so this is dropped before them, and waits.
impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(Some(preparing)) = self.preparing.take() {
            let _ = preparing.join();
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("is_large", &self.is_large).finish_non_exhaustive()
    }
}

/// The whole pages of this size inside some items: their address and length in bytes.
#[cfg(all(target_os = "linux", not(miri)))]
fn whole<T>(items: &[T], page: usize) -> Option<(*mut u8, usize)> {
    let start = items.as_ptr().addr();
    let first = start.next_multiple_of(page);
    let length = (start + size_of_val(items)).saturating_sub(first) / page * page;
    (length > 0).then_some((items.as_ptr().cast::<u8>().wrapping_add(first - start).cast_mut(), length))
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn take_huge(slots: &[Slot]) -> Option<JoinHandle<()>> {
    let (inside, length) = whole(slots, HUGE_PAGE)?;
    let start = inside.expose_provenance();
    let take = move || {
        // One at a time: a request that needs a page before this gets there takes a small one, which is quick.
        for page in (start..start + length).step_by(HUGE_PAGE) {
            for advice in [libc::MADV_HUGEPAGE, MADV_POPULATE_WRITE] {
                // SAFETY: the page lies inside the slots, and the advice changes how they are backed, not their contents. It may be
                // refused, which is fine. `Pages` waits for this thread before the slots are freed.
                unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(page), HUGE_PAGE, advice) };
            }
        }
    };
    std::thread::Builder::new().name("tollkeeper-pages".into()).spawn(take).ok()
}

/// Returns the pages of items that are all zero, and stay so. They can still be read.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn release<T: Zeroed>(items: &[T]) {
    if let Some((inside, length)) = whole(items, PAGE) {
        // SAFETY: the range lies inside the items, which are atomics. The system replaces it by zeroes, which is what they are or may
        // be: nothing reads the rule of a free slot.
        unsafe { libc::madvise(inside.cast(), length, libc::MADV_DONTNEED) };
    }
}

/// Items whose contents may become zero when no entry is there.
pub(super) trait Zeroed {}
impl Zeroed for Slot {}
impl Zeroed for std::sync::atomic::AtomicU8 {}

// Miri does not know this call.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn take_huge(_: &[Slot]) -> Option<JoinHandle<()>> {
    None
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn release<T: Zeroed>(_: &[T]) {}
