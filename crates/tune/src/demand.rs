//! Which limit would have been high enough for a key: its requests are run against the rule's own algorithm at higher
//! limits.
//!
//! Up to its first denial a limit sees every request, so whether it would have denied any is known exactly for
//! buckets and fixed windows, from one number per limit. A `sliding_window_log` is judged by the weighted sum of two
//! windows, like `sliding_window_counter`.
//!
//! A client that honours Retry-After asks for less than it would like, and a limit that was chosen by what it asked
//! for would deny it again. So its requests are run twice: as they came, and as they would have come without waiting.
//! A retry without waiting counts as demand the first time: such clients appear to need more than they do.

use std::mem;

use tollkeeper::{Algorithm, Quota, Span, Timestamp};

use crate::behaviour::ROUND_TRIP;
use crate::words::grouped;

/// How many higher limits are tried.
pub(crate) const RUNGS: usize = 16;

/// The limits to try for a rule: the next round numbers above its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    quota: Quota,
    counts: [u32; RUNGS],
    /// What a bucket of each limit may owe: computed once, because dividing takes longer than all the rest.
    room: [u64; RUNGS],
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    as_sent: Levels,
    unhindered: Levels,
    /// How much earlier its requests would have come.
    waited: Span,
    /// The last request, if it was denied: when, and its `Retry-After`.
    denied: Option<(Timestamp, Span)>,
}

/// The state of a key's requests at each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Levels {
    last: Timestamp,
    /// What a bucket of each limit would owe; windows use the first two for this window and the one before.
    owed: [u64; RUNGS],
    /// How many of the limits, from the lowest, would have denied the key at least once.
    denied_below: u8,
}

/// The lowest limit that would have been enough, with the burst that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sufficient {
    /// The number before the slash.
    pub count: u32,
    /// For buckets.
    pub burst: Option<u32>,
    /// The share of keys that it would have denied.
    pub share_denied: f64,
}

impl Ladder {
    /// The limits to try for a quota; `None` for `concurrency`, because it is unknown when slots would have been
    /// released, and for windows of a calendar, whose days and weeks are far beyond what is remembered.
    pub fn new(quota: Quota) -> Option<Ladder> {
        let mut above = round_numbers().filter(|number| *number > quota.count());
        let counts: [u32; RUNGS] = std::array::from_fn(|_| above.next().unwrap_or(Quota::MAX_COUNT));
        let room = counts.map(|count| quota.period().as_micros().saturating_mul(burst_at(&quota, count)));
        (quota.algorithm() != Algorithm::Concurrency && quota.calendar().is_none()).then_some(Ladder {
            quota,
            counts,
            room,
        })
    }

    /// Adds a request of a key; `denied_for` is the wait of a denial.
    pub fn add(&self, demand: &mut Demand, at: Timestamp, cost: u32, denied_for: Option<Span>) {
        // A request that costs more than the limit never passes; it says nothing about the rate.
        if cost == 0 || cost > self.quota.limit() {
            return;
        }
        self.run(&mut demand.as_sent, at, cost);
        let denied = mem::replace(&mut demand.denied, denied_for.map(|wait| (at, wait)));
        if let Some((before, wait)) = denied
            && is_retry(at.since(before), wait)
        {
            demand.waited = Span::from_micros(demand.waited.as_micros() + at.since(before).as_micros());
            return;
        }
        let earlier = Timestamp::from_micros(at.as_micros().saturating_sub(demand.waited.as_micros()));
        self.run(&mut demand.unhindered, earlier, cost);
    }

    fn run(&self, demand: &mut Levels, at: Timestamp, cost: u32) {
        // If time runs backwards, it counts as standing still.
        let at = at.max(demand.last);
        let passed = at.since(demand.last).as_micros();
        let too_low = match self.is_bucket() {
            true => self.pour(demand, passed, cost),
            false => self.fill_window(demand, at, cost),
        };
        demand.last = at;
        demand.denied_below = demand.denied_below.max(too_low as u8);
    }

    /// Buckets drain at their rate and hold their burst, which grows with the limit. The debt is counted in tokens
    /// times the period, so that no fraction is lost. Returns how many of the limits are too low.
    fn pour(&self, demand: &mut Levels, passed: u64, cost: u32) -> usize {
        let added = self.quota.period().as_micros().saturating_mul(cost.into());
        let mut too_low = 0;
        for (rung, ((owed, count), room)) in demand.owed.iter_mut().zip(self.counts).zip(self.room).enumerate() {
            *owed = owed.saturating_sub(passed.saturating_mul(count.into())).saturating_add(added);
            if *owed > room {
                too_low = rung + 1;
            }
        }
        too_low
    }

    fn is_bucket(&self) -> bool {
        matches!(self.quota.algorithm(), Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket)
    }

    /// Counts this window and the one before, which fades if the algorithm says so.
    fn fill_window(&self, demand: &mut Levels, at: Timestamp, cost: u32) -> usize {
        let window = self.quota.period().as_micros();
        let [this, before, ..] = &mut demand.owed;
        (*this, *before) = match at.as_micros() / window - demand.last.as_micros() / window {
            0 => (*this, *before),
            1 => (0, *this),
            _ => (0, 0),
        };
        *this += u64::from(cost);
        let fading = if self.quota.algorithm() == Algorithm::FixedWindow { 0 } else { *before };
        let left = window - at.as_micros() % window;
        let needed = u128::from(*this) * u128::from(window) + u128::from(fading) * u128::from(left);
        self.counts.iter().take_while(|count| u128::from(**count) * u128::from(window) < needed).count()
    }

    /// The lowest limit that would have denied at most one key in a hundred, and the share it would have denied.
    /// `None` when even the highest limit would have denied more.
    pub fn enough<'d>(&self, demands: impl Iterator<Item = &'d Demand>) -> Option<Sufficient> {
        let mut denied_below: Vec<u8> = demands.map(Demand::denied_below).collect();
        denied_below.sort_unstable();
        let keys = denied_below.len();
        let denied_at = |rung: usize| keys - denied_below.partition_point(|below| usize::from(*below) <= rung);
        let rung = (0..RUNGS).find(|rung| denied_at(*rung) * 100 <= keys)?;
        let count = self.counts[rung];
        let burst = self.is_bucket().then(|| u32::try_from(burst_at(&self.quota, count)).unwrap_or(Quota::MAX_COUNT));
        Some(Sufficient { count, burst, share_denied: denied_at(rung) as f64 / keys.max(1) as f64 })
    }

    /// A limit in the rule's own unit: `120/min`.
    pub fn written(&self, count: u32) -> String {
        format!("{}/{}", grouped(u64::from(count)), unit(self.quota.period()))
    }
}

/// The burst that belongs to a limit: it grows alike.
fn burst_at(quota: &Quota, count: u32) -> u64 {
    u64::from(quota.limit()) * u64::from(count) / u64::from(quota.count())
}

/// Whether a request is the one that was denied before: it came during the wait, or when that was over. A client learns
/// of a denial after a round trip, so an earlier one is another request.
fn is_retry(gap: Span, wait: Span) -> bool {
    let (gap, wait) = (gap.as_micros(), wait.as_micros());
    let slack = wait / 4 + 50_000;
    gap >= ROUND_TRIP.as_micros().min(wait / 2) && gap <= wait.saturating_add(slack)
}

impl Demand {
    fn denied_below(&self) -> u8 {
        self.as_sent.denied_below.max(self.unhindered.denied_below)
    }

    /// Combines an earlier and a later state of a key.
    pub fn add(&self, later: &Demand) -> Demand {
        let merged =
            |one: &Levels, other: &Levels| Levels { denied_below: one.denied_below.max(other.denied_below), ..*other };
        Demand {
            as_sent: merged(&self.as_sent, &later.as_sent),
            unhindered: merged(&self.unhindered, &later.unhindered),
            ..*later
        }
    }
}

/// 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, ...
pub(crate) fn round_numbers() -> impl Iterator<Item = u32> {
    const TENTHS: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];
    let decades = (0..10u32).map(|power| 10u64.pow(power));
    let all = decades.flat_map(|decade| TENTHS.into_iter().map(move |tenths| tenths * decade));
    all.filter(|number| number % 10 == 0).map_while(|number| u32::try_from(number / 10).ok())
}

/// A limit as people write it: `120/min with burst 40`; the burst is left out where it is the limit's own.
#[must_use]
pub fn written(quota: &Quota) -> String {
    let limit = written_limit(quota);
    if quota.algorithm().has_burst() && quota.limit() != quota.count() {
        return format!("{limit} with burst {}", grouped(quota.limit().into()));
    }
    limit
}

/// The same without the burst.
#[must_use]
pub fn written_limit(quota: &Quota) -> String {
    match quota.calendar() {
        Some(calendar) => format!("{}/{}", grouped(quota.count().into()), calendar.unit()),
        None => format!("{}/{}", grouped(quota.count().into()), unit(quota.period())),
    }
}

/// `min`, `90s`.
pub(crate) fn unit(period: Span) -> String {
    let text = period.to_string();
    let bare = text.strip_prefix('1').filter(|unit| unit.starts_with(|c: char| c.is_ascii_alphabetic()));
    bare.unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollkeeper::{Clock, Key, ManualClock, MemoryStore, Rule, Terms};

    use super::*;

    fn quota(algorithm: Algorithm, count: u32, burst: u32) -> Quota {
        Quota::per(count, Span::from_secs(10)).burst(burst).algorithm(algorithm).build().expect("a quota")
    }

    /// Whether a limit would deny any of these requests, by a real store.
    fn denies_any(quota: Quota, count: u32, requests: &[(u64, u32)]) -> bool {
        let burst = u64::from(quota.limit()) * u64::from(count) / u64::from(quota.count());
        let higher = Quota::per(count, quota.period()).burst(burst as u32).algorithm(quota.algorithm());
        let rule = Rule::new("try").key("{key}").limit("1/s").build().expect("a rule");
        let terms = std::sync::Arc::new(Terms::new(higher.build().expect("a quota")));
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let store = MemoryStore::with(10, Clock::from(clock.clone()));
        let rule = std::sync::Arc::new(rule);
        requests.iter().any(|(at, cost)| {
            clock.set(Timestamp::from_micros(*at));
            let key = Key { variant: 0, value: "key".into() };
            let charge = tollkeeper::Charge::new(rule.clone(), key, *cost).on(terms.clone());
            !store.charge(&[charge]).expect("room")[0].is_allowed()
        })
    }

    fn exact_algorithms() -> impl Strategy<Value = Algorithm> {
        use Algorithm::{FixedWindow, LeakyBucket, SlidingWindowCounter, TokenBucket};
        prop_oneof![Just(TokenBucket), Just(LeakyBucket), Just(FixedWindow), Just(SlidingWindowCounter)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every limit of the ladder denies the keys that the real algorithm denies, and no other.
        #[test]
        fn the_lowest_sufficient_limit_is_the_one_that_a_store_finds(
            algorithm in exact_algorithms(),
            (count, burst) in (1u32..20, 1u32..4),
            keys in prop::collection::vec(prop::collection::vec((0u64..80, 1u32..3), 1..60), 1..12),
        ) {
            let quota = quota(algorithm, count, count * burst);
            let ladder = Ladder::new(quota).expect("a ladder");
            let mut demands = Vec::new();
            let mut brute = [0usize; RUNGS];
            for steps in &keys {
                let mut at = 0;
                let requests: Vec<(u64, u32)> = steps
                    .iter()
                    .map(|(step, cost)| { at += step * 61_803; (at, (*cost).min(quota.limit())) })
                    .collect();
                let mut demand = Demand::default();
                requests.iter().for_each(|(at, cost)| ladder.add(&mut demand, Timestamp::from_micros(*at), *cost, None));
                demands.push(demand);
                for (rung, denied) in brute.iter_mut().enumerate() {
                    *denied += usize::from(denies_any(quota, ladder.counts[rung], &requests));
                }
            }
            let expected = (0..RUNGS).find(|rung| brute[*rung] * 100 <= keys.len());
            let expected = expected.map(|rung| (ladder.counts[rung], brute[rung] as f64 / keys.len() as f64));
            let found = ladder.enough(demands.iter());
            prop_assert_eq!(found.map(|found| (found.count, found.share_denied)), expected);
        }
    }

    #[test]
    fn one_key_in_a_hundred_may_be_denied() {
        let ladder = Ladder::new(quota(Algorithm::FixedWindow, 5, 5)).expect("a ladder");
        let demand = |requests: u32| {
            let mut demand = Demand::default();
            (0..requests).for_each(|_| ladder.add(&mut demand, Timestamp::from_micros(1), 1, None));
            demand
        };
        let mut keys = vec![demand(11); 99];
        keys.push(demand(5_000));
        let enough = Sufficient { count: 12, burst: None, share_denied: 0.01 };
        assert_eq!(ladder.enough(keys.iter()), Some(enough));
        keys.push(demand(5_000));
        assert_eq!(ladder.enough(keys.iter()), None, "two of 101 are more than one in a hundred");
    }

    /// A client was denied again after the limit had been raised as advised: while it waited, it had asked for less than
    /// it wanted.
    #[test]
    fn a_client_that_waits_is_run_as_if_it_had_not() {
        let quota = Quota::per_minute(12).burst(3).build().expect("a quota");
        let ladder = Ladder::new(quota).expect("a ladder");
        let mut demand = Demand::default();
        // It would like one every 640 ms; after three it gets one every five seconds, and honours Retry-After.
        let (mut at, mut tokens, mut refilled) = (0u64, 3.0, 0u64);
        for _ in 0..2_000 {
            tokens = f64::min(3.0, tokens + (at - refilled) as f64 / 5e6);
            refilled = at;
            let wait = (tokens < 1.0).then(|| ((1.0 - tokens) * 5e6).ceil() as u64);
            ladder.add(&mut demand, Timestamp::from_micros(at), 1, wait.map(Span::from_micros));
            if wait.is_none() {
                tokens -= 1.0;
            }
            at += wait.unwrap_or(640_000);
        }
        let found = ladder.enough([demand].iter()).expect("a limit");
        assert_eq!((found.count, found.burst), (100, Some(25)), "93.75 a minute");
        let as_sent = Demand { unhindered: Levels::default(), ..demand };
        assert!(ladder.enough([as_sent].iter()).expect("a limit").count < 50, "what it asked for was much less");
    }

    #[test]
    fn limits_are_round_and_in_the_unit_of_the_rule() {
        let ladder = Ladder::new(Quota::per_minute(60).build().expect("a quota")).expect("a ladder");
        assert_eq!(ladder.counts[..5], [80, 100, 120, 150, 200]);
        assert_eq!(ladder.written(1_200), "1,200/min");
        assert_eq!(Ladder::new(Quota::concurrent(3, Span::from_secs(1)).build().expect("a quota")), None);
        assert_eq!(round_numbers().take(12).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25]);
    }
}
