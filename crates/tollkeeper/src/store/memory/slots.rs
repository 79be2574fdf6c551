//! The memory of a table: one block of zeroed entries, which the system hands out as they are first touched.
//!
//! Entries are made of relaxed atomics, which cost what plain integers do. Whoever reads or writes one holds the
//! lock of its shard; were that ever forgotten, the answer would be wrong but the memory sound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::packed::Packed;

/// One entry: tag and state. All zero when free.
#[derive(Debug)]
pub(super) struct Slot([AtomicU64; 3]);

impl Slot {
    #[inline]
    pub(super) fn tag(&self) -> u64 {
        self.0[0].load(Relaxed)
    }

    #[inline]
    pub(super) fn packed(&self) -> Packed {
        Packed { first: self.0[1].load(Relaxed), second: self.0[2].load(Relaxed) }
    }

    #[inline]
    pub(super) fn set_tag(&self, tag: u64) {
        self.0[0].store(tag, Relaxed);
    }

    #[inline]
    pub(super) fn set_packed(&self, packed: Packed) {
        self.0[1].store(packed.first, Relaxed);
        self.0[2].store(packed.second, Relaxed);
    }

    /// Asks for the memory of this entry and of the next few ahead of use: a search that starts here rarely goes
    /// beyond two cache lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const i8 = std::ptr::from_ref(self).cast();
            // SAFETY: a prefetch is a hint that reads nothing the program could see, at any address whatever.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(line);
                _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(64));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(self.tag());
    }
}

/// So many free slots.
pub(super) fn allocate(count: usize) -> Box<[Slot]> {
    let zeroed = Box::<[Slot]>::new_zeroed_slice(count);
    // SAFETY: a slot is made of integers, for which all bits zero is a valid value.
    let slots = unsafe { zeroed.assume_init() };
    prefer_huge_pages(&slots);
    slots
}

/// A table that is larger than what the processor's address cache covers would miss there on nearly every request.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(slots: &[Slot]) {
    const HUGE_PAGE: usize = 2 << 20;
    let start = slots.as_ptr().addr();
    let first = start.next_multiple_of(HUGE_PAGE);
    let end = start + size_of_val(slots);
    let length = end.saturating_sub(first) / HUGE_PAGE * HUGE_PAGE;
    if length > 0 {
        let inside = slots.as_ptr().cast::<u8>().wrapping_add(first - start).cast_mut();
        // SAFETY: the range lies inside the slots, and the advice changes how they are backed, not what they hold.
        // It may be refused, which is fine.
        unsafe { libc::madvise(inside.cast(), length, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: &[Slot]) {}
