//! A lock for a few dozen nanoseconds of work.
//!
//! Taking it is one atomic exchange and giving it back a plain store, where a mutex needs an exchange both times to
//! learn whether somebody sleeps. Nobody sleeps here: who waits spins, and soon lets other threads run in between,
//! so that a holder which lost its processor gets it back. A panic of the holder poisons nothing.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::yield_now;

/// Something that one thread at a time may use.
#[derive(Default)]
pub(super) struct Lock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time; so sharing the lock hands the
// value from thread to thread, which is what `Send` allows. A guard can be shared too, and that needs `Sync`.
unsafe impl<T: Send + Sync> Sync for Lock<T> {}

/// The right to use what is behind a lock, until dropped.
pub(super) struct Guard<'l, T>(&'l Lock<T>);

impl<T> Lock<T> {
    /// How often a waiting thread looks before it lets others run: about as long as the work behind the lock takes
    /// a few times over.
    const SPINS: u32 = 64;

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        if self.is_taken.swap(true, Acquire) {
            self.wait();
        }
        Guard(self)
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..Self::SPINS {
                // Looking does not take the cache line away from the holder; exchanging would.
                if !self.is_taken.load(Relaxed) && !self.is_taken.swap(true, Acquire) {
                    return;
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
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_taken.store(false, Release);
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
