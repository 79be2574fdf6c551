//! Exceptions with Redis and Postgres: Redis may restart empty while no instance runs.

use serde_json::json;
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Postgres, Service};

fn service(redis: &Server, postgres: &Postgres) -> Service {
    let rules = "rules: [{ name: each, key: '{user}', limit: 5/day }]";
    let stores = format!("store: {{ url: '{}' }}\naudit: {{ database: '{}' }}\n", redis.url(), postgres.url());
    Service::on(&(stores + rules), &[])
}

fn passes(service: &Service, user: &str) -> bool {
    service.check(&json!({ "attributes": { "user": user } }))["allowed"] == true
}

fn block(service: &Service, user: &str) {
    let block = json!({ "rule": "each", "key": user, "kind": "block", "reason": "scraper" });
    assert_eq!(service.client().send("PUT", "/v1/exceptions", &block.to_string()).status, 200);
}

const KEPT: &str = "select count(*) from rate_limit_kept_exceptions where exceptions like '%\"key\":\"NAME\"%'";

/// Redis and all instances were restarted at the same time, as in an upgrade of a small cluster, and the block was gone.
#[test]
fn a_block_outlives_redis_and_all_instances() {
    let (mut redis, postgres) = (Server::start(Kind::Redis7), Postgres::start());
    let mut first = service(&redis, &postgres);
    block(&first, "nul\0");
    block(&first, "x");
    block(&first, "y");
    let lifted = first.client().send("DELETE", "/v1/exceptions?rule=each&key=y", "");
    assert_eq!(lifted.json()["lifted"], true);
    postgres.wait_for(&KEPT.replace("NAME", "x"), "1");
    postgres.wait_for(&KEPT.replace("NAME", "y"), "0");
    first.kill();
    redis.kill();
    redis.restart();

    let second = service(&redis, &postgres);
    assert!(!passes(&second, "x") && !passes(&second, "nul\0"), "blocked from the first request on");
    assert!(passes(&second, "y"), "what was lifted stays lifted");
    assert!(second.log().contains("Redis had lost exceptions for single keys; restored: 2"), "{}", second.log());
    block(&second, "z");
    postgres.wait_for(&KEPT.replace("NAME", "z"), "1");
    postgres.wait_for(&KEPT.replace("NAME", "x"), "1");
}

#[test]
fn without_postgres_the_service_runs_and_copies_later() {
    let (redis, mut postgres) = (Server::start(Kind::Redis7), Postgres::start());
    postgres.kill();
    let service = service(&redis, &postgres);
    block(&service, "x");
    assert!(!passes(&service, "x"));
    service.until_logged("exceptions are not copied to Postgres");
    postgres.restart();
    service.until_logged("exceptions are copied to postgres at");
    postgres.wait_for(&KEPT.replace("NAME", "x"), "1");
}
