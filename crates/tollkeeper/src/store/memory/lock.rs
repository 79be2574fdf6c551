//! A seqlock that is also a spinlock, for critical sections of a few dozen nanoseconds.
//!
//! Locking is one atomic exchange and unlocking a plain store, where a mutex needs an exchange both times to learn
//! whether a thread sleeps. No thread sleeps here: a waiting thread spins, and soon yields, so that a preempted
//! holder gets its processor back. A panic of the holder does not poison the lock.
//!
//! The lock counts how often it was taken, as a seqlock does. A reader of atomics need not take it: what it read is
//! consistent if the count is the same before and after. So denied requests do not wait for each other.
//!
//! `crates/model` runs this file under every interleaving of its threads.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::sync::{AtomicU32, fence, spin_loop, yield_now};

/// A value that one thread at a time may use.
#[derive(Default)]
pub struct Lock<T> {
    /// Incremented on lock and unlock: odd while the lock is held.
    count: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and there is one guard at a time. So sharing the lock moves the
// value from thread to thread, which is what `Send` allows. A guard can be shared too, and that needs `Sync`.
unsafe impl<T: Send + Sync> Sync for Lock<T> {}

/// Exclusive access to the value, until dropped.
pub struct Guard<'l, T> {
    lock: &'l Lock<T>,
    /// The count to store on unlock.
    next: u32,
}

/// The count at a moment when the lock was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u32);

impl<T> Lock<T> {
    /// How often a waiting thread spins before it yields: a few times as long as the critical section takes.
    const SPINS: u32 = 64;

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.moment().and_then(|moment| self.lock_at(moment)) {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// The count, unless the lock is held.
    #[inline]
    pub fn moment(&self) -> Option<Moment> {
        let count = self.count.load(Acquire);
        count.is_multiple_of(2).then_some(Moment(count))
    }

    /// Whether the lock has not been taken since: then everything read from atomics in between is consistent.
    #[inline]
    pub fn is_still(&self, moment: Moment) -> bool {
        // Keeps earlier reads from moving past the load of the count.
        fence(Acquire);
        self.count.load(Relaxed) == moment.0
    }

    /// Takes the lock if it has not been taken since.
    #[inline]
    pub fn lock_at(&self, moment: Moment) -> Option<Guard<'_, T>> {
        let Moment(count) = moment;
        self.count.compare_exchange(count, count.wrapping_add(1), AcqRel, Relaxed).ok()?;
        // Keeps the holder's writes after the count, for readers without the lock.
        fence(Release);
        Some(Guard { lock: self, next: count.wrapping_add(2) })
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        loop {
            for _ in 0..Self::SPINS {
                // A load leaves the cache line with the holder; an exchange would not.
                if let Some(guard) = self.moment().and_then(|moment| self.lock_at(moment)) {
                    return guard;
                }
                spin_loop();
            }
            yield_now();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so there is no other writer; and it cannot be written through this
        // guard while it is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.count.store(self.next, Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_at_a_time() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let lock = Lock::<(u64, u64)>::default();
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut guard = lock.lock();
                        let pair = &mut *guard;
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (4 * ROUNDS, 4 * ROUNDS));
    }

    #[test]
    fn a_reader_without_the_lock_knows_whether_it_was_disturbed() {
        let lock = Lock::<u64>::default();
        let moment = lock.moment().expect("free");
        assert!(lock.is_still(moment));
        let guard = lock.lock();
        assert!(!lock.is_still(moment), "taken");
        assert_eq!(lock.moment(), None);
        drop(guard);
        assert!(!lock.is_still(moment), "taken and given back");
        assert!(lock.lock_at(moment).is_none());
    }

    #[test]
    fn a_panic_of_the_holder_leaves_the_lock_free() {
        let lock = Lock::<u64>::default();
        let holder = thread::scope(|threads| {
            threads
                .spawn(|| {
                    let _guard = lock.lock();
                    panic!("a bug");
                })
                .join()
        });
        assert!(holder.is_err());
        *lock.lock() += 1;
    }
}
