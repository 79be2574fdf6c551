//! Huge pages for a table in use: one larger than the TLB covers would miss there on nearly every request.
//!
//! Not from the start: the system clears a huge page when it is first touched, which takes a request up to milliseconds, and a table
//! with few keys would take all of its memory. So a table begins with ordinary pages, and when most of those are in use, a thread
//! that ends soon afterwards has them joined.

use std::fmt;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use super::slots::Slot;

/// What the system takes at a time, when it is first touched.
const PAGE: usize = 4_096;
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;
/// Since Linux 6.1; not every C library names it.
#[cfg(all(target_os = "linux", not(miri)))]
const MADV_COLLAPSE: libc::c_int = 25;

/// The pages of a table.
pub(super) struct Pages {
    /// From so many keys on, most pages are in use: keys are spread over all of them.
    worth_at: usize,
    joining: OnceLock<Option<JoinHandle<()>>>,
}

impl Pages {
    pub(super) fn new(slots: &[Slot]) -> Pages {
        let worth_at = if huge(slots).is_some() { size_of_val(slots) / PAGE } else { usize::MAX };
        Pages { worth_at, joining: OnceLock::new() }
    }

    /// The table has this many keys now.
    #[inline]
    pub(super) fn used_by(&self, keys: usize, slots: &[Slot]) {
        if keys >= self.worth_at {
            self.joining.get_or_init(|| join(slots));
        }
    }
}

/// The slots must outlive the thread that works on them, so this is dropped before them, and waits.
impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(Some(joining)) = self.joining.take() {
            let _ = joining.join();
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("worth_at", &self.worth_at).finish_non_exhaustive()
    }
}

/// The part of the slots that can be huge pages: its offset and length in bytes.
#[cfg(all(target_os = "linux", not(miri)))]
fn huge(slots: &[Slot]) -> Option<(usize, usize)> {
    let start = slots.as_ptr().addr();
    let first = start.next_multiple_of(HUGE_PAGE);
    let length = (start + size_of_val(slots)).saturating_sub(first) / HUGE_PAGE * HUGE_PAGE;
    (length > 0).then_some((first - start, length))
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn join(slots: &[Slot]) -> Option<JoinHandle<()>> {
    let (offset, length) = huge(slots)?;
    let inside = slots.as_ptr().cast::<u8>().wrapping_add(offset).cast_mut();
    // SAFETY: the range lies inside the slots, and the advice changes how they are backed, not their contents. It may be refused,
    // which is fine.
    unsafe { libc::madvise(inside.cast(), length, libc::MADV_HUGEPAGE) };
    let start = inside.expose_provenance();
    let collapse = move || {
        for page in (start..start + length).step_by(HUGE_PAGE) {
            // One at a time: other threads that need memory wait meanwhile. Systems that do not know this advice join the pages in
            // the background, after a while.
            // SAFETY: as above. `Pages` waits for this thread before the slots are freed.
            unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(page), HUGE_PAGE, MADV_COLLAPSE) };
        }
    };
    std::thread::Builder::new().name("tollkeeper-pages".into()).spawn(collapse).ok()
}

// Miri does not know this call.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn huge(_: &[Slot]) -> Option<(usize, usize)> {
    None
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn join(_: &[Slot]) -> Option<JoinHandle<()>> {
    None
}
