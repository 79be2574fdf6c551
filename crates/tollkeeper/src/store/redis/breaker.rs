//! A circuit breaker: stops calls to a server that does not answer, and probes for its return.
//!
//! Closed: every call is made. After a few failures in a row it opens, and no request waits for a dead server any
//! more. After a pause one call at a time may probe (half-open); a few successes in a row close it, one failure opens
//! it again for twice as long. The hysteresis keeps a server that answers every other call from flapping.

use std::time::Duration;

/// A circuit breaker. Time is passed in as the span since some fixed moment.
#[derive(Debug)]
pub(super) struct Breaker {
    state: Circuit,
    /// How long it stays open next time.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    Closed { failures: u32 },
    Open { until: Duration },
    HalfOpen { successes: u32, probing_until: Duration },
}

/// The state of the circuit breaker.
// Exhaustive on purpose: these are the states that every circuit breaker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// Calls are made.
    Closed,
    /// One call at a time, as a probe.
    HalfOpen,
    /// No calls.
    Open,
}

impl Breaker {
    const FAILURES_TO_OPEN: u32 = 5;
    const SUCCESSES_TO_CLOSE: u32 = 3;
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(2);
    /// A probe that never reported its outcome (its task was dropped) blocks the next one for at most this long.
    const PROBE: Duration = Duration::from_millis(500);

    pub(super) fn new() -> Breaker {
        Breaker { state: Circuit::Closed { failures: 0 }, pause: Self::FIRST_PAUSE }
    }

    /// Whether a call may be made now. In the half-open state `true` means a probe: report its outcome.
    pub(super) fn may_call(&mut self, now: Duration) -> bool {
        match self.state {
            Circuit::Closed { .. } => true,
            Circuit::Open { until } if now < until => false,
            Circuit::Open { .. } => {
                self.state = Circuit::HalfOpen { successes: 0, probing_until: now + Self::PROBE };
                true
            }
            Circuit::HalfOpen { probing_until, .. } if now < probing_until => false,
            Circuit::HalfOpen { successes, .. } => {
                self.state = Circuit::HalfOpen { successes, probing_until: now + Self::PROBE };
                true
            }
        }
    }

    /// A call was answered. True when this closed the breaker.
    pub(super) fn succeeded(&mut self) -> bool {
        match self.state {
            Circuit::HalfOpen { successes, .. } if successes + 1 < Self::SUCCESSES_TO_CLOSE => {
                // The next probe may be sent at once.
                self.state = Circuit::HalfOpen { successes: successes + 1, probing_until: Duration::ZERO };
                false
            }
            Circuit::HalfOpen { .. } => {
                *self = Breaker::new();
                true
            }
            Circuit::Closed { .. } => {
                self.state = Circuit::Closed { failures: 0 };
                false
            }
            // A call that was sent before it opened: a single success is not enough.
            Circuit::Open { .. } => false,
        }
    }

    /// A call failed. True when this opened the breaker.
    pub(super) fn failed(&mut self, now: Duration) -> bool {
        match self.state {
            Circuit::Closed { failures } if failures + 1 < Self::FAILURES_TO_OPEN => {
                self.state = Circuit::Closed { failures: failures + 1 };
                false
            }
            Circuit::Closed { .. } => {
                self.state = Circuit::Open { until: now + self.pause };
                true
            }
            Circuit::HalfOpen { .. } => {
                self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
                self.state = Circuit::Open { until: now + self.pause };
                false
            }
            Circuit::Open { .. } => false,
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            Circuit::Closed { .. } => BreakerState::Closed,
            Circuit::Open { .. } => BreakerState::Open,
            Circuit::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::new();
        assert!((0..4).all(|_| !breaker.failed(ms(0))));
        assert!(breaker.failed(ms(0)), "the fifth failure in a row opens it");
        breaker
    }

    #[test]
    fn failures_that_are_not_in_a_row_do_not_open_it() {
        let mut breaker = Breaker::new();
        for _ in 0..20 {
            assert!(!breaker.failed(ms(0)));
            assert!(!breaker.succeeded());
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn an_open_breaker_lets_one_probe_through_after_its_pause() {
        let mut breaker = opened();
        assert!(!breaker.may_call(ms(99)));
        assert!(breaker.may_call(ms(100)));
        assert!(!breaker.may_call(ms(101)), "one at a time");
        assert!(breaker.may_call(ms(700)), "a probe that never reported is given up");
    }

    #[test]
    fn it_closes_after_several_successes_and_reopens_for_longer_on_a_failure() {
        let mut breaker = opened();
        assert!(breaker.may_call(ms(100)));
        assert!(!breaker.failed(ms(101)));
        assert!(!breaker.may_call(ms(300)), "twice the pause");
        assert!(breaker.may_call(ms(301)));
        assert!(!breaker.succeeded());
        assert!(breaker.may_call(ms(302)));
        assert!(!breaker.succeeded());
        assert!(breaker.may_call(ms(303)));
        assert!(breaker.succeeded(), "the third in a row closes it");
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.may_call(ms(303)));
    }

    #[test]
    fn a_late_success_does_not_close_an_open_breaker() {
        let mut breaker = opened();
        assert!(!breaker.succeeded());
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
