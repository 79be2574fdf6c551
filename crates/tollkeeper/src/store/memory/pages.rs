//! The memory pages of a level: huge ones if it is large, because the TLB would miss on nearly every request otherwise.
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

#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn take_huge(slots: &[Slot]) -> Option<JoinHandle<()>> {
    const PAGE: usize = 4_096;
    const HUGE_PAGE: usize = 2 << 20;
    /// Since Linux 5.14; not every C library names it.
    const POPULATE_WRITE: libc::c_int = 23;

    let start = slots.as_ptr().expose_provenance();
    let end = start + size_of_val(slots);
    let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    let (first_huge, last_huge) = (start.next_multiple_of(HUGE_PAGE), end / HUGE_PAGE * HUGE_PAGE);
    let advise = |start: usize, length, advice| {
        // SAFETY: the bytes lie inside the slots, and the advice changes how they are backed, not their contents. It may be refused, which
        // is fine. `Pages` waits for this thread before the slots are freed.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), length, advice) };
    };
    let take = move || {
        // Both ends are too short for huge pages. A shard that moves there would wait for hundreds of small ones.
        advise(first, first_huge - first, POPULATE_WRITE);
        advise(last_huge, last - last_huge, POPULATE_WRITE);
        // One at a time: a request that needs a page before this gets there takes a small one, which is quick.
        for page in (first_huge..last_huge).step_by(HUGE_PAGE) {
            advise(page, HUGE_PAGE, libc::MADV_HUGEPAGE);
            advise(page, HUGE_PAGE, POPULATE_WRITE);
        }
    };
    std::thread::Builder::new().name("tollkeeper-pages".into()).spawn(take).ok()
}

// Miri does not know this call.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn take_huge(_: &[Slot]) -> Option<JoinHandle<()>> {
    None
}
