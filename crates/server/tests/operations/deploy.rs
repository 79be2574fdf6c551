//! The files of deploy/, with the tools that read them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollkeeper_testkit::http::Client;

use tollkeeper_testkit::{Process, Service, file, free_port, repository, system, tollkeeper, wait_until};

use super::receiver::post;

fn deploy() -> PathBuf {
    repository().join("deploy")
}

/// Runs a tool of Prometheus, which `./run setup` installs.
#[track_caller]
fn promtool(args: &[&str]) {
    let output = Command::new(system("promtool")).args(args).current_dir(deploy().join("prometheus")).output();
    let output = output.unwrap_or_else(|error| panic!("promtool: {error}"));
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn prometheus_takes_its_files() {
    promtool(&["check", "config", "--syntax-only", "prometheus.yml"]);
    promtool(&["check", "rules", "alerts.yml"]);
    promtool(&["test", "rules", "alerts_test.yml"]);
}

#[test]
fn the_rules_of_every_deployment_are_valid() {
    for rules in ["rules.yaml", "kubernetes/rules.yaml"] {
        let path = deploy().join(rules);
        let output = tollkeeper(&["validate", "--json", path.to_str().unwrap()]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&said["valid"], &said["warnings"]), (&true.into(), &Value::Array(Vec::new())), "{rules}: {said}");
    }
}

/// A service that has done a little of everything, so that every metric has a value.
fn used() -> Service {
    let rules = "rules: [{ name: a, key: '{user}', limit: 2/h }]";
    let service = Service::on(rules, &["--resp", "127.0.0.1:0"]);
    for _ in 0..3 {
        post(&service.http, "/v1/check", "", r#"{"attributes": {"user": "x"}}"#);
    }
    let resp = service.resp.clone().unwrap();
    let mut connection = redis::Client::open(format!("redis://{resp}/")).unwrap().get_connection().unwrap();
    redis::cmd("PING").exec(&mut connection).unwrap();
    service
}

/// Names of series in an expression: words with our prefix.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tollkeeper_"))
}

/// The metric that a series belongs to.
fn family(series: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"];
    parts.iter().find_map(|part| series.strip_suffix(part)).unwrap_or(series)
}

/// Every metric, by the catalog's source.
fn measured() -> BTreeSet<&'static str> {
    let found: BTreeSet<&str> = names(include_str!("../../src/metrics/catalog.rs")).collect();
    let found: BTreeSet<&str> = found.into_iter().filter(|name| *name != "tollkeeper_").collect();
    assert!(found.len() > 30, "{found:?}");
    found
}

#[test]
fn everything_that_is_asked_for_is_there() {
    let service = used();
    let page = service.get("/metrics");
    let series: BTreeSet<&str> = page.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy().join("grafana/tollkeeper.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut expressions: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_string()).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    expressions.extend(variables.filter_map(|variable| variable["definition"].as_str().map(str::to_string)));
    let alerts = std::fs::read_to_string(deploy().join("prometheus/alerts.yml")).unwrap();
    expressions.extend(alerts.lines().filter(|line| !line.contains("summary")).map(str::to_string));
    let asked: BTreeSet<&str> = expressions.iter().flat_map(|expression| names(expression)).collect();
    assert!(asked.len() >= 20, "{asked:?}");
    let measured = measured();
    let is_there = |name: &str| series.contains(name) || measured.contains(family(name));
    let missing: Vec<_> = asked.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "asked for, and not measured: {missing:?}");
    // Metrics that were added later, such as those of the proxy, were on no panel for a while.
    let shown: BTreeSet<&str> = asked.iter().map(|name| family(name)).collect();
    let unseen: Vec<_> = measured.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(unseen.is_empty(), "measured, and on no panel of the dashboard: {unseen:?}");
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own number");
}

#[test]
fn the_page_of_metrics_is_as_prometheus_likes_it() {
    let service = used();
    let page = service.get("/metrics");
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let mut child = Command::new(system("promtool")).args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), body.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A real Prometheus on our file, with only the address and the token changed.
#[test]
fn prometheus_scrapes_a_service_with_its_token() {
    let rules =
        "metrics: token\nadmin: { read_token: only-for-prometheus }\nrules: [{ name: a, key: '{user}', limit: 2/h }]";
    let service = Service::on(rules, &[]);
    post(&service.http, "/v1/check", "", r#"{"attributes": {"user": "x"}}"#);
    let token = file("only-for-prometheus", "token");
    let text = std::fs::read_to_string(deploy().join("prometheus/prometheus.yml")).unwrap();
    let alerts = deploy().join("prometheus/alerts.yml");
    let text = text.replace("/etc/prometheus/tollkeeper-token", &token).replace("tollkeeper:8080", &service.http);
    let text = text
        .replace("scrape_interval: 15s", "scrape_interval: 1s")
        .replace("- alerts.yml", &format!("- {}", alerts.display()));
    let config = file(&text, "yml");
    let data = format!("{config}.data");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(system("prometheus"));
    command.arg(format!("--config.file={config}")).arg(format!("--storage.tsdb.path={data}"));
    command.arg(format!("--web.listen-address={address}"));
    let _prometheus = Process::spawn(&mut command, file("", "log").into());
    let client = Client::to(&address).with("content-type", "application/x-www-form-urlencoded");
    let ask = |query: &str| client.try_send("POST", "/api/v1/query", query).ok();
    wait_until("it has scraped the decision", || {
        ask("query=tollkeeper_decisions_total{outcome=\"allowed\"}")
            .is_some_and(|said| said.contains(r#""rule":"a""#) && said.contains(r#","1"]"#))
    });
    assert!(ask("query=up").unwrap().contains(r#","1"]"#));
}

/// Compose sets variables that were not given to an empty string; that must not be read as a URL.
#[test]
fn a_variable_that_is_set_to_nothing_is_as_if_absent() {
    let rules = deploy().join("rules.yaml");
    let free = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
    let mut command = tollkeeper(&[&["serve", "--config", rules.to_str().unwrap()], free.as_slice()].concat());
    for name in
        ["TOLLKEEPER_ALERT_WEBHOOK", "TOLLKEEPER_ALERT_SECRET", "TOLLKEEPER_OTLP", "OTEL_EXPORTER_OTLP_ENDPOINT"]
    {
        command.env(name, "");
    }
    let service = Service::spawn(command);
    assert!(!service.log().contains("alerts go to"), "{}", service.log());
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_service_can_be_asked_whether_it_is_well() {
    let service = used();
    let ask = |url: &str| tollkeeper(&["health", url]).output().unwrap();
    assert!(ask(&format!("http://{}/healthz", service.http)).status.success());
    let output = ask(&format!("http://{}/nothing", service.http));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("404"));
    let address = service.http.clone();
    assert_eq!(service.stop(), Some(0));
    assert_eq!(ask(&format!("http://{address}/healthz")).status.code(), Some(1));
    assert_eq!(ask("not a url").status.code(), Some(2));
}
