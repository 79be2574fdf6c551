//! `sliding_window_counter`: the current window plus the previous one, which fades out linearly.
//!
//! `previous * (1 - elapsed / window)` is compared after multiplying by the window, so it stays an integer.

use super::jump::jumped_back;
use crate::decision::{Decision, Outcome};
use crate::quota::Quota;
use crate::time::{Span, Timestamp};

/// What was admitted in one window and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Where the current window starts.
    pub start: Timestamp,
    /// The cost admitted in it.
    pub current: u32,
    /// The cost admitted in the window before.
    pub previous: u32,
}

impl Counter {
    /// The current window counts until it has faded out as the previous one.
    pub(super) fn until(&self, window: Span) -> Timestamp {
        match (self.current, self.previous) {
            (0, 0) => Timestamp::default(),
            (0, _) => self.start + window,
            _ => self.start + window + window,
        }
    }

    /// The counter rolled to the window that starts at `start`, which is not before its own.
    fn rolled_to(self, start: Timestamp, window: Span) -> Counter {
        if start == self.start {
            self
        } else if start == self.start + window {
            Counter { start, current: 0, previous: self.current }
        } else {
            Counter { start, current: 0, previous: 0 }
        }
    }

    /// How much of the previous window still counts, rounded up to a whole token.
    fn fading(&self, window: Span, now: Timestamp) -> u32 {
        let left = window - now.since(self.start);
        (u64::from(self.previous) * left.as_micros()).div_ceil(window.as_micros()) as u32
    }
}

#[inline]
pub(super) fn decide(quota: &Quota, cost: u32, state: Option<Counter>, now: Timestamp) -> (Decision, Option<Counter>) {
    let window = quota.period();
    let limit = quota.limit();
    let (counter, repaired) = as_of(quota, state, now);
    let answer = |outcome, counter: Counter| Decision {
        outcome,
        limit,
        remaining: limit.saturating_sub(counter.current).saturating_sub(counter.fading(window, now)),
        reset_after: counter.until(window).since(now),
        hold: None,
    };
    if cost > limit {
        return (answer(Outcome::NEVER, counter), None);
    }
    if cost == 0 {
        return (answer(Outcome::ALLOWED, counter), None);
    }
    let passes_at = passes_at(&counter, cost, quota);
    // A clock that runs behind the window reads it as the current one, at its start.
    if passes_at <= now.max(counter.start) {
        let charged = Counter { current: counter.current + cost, ..counter };
        return (answer(Outcome::ALLOWED, charged), Some(charged));
    }
    (answer(Outcome::denied_for(passes_at.since(now)), counter), repaired.then_some(counter))
}

/// The first moment, from the counter's window on, at which `cost` passes if nothing else is admitted.
fn passes_at(counter: &Counter, cost: u32, quota: &Quota) -> Timestamp {
    let limit = quota.limit();
    let window = quota.period();
    if let Some(room) = (limit - cost).checked_sub(counter.current) {
        counter.start + faded_to(counter.previous, room, window)
    } else {
        // Not in this window. In the next one the current count is the one that fades.
        counter.start + window + faded_to(counter.current, limit - cost, window)
    }
}

/// How far into a window `previous` has faded to at most `room`: the least e with previous * (w - e) <= room * w.
fn faded_to(previous: u32, room: u32, window: Span) -> Span {
    if previous <= room {
        return Span::ZERO;
    }
    let still_allowed = u64::from(room) * window.as_micros() / u64::from(previous);
    Span::from_micros(window.as_micros() - still_allowed)
}

/// The counter as of now, and whether a clock jump was repaired.
#[inline]
pub(super) fn as_of(quota: &Quota, state: Option<Counter>, now: Timestamp) -> (Counter, bool) {
    let (window, limit) = (quota.period(), quota.limit());
    let start = now.window_start(window);
    let (mut counter, repaired) = match state {
        // At the new time the previous window may seem more faded than it was, so it counts in full.
        Some(Counter { start: ahead, current, previous }) if jumped_back(ahead, now, window) => {
            (Counter { start, current: current.saturating_add(previous), previous: 0 }, true)
        }
        Some(counter) if counter.start >= start => (counter, false),
        Some(counter) => (counter.rolled_to(start, window), false),
        None => (Counter { start, current: 0, previous: 0 }, false),
    };
    // The limit was lowered. Products are proven exact only for counts within the limit.
    counter.current = counter.current.min(limit);
    counter.previous = counter.previous.min(limit);
    (counter, repaired)
}
