//! Bounded queues of requests that wait for their turn: one per bucket, so that a client with a long queue does not use up
//! the places of others, a bound on all of them together, and a share of that for each address: a client that sends a new key
//! with each request has many queues.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
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
    by_address: HashMap<IpAddr, usize>,
}

/// The bucket that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue(u64);

/// What a request waits for, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) queue: Queue,
    /// As rules see it: a trusted proxy counts as itself for those clients that it does not name.
    pub(super) address: IpAddr,
}

impl WaitingRoom {
    /// There is room for this many full queues.
    const QUEUES: usize = 10;
    /// One address may have this many full queues: a quarter of all places.
    const QUEUES_OF_AN_ADDRESS: usize = 5;

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

    /// A place in a queue, unless that is full, or its address has its share of the room. When many queues together have
    /// filled the room, each may still have one request waiting.
    fn take(&self, claim: Claim) -> Option<Place<'_>> {
        let Claim { queue, address } = claim;
        let mut waiting = self.lock();
        let own = waiting.by_bucket.get(&queue.0).copied().unwrap_or(0);
        let of_address = waiting.by_address.get(&address).copied().unwrap_or(0);
        let most = self.places.saturating_mul(WaitingRoom::QUEUES);
        let is_full = own >= self.places
            || of_address >= self.places.saturating_mul(WaitingRoom::QUEUES_OF_AN_ADDRESS)
            || (waiting.all >= most && own > 0)
            || waiting.all >= most.saturating_mul(2);
        if is_full {
            self.counted.found_no_place();
            return None;
        }
        waiting.all += 1;
        *waiting.by_bucket.entry(queue.0).or_default() += 1;
        *waiting.by_address.entry(address).or_default() += 1;
        self.counted.enter();
        Some(Place { room: self, claim })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, released when dropped.
#[derive(Debug)]
struct Place<'r> {
    room: &'r WaitingRoom,
    claim: Claim,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.room.counted.leave();
        let mut waiting = self.room.lock();
        waiting.all -= 1;
        release(&mut waiting.by_bucket, self.claim.queue.0);
        release(&mut waiting.by_address, self.claim.address);
    }
}

/// One place less; whoever has none is forgotten.
fn release<K: Eq + Hash>(taken: &mut HashMap<K, usize>, by: K) {
    if let Entry::Occupied(mut own) = taken.entry(by) {
        *own.get_mut() -= 1;
        if *own.get() == 0 {
            own.remove();
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
    pub(super) async fn turn(&mut self, claim: Claim, delay: Duration) -> Result<(), Full> {
        if self.place.as_ref().is_none_or(|place| place.claim != claim) {
            // Released first: a request has one place.
            self.place = None;
            self.place = Some(self.room.take(claim).ok_or(Full)?);
        }
        self.began.get_or_insert_with(Instant::now);
        Box::pin(tokio::time::sleep(delay)).await;
        Ok(())
    }

    /// Waits to retry, if that wait is allowed and there is room; otherwise false.
    pub(super) async fn again(&mut self, claim: impl FnOnce() -> Claim, wait: Duration) -> bool {
        let Some(left) = self.left.checked_sub(wait).filter(|_| !self.room.patience.is_zero()) else {
            return false;
        };
        self.left = left;
        self.turn(claim(), wait).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one of the addresses of a network for documentation.
    fn claim(queue: u64, client: u8) -> Claim {
        Claim { queue: Queue(queue), address: [203, 0, 113, client].into() }
    }

    /// One client filled the waiting room, and requests of everyone else were shed.
    #[test]
    fn a_full_queue_takes_no_place_of_another() {
        let room = WaitingRoom::new(3, Duration::ZERO, Arc::default());
        let take = |queue: u8| room.take(claim(queue.into(), queue));
        let eve: Vec<Place<'_>> = (0..3).map(|_| take(1).expect("a place")).collect();
        assert!(take(1).is_none());
        let others: Vec<Place<'_>> = (2..11).flat_map(|queue| [queue; 3]).filter_map(take).collect();
        assert_eq!(others.len(), 27, "the room is full");
        let first = take(99).expect("each may have one waiting");
        assert!(take(99).is_none());
        drop((eve, others, first));
        assert!(room.lock().by_bucket.is_empty() && room.lock().all == 0);
    }

    /// One client sent each request with another API key, so that each had a queue to itself; together they filled the
    /// room, and requests of everyone else were shed.
    #[test]
    fn many_keys_of_one_address_leave_room_for_others() {
        let room = WaitingRoom::new(3, Duration::ZERO, Arc::default());
        let eve: Vec<Place<'_>> = (0..1000).filter_map(|queue| room.take(claim(queue, 9))).collect();
        assert_eq!(eve.len(), 15, "a quarter of all places");
        let other = room.take(claim(1000, 10)).expect("a place");
        drop(eve);
        assert!(room.take(claim(2000, 9)).is_some(), "its places are free again");
        drop(other);
        assert!(room.lock().by_address.is_empty() && room.lock().by_bucket.is_empty());
    }
}
