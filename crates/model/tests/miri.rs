//! The memory store's unsafe code under Miri (`./run miri`), which reports undefined behaviour: data races, invalid
//! pointers, memory that is read before it is written or freed with another layout. The files are included, with their own
//! tests; what they need of others is replaced.

#![cfg(miri)]
#![allow(dead_code, unreachable_pub, reason = "the files are used as a whole elsewhere")]

#[path = "../../tollkeeper/src/store/memory/lock.rs"]
mod lock;
#[path = "../../tollkeeper/src/store/memory/slots.rs"]
mod slots;

mod sync {
    pub(super) use std::hint::spin_loop;
    pub(super) use std::sync::atomic::{AtomicU32, fence};
    pub(super) use std::thread::yield_now;
}

mod packed {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Packed {
        pub(super) first: u64,
        pub(super) second: u64,
    }
}

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use lock::Lock;
use packed::Packed;

/// As a shard does it: writers hold the lock, and readers validate its count.
#[test]
fn readers_without_the_lock_never_trust_half_a_write() {
    let slots = slots::allocate(4).expect("memory");
    let lock = Lock::<u64>::default();
    thread::scope(|threads| {
        for writer in 1..=2 {
            let (lock, slots) = (&lock, &slots);
            threads.spawn(move || {
                for round in 0..20 {
                    let mut guard = lock.lock();
                    *guard += 1;
                    let word = writer * 1_000 + round;
                    slots[1].set_packed(Packed { first: word, second: word });
                    slots[1].set_tag(word);
                }
            });
        }
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..40 {
                    let Some(moment) = lock.moment() else { continue };
                    slots[1].prefetch();
                    let (tag, packed) = (slots[1].tag(), slots[1].packed());
                    if lock.is_still(moment) {
                        assert_eq!(packed, Packed { first: tag, second: tag }, "half a write");
                    }
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 40);
}

#[test]
fn zeroed_memory_is_valid_and_is_freed_as_it_was_allocated() {
    for count in [1, 3, 1_000] {
        let (slots, owners) = (slots::allocate(count).expect("memory"), slots::allocate_owners(count).expect("memory"));
        assert!(slots.iter().all(|slot| slot.tag() == 0 && slot.packed() == Packed { first: 0, second: 0 }));
        assert!(owners.iter().all(|owner| owner.load(Relaxed) == 0));
        slots[count - 1].set_tag(7);
        // Past the end too: a prefetch is only a hint.
        slots[count - 1].prefetch();
        assert_eq!(slots[count - 1].tag(), 7);
    }
    assert!(slots::allocate(0).is_none() && slots::allocate(usize::MAX).is_none());
}
