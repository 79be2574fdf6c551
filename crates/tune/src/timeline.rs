//! What happened when, in a bounded number of equal spans: they grow with the log.

/// The spans that a timeline may have, in seconds.
const WIDTHS: [u64; 12] = [1, 5, 15, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400];
/// With more spans than this, they grow.
const MOST: usize = 720;

/// Requests and denials over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    width: usize,
    /// The number of the first span since the epoch.
    first: Option<u64>,
    spans: Vec<Counts>,
    /// Where the last request went, and when that span ends, in microseconds: most go to the same, and divisions take long.
    last: (usize, u64),
}

/// What happened in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// All requests.
    pub requests: u64,
    /// Those that would have been denied.
    pub denied: u64,
}

impl Timeline {
    /// Times come in order.
    pub(crate) fn add(&mut self, at_us: u64, is_denied: bool) {
        if at_us >= self.last.1 {
            self.last = self.span_of(at_us);
        }
        let counts = &mut self.spans[self.last.0];
        counts.requests += 1;
        counts.denied += u64::from(is_denied);
    }

    /// The place and the end of the span of this time, made where there is none.
    fn span_of(&mut self, at_us: u64) -> (usize, u64) {
        let second = at_us / 1_000_000;
        loop {
            let number = second / self.seconds();
            let first = *self.first.get_or_insert(number);
            let place = number.saturating_sub(first) as usize;
            if place >= MOST && self.width + 1 < WIDTHS.len() {
                self.widen();
                continue;
            }
            // Beyond two years the last span takes the rest.
            let place = place.min(MOST - 1);
            if self.spans.len() <= place {
                self.spans.resize(place + 1, Counts::default());
            }
            return (place, (number + 1) * self.seconds() * 1_000_000);
        }
    }

    /// How long a span is.
    pub(crate) fn seconds(&self) -> u64 {
        WIDTHS[self.width]
    }

    /// When the first span begins, in seconds since the epoch.
    pub(crate) fn begins(&self) -> u64 {
        self.first.unwrap_or(0) * self.seconds()
    }

    pub(crate) fn spans(&self) -> &[Counts] {
        &self.spans
    }

    fn widen(&mut self) {
        let begins = self.begins();
        let old = self.seconds();
        self.width += 1;
        let new = self.seconds();
        let first = begins / new;
        let mut spans: Vec<Counts> = Vec::with_capacity(MOST);
        for (place, counts) in self.spans.iter().enumerate() {
            let place = ((begins + place as u64 * old) / new - first) as usize;
            if spans.len() <= place {
                spans.resize(place + 1, Counts::default());
            }
            spans[place].requests += counts.requests;
            spans[place].denied += counts.denied;
        }
        (self.first, self.spans) = (Some(first), spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_with_the_log_and_nothing_is_lost() {
        let mut timeline = Timeline::default();
        for second in 0..100_000u64 {
            timeline.add((1_700_000_000 + second) * 1_000_000, second % 10 == 0);
        }
        assert_eq!(timeline.seconds(), 300);
        assert!(timeline.spans().len() <= MOST);
        let sum = |one: fn(&Counts) -> u64| timeline.spans().iter().map(one).sum::<u64>();
        assert_eq!((sum(|one| one.requests), sum(|one| one.denied)), (100_000, 10_000));
        assert!(timeline.begins() <= 1_700_000_000 && timeline.begins() > 1_700_000_000 - 300);
    }
}
