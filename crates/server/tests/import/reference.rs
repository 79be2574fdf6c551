//! Imported files against the answers of envoyproxy/ratelimit itself, call by call. `reference.py` says how they were recorded.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Folder, Service, free_port, tollkeeper, wait_until};

use crate::envoy_client::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitServiceClient};

/// One configuration, what was asked, and what the reference service answered.
struct Case(Value);

fn read(path: impl AsRef<std::path::Path>) -> Vec<Case> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| Case(serde_json::from_str(line).unwrap())).collect()
}

impl Case {
    fn domain(&self) -> String {
        self.0["config"]["domain"].as_str().unwrap().to_string()
    }

    fn calls(&self) -> Vec<RateLimitRequest> {
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let calls = self.0["calls"].as_array().unwrap().iter().map(|call| {
            let limit = call["limit"].as_array().map(|limit| RateLimitOverride {
                requests_per_unit: limit[0].as_u64().unwrap() as u32,
                unit: limit[1].as_i64().unwrap() as i32,
            });
            let descriptor = |entries: &Value| {
                let entries = entries.as_array().unwrap().iter();
                let entries = entries.map(|entry| Entry { key: text(&entry[0]), value: text(&entry[1]) }).collect();
                RateLimitDescriptor { entries, limit: limit.clone(), ..RateLimitDescriptor::default() }
            };
            let descriptors = call["descriptors"].as_array().unwrap().iter().map(descriptor).collect();
            RateLimitRequest { domain: self.domain(), descriptors, hits_addend: 0 }
        });
        calls.collect()
    }

    /// The overall code, then each descriptor's: code, limit, unit and what is left, if it has a limit.
    async fn ask(&self, client: &RateLimitServiceClient) -> Vec<Value> {
        let mut answers = Vec::new();
        for call in self.calls() {
            let answer = client.clone().should_rate_limit(call).await.unwrap().into_inner();
            let statuses = answer.statuses.iter().map(|status| match &status.current_limit {
                Some(limit) => json!([status.code, limit.requests_per_unit, limit.unit, status.limit_remaining]),
                None => json!([status.code]),
            });
            answers.push(json!([answer.overall_code, statuses.collect::<Vec<_>>()]));
        }
        answers
    }
}

/// Our answers under the imported files.
fn ours(cases: &[Case]) -> (Vec<Vec<Value>>, String) {
    let folder = folder(cases);
    let imported = folder.join("imported.txt");
    let args = [
        "import",
        "envoy-ratelimit",
        &folder.path().display().to_string(),
        "--output",
        &imported.display().to_string(),
    ]
    .map(str::to_string);
    let output = tollkeeper(&args.each_ref().map(String::as_str)).output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{report}");
    let service = Service::on(&fs::read_to_string(&imported).unwrap(), &[]);
    (ask_all(cases, service.grpc.as_ref().unwrap()), report)
}

/// A file for each domain, as the reference service reads them. JSON is YAML too.
fn folder(cases: &[Case]) -> Folder {
    let folder = Folder::new();
    for case in cases {
        fs::write(folder.join(&format!("{}.yaml", case.domain())), case.0["config"].to_string()).unwrap();
    }
    folder
}

#[tokio::main]
async fn ask_all(cases: &[Case], address: &str) -> Vec<Vec<Value>> {
    let client = RateLimitServiceClient::connect(address).await;
    let mut answers = Vec::new();
    for case in cases {
        answers.push(case.ask(&client).await);
    }
    answers
}

/// 4294967295 is one more than the largest limit, which the import reports.
fn without_the_last_one(answer: &Value) -> Value {
    let mut answer = answer.clone();
    for status in answer[1].as_array_mut().unwrap().iter_mut().filter(|status| status[1] == u32::MAX) {
        status[1] = json!(u32::MAX - 1);
        status[3] = json!(status[3].as_u64().unwrap() - 1);
    }
    answer
}

fn differences(cases: &[Case], ours: &[Vec<Value>]) -> Vec<String> {
    let mut found = Vec::new();
    for (case, ours) in cases.iter().zip(ours) {
        let theirs = case.0["answers"].as_array().unwrap();
        assert_eq!(theirs.len(), ours.len());
        for (number, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
            let theirs = without_the_last_one(theirs);
            if theirs != *ours {
                let call = &case.0["calls"][number];
                found.push(format!("{} call {number} {call}: reference {theirs}, ours {ours}", case.domain()));
                break;
            }
        }
    }
    found
}

/// An inner star was imported as a literal and never limited, `quota_mode` never denied, limits sent without a rule were
/// ignored, and a descriptor with an empty value had no bucket.
#[test]
fn imported_files_answer_as_the_reference_service_does() {
    let cases = read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import/reference.jsonl"));
    let (ours, report) = ours(&cases);
    let found = differences(&cases, &ours);
    let calls: usize = cases.iter().map(|case| case.0["calls"].as_array().unwrap().len()).sum();
    assert!(
        found.is_empty(),
        "{} of {} cases differ ({calls} calls)\n{}\n{report}",
        found.len(),
        cases.len(),
        found.join("\n")
    );
}

/// Records what the reference service answers, and compares at once.
#[test]
#[ignore = "needs a binary of envoyproxy/ratelimit; see reference.py"]
fn record_the_reference_service() {
    let named = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let mut cases = read(named("RATELIMIT_CASES"));
    let configs = folder(&cases);
    let (redis, ports) = (Server::start(Kind::Redis7), [free_port(), free_port(), free_port()]);
    let runtime = Folder::new();
    fs::create_dir(runtime.join("ratelimit")).unwrap();
    fs::rename(configs.path(), runtime.join("ratelimit/config")).unwrap();
    let mut service = Command::new(named("RATELIMIT_SERVICE"))
        .envs([("RUNTIME_ROOT", runtime.path().to_str().unwrap()), ("DISABLE_STATS", "true"), ("LOG_LEVEL", "WARN")])
        .envs([("RUNTIME_SUBDIRECTORY", "ratelimit"), ("RUNTIME_WATCH_ROOT", "false")])
        .envs([("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &*format!("127.0.0.1:{}", redis.port()))])
        .envs([
            ("PORT", ports[0].to_string()),
            ("GRPC_PORT", ports[1].to_string()),
            ("DEBUG_PORT", ports[2].to_string()),
        ])
        .envs([("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("DEBUG_HOST", "127.0.0.1")])
        .spawn()
        .unwrap();
    let address = format!("127.0.0.1:{}", ports[1]);
    wait_until("the reference service listens", || std::net::TcpStream::connect(&address).is_ok());
    let answers = ask_all(&cases, &address);
    service.kill().unwrap();
    service.wait().unwrap();
    for (case, answers) in cases.iter_mut().zip(answers) {
        case.0["answers"] = answers.into();
    }
    let lines: Vec<String> = cases.iter().map(|case| case.0.to_string()).collect();
    fs::write(named("RATELIMIT_ANSWERS"), lines.join("\n") + "\n").unwrap();
    let (ours, _) = ours(&cases);
    let found = differences(&cases, &ours);
    assert!(found.is_empty(), "{} of {} cases differ\n{}", found.len(), cases.len(), found.join("\n"));
}
