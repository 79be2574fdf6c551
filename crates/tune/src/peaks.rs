//! The most requests of a key in one second, one minute and one hour of the clock.

/// The spans, in seconds.
pub(crate) const SPANS: [u64; 3] = [1, 60, 3_600];

/// What is counted of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    /// The number of the current span since the epoch.
    current: [u32; 3],
    count: [u32; 3],
    most: [u32; 3],
}

impl Peaks {
    pub(crate) fn add(&mut self, at_us: u64) {
        let second = at_us / 1_000_000;
        for (place, span) in SPANS.iter().enumerate() {
            let number = (second / span) as u32;
            if self.current[place] != number {
                (self.current[place], self.count[place]) = (number, 0);
            }
            self.count[place] += 1;
            self.most[place] = self.most[place].max(self.count[place]);
        }
    }

    /// The most in a span of [`SPANS`].
    pub(crate) fn most(&self) -> [u32; 3] {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_second_minute_and_hour() {
        let mut peaks = Peaks::default();
        for second in [0, 0, 0, 30, 59, 60, 61, 3_599, 3_600] {
            peaks.add(7_200_000_000 + second * 1_000_000);
        }
        assert_eq!(peaks.most(), [3, 5, 8]);
    }
}
