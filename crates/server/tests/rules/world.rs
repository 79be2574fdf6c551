//! The binary on rules in Postgres: as a service, and as a command.

use std::ops::Deref;
use std::process::{Command, Output};

use serde_json::{Value, json};
pub(crate) use tollkeeper_testkit::{Folder, Postgres, tollkeeper, wait_until};
use tollkeeper_testkit::{Service, http};

/// `tollkeeper rules ARGS` on a database.
pub(crate) fn rules(url: &str, args: &[&str]) -> Output {
    on_database(&[&["rules"], args].concat(), url).output().unwrap()
}

/// The same when it must succeed; its output.
#[track_caller]
pub(crate) fn rules_fine(url: &str, args: &[&str]) -> String {
    let output = rules(url, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn on_database(args: &[&str], url: &str) -> Command {
    let mut command = tollkeeper(args);
    command.env("TOLLKEEPER_RULES_FROM", url);
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file with these lines.
pub(crate) fn file(text: &str) -> String {
    tollkeeper_testkit::file(text, "yaml")
}

/// One rule, `a`, of this many per day.
pub(crate) fn rule_file(limit: u32) -> String {
    file(&format!("rules: [{{name: a, key: global, limit: {limit}/day}}]"))
}

/// A service with rules from a database.
pub(crate) struct Instance {
    service: Service,
    /// A client of its API of rules.
    client: http::Client,
}

impl Instance {
    pub(crate) fn on(url: &str) -> Instance {
        Instance::with(url, &[])
    }

    pub(crate) fn with(url: &str, more: &[&str]) -> Instance {
        Instance::try_with(url, more).unwrap_or_else(|said| panic!("the service does not start: {said}"))
    }

    /// A service, or its output if it does not start.
    pub(crate) fn try_with(url: &str, more: &[&str]) -> Result<Instance, String> {
        let config = file("listen: { http: '127.0.0.1:0' }");
        Instance::start(&[&["serve", "--config", &config], more].concat(), url)
    }

    /// The service that these arguments start.
    pub(crate) fn start(args: &[&str], url: &str) -> Result<Instance, String> {
        let service = Service::try_spawn(on_database(args, url))?;
        let client = http::Client::to(service.admin.as_ref().unwrap_or(&service.http));
        Ok(Instance { service, client })
    }

    /// The response to a request such as `GET /v1/rules`, with more headers, each a line.
    #[track_caller]
    pub(crate) fn ask(&self, request: &str, headers: &str, body: &str) -> http::Answer {
        let (method, target) = request.split_once(' ').expect("a method and a target");
        self.client.clone().with_lines(headers).send(method, target, body)
    }

    #[track_caller]
    pub(crate) fn json(&self, request: &str, headers: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.ask(request, headers, &body);
        (answer.status, answer.json())
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, answer) = self.json(&format!("GET {path}"), "", &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// The limit of a rule in force, as a text such as `5/day`.
    pub(crate) fn limit(&self, rule: &str) -> String {
        let rules = self.get("/v1/rules");
        let found = rules["rules"].as_array().unwrap().iter().find(|one| one["name"] == rule).cloned();
        found.map_or_else(String::new, |rule| rule["limit"].as_str().map_or(rule["limit"].to_string(), str::to_string))
    }

    #[track_caller]
    pub(crate) fn comes_to(&self, rule: &str, limit: &str) {
        wait_until(&format!("{rule} is {limit}"), || self.limit(rule) == limit);
    }

    /// How many of this many requests pass.
    pub(crate) fn passes(&self, times: usize) -> usize {
        (0..times).filter(|_| self.check(&json!({}))["allowed"] == json!(true)).count()
    }
}

impl Deref for Instance {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
