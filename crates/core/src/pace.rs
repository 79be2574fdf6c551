//! The pace of a bucket as an exact fraction: `count` tokens per `period` without rounding.
//!
//! One token takes `period / count` microseconds, which is rarely whole (3/s). Durations are therefore kept as whole
//! microseconds plus `part / denominator` of one, in lowest terms. Sums and comparisons are exact, so nothing ever
//! drifts; all numbers stay below 2^53 for the Lua scripts.

use crate::time::{EXACT, Span};

/// `whole + part / denominator` microseconds, with the denominator of its [`Pace`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Exact {
    pub(crate) whole: u64,
    pub(crate) part: u64,
}

impl Exact {
    pub(crate) const ZERO: Exact = Exact { whole: 0, part: 0 };

    /// The first whole microsecond that is not before this.
    pub(crate) const fn ceil(self) -> Span {
        Span::from_micros(self.whole + (self.part > 0) as u64)
    }
}

/// The numbers of a bucket, for code that decides elsewhere (a script inside the store). All are below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refill {
    /// Whole microseconds per token,
    pub token_whole: u64,
    /// and this many parts of one.
    pub token_part: u64,
    /// Parts per microsecond.
    pub denominator: u64,
    /// Whole microseconds to fill the bucket,
    pub full_whole: u64,
    /// and this many parts of one.
    pub full_part: u64,
    /// Tokens in a full bucket.
    pub burst: u32,
    /// Marks what this pace wrote, from 1 to 999.
    pub tag: u16,
}

/// How long one token and a whole bucket take to refill at this rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    token: Exact,
    denominator: u64,
    full: Exact,
    burst: u32,
    tag: u16,
    /// 2^64 divided by the parts of one token: counting tokens takes a multiplication instead of a division.
    tokens_per_part: u64,
}

impl Pace {
    /// For the algorithms without a bucket.
    pub(crate) const NONE: Pace =
        Pace { token: Exact::ZERO, denominator: 1, full: Exact::ZERO, burst: 0, tag: 0, tokens_per_part: 0 };

    /// Tags are from 1 to this: three digits at the end of what is stored.
    pub(crate) const TAGS: u16 = 999;

    /// `None` if a bucket of `burst` cannot be counted exactly.
    pub(crate) fn new(count: u32, period: Span, burst: u32) -> Option<Pace> {
        let (count, micros) = (u64::from(count), period.as_micros());
        let common = gcd(count, micros);
        let (denominator, micros) = (count / common, micros / common);
        let token = Exact { whole: micros / denominator, part: micros % denominator };
        // The largest products of `lasting`, and the sum in `add` that may carry.
        let fits = token.whole.checked_mul(u64::from(burst))? <= Span::MAX.as_micros()
            && token.part.checked_mul(u64::from(burst))?.checked_add(2 * denominator)? < EXACT;
        let tag = tag([micros, denominator, burst.into()]);
        let tokens_per_part = u64::MAX / micros;
        let mut pace = Pace { token, denominator, full: Exact::ZERO, burst, tag, tokens_per_part };
        pace.full = fits.then(|| pace.lasting(burst))?;
        (pace.full.whole < Span::MAX.as_micros()).then_some(pace)
    }

    /// The same pace, if a token takes whole microseconds, in a form that lets the compiler see that.
    #[inline(always)]
    pub(crate) const fn in_whole_microseconds(&self) -> Option<Pace> {
        const fn whole(exact: Exact) -> Exact {
            Exact { whole: exact.whole, part: 0 }
        }
        if self.denominator == 1 {
            Some(Pace { token: whole(self.token), denominator: 1, full: whole(self.full), ..*self })
        } else {
            None
        }
    }

    /// How long the whole bucket takes to refill: its debt when empty.
    pub(crate) const fn full(&self) -> Exact {
        self.full
    }

    pub(crate) const fn refill(&self) -> Refill {
        Refill {
            token_whole: self.token.whole,
            token_part: self.token.part,
            denominator: self.denominator,
            full_whole: self.full.whole,
            full_part: self.full.part,
            burst: self.burst,
            tag: self.tag,
        }
    }

    /// How much the whole bucket holds.
    pub(crate) const fn burst(&self) -> u32 {
        self.burst
    }

    /// Marks what this pace wrote, from 1 to 999: the same on every instance and after a restart.
    pub(crate) const fn tag(&self) -> u16 {
        self.tag
    }

    pub(crate) const fn set_tag(&mut self, tag: u16) {
        self.tag = tag;
    }

    /// Whether the numbers are equal, regardless of the tags.
    pub(crate) fn is_same(&self, other: &Pace) -> bool {
        Pace { tag: other.tag, ..*self } == *other
    }

    /// A duration of at most one token, in parts.
    pub(crate) const fn parts(&self, exact: Exact) -> u64 {
        exact.whole * self.denominator + exact.part
    }

    /// One token in parts: the period in lowest terms.
    pub(crate) const fn token_parts(&self) -> u64 {
        self.parts(self.token)
    }

    /// Parts per microsecond.
    pub(crate) const fn denominator(&self) -> u64 {
        self.denominator
    }

    /// How long `tokens` take to refill. `tokens` is at most the burst.
    pub(crate) const fn lasting(&self, tokens: u32) -> Exact {
        let tokens = tokens as u64;
        let whole = self.token.whole * tokens;
        if self.token.part == 0 {
            return Exact { whole, part: 0 };
        }
        let parts = self.token.part * tokens;
        Exact { whole: whole + parts / self.denominator, part: parts % self.denominator }
    }

    pub(crate) const fn add(&self, a: Exact, b: Exact) -> Exact {
        let (whole, part) = (a.whole + b.whole, a.part + b.part);
        if part >= self.denominator {
            Exact { whole: whole + 1, part: part - self.denominator }
        } else {
            Exact { whole, part }
        }
    }

    /// `a - b`, where `b` is at most `a`.
    pub(crate) const fn sub(&self, a: Exact, b: Exact) -> Exact {
        if a.part < b.part {
            Exact { whole: a.whole - b.whole - 1, part: a.part + self.denominator - b.part }
        } else {
            Exact { whole: a.whole - b.whole, part: a.part - b.part }
        }
    }

    /// How many tokens are refilled in this time, the last one perhaps in part.
    pub(crate) fn tokens_begun(&self, time: Exact) -> u32 {
        let per_token = u128::from(self.token.whole) * u128::from(self.denominator) + u128::from(self.token.part);
        let parts = u128::from(time.whole) * u128::from(self.denominator) + u128::from(time.part);
        u32::try_from(parts.div_ceil(per_token)).unwrap_or(u32::MAX)
    }

    /// How many whole tokens fit into `room`, which is at most the whole bucket.
    #[inline(always)]
    pub(crate) fn tokens_in(&self, room: Exact) -> u32 {
        let parts = u128::from(room.whole) * u128::from(self.denominator) + u128::from(room.part);
        match u64::try_from(parts) {
            Ok(parts) => {
                // The product is less than one below the exact quotient: it is right, or one too low.
                let estimate = ((u128::from(parts) * u128::from(self.tokens_per_part)) >> 64) as u64;
                let is_low = parts - estimate * self.token_parts() >= self.token_parts();
                (estimate + u64::from(is_low)) as u32
            }
            Err(_) => self.tokens_in_many(parts),
        }
    }

    /// A 128-bit division costs tens of nanoseconds, and few quotas need one.
    #[cold]
    #[inline(never)]
    fn tokens_in_many(&self, parts: u128) -> u32 {
        (parts / u128::from(self.token_parts())) as u32
    }
}

/// A tag from 1 to 999 for these numbers. 0 marks what was written before there were tags.
fn tag(numbers: [u64; 3]) -> u16 {
    // FNV-1a. It must never change: stored buckets carry it.
    let bytes = numbers.into_iter().flat_map(u64::to_be_bytes);
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    1 + ((hash ^ hash >> 32) % u64::from(Pace::TAGS)) as u16
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_a_second_is_kept_exactly() {
        let pace = Pace::new(3, Span::SECOND, 3).expect("fits");
        assert_eq!(pace.lasting(1), Exact { whole: 333_333, part: 1 });
        assert_eq!(pace.lasting(3), Exact { whole: 1_000_000, part: 0 });
        assert_eq!(pace.tokens_in(Exact { whole: 666_666, part: 1 }), 1);
        assert_eq!(pace.tokens_in(Exact { whole: 666_666, part: 2 }), 2);
    }

    #[test]
    fn tokens_are_counted_as_by_division() {
        let paces =
            [(1, 1, 1 << 20), (1, 3, 9), (3, 1_000_000, 50), (7, 86_400_000_000, 7), (4_294_967_291, 1_000_003, 1_000)];
        let last = Pace::new(1, Span::from_micros(1 << 50), 1).expect("fits");
        let paces =
            paces.map(|(count, period, burst)| Pace::new(count, Span::from_micros(period), burst).expect("fits"));
        for pace in paces.into_iter().chain([last]) {
            for tokens in (0..=pace.burst()).step_by((pace.burst() / 100).max(1) as usize) {
                let exactly = pace.lasting(tokens);
                assert_eq!(pace.tokens_in(exactly), tokens, "{pace:?}");
                if tokens > 0 {
                    let smallest = Exact { whole: 0, part: 1 };
                    let less = if pace.denominator() > 1 { smallest } else { Exact { whole: 1, part: 0 } };
                    assert_eq!(pace.tokens_in(pace.sub(exactly, less)), tokens - 1, "{pace:?}");
                }
            }
        }
    }

    #[test]
    fn sums_carry_and_differences_borrow() {
        let pace = Pace::new(3, Span::SECOND, 3).expect("fits");
        let (a, b) = (Exact { whole: 5, part: 2 }, Exact { whole: 1, part: 2 });
        assert_eq!(pace.add(a, b), Exact { whole: 7, part: 1 });
        assert_eq!(pace.sub(Exact { whole: 7, part: 1 }, b), a);
    }
}
