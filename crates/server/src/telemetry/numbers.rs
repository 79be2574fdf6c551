//! The page that Prometheus reads, as OTLP: both always say the same, whoever adds a metric.

use std::collections::BTreeMap;

use super::messages::{
    CUMULATIVE, Data, Distribution, Gauge, Histogram, KeyValue, Metric, Number, Sum, Summary, SummaryPoint, attribute,
};

/// What the numbers cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
}

/// Reads a page that was written here: no escapes, no comments, each family in one piece.
pub(super) fn read(page: &str, covered: Covered) -> Vec<Metric> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(Family { name, help, kind: "", samples: Vec::new() });
        } else if let (Some(rest), Some(family)) = (line.strip_prefix("# TYPE "), families.last_mut()) {
            family.kind = rest.rsplit(' ').next().unwrap_or_default();
        } else if let (Some(sample), Some(family)) = (Sample::read(line), families.last_mut()) {
            family.samples.push(sample);
        }
    }
    families.into_iter().map(|family| family.metric(covered)).collect()
}

struct Family<'p> {
    name: &'p str,
    help: &'p str,
    kind: &'p str,
    samples: Vec<Sample<'p>>,
}

struct Sample<'p> {
    name: &'p str,
    labels: Vec<(&'p str, &'p str)>,
    value: f64,
}

impl<'p> Sample<'p> {
    fn read(line: &'p str) -> Option<Sample<'p>> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest));
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
        let labels = labels.map(|(name, value)| (name, value.trim_end_matches('"'))).collect();
        Some(Sample { name, labels, value: value.parse().ok()? })
    }

    fn attributes(&self) -> Vec<KeyValue> {
        self.labels.iter().filter(|(name, _)| *name != "le").map(|(name, value)| attribute(name, *value)).collect()
    }

    /// What tells its series from the others of its family.
    fn series(&self) -> Vec<(&'p str, &'p str)> {
        self.labels.iter().copied().filter(|(name, _)| *name != "le").collect()
    }
}

impl Family<'_> {
    fn metric(self, covered: Covered) -> Metric {
        let data = match self.kind {
            "counter" => Data::Sum(Sum { points: self.numbers(covered), temporality: CUMULATIVE, is_monotonic: true }),
            "histogram" => Data::Histogram(Histogram { points: self.distributions(covered), temporality: CUMULATIVE }),
            "summary" => {
                let point = |whole: Distribution| SummaryPoint {
                    start_ns: whole.start_ns,
                    time_ns: whole.time_ns,
                    count: whole.count,
                    sum: whole.sum.unwrap_or_default(),
                    attributes: whole.attributes,
                };
                Data::Summary(Summary { points: self.distributions(covered).into_iter().map(point).collect() })
            }
            _ => Data::Gauge(Gauge { points: self.numbers(covered) }),
        };
        let unit = if self.name.ends_with("_seconds") { "s" } else { "1" };
        Metric { name: self.name.into(), description: self.help.into(), unit: unit.into(), data: Some(data) }
    }

    fn numbers(&self, Covered { start_ns, time_ns }: Covered) -> Vec<Number> {
        let number = |sample: &Sample<'_>| Number {
            start_ns,
            time_ns,
            value: Some(sample.value),
            attributes: sample.attributes(),
        };
        self.samples.iter().map(number).collect()
    }

    /// Prometheus counts what is below each bound, OTLP what is between two.
    fn distributions(&self, Covered { start_ns, time_ns }: Covered) -> Vec<Distribution> {
        let mut all: BTreeMap<Vec<(&str, &str)>, (Distribution, u64)> = BTreeMap::new();
        for sample in &self.samples {
            let (whole, below) = all.entry(sample.series()).or_insert_with(|| {
                (Distribution { start_ns, time_ns, attributes: sample.attributes(), ..Distribution::default() }, 0)
            });
            let count = sample.value as u64;
            match sample.name.strip_prefix(self.name) {
                Some("_sum") => whole.sum = Some(sample.value),
                Some("_count") => whole.count = count,
                Some("_bucket") => {
                    whole.counts.push(count.saturating_sub(*below));
                    *below = count;
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                    whole.bounds.extend(bound.filter(|bound| bound.is_finite()));
                }
                _ => {}
            }
        }
        all.into_values().map(|(whole, _)| whole).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP a_total What a counts.
# TYPE a_total counter
a_total{rule=\"x\",outcome=\"allowed\"} 3
a_total{rule=\"y, z\",outcome=\"denied\"} 0
# HELP g A gauge.
# TYPE g gauge
g 2
# HELP h_seconds How long.
# TYPE h_seconds histogram
h_seconds_bucket{rule=\"x\",le=\"0.1\"} 1
h_seconds_bucket{rule=\"x\",le=\"1\"} 4
h_seconds_bucket{rule=\"x\",le=\"+Inf\"} 6
h_seconds_sum{rule=\"x\"} 7.5
h_seconds_count{rule=\"x\"} 6
# HELP s Sizes.
# TYPE s summary
s_sum 10
s_count 4
";

    #[test]
    fn every_kind_of_metric_is_read() {
        let metrics = read(PAGE, Covered { start_ns: 1, time_ns: 2 });
        assert_eq!(metrics.iter().map(|metric| &*metric.name).collect::<Vec<_>>(), ["a_total", "g", "h_seconds", "s"]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic);
        assert_eq!(sum.points[0].value, Some(3.0));
        assert_eq!(sum.points[0].attributes, [attribute("rule", "x"), attribute("outcome", "allowed")]);
        assert_eq!(sum.points[1].attributes[0], attribute("rule", "y, z"));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let whole = &histogram.points[0];
        assert_eq!((whole.count, whole.sum), (6, Some(7.5)));
        assert_eq!((&*whole.counts, &*whole.bounds), ([1, 3, 2].as_slice(), [0.1, 1.0].as_slice()));
        assert_eq!(metrics[2].unit, "s");
        let Some(Data::Summary(summary)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        assert_eq!((summary.points[0].count, summary.points[0].sum), (4, 10.0));
    }
}
