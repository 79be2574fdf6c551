//! Clocks that jump back.

use crate::time::{Span, Timestamp};

/// Whether the clock has jumped back. A window that starts a little in the future counts as the current one, so a
/// clock that runs backwards admits nothing extra. If it is off by a whole window or more, the clock must have
/// jumped: the state moves to the present, so that nobody is locked out until the clock catches up.
pub(super) fn jumped_back(start: Timestamp, now: Timestamp, window: Span) -> bool {
    start.since(now) >= window
}
