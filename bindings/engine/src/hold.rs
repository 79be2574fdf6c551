//! What a request holds until it is over: slots, and estimates that are to be corrected.

use std::sync::Arc;

use tollkeeper::{Actual, Permit, Reservation};

use crate::fork;
use crate::io::Io;

/// The slots of an admitted request. Dropping them gives them back, from whatever thread.
pub struct Slots(Option<Held<Permit>>);

impl Slots {
    /// Slots that are renewed for as long as they are held: a request may take longer than a rule's `hold`.
    pub(crate) fn new(permit: Permit) -> Slots {
        if permit.is_empty() {
            return Slots(None);
        }
        // Without the thread they would end with their hold, which is no reason to refuse the request.
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
    /// `io` where a server has to be told.
    pub(crate) fn new(reservation: Reservation, io: Option<Arc<Io>>) -> Estimate {
        Estimate(Held::new(reservation, io))
    }

    /// Whether nothing was charged.
    pub fn is_empty(&self) -> bool {
        self.0.held.as_ref().is_none_or(Reservation::is_empty)
    }

    /// What is to be settled; nothing in a process that was forked since.
    pub(crate) fn take(mut self) -> Option<Reservation> {
        if self.0.generation == fork::generation() { self.0.held.take() } else { None }
    }
}

/// What was really used: a cost, attributes that carry costs, or both.
pub(crate) fn actual(cost: Option<u32>, attributes: Vec<(String, String)>) -> Actual {
    let actual = cost.map_or_else(Actual::default, Actual::cost);
    attributes.into_iter().fold(actual, |actual, (name, value)| actual.attribute(name, value))
}

/// Something that is dropped in the runtime, where a server can be told of it.
struct Held<T> {
    held: Option<T>,
    io: Option<Arc<Io>>,
    generation: u64,
}

impl<T> Held<T> {
    fn new(held: T, io: Option<Arc<Io>>) -> Held<T> {
        Held { held: Some(held), io, generation: fork::generation() }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let (held, io) = (self.held.take(), self.io.take());
        if self.generation != fork::generation() {
            // What a parent holds is not given back by its child, and the parent's thread is not here.
            std::mem::forget((held, io));
            return;
        }
        match io {
            Some(io) => io.within(|| drop(held)),
            None => drop(held),
        }
    }
}
