//! How denied clients react: they wait as long as `Retry-After` says, or retry at once.

use tollkeeper::{Span, Timestamp};

/// How a key reacted to the waits of its denials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Waits that it kept: its next request came afterwards.
    pub kept: u32,
    /// Waits during which it retried.
    pub broken: u32,
    wait: Option<Wait>,
}

/// A wait that has not ended, or that no request has followed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    /// Requests before this may already have been in flight.
    fair_from: Timestamp,
    until: Timestamp,
    broken: bool,
}

/// A client learns of a denial after a round trip, and may have sent more requests until then.
pub(crate) const ROUND_TRIP: Span = Span::from_micros(100_000);

impl Behaviour {
    /// A request arrived, whatever the decision.
    pub fn came(&mut self, at: Timestamp) {
        let Some(wait) = &mut self.wait else { return };
        if at >= wait.until {
            self.kept += u32::from(!wait.broken);
            self.wait = None;
        } else if at >= wait.fair_from && !wait.broken {
            wait.broken = true;
            self.broken += 1;
        }
    }

    /// It was denied with this wait. A running wait is not replaced.
    pub fn must_wait(&mut self, at: Timestamp, wait: Span) {
        if self.wait.is_none() && wait > Span::ZERO {
            let in_flight = ROUND_TRIP.min(Span::from_micros(wait.as_micros() / 2));
            self.wait = Some(Wait { fair_from: at + in_flight, until: at + wait, broken: false });
        }
    }

    /// Combines an earlier and a later record of a key.
    pub fn add(&self, later: &Behaviour) -> Behaviour {
        Behaviour { kept: self.kept + later.kept, broken: self.broken + later.broken, wait: later.wait }
    }

    /// Whether it breaks more waits than it keeps; `None` while no wait has ended.
    pub fn hammers(&self) -> Option<bool> {
        (self.kept + self.broken > 0).then_some(self.broken > self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Denied at each of these milliseconds with what is left of `wait_ms` from the first, and then back at `end_ms`.
    fn after(denied_ms: &[u64], wait_ms: u64, end_ms: u64) -> (u32, u32) {
        let at = |ms: u64| Timestamp::from_micros(ms * 1_000);
        let mut behaviour = Behaviour::default();
        for ms in denied_ms {
            behaviour.came(at(*ms));
            behaviour.must_wait(at(*ms), Span::from_micros((denied_ms[0] + wait_ms - ms) * 1_000));
        }
        behaviour.came(at(end_ms));
        (behaviour.kept, behaviour.broken)
    }

    #[test]
    fn a_client_that_comes_back_in_time_has_waited() {
        assert_eq!(after(&[0], 1_000, 1_000), (1, 0));
        assert_eq!(after(&[0], 1_000, 90_000), (1, 0));
    }

    #[test]
    fn retries_during_a_wait_break_it_once() {
        assert_eq!(after(&[0, 200, 300, 999], 1_000, 1_500), (0, 1));
        assert_eq!(after(&[0], 1_000, 999), (0, 1));
    }

    #[test]
    fn requests_already_in_flight_are_forgiven() {
        assert_eq!(after(&[0, 1, 2, 50], 1_000, 1_000), (1, 0));
        // Only the first half of a short wait: otherwise no client could break a wait at ten requests a second.
        assert_eq!(after(&[0, 1, 2, 3], 10, 7), (0, 1));
        assert_eq!(after(&[0, 1, 2, 3], 10, 10), (1, 0));
    }
}
