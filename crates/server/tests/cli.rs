//! The binary as people run it: exit codes, messages, replay in virtual time, and a service that starts and stops.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::{Descriptor, Limiter, ManualClock, MemoryStore, Span, Timestamp};
use tollkeeper_testkit::store::{Cluster, Kind, Server};
use tollkeeper_testkit::{Folder, Service, file, tollkeeper, wait_until};

pub(crate) fn run(args: &[&str], input: &(impl AsRef<[u8]> + ?Sized)) -> Output {
    let mut child =
        tollkeeper(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // Written from another thread, so that neither side blocks on a full pipe.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const FREE_USER: &str = "
rules:
  - name: free-user
    scope: user
    key: '{user_id}'
    limit: 10/s
    burst: 50
";

#[test]
fn exit_codes_distinguish_fine_no_and_trouble() {
    let good = file(FREE_USER, "yaml");
    let bad = file("rules: [{name: a, key: global, limit: ten/s}]", "yaml");
    let code = |args: &[&str]| run(args, "").status.code().unwrap();
    assert_eq!(code(&["--help"]), 0);
    assert_eq!(code(&["no-such-verb"]), 2);
    assert_eq!(code(&["validate", &good]), 0);
    assert_eq!(code(&["validate", &bad]), 1);
    assert_eq!(code(&["validate", "no-such-file.yaml"]), 2);
    assert_eq!(code(&["check", "--config", &good, "user_id=1"]), 0);
    assert_eq!(code(&["check", "--config", &good, "--times", "51", "user_id=1"]), 1);
    assert_eq!(code(&["check", "--config", &good, "user_id"]), 2);
    assert_eq!(code(&["replay", "--config", &bad]), 2);
    assert_eq!(code(&["serve", "--config", &bad]), 2);
    assert_eq!(code(&["serve", "--headers", "draft-12"]), 2);
    assert_eq!(code(&["serve", "--store", "redis://127.0.0.1:1"]), 2);
}

#[test]
fn validate_points_at_the_place() {
    let folder = Folder::new();
    let bad = folder.join("place.yaml");
    std::fs::write(&bad, "rules:\n  - name: slow\n    key: global\n    limit: ten/s\n").unwrap();
    let bad = bad.to_str().unwrap();
    let output = run(&["validate", bad], "");
    let text = stderr(&output);
    assert!(text.contains("place.yaml:4:12: rules[0].limit: rule `slow`: \"ten/s\""), "{text}");
    assert!(text.contains("  4 |     limit: ten/s\n    |            ^"), "{text}");
    let output = run(&["validate", "--json", bad], "");
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["valid"], json!(false));
    assert_eq!(answer["problems"][0]["line"], json!(4));
    assert_eq!(answer["problems"][0]["field"], json!("rules[0].limit"));
}

#[test]
fn check_explains_itself() {
    let config = file(FREE_USER, "yaml");
    let denied = stdout(&run(&["check", "--config", &config, "--times", "51", "user_id=42"], ""));
    assert!(denied.starts_with("denied by free-user for key \"42\": passes in 100 ms\n"), "{denied}");
    let skipped = stdout(&run(&["check", "--config", &config], ""));
    assert!(skipped.starts_with("allowed: no rule applies\n"), "{skipped}");
    assert!(skipped.contains("does not apply: its key needs `user_id`"), "{skipped}");
    let json = stdout(&run(&["check", "--json", "--config", &config, "user_id=42"], ""));
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["rules"][0]["remaining"], json!(49));
}

#[test]
fn every_flag_has_an_environment_variable() {
    let config = file(FREE_USER, "yaml");
    let output = tollkeeper(&["check", "user_id=1"])
        .env("TOLLKEEPER_CONFIG", config)
        .env("TOLLKEEPER_TIMES", "51")
        .env("TOLLKEEPER_JSON", "true")
        .output()
        .unwrap();
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["limiting"], json!("free-user"));
}

#[test]
fn replay_writes_what_the_contract_shows() {
    let config = file(FREE_USER, "yaml");
    let event = r#"{"at_us": 3000000, "attributes": {"user_id": "42"}, "cost": 1}"#;
    let output = run(&["replay", "--config", &config], event);
    assert_eq!(
        stdout(&output).replace(", ", ",").replace(": ", ":"),
        concat!(
            r#"{"at_us":3000000,"allowed":true,"limiting":null,"retry_after_us":0,"rules":[{"rule":"free-user","#,
            r#""scope":"user","key":"42","allowed":true,"shadow":false,"limit":50,"remaining":49,"retry_after_us":0,"#,
            r#""reset_after_us":100000}]}"#,
            "\n"
        )
    );
}

#[test]
fn replay_keeps_what_it_decided_before_a_bad_line() {
    let config = file(FREE_USER, "yaml");
    let good = r#"{"at_us": 1, "attributes": {"user_id": "42"}}"#;
    for bad in
        ["{", "[]", "{\"at_us\": -1}", "{\"at_us\": 1, \"attributes\": {\"a\": 1}}", "{\"at_us\": 1, \"const\": 2}"]
    {
        let output = run(&["replay", "--config", &config], &format!("{good}\n{bad}\n{good}\n"));
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert_eq!(stdout(&output).lines().count(), 1, "{bad}");
        assert!(stderr(&output).contains("line 2"), "{bad}: {}", stderr(&output));
    }
}

/// Threads share the work of a replay, block by block. The plain way is one loop that decides an event and writes its line.
#[test]
fn replay_writes_on_many_threads_what_a_plain_loop_writes() {
    let config = file(SHARED_BY_ALL, "yaml");
    let (mut events, mut chance) = (Vec::new(), 7u64);
    for number in 0..9_000u64 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (user, cost) = ((chance >> 33) % 300, (chance >> 50) % 5);
        events.push((number * 900, format!("u\"{user}"), cost as u32));
    }
    let plain = plain_replay(&events);
    let line = |(at_us, user, cost): &(u64, String, u32)| {
        json!({ "at_us": at_us, "attributes": { "user_id": user, "path": "/items" }, "cost": cost }).to_string() + "\n"
    };
    // An empty line is none; the last one needs no end.
    let input: String = events.iter().map(line).collect::<String>().replacen('\n', "\r\n\n", 1);
    assert!(input.len() > 2 << 18, "several blocks");
    let from_file = run(&["replay", "--config", &config, "--input", &file(&input, "jsonl")], "");
    assert!(stdout(&from_file) == plain, "from a file: {}", stderr(&from_file));
    let from_pipe = run(&["replay", "--config", &config], input.trim_end());
    assert!(stdout(&from_pipe) == plain, "from a pipe: {}", stderr(&from_pipe));
    // Whatever was understood before a mistake is decided, and nothing after it.
    let (before, after) = input.split_at(input.len() / 2);
    let (before, rest) = before.rsplit_once('\n').unwrap();
    let broken = run(&["replay", "--config", &config], &format!("{before}\n{{\n{rest}{after}"));
    let decided = before.lines().filter(|line| !line.is_empty()).count();
    assert!(stdout(&broken).lines().eq(plain.lines().take(decided)));
    let said = format!("line {}: this is not JSON", before.lines().count() + 1);
    assert!(broken.status.code() == Some(2) && stderr(&broken).contains(&said), "{}", stderr(&broken));
}

const SHARED_BY_ALL: &str = "
rules:
  - { name: per-user, scope: user, key: '{user_id}', limit: 10/s, burst: 3 }
  - { name: everybody, key: global, limit: 2000/s }
  - { name: watched, key: '{path}', limit: 100/s, mode: shadow }
";

fn plain_replay(events: &[(u64, String, u32)]) -> String {
    let clock = ManualClock::default();
    let rules = tollkeeper::file::parse(Path::new("rules.yaml"), SHARED_BY_ALL).expect("valid rules");
    let limiter = Limiter::new(rules.policy, MemoryStore::with(10_000, clock.clone()));
    let mut text = String::new();
    for (at_us, user, cost) in events {
        clock.set(Timestamp::from_micros(*at_us));
        let request = Descriptor::new([("user_id", user.as_str()), ("path", "/items")]).with_cost(*cost);
        let verdict = limiter.try_check(&request).unwrap();
        let limiting = verdict.limiting().map(|row| row.charge.rule.name());
        let wait = |span: Option<Span>| json!(span.map(Span::as_micros));
        let rows = verdict.rows().iter().map(|row| {
            let (rule, decision) = (&row.charge.rule, &row.decision);
            format!(
                r#"{{"rule":"{}","scope":{},"key":{},"allowed":{},"shadow":{},"limit":{},"remaining":{},"retry_after_us":{},"reset_after_us":{}}}"#,
                rule.name(),
                json!(rule.scope()),
                json!(row.charge.key.value),
                decision.is_allowed(),
                rule.is_shadow(),
                decision.limit,
                decision.remaining,
                wait(decision.retry_after()),
                decision.reset_after.as_micros(),
            )
        });
        text.push_str(&format!(
            r#"{{"at_us":{at_us},"allowed":{},"limiting":{},"retry_after_us":{},"rules":[{}]}}"#,
            verdict.is_allowed(),
            json!(limiting),
            wait(verdict.retry_after()),
            rows.collect::<Vec<_>>().join(",")
        ));
        text.push('\n');
    }
    text
}

/// The test waited forever once: the only answer that nobody would read had been written.
#[test]
fn replay_answers_each_event_at_once_and_ends_when_nobody_reads() {
    let config = file(FREE_USER, "yaml");
    let mut child =
        tollkeeper(&["replay", "--config", &config]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut events, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for number in 0..5 {
        writeln!(events, r#"{{"at_us": {number}, "attributes": {{"user_id": "42"}}}}"#).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(&format!(r#"{{"at_us":{number},"allowed":true"#)), "{answer}");
    }
    drop(answers);
    // Again and again: a process that another test starts has this pipe too until it runs its own program, and meanwhile an answer can
    // be written. Its input stays open.
    wait_until("it has ended", || {
        // An error means that it just did.
        let _ = writeln!(events, r#"{{"at_us": 9, "attributes": {{"user_id": "42"}}}}"#);
        child.try_wait().unwrap().is_some()
    });
}

/// The model that wrote the vectors is independent of this program.
#[test]
fn replay_answers_as_the_independent_model_does() {
    let vectors = include_str!("../../core/tests/vectors/verdicts.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let rules: Vec<Value> = case["rules"].as_array().unwrap().iter().map(rule_of).collect();
        let config = file(&json!({ "rules": rules }).to_string(), "json");
        let events = case["events"].as_array().unwrap();
        let input: String = events.iter().map(|event| format!("{}\n", event_of(event))).collect();
        let output = run(&["replay", "--config", &config], &input);
        assert!(output.status.success(), "{}", stderr(&output));
        let answers = stdout(&output);
        assert_eq!(answers.lines().count(), events.len());
        for (answer, event) in answers.lines().zip(events) {
            let answer: Value = serde_json::from_str(answer).unwrap();
            for field in ["at_us", "allowed", "limiting", "retry_after_us"] {
                assert_eq!(answer[field], event[field], "{field} of {event}");
            }
            let (rows, expected) = (answer["rules"].as_array().unwrap(), event["rules"].as_array().unwrap());
            assert_eq!(rows.len(), expected.len(), "{event}");
            for (row, expected) in rows.iter().zip(expected) {
                for (field, value) in expected.as_object().unwrap() {
                    let is_bucket = row.get(field).is_some() || field != "delay_us";
                    assert!(!is_bucket || &row[field] == value, "{field} of {row} should be {value}");
                }
            }
        }
    }
}

/// The same events give the same lines, byte for byte, whatever the store. Some rules of a request lie in different
/// hash slots of the cluster.
#[test]
fn replay_over_redis_writes_what_it_writes_over_memory() {
    let vectors: Value = serde_json::from_str(include_str!("../../core/tests/vectors/verdicts.json")).unwrap();
    let single = Kind::ALL.map(Server::start);
    let cluster = Cluster::start();
    let urls: Vec<String> = single.iter().map(Server::url).chain([cluster.url()]).collect();
    for (index, case) in vectors["cases"].as_array().unwrap().iter().enumerate() {
        let rules: Vec<Value> = case["rules"].as_array().unwrap().iter().map(rule_of).collect();
        let config = json!({ "store": { "timeout": "5s" }, "rules": rules }).to_string();
        let config = file(&config, "json");
        let events: String =
            case["events"].as_array().unwrap().iter().map(|event| format!("{}\n", event_of(event))).collect();
        let memory = run(&["replay", "--config", &config], &events);
        assert!(memory.status.success() && !memory.stdout.is_empty());
        // Live limits are neither read nor changed.
        for server in &single {
            redis::cmd("SET").arg("tollkeeper:{live}0:rule").arg("1").exec(&mut server.connect()).unwrap();
        }
        for url in &urls {
            let redis = run(&["replay", "--config", &config, "--store", url], &events);
            assert!(redis.status.success(), "{}", stderr(&redis));
            assert_eq!(stdout(&redis), stdout(&memory), "{url}, case {index}");
        }
        for server in &single {
            let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connect()).unwrap();
            assert_eq!(keys, ["tollkeeper:{live}0:rule"], "nothing is left behind");
        }
    }
}

fn rule_of(rule: &Value) -> Value {
    let quota = &rule["quota"];
    let millis = quota["period_us"].as_u64().unwrap() / 1_000;
    json!({
        "name": rule["name"], "key": rule["key"], "when": rule["when"], "cost": rule["cost"], "mode": rule["mode"],
        "limit": format!("{}/{millis}ms", quota["count"]), "burst": quota["burst"], "algorithm": quota["algorithm"],
    })
}

fn event_of(event: &Value) -> Value {
    json!({ "at_us": event["at_us"], "attributes": event["attributes"], "cost": event["cost"] })
}

#[test]
fn the_schema_describes_the_default() {
    let schema: Value = serde_json::from_str(&stdout(&run(&["schema"], ""))).unwrap();
    let rule = &schema["$defs"]["RuleSpec"];
    assert_eq!(rule["required"], json!(["name", "key", "limit"]));
    assert_eq!(rule["additionalProperties"], json!(false));
    assert!(rule["properties"]["algorithm"].is_object());
}

/// The service without configuration. The ports of the default may be in use by others.
fn serve(http: &str) -> Service {
    Service::start(&["serve", "--http", http, "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"])
}

#[test]
fn serve_without_configuration_says_what_to_try_and_it_works() {
    let service = serve("127.0.0.1:0");
    assert!(service.greeting[0].starts_with("tollkeeper "));
    let curl = service.greeting.iter().find(|line| line.contains("curl -d")).expect("a curl to try");
    let body = curl.split('\'').nth(1).unwrap();
    assert!(service.get("/healthz").starts_with("HTTP/1.1 200"));
    let answer = service.post("/v1/check", body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""rule":"free-user""#), "{answer}");
    let answer = service.get("/v1/authorize");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("ratelimit-policy: \"everybody\";q=2000;w=2,\"per-client\""), "{answer}");
}

#[test]
fn serve_denies_with_everything_a_client_needs() {
    let config = file("rules: [{name: tight, key: '{ip}', limit: 2/90s}]", "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config]);
    for _ in 0..2 {
        assert!(service.get("/v1/authorize").starts_with("HTTP/1.1 200"));
    }
    let answer = service.get("/v1/authorize").to_lowercase();
    assert!(answer.starts_with("http/1.1 429"), "{answer}");
    assert!(answer.contains("retry-after: 45"), "{answer}");
    assert!(answer.contains("content-type: application/problem+json"), "{answer}");
    assert!(answer.contains(r#""violated-policies":["tight"]"#), "{answer}");
}

#[test]
fn admin_does_not_start_on_an_open_address_without_a_token() {
    let service = serve("0.0.0.0:0");
    assert!(service.greeting.iter().any(|line| line.contains("admin: off")), "{:?}", service.greeting);
    assert!(service.get("/metrics").starts_with("HTTP/1.1 403"));
    assert!(service.get("/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn sigterm_ends_the_service_cleanly() {
    let service = serve("127.0.0.1:0");
    assert_eq!(service.get("/readyz").status, 200);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn sighup_reloads_the_rules_and_a_bad_file_changes_nothing() {
    let rule = |limit: &str| format!("rules: [{{name: a, key: global, limit: {limit}}}]");
    let config = file(&rule("5/day"), "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config]);
    let rules = || service.get("/v1/rules");
    // An empty file is probably one that is being written.
    for bad in ["rules: [", ""] {
        std::fs::write(&config, bad).unwrap();
        service.signal("-HUP");
        // The invalid file must have been seen before it is replaced, and there is no event to wait for.
        std::thread::sleep(Duration::from_millis(200));
        assert!(rules().contains("5/day"), "the last good rules stay");
    }
    std::fs::write(&config, rule("7/day")).unwrap();
    service.signal("-HUP");
    wait_until("the new rules are in force", || rules().contains("7/day"));
}

/// `tollkeeper health 127.0.0.1:8080` asked for a scheme.
#[test]
fn health_takes_the_address_of_a_service() {
    let service = Service::on("rules: [{ name: a, key: global, limit: 1/h }]", &[]);
    let (_, port) = service.http.rsplit_once(':').unwrap();
    for address in [service.http.clone(), format!("http://{}/readyz", service.http), format!(":{port}")] {
        let output = tollkeeper(&["health", &address]).output().unwrap();
        assert!(output.status.success(), "{address}: {output:?}");
    }
    let output = tollkeeper(&["health", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A status that has no name in the standard was answered as `420 <none>`.
#[test]
fn a_status_without_a_name_gets_one() {
    let service = Service::on("deny_status: 420\nrules: [{ name: a, key: global, limit: 1/h }]", &[]);
    service.get("/v1/authorize");
    let denied = service.get("/v1/authorize");
    assert!(denied.starts_with("HTTP/1.1 420 Client Error\r\n"), "{denied}");
}
