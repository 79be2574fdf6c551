//! Judges every interval of one key against its bound.

use std::time::Duration;

use crate::Bound;

/// One request: times are since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Before its first byte was sent.
    pub sent: Duration,
    /// After its answer had come.
    pub answered: Duration,
    /// Whether it was admitted.
    pub admitted: bool,
}

/// What the rule promises: a bucket of `burst` tokens, refilled at `per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Tokens that come back each second.
    pub per_second: u32,
    /// The most tokens there can be.
    pub burst: u32,
}

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it began.
    pub from: Duration,
    /// When it was over.
    pub to: Duration,
    /// When the system must have recovered.
    pub recovered: Duration,
}

/// The interval with the largest excess over its bound, or the least room below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// When its first request was sent.
    pub from: Duration,
    /// When its last answer came.
    pub to: Duration,
    /// How many requests were certainly admitted in it.
    pub admitted: u64,
    /// How many may be admitted.
    pub allowed: u64,
}

impl Audit {
    /// Whether more was admitted than the bound allows.
    pub fn is_violated(&self) -> bool {
        self.admitted > self.allowed
    }
}

/// Judges all intervals of one key. `None` when nothing that counts was admitted.
pub fn audit(observations: &[Observation], limit: Limit, bound: Bound, events: &[Event]) -> Option<Audit> {
    let mut admitted: Vec<&Observation> = observations.iter().filter(|request| request.admitted).collect();
    admitted.sort_by_key(|request| request.answered);
    // It is enough to look at intervals that start when an admitted request was sent and end when one was answered:
    // any other interval contains one of these with as many admissions, and has a larger bound.
    let worst_from = |first: &&Observation| {
        let mut count = 0;
        let ends = admitted.iter().filter(move |request| request.sent >= first.sent).map(move |last| {
            count += 1;
            (first.sent, last.answered, count)
        });
        ends.filter_map(|(from, to, admitted)| {
            let allowed = allowed(limit, bound, events, from, to)?;
            Some(Audit { from, to, admitted, allowed })
        })
        .max_by_key(margin)
    };
    admitted.iter().filter_map(worst_from).max_by_key(margin)
}

fn margin(audit: &Audit) -> i128 {
    i128::from(audit.admitted) - i128::from(audit.allowed)
}

/// The most that may pass in an interval; `None` if anything may.
fn allowed(limit: Limit, bound: Bound, events: &[Event], from: Duration, to: Duration) -> Option<u64> {
    let refilled = u128::from(limit.per_second) * (to - from).as_micros() / 1_000_000;
    let lawful = u64::from(limit.burst) + u64::try_from(refilled).unwrap_or(u64::MAX);
    let met =
        |end: fn(&Event) -> Duration| events.iter().filter(move |event| event.from < to && from < end(event)).count();
    match bound {
        Bound::Limited { times, bursts } => {
            let bursts = met(|event| event.to) as u64 * u64::from(bursts);
            Some(lawful * u64::from(times) + bursts * u64::from(limit.burst))
        }
        Bound::NotLimitedDuringFault => (met(|event| event.recovered) == 0).then_some(lawful),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { per_second: 10, burst: 5 };

    fn at(sent_ms: u64, answered_ms: u64) -> Observation {
        let [sent, answered] = [sent_ms, answered_ms].map(Duration::from_millis);
        Observation { sent, answered, admitted: true }
    }

    #[test]
    fn a_burst_and_what_comes_back_is_lawful_and_one_more_is_not() {
        let mut requests: Vec<_> = (0..5).map(|_| at(0, 0)).collect();
        requests.extend((1..=10).map(|tenth| at(tenth * 100, tenth * 100)));
        let fine = audit(&requests, LIMIT, Bound::LIMIT, &[]).unwrap();
        assert!(!fine.is_violated(), "{fine:?}");
        requests.push(at(450, 460));
        let worst = audit(&requests, LIMIT, Bound::LIMIT, &[]).unwrap();
        assert!(worst.is_violated(), "{worst:?}");
        assert_eq!(worst.admitted, worst.allowed + 1);
    }

    #[test]
    fn a_request_that_was_under_way_at_the_edge_is_not_held_against_anybody() {
        // The sixth may have been decided a second before its answer came.
        let mut requests: Vec<_> = (0..5).map(|_| at(1_000, 1_000)).collect();
        requests.push(at(0, 1_000));
        assert!(!audit(&requests, LIMIT, Bound::LIMIT, &[]).unwrap().is_violated());
    }

    #[test]
    fn what_was_denied_does_not_count() {
        let denied = |_| Observation { admitted: false, ..at(0, 0) };
        assert_eq!(audit(&(0..100).map(denied).collect::<Vec<_>>(), LIMIT, Bound::LIMIT, &[]), None);
    }

    #[test]
    fn an_event_gives_a_burst_only_to_intervals_that_meet_it() {
        let [from, to, recovered] = [100, 200, 250].map(Duration::from_millis);
        let event = Event { from, to, recovered };
        let before: Vec<_> = (0..5).map(|_| at(90, 90)).collect();
        let after: Vec<_> = (0..5).map(|_| at(201, 201)).collect();
        let both = [before, after.clone()].concat();
        assert!(!audit(&both, LIMIT, Bound::Limited { times: 1, bursts: 1 }, &[event]).unwrap().is_violated());
        let twice_after = [after.clone(), after].concat();
        assert!(audit(&twice_after, LIMIT, Bound::Limited { times: 1, bursts: 1 }, &[event]).unwrap().is_violated());
    }

    #[test]
    fn without_a_limit_meanwhile_there_is_one_before_and_after() {
        let [from, to, recovered] = [100, 200, 250].map(Duration::from_millis);
        let event = Event { from, to, recovered };
        let meanwhile: Vec<_> = (0..50).map(|_| at(150, 150)).collect();
        assert_eq!(audit(&meanwhile, LIMIT, Bound::NotLimitedDuringFault, &[event]), None);
        let later: Vec<_> = (0..6).map(|_| at(300, 300)).collect();
        assert!(audit(&later, LIMIT, Bound::NotLimitedDuringFault, &[event]).unwrap().is_violated());
    }
}
