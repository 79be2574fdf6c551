//! What the memory store relies on: one writer at a time, and lock-free readers that detect concurrent writes.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use tollkeeper_model::Lock;

/// More than three preemptions of a thread find nothing new in programs of this size, and take minutes.
fn explore(program: impl Fn() + Sync + Send + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(program);
}

/// loom reports two threads in the cell at once, and a read that does not happen after the write before it.
struct Counter(UnsafeCell<u64>);

// SAFETY: only a thread that holds the lock touches the cell, which is what loom checks.
unsafe impl Sync for Counter {}

impl Default for Counter {
    fn default() -> Counter {
        Counter(UnsafeCell::new(0))
    }
}

impl Counter {
    fn add_one(&self) -> u64 {
        // SAFETY: loom fails the test if another thread has it.
        self.0.with_mut(|count| unsafe {
            *count += 1;
            *count
        })
    }
}

#[test]
fn one_thread_at_a_time_has_the_value() {
    explore(|| {
        let lock = Arc::new(Lock::<Counter>::default());
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || other.lock().add_one());
        lock.lock().add_one();
        thread.join().expect("no panic");
        assert_eq!(lock.lock().add_one(), 3);
    });
}

#[test]
fn a_reader_without_the_lock_never_trusts_half_a_write() {
    explore(|| {
        let shared = Arc::new((Lock::<()>::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (lock, words) = &*writer;
            let _guard = lock.lock();
            words.iter().for_each(|word| word.store(7, Relaxed));
        });
        let (lock, words) = &*shared;
        if let Some(moment) = lock.moment() {
            let [first, second] = [0, 1].map(|index: usize| words[index].load(Relaxed));
            if lock.is_still(moment) {
                assert_eq!(first, second, "half a write");
            }
        }
        thread.join().expect("no panic");
    });
}

#[test]
fn a_moment_that_has_passed_does_not_give_the_lock() {
    explore(|| {
        let lock = Arc::new(Lock::<Counter>::default());
        let moment = lock.moment().expect("it is not held");
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || other.lock_at(moment).map(|guard| guard.add_one()));
        let mine = lock.lock_at(moment).map(|guard| guard.add_one());
        let theirs = thread.join().expect("no panic");
        assert_eq!(mine.is_some() as u8 + theirs.is_some() as u8, 1, "exactly one of the two");
    });
}
