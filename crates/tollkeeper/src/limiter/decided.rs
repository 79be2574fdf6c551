//! What is decided of a request before all of its rules have answered, and what a rule answers without its store.

use tollkeeper_core::{Charge, Enforcement, FailurePolicy, Outcome, Row, Span};

use crate::store::Overloaded;

/// Why a store has decided nothing.
pub(super) enum Undecided {
    /// It is unreachable: the failure policies of these charges answer.
    Unavailable(Vec<Charge>),
    Overloaded(Overloaded),
}

impl From<Overloaded> for Undecided {
    fn from(overloaded: Overloaded) -> Undecided {
        Undecided::Overloaded(overloaded)
    }
}

/// How long a client denied by `closed` is asked to wait.
const RETRY_UNAVAILABLE: Span = Span::SECOND;

/// The answer of a rule for which the memory store has no room at all. A full store is not treated as unreachable:
/// otherwise a client that fills it would switch off every rule with `open`.
pub(super) fn unavailable(charge: Charge) -> Row {
    Row::without_store(charge, Outcome::Denied { retry_after: Some(RETRY_UNAVAILABLE) })
}

/// The failure policy's answer for a rule whose state is unreachable.
pub(super) fn by_failure_policy(charge: Charge) -> Row {
    let outcome = match charge.rule.on_store_failure() {
        FailurePolicy::Closed => Outcome::Denied { retry_after: Some(RETRY_UNAVAILABLE) },
        FailurePolicy::Open | FailurePolicy::Local => Outcome::Allowed { delay: Span::ZERO },
    };
    Row::without_store(charge, outcome)
}

/// What rules that are decided already say about a request of which others are still open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decided {
    /// An enforced rule denies.
    is_denied: bool,
    /// One of the rules with `mode: quota` has room.
    has_room: bool,
    /// One of them has none.
    is_over: bool,
}

impl Decided {
    pub(super) fn of<'r>(rows: impl Iterator<Item = &'r Row>) -> Decided {
        let mut decided = Decided::default();
        for Row { charge, decision, .. } in rows {
            match (charge.enforcement(), decision.is_allowed()) {
                (Enforcement::Enforce, false) => decided.is_denied = true,
                (Enforcement::Quota, true) => decided.has_room = true,
                (Enforcement::Quota, false) => decided.is_over = true,
                _ => {}
            }
        }
        decided
    }

    /// Whether the request is denied whatever the open ones say.
    pub(super) fn denies<'c>(self, open: impl IntoIterator<Item = &'c Charge>) -> bool {
        self.is_denied || (self.is_over && !self.has_room && !open.into_iter().any(is_alternative))
    }

    /// A charge that is still open: once one of the rules with `mode: quota` has room, the others have no say.
    pub(super) fn applied_to(self, charge: Charge) -> Charge {
        if self.has_room && is_alternative(&charge) { charge.without_say() } else { charge }
    }
}

/// Whether it is one of several of which one must have room.
pub(super) fn is_alternative(charge: &Charge) -> bool {
    charge.enforcement() == Enforcement::Quota
}

/// Rows in the order of the charges that they answer.
pub(super) fn in_order<T>(mut rows: Vec<(usize, T)>) -> Vec<T> {
    rows.sort_by_key(|(position, _)| *position);
    rows.into_iter().map(|(_, row)| row).collect()
}
