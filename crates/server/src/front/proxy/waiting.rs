//! Requests that wait for their turn, no more of them than allowed.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Where requests wait.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    places: Semaphore,
    /// How long a denied request may wait to try again, in all.
    patience: Duration,
}

impl WaitingRoom {
    pub(crate) fn new(places: usize, patience: Duration) -> WaitingRoom {
        WaitingRoom { places: Semaphore::new(places.min(Semaphore::MAX_PERMITS)), patience }
    }

    /// Comes in with nobody waiting yet.
    pub(super) fn enter(&self) -> Visit<'_> {
        Visit { room: self, place: None, left: self.patience }
    }
}

/// One request's stay. A client that leaves drops it, and so frees its place.
#[derive(Debug)]
pub(super) struct Visit<'r> {
    room: &'r WaitingRoom,
    place: Option<SemaphorePermit<'r>>,
    left: Duration,
}

/// There was no place left.
#[derive(Debug)]
pub(super) struct Full;

impl Visit<'_> {
    /// Waits for a turn that was given.
    pub(super) async fn turn(&mut self, delay: Duration) -> Result<(), Full> {
        if self.place.is_none() {
            self.place = Some(self.room.places.try_acquire().map_err(|_| Full)?);
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Waits to try again, if so long a wait is allowed and there is a place for it.
    pub(super) async fn again(&mut self, wait: Duration) -> bool {
        let Some(left) = self.left.checked_sub(wait).filter(|_| !self.room.patience.is_zero()) else {
            return false;
        };
        self.left = left;
        self.turn(wait).await.is_ok()
    }
}
