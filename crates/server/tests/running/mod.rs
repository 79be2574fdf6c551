//! The binary as a running service, gone when dropped.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each test uses a part.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The binary, deaf to what the developer has set.
pub fn tollkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    let is_heard = |name: &str| name.starts_with("TOLLKEEPER_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_heard(name)) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// A file in a folder of this run.
pub fn file(text: &str, ending: &str) -> String {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("running-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.{ending}", FILES.fetch_add(1, Relaxed)));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

pub struct Running {
    child: Child,
    pub http: String,
    /// Where gRPC is served, if it is.
    pub grpc: Option<String>,
    /// Where the Redis protocol is served, if it is.
    pub resp: Option<String>,
    log: String,
}

impl Running {
    /// On these rules, with free ports.
    pub fn on(rules: &str, more: &[&str]) -> Running {
        let config = file(rules, "yaml");
        let args = ["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--config", &config];
        Running::start(&[&args, more].concat())
    }

    pub fn start(args: &[&str]) -> Running {
        Running::spawn(tollkeeper(args))
    }

    /// A command that may have variables set.
    pub fn spawn(mut command: Command) -> Running {
        let log = file("", "log");
        let stderr = std::fs::File::create(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().expect("the service starts and says what it listens on");
        let http = first.split("://").nth(1).expect("an address").trim().to_string();
        let rest: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("try:")).collect();
        let grpc = rest.iter().find_map(|line| line.strip_prefix("grpc: ")).and_then(|line| line.split(',').next());
        let grpc = grpc.map(str::to_string);
        let resp = rest.iter().find_map(|line| line.strip_prefix("listening on redis")?.split("://").nth(1));
        let resp = resp.map(str::to_string);
        // What it says later must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Running { child, http, grpc, resp, log }
    }

    pub fn get(&self, path: &str) -> String {
        self.ask("GET", path, "")
    }

    /// The whole answer to a request with this body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let (host, length) = (&self.http, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}");
        write!(stream, "{head}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has logged this so many times.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str, times: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap();
            if log.matches(text).count() >= times {
                return;
            }
            assert!(Instant::now() < deadline, "{text:?} is not {times} times in the log:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it has logged this, and says what it logged.
    #[track_caller]
    pub fn until_logged(&self, text: &str) -> String {
        self.wait_for_log(text, 1);
        self.log()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
