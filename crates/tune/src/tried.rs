//! Other numbers, tried on remembered requests with the real algorithm ([`decide`]): which requests and keys they would have denied.
//!
//! A rule is tried alone. Keys do not share state, so each is decided from its first request to its last, then the next.

use tollkeeper_core::{Bucket, Quota, State, Timestamp, decide};

use crate::demand::round_numbers;

/// Requests of some keys, one key after the other, each in order of time.
#[derive(Debug, Clone, Default)]
pub struct ByKey {
    requests: Vec<Asked>,
    /// Where each key begins.
    keys: Vec<usize>,
    /// Whether these are all requests of their time.
    exact: bool,
}

/// A request: what a limit needs to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Stands for the key.
    pub key: u64,
    /// When it came.
    pub at: Timestamp,
    /// What it costs.
    pub cost: u32,
}

/// What numbers would have decided.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tried {
    /// All requests.
    pub requests: u64,
    /// Those that would have been denied.
    pub denied: u64,
    /// All keys.
    pub keys: u64,
    /// Those that would have been denied at least once.
    pub keys_denied: u64,
    /// Whether these are all requests; otherwise all of some keys, chosen by chance.
    pub exact: bool,
}

/// A limit that spares most keys, found by trying.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparing {
    /// The numbers.
    pub quota: Quota,
    /// What they would have decided.
    pub tried: Tried,
}

impl Tried {
    /// The share of keys that would have been denied, 0 to 1.
    #[must_use]
    pub fn share_of_keys(&self) -> f64 {
        self.keys_denied as f64 / self.keys.max(1) as f64
    }

    /// The share of requests that would have been denied, 0 to 1.
    #[must_use]
    pub fn share_of_requests(&self) -> f64 {
        self.denied as f64 / self.requests.max(1) as f64
    }
}

impl ByKey {
    /// Groups requests that come in order of time.
    #[must_use]
    pub fn new(requests: Vec<Asked>, exact: bool) -> ByKey {
        let requests = sorted(requests);
        let mut keys = Vec::new();
        let mut last = None;
        for (place, one) in requests.iter().enumerate() {
            if last != Some(one.key) {
                keys.push(place);
                last = Some(one.key);
            }
        }
        ByKey { requests, keys, exact }
    }

    /// The same without some keys.
    #[must_use]
    pub fn without(&self, is_left_out: impl Fn(u64) -> bool) -> ByKey {
        let requests = self.requests.iter().filter(|one| !is_left_out(one.key)).copied().collect();
        ByKey::new(requests, self.exact)
    }

    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Runs all requests against these numbers.
    #[must_use]
    pub fn run(&self, quota: &Quota) -> Tried {
        let mut tried = Tried {
            requests: self.requests.len() as u64,
            keys: self.keys.len() as u64,
            exact: self.exact,
            ..Tried::default()
        };
        for requests in self.each() {
            let denied = denied(quota, requests, u64::MAX);
            tried.denied += denied;
            tried.keys_denied += u64::from(denied > 0);
        }
        tried
    }

    /// For each of these shares of keys, in any order, the lowest round limit of this shape that denies no more of them; `None` where even the
    /// highest does. The burst grows and shrinks with the limit.
    #[must_use]
    pub fn sparing(&self, shape: &Quota, shares: &[f64]) -> Vec<Option<Sparing>> {
        let rungs: Vec<Quota> = round_numbers().filter_map(|count| scaled(shape, count)).collect();
        let mut needs: Vec<usize> = self.each().map(|requests| need(&rungs, requests)).collect();
        needs.sort_unstable();
        let denied_at = |rung: usize| needs.len() - needs.partition_point(|need| *need <= rung);
        let lowest = |share: f64| {
            let most = (needs.len() as f64 * share).floor() as usize;
            (0..rungs.len()).find(|rung| denied_at(*rung) <= most)
        };
        let mut known: Vec<Sparing> = Vec::new();
        let mut run = |quota: Quota| {
            let again = known.iter().find(|one| one.quota == quota).copied();
            again.unwrap_or_else(|| {
                let sparing = Sparing { quota, tried: self.run(&quota) };
                known.push(sparing);
                sparing
            })
        };
        shares.iter().map(|share| lowest(*share).map(|rung| run(rungs[rung]))).collect()
    }

    fn each(&self) -> impl Iterator<Item = &[Asked]> {
        let ends = self.keys.iter().skip(1).copied().chain([self.requests.len()]);
        self.keys.iter().zip(ends).map(|(from, to)| &self.requests[*from..to])
    }
}

/// Requests by key; those of a key stay in order. Keys are hashes, spread evenly up to the highest, so dealing them by their first bits leaves
/// piles that are sorted in the fastest memory.
fn sorted(requests: Vec<Asked>) -> Vec<Asked> {
    const PILE: usize = 256;
    if requests.is_sorted_by_key(|one| one.key) {
        return requests;
    }
    let highest = requests.iter().map(|one| one.key).max().unwrap_or(0);
    let bits = (requests.len() / PILE).max(2).ilog2().min(12);
    let shift = (u64::BITS - highest.leading_zeros()).saturating_sub(bits);
    let pile = |one: &Asked| (one.key >> shift) as usize;
    let mut ends = vec![0; (highest >> shift) as usize + 1];
    requests.iter().for_each(|one| ends[pile(one)] += 1);
    let mut begins = 0;
    for end in &mut ends {
        begins += std::mem::replace(end, begins);
    }
    let mut sorted = requests.clone();
    for one in &requests {
        let place = &mut ends[pile(one)];
        sorted[*place] = *one;
        *place += 1;
    }
    let mut from = 0;
    for to in ends {
        sorted[from..to].sort_by_key(|one| one.key);
        from = to;
    }
    sorted
}

/// The same kind of limit at another count.
#[must_use]
pub fn scaled(shape: &Quota, count: u32) -> Option<Quota> {
    let builder = match shape.calendar() {
        Some(calendar) => Quota::per_calendar(count, *calendar),
        None => Quota::per(count, shape.period()),
    };
    let builder = builder.algorithm(shape.algorithm());
    if !shape.algorithm().has_burst() {
        return builder.build().ok();
    }
    let burst = u64::from(shape.limit()) * u64::from(count) / u64::from(shape.count());
    builder.burst(u32::try_from(burst.max(1)).ok()?).build().ok()
}

/// The lowest limit that denies none of a key's requests; one past the last when all deny some.
fn need(rungs: &[Quota], requests: &[Asked]) -> usize {
    // A limit that holds all of them at once is enough: most keys have few.
    let all: u64 = requests.iter().map(|one| u64::from(one.cost)).sum();
    let most = rungs.partition_point(|quota| u64::from(quota.limit()) < all);
    // Upwards in larger and larger steps first: a limit that is too low denies soon, and only one that is high enough looks at all requests.
    let passes = |rung: usize| rung >= most || denied(&rungs[rung], requests, 1) == 0;
    let span = span(requests);
    let (mut low, mut step) = (rungs.partition_point(|quota| must_deny(quota, all, span)), 1);
    while low + step <= rungs.len() && !passes(low + step - 1) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step - 1).min(most);
    while low < high {
        let middle = (low + high) / 2;
        if passes(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// How long requests come, in microseconds.
fn span(requests: &[Asked]) -> u64 {
    let last = requests.iter().map(|one| one.at).max().unwrap_or_default();
    requests.first().map_or(0, |first| last.since(first.at).as_micros())
}

/// Whether a limit denies some requests of this cost for certain: a bucket admits no more than its burst and what flows in while they come.
fn must_deny(quota: &Quota, all: u64, span: u64) -> bool {
    let period = u128::from(quota.period().as_micros());
    let admitted = u128::from(quota.limit()) * period + u128::from(quota.count()) * u128::from(span);
    quota.algorithm().has_burst() && admitted < u128::from(all) * period
}

/// How many of one key's requests a limit denies; counted up to `most`.
fn denied(quota: &Quota, requests: &[Asked], most: u64) -> u64 {
    if quota.algorithm().has_burst() {
        // Only whether it passes is needed, and where the compiler sees that, it leaves out the divisions for the rest of a decision.
        let mut bucket = None;
        return count(requests, most, |cost, now| {
            let (decision, next) = Bucket::decide(quota, cost, bucket, now);
            bucket = next.or(bucket);
            !decision.is_allowed()
        });
    }
    let mut state = State::Fresh;
    count(requests, most, |cost, now| {
        let (decision, change) = decide(quota, cost, &state, now);
        state.apply(change);
        !decision.is_allowed()
    })
}

fn count(requests: &[Asked], most: u64, mut is_denied: impl FnMut(u32, Timestamp) -> bool) -> u64 {
    let (mut denied, mut last) = (0, Timestamp::default());
    for one in requests {
        // Notes of several threads may be read out of order.
        last = last.max(one.at);
        denied += u64::from(is_denied(one.cost, last));
        if denied == most {
            break;
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Chance;

    fn asked(key: u64, second: u64) -> Asked {
        Asked { key, at: Timestamp::from_micros(1_767_225_600_000_000 + second * 1_000_000), cost: 1 }
    }

    #[test]
    fn requests_are_sorted_by_key_and_stay_in_order() {
        let mut chance = Chance::new(1);
        for (requests, below) in [(0, 1), (10, 3), (5_000, 40), (5_000, u64::MAX), (40_000, u64::MAX / 1_000)] {
            let asked: Vec<Asked> = (0..requests).map(|second| asked(chance.below(below), second)).collect();
            let mut expected = asked.clone();
            expected.sort_by_key(|one| one.key);
            assert_eq!(sorted(asked), expected);
        }
    }

    #[test]
    fn the_lowest_limit_is_the_first_that_denies_nothing() {
        let rungs: Vec<Quota> = round_numbers()
            .filter_map(|count| scaled(&Quota::per_minute(20).burst(10).build().expect("a quota"), count))
            .collect();
        let mut chance = Chance::new(2);
        for _ in 0..500 {
            let mut second = 0;
            let requests: Vec<Asked> = (0..=chance.below(60))
                .map(|_| {
                    second += chance.below(4) * chance.below(10);
                    Asked { cost: 1 + chance.below(3) as u32, ..asked(7, second) }
                })
                .collect();
            let first = rungs.iter().position(|quota| denied(quota, &requests, u64::MAX) == 0);
            assert_eq!(Some(need(&rungs, &requests)), first, "{requests:?}");
        }
    }

    #[test]
    fn the_lowest_round_limit_that_spares_a_share_of_keys() {
        // A hundred keys: number n sends n requests at once.
        let requests = (1..=100).flat_map(|key| (0..key).map(move |_| asked(key, 0))).collect();
        let by_key = ByKey::new(requests, true);
        let shape = Quota::per_minute(10).build().expect("a quota");
        let found = by_key.sparing(&shape, &[0.0, 0.01, 0.05, 0.5]);
        let counts: Vec<_> =
            found.iter().map(|one| one.map(|one| (one.quota.count(), one.tried.keys_denied))).collect();
        assert_eq!(counts, [Some((100, 0)), Some((100, 0)), Some((100, 0)), Some((50, 50))]);
        let half = found[3].expect("found").tried;
        assert_eq!((half.requests, half.denied), (5_050, (51..=100).map(|sent| sent - 50).sum()));
    }

    #[test]
    fn a_burst_grows_with_its_limit() {
        let shape = Quota::per_minute(60).burst(20).build().expect("a quota");
        let higher = scaled(&shape, 120).expect("a quota");
        assert_eq!((higher.count(), higher.limit()), (120, 40));
        assert_eq!(scaled(&shape, 1).expect("a quota").limit(), 1, "never below one");
    }

    #[test]
    fn keys_that_are_left_out_count_nowhere() {
        let by_key = ByKey::new(vec![asked(1, 0), asked(2, 0), asked(1, 1), asked(2, 5)], true);
        let quota = Quota::per_minute(1).build().expect("a quota");
        assert_eq!(by_key.run(&quota).denied, 2);
        let one = by_key.without(|key| key == 2).run(&quota);
        assert_eq!((one.requests, one.denied, one.keys, one.keys_denied), (2, 1, 1, 1));
    }
}
