//! The memory of a level: one block of zeroed entries, which the system provides as they are first touched.
//!
//! Entries are relaxed atomics, which cost the same as plain integers. Readers and writers hold the lock of the
//! shard, or validate the count of its seqlock. A missing lock would give wrong answers, but no undefined behaviour.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

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

    /// Prefetches this entry and the next few: a search that starts here rarely needs more than two cache lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const i8 = std::ptr::from_ref(self).cast();
            // SAFETY: a prefetch is a hint without visible effects, valid at any address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(line);
                _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(64));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(self.tag());
    }
}

/// This many free slots; `None` when the system does not have the memory.
pub(super) fn allocate(count: usize) -> Option<Box<[Slot]>> {
    // SAFETY: a slot consists of integers, for which all-zero bits are valid.
    unsafe { zeroed::<Slot>(count) }
}

/// The number of the rule that each slot belongs to.
pub(super) fn allocate_owners(count: usize) -> Option<Box<[AtomicU8]>> {
    // SAFETY: all-zero bits are valid for an atomic integer.
    unsafe { zeroed::<AtomicU8>(count) }
}

/// Like [`Box::new_zeroed_slice`], but without aborting the process when there is not enough memory.
///
/// # Safety
/// All-zero bits must be a valid value of `T`, and `T` must not be zero-sized.
unsafe fn zeroed<T>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    let items = std::ptr::slice_from_raw_parts_mut(start.as_ptr().cast::<T>(), count);
    // SAFETY: allocated by the global allocator with the layout of such a slice, and all zero, which the caller
    // guarantees to be valid.
    Some(unsafe { Box::from_raw(items) })
}
