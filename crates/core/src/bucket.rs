//! What is remembered of a bucket. What it decides is in `algorithm/bucket.rs`.

use crate::pace::{Exact, Pace};
use crate::time::{Span, Timestamp};

/// When the bucket will be full again: whole microseconds, and a part of one in units of the quota's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The whole microseconds.
    pub full_at: Timestamp,
    /// The rest, as the numerator of a fraction whose denominator follows from the rate (below 2^32).
    pub part: u32,
    /// Marks the numbers by which it was written; 0 where nobody noted them, and they are taken for those in force.
    pub tag: u16,
}

impl Bucket {
    /// The first whole microsecond at which the bucket is full.
    pub(crate) fn until(&self) -> Timestamp {
        self.full_at + Span::from_micros(u64::from(self.part > 0))
    }

    /// What is missing at `now`, which is not after `full_at`.
    #[inline(always)]
    pub(crate) fn debt(&self, pace: &Pace, now: Timestamp) -> Exact {
        // Of an unknown rate, with another denominator: less than a microsecond, rounded against the client.
        let part = u64::from(self.part).min(pace.denominator() - 1);
        Exact { whole: self.full_at.since(now).as_micros(), part }
    }

    pub(crate) fn after(now: Timestamp, debt: Exact, pace: &Pace) -> Bucket {
        Bucket { full_at: now + Span::from_micros(debt.whole), part: debt.part as u32, tag: pace.tag() }
    }

    /// Whether it was written by other numbers than these.
    #[inline(always)]
    pub(crate) fn is_foreign(&self, pace: &Pace) -> bool {
        self.tag != pace.tag() && self.tag != 0
    }
}
