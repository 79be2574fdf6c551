//! Families as a page of text: in Prometheus' format, or as OpenMetrics.

use std::fmt::{self, Write as _};

use super::family::{Distribution, Family, Kind, Sample, Unit, Value};

/// How families are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// Prometheus' own text format.
    Prometheus,
    /// OpenMetrics 1.0, for those who ask for it.
    OpenMetrics,
}

impl Exposition {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The one that an `Accept` header prefers; Prometheus' own if it does not matter.
    pub(crate) fn preferred(accept: &str) -> Exposition {
        let weight = |wanted: &[&str]| {
            accept
                .split(',')
                .filter_map(|range| weight(range, wanted))
                .fold(None, |most: Option<f32>, weight| Some(most.map_or(weight, |most| most.max(weight))))
        };
        let open = weight(&["application/openmetrics-text"]).unwrap_or(0.0);
        let plain = weight(&["text/plain"]).or_else(|| weight(&["text/*", "*/*"])).unwrap_or(0.0);
        if open > 0.0 && open >= plain { Exposition::OpenMetrics } else { Exposition::Prometheus }
    }
}

/// The weight of a media range, if it is one of these and of a version that is served.
fn weight(range: &str, wanted: &[&str]) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?;
    if !wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind)) {
        return None;
    }
    let mut weight = 1.0;
    for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => weight = value.trim().parse().unwrap_or(0.0),
            "version" if !["0.0.4", "1.0.0"].contains(&value.trim()) => return None,
            _ => {}
        }
    }
    Some(weight)
}

/// A page of families.
pub(crate) fn text(exposition: Exposition, families: &[Family]) -> String {
    let mut page = Page { exposition, text: String::new() };
    for family in families {
        let about = family.about;
        // OpenMetrics names a counter without the ending of its samples.
        let name = match (exposition, about.kind) {
            (Exposition::OpenMetrics, Kind::Counter) => about.name.strip_suffix("_total").unwrap_or(about.name),
            _ => about.name,
        };
        match exposition {
            Exposition::Prometheus => page.line(format_args!("# HELP {name} {}", about.help)),
            Exposition::OpenMetrics => page.line(format_args!("# HELP {name} {}", escaped(about.help))),
        }
        page.line(format_args!("# TYPE {name} {}", about.kind.name()));
        if exposition == Exposition::OpenMetrics && about.unit == Unit::Seconds && name.ends_with("_seconds") {
            page.line(format_args!("# UNIT {name} seconds"));
        }
        for sample in &family.samples {
            page.sample(family, sample);
        }
    }
    if exposition == Exposition::OpenMetrics {
        page.line(format_args!("# EOF"));
    }
    page.text
}

struct Page {
    exposition: Exposition,
    text: String,
}

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
        // OpenMetrics writes 1 as 1.0, so that a bound is the same text from every program.
        let written = |bound: &f64| match self.exposition {
            Exposition::OpenMetrics if bound.fract() == 0.0 => format!("{bound:.1}"),
            _ => bound.to_string(),
        };
        let bounds: Vec<String> = distribution.bounds.iter().map(written).chain(["+Inf".to_string()]).collect();
        let mut total = 0;
        for (bound, count) in bounds.iter().zip(&distribution.counts) {
            total += count;
            self.line(format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"));
        }
        self.number(&format!("{name}_sum"), labels, distribution.sum);
        self.number(&format!("{name}_count"), labels, total);
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
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
        let page = text(Exposition::Prometheus, &families);
        let (comments, samples): (Vec<&str>, Vec<&str>) = page.lines().partition(|line| line.starts_with('#'));
        assert_eq!(samples, expected.lines().collect::<Vec<_>>());
        assert_eq!(
            comments[2..4],
            ["# HELP tollkeeper_keys Keys in the memory store.", "# TYPE tollkeeper_keys gauge"]
        );
        assert_eq!(comments.len(), 2 * families.len(), "a family without samples is described too");
    }

    #[test]
    fn openmetrics_has_its_own_names_bounds_and_end() {
        let distribution = Distribution { bounds: vec![0.5, 1.0], counts: vec![1, 0, 2], sum: 7.5 };
        let families = [
            Family::new(&catalog::RULES_ERRORS).with(["bad"], 3),
            Family::single(&catalog::STORE_DURATION, distribution),
        ];
        let page = text(Exposition::OpenMetrics, &families);
        for line in [
            "# TYPE tollkeeper_rules_errors counter",
            "tollkeeper_rules_errors_total{reason=\"bad\"} 3",
            "# TYPE tollkeeper_store_duration_seconds histogram",
            "# UNIT tollkeeper_store_duration_seconds seconds",
            "tollkeeper_store_duration_seconds_bucket{le=\"0.5\"} 1",
            "tollkeeper_store_duration_seconds_bucket{le=\"1.0\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line:?} in\n{page}");
        }
        assert!(page.ends_with("\n# EOF\n"), "{page}");
    }

    #[test]
    fn an_accept_header_chooses_the_format() {
        // Of Prometheus 2 and 3, of a browser, and others.
        let cases = [
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                true,
            ),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=1.0.0", true),
            ("text/html,*/*;q=0.8", false),
            ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5", false),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;version=2.0.0", false),
            ("*/*", false),
            ("", false),
        ];
        for (accept, is_open) in cases {
            assert_eq!(Exposition::preferred(accept) == Exposition::OpenMetrics, is_open, "{accept}");
        }
    }
}
