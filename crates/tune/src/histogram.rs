//! Counts by size, in buckets that are at most an eighth wide: a quantile is too high by at most 12.5 %, and never too low.

/// Sizes and how often each occurred.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

/// Buckets in each power of two.
const PARTS: u32 = 8;

impl Histogram {
    pub(crate) fn add(&mut self, size: u64) {
        let bucket = bucket(size);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.largest = self.largest.max(size);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    /// The size that this share of all does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(bucket).min(self.largest);
            }
        }
        self.largest
    }
}

fn bucket(size: u64) -> usize {
    if size < u64::from(PARTS) {
        return size as usize;
    }
    let power = size.ilog2();
    let part = (size >> (power - 3)) & u64::from(PARTS - 1);
    ((power - 2) * PARTS) as usize + part as usize
}

/// The largest size of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let parts = u64::from(PARTS);
    if bucket < parts {
        return bucket;
    }
    let (power, part) = (bucket / parts + 2, bucket % parts);
    let width = 1u64 << (power - 3);
    (1u64 << power) + part * width + (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_never_too_low_and_hardly_too_high() {
        for size in (0..2_000).chain([12_345, 999_999, 1 << 40]) {
            let shown = upper(bucket(size));
            assert!(shown >= size && shown as f64 <= size as f64 * 1.125, "{size} {shown}");
        }
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|size| histogram.add(size));
        assert!((500..=563).contains(&histogram.quantile(0.5)), "{}", histogram.quantile(0.5));
        assert_eq!(histogram.quantile(1.0), 1_000);
    }
}
