//! The binary as a service and as a command, with what it says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::{Value, json};

pub(crate) use crate::postgres::{Postgres, wait_until};

/// The binary, deaf to what the developer has set.
pub(crate) fn tollkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLKEEPER_") || name.starts_with("PG")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// `tollkeeper rules ARGS` on a database.
pub(crate) fn rules(url: &str, args: &[&str]) -> Output {
    tollkeeper(&[&["rules"], args].concat()).env("TOLLKEEPER_RULES_FROM", url).output().unwrap()
}

/// The same when it must work; what it prints.
#[track_caller]
pub(crate) fn rules_fine(url: &str, args: &[&str]) -> String {
    let output = rules(url, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn path(ending: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{}.{ending}", MADE.fetch_add(1, Relaxed)))
}

/// A file with these lines.
pub(crate) fn file(text: &str) -> String {
    let path = path("yaml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

/// One rule, `a`, of so many a day.
pub(crate) fn rule_file(limit: u32) -> String {
    file(&format!("rules: [{{name: a, key: global, limit: {limit}/day}}]"))
}

/// A service on the rules of a database; ended when dropped.
pub(crate) struct Instance {
    child: Child,
    address: String,
    pub(crate) greeting: Vec<String>,
    log: PathBuf,
}

impl Instance {
    pub(crate) fn on(url: &str) -> Instance {
        Instance::with(url, &[])
    }

    pub(crate) fn with(url: &str, more: &[&str]) -> Instance {
        Instance::try_with(url, more).unwrap_or_else(|said| panic!("the service does not start: {said}"))
    }

    /// A service, or what it says when it does not start.
    pub(crate) fn try_with(url: &str, more: &[&str]) -> Result<Instance, String> {
        let config = file("listen: { http: '127.0.0.1:0' }");
        Instance::start(&[&["serve", "--config", &config], more].concat(), url)
    }

    /// What these arguments start.
    pub(crate) fn start(args: &[&str], url: &str) -> Result<Instance, String> {
        let log = path("log");
        let stderr = std::fs::File::create(&log).unwrap();
        let mut child =
            tollkeeper(args).env("TOLLKEEPER_RULES_FROM", url).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let greeting: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("try:")).collect();
        if greeting.is_empty() {
            let code = child.wait().unwrap().code();
            return Err(format!("exit {code:?}: {}", std::fs::read_to_string(&log).unwrap()));
        }
        let address = greeting[0].split("http://").nth(1).expect("an address").trim().to_string();
        // What it says later must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Instance { child, address, greeting, log })
    }

    /// The same, asked at another address that it has told.
    pub(crate) fn at(mut self, label: &str) -> Instance {
        let told = self.greeting.iter().find_map(|line| line.strip_prefix(label));
        self.address = told.expect("an address").to_string();
        self
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Status, head and body of an answer.
    pub(crate) fn ask(&self, request: &str, headers: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, head.to_lowercase(), body.to_string())
    }

    pub(crate) fn json(&self, request: &str, headers: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, _, body) = self.ask(request, headers, &body);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, answer) = self.json(&format!("GET {path}"), "", &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, _, page) = self.ask("GET /metrics", "", "");
        let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
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

    /// How many of so many requests pass.
    pub(crate) fn passes(&self, times: usize) -> usize {
        let allowed = |_: &usize| self.json("POST /v1/check", "", &json!({})).1["allowed"] == json!(true);
        (0..times).filter(allowed).count()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
