//! All chance of a run, from its seed: SplitMix64.

/// A source of numbers that depend on nothing but the seed.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Chance(u64);

impl Chance {
    pub(in crate::store::redis) fn of(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(in crate::store::redis) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`.
    pub(in crate::store::redis) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True once in `times`.
    pub(in crate::store::redis) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(in crate::store::redis) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
