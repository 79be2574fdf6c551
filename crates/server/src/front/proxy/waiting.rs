//! Bounded queues of requests that wait for their turn: one per bucket, so that a client with a long queue does not use up
//! the places of others, and a bound on all of them together.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollkeeper::{Row, Span, Verdict};

use crate::metrics::{Proxied, WaitOutcome};

/// Where requests wait.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    /// Places for each bucket.
    places: usize,
    waiting: Mutex<Waiting>,
    seed: RandomState,
    /// The longest that a denied request may wait to retry, in total.
    patience: Duration,
    counted: Arc<Proxied>,
}

#[derive(Debug, Default)]
struct Waiting {
    all: usize,
    by_bucket: HashMap<u64, usize>,
}

/// The bucket that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue(u64);

impl WaitingRoom {
    /// There is room for this many full queues.
    const QUEUES: usize = 10;

    pub(crate) fn new(places: usize, patience: Duration, counted: Arc<Proxied>) -> WaitingRoom {
        WaitingRoom { places, waiting: Mutex::default(), seed: RandomState::new(), patience, counted }
    }

    /// Starts a request's visit; it does not wait yet.
    pub(super) fn enter(&self) -> Visit<'_> {
        Visit { room: self, place: None, left: self.patience, began: None }
    }

    /// The queue of the bucket that makes a request wait.
    pub(super) fn queue_of(&self, verdict: &Verdict) -> Queue {
        let delays = |row: &&Row| row.decision.delay() > Span::ZERO && row.decision.delay() == verdict.delay();
        let row = verdict.limiting().or_else(|| verdict.rows().iter().find(delays));
        let bucket = row.map(|row| (row.charge.rule.name(), row.charge.key.variant, row.charge.key.value.as_str()));
        Queue(self.seed.hash_one(bucket))
    }

    /// A place in a queue, unless that is full. When many queues together have filled the room, each may still have one
    /// request waiting.
    fn take(&self, queue: Queue) -> Option<Place<'_>> {
        let mut waiting = self.lock();
        let own = waiting.by_bucket.get(&queue.0).copied().unwrap_or(0);
        let most = self.places.saturating_mul(WaitingRoom::QUEUES);
        if own >= self.places || (waiting.all >= most && own > 0) || waiting.all >= most.saturating_mul(2) {
            self.counted.found_no_place();
            return None;
        }
        waiting.all += 1;
        *waiting.by_bucket.entry(queue.0).or_default() += 1;
        self.counted.enter();
        Some(Place { room: self, queue })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, released when dropped.
#[derive(Debug)]
struct Place<'r> {
    room: &'r WaitingRoom,
    queue: Queue,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.room.counted.leave();
        let mut waiting = self.room.lock();
        waiting.all -= 1;
        if let Some(own) = waiting.by_bucket.get_mut(&self.queue.0) {
            *own -= 1;
            if *own == 0 {
                waiting.by_bucket.remove(&self.queue.0);
            }
        }
    }
}

/// One request's stay. If its client disconnects, it is dropped and frees its place.
#[derive(Debug)]
pub(super) struct Visit<'r> {
    room: &'r WaitingRoom,
    place: Option<Place<'r>>,
    left: Duration,
    /// Since when it has waited, until that has ended.
    began: Option<Instant>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.end(WaitOutcome::Gone);
    }
}

/// The queue is full.
#[derive(Debug)]
pub(super) struct Full;

impl Visit<'_> {
    /// Counts the wait, if there was one.
    pub(super) fn end(&mut self, outcome: WaitOutcome) {
        if let Some(began) = self.began.take() {
            self.room.counted.waited(outcome, began.elapsed());
        }
    }

    /// Waits out the delay of an admitted request.
    pub(super) async fn turn(&mut self, queue: Queue, delay: Duration) -> Result<(), Full> {
        if self.place.as_ref().is_none_or(|place| place.queue != queue) {
            // Released first: a request has one place.
            self.place = None;
            self.place = Some(self.room.take(queue).ok_or(Full)?);
        }
        self.began.get_or_insert_with(Instant::now);
        Box::pin(tokio::time::sleep(delay)).await;
        Ok(())
    }

    /// Waits to retry, if that wait is allowed and there is room; otherwise false.
    pub(super) async fn again(&mut self, queue: Queue, wait: Duration) -> bool {
        let Some(left) = self.left.checked_sub(wait).filter(|_| !self.room.patience.is_zero()) else {
            return false;
        };
        self.left = left;
        self.turn(queue, wait).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client filled the waiting room, and requests of everyone else were shed.
    #[test]
    fn a_full_queue_takes_no_place_of_another() {
        let room = WaitingRoom::new(3, Duration::ZERO, Arc::default());
        let eve: Vec<Place<'_>> = (0..3).map(|_| room.take(Queue(1)).expect("a place")).collect();
        assert!(room.take(Queue(1)).is_none());
        let others: Vec<Place<'_>> =
            (2..11).flat_map(|queue| [queue; 3]).filter_map(|queue| room.take(Queue(queue))).collect();
        assert_eq!(others.len(), 27, "the room is full");
        let first = room.take(Queue(99)).expect("each may have one waiting");
        assert!(room.take(Queue(99)).is_none());
        drop((eve, others, first));
        assert!(room.lock().by_bucket.is_empty() && room.lock().all == 0);
    }
}
