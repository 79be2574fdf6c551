//! What a quota was before it was changed, so that buckets written by the old numbers are read as what they were.
//!
//! A bucket's state is the moment at which it is full again. That says how many tokens are missing only to those who
//! know the pace by which it was written: ten a second make five seconds fifty tokens, a hundred a second five hundred. So
//! each bucket carries a small tag of its pace, and a quota knows the paces that its rule had before. At the moment of
//! the change the missing tokens stay missing, at most as many as the new bucket holds; from there on they come back by
//! the new pace. Nothing of that depends on when somebody looks, so waits stay exact.

use std::fmt;

use crate::bucket::Bucket;
use crate::pace::{Exact, Pace};
use crate::time::{Span, Timestamp};

/// A pace that a rule had until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) pace: Pace,
    pub(crate) until: Timestamp,
}

/// The last few of them, the newest first. More than these are not remembered: a bucket that was not asked for through
/// so many changes is read as one of an unknown pace.
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

    /// `pace` in the place of `newest`, which had these before: with a tag that tells it from them, and all of them. One that
    /// comes back is another one too: what it wrote before went through what came between.
    ///
    /// Instances that go through the same changes find the same tag.
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

    /// A bucket of a former pace as it is by the pace in force; `None` if its pace is not known.
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
    /// The bucket as it was when this pace ended, by the pace that came then. Less than a part of a microsecond is
    /// rounded against the client.
    fn carry(&self, bucket: Bucket, next: &Pace) -> Bucket {
        let pace = &self.pace;
        // An instance that learned of the change later may have written it afterwards: not before it can have been empty.
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
        // Of the next token some is missing: the same share of it lasts longer or shorter now.
        let share = pace.parts(pace.sub(debt, pace.lasting(missing)));
        let (from, to) = (u128::from(pace.token_parts()), u128::from(next.token_parts()));
        let share = (u128::from(share) * to).div_ceil(from) as u64;
        let rest = Exact { whole: share / next.denominator(), part: share % next.denominator() };
        Bucket::after(moment, next.add(next.lasting(missing), rest), next)
    }
}
