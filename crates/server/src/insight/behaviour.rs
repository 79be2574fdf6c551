//! What the denied do: wait as they were told, or keep asking.

use tollkeeper::{Span, Timestamp};

/// What a key did with the waits that it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behaviour {
    /// Waits that it kept: its next request came after.
    pub(crate) kept: u32,
    /// Waits during which it asked again.
    pub(crate) broken: u32,
    told: Option<Told>,
}

/// A wait that has not ended, or whose end nobody has come back from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    /// Requests until here may have been under way already.
    fair_from: Timestamp,
    until: Timestamp,
    broken: bool,
}

/// A client learns of a denial after a round trip, and may have sent more until then.
const ROUND_TRIP: Span = Span::from_micros(100_000);

impl Behaviour {
    /// A request came, whatever was said to it.
    pub(super) fn came(&mut self, at: Timestamp) {
        let Some(told) = &mut self.told else { return };
        if at >= told.until {
            self.kept += u32::from(!told.broken);
            self.told = None;
        } else if at >= told.fair_from && !told.broken {
            told.broken = true;
            self.broken += 1;
        }
    }

    /// It was denied and told to wait. While it is told so already, nothing new begins.
    pub(super) fn told_to_wait(&mut self, at: Timestamp, wait: Span) {
        if self.told.is_none() && wait > Span::ZERO {
            let in_flight = ROUND_TRIP.min(Span::from_micros(wait.as_micros() / 2));
            self.told = Some(Told { fair_from: at + in_flight, until: at + wait, broken: false });
        }
    }

    /// The same key at two times.
    pub(super) fn add(&self, later: &Behaviour) -> Behaviour {
        Behaviour { kept: self.kept + later.kept, broken: self.broken + later.broken, told: later.told }
    }

    /// Whether it keeps asking more often than it waits; `None` while it has not come back from any wait.
    pub(super) fn hammers(&self) -> Option<bool> {
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
            behaviour.told_to_wait(at(*ms), Span::from_micros((denied_ms[0] + wait_ms - ms) * 1_000));
        }
        behaviour.came(at(end_ms));
        (behaviour.kept, behaviour.broken)
    }

    #[test]
    fn who_comes_back_in_time_has_waited() {
        assert_eq!(after(&[0], 1_000, 1_000), (1, 0));
        assert_eq!(after(&[0], 1_000, 90_000), (1, 0));
    }

    #[test]
    fn who_asks_again_during_the_wait_has_not_however_often() {
        assert_eq!(after(&[0, 200, 300, 999], 1_000, 1_500), (0, 1));
        assert_eq!(after(&[0], 1_000, 999), (0, 1));
    }

    #[test]
    fn what_was_under_way_already_is_forgiven() {
        assert_eq!(after(&[0, 1, 2, 50], 1_000, 1_000), (1, 0));
        // Of a short wait only the first half: else nobody could be told to hammer a limit of ten a second.
        assert_eq!(after(&[0, 1, 2, 3], 10, 7), (0, 1));
        assert_eq!(after(&[0, 1, 2, 3], 10, 10), (1, 0));
    }
}
