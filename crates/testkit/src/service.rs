//! The `tollkeeper` binary: as a command, and as a service or a proxy that runs until it is dropped.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Process;
use crate::http::{self, Answer, Client};
use crate::scratch::{Folder, file};
use crate::wait::PATIENCE;

/// The binary that cargo built for the tests of `crates/server`; other crates' tests do not get one.
pub fn binary() -> PathBuf {
    let built = std::env::var_os("CARGO_BIN_EXE_tollkeeper");
    // A test run by hand, without cargo, lies in `deps` below it.
    let beside = || std::env::current_exe().ok()?.parent()?.parent().map(|folder| folder.join("tollkeeper"));
    built.map(PathBuf::from).or_else(beside).expect("a test of crates/server")
}

/// The binary, without environment variables that the developer may have set for it.
pub fn tollkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    let is_read = |name: &str| ["TOLLKEEPER_", "OTEL_", "PG"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_read) {
            command.env_remove(name);
        }
    }
    // Where services keep the tokens that they make, and commands find them: not among the developer's.
    command.env("XDG_RUNTIME_DIR", runtime_folder());
    command.args(args);
    command
}

/// A folder of this test process for what running services keep.
pub fn runtime_folder() -> PathBuf {
    static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::new);
    FOLDER.path().to_path_buf()
}

/// A running service or proxy. What it logs is kept; it is killed when dropped.
#[derive(Debug)]
pub struct Service {
    process: Process,
    /// Its HTTP address, or the proxy's.
    pub http: String,
    /// Its gRPC address, if any.
    pub grpc: Option<String>,
    /// Its address for the Redis protocol, if any.
    pub resp: Option<String>,
    /// The address of a proxy's admin API, if any.
    pub admin: Option<String>,
    /// The admin token made at start, if any. Clients of its addresses send it automatically.
    pub token: Option<String>,
    /// The first lines it printed, up to the suggested command.
    pub greeting: Vec<String>,
}

impl Service {
    /// `tollkeeper serve` on these rules, HTTP and gRPC on free ports.
    #[track_caller]
    pub fn on(rules: &str, more: &[&str]) -> Service {
        let config = file(rules, "yaml");
        let args = ["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--config", &config];
        Service::start(&[&args, more].concat())
    }

    /// `tollkeeper` with these arguments.
    #[track_caller]
    pub fn start(args: &[&str]) -> Service {
        Service::spawn(tollkeeper(args))
    }

    /// Runs a command that may have variables set.
    #[track_caller]
    pub fn spawn(command: Command) -> Service {
        Service::try_spawn(command).unwrap_or_else(|said| panic!("the service does not start: {said}"))
    }

    /// The same; the error says how it exited and what it printed.
    pub fn try_spawn(mut command: Command) -> Result<Service, String> {
        let mut process = Process::spawn_with_output(&mut command, file("", "log").into());
        let output = process.child.stdout.take().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        // Read to the end, so that later output does not block it.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
        });
        let mut greeting: Vec<String> = Vec::new();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => greeting.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it runs, and has only said {greeting:?}: {}", process.log()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let code = process.wait().code();
                    return Err(format!("exit {code:?}: {}", process.log()));
                }
            }
            // The last line of both `serve` and `proxy`: a command to try.
            if greeting.last().is_some_and(|line| line.contains("curl") && line.contains(" -i ")) {
                return Ok(Service::greeted(process, greeting));
            }
        }
    }

    fn greeted(process: Process, greeting: Vec<String>) -> Service {
        let after = |label: &str| greeting.iter().find_map(|line| Some(line.split_once(label)?.1.to_string()));
        let at = |label: &str| Some(after(label)?.split_once("://")?.1.trim().to_string());
        let http = at("listening on http").unwrap_or_else(|| panic!("no address in {greeting:?}"));
        let grpc = after("grpc: ").map(|rest| rest.split(',').next().unwrap_or_default().to_string());
        let (resp, admin) = (at("listening on redis"), at("admin: http"));
        // An address of all interfaces cannot be connected to.
        let http = http.replace("0.0.0.0", "127.0.0.1");
        let token = after("/#token=");
        if let Some(token) = &token {
            http::remember_token(admin.as_ref().unwrap_or(&http), token);
        }
        Service { process, http, grpc, resp, admin, token, greeting }
    }

    /// A client of its HTTP address.
    pub fn client(&self) -> Client {
        Client::to(&self.http)
    }

    /// Sends a GET.
    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.client().get(target)
    }

    /// Sends a POST.
    #[track_caller]
    pub fn post(&self, target: &str, body: &str) -> Answer {
        self.client().post(target, body)
    }

    /// Sends `POST /v1/check`, which must be answered 200.
    #[track_caller]
    pub fn check(&self, body: &Value) -> Value {
        let answer = self.post("/v1/check", &body.to_string());
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    }

    /// The value of a series that must be among its metrics.
    #[track_caller]
    pub fn metric(&self, series: &str) -> f64 {
        let page = self.get("/metrics");
        http::metric(&page, series).unwrap_or_else(|| panic!("no {series} in {page}"))
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Sends a signal, such as `-HUP`.
    pub fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until it has logged this text this many times.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.log().matches(text).count() < times {
            let log = self.log();
            assert!(Instant::now() < deadline, "{text:?} is not {times} times in the log:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it has logged this text, and returns the whole log.
    #[track_caller]
    pub fn until_logged(&self, text: &str) -> String {
        self.wait_for_log(text, 1);
        self.log()
    }

    /// Asks it to stop and waits for it to exit; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.wait()
    }

    /// Waits for it to exit, by itself or after a signal; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}
