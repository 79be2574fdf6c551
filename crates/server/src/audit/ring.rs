//! The latest violations, in memory.

use std::collections::VecDeque;

use super::{Cursor, Page, Query, Violation};

/// A ring buffer of the latest violations.
#[derive(Debug)]
pub(super) struct Ring {
    keep: usize,
    /// The number of the next one.
    next: u64,
    violations: VecDeque<Violation>,
}

impl Ring {
    pub(super) fn new(keep: usize) -> Ring {
        Ring { keep, next: 1, violations: VecDeque::new() }
    }

    pub(super) fn push(&mut self, violation: Violation) {
        if self.violations.len() >= self.keep {
            self.violations.pop_front();
        }
        if self.keep > 0 {
            self.violations.push_back(Violation { id: self.next, ..violation });
        }
        self.next += 1;
    }

    /// The newest ones that match a query, and where to continue.
    pub(super) fn find(&self, query: &Query) -> Page {
        let mut found = self.violations.iter().rev().filter(|violation| query.matches(violation));
        let violations: Vec<Violation> = found.by_ref().take(query.limit).cloned().collect();
        let next = found.next().and(violations.last()).map(Cursor::after);
        Page { violations, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_page_by_page_and_the_oldest_are_forgotten() {
        let mut ring = Ring::new(5);
        for number in 0..8 {
            ring.push(Violation { key: number.to_string(), ..Violation::example() });
        }
        assert_eq!(ring.violations.len(), 5);
        let keys = |page: &Page| page.violations.iter().map(|one| one.key.clone()).collect::<Vec<_>>();
        let first = ring.find(&Query { limit: 3, ..Query::default() });
        assert_eq!(keys(&first), ["7", "6", "5"]);
        ring.push(Violation::example());
        let second = ring.find(&Query { limit: 3, after: first.next, ..Query::default() });
        assert_eq!((keys(&second), second.next), (vec!["4".to_string()], None), "new violations do not shift the page");
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        let mut ring = Ring::new(0);
        ring.push(Violation::example());
        assert_eq!(ring.find(&Query::default()).violations.len(), 0);
    }
}
