//! `tollkeeper bench`: every protocol is asked, and a limit that does not hold is noticed.

use serde_json::Value;
use tollkeeper_testkit::{Service, tollkeeper};

const RULES: &str = "rules:\n- {name: each, key: '{user_id}', limit: 5/h}\n\
                     - {name: page, key: '{header.x-api-key}', limit: 7/h}\n";

fn bench(args: &[&str]) -> (Option<i32>, String) {
    let output = tollkeeper(&[&["bench"], args].concat()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.code(), said)
}

#[test]
fn every_protocol_is_measured_and_its_limits_are_checked() {
    for (nth, protocol) in ["http", "grpc", "redis", "page"].into_iter().enumerate() {
        let service = Service::on(RULES, &["--resp", "127.0.0.1:0"]);
        let (url, key, limit) = match protocol {
            "http" => (format!("http://{}", service.http), "user_id", 5),
            "grpc" => (format!("grpc://{}", service.grpc.as_deref().unwrap()), "user_id", 5),
            "redis" => (format!("redis://{}", service.resp.as_deref().unwrap()), "user_id", 5),
            _ => (format!("http://{}/v1/authorize", service.http), "header.x-api-key", 7),
        };
        let seed = nth.to_string();
        let options = ["--key", key, "--keys", "10", "--requests", "2000", "--duration", "60s", "--seed", &seed];
        let (code, said) =
            bench(&[&[url.as_str()], &options[..], &["--limit", &format!("{limit}/h"), "--json"]].concat());
        assert_eq!(code, Some(0), "{protocol}: {said}");
        let result: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(result["failed"], Value::Object(Default::default()), "{said}");
        // Fifty connections may each have one on its way when the last is counted.
        let (answered, allowed) = (result["answered"].as_u64().unwrap(), result["allowed"].as_u64().unwrap());
        assert!((2_000..2_050).contains(&answered), "{said}");
        assert!((10 * limit..11 * limit).contains(&allowed), "{said}");
        let limits = &result["limits"][0];
        assert!(limits["keys"] == 10 && limits["exceeded"] == 0, "{said}");
        assert!(result["latency_ms"]["p50"].as_f64() <= result["latency_ms"]["max"].as_f64(), "{said}");
    }
}

#[test]
fn a_service_that_admits_more_than_it_should_is_noticed() {
    let service = Service::on(RULES, &[]);
    let url = format!("http://{}", service.http);
    let (code, said) = bench(&[&url, "--keys", "1", "--requests", "500", "--limit", "3/h"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("limit: EXCEEDED by 1 of 1 key; \"k0\" got 5 of at most 4"), "{said}");
}

/// What a user meets who asks for too much, for the wrong thing or nobody.
#[test]
fn what_cannot_be_measured_is_said_at_once() {
    let service = Service::on(RULES, &[]);
    for (args, expected) in [
        (vec!["http://127.0.0.1:1", "--duration", "1s"], "no request was answered: cannot connect"),
        (vec!["https://127.0.0.1:1"], "uses TLS"),
        (vec!["--pipeline", "4"], "only redis:// has pipelines"),
        (vec!["http://127.0.0.1:1", "user_id=1"], "--key"),
        (vec!["--duration", "soon"], "--duration"),
        (vec!["--limit", "3/h by ip"], "leave out `by`"),
    ] {
        let (code, said) = bench(&args);
        assert!(code == Some(2) && said.contains(expected), "{args:?}: {said}");
    }
    // The wrong port.
    let (code, said) = bench(&[&format!("redis://{}", service.http), "--requests", "10"]);
    assert!(code == Some(2) && said.contains("this is not the Redis protocol"), "{said}");
}

#[test]
fn an_open_loop_sends_no_faster_than_its_rate() {
    let service = Service::on(RULES, &[]);
    let url = format!("http://{}", service.http);
    let (code, said) = bench(&[&url, "--rate", "200", "--duration", "2s", "--distribution", "new", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let result: Value = serde_json::from_str(&said).unwrap();
    assert!((1..=400).contains(&result["answered"].as_u64().unwrap()), "no more than 200 a second: {said}");
    assert_eq!(result["limits"], Value::Null, "{said}");
}
