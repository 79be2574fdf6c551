//! Many processes hammer one key of one Redis: their answers must be exactly what the limit says. An independent
//! auditor judges by the times at which requests were sent and answered.

mod auditor;
mod fleet;
mod recording;
mod worker;

use std::time::Duration;

use auditor::{Law, Rate, Report, Request};
use fleet::{Fleet, Orders};
use serde_json::{Value, json};
use tollkeeper_testkit::store::{Kind, Server};

use super::alone;

/// Not a test: what this executable does when a fleet starts it as a worker.
#[test]
#[ignore = "the other side of the tests here, which start it themselves"]
fn worker() {
    if let Some(job) = worker::Job::from_environment() {
        job.run();
    }
}

const AS_WORKER: [&str; 4] = ["processes::worker", "--exact", "--ignored", "--nocapture"];

fn rule(algorithm: &str, limit: &str) -> Value {
    json!({ "name": "shared", "key": "{user}", "algorithm": algorithm, "limit": limit, "on_store_failure": "closed" })
}

fn with_burst(mut rule: Value, burst: u64) -> Value {
    rule["burst"] = burst.into();
    rule
}

/// 32 callers in 4 processes, on a server of their own.
fn hammer(rule: &Value, costs: &[u32], lasts: Duration) -> Vec<Request> {
    let server = Server::start(Kind::Redis7);
    let orders = Orders {
        url: server.url(),
        rule: rule.clone(),
        processes: 4,
        callers: 8,
        costs: costs.to_vec(),
        lasts,
        requests_per_caller: 1 << 20,
    };
    Fleet::start(&orders, &AS_WORKER).requests().concat()
}

fn audit(rule: &Value, law: Law, requests: &[Request], lost: u64) -> Report {
    let report = law.audit(requests, lost).unwrap_or_else(|violation| panic!("{rule}: {violation}"));
    println!("{} requests, {rule}: {report:?}", requests.len());
    assert!(report.denials > 0, "{rule}: nobody was denied, so nothing was shown");
    report
}

fn bucket(burst: u64, count: u64, period_us: u64) -> Law {
    Law::Bucket { burst, rate: Rate { count, period_us } }
}

const SECOND: u64 = 1_000_000;

#[test]
fn callers_in_four_processes_get_exactly_what_refills() {
    let _alone = alone();
    let cases: [(Value, Law, &[u32]); 4] = [
        (with_burst(rule("token_bucket", "2,000/s"), 500), bucket(500, 2_000, SECOND), &[1]),
        (with_burst(rule("gcra", "7/3ms"), 100), bucket(100, 7, 3_000), &[1, 2, 3]),
        (with_burst(rule("leaky_bucket", "997/s"), 50), bucket(50, 997, SECOND), &[1]),
        (
            rule("sliding_window_log", "200/100ms"),
            Law::SlidingLog(Rate { count: 200, period_us: SECOND / 10 }),
            &[1, 2, 3],
        ),
    ];
    for (rule, law, costs) in cases {
        audit(&rule, law, &hammer(&rule, costs, Duration::from_millis(1_200)), 0);
    }
}

#[test]
fn every_window_admits_exactly_its_count() {
    let _alone = alone();
    let (rule, rate) = (rule("fixed_window", "200/100ms"), Rate { count: 200, period_us: SECOND / 10 });
    let requests = hammer(&rule, &[1], Duration::from_millis(1_200));
    audit(&rule, Law::FixedWindow(rate), &requests, 0);
    // Of about twelve. A busy machine may sleep through some, and then nothing was denied in them.
    let exhausted = auditor::exhausted_windows(&requests, rate);
    assert!(exhausted >= 6, "only {exhausted} windows were asked for more than they have");
}

/// Quotas that refill nothing while the test runs: the sum is the limit, to the last request.
#[test]
fn callers_in_four_processes_share_a_day_to_the_last_request() {
    let _alone = alone();
    let (hour, day) = (3_600 * SECOND, 86_400 * SECOND);
    stay_clear_of_the_next(hour);
    let window = |count, period_us| Law::FixedWindow(Rate { count, period_us });
    let cases = [
        (rule("token_bucket", "500/day"), bucket(500, 500, day), 500),
        (rule("leaky_bucket", "600/day"), bucket(600, 600, day), 600),
        (rule("fixed_window", "700/day"), window(700, day), 700),
        // In a window after an unused one, it behaves like a fixed window.
        (rule("sliding_window_counter", "400/h"), window(400, hour), 400),
        (rule("sliding_window_log", "300/h"), Law::SlidingLog(Rate { count: 300, period_us: hour }), 300),
    ];
    for (rule, law, limit) in cases {
        let report = audit(&rule, law, &hammer(&rule, &[1], Duration::from_millis(300)), 0);
        assert_eq!(report.admitted, limit, "{rule}");
    }
}

/// Windows are aligned to the clock: close to the end of one, wait for the next. (A day ends where an hour ends.)
fn stay_clear_of_the_next(period_us: u64) {
    let left_us = period_us - worker::now_us() % period_us;
    if left_us < 20 * SECOND {
        std::thread::sleep(Duration::from_micros(left_us));
    }
}

/// A process is killed, and takes with it at most what its callers had in flight.
#[test]
fn a_killed_process_breaks_no_bound_and_loses_only_what_was_under_way() {
    let _alone = alone();
    let server = Server::start(Kind::Redis7);
    let orders = Orders {
        url: server.url(),
        rule: with_burst(rule("token_bucket", "10,000/s"), 1_000),
        processes: 3,
        callers: 64,
        costs: vec![1],
        lasts: Duration::from_millis(1_500),
        requests_per_caller: 1 << 20,
    };
    let mut fleet = Fleet::start(&orders, &AS_WORKER);
    fleet.kill(1, Duration::from_millis(700));
    let killed_us = worker::now_us();
    let requests = fleet.requests();
    assert!(requests[1].iter().any(|request| request.admitted), "what the dead one admitted is known");
    for survivor in [&requests[0], &requests[2]] {
        assert!(survivor.iter().any(|request| request.admitted && request.asked_us > killed_us), "the others go on");
    }
    audit(&orders.rule, bucket(1_000, 10_000, SECOND), &requests.concat(), orders.callers as u64);
}

/// Tokens are leased, and still no interval exceeds the limit, even if a process dies while it holds leases. Leases
/// may cost a denial while others hold what is left: never more than a bucket.
#[test]
fn leases_break_no_bound_in_any_interval_also_when_a_process_is_killed() {
    let _alone = alone();
    let leased = |mut rule: Value| {
        rule["lease"] = "auto".into();
        rule
    };
    let cases = [
        (leased(with_burst(rule("token_bucket", "20,000/s"), 4_000)), bucket(4_000, 20_000, SECOND), 4_000),
        (leased(with_burst(rule("gcra", "7/3ms"), 300)), bucket(300, 7, 3_000), 300),
        (
            leased(rule("fixed_window", "2,000/100ms")),
            Law::FixedWindow(Rate { count: 2_000, period_us: SECOND / 10 }),
            2_000,
        ),
    ];
    for (rule, law, limit) in cases {
        let server = Server::start(Kind::Redis7);
        let orders = Orders {
            url: server.url(),
            rule,
            processes: 3,
            callers: 32,
            costs: vec![1, 1, 2],
            lasts: Duration::from_millis(1_200),
            requests_per_caller: 1 << 20,
        };
        let mut fleet = Fleet::start(&orders, &AS_WORKER);
        fleet.kill(1, Duration::from_millis(600));
        audit(&orders.rule, law, &fleet.requests().concat(), limit);
    }
}
