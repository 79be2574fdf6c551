//! Random choices, replayed by one seed.

use std::time::SystemTime;

pub(super) struct Chance(u64);

impl Chance {
    /// From `TOLLKEEPER_SEED`, otherwise from the clock. A failing test prints the seed.
    pub(super) fn seed() -> u64 {
        match std::env::var("TOLLKEEPER_SEED") {
            Ok(seed) => seed.parse().expect("TOLLKEEPER_SEED is a number"),
            Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
        }
    }

    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
