//! A lock for a few dozen nanoseconds of work.
//!
//! Taking it is one atomic exchange and giving it back a plain store, where a mutex needs an exchange both times to
//! learn whether somebody sleeps. Nobody sleeps here: who waits spins, and soon lets other threads run in between,
//! so that a holder which lost its processor gets it back. A panic of the holder poisons nothing.
//!
//! The lock counts how often it was taken. Who only reads, and reads atomics, need not take it: what was read is sound
//! if the count is the same before and after. So those who are denied do not wait for each other.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};
use std::thread::yield_now;

/// Something that one thread at a time may use.
#[derive(Default)]
pub(super) struct Lock<T> {
    /// Counts up when the lock is taken and when it is given back: odd while it is taken.
    count: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time; so sharing the lock hands the
// value from thread to thread, which is what `Send` allows. A guard can be shared too, and that needs `Sync`.
unsafe impl<T: Send + Sync> Sync for Lock<T> {}

/// The right to use what is behind a lock, until dropped.
pub(super) struct Guard<'l, T> {
    lock: &'l Lock<T>,
    /// The count when it is given back.
    next: u32,
}

/// What a lock had counted when nobody held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u32);

impl<T> Lock<T> {
    /// How often a waiting thread looks before it lets others run: about as long as the work behind the lock takes
    /// a few times over.
    const SPINS: u32 = 64;

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        match self.moment().and_then(|moment| self.lock_at(moment)) {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// The count, unless somebody holds the lock.
    #[inline]
    pub(super) fn moment(&self) -> Option<Moment> {
        let count = self.count.load(Acquire);
        count.is_multiple_of(2).then_some(Moment(count))
    }

    /// Whether nobody has taken the lock since: what was read from atomics meanwhile belongs together.
    #[inline]
    pub(super) fn is_still(&self, moment: Moment) -> bool {
        // Keeps the reads before it from moving behind the look at the count.
        fence(Acquire);
        self.count.load(Relaxed) == moment.0
    }

    /// Takes the lock if nobody has since.
    #[inline]
    pub(super) fn lock_at(&self, moment: Moment) -> Option<Guard<'_, T>> {
        let Moment(count) = moment;
        self.count.compare_exchange(count, count.wrapping_add(1), AcqRel, Relaxed).ok()?;
        // Keeps the writes of the holder behind the count, for those who read without the lock.
        fence(Release);
        Some(Guard { lock: self, next: count.wrapping_add(2) })
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        loop {
            for _ in 0..Self::SPINS {
                // Looking does not take the cache line away from the holder; exchanging would.
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
        // SAFETY: this guard is the only one, so nobody else writes; and it cannot be written through this guard
        // while it is borrowed.
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
        let lock = Lock::<(u64, u64)>::default();
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..20_000 {
                        let mut guard = lock.lock();
                        let pair = &mut *guard;
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (80_000, 80_000));
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
