//! Many connections, and shutdown: no client can use up all connections, and no request is lost when an instance
//! stops.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tollkeeper_testkit::http::Client;
use tollkeeper_testkit::{Folder, Process, Service, binary, file, free_port, system, tollkeeper, wait_until};

const RULES: &str = "rules: [{ name: a, key: '{user}', limit: 1_000_000/s }]";

fn service(listen: &str, more: &[&str]) -> Service {
    let config = file(&format!("listen: {{ http: '127.0.0.1:0', {listen} }}\n{RULES}"), "yaml");
    Service::start(&[&["serve", "--config", &config], more].concat())
}

/// A connection that sends nothing.
fn idle(address: &str, from: [u8; 4]) -> TcpStream {
    Client::to(address).from(from.into()).connect().unwrap()
}

/// Whether the peer has closed it.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn health(service: &Service) -> String {
    let line = service.greeting.iter().find_map(|line| line.strip_prefix("health: http://"));
    line.unwrap_or_else(|| panic!("{:?}", service.greeting)).to_string()
}

/// 10,000 idle connections from one address used up all connections, and no other client was answered, not even on
/// `/healthz`.
#[test]
fn one_address_cannot_take_every_place() {
    let service = service("connections: 100, connections_per_address: 40", &[]);
    let crowd: Vec<TcpStream> = (0..120).map(|_| idle(&service.http, [127, 0, 0, 2])).collect();
    wait_until("those beyond its share are closed", || crowd.iter().filter(|one| is_closed(one)).count() == 80);
    for _ in 0..5 {
        assert_eq!(service.get("/healthz").status, 200);
    }
    assert_eq!(service.metric("tollkeeper_connections_refused_total{front=\"http\",reason=\"per_address\"}"), 80.0);
    assert!(service.metric("tollkeeper_connections{front=\"http\"}") >= 40.0);
    let log = service.log();
    assert_eq!(log.matches("127.0.0.2 has 40 connections, the most that one address may have").count(), 1, "{log}");
    drop(crowd);
    wait_until("it has its places back", || !is_closed_soon(&service));
}

/// With `listen.connections` at 2,000 or below and nothing else set, one address had the right to all of them.
#[test]
fn by_default_one_address_gets_a_quarter_of_the_connections() {
    let service = service("connections: 40", &[]);
    let crowd: Vec<TcpStream> = (0..60).map(|_| idle(&service.http, [127, 0, 0, 2])).collect();
    wait_until("those beyond its share are closed", || crowd.iter().filter(|one| is_closed(one)).count() == 50);
    assert_eq!(service.get("/healthz").status, 200);
}

fn is_closed_soon(service: &Service) -> bool {
    let one = idle(&service.http, [127, 0, 0, 2]);
    std::thread::sleep(Duration::from_millis(50));
    is_closed(&one)
}

/// Behind one proxy there are many clients.
#[test]
fn a_trusted_proxy_has_no_limit_of_its_own() {
    let rules = "listen: { http: '127.0.0.1:0', connections_per_address: 3 }\ntrusted_proxies: [127.0.0.2]";
    let config = file(&format!("{rules}\n{RULES}"), "yaml");
    let service = Service::start(&["serve", "--config", &config]);
    let many: Vec<TcpStream> = (0..20).map(|_| idle(&service.http, [127, 0, 0, 2])).collect();
    assert_eq!(service.get("/healthz").status, 200);
    assert!(many.iter().all(|one| !is_closed(one)));
}

/// When many addresses together use up all connections, health checks must still be answered.
#[test]
fn health_answers_on_its_own_address_whatever_happens_to_the_others() {
    let service = service("connections: 20, connections_per_address: 10, health: '127.0.0.1:0'", &[]);
    let health = health(&service);
    let crowd: Vec<TcpStream> = (0..20).map(|number| idle(&service.http, [127, 0, 0, 2 + number / 10])).collect();
    // The connections of the health address are used up by silent clients too.
    let others: Vec<TcpStream> = (0..300).map(|_| idle(&health, [127, 0, 0, 9])).collect();
    service.until_logged("all 20 connections are taken");
    let client = Client::to(&health);
    for _ in 0..10 {
        assert_eq!((client.get("/healthz").status, client.get("/readyz").status), (200, 200));
    }
    for elsewhere in ["/", "/metrics", "/v1/rules", "/v1/check"] {
        client.get(elsewhere).problem(404);
    }
    drop((crowd, others));
    wait_until("the others are answered again", || service.client().try_send("GET", "/healthz", "").is_ok());
}

/// Systems start programs with a limit of 1,024 files for historical reasons; a service needs one per connection.
#[test]
fn the_limit_of_open_files_is_raised_and_what_does_not_fit_is_reported() {
    let config = file(&format!("listen: {{ http: '127.0.0.1:0' }}\n{RULES}"), "yaml");
    let limited = |limits: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limits} && exec \"$0\" \"$@\"")).arg(binary());
        command.args(["serve", "--config", &config]);
        Service::spawn(command)
    };
    let service = limited("ulimit -Sn 512 && ulimit -Hn 20000");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", service.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("20000"), "{line}");
    assert!(!service.log().contains("open files allows"), "{}", service.log());
    let small = limited("ulimit -Sn 512 && ulimit -Hn 600");
    assert!(small.log().contains("the limit of 600 open files allows 344 connections"), "{}", small.log());
}

/// Without free files every attempt to accept fails at once: a loop over that would fill the log and use a whole core.
#[test]
fn a_process_without_free_files_says_so_now_and_then_and_recovers() {
    let service = service("connections: 100", &[]);
    let pid = service.pid().to_string();
    // Fewer than are open already. Connections are limited by what was allowed at the start, so that cannot happen by itself.
    let allow = |files: &str| {
        let limited = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}:")]).status().unwrap();
        assert!(limited.success());
    };
    allow("4");
    let crowd: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&service.http).unwrap()).collect();
    service.until_logged("cannot accept connections right now");
    // Long enough for several attempts.
    std::thread::sleep(Duration::from_secs(3));
    let told = service.log().lines().filter(|line| line.contains("cannot accept connections")).count();
    assert!(told <= 2, "{}", service.log());
    allow("1024");
    wait_until("it answers again", || {
        let answer = service.client().try_send("GET", "/healthz", "");
        answer.is_ok_and(|answer| answer.status == 200)
    });
    drop(crowd);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Streams that are opened only to be reset (CVE-2023-44487), on ten connections.
fn reset_streams(address: &str) {
    // GET / of http://a
    let request = [0x82, 0x84, 0x86, 0x41, 1, b'a'];
    for _ in 0..10 {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
        for number in 0..2_000 {
            bytes.extend(frame(1, 5, 2 * number + 1, &request));
            bytes.extend(frame(3, 0, 2 * number + 1, &[0, 0, 0, 8]));
        }
        // The connection may be closed before everything was sent.
        let _ = stream.write_all(&bytes);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// They caused a log line each.
#[test]
fn a_flood_of_resets_ends_its_connection_and_is_one_line_in_the_log() {
    let service = service("connections: 100", &[]);
    reset_streams(&service.http);
    let log = service.until_logged("keeps resetting HTTP/2 streams");
    assert!(log.lines().count() <= 2, "{log}");
    assert_eq!(service.get("/healthz").status, 200);
}

/// The proxy did not say so, nor count them.
#[test]
fn the_proxy_reports_a_flood_of_resets_too() {
    let upstream = service("connections: 100", &[]);
    let (url, free) = (format!("http://{}", upstream.http), "127.0.0.1:0");
    let flags = ["proxy", "--upstream", &url, "--listen", free, "--admin", free, "--limit", "1/h"];
    let proxy = Service::start(&flags);
    reset_streams(&proxy.http);
    let log = proxy.until_logged("keeps resetting HTTP/2 streams");
    assert_eq!(log.matches("keeps resetting").count(), 1, "{log}");
    let page = Client::to(proxy.admin.as_ref().unwrap()).get("/metrics");
    let counted = "tollkeeper_connections_refused_total{front=\"proxy\",reason=\"stream_resets\"} ";
    let count = page.lines().find_map(|line| line.strip_prefix(counted)?.parse::<f64>().ok());
    assert!(count.is_some_and(|count| count >= 1.0), "{page}");
}

/// Without draining, requests that a load balancer still sends are refused.
#[test]
fn a_service_that_is_terminated_says_so_for_a_while_and_still_answers() {
    let mut service = service("health: '127.0.0.1:0'", &["--shutdown-delay", "3s"]);
    let health = health(&service);
    assert_eq!(service.get("/readyz").status, 200);
    service.signal("-TERM");
    wait_until("it says that it is draining", || service.get("/readyz").status == 503);
    for client in [service.client(), Client::to(&health)] {
        let said = client.get("/readyz").problem(503);
        assert!(said["detail"].as_str().unwrap().starts_with("draining"), "{said}");
        assert_eq!(client.get("/healthz").status, 200);
    }
    let answer =
        service.client().with("connection", "keep-alive").post("/v1/check", r#"{"attributes": {"user": "x"}}"#);
    assert_eq!((answer.status, answer.header("connection").as_deref()), (200, Some("close")), "{answer}");
    assert_eq!(service.wait(), Some(0));
    assert!(service.log().contains("draining: /readyz reports it for 3s"), "{}", service.log());
}

#[test]
fn whoever_asks_twice_or_by_hand_does_not_wait() {
    for signals in [&["-TERM", "-TERM"][..], &["-INT"]] {
        let mut service = service("connections: 9", &["--shutdown-delay", "10min"]);
        for signal in signals {
            service.signal(signal);
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(service.wait(), Some(0));
    }
    let output = tollkeeper(&["serve", "--http", "127.0.0.1:0", "--shutdown-delay", "2h"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("shutdown.delay: 2h is longer than"), "{said}");
}

/// Two instances behind HAProxy, which checks `/readyz` and does not retry: each is replaced while requests keep
/// coming, on keep-alive and on new connections.
#[test]
fn no_request_is_refused_while_instances_are_replaced_behind_haproxy() {
    let start = |address: &str| {
        let config = file(RULES, "yaml");
        Service::start(&["serve", "--http", address, "--config", &config, "--shutdown-delay", "2s"])
    };
    let mut instances = [start("127.0.0.1:0"), start("127.0.0.1:0")];
    let (port, folder) = (free_port(), Folder::new());
    let config = format!(
        "defaults\n  mode http\n  retries 0\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
         frontend all\n  bind 127.0.0.1:{port}\n  default_backend instances\n\
         backend instances\n  option httpchk GET /readyz\n  http-reuse always\n  default-server inter 100ms fall 1 rise 1\n  \
         server one {} check\n  server two {} check\n",
        instances[0].http, instances[1].http
    );
    std::fs::write(folder.path().join("haproxy.cfg"), config).unwrap();
    let mut haproxy = Command::new(system("haproxy"));
    haproxy.arg("-f").arg(folder.path().join("haproxy.cfg"));
    let mut haproxy = Process::spawn(&mut haproxy, folder.path().join("log"));
    let client = Client::to(&format!("127.0.0.1:{port}"));
    let body = r#"{"attributes": {"user": "x"}}"#;
    wait_until("HAProxy lets requests pass", || {
        client.try_send("POST", "/v1/check", body).is_ok_and(|answer| answer.status == 200)
    });
    let (answered, failed, over) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    match client.try_send("POST", "/v1/check", body) {
                        Ok(answer) if answer.status == 200 => _ = answered.fetch_add(1, Relaxed),
                        other => failed.lock().unwrap().push(format!("{other:?}")),
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for instance in &mut instances {
            let before = answered.load(Relaxed);
            wait_until("requests come", || answered.load(Relaxed) > before + 50);
            let address = instance.http.clone();
            instance.signal("-TERM");
            assert_eq!(instance.wait(), Some(0));
            *instance = start(&address);
            // Before the other one stops, HAProxy must know that this one is back.
            std::thread::sleep(Duration::from_secs(1));
        }
        over.store(true, Relaxed);
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}: {:?}", failed.len(), answered.load(Relaxed), &failed[..failed.len().min(3)]);
    assert!(answered.load(Relaxed) > 100);
    haproxy.kill();
}
