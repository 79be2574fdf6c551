//! The stored state of a bucket. How it decides is in `algorithm/bucket.rs`.

use crate::pace::{Exact, Pace};
use crate::time::{Span, Timestamp};

/// When the bucket will be full again: whole microseconds, and a fraction of one in units of the quota's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The whole microseconds.
    pub full_at: Timestamp,
    /// The rest, as the numerator of a fraction whose denominator follows from the rate (below 2^32).
    pub part: u32,
    /// The tag of the pace that wrote it; 0 if none was recorded, and then it is taken for the pace in force.
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
        // If another rate wrote it, its denominator differs: less than a microsecond, rounded against the client.
        let part = u64::from(self.part).min(pace.denominator() - 1);
        Exact { whole: self.full_at.since(now).as_micros(), part }
    }

    pub(crate) fn after(now: Timestamp, debt: Exact, pace: &Pace) -> Bucket {
        Bucket { full_at: now + Span::from_micros(debt.whole), part: debt.part as u32, tag: pace.tag() }
    }

    /// Whether another pace wrote it.
    #[inline(always)]
    pub(crate) fn is_foreign(&self, pace: &Pace) -> bool {
        self.tag != pace.tag() && self.tag != 0
    }
}
