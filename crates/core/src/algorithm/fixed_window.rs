//! `fixed_window`: N per window, windows starting at multiples of the period since the epoch, or those of a calendar.

use super::jump::jumped_back;
use crate::calendar::CalendarWindow;
use crate::decision::{Decision, Outcome};
use crate::quota::Quota;
use crate::time::{Span, Timestamp};

/// What was admitted in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where the window starts.
    pub start: Timestamp,
    /// The admitted cost.
    pub admitted: u32,
}

#[inline]
pub(super) fn decide(quota: &Quota, cost: u32, state: Option<Window>, now: Timestamp) -> (Decision, Option<Window>) {
    let (window, repaired) = as_of(quota, state, now);
    let end = quota.window_end(window.start);
    let answer = |outcome, admitted: u32| Decision {
        outcome,
        limit: quota.limit(),
        remaining: quota.limit().saturating_sub(admitted),
        reset_after: if admitted == 0 { Span::ZERO } else { end.since(now) },
        hold: None,
    };
    if cost > quota.limit() {
        return (answer(Outcome::NEVER, window.admitted), None);
    }
    let admitted = window.admitted.saturating_add(cost);
    if cost == 0 || admitted <= quota.limit() {
        return (answer(Outcome::ALLOWED, admitted), (cost > 0).then_some(Window { admitted, ..window }));
    }
    (answer(Outcome::denied_for(end.since(now)), window.admitted), repaired.then_some(window))
}

/// The window in force at `now`, and whether a clock jump was repaired.
#[inline]
pub(super) fn as_of(quota: &Quota, state: Option<Window>, now: Timestamp) -> (Window, bool) {
    let CalendarWindow { start, end } = quota.window_at(now);
    let has_jumped = |window: &Window| match quota.calendar() {
        // The next window may start a little in the future, a later one may not.
        Some(_) => window.start > end,
        None => jumped_back(window.start, now, quota.period()),
    };
    match state {
        Some(window) if has_jumped(&window) => (Window { start, ..window }, true),
        Some(window) if window.start >= start => (window, false),
        _ => (Window { start, admitted: 0 }, false),
    }
}
