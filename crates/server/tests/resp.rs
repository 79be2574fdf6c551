//! The RESP front as clients see it: the real binary, with redis-cli, redis-benchmark, redis-py, ioredis, rueidis and
//! the redis crate as clients.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::process::{Command, Output};
use std::time::Duration;

use redis::{Connection, Value};
use tollkeeper_testkit::store::{Cluster, Kind, Server};
use tollkeeper_testkit::{Service, file, pinned, repository, system, tollkeeper, tools};

/// A deadline for a busy machine: no test here is about slowness.
const RULES: &str = "
store: { timeout: 2s }
rules:
  - { name: everybody, key: global, limit: 1_000_000/s }
  - { name: free-user, key: '{user_id}', limit: 10/min, burst: 50, when: { plan: free } }
";
const PASSWORD: &str = "open sesame";

fn serve(args: &[&str]) -> Command {
    tollkeeper(&[&["serve", "--http", "127.0.0.1:0"], args].concat())
}

/// A service that speaks the Redis protocol.
struct Front {
    service: Service,
    port: u16,
}

impl Front {
    /// With the rules above.
    fn start(more: &[&str]) -> Front {
        let config = file(RULES, "yaml");
        let args = ["--resp", "127.0.0.1:0", "--config", &config];
        Front::spawn(serve(&[&args, more].concat()))
    }

    fn spawn(command: Command) -> Front {
        let service = Service::spawn(command);
        let port = service.resp.as_ref().and_then(|address| address.strip_prefix("127.0.0.1:")?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("it does not listen: {:?}", service.greeting));
        Front { service, port }
    }

    fn connect(&self, options: &str) -> Connection {
        let url = format!("redis://127.0.0.1:{}/{options}", self.port);
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    /// Sends raw bytes on a new connection.
    fn raw(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    fn redis_cli(&self, args: &[&str]) -> String {
        let port = self.port.to_string();
        said(run(Command::new(system("redis-cli")).args(["-p", &port]).args(args)))
    }
}

impl Deref for Front {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// Stops it as an orchestrator does; its log.
fn stop(mut service: Service) -> String {
    service.signal("-TERM");
    assert_eq!(service.wait(), Some(0), "{}", service.log());
    service.log()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run ./run setup"))
}

fn said(output: Output) -> String {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}{err}");
    format!("{out}{err}")
}

fn throttle(connection: &mut Connection, key: &str, numbers: &[i64]) -> Vec<i64> {
    redis::cmd("CL.THROTTLE").arg(key).arg(numbers).query(connection).unwrap()
}

#[test]
fn redis_cli_speaks_both_versions() {
    let service = Front::start(&[]);
    assert_eq!(service.redis_cli(&["PING"]), "PONG\n");
    assert_eq!(service.redis_cli(&["CL.THROTTLE", "user123", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(service.redis_cli(&["-2", "CL.THROTTLE", "other", "15", "30", "60", "17"]), "1\n16\n16\n-1\n0\n");
    let verdict = service.redis_cli(&["-3", "--json", "TOLLKEEPER.CHECK", "user_id", "42", "plan", "free"]);
    let verdict: serde_json::Value = serde_json::from_str(&verdict).unwrap();
    assert_eq!(verdict["allowed"], true);
    assert_eq!(verdict["rules"][1]["remaining"], 49);
    // The command that the first lines suggest works.
    let hint = service.greeting.iter().find_map(|line| line.trim().strip_prefix("redis-cli ")).unwrap();
    let tried = run(Command::new(system("redis-cli")).args(hint.split(' ')));
    assert_eq!(said(tried), "0\n16\n15\n-1\n2\n");
}

#[test]
fn redis_benchmark_completes_without_errors() {
    let redis = Server::start(Kind::Redis7);
    for store in ["memory:".to_string(), redis.url()] {
        let service = Front::start(&["--store", &store]);
        for (depth, requests) in [("1", "5000"), ("16", "50000")] {
            let mut command = Command::new(system("redis-benchmark"));
            command.args(["-p", &service.port.to_string(), "-q", "-n", requests, "-P", depth, "-r", "1000"]);
            command.args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]);
            let output = said(run(&mut command));
            assert!(output.contains("requests per second"), "{output}");
            assert!(!output.to_lowercase().contains("err") && !output.contains("WARNING"), "{output}");
        }
    }
}

#[test]
fn redis_py_in_both_versions() {
    let service = Front::start(&["--resp-password", PASSWORD]);
    let mut python = Command::new(pinned("python"));
    python.arg(repository().join("tests/resp/client.py")).args([&service.port.to_string(), PASSWORD]);
    assert_eq!(said(run(&mut python)), "redis-py: fine\n");
}

#[test]
fn ioredis() {
    let service = Front::start(&["--resp-password", PASSWORD]);
    let packages = tools().join("node_tests_resp");
    assert!(packages.exists(), "no {}; run ./run setup to install ioredis", packages.display());
    let mut node = Command::new(system("node"));
    node.arg(repository().join("tests/resp/client.mjs")).arg(packages).args([&service.port.to_string(), PASSWORD]);
    assert_eq!(said(run(&mut node)), "ioredis: fine\n");
}

/// It asks for client-side caching when it connects, and could not without `DisableCache`.
#[test]
fn rueidis() {
    let service = Front::start(&["--resp-password", PASSWORD]);
    let mut client = Command::new(pinned("go_tests_resp_rueidis"));
    client.args([&format!("127.0.0.1:{}", service.port), PASSWORD]);
    assert_eq!(said(run(&mut client)), "rueidis: fine\n");
}

#[test]
fn the_redis_crate_in_both_versions() {
    let service = Front::start(&[]);
    for options in ["", "?protocol=resp3"] {
        let mut connection = service.connect(options);
        let key = format!("crate{options}");
        assert_eq!(throttle(&mut connection, &key, &[15, 30, 60]), [0, 16, 15, -1, 2]);
        let mut pipeline = redis::pipe();
        for _ in 0..10_000 {
            pipeline.cmd("CL.THROTTLE").arg(&key).arg(&[19_999, 1, 3_600]);
        }
        let answers: Vec<Vec<i64>> = pipeline.query(&mut connection).unwrap();
        let remaining: Vec<i64> = answers.iter().map(|answer| answer[2]).collect();
        let first = remaining[0];
        assert_eq!(remaining, (0..10_000).map(|n| first - n).collect::<Vec<_>>());
        let mut check = redis::cmd("TOLLKEEPER.CHECK");
        check.arg(&["user_id", &key, "plan", "free", "COST", "51"]);
        match (check.query(&mut connection).unwrap(), options) {
            (Value::Array(answer), "") => {
                assert_eq!(answer[..3], [Value::Int(0), Value::BulkString("free-user".into()), Value::Int(-1)]);
            }
            (Value::Map(answer), _) => {
                assert_eq!(answer[0], (Value::BulkString("allowed".into()), Value::Boolean(false)));
                assert_eq!(answer[2], (Value::BulkString("retry_after_ms".into()), Value::Nil));
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn two_processes_share_what_is_in_redis() {
    let mut redis = Server::start(Kind::Redis7);
    let url = redis.url();
    let services = [Front::start(&["--store", &url]), Front::start(&["--store", &url])];
    let mut connections = services.each_ref().map(|service| service.connect(""));
    for n in 0..10 {
        let answer = throttle(&mut connections[n % 2], "shared", &[9, 1, 3_600]);
        assert_eq!(answer[..4], [0, 10, 9 - n as i64, -1], "request {n}");
    }
    for connection in &mut connections {
        let answer = throttle(connection, "shared", &[9, 1, 3_600]);
        assert_eq!(answer[..3], [1, 10, 0]);
        assert!((3_590..=3_600).contains(&answer[3]), "{answer:?}");
        // Other numbers, the same bucket: 36,000 s of 72,000 are owed.
        assert_eq!(throttle(connection, "shared", &[19, 1, 3_600, 0])[..3], [0, 20, 10]);
    }
    // A pipeline that uses one key with many quotas is still decided in order.
    let mut pipeline = redis::pipe();
    for n in 0..50 {
        pipeline.cmd("CL.THROTTLE").arg("mixed").arg(&[99 + n % 5, 1, 3_600]);
    }
    let answers: Vec<Vec<i64>> = pipeline.query(&mut connections[0]).unwrap();
    assert!(answers.iter().all(|answer| answer[0] == 0), "{answers:?}");
    assert_eq!(throttle(&mut connections[1], "mixed", &[99, 1, 3_600, 0])[2], 50);
    // An unreachable store is an error, not a client at its limit.
    redis.kill();
    let lost: redis::RedisResult<Value> =
        redis::cmd("CL.THROTTLE").arg("new").arg(&[9, 1, 3_600]).query(&mut connections[0]);
    let error = lost.expect_err("the outcome is unknown").to_string();
    assert!(error.contains("the store is unavailable"), "{error}");
    assert_eq!(services[0].redis_cli(&["PING"]), "PONG\n");
}

/// Keys of one pipeline live on different nodes, and each is charged in the order of its commands.
#[test]
fn a_pipeline_over_a_cluster_is_answered_in_order() {
    let cluster = Cluster::start();
    let service = Front::start(&["--store", &cluster.url()]);
    let mut pipeline = redis::pipe();
    for n in 0..600 {
        pipeline.cmd("CL.THROTTLE").arg(format!("key{}", n % 200)).arg(&[9, 1, 3_600]);
    }
    let answers: Vec<Vec<i64>> = pipeline.query(&mut service.connect("")).unwrap();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer[..4], [0, 10, 9 - n as i64 / 200, -1], "command {n}");
    }
    // Odd keys are valid too.
    for key in ["", "{", "}", "{}a", "a}b{c"] {
        assert_eq!(throttle(&mut service.connect(""), key, &[0, 1, 3_600])[..4], [0, 1, 0, -1], "{key:?}");
    }
}

#[test]
fn who_abuses_the_protocol_hurts_nobody_else() {
    let service = Front::start(&[]);
    let mut bystander = service.connect("");
    let many = "CL.THROTTLE flood 9 1 60\r\n".repeat(10_000);
    let garbage: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let abuses: [&[u8]; 7] = [
        &garbage,
        b"*1\r\n$4294967296\r\n",
        b"*-7\r\n$-7\r\n",
        b"*2147483647\r\n",
        b"*3\r\n$3\r\nSET\r\n",
        &[b'A'; 100_000],
        many.as_bytes(),
    ];
    let mut open = Vec::new();
    for _ in 0..5 {
        for abuse in abuses {
            // It may be cut off while it is still sending.
            let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
            let _ = stream.write_all(abuse);
            open.push(stream);
            assert_eq!(redis::cmd("PING").query::<String>(&mut bystander).unwrap(), "PONG");
        }
    }
    let mut flood = service.raw(format!("{many}QUIT\r\n").as_bytes());
    let mut answers = String::new();
    flood.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("*5\r\n").count(), 10_000);
    assert!(answers.ends_with("+OK\r\n"));
    drop(open);
    assert!(!stop(service.service).contains("panic"));
}

#[test]
fn the_password_comes_from_the_environment_and_is_not_shown() {
    let mut command = serve(&["--resp", "127.0.0.1:0", "--config", &file(RULES, "yaml"), "--log", "trace"]);
    command.env("TOLLKEEPER_RESP_PASSWORD", PASSWORD);
    let service = Front::spawn(command);
    assert_eq!(service.redis_cli(&["PING"]), "NOAUTH Authentication required.\n\n");
    assert_eq!(service.redis_cli(&["--no-auth-warning", "-a", PASSWORD, "PING"]), "PONG\n");
    assert_eq!(service.redis_cli(&["--no-auth-warning", "-3", "--user", "default", "-a", PASSWORD, "PING"]), "PONG\n");
    let greeting = service.greeting.join("\n");
    assert!(!format!("{greeting}{}", stop(service.service)).contains(PASSWORD));
}

/// Only the file was looked at for warnings: a flag could open the port to the network without a word, and a password in the file
/// "had no effect" although a flag set the port that it protects.
#[test]
fn warnings_are_about_the_settings_in_force_flags_included() {
    let open = "can be reached from the network, and anyone there can use up any limit";
    let said = stop(Service::spawn(serve(&["--resp", "0.0.0.0:0"])));
    assert!(said.contains("flags: listen.resp: 0.0.0.0:0") && said.contains(open), "{said}");
    let rules = "listen: { resp_password: 5f1c2d3e4b6a7988 }\nrules: [{ name: a, key: '{ip}', limit: 2/h }]";
    let file = tollkeeper_testkit::file(rules, "yaml");
    let said = stop(Service::spawn(serve(&["--resp", "0.0.0.0:0", "--config", &file])));
    assert!(!said.contains(open) && !said.contains("has no effect"), "{said}");
}

/// Without a configuration every front starts, and a second service on the same machine must not fail because of
/// that.
#[test]
fn a_taken_port_is_trouble_only_where_somebody_asked_for_it() {
    // Another process may have it already, which is just as good.
    let _taken = TcpListener::bind("127.0.0.1:6380");
    let service = Service::spawn(serve(&[]));
    assert!(!service.greeting.iter().any(|line| line.contains("redis")), "{:?}", service.greeting);
    let said = stop(service);
    assert!(said.contains("listen.resp: cannot listen on 127.0.0.1:6380"), "{said}");
    assert!(said.contains("continuing without it"), "{said}");
    let output = serve(&["--resp", "127.0.0.1:6380"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("listen.resp: cannot listen on 127.0.0.1:6380"));
}
