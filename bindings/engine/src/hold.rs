//! What a request holds until it ends: slots, and unsettled estimates.

use std::sync::Arc;

use tollkeeper::{Actual, Permit, Reservation};

use crate::fork;
use crate::io::Io;

/// The slots of an admitted request. Dropping them, on any thread, releases them.
pub struct Slots(Option<Held<Permit>>);

impl Slots {
    /// Slots that are renewed for as long as they are held: a request may take longer than a rule's `hold`.
    pub(crate) fn new(permit: Permit) -> Slots {
        if permit.is_empty() {
            return Slots(None);
        }
        // Without the I/O thread they would expire with their hold, which is no reason to refuse the request.
        Slots(Some(match Io::get() {
            Ok(io) => Held::new(io.within(|| permit.renewed()), Some(io)),
            Err(_) => Held::new(permit, None),
        }))
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// An estimate that was charged.
pub struct Estimate(Held<Reservation>);

impl Estimate {
    /// `io` is there if the settlement needs a server.
    pub(crate) fn new(reservation: Reservation, io: Option<Arc<Io>>) -> Estimate {
        Estimate(Held::new(reservation, io))
    }

    /// Whether nothing was charged.
    pub fn is_empty(&self) -> bool {
        self.0.held.as_ref().is_none_or(Reservation::is_empty)
    }

    /// The reservation to settle; `None` in a process that was forked since.
    pub(crate) fn take(mut self) -> Option<Reservation> {
        if self.0.generation == fork::generation() { self.0.held.take() } else { None }
    }
}

/// The actual usage: a cost, attributes that carry costs, or both.
pub(crate) fn actual(cost: Option<u32>, attributes: Vec<(String, String)>) -> Actual {
    let actual = cost.map_or_else(Actual::default, Actual::cost);
    attributes.into_iter().fold(actual, |actual, (name, value)| actual.attribute(name, value))
}

/// Something to be dropped inside the runtime, where a server can be called.
struct Held<T: Send + 'static> {
    held: Option<T>,
    io: Option<Arc<Io>>,
    generation: u64,
}

impl<T: Send + 'static> Held<T> {
    fn new(held: T, io: Option<Arc<Io>>) -> Held<T> {
        Held { held: Some(held), io, generation: fork::generation() }
    }
}

impl<T: Send + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        let (held, io) = (self.held.take(), self.io.take());
        if self.generation != fork::generation() {
            // A child must not release what its parent holds, and the parent's thread does not exist here.
            std::mem::forget((held, io));
            return;
        }
        match io {
            Some(io) => io.drop_within(held),
            None => drop(held),
        }
    }
}
