//! Traces and metrics as a collector sees them, decoded with OpenTelemetry's own messages.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use tollkeeper_testkit::{Service, file, tollkeeper, wait_until};

use super::receiver::{Call, Receiver, metric, post};
use crate::envoy_client::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
const UNSAMPLED: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n";
const RULES: &str = "rules: [{ name: per-user, key: '{user}', limit: 2/h }]";
const CHECK: &str = r#"{"attributes": {"user": "somebody-s-secret-key"}}"#;

/// Without gRPC framing, if there is any.
fn message(call: &Call) -> &[u8] {
    if call.header("content-type") == Some("application/grpc") { &call.body[5..] } else { &call.body }
}

fn spans(calls: &[Call]) -> Vec<(Option<Resource>, Span)> {
    let is_traces = |call: &&Call| call.path.ends_with("/v1/traces") || call.path.ends_with("TraceService/Export");
    let requests = calls.iter().filter(is_traces).map(|call| ExportTraceServiceRequest::decode(message(call)).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    let of_resource = resources.flat_map(|spans| {
        let resource = spans.resource;
        spans.scope_spans.into_iter().flat_map(|scope| scope.spans).map(move |span| (resource.clone(), span))
    });
    of_resource.collect()
}

/// The latest ones.
fn metrics(calls: &[Call]) -> Vec<Metric> {
    let is_metrics = |call: &&Call| call.path.ends_with("/v1/metrics") || call.path.ends_with("MetricsService/Export");
    let Some(last) = calls.iter().rfind(is_metrics) else { return Vec::new() };
    let request = ExportMetricsServiceRequest::decode(message(last)).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    scopes.flat_map(|scope| scope.metrics).collect()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn integer(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => Some(*number),
        _ => None,
    }
}

fn requests(calls: &[Call]) -> Vec<(Option<Resource>, Span)> {
    spans(calls).into_iter().filter(|(_, span)| span.kind == 2).collect()
}

/// A request with a caller's trace and one without, over either protocol of OTLP.
fn traced_by(protocol: &str) {
    let collector = Receiver::start();
    let telemetry = format!(
        "telemetry: {{ otlp: '{}', protocol: {protocol}, traces: 1, metrics: 1s, service_name: gate }}\n{RULES}",
        collector.url()
    );
    let service = Service::on(&telemetry, &[]);
    for headers in [PARENT, "", "", UNSAMPLED] {
        post(&service.http, "/v1/check", headers, CHECK);
    }
    service.get("/healthz");
    let calls = collector.wait("three requests arrive", |calls| requests(calls).len() >= 3);
    let all = requests(&calls);
    assert_eq!(all.len(), 3, "one was not to be traced, and health is not");
    let (resource, first) = &all[0];
    let resource = resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), Some("gate"));
    assert!(text(&resource.attributes, "service.instance.id").is_some_and(|instance| instance.contains(':')));
    assert_eq!(first.name, "POST /v1/check");
    assert_eq!(first.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(first.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(integer(&first.attributes, "http.response.status_code"), Some(200));
    assert_eq!(text(&first.attributes, "tollkeeper.outcome"), Some("allowed"));
    assert!(
        first.start_time_unix_nano > 1_600_000_000_000_000_000 && first.end_time_unix_nano > first.start_time_unix_nano
    );
    let (_, last) = &all[2];
    assert!(last.parent_span_id.is_empty() && last.trace_id != first.trace_id);
    assert_eq!(text(&last.attributes, "tollkeeper.outcome"), Some("denied"));
    assert_eq!(text(&last.attributes, "tollkeeper.rule"), Some("per-user"));
    let below = spans(&calls).into_iter().map(|(_, span)| span).find(|span| span.parent_span_id == first.span_id);
    let below = below.expect("a span for the decision");
    assert_eq!((below.name.as_str(), text(&below.attributes, "db.system.name")), ("decide", Some("memory")));
    assert_eq!(text(&below.attributes, "tollkeeper.source"), Some("store"));
    assert!(below.start_time_unix_nano >= first.start_time_unix_nano);
    assert!(calls.iter().all(|call| !call.body.windows(10).any(|part| part == b"somebody-s")), "no keys of clients");
    // The numbers are the same as in Prometheus.
    let denied = |calls: &[Call]| {
        let decisions = metrics(calls).into_iter().find(|metric| metric.name == "tollkeeper_decisions_total")?;
        let Some(Data::Sum(sum)) = decisions.data else { panic!("no counter") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let is_denied = |attributes: &[KeyValue]| text(attributes, "outcome") == Some("denied");
        sum.data_points.into_iter().find(|point| is_denied(&point.attributes))?.value
    };
    let expected = number_data_point::Value::AsDouble(2.0);
    collector.wait("the numbers arrive", |calls| denied(calls) == Some(expected));
    let page = service.get("/metrics");
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let sent = metrics(&collector.calls());
    assert_eq!(sent.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>(), names);
    let duration = sent.into_iter().find(|metric| metric.name == "tollkeeper_check_duration_seconds").unwrap();
    let Some(Data::Histogram(histogram)) = duration.data else { panic!("no histogram") };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (4, 4));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
}

#[test]
fn requests_and_numbers_arrive_over_http() {
    traced_by("http/protobuf");
}

#[test]
fn requests_and_numbers_arrive_over_grpc() {
    traced_by("grpc");
}

#[test]
fn calls_by_grpc_and_commands_are_traced_too() {
    let collector = Receiver::start();
    let rules = "rules: [{ name: per-user, key: '{user}', limit: 2/h }]";
    let telemetry = format!("telemetry: {{ otlp: '{}', traces: 1, metrics: 0s }}\n{rules}", collector.url());
    let service = Service::on(&telemetry, &["--resp", "127.0.0.1:0"]);
    let resp = service.resp.clone().unwrap();
    let mut connection = redis::Client::open(format!("redis://{resp}/")).unwrap().get_connection().unwrap();
    redis::cmd("TOLLKEEPER.CHECK").arg(&["user", "x"]).exec(&mut connection).unwrap();
    redis::cmd("CL.THROTTLE").arg(&["x", "15", "30", "60"]).exec(&mut connection).unwrap();
    let grpc = service.grpc.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = RateLimitServiceClient::connect(&grpc).await;
        let entries = vec![Entry { key: "user".into(), value: "y".into() }];
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let asked = RateLimitRequest { domain: "d".into(), descriptors, ..RateLimitRequest::default() };
        let mut request = tonic::Request::new(asked);
        let parent = PARENT.trim().strip_prefix("traceparent: ").unwrap();
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        client.should_rate_limit(request).await.unwrap();
    });
    let calls = collector.wait("three requests arrive", |calls| requests(calls).len() == 3);
    let all = requests(&calls);
    let found = |name: &str| all.iter().map(|(_, span)| span).find(|span| span.name == name).expect(name);
    assert_eq!(text(&found("tollkeeper.check").attributes, "tollkeeper.outcome"), Some("allowed"));
    assert_eq!(text(&found("cl.throttle").attributes, "rpc.system"), Some("redis"));
    let call = found("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    assert_eq!(call.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(text(&call.attributes, "tollkeeper.outcome"), Some("allowed"));
    assert!(!calls.iter().any(|call| call.path == "/v1/metrics"), "they were not asked for");
}

#[test]
fn the_proxy_passes_the_trace_on() {
    let (collector, upstream) = (Receiver::start(), Receiver::start());
    let flags = ["--listen", "127.0.0.1:0", "--limit", "1000/s by global"];
    let url = upstream.url();
    let mut command = tollkeeper(&[&["proxy", "--upstream", &url], flags.as_slice()].concat());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()).env("OTEL_TRACES_SAMPLER_ARG", "0");
    command.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test").env("OTEL_SERVICE_NAME", "edge");
    let proxy = Service::spawn(command);
    post(&proxy.http, "/a/path/of/the/client", PARENT, "");
    post(&proxy.http, "/", UNSAMPLED, "");
    post(&proxy.http, "/", "", "");
    let passed: Vec<Option<String>> =
        upstream.calls().iter().map(|call| call.header("traceparent").map(str::to_string)).collect();
    let calls = collector.wait("one request arrives", |calls| !requests(calls).is_empty());
    let (resource, span) = &requests(&calls)[0];
    let resource = resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), Some("edge"));
    assert_eq!(text(&resource.attributes, "deployment.environment"), Some("test"));
    let hex: String = span.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{hex}-01");
    let unsampled = UNSAMPLED.trim().strip_prefix("traceparent: ").map(str::to_string);
    assert_eq!(passed, [Some(expected), unsampled, None], "by this span, as it came, and none where there was none");
    assert_eq!(span.name, "POST", "and no path of the client's");
    assert_eq!(spans(&calls).iter().filter(|(_, below)| below.parent_span_id == span.span_id).count(), 1);
}

#[test]
fn without_a_collector_the_proxy_leaves_traces_alone() {
    let upstream = Receiver::start();
    let url = upstream.url();
    let proxy = Service::start(&["proxy", "--upstream", &url, "--listen", "127.0.0.1:0", "--limit", "1000/s"]);
    post(&proxy.http, "/", PARENT, "");
    assert_eq!(upstream.calls()[0].header("traceparent"), PARENT.trim().strip_prefix("traceparent: "));
}

/// It accepts connections and never answers.
#[test]
fn a_collector_that_hangs_keeps_nobody_from_an_answer_or_from_stopping() {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = format!("http://{}", hanging.local_addr().unwrap());
    let config = file(&format!("telemetry: {{ otlp: '{otlp}', traces: 1, metrics: 1s }}\n{RULES}"), "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config]);
    let (mut waiting, _) =
        hanging.accept().map(|(stream, _)| (stream, post(&service.http, "/v1/check", "", CHECK))).unwrap();
    for _ in 0..3_000 {
        assert!(post(&service.http, "/v1/check", "", CHECK).starts_with("HTTP/1.1 200"));
    }
    let mut first = [0; 4];
    std::io::Read::read_exact(&mut waiting, &mut first).unwrap();
    assert_eq!(&first, b"POST", "it was asked, and has not answered");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_collector_that_is_gone_is_in_nobodys_way() {
    let gone = Receiver::start().url();
    let config = file(&format!("telemetry: {{ otlp: '{gone}', traces: 1, metrics: 1s }}\n{RULES}"), "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config]);
    for _ in 0..20 {
        assert!(post(&service.http, "/v1/check", "", CHECK).starts_with("HTTP/1.1 200"));
    }
    let lost = || {
        let page = service.get("/metrics");
        ["failed", "dropped"]
            .iter()
            .map(|it| metric(&page, &format!("tollkeeper_spans_total{{outcome=\"{it}\"}}")))
            .sum::<u64>()
    };
    wait_until("what was lost is counted", || lost() == 40);
    service.wait_for_log("did not accept spans or metrics", 1);
    assert_eq!(service.stop(), Some(0));
}
