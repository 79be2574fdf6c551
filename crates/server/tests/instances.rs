//! Several instances on one store: what one gave out, any other takes back.

use serde_json::{Value, json};

use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Service, wait_until};

/// The hold is short: a slot is also taken by a call whose answer was lost, as happens while a server restarts, and then it is
/// free only when its hold expires.
const RULES: &str = "
  - { name: jobs, key: '{job}', limit: 1, algorithm: concurrency, hold: 10s, on_store_failure: closed }
  - { name: tokens, key: '{user}', limit: 1000/day, on_store_failure: closed }
";

fn instance(redis: &Server) -> Service {
    Service::on(&format!("store: {{ url: '{}', timeout: 1s }}\nrules:{RULES}", redis.url()), &[])
}

fn take(service: &Service) -> Value {
    let answer = service.check(&json!({"attributes": {"job": "import"}}));
    // Shown if the test fails.
    println!("{answer}");
    answer["rules"][0]["hold"].clone()
}

fn release(service: &Service, hold: &Value) -> Value {
    let body = json!({"rule": "jobs", "key": "import", "hold": hold});
    service.post("/v1/release", &body.to_string()).json()["released"].clone()
}

/// Holds became unguessable by a seal under a secret. An instance with a secret of its own would refuse the holds of all
/// others.
#[test]
fn a_slot_of_one_instance_is_released_through_another() {
    let mut redis = Server::start(Kind::Redis7);
    let (one, other) = (instance(&redis), instance(&redis));
    let hold = take(&one);
    assert_eq!(take(&other), Value::Null, "the only slot is taken");
    assert_eq!(release(&other, &hold), true);
    assert_eq!(release(&one, &hold), false, "it is released once");

    // The secret is lost together with the slots, and whoever comes first offers another one.
    redis.restart();
    let mut hold = Value::Null;
    wait_until("the store decides again", || {
        hold = take(&one);
        hold.is_string()
    });
    // The circuit breaker may let only some calls through yet.
    wait_until("the store takes it back", || release(&one, &hold) == true);
    let late = instance(&redis);
    let hold = take(&late);
    wait_until("it is released", || release(&one, &hold) == true);
}

#[test]
fn a_reservation_of_one_instance_is_settled_through_another() {
    let redis = Server::start(Kind::Redis7);
    let (one, other) = (instance(&redis), instance(&redis));
    let reserved = one.post("/v1/reserve", r#"{"attributes": {"user": "42"}, "cost": 400}"#).json();
    let settle = format!("/v1/reservations/{}/settle", reserved["reservation"]["id"].as_str().unwrap());
    let settled = other.post(&settle, r#"{"cost": 150}"#).json();
    assert_eq!((&settled["rules"][0]["refunded"], &settled["rules"][0]["remaining"]), (&json!(250), &json!(850)));
    assert_eq!(one.post(&settle, r#"{"cost": 0}"#).status, 404, "it is settled once");
}
