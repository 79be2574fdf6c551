//! Records waiting for the database: two bounded queues, so that a flood of denials cannot push an action out.

use std::collections::VecDeque;
use std::fmt;
use std::ops::AddAssign;

use super::{Action, Violation};
use tollkeeper_tune::words::counted;

/// The capacity for violations.
pub(super) const QUEUE: usize = 20_000;
/// The capacity for actions.
const ACTIONS: usize = 1_000;
/// Records that are written together.
pub(super) const BATCH: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Queue {
    violations: VecDeque<Violation>,
    actions: VecDeque<Action>,
}

impl Queue {
    /// Adds a violation; returns the oldest one if it was dropped to make room.
    pub(super) fn push(&mut self, violation: Violation) -> Option<Violation> {
        let oldest = if self.violations.len() == QUEUE { self.violations.pop_front() } else { None };
        self.violations.push_back(violation);
        oldest
    }

    /// Adds an action; returns the oldest one if it was dropped to make room.
    pub(super) fn push_action(&mut self, action: Action) -> Option<Action> {
        let oldest = if self.actions.len() == ACTIONS { self.actions.pop_front() } else { None };
        self.actions.push_back(action);
        oldest
    }

    /// How many records are queued.
    pub(super) fn len(&self) -> usize {
        self.violations.len() + self.actions.len()
    }

    /// The next batch to write. Actions go first and alone, so that an unacceptable violation cannot make them fail.
    pub(super) fn next_batch(&mut self) -> Batch {
        let actions: Vec<Action> = self.actions.drain(..).collect();
        let most = if actions.is_empty() { self.violations.len().min(BATCH) } else { 0 };
        Batch { violations: self.violations.drain(..most).collect(), actions, transaction: None }
    }

    /// What would be lost with the queue.
    pub(super) fn content(&self) -> Content {
        let denials = self.violations.iter().map(|violation| violation.count).sum();
        Content { denials, actions: self.actions.len() as u64 }
    }
}

/// Records that are written together, and the transaction that may have written them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) violations: Vec<Violation>,
    pub(super) actions: Vec<Action>,
    pub(super) transaction: Option<String>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.violations.is_empty() && self.actions.is_empty()
    }

    /// Whether it holds violations that have certainly not been written yet.
    pub(super) fn has_violations(&self) -> bool {
        !self.violations.is_empty() && self.transaction.is_none()
    }

    /// What would be lost with the batch.
    pub(super) fn content(&self) -> Content {
        let denials = self.violations.iter().map(|violation| violation.count).sum();
        Content { denials, actions: self.actions.len() as u64 }
    }
}

/// What records stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) denials: u64,
    pub(super) actions: u64,
}

impl AddAssign for Content {
    fn add_assign(&mut self, other: Content) {
        self.denials += other.denials;
        self.actions += other.actions;
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Content { denials, actions: 0 } => write!(f, "{}", counted(denials, "denial")),
            Content { denials: 0, actions } => write!(f, "{}", counted(actions, "action")),
            Content { denials, actions } => {
                write!(f, "{} and {}", counted(denials, "denial"), counted(actions, "action"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ActionKind;
    use super::*;

    fn action(key: usize) -> Action {
        let Violation { at, rule, instance, .. } = Violation::example();
        let (rule, key) = (rule.to_string(), key.to_string());
        let (limit, until, reason) = (None, None, None);
        Action {
            at,
            action: ActionKind::Reset,
            rule,
            key,
            key_by: None,
            limit,
            until,
            reason,
            by: "loopback".into(),
            instance,
        }
    }

    #[test]
    fn a_flood_of_denials_pushes_no_action_out_and_actions_go_first() {
        let mut queue = Queue::default();
        assert_eq!(queue.push_action(action(0)), None);
        let lost = (0..QUEUE + 5).filter_map(|_| queue.push(Violation::example())).count();
        assert_eq!(
            (lost, queue.content().to_string()),
            (5, format!("{} and 1 action", counted(QUEUE as u64, "denial")))
        );
        let first = queue.next_batch();
        assert_eq!((first.actions.len(), first.violations.len()), (1, 0));
        let second = queue.next_batch();
        assert_eq!((second.actions.len(), second.violations.len()), (0, BATCH));
        assert_eq!(queue.len(), QUEUE - BATCH);
    }

    #[test]
    fn of_too_many_actions_the_oldest_goes() {
        let mut queue = Queue::default();
        let lost: Vec<Action> = (0..=ACTIONS).filter_map(|number| queue.push_action(action(number))).collect();
        assert_eq!(lost, [action(0)]);
    }
}
