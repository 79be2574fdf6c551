//! The RESP front as clients meet it: the real binary, and redis-cli, redis-benchmark, redis-py, ioredis and the redis
//! crate talking to it.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../tollkeeper/tests/servers/mod.rs"]
mod servers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use redis::{Connection, Value};
use servers::{Cluster, Kind, Server};

/// The deadline is for a busy machine: no test here is about being late.
const RULES: &str = "
store: { timeout: 2s }
rules:
  - { name: everybody, key: global, limit: 1_000_000/s }
  - { name: free-user, key: '{user_id}', limit: 10/min, burst: 50, when: { plan: free } }
";
const PASSWORD: &str = "open sesame";

fn tollkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    // Whatever the developer has set must not change the tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLKEEPER_")) {
        command.env_remove(name);
    }
    command.args(["serve", "--http", "127.0.0.1:0"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running service; ended when dropped.
struct Service {
    child: Child,
    greeting: Vec<String>,
    port: u16,
}

impl Service {
    /// By the rules above.
    fn start(more: &[&str]) -> Service {
        let config = file("rules.yaml", RULES);
        let args = ["--resp", "127.0.0.1:0", "--config", &config];
        Service::spawn(tollkeeper(&args).args(more))
    }

    fn spawn(command: &mut Command) -> Service {
        let mut child = command.spawn().unwrap();
        let mut greeting = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            let is_last = line.contains("/v1/authorize");
            greeting.push(line);
            if is_last {
                break;
            }
        }
        let port = greeting.iter().find_map(|line| line.strip_prefix("listening on redis://127.0.0.1:")?.parse().ok());
        Service { child, greeting, port: port.unwrap_or(0) }
    }

    fn connect(&self, options: &str) -> Connection {
        assert_ne!(self.port, 0, "it does not listen: {:?}", self.greeting);
        let url = format!("redis://127.0.0.1:{}/{options}", self.port);
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    /// Bytes as they are, on a connection of their own.
    fn raw(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    fn redis_cli(&self, args: &[&str]) -> String {
        let port = self.port.to_string();
        said(run("redis-cli", Command::new("redis-cli").args(["-p", &port]).args(args)))
    }

    /// Ends it as an orchestrator does, and returns what it said on its error output.
    fn stop(mut self) -> String {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{said}");
        said
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(name: &str, text: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("resp");
    std::fs::create_dir_all(&folder).unwrap();
    // Written once for all tests, which run at the same time.
    let path = folder.join(name);
    let own = folder.join(format!("{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&own, text).unwrap();
    std::fs::rename(&own, &path).unwrap();
    path.to_str().unwrap().to_string()
}

fn run(tool: &str, command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {tool}: {error}; run ./run setup to install it"))
}

fn said(output: Output) -> String {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}{err}");
    format!("{out}{err}")
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/resp").join(name)
}

fn throttle(connection: &mut Connection, key: &str, numbers: &[i64]) -> Vec<i64> {
    redis::cmd("CL.THROTTLE").arg(key).arg(numbers).query(connection).unwrap()
}

#[test]
fn redis_cli_speaks_both_versions() {
    let service = Service::start(&[]);
    assert_eq!(service.redis_cli(&["PING"]), "PONG\n");
    assert_eq!(service.redis_cli(&["CL.THROTTLE", "user123", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(service.redis_cli(&["-2", "CL.THROTTLE", "other", "15", "30", "60", "17"]), "1\n16\n16\n-1\n0\n");
    let verdict = service.redis_cli(&["-3", "--json", "TOLLKEEPER.CHECK", "user_id", "42", "plan", "free"]);
    let verdict: serde_json::Value = serde_json::from_str(&verdict).unwrap();
    assert_eq!(verdict["allowed"], true);
    assert_eq!(verdict["rules"][1]["remaining"], 49);
    // What the first lines say to try is worth trying.
    let hint = service.greeting.iter().find_map(|line| line.trim().strip_prefix("redis-cli ")).unwrap();
    let tried = run("redis-cli", Command::new("redis-cli").args(hint.split(' ')));
    assert_eq!(said(tried), "0\n16\n15\n-1\n2\n");
}

#[test]
fn redis_benchmark_completes_without_errors() {
    let redis = Server::start(Kind::Redis7);
    for store in ["memory:".to_string(), redis.url()] {
        let service = Service::start(&["--store", &store]);
        for (depth, requests) in [("1", "5000"), ("16", "50000")] {
            let mut command = Command::new("redis-benchmark");
            command.args(["-p", &service.port.to_string(), "-q", "-n", requests, "-P", depth, "-r", "1000"]);
            command.args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]);
            let output = said(run("redis-benchmark", &mut command));
            assert!(output.contains("requests per second"), "{output}");
            assert!(!output.to_lowercase().contains("err") && !output.contains("WARNING"), "{output}");
        }
    }
}

#[test]
fn redis_py_in_both_versions() {
    let service = Service::start(&["--resp-password", PASSWORD]);
    let mut python = Command::new(tools().join("bin/python"));
    python.arg(script("client.py")).args([&service.port.to_string(), PASSWORD]);
    assert_eq!(said(run("redis-py", &mut python)), "redis-py: fine\n");
}

#[test]
fn ioredis() {
    let service = Service::start(&["--resp-password", PASSWORD]);
    let packages = tools().join("node_tests_resp");
    assert!(packages.exists(), "no {}; run ./run setup to install ioredis", packages.display());
    let mut node = Command::new("node");
    node.arg(script("client.mjs")).arg(packages).args([&service.port.to_string(), PASSWORD]);
    assert_eq!(said(run("node", &mut node)), "ioredis: fine\n");
}

#[test]
fn the_redis_crate_in_both_versions() {
    let service = Service::start(&[]);
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
    let services = [Service::start(&["--store", &url]), Service::start(&["--store", &url])];
    let mut connections = services.each_ref().map(|service| service.connect(""));
    for n in 0..10 {
        let answer = throttle(&mut connections[n % 2], "shared", &[9, 1, 3_600]);
        assert_eq!(answer[..4], [0, 10, 9 - n as i64, -1], "request {n}");
    }
    for connection in &mut connections {
        let answer = throttle(connection, "shared", &[9, 1, 3_600]);
        assert_eq!(answer[..3], [1, 10, 0]);
        assert!((3_590..=3_600).contains(&answer[3]), "{answer:?}");
        // Other numbers, the same bucket: 36,000 s are owed of 72,000.
        assert_eq!(throttle(connection, "shared", &[19, 1, 3_600, 0])[..3], [0, 20, 10]);
    }
    // A pipeline that names one key with many quotas: decided one after the other all the same.
    let mut pipeline = redis::pipe();
    for n in 0..50 {
        pipeline.cmd("CL.THROTTLE").arg("mixed").arg(&[99 + n % 5, 1, 3_600]);
    }
    let answers: Vec<Vec<i64>> = pipeline.query(&mut connections[0]).unwrap();
    assert!(answers.iter().all(|answer| answer[0] == 0), "{answers:?}");
    assert_eq!(throttle(&mut connections[1], "mixed", &[99, 1, 3_600, 0])[2], 50);
    // A store that is away is an error, and not a client at its limit.
    redis.kill();
    let lost: redis::RedisResult<Value> =
        redis::cmd("CL.THROTTLE").arg("new").arg(&[9, 1, 3_600]).query(&mut connections[0]);
    let error = lost.expect_err("nobody can know").to_string();
    assert!(error.contains("the store is unavailable"), "{error}");
    assert_eq!(services[0].redis_cli(&["PING"]), "PONG\n");
}

/// Keys of one pipeline live on different nodes, and each is charged in the order of its commands.
#[test]
fn a_pipeline_over_a_cluster_is_answered_in_order() {
    let cluster = Cluster::start();
    let service = Service::start(&["--store", &cluster.url()]);
    let mut pipeline = redis::pipe();
    for n in 0..600 {
        pipeline.cmd("CL.THROTTLE").arg(format!("key{}", n % 200)).arg(&[9, 1, 3_600]);
    }
    let answers: Vec<Vec<i64>> = pipeline.query(&mut service.connect("")).unwrap();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer[..4], [0, 10, 9 - n as i64 / 200, -1], "command {n}");
    }
    // Odd keys are text as well as any other.
    for key in ["", "{", "}", "{}a", "a}b{c"] {
        assert_eq!(throttle(&mut service.connect(""), key, &[0, 1, 3_600])[..4], [0, 1, 0, -1], "{key:?}");
    }
}

#[test]
fn who_abuses_the_protocol_hurts_nobody_else() {
    let service = Service::start(&[]);
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
            // It may be cut off while it still sends.
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
    assert!(!service.stop().contains("panic"));
}

#[test]
fn the_password_comes_from_the_environment_and_is_not_shown() {
    let config = file("rules.yaml", RULES);
    let mut command = tollkeeper(&["--resp", "127.0.0.1:0", "--config", &config, "--log", "trace"]);
    let service = Service::spawn(command.env("TOLLKEEPER_RESP_PASSWORD", PASSWORD));
    assert_eq!(service.redis_cli(&["PING"]), "NOAUTH Authentication required.\n\n");
    assert_eq!(service.redis_cli(&["--no-auth-warning", "-a", PASSWORD, "PING"]), "PONG\n");
    assert_eq!(service.redis_cli(&["--no-auth-warning", "-3", "--user", "default", "-a", PASSWORD, "PING"]), "PONG\n");
    let greeting = service.greeting.join("\n");
    assert!(!format!("{greeting}{}", service.stop()).contains(PASSWORD));
}

/// With no configuration every front starts by itself, and a second service on the machine must not fail for it.
#[test]
fn a_taken_port_is_trouble_only_where_somebody_asked_for_it() {
    // Somebody else may have it already, which is as good.
    let _taken = TcpListener::bind("127.0.0.1:6380");
    let service = Service::spawn(&mut tollkeeper(&[]));
    assert!(!service.greeting.iter().any(|line| line.contains("redis")), "{:?}", service.greeting);
    let said = service.stop();
    assert!(said.contains("listen.resp: cannot listen on 127.0.0.1:6380"), "{said}");
    assert!(said.contains("going on without it"), "{said}");
    let output = tollkeeper(&["--resp", "127.0.0.1:6380"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("listen.resp: cannot listen on 127.0.0.1:6380"));
}
