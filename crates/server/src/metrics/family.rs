//! Metrics as data: families of samples, from which every format is written.

/// The name and meaning of a family. All of them are in [`FAMILIES`](super::FAMILIES).
#[derive(Debug)]
#[non_exhaustive]
pub struct Description {
    /// The name, with the prefix of the service.
    pub name: &'static str,
    /// What its numbers do over time.
    pub kind: Kind,
    /// What its numbers count.
    pub unit: Unit,
    /// The names of its labels. The value of a label is never a client's choice.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence or two.
    pub help: &'static str,
}

/// What the numbers of a family do over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only rises, from 0 at the start of the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts of observations by size, and their sum.
    Histogram,
    /// How many observations there were, and their sum.
    Summary,
}

impl Kind {
    /// As Prometheus calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// What the numbers of a family count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Things, or a share of 1.
    Dimensionless,
    /// Seconds.
    Seconds,
}

/// A description and its samples at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) about: &'static Description,
    pub(crate) samples: Vec<Sample>,
}

/// The number of one series.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// In the order of the description's names.
    labels: Vec<String>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(u64),
    Histogram(Distribution),
    Summary { sum: f64, count: u64 },
}

/// Observations by size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// The upper bound of each bucket except the last, which is unbounded.
    pub(crate) bounds: Vec<f64>,
    /// How many observations each bucket holds: one more than there are bounds.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Family {
    /// Without samples.
    pub(crate) fn new(about: &'static Description) -> Family {
        Family { about, samples: Vec::new() }
    }

    /// With one sample and no labels.
    pub(crate) fn single(about: &'static Description, value: impl Into<Value>) -> Family {
        Family::new(about).with([], value)
    }

    /// With one more sample. Labels are in the order of the description.
    pub(crate) fn with<const LABELS: usize>(mut self, labels: [&str; LABELS], value: impl Into<Value>) -> Family {
        self.add(labels, value);
        self
    }

    /// Adds a sample. Labels are in the order of the description.
    pub(crate) fn add<const LABELS: usize>(&mut self, labels: [&str; LABELS], value: impl Into<Value>) {
        debug_assert_eq!(LABELS, self.about.labels.len(), "{}", self.about.name);
        self.samples.push(Sample { labels: labels.map(str::to_string).into(), value: value.into() });
    }

    /// The labels of a sample: names and values.
    pub(crate) fn labels<'s>(&self, sample: &'s Sample) -> impl Iterator<Item = (&'static str, &'s str)> {
        self.about.labels.iter().copied().zip(sample.labels.iter().map(String::as_str))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<Distribution> for Value {
    fn from(distribution: Distribution) -> Value {
        Value::Histogram(distribution)
    }
}

impl Distribution {
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
