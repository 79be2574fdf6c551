//! The greatest of many sums that change together: for each moment, rate * moment + all cost added at or after it.
//!
//! A segment tree over blocks of moments. Adding a cost reads one block again and walks up; callers answer roughly in
//! the order in which they asked, so that stays in the cache, and ten million moments take a second or two.

use super::Rate;

/// Small enough to read again for each change, large enough that the tree above is small.
const BLOCK: usize = 32;

/// The sum of a part that has no open moment: below all others, and far from overflow.
const NONE: i128 = i128::MIN / 4;

pub(super) struct Peaks {
    rate: Rate,
    moments: Vec<Moment>,
    /// Heap order: the root is 1, the children of i are 2i and 2i + 1.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy)]
struct Moment {
    at_us: u64,
    cost: u32,
    /// Whether an interval may begin here.
    is_open: bool,
}

/// Sums in tokens times the microseconds of a period, so that nothing is ever divided.
#[derive(Clone, Copy)]
struct Node {
    cost: i128,
    /// The greatest rate * moment + cost from it to the end of this part.
    highest: i128,
}

impl Peaks {
    /// Moments in ascending order, none of them open and no cost yet.
    pub(super) fn new(moments: impl Iterator<Item = u64>, rate: Rate) -> Peaks {
        let moments: Vec<Moment> = moments.map(|at_us| Moment { at_us, cost: 0, is_open: false }).collect();
        let blocks = moments.len().div_ceil(BLOCK).max(1).next_power_of_two();
        Peaks { rate, moments, nodes: vec![Node { cost: 0, highest: NONE }; 2 * blocks] }
    }

    /// Adds cost at a moment, given by its position, at which intervals may begin from here on.
    pub(super) fn add_and_open(&mut self, position: usize, cost: u32) {
        self.moments[position].is_open = true;
        self.add(position, cost);
    }

    /// Adds cost at a moment.
    pub(super) fn add(&mut self, position: usize, cost: u32) {
        self.moments[position].cost += cost;
        self.update(position);
    }

    /// From here on intervals may begin at this moment.
    pub(super) fn open(&mut self, position: usize) {
        self.moments[position].is_open = true;
        self.update(position);
    }

    /// The greatest (cost since a) - rate * (now - a) over all open moments a.
    pub(super) fn highest_at(&self, now_us: u64) -> i128 {
        self.nodes[1].highest - i128::from(self.rate.count) * i128::from(now_us)
    }

    /// The moment that gives the greatest sum: slow, for the one message about it.
    pub(super) fn start_of_highest(&self) -> u64 {
        let (mut cost, mut best) = (0, (NONE, 0));
        for moment in self.moments.iter().rev() {
            cost += self.weight(moment);
            if moment.is_open {
                best = best.max((self.height(moment) + cost, moment.at_us));
            }
        }
        best.1
    }

    fn update(&mut self, position: usize) {
        let block = position / BLOCK;
        let end = self.moments.len().min((block + 1) * BLOCK);
        let mut node = Node { cost: 0, highest: NONE };
        for moment in self.moments[block * BLOCK..end].iter().rev() {
            node.cost += self.weight(moment);
            if moment.is_open {
                node.highest = node.highest.max(self.height(moment) + node.cost);
            }
        }
        let mut index = self.nodes.len() / 2 + block;
        self.nodes[index] = node;
        while index > 1 {
            index /= 2;
            let (earlier, later) = (self.nodes[2 * index], self.nodes[2 * index + 1]);
            let highest = later.highest.max(earlier.highest + later.cost);
            self.nodes[index] = Node { cost: earlier.cost + later.cost, highest };
        }
    }

    fn weight(&self, moment: &Moment) -> i128 {
        i128::from(moment.cost) * i128::from(self.rate.period_us)
    }

    fn height(&self, moment: &Moment) -> i128 {
        i128::from(self.rate.count) * i128::from(moment.at_us)
    }
}
