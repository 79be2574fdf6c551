//! More than the service can decide: every front sheds and says so, and nobody passes because of it.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper_testkit::http::Answer;
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Distance, Service, wait_until};
use tonic::{Code, Status};

use crate::envoy_client::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// 1,000 checks of keys that nobody has used.
fn batch(client: usize, round: usize) -> String {
    let check = |nth: usize| json!({ "attributes": { "user": format!("{client}-{round}-{nth}") } });
    json!({ "checks": (0..1_000).map(check).collect::<Vec<_>>() }).to_string()
}

/// Every key is new: the store lets it pass, or it is not decided.
fn assert_decided_or_shed(result: &Value) {
    match result["error"].as_str() {
        Some(error) => assert_eq!(
            (error, &result["retry_after_ms"], &result["allowed"]),
            ("overloaded", &json!(1_000), &Value::Null)
        ),
        None => assert_eq!((&result["allowed"], &result["source"]), (&json!(true), &json!("store"))),
    }
}

/// The replies that have come so far, for as long as there are more.
fn replies(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(all).unwrap()
}

/// The status of a call that was shed, if it is answered at once. Envoy takes `UNAVAILABLE` for a failure of the service,
/// and never for a decision.
async fn shed_over_grpc(address: &str) -> Option<Status> {
    let entry = Entry { key: "user".into(), value: "over-grpc".into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: "shop".into(), descriptors: vec![descriptor], hits_addend: 0 };
    let mut client = RateLimitServiceClient::connect(address).await;
    let asked = tokio::time::timeout(Duration::from_millis(200), client.should_rate_limit(request)).await;
    let status = asked.ok()?.err()?;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    Some(status)
}

/// More wait for the store than may, while each call takes a while. The number is what is too high: everybody has the patience
/// that a busy machine needs.
#[test]
fn every_front_sheds_and_no_rule_answers_by_its_failure_policy() {
    const CLIENTS: usize = 24;
    let server = Server::start(Kind::Redis7);
    let distance = Distance::to(server.port(), Duration::from_millis(2));
    let rules = format!(
        "store: {{ url: '{}', timeout: 10s }}\nrules:\n  - {{ name: per-user, key: '{{user}}', limit: 1/day, \
         on_store_failure: open }}\n",
        distance.url()
    );
    let service = Service::on(&rules, &["--resp", "127.0.0.1:0"]);
    distance.set(Duration::from_secs(2));
    let (stop, refused, shed) = (AtomicBool::new(false), Mutex::<Option<Answer>>::default(), Mutex::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let resp_shed = || service.metric("tollkeeper_shed_total{front=\"resp\"}") > 0.0;
    let said = thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (service, stop, refused) = (&service, &stop, &refused);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !stop.load(Relaxed)) {
                    let answer = service.post("/v1/check", &batch(client, round));
                    if answer.status == 503 {
                        *refused.lock().unwrap() = Some(answer);
                        thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                    answer.json()["results"].as_array().unwrap().iter().for_each(assert_decided_or_shed);
                }
            });
        }
        // Also if the test fails: the clients would go on forever.
        let _stop = Stop(&stop);
        wait_until("a batch is shed", || refused.lock().unwrap().is_some());
        let mut streams = Vec::new();
        wait_until("a command is shed", || {
            let mut commands = String::new();
            (0..200).for_each(|nth| writeln!(commands, "TOLLKEEPER.CHECK user {}-{nth}\r", streams.len()).unwrap());
            let mut stream = TcpStream::connect(service.resp.as_ref().unwrap()).unwrap();
            stream.write_all(commands.as_bytes()).unwrap();
            streams.push(stream);
            thread::sleep(Duration::from_millis(200));
            resp_shed()
        });
        let grpc = service.grpc.clone().unwrap();
        wait_until("a gRPC call is shed", || {
            *shed.lock().unwrap() = runtime.block_on(shed_over_grpc(&grpc));
            shed.lock().unwrap().is_some()
        });
        // What still waits may go on.
        distance.set(Duration::ZERO);
        stop.store(true, Relaxed);
        let mut said = String::new();
        wait_until("a command gets an answer", || {
            streams.iter_mut().for_each(|stream| said += &replies(stream));
            said.contains("-BUSY ")
        });
        said
    });
    assert!(said.contains("-BUSY overloaded: "), "{said}");
    let shed = shed.into_inner().unwrap().unwrap();
    assert!(shed.message().starts_with("overloaded: "), "{shed}");
    assert!(service.metric("tollkeeper_shed_total{front=\"grpc\"}") > 0.0);
    let refused = refused.into_inner().unwrap().unwrap();
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    let detail = refused.problem(503)["detail"].as_str().unwrap().to_string();
    assert!(detail.starts_with("overloaded: "), "{detail}");
    assert!(service.metric("tollkeeper_shed_total{front=\"http\"}") > 0.0);
    assert_eq!(service.metric("tollkeeper_breaker_state"), 0.0);
    assert_eq!(service.metric("tollkeeper_store_errors_total"), 0.0);
    assert_eq!(service.get("/readyz").status, 200);
    let log = service.log();
    assert!(log.contains("overloaded: "), "{log}");
    assert!(!log.contains("does not answer"), "{log}");
}
