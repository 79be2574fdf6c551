use super::*;

fn settings(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Option<Settings>> {
    let config: TelemetryConfig = serde_json::from_str(file).expect("a valid part of a file");
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
    Settings::new(&config, find)
}

#[test]
fn nothing_is_sent_unless_somebody_names_a_collector() {
    assert!(settings("{}", &[("OTEL_SERVICE_NAME", "x")]).expect("fine").is_none());
    let disabled = [("OTEL_SDK_DISABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
    assert!(settings("{}", &disabled).expect("fine").is_none());
}

#[test]
fn the_file_wins_over_the_standard_variables() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://elsewhere:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_SERVICE_NAME", "gate"),
    ];
    let found = settings("{}", &variables).expect("fine").expect("a collector");
    assert_eq!((found.to.to_string().as_str(), found.protocol), ("http://elsewhere:4317", OtlpProtocol::Grpc));
    assert_eq!((found.traces, found.service_name.as_str()), (0.5, "gate"));
    let file = r#"{"otlp": "http://here:4318", "protocol": "http/protobuf", "traces": 1, "service_name": "mine"}"#;
    let found = settings(file, &variables).expect("fine").expect("a collector");
    assert_eq!((found.to.to_string().as_str(), found.protocol), ("http://here:4318", OtlpProtocol::Http));
    assert_eq!((found.traces, found.service_name.as_str()), (1.0, "mine"));
}

#[test]
fn a_bad_variable_is_named() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no value"),
    ] {
        let error = settings("{}", &[endpoint, (name, value)]).expect_err(name);
        assert!(error.to_string().starts_with(name), "{error}");
    }
    let error = settings("{}", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]).expect_err("no scheme");
    assert!(error.to_string().starts_with("OTEL_EXPORTER_OTLP_ENDPOINT"), "{error}");
}
