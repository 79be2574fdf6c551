//! A state packed into two words. The first one says, without knowing the quota, when the state equals one that was
//! never used; eviction needs only that. Together they hold the state exactly, even if the rule's quota changes
//! later.
//!
//! ```text
//! first word   kind 2 | full_at 62                        bucket    second word   tag 16 | part 32
//!              kind 2 | lifetime 10 | start 52            window                  admitted
//!              kind 2 | lifetime 10 | start 52            counter                 previous 32 | current 32
//!              kind 2 | lifetime 10 | newest entry 52     log                     where the log is kept
//! ```
//!
//! A lifetime is rounded up to five significant bits: a window may be kept for a sixteenth longer than it counts,
//! which cannot be observed, and is never dropped too early.

use tollkeeper_core::{Bucket, Counter, Quota, Span, State, Timestamp, Window};

/// The two words of an entry that hold its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) first: u64,
    pub(super) second: u64,
}

const KIND_SHIFT: u32 = 62;
const BUCKET: u64 = 0;
const WINDOW: u64 = 1;
const COUNTER: u64 = 2;
const LOG: u64 = 3;

const LIFETIME_SHIFT: u32 = 52;
const LIFETIME_BITS: u64 = (1 << (KIND_SHIFT - LIFETIME_SHIFT)) - 1;
const MOMENT: u64 = (1 << LIFETIME_SHIFT) - 1;

impl Packed {
    /// Packs a state of fixed size. Logs and `Fresh` are not packed here.
    #[inline]
    pub(super) fn new(state: &State, quota: &Quota) -> Option<Packed> {
        match state {
            State::Bucket(bucket) => Some(Packed::from(*bucket)),
            State::Window(Window { start, admitted }) => {
                let lifetime = state.until(quota).since(*start);
                Some(Packed { first: lasting(WINDOW, *start, lifetime), second: u64::from(*admitted) })
            }
            State::Counter(counter) => {
                let lifetime = state.until(quota).since(counter.start);
                Some(Packed {
                    first: lasting(COUNTER, counter.start, lifetime),
                    second: u64::from(counter.previous) << 32 | u64::from(counter.current),
                })
            }
            State::Fresh | State::Log(_) => None,
        }
    }

    /// A log that is kept elsewhere, with its newest entry at `newest`.
    pub(super) fn log(newest: Timestamp, quota: &Quota, index: u32) -> Packed {
        Packed { first: lasting(LOG, newest, quota.period()), second: u64::from(index) }
    }

    /// The bucket, if this is one.
    #[inline]
    pub(super) fn bucket(self) -> Option<Bucket> {
        (self.first >> KIND_SHIFT == BUCKET).then(|| Bucket {
            full_at: moment(self.first),
            part: self.second as u32,
            tag: (self.second >> 32) as u16,
        })
    }

    /// Where the log is kept, if this is one.
    #[inline]
    pub(super) fn log_index(self) -> Option<u32> {
        (self.first >> KIND_SHIFT == LOG).then_some(self.second as u32)
    }

    /// The state, unless it is a log.
    #[inline]
    pub(super) fn state(self) -> Option<State> {
        let start = Timestamp::from_micros(self.first & MOMENT);
        match self.first >> KIND_SHIFT {
            BUCKET => self.bucket().map(State::Bucket),
            WINDOW => Some(State::Window(Window { start, admitted: self.second as u32 })),
            COUNTER => Some(State::Counter(Counter {
                start,
                current: self.second as u32,
                previous: (self.second >> 32) as u32,
            })),
            _ => None,
        }
    }

    /// When this may be dropped: never before the state equals one that was never used.
    #[inline]
    pub(super) fn until(self) -> Timestamp {
        if self.first >> KIND_SHIFT == BUCKET {
            return moment(self.first + u64::from(self.second as u32 > 0));
        }
        moment(self.first & MOMENT) + long_span(self.first >> LIFETIME_SHIFT & LIFETIME_BITS)
    }
}

impl From<Bucket> for Packed {
    #[inline]
    fn from(bucket: Bucket) -> Packed {
        Packed {
            first: BUCKET << KIND_SHIFT | bucket.full_at.as_micros(),
            second: u64::from(bucket.tag) << 32 | u64::from(bucket.part),
        }
    }
}

/// A bucket may be full later than the last valid timestamp, so this does not clamp.
#[inline]
fn moment(micros: u64) -> Timestamp {
    Timestamp::default() + Span::from_micros(micros)
}

#[inline]
fn lasting(kind: u64, from: Timestamp, lifetime: Span) -> u64 {
    kind << KIND_SHIFT | short_span(lifetime) << LIFETIME_SHIFT | from.as_micros() & MOMENT
}

/// A span as a small floating point number, rounded up: exact below 32, otherwise an exponent and four bits.
#[inline]
fn short_span(span: Span) -> u64 {
    let micros = span.as_micros();
    if micros < 16 {
        return micros;
    }
    let exponent = u64::from(micros.ilog2()) - 4;
    // A carry out of the four bits increments the exponent, which is correct.
    exponent * 16 + (micros.div_ceil(1 << exponent))
}

#[inline]
fn long_span(code: u64) -> Span {
    if code < 16 {
        return Span::from_micros(code);
    }
    Span::from_micros((16 + code % 16) << (code / 16 - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollkeeper_core::Algorithm;

    use super::*;

    fn quota(algorithm: Algorithm, period: u64) -> Quota {
        Quota::per(1, Span::from_micros(period)).algorithm(algorithm).build().expect("valid")
    }

    proptest! {
        #[test]
        fn a_span_is_kept_for_at_most_a_sixteenth_longer(micros in prop_oneof![0..100_u64, 0..=1_u64 << 52]) {
            let kept = long_span(short_span(Span::from_micros(micros))).as_micros();
            prop_assert!(short_span(Span::from_micros(micros)) <= LIFETIME_BITS);
            prop_assert!(kept >= micros && kept <= micros + micros / 16, "{micros} is kept as {kept}");
        }

        #[test]
        fn a_bucket_comes_back_and_knows_its_end_exactly(full_at in 0..3_u64 << 51, part: u32, tag: u16) {
            let full_at = moment(full_at);
            let (state, quota) = (State::Bucket(Bucket { full_at, part, tag }), quota(Algorithm::TokenBucket, 1));
            let packed = Packed::new(&state, &quota).expect("fixed size");
            prop_assert_eq!(packed.until(), state.until(&quota));
            prop_assert_eq!(packed.state(), Some(state));
        }

        #[test]
        fn windows_come_back_and_are_kept_long_enough(
            start in 0..1_u64 << 52, period in 1..=1_u64 << 51, current: u32, previous: u32,
        ) {
            let start = Timestamp::from_micros(start);
            let window = (State::Window(Window { start, admitted: current }), quota(Algorithm::FixedWindow, period));
            let counter = State::Counter(Counter { start, current, previous });
            for (state, quota) in [window, (counter, quota(Algorithm::SlidingWindowCounter, period))] {
                let packed = Packed::new(&state, &quota).expect("fixed size");
                prop_assert!(packed.until() >= state.until(&quota));
                prop_assert!(packed.log_index().is_none());
                prop_assert_eq!(packed.state(), Some(state));
            }
        }

        #[test]
        fn a_log_knows_its_place(newest in 0..1_u64 << 52, period in 1..=1_u64 << 51, index: u32) {
            let quota = quota(Algorithm::SlidingWindowLog, period);
            let packed = Packed::log(Timestamp::from_micros(newest), &quota, index);
            prop_assert_eq!(packed.log_index(), Some(index));
            prop_assert_eq!(packed.state(), None);
            prop_assert!(packed.until() >= moment(newest + period));
        }
    }
}
