//! Families in Prometheus' text format.

use std::fmt::{self, Write as _};

use super::family::{Distribution, Family, Sample, Value};

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of the text format.
pub(crate) fn text(families: &[Family]) -> String {
    let mut page = Page::default();
    for family in families {
        let about = family.about;
        page.line(format_args!("# HELP {} {}", about.name, about.help));
        page.line(format_args!("# TYPE {} {}", about.name, about.kind.name()));
        for sample in &family.samples {
            page.sample(family, sample);
        }
    }
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn sample(&mut self, family: &Family, sample: &Sample) {
        let name = family.about.name;
        let labels: Vec<String> =
            family.labels(sample).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = labels.join(",");
        match &sample.value {
            Value::Number(number) => self.number(name, &labels, number),
            Value::Histogram(distribution) => self.histogram(name, &labels, distribution),
            Value::Summary { sum, count } => {
                self.number(&format!("{name}_sum"), &labels, sum);
                self.number(&format!("{name}_count"), &labels, count);
            }
        }
    }

    fn number(&mut self, name: &str, labels: &str, value: impl fmt::Display) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    /// In this format each bucket includes the smaller ones.
    fn histogram(&mut self, name: &str, labels: &str, distribution: &Distribution) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = distribution.bounds.iter().map(f64::to_string).chain(["+Inf".to_string()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&distribution.counts) {
            total += count;
            self.line(format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"));
        }
        self.number(&format!("{name}_sum"), labels, distribution.sum);
        self.number(&format!("{name}_count"), labels, total);
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::catalog;

    #[test]
    fn every_kind_is_written_as_prometheus_reads_it() {
        let distribution = Distribution { bounds: vec![0.0, 0.0000025, 1.0], counts: vec![1, 0, 2, 3], sum: 7.5 };
        let families = [
            Family::new(&catalog::RULES_ERRORS).with(["bad \"x\"\\\n"], 3),
            Family::single(&catalog::KEYS, 0),
            Family::new(&catalog::HTTP_REQUESTS),
            Family::single(&catalog::BATCH_SIZE, Value::Summary { sum: 10.0, count: 4 }),
            Family::new(&catalog::REMAINING).with(["x"], distribution.clone()),
            Family::single(&catalog::STORE_DURATION, distribution),
        ];
        let expected = r#"tollkeeper_rules_errors_total{reason="bad \"x\"\\\n"} 3
tollkeeper_keys 0
tollkeeper_batch_size_sum 10
tollkeeper_batch_size_count 4
tollkeeper_remaining_ratio_bucket{rule="x",le="0"} 1
tollkeeper_remaining_ratio_bucket{rule="x",le="0.0000025"} 1
tollkeeper_remaining_ratio_bucket{rule="x",le="1"} 3
tollkeeper_remaining_ratio_bucket{rule="x",le="+Inf"} 6
tollkeeper_remaining_ratio_sum{rule="x"} 7.5
tollkeeper_remaining_ratio_count{rule="x"} 6
tollkeeper_store_duration_seconds_bucket{le="0"} 1
tollkeeper_store_duration_seconds_bucket{le="0.0000025"} 1
tollkeeper_store_duration_seconds_bucket{le="1"} 3
tollkeeper_store_duration_seconds_bucket{le="+Inf"} 6
tollkeeper_store_duration_seconds_sum 7.5
tollkeeper_store_duration_seconds_count 6
"#;
        let page = text(&families);
        let (comments, samples): (Vec<&str>, Vec<&str>) = page.lines().partition(|line| line.starts_with('#'));
        assert_eq!(samples, expected.lines().collect::<Vec<_>>());
        assert_eq!(
            comments[2..4],
            ["# HELP tollkeeper_keys Keys in the memory store.", "# TYPE tollkeeper_keys gauge"]
        );
        assert_eq!(comments.len(), 2 * families.len(), "a family without samples is described too");
    }
}
