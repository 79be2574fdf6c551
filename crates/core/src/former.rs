//! The paces a quota had before it was changed, so that buckets written under them are still read correctly.
//!
//! A bucket's state is the moment at which it is full again. How many tokens that means depends on the pace that
//! wrote it: five seconds are fifty tokens at ten a second, and five hundred at a hundred a second. So each bucket
//! carries a small tag of its pace, and a quota remembers the paces that its rule had before. At the moment of the
//! change the missing tokens stay missing, up to the size of the new bucket; from then on they refill at the new
//! pace. The result does not depend on when the bucket is next read, so waits stay exact.

use std::fmt;

use crate::bucket::Bucket;
use crate::pace::{Exact, Pace};
use crate::time::{Span, Timestamp};

/// A pace that a rule had, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) pace: Pace,
    pub(crate) until: Timestamp,
}

/// The last few, newest first. Older ones are forgotten: a bucket not used through that many changes is read as one
/// of unknown pace.
#[derive(Clone, Copy)]
pub(crate) struct Formers {
    list: [Former; Formers::MOST],
    count: u8,
}

impl Formers {
    const MOST: usize = 4;
    pub(crate) const NONE: Formers =
        Formers { list: [Former { pace: Pace::NONE, until: Timestamp::from_micros(0) }; Formers::MOST], count: 0 };

    pub(crate) fn as_slice(&self) -> &[Former] {
        &self.list[..usize::from(self.count)]
    }

    /// Puts `pace` in place of `newest`, before which these were in force. Returns it with a tag that differs from
    /// all of theirs, and the new list.
    ///
    /// A pace that returns gets a new tag too. Example: 10/s, then 100/s, then 10/s again. A bucket written under the
    /// first 10/s must be converted through 100/s; one written under the second must not.
    ///
    /// Instances that see the same changes find the same tags.
    pub(crate) fn followed_by(&self, mut pace: Pace, newest: Former) -> (Pace, Formers) {
        let all = || std::iter::once(&newest).chain(self.as_slice());
        let mut tag = pace.tag();
        while all().any(|former| former.pace.tag() == tag) {
            tag = tag % Pace::TAGS + 1;
        }
        let mut formers = Formers::NONE;
        for (place, former) in formers.list.iter_mut().zip(all()) {
            *place = *former;
            formers.count += 1;
        }
        pace.set_tag(tag);
        (pace, formers)
    }

    /// A bucket of a former pace converted to the pace in force; `None` if its pace is unknown.
    #[cold]
    pub(crate) fn carry(&self, bucket: Bucket, in_force: &Pace) -> Option<Bucket> {
        let formers = self.as_slice();
        let written_by = formers.iter().position(|former| former.pace.tag() == bucket.tag)?;
        let mut carried = bucket;
        for place in (0..=written_by).rev() {
            let next = if place == 0 { in_force } else { &formers[place - 1].pace };
            carried = formers[place].carry(carried, next);
        }
        Some(carried)
    }
}

impl fmt::Debug for Formers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl PartialEq for Formers {
    fn eq(&self, other: &Formers) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Formers {}

impl Former {
    /// Converts the bucket from this pace to the next, as of the moment this pace ended. Fractions of a microsecond
    /// are rounded against the client.
    fn carry(&self, bucket: Bucket, next: &Pace) -> Bucket {
        let pace = &self.pace;
        // An instance that learned of the change late may have written the bucket after it. The earliest moment at
        // which it can have been empty is then the moment of conversion.
        let emptied_at = bucket.full_at.as_micros().saturating_sub(pace.full().whole);
        let moment = self.until.max(Timestamp::default() + Span::from_micros(emptied_at));
        if bucket.full_at < moment {
            return Bucket { full_at: bucket.full_at, part: 0, tag: next.tag() };
        }
        let debt = Exact {
            whole: bucket.full_at.since(moment).as_micros(),
            part: u64::from(bucket.part).min(pace.denominator() - 1),
        };
        let debt = debt.min(pace.full());
        let missing = pace.tokens_in(debt);
        if missing >= next.burst() {
            return Bucket::after(moment, next.full(), next);
        }
        // The next token is partly refilled: the same share of it takes longer or shorter now.
        let share = pace.parts(pace.sub(debt, pace.lasting(missing)));
        let (from, to) = (u128::from(pace.token_parts()), u128::from(next.token_parts()));
        let share = (u128::from(share) * to).div_ceil(from) as u64;
        let rest = Exact { whole: share / next.denominator(), part: share % next.denominator() };
        Bucket::after(moment, next.add(next.lasting(missing), rest), next)
    }
}
