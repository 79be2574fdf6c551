//! Requests in order of time. Servers write a line when a request has ended, several servers write several files, and many logs tell whole
//! seconds only.
//!
//! Lines that are late by up to [`WINDOW`] seconds are sorted in. Requests of one whole second are spread evenly over it, in the order of their
//! lines: that is neither a burst that nobody sent nor a pause that nobody made. What is later than that counts as late and is taken at
//! the earliest time that is still to come.

use std::collections::VecDeque;

use tollkeeper_logs::Precision;

/// How late a line may be, in seconds.
pub const WINDOW: u64 = 30;
/// Requests that wait here at most; with more, the window shrinks.
const MOST_WAITING: usize = 500_000;

const SECOND: u64 = 1_000_000;

/// A request and its time.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    pub(crate) at_us: u64,
    pub(crate) precision: Precision,
    pub(crate) item: T,
}

/// Puts requests in order.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// One for each second from `base` on.
    slots: VecDeque<Vec<Timed<T>>>,
    base: u64,
    waiting: usize,
    has_released: bool,
    late: u64,
    spread: u64,
    /// Emptied slots, to be used again.
    spare: Vec<Vec<Timed<T>>>,
}

impl<T> Order<T> {
    pub(crate) fn new() -> Order<T> {
        Order {
            slots: VecDeque::new(),
            base: 0,
            waiting: 0,
            has_released: false,
            late: 0,
            spread: 0,
            spare: Vec::new(),
        }
    }

    /// Lines that were too late to be sorted in.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Requests that were spread over their second.
    pub(crate) fn spread(&self) -> u64 {
        self.spread
    }

    pub(crate) fn push(&mut self, mut one: Timed<T>, mut sink: impl FnMut(u64, T)) {
        let second = one.at_us / SECOND;
        if self.slots.is_empty() && !self.has_released {
            self.base = second;
        }
        while second < self.base && !self.has_released && self.newest() - second <= WINDOW {
            self.slots.push_front(self.spare.pop().unwrap_or_default());
            self.base -= 1;
        }
        if second < self.base {
            self.late += 1;
            (one.at_us, one.precision) = (self.base * SECOND, Precision::Fine);
        }
        let second = one.at_us / SECOND;
        while self.base + WINDOW < second && !self.slots.is_empty() {
            self.release(&mut sink);
        }
        if self.slots.is_empty() {
            self.base = self.base.max(second);
        }
        let place = (second - self.base) as usize;
        while self.slots.len() <= place {
            self.slots.push_back(self.spare.pop().unwrap_or_default());
        }
        self.slots[place].push(one);
        self.waiting += 1;
        while self.waiting > MOST_WAITING && self.slots.len() > 1 {
            self.release(&mut sink);
        }
    }

    pub(crate) fn finish(&mut self, mut sink: impl FnMut(u64, T)) {
        while !self.slots.is_empty() {
            self.release(&mut sink);
        }
    }

    fn newest(&self) -> u64 {
        self.base + (self.slots.len() as u64).saturating_sub(1)
    }

    /// Hands out the earliest second.
    fn release(&mut self, sink: &mut impl FnMut(u64, T)) {
        let Some(mut slot) = self.slots.pop_front() else { return };
        let whole = slot.iter().filter(|one| one.precision == Precision::Seconds).count() as u64;
        if whole > 0 {
            self.spread += whole;
            let begins = self.base * SECOND;
            let coarse = slot.iter_mut().filter(|one| one.precision == Precision::Seconds);
            for (place, one) in coarse.enumerate() {
                one.at_us = begins + place as u64 * SECOND / whole;
            }
        }
        if !slot.is_sorted_by_key(|one| one.at_us) {
            slot.sort_by_key(|one| one.at_us);
        }
        self.waiting -= slot.len();
        self.base += 1;
        self.has_released = true;
        slot.drain(..).for_each(|one| sink(one.at_us, one.item));
        self.spare.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(lines: &[(u64, Precision)]) -> (Vec<(u64, usize)>, u64) {
        let mut order = Order::new();
        let mut out = Vec::new();
        for (item, (at_us, precision)) in lines.iter().enumerate() {
            order.push(Timed { at_us: *at_us, precision: *precision, item }, |at, item| out.push((at, item)));
        }
        order.finish(|at, item| out.push((at, item)));
        (out, order.late())
    }

    #[test]
    fn whole_seconds_are_spread_in_the_order_of_their_lines() {
        let coarse = [100, 100, 100, 100, 101].map(|second| (second * SECOND, Precision::Seconds));
        let expected = [(100_000_000, 0), (100_250_000, 1), (100_500_000, 2), (100_750_000, 3), (101_000_000, 4)];
        assert_eq!(ordered(&coarse), (expected.to_vec(), 0));
    }

    #[test]
    fn late_lines_are_sorted_in_and_those_that_are_too_late_counted() {
        let seconds = [100, 95, 120, 99, 140, 60, 141];
        let (out, late) = ordered(&seconds.map(|second| (second * SECOND, Precision::Fine)));
        let order: Vec<usize> = out.iter().map(|(_, item)| *item).collect();
        assert_eq!((order, late), (vec![1, 3, 0, 5, 2, 4, 6], 1));
        assert!(out.is_sorted_by_key(|(at, _)| *at), "{out:?}");
    }

    #[test]
    fn a_pause_of_years_costs_nothing() {
        let (out, late) = ordered(&[0, 1 << 50, 1 << 51].map(|at| (at, Precision::Fine)));
        assert_eq!((out.len(), late), (3, 0));
    }
}
