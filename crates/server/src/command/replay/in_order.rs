//! Threads that take turns in a given order.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets blocks through one at a time in the order of their numbers, which count from 0, until it is closed.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// The block whose turn it is, or [`CLOSED`].
    next: Mutex<u64>,
    changed: Condvar,
}

const CLOSED: u64 = u64::MAX;

impl InOrder {
    /// Waits for a block's turn, which lasts until the value is dropped; `None` if it was closed before that.
    pub(super) fn turn(&self, block: u64) -> Option<Turn<'_>> {
        let mut next = self.lock();
        while *next < block {
            next = self.changed.wait(next).unwrap_or_else(PoisonError::into_inner);
        }
        (*next == block).then(|| Turn { order: self, next })
    }

    /// Waits for the turn in progress to end; no other begins after it.
    pub(super) fn close(&self) {
        *self.lock() = CLOSED;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block's turn.
#[derive(Debug)]
pub(super) struct Turn<'o> {
    order: &'o InOrder,
    next: MutexGuard<'o, u64>,
}

impl Turn<'_> {
    /// Ends it; no other begins after it.
    pub(super) fn end_all(mut self) {
        *self.next = CLOSED;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if *self.next != CLOSED {
            *self.next += 1;
        }
        self.order.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn blocks_pass_in_order_whoever_comes_first() {
        let (order, passed) = (InOrder::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for block in (0..8).rev() {
                let (order, passed) = (&order, &passed);
                scope.spawn(move || {
                    let turn = order.turn(block);
                    passed.lock().expect("no thread panicked").push((block, turn.is_some()));
                    match turn {
                        Some(turn) if block == 5 => turn.end_all(),
                        turn => drop(turn),
                    }
                });
            }
        });
        let mut passed = passed.into_inner().expect("no thread panicked");
        passed[6..].sort_unstable();
        let expected: Vec<(u64, bool)> = (0..8).map(|block| (block, block <= 5)).collect();
        assert_eq!(passed, expected);
    }

    #[test]
    fn nobody_waits_for_a_turn_that_never_comes() {
        let order = InOrder::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| order.turn(1).is_none());
            order.close();
            assert!(waiting.join().expect("it ends"));
        });
        assert!(order.turn(0).is_none());
    }
}
