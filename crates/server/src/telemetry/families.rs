//! Families of metrics as OTLP messages.

use super::messages::{
    self, CUMULATIVE, Data, Gauge, Histogram, KeyValue, Metric, Number, Sum, Summary, SummaryPoint, attribute,
};
use crate::metrics::{Distribution, Family, Kind, Unit, Value};

/// The period that the numbers cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
}

pub(super) fn metric(family: &Family, covered: Covered) -> Metric {
    let data = match family.about.kind {
        Kind::Counter => {
            Data::Sum(Sum { points: numbers(family, covered), temporality: CUMULATIVE, is_monotonic: true })
        }
        Kind::Gauge => Data::Gauge(Gauge { points: numbers(family, covered) }),
        Kind::Histogram => {
            Data::Histogram(Histogram { points: distributions(family, covered), temporality: CUMULATIVE })
        }
        Kind::Summary => Data::Summary(Summary { points: summaries(family, covered) }),
    };
    let unit = match family.about.unit {
        Unit::Seconds => "s",
        Unit::Dimensionless => "1",
    };
    Metric {
        name: family.about.name.into(),
        description: family.about.help.into(),
        unit: unit.into(),
        data: Some(data),
    }
}

/// The samples with one kind of value, with their labels as attributes.
fn points<'f, T>(family: &'f Family, point: impl Fn(&'f Value, Vec<KeyValue>) -> Option<T>) -> Vec<T> {
    let attributes = |sample| family.labels(sample).map(|(name, value)| attribute(name, value)).collect();
    family.samples.iter().filter_map(|sample| point(&sample.value, attributes(sample))).collect()
}

fn numbers(family: &Family, Covered { start_ns, time_ns }: Covered) -> Vec<Number> {
    points(family, |value, attributes| match value {
        Value::Number(number) => Some(Number { start_ns, time_ns, value: Some(*number as f64), attributes }),
        _ => None,
    })
}

fn distributions(family: &Family, Covered { start_ns, time_ns }: Covered) -> Vec<messages::Distribution> {
    points(family, |value, attributes| match value {
        Value::Histogram(distribution) => {
            let Distribution { bounds, counts, sum } = distribution.clone();
            let count = distribution.count();
            Some(messages::Distribution { start_ns, time_ns, count, sum: Some(sum), counts, bounds, attributes })
        }
        _ => None,
    })
}

fn summaries(family: &Family, Covered { start_ns, time_ns }: Covered) -> Vec<SummaryPoint> {
    points(family, |value, attributes| match value {
        Value::Summary { sum, count } => Some(SummaryPoint { start_ns, time_ns, count: *count, sum: *sum, attributes }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::catalog;

    const COVERED: Covered = Covered { start_ns: 1, time_ns: 2 };

    #[test]
    fn every_kind_of_family_becomes_its_message() {
        let counter = Family::new(&catalog::ALERTS).with(["x", "y, z"], 3).with(["x", "over"], 0);
        let Some(Data::Sum(sum)) = metric(&counter, COVERED).data else { panic!("no sum") };
        assert!(sum.is_monotonic);
        assert_eq!((sum.points[0].value, sum.points[1].value), (Some(3.0), Some(0.0)));
        assert_eq!(sum.points[0].attributes, [attribute("kind", "x"), attribute("status", "y, z")]);
        let gauge = metric(&Family::single(&catalog::KEYS, 2), COVERED);
        assert_eq!((&*gauge.name, &*gauge.unit, &*gauge.description), ("tollkeeper_keys", "1", catalog::KEYS.help));
        assert!(matches!(gauge.data, Some(Data::Gauge(Gauge { points })) if points[0].value == Some(2.0)));
        let distribution = Distribution { bounds: vec![0.1, 1.0], counts: vec![1, 3, 2], sum: 7.5 };
        let histogram = metric(&Family::single(&catalog::STORE_DURATION, distribution), COVERED);
        assert_eq!(histogram.unit, "s");
        let Some(Data::Histogram(Histogram { points, .. })) = histogram.data else { panic!("no histogram") };
        assert_eq!((points[0].count, points[0].sum), (6, Some(7.5)));
        assert_eq!((&*points[0].counts, &*points[0].bounds), ([1, 3, 2].as_slice(), [0.1, 1.0].as_slice()));
        let summary = Family::single(&catalog::BATCH_SIZE, Value::Summary { sum: 10.0, count: 4 });
        let Some(Data::Summary(Summary { points })) = metric(&summary, COVERED).data else { panic!("no summary") };
        assert_eq!((points[0].count, points[0].sum), (4, 10.0));
    }
}
