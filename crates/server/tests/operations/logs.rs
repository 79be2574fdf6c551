//! JSON logs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Service, file, tollkeeper};

use super::receiver::post;

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Warnings about the file, a failed reload, clients that send odd bytes, and shutdown: each line is an object.
#[test]
fn every_line_of_a_run_is_a_json_object() {
    let text = "rules: [{ name: a, key: '{user}', limit: 5/s }]\ntrusted_proxies: [0.0.0.0/0]\n";
    let config = file(text, "yaml");
    let args = ["serve", "--http", "127.0.0.1:0", "--config", &config, "--log-format", "json", "--log", "debug"];
    let service = Service::start(&args);
    for odd in ["x-forwarded-for: \"}\\n{\"level\":\"ERROR\"\r\n", "x-forwarded-for: 1.2.3.4\r\n"] {
        post(&service.http, "/v1/authorize", odd, "");
    }
    std::fs::write(&config, "rules: [{ name: a }]\n").unwrap();
    service.signal("-HUP");
    service.wait_for_log("the rules were not reloaded", 2);
    service.signal("-TERM");
    service.wait_for_log("front has stopped", 1);
    let all = lines(&service.log());
    for line in &all {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    let found =
        |field: &str, text: &str| all.iter().find(|line| line[field].as_str().is_some_and(|it| it.contains(text)));
    assert_eq!(found("message", "trusts everybody").expect("the warning")["level"], "WARN");
    let alert = found("target", "tollkeeper::alert").expect("the alert");
    assert_eq!((&alert["kind"], &alert["status"]), (&"rules_refused".into(), &"started".into()));
}

#[test]
fn a_start_that_fails_says_so_in_json_too() {
    let args = ["serve", "--http", "203.0.113.1:1", "--log-format", "json"];
    let output = tollkeeper(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let all = lines(&String::from_utf8(output.stderr).unwrap());
    let last = all.last().expect("a line");
    assert!(last["message"].as_str().unwrap().contains("cannot listen on 203.0.113.1:1"), "{last}");
}

/// A Redis that was gone wrote a line for every attempt to reach it, one a second, for as long as it was gone.
#[test]
fn a_store_that_is_gone_is_a_few_lines_however_long_it_takes() {
    let mut redis = Server::start(Kind::Redis7);
    let rules = "rules: [{ name: a, key: '{user}', limit: 5/s, on_store_failure: closed }]";
    let service = Service::on(&format!("store: {{ url: '{}' }}\n{rules}", redis.url()), &[]);
    redis.kill();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        service.check(&json!({"attributes": {"user": "42"}}));
    }
    service.wait_for_log("cannot reach the store", 1);
    redis.restart();
    service.wait_for_log("answers again", 1);
    let log = service.log();
    // It does not answer, why, it answers again, and it has lost its data.
    assert!(log.matches("store::redis").count() <= 4, "{log}");
    assert_eq!(log.matches("cannot reach the store").count(), 1, "{log}");
}
