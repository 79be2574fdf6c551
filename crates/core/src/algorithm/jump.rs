//! Clocks that jumped back.

use crate::time::{Span, Timestamp};

/// A window read by a clock that runs behind it counts as the current one: time that runs backwards mints
/// nothing. Beyond a whole window the clock must have jumped, and the state moves to the present instead, so that
/// nobody is locked out until the clock catches up.
pub(super) fn jumped_back(start: Timestamp, now: Timestamp, window: Span) -> bool {
    start.since(now) >= window
}
