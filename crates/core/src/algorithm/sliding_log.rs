//! `sliding_window_log` and `concurrency`: every admitted request is remembered until it leaves the window, or until
//! its hold expires, which is the same rule. A hold can also be released earlier.

use super::jump::jumped_back;
use super::log::{Entry, Log};
use super::state::{Change, State};
use crate::decision::{Decision, Hold, Outcome};
use crate::quota::{Algorithm, Quota};
use crate::time::{Span, Timestamp};

pub(super) fn decide(quota: &Quota, cost: u32, log: Option<&Log>, now: Timestamp) -> (Decision, Change) {
    let empty = Log::default();
    let log = log.unwrap_or(&empty);
    let jumped = log.last().is_some_and(|last| jumped_back(last, now, quota.period()));
    if !jumped {
        return decide_in_order(quota, cost, log, now);
    }
    let mut rebased = log.clone();
    rebased.rebase(now);
    match decide_in_order(quota, cost, &rebased, now) {
        // As everywhere, a peek or a cost that can never pass leaves no trace.
        (decision, Change::None) if (1..=quota.limit()).contains(&cost) => (decision, Change::Rebase(now)),
        (decision, Change::None) => (decision, Change::None),
        (decision, change) => {
            let mut state = State::Log(rebased);
            state.apply(change);
            (decision, Change::Replace(state))
        }
    }
}

fn decide_in_order(quota: &Quota, cost: u32, log: &Log, now: Timestamp) -> (Decision, Change) {
    let window = quota.period();
    let limit = u64::from(quota.limit());
    let (used, first) = log.live(now, window);
    let used_until = if used == 0 { None } else { log.last() };
    let answer = |outcome, used: u64, last: Option<Timestamp>| Decision {
        outcome,
        limit: quota.limit(),
        remaining: limit.saturating_sub(used) as u32,
        reset_after: last.map_or(Span::ZERO, |last| (last + window).since(now)),
        hold: None,
    };
    if cost > quota.limit() {
        return (answer(Outcome::NEVER, used, used_until), Change::None);
    }
    let charged = used + u64::from(cost);
    if cost == 0 {
        return (answer(Outcome::ALLOWED, used, used_until), Change::None);
    }
    if charged > limit {
        let wait = log.freed_at(first, charged - limit, window).since(now);
        return (answer(Outcome::denied_for(wait), used, used_until), Change::None);
    }
    let is_hold = quota.algorithm() == Algorithm::Concurrency;
    let hold = Hold { at: now, nth: if is_hold { log.next_nth(now) } else { 0 } };
    let last = log.last().filter(|_| used > 0).map_or(now, |last| last.max(now));
    let decision = Decision { hold: is_hold.then_some(hold), ..answer(Outcome::ALLOWED, charged, Some(last)) };
    // Everything admitted a window ago or earlier has left: (now - window, now] is what counts.
    let expired = now.as_micros().checked_sub(window.as_micros()).map(Timestamp::from_micros);
    (decision, Change::Record { entry: Entry { hold, cost }, expired })
}
