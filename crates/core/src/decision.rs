//! The answer for one charge.

use crate::time::{Span, Timestamp};

/// What one rule says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it passes, and the exact wait.
    pub outcome: Outcome,
    /// The burst of a bucket, or N of a window.
    pub limit: u32,
    /// Whole tokens left.
    pub remaining: u32,
    /// Until the state equals one that was never used.
    pub reset_after: Span,
    /// The slot that an admitted request occupies until it is released: `concurrency` only.
    pub hold: Option<Hold>,
}

impl Decision {
    /// Whether this charge passes.
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
    }

    /// Zero when it passes, the exact wait when it does not, `None` when it never can.
    pub const fn retry_after(&self) -> Option<Span> {
        match self.outcome {
            Outcome::Allowed { .. } => Some(Span::ZERO),
            Outcome::Denied { retry_after } => retry_after,
        }
    }

    /// How long an admitted request has to wait for its turn: `leaky_bucket` only, otherwise zero.
    pub const fn delay(&self) -> Span {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            Outcome::Denied { .. } => Span::ZERO,
        }
    }
}

/// Passed, or not.
// Exhaustive on purpose: there is nothing between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes, after `delay` where the algorithm paces what it admits.
    Allowed {
        /// Zero for every algorithm but `leaky_bucket`.
        delay: Span,
    },
    /// It does not pass now.
    Denied {
        /// If nothing else uses the key, the same request passes after exactly this long; `None`: never.
        retry_after: Option<Span>,
    },
}

impl Outcome {
    pub(crate) const ALLOWED: Outcome = Outcome::Allowed { delay: Span::ZERO };

    pub(crate) const fn denied_for(wait: Span) -> Outcome {
        Outcome::Denied { retry_after: Some(wait) }
    }

    /// The cost exceeds what the quota can ever hold.
    pub(crate) const NEVER: Outcome = Outcome::Denied { retry_after: None };
}

/// Names one slot of a `concurrency` quota: when it was taken, and its number within that microsecond.
///
/// As long as time moves on, no two holds of a key are equal, so a release can never free another request's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold {
    /// When the slot was taken.
    pub at: Timestamp,
    /// Counts the slots taken in the same microsecond.
    pub nth: u32,
}
