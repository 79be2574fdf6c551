use tollkeeper::{Descriptor, ManualClock, MemoryStore, Policy, RuleSpec, Source, Timestamp};

use super::*;

fn policy(rules: &[(&str, &str)]) -> Policy {
    let spec = |(name, limit): &(&str, &str)| RuleSpec {
        name: (*name).into(),
        key: "{user}".into(),
        limit: (*limit).into(),
        ..RuleSpec::default()
    };
    Policy::new(rules.iter().map(spec)).expect("valid rules")
}

fn limiter(rules: &[(&str, &str)]) -> Limiter {
    Limiter::new(policy(rules), MemoryStore::with(100, ManualClock::at(Timestamp::from_micros(1))))
}

fn metrics() -> Metrics {
    let throttle = policy(&[("throttle", "1/s")]).rules()[0].clone();
    Metrics::new(Labels { routes: &["/v1/check"], commands: &["ping"], built_in: vec![throttle] })
}

fn render(metrics: &Metrics, limiter: &Limiter) -> String {
    text(Exposition::Prometheus, &metrics.families(limiter))
}

async fn check(metrics: &Metrics, limiter: &Limiter, user: &str) {
    let verdict = limiter.check(&Descriptor::new([("user", user)])).await.expect("decided");
    metrics.record(limiter, verdict.rows(), 1, Duration::from_micros(3));
}

fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn decisions_are_counted_by_rule_outcome_and_source() {
    let (metrics, limiter) = (metrics(), limiter(&[("a", "2/s"), ("b", "1/s")]));
    for _ in 0..3 {
        check(&metrics, &limiter, "x").await;
    }
    let page = render(&metrics, &limiter);
    let count = |labels: &str| value(&page, &format!("tollkeeper_decisions_total{{{labels},source=\"store\"}}"));
    assert_eq!(count(r#"rule="a",outcome="allowed""#), Some(3.0), "each rule tells what it alone says");
    assert_eq!(count(r#"rule="b",outcome="allowed""#), Some(1.0));
    assert_eq!(count(r#"rule="b",outcome="denied""#), Some(2.0));
    assert_eq!(value(&page, r#"tollkeeper_remaining_ratio_bucket{rule="b",le="0"}"#), Some(3.0));
    assert_eq!(value(&page, r#"tollkeeper_remaining_ratio_bucket{rule="a",le="0.35"}"#), Some(0.0));
    assert_eq!(value(&page, r#"tollkeeper_remaining_ratio_bucket{rule="a",le="0.5"}"#), Some(3.0));
    assert_eq!(value(&page, r#"tollkeeper_check_duration_seconds_bucket{le="0.0000025"}"#), Some(0.0));
    assert_eq!(value(&page, r#"tollkeeper_check_duration_seconds_bucket{le="0.000005"}"#), Some(3.0));
    assert_eq!(value(&page, "tollkeeper_check_duration_seconds_sum"), Some(0.000009));
    assert_eq!(value(&page, "tollkeeper_keys"), Some(2.0));
    assert_eq!(value(&page, "tollkeeper_rules_loaded"), Some(2.0));
    assert!(!page.contains("\"x\""), "no label is a client's choice:\n{page}");
}

#[tokio::test]
async fn counts_survive_a_change_of_rules() {
    let (metrics, limiter) = (metrics(), limiter(&[("a", "9/s"), ("b", "9/s")]));
    check(&metrics, &limiter, "x").await;
    limiter.replace_policy(policy(&[("c", "9/s"), ("a", "9/s")]));
    check(&metrics, &limiter, "x").await;
    let page = render(&metrics, &limiter);
    let allowed = |rule: &str| {
        value(&page, &format!("tollkeeper_decisions_total{{rule=\"{rule}\",outcome=\"allowed\",source=\"store\"}}"))
    };
    assert_eq!((allowed("a"), allowed("b"), allowed("c")), (Some(2.0), None, Some(1.0)));
}

#[tokio::test]
async fn a_verdict_by_rules_that_are_gone_is_counted_under_the_name() {
    let (metrics, limiter) = (metrics(), limiter(&[("a", "9/s"), ("b", "9/s")]));
    let verdict = limiter.check(&Descriptor::new([("user", "x")])).await.expect("decided");
    limiter.replace_policy(policy(&[("b", "9/s")]));
    metrics.record(&limiter, verdict.rows(), 1, Duration::ZERO);
    let page = render(&metrics, &limiter);
    assert!(page.contains(r#"{rule="b",outcome="allowed",source="store"} 1"#), "{page}");
    assert!(!page.contains(r#"rule="a""#), "{page}");
}

#[tokio::test]
async fn what_a_rule_lacked_is_reported() {
    let (metrics, limiter) = (metrics(), limiter(&[("a", "9/s")]));
    limiter.check(&Descriptor::default()).await.expect("decided");
    let page = render(&metrics, &limiter);
    assert_eq!(value(&page, r#"tollkeeper_rule_lacking_attribute_total{rule="a"}"#), Some(1.0));
}

#[test]
fn requests_are_counted_under_known_names_only() {
    let (metrics, limiter) = (metrics(), limiter(&[]));
    metrics.count_request("/v1/check", 200);
    metrics.count_request("/v1/check", 200);
    metrics.count_request("/wp-login.php", 404);
    let page = render(&metrics, &limiter);
    assert_eq!(value(&page, r#"tollkeeper_http_requests_total{route="/v1/check",status="200"}"#), Some(2.0));
    assert_eq!(value(&page, r#"tollkeeper_http_requests_total{route="unknown",status="404"}"#), Some(1.0));
    assert!(!page.contains("wp-login"));
}

/// The number of a source indexes an array, so it must match the list.
#[test]
fn sources_are_numbered_as_listed() {
    for (number, source) in Source::ALL.into_iter().enumerate() {
        assert_eq!(source as usize, number);
    }
}
