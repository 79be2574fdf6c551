//! Clients that spell who they are in many ways: each spelling is the same client, or is refused.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tollkeeper_testkit::{Service, file, repository, run, tools, wait_until};

use super::world::{Proxy, Upstream};

/// A real Express with cookie-parser, which answers with the session that it sees.
struct Express {
    child: Child,
    port: u16,
}

impl Express {
    fn start() -> Express {
        let packages = tools().join("node_tests_express");
        assert!(packages.join("installed").exists(), "{} is missing: run ./run setup", packages.display());
        let mut node = Command::new("node");
        node.arg(repository().join("tests/express/server.mjs")).arg(packages.canonicalize().unwrap());
        let mut child = node.stdout(Stdio::piped()).spawn().expect("node is there: ./run setup installs it");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Express { child, port: line.trim().parse().unwrap_or_else(|_| panic!("no port: {line:?}")) }
    }
}

impl Drop for Express {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each of 19 spellings of one session cookie had its own bucket, while Express read the same session in each.
#[tokio::test]
async fn however_a_session_is_spelled_express_and_the_limit_see_the_same_one() {
    let express = Express::start();
    let rules = "identify: { session: cookie.sid }\nrules:\n  - { name: each, key: '{session}', limit: 1000/day }\n";
    let upstream = ([127, 0, 0, 1], express.port).into();
    let proxy = Proxy::start(upstream, &["--config", &file(rules, "yaml"), "--admin", "127.0.0.1:0"]);
    let left = || {
        let admin = tollkeeper_testkit::http::Client::to(proxy.admin.as_ref().unwrap());
        admin.get("/v1/keys?rule=each&key=s3cret").json()["remaining"].as_u64().unwrap()
    };
    let spellings = [
        "sid=s3cret",
        "sid=%733cret",
        "sid=s%33cret",
        "sid=%73%33%63%72%65%74",
        "sid=\"s3cret\"",
        "sid=\"%733cret\"",
        "sid = s3cret",
        "sid=s3cret ",
        "sid=\ts3cret\t",
        "a=b; sid=s3cret",
        "a;sid=s3cret;",
        "a=\u{e9}; sid=s3cret",
        "sid=\"s3cretX",
        "sid=s3cret; sid=made-up",
        "sid=s3cret; sid=",
        "sid=; sid=s3cret",
        "sid=made-up; sid=s3cret",
        "sid=s3cret; sid=\"made-up\"",
        "sid=s3cret\r\ncookie: sid=made-up",
        "a=b\r\ncookie: sid=s3cret",
    ];
    let mut passed = 0;
    for spelled in spellings {
        let before = left();
        let answer = proxy.get("/", &format!("cookie: {spelled}\r\n")).await;
        if answer.status == 200 {
            passed += 1;
            assert_eq!(answer.json()["session"], "s3cret", "{spelled:?}: {answer}");
            assert_eq!(before - left(), 1, "{spelled:?} was charged elsewhere: {answer}");
        } else {
            assert_eq!((answer.status, before - left()), (400, 0), "{spelled:?}: {answer}");
        }
    }
    assert!(passed >= 12, "{passed} of {} passed", spellings.len());
}

/// Duplicate headers were checked only for the initial rules; a rule added by a reload had no check.
#[test]
fn a_rule_that_is_added_later_is_guarded_from_its_first_request_on() {
    let config = file("rules:\n  - { name: all, key: global, limit: 1000/day }\n", "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config]);
    let twice = service.client().with("x-api-key", "mine").with("x-api-key", "made-up");
    assert_eq!(twice.get("/v1/authorize").status, 200, "no rule identifies clients by it yet");
    let more = "rules:\n  - { name: all, key: global, limit: 1000/day }\n  - { name: each, key: '{header.x-api-key}', limit: 9/day }\n";
    std::fs::write(&config, more).unwrap();
    wait_until("the rule is there", || service.get("/v1/rules").contains("\"each\""));
    let problem = twice.get("/v1/authorize").problem(400);
    assert_eq!(problem["field"], "header.x-api-key");
    assert_eq!(service.client().with("x-api-key", "mine").get("/v1/authorize").status, 200);
}

/// An HTTP/1.0 request may name no host. It reached the upstream under the upstream's own name, and no rule by host saw it.
#[tokio::test]
async fn a_request_without_a_host_is_counted_under_the_one_that_the_upstream_hears() {
    let upstream = Upstream::plain().await;
    let rules = file("rules:\n  - { name: each, key: '{host}', limit: 2/day }\n", "yaml");
    let proxy = Proxy::start(upstream.address, &["--config", &rules]);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(proxy.send("GET / HTTP/1.0\r\n\r\n").await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert!(upstream.seen().concat().to_lowercase().contains(&format!("host: {}", upstream.address)));
}

/// HTTP/2 splits cookies into several lines, and servers of HTTP/1 read the first or the last of them (RFC 9113 8.2.3).
#[tokio::test]
async fn the_crumbs_of_a_cookie_are_joined_for_the_upstream() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let url = format!("http://{}/", proxy.http);
    let asking = tokio::task::spawn_blocking(move || {
        let crumbs = ["-H", "cookie: a=1", "-H", "cookie: b=2", "-H", "cookie: c=3"];
        run("curl", &[&["--http2-prior-knowledge", "-sS", &url], &crumbs[..]].concat())
    });
    assert!(asking.await.unwrap().status.success());
    let seen = upstream.only();
    let cookies: Vec<&str> = seen.lines().filter(|line| line.to_lowercase().starts_with("cookie:")).collect();
    assert_eq!(cookies, ["cookie: a=1; b=2; c=3"], "{seen}");
}

/// Frameworks take an address from headers with many names, and CGI programs a proxy from one (httpoxy).
#[tokio::test]
async fn what_a_client_cannot_know_does_not_reach_the_upstream() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let names = ["Client-IP", "X-Client-IP", "X-Remote-Addr", "X-Originating-IP", "Fly-Client-IP", "Proxy", "X-Host"];
    let lies: String = names.iter().map(|name| format!("{name}: 6.6.6.6\r\n")).collect();
    assert_eq!(proxy.get("/", &lies).await.status, 200);
    assert!(!upstream.only().contains("6.6.6.6"), "{}", upstream.only());
}
