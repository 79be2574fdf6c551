//! A bounded queue of requests that wait for their turn.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Where requests wait.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    places: Semaphore,
    /// The longest that a denied request may wait to retry, in total.
    patience: Duration,
}

impl WaitingRoom {
    pub(crate) fn new(places: usize, patience: Duration) -> WaitingRoom {
        WaitingRoom { places: Semaphore::new(places.min(Semaphore::MAX_PERMITS)), patience }
    }

    /// Starts a request's visit; it does not wait yet.
    pub(super) fn enter(&self) -> Visit<'_> {
        Visit { room: self, place: None, left: self.patience }
    }
}

/// One request's stay. If its client disconnects, it is dropped and frees its place.
#[derive(Debug)]
pub(super) struct Visit<'r> {
    room: &'r WaitingRoom,
    place: Option<SemaphorePermit<'r>>,
    left: Duration,
}

/// The queue is full.
#[derive(Debug)]
pub(super) struct Full;

impl Visit<'_> {
    /// Waits out the delay of an admitted request.
    pub(super) async fn turn(&mut self, delay: Duration) -> Result<(), Full> {
        if self.place.is_none() {
            self.place = Some(self.room.places.try_acquire().map_err(|_| Full)?);
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Waits to retry, if that wait is allowed and there is room; otherwise false.
    pub(super) async fn again(&mut self, wait: Duration) -> bool {
        let Some(left) = self.left.checked_sub(wait).filter(|_| !self.room.patience.is_zero()) else {
            return false;
        };
        self.left = left;
        self.turn(wait).await.is_ok()
    }
}
