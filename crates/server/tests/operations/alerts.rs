//! Alerts as their receivers see them.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Authority, Service, file, tollkeeper, wait_until};

use super::receiver::{Call, Receiver, metric, post};

const SECRET: &str = "a-secret-for-tests";

/// Sends requests, one after the other, until dropped.
struct Traffic(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Traffic {
    fn to(address: &str, path: &'static str) -> Traffic {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_string());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                post(&address, path, "", r#"{"attributes": {"user": "x"}}"#);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Traffic(stop, Some(thread))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

fn of(calls: &[Call], kind: &str, status: &str) -> Vec<Value> {
    let is_meant = |alert: &Value| alert["kind"] == kind && alert["status"] == status;
    calls.iter().map(Call::json).filter(is_meant).collect()
}

/// Checks a signature with an independent implementation.
fn verify(call: &Call) {
    const PYTHON: &str = "
import hmac, hashlib, sys
secret, header = sys.argv[1:]
parts = dict(part.split('=', 1) for part in header.split(','))
signed = parts['t'].encode() + b'.' + sys.stdin.buffer.read()
expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
sys.exit(0 if hmac.compare_digest(expected, parts['v1']) else 1)";
    let header = call.header("x-tollkeeper-signature").expect("it is signed");
    let mut command = Command::new("python3");
    let mut python = command.args(["-c", PYTHON, SECRET, header]).stdin(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(&call.body).unwrap();
    assert!(python.wait().unwrap().success(), "{header}");
}

/// Every incident alerts once when it starts and once when it is over, while Redis dies and comes back under traffic.
#[test]
fn an_outage_of_the_store_is_reported_once_then_now_and_then_and_when_it_is_over() {
    let (mut redis, receiver) = (Server::start(Kind::Redis7), Receiver::start());
    let rules = format!(
        "store: {{ url: '{}' }}
alerts: {{ webhook: 'http://me:pass-word@{}/hook/in-the-path', secret: {SECRET}, every: 4s, instance: here }}
rules:
  - {{ name: soft, key: '{{user}}', limit: 100000/s, on_store_failure: open }}
  - {{ name: spare, key: '{{user}}', limit: 100000/s, on_store_failure: local }}",
        redis.url(),
        receiver.address
    );
    let service = Service::on(&rules, &[]);
    let traffic = Traffic::to(&service.http, "/v1/check");
    wait_until("requests are decided", || service.get("/metrics").contains("source=\"store\"} 1"));
    redis.kill();
    receiver.wait("two alerts about the open breaker", |calls| {
        !of(calls, "breaker_open", "started").is_empty() && !of(calls, "breaker_open", "ongoing").is_empty()
    });
    redis.restart();
    receiver.wait("all is over", |calls| {
        let is_over = |kind| of(calls, kind, "over").len() == of(calls, kind, "started").len();
        !of(calls, "breaker_open", "over").is_empty() && is_over("without_store")
    });
    drop(traffic);
    let calls = receiver.calls();
    for status in ["started", "over"] {
        assert_eq!(of(&calls, "breaker_open", status).len(), 1, "{status}: {:?}", of(&calls, "breaker_open", status));
    }
    let (started, over) = (&of(&calls, "breaker_open", "started")[0], &of(&calls, "breaker_open", "over")[0]);
    assert_eq!((&started["severity"], &over["severity"]), (&"critical".into(), &"info".into()));
    assert_eq!(started["instance"], "here");
    assert!(over["text"].as_str().unwrap().contains("tollkeeper here: the store answers again"), "{over}");
    // The alerts' numbers match the counters.
    let shown = |policy: &str| -> u64 {
        of(&calls, "without_store", "over").iter().map(|over| over["details"][policy].as_u64().unwrap()).sum()
    };
    let page = service.get("/metrics");
    let decided = |rule: &str, source: &str| {
        metric(&page, &format!("tollkeeper_decisions_total{{rule=\"{rule}\",outcome=\"allowed\",source=\"{source}\"}}"))
    };
    assert_eq!((shown("open"), shown("local")), (decided("soft", "policy"), decided("spare", "local")));
    assert!(shown("open") > 0 && shown("closed") == 0);
    assert_eq!(metric(&page, r#"tollkeeper_alerts_total{kind="breaker_open",status="started"}"#), 1);
    assert_eq!(metric(&page, r#"tollkeeper_alert_deliveries_total{outcome="failed"}"#), 0);
    // Signed, authorised, and nothing of that is in the log.
    calls.iter().for_each(verify);
    assert!(calls.iter().all(|call| call.path == "/hook/in-the-path"));
    assert!(calls.iter().all(|call| call.header("authorization") == Some("Basic bWU6cGFzcy13b3Jk")));
    let log = service.log();
    assert!(log.contains("kind=\"breaker_open\"") && log.contains("alerts go to http://127.0.0.1"), "{log}");
    for secret in [SECRET, "pass-word", "in-the-path", "bWU6"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn the_proxy_shows_of_its_store_too() {
    let (mut redis, receiver, upstream) = (Server::start(Kind::Redis7), Receiver::start(), Receiver::start());
    let (hook, to, store) = (receiver.url(), upstream.url(), redis.url());
    let flags = ["--listen", "127.0.0.1:0", "--limit", "100000/s by global", "--alert-webhook", &hook];
    let args = [&["proxy", "--upstream", &to, "--store", &store, "--alert-secret", SECRET], flags.as_slice()].concat();
    let proxy = Service::start(&args);
    let _traffic = Traffic::to(&proxy.http, "/");
    redis.kill();
    let calls = receiver.wait("both alerts", |calls| {
        !of(calls, "breaker_open", "started").is_empty() && !of(calls, "without_store", "started").is_empty()
    });
    calls.iter().for_each(verify);
}

/// A rules file that becomes invalid: an alert that needs no store.
fn refused(receiver: &str, every: &str) -> (Service, String) {
    let good = format!(
        "alerts: {{ webhook: '{receiver}', every: {every} }}\nrules: [{{ name: a, key: global, limit: 5/s }}]\n"
    );
    let config = file(&good, "yaml");
    // Reloaded on SIGHUP only, not again because the file has changed.
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--watch", "false", "--config", &config]);
    std::fs::write(&config, good.replace("limit", "limt")).unwrap();
    service.signal("-HUP");
    (service, config)
}

#[test]
fn rules_that_cannot_be_read_are_reported_until_they_can() {
    let receiver = Receiver::start();
    let (service, config) = refused(&receiver.url(), "60s");
    let calls = receiver.wait("the alert", |calls| !calls.is_empty());
    let alert = calls[0].json();
    assert_eq!((&alert["kind"], &alert["severity"]), (&"rules_refused".into(), &"warning".into()));
    assert!(alert["details"]["reason"].as_str().unwrap().contains("limt"), "{alert}");
    assert_eq!(calls[0].header("x-tollkeeper-signature"), None, "there is no secret");
    let page = service.get("/metrics");
    assert_eq!(metric(&page, r#"tollkeeper_rules_reloads_total{outcome="refused"}"#), 1);
    let good = std::fs::read_to_string(&config).unwrap().replace("limt", "limit");
    std::fs::write(&config, good).unwrap();
    service.signal("-HUP");
    let count =
        |outcome| metric(&service.get("/metrics"), &format!("tollkeeper_rules_reloads_total{{outcome=\"{outcome}\"}}"));
    wait_until("they are read", || count("accepted") == 1);
    std::fs::write(&config, "").unwrap();
    service.signal("-HUP");
    wait_until("a file without rules is refused", || count("refused") == 2);
    assert_eq!(count("accepted"), 1);
}

#[test]
fn a_receiver_that_was_down_gets_its_alerts_when_it_is_up() {
    let port = Receiver::start().address.port();
    let (service, _) = refused(&format!("http://127.0.0.1:{port}/"), "60s");
    service.wait_for_log("kind=\"rules_refused\"", 1);
    let receiver = Receiver::start_on(port);
    receiver.wait("it arrives", |calls| of(calls, "rules_refused", "started").len() == 1);
    wait_until("that is counted", || {
        metric(&service.get("/metrics"), r#"tollkeeper_alert_deliveries_total{outcome="delivered"}"#) == 1
    });
}

#[test]
fn a_receiver_that_fails_is_asked_again_and_one_that_refuses_is_not() {
    let receiver = Receiver::start();
    receiver.answer(503);
    let (_service, _) = refused(&receiver.url(), "60s");
    receiver.wait("it was tried", |calls| !calls.is_empty());
    receiver.answer(204);
    let calls = receiver.wait("it was tried again", |calls| calls.len() >= 2);
    assert_eq!(calls[0].json()["id"], calls[1].json()["id"], "the same alert");
    assert_eq!(calls[0].header("x-tollkeeper-alert"), calls[0].json()["id"].as_str());
    for status in [404, 302] {
        let receiver = Receiver::start();
        receiver.answer(status);
        let (service, _) = refused(&receiver.url(), "60s");
        service.wait_for_log("is dropped", 1);
        assert_eq!(receiver.calls().len(), 1, "{status}: neither tried again nor followed");
        wait_until("that is counted", || {
            metric(&service.get("/metrics"), r#"tollkeeper_alert_deliveries_total{outcome="failed"}"#) == 1
        });
    }
}

/// Redis restarted without its data: a block was gone and every client had a full bucket, and no alert was sent.
#[test]
fn a_redis_that_restarted_empty_is_reported_and_blocks_stay() {
    let mut redis = Server::start(Kind::Redis7);
    let rules =
        format!("store: {{ url: '{}' }}\nrules: [{{ name: each, key: '{{user}}', limit: 5/day }}]", redis.url());
    let service = Service::on(&rules, &[]);
    let check = |user: &str| service.check(&serde_json::json!({ "attributes": { "user": user } }));
    let block = r#"{"rule": "each", "key": "x", "kind": "block"}"#;
    assert_eq!(service.client().send("PUT", "/v1/exceptions", block).status, 200);
    assert_eq!((&check("x")["allowed"], &check("y")["allowed"]), (&false.into(), &true.into()));
    redis.kill();
    redis.restart();
    service.until_logged("Redis had lost exceptions for single keys; restored: 1");
    service.until_logged("Redis has lost its data");
    let alert = r#"tollkeeper_alerts_total{kind="store_lost",status="started"}"#;
    wait_until("that is alerted", || metric(&service.get("/metrics"), alert) == 1);
    assert_eq!(metric(&service.get("/metrics"), "tollkeeper_store_losses_total"), 1);
    assert_eq!(check("x")["allowed"], false);
    let stored: bool =
        redis::cmd("HEXISTS").arg("tollkeeper:exceptions").arg("each x").query(&mut redis.connect()).unwrap();
    assert!(stored, "instances that start later know it too");
}

#[test]
fn a_flood_of_failures_is_no_flood_of_alerts() {
    let receiver = Receiver::start();
    let rules = format!(
        "store: {{ max_keys: 1 }}
alerts: {{ webhook: '{}', every: 60s }}
rules: [{{ name: each, key: '{{user}}', limit: 1/h, on_store_failure: closed }}]",
        receiver.url()
    );
    let service = Service::on(&rules, &[]);
    for batch in 0..40 {
        let one = |user: u32| format!(r#"{{"attributes": {{"user": "{batch}-{user}"}}}}"#);
        let checks: Vec<String> = (0..100).map(one).collect();
        post(&service.http, "/v1/check", "", &format!(r#"{{"checks": [{}]}}"#, checks.join(",")));
    }
    let page = service.get("/metrics");
    // A key without room shares a bucket with others: one for each of 64 classes, and one request an hour in each.
    let denied = metric(&page, r#"tollkeeper_decisions_total{rule="each",outcome="denied",source="store"}"#);
    assert_eq!(denied, 4_000 - 1 - 64);
    assert_eq!(metric(&page, r#"tollkeeper_overflow_total{lacking="keys"}"#), 3_999);
    let calls = receiver.wait("the alert arrives", |calls| !calls.is_empty());
    assert_eq!(calls[0].json()["kind"], "store_full");
    assert_eq!(calls[0].json()["details"]["rules"][0]["rule"], "each");
    let shown = service.log().matches("kind=\"store_full\"").count();
    assert!(shown <= 2, "{shown}");
}

#[test]
fn whether_alerts_arrive_can_be_tried() {
    let receiver = Receiver::start();
    let config = file(&format!("alerts: {{ webhook: '{}/x', secret: {SECRET} }}", receiver.url()), "yaml");
    let output = tollkeeper(&["alerts", "test", "--config", &config]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("accepted it: 200 OK") && said.contains("signed"), "{said}");
    let calls = receiver.calls();
    assert_eq!((calls.len(), &calls[0].json()["kind"]), (1, &"test".into()));
    verify(&calls[0]);
    receiver.answer(500);
    let output = tollkeeper(&["alerts", "test", "--config", &config]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("did not accept it: 500"), "{said}");
    let output = tollkeeper(&["alerts", "test"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("set alerts.webhook"));
}

/// The receiver is one of our services, which answers 400 to unknown requests: that shows that TLS works.
#[test]
fn a_receiver_with_tls_must_show_a_certificate_that_is_trusted() {
    let authority = Authority::new();
    let receiver = Service::on("rules: []", &authority.server().flags());
    let try_with = |ca: &str| {
        let text = format!("alerts: {{ webhook: 'https://{}/v1/check', ca: '{ca}' }}", receiver.http);
        let output = tollkeeper(&["alerts", "test", "--config", &file(&text, "yaml")]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let said = try_with(&authority.pem);
    assert!(said.contains("did not accept it: 400"), "{said}");
    let said = try_with(&Authority::new().pem);
    assert!(said.contains("certificate"), "{said}");
    let said = try_with("/does/not/exist.pem");
    assert!(said.contains("alerts.ca: cannot read /does/not/exist.pem"), "{said}");
    let url = format!("https://{}/healthz", receiver.http);
    assert!(tollkeeper(&["health", "--ca", &authority.pem, &url]).status().unwrap().success());
}

#[test]
fn bad_settings_are_refused_by_name_and_without_secrets() {
    for (field, text) in [
        ("alerts.webhook", "alerts: { webhook: 'hooks.test/s3cret' }"),
        ("alerts.secret", "alerts: { webhook: 'https://h.test/', secret: '' }"),
        ("alerts.secret", "alerts: { secret: s3cret }"),
        ("alerts.every", "alerts: { every: 10ms }"),
        ("alerts.every", "alerts: { every: soon }"),
        ("telemetry.otlp", "telemetry: { otlp: 'me:s3cret@collector' }"),
        ("telemetry.protocol", "telemetry: { protocol: http/json }"),
        ("telemetry.traces", "telemetry: { traces: 7 }"),
        ("telemetry.metrics", "telemetry: { metrics: 1ms }"),
    ] {
        let output = tollkeeper(&["validate", &file(text, "yaml")]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {said}");
        assert!(said.contains(field) && !said.contains("s3cret"), "{text}: {said}");
    }
}
