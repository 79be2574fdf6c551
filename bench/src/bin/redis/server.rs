//! A real server: started as a child on a free port in a temporary folder, gone when dropped.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

pub struct Server {
    child: Child,
    dir: PathBuf,
    port: u16,
}

/// Processor time that a server has used so far, in microseconds.
#[derive(Clone, Copy)]
pub struct Cpu {
    pub process: f64,
    /// The thread that runs commands; the same as `process` where the server does not tell.
    pub main_thread: f64,
}

impl Server {
    pub fn start() -> Server {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("tollkeeper-bench-{}-{}", std::process::id(), STARTED.fetch_add(1, Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary folder");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port on 127.0.0.1").port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run redis-server: {error}; run ./run setup to install it"));
        let server = Server { child, dir, port };
        let answers = |_| {
            std::thread::sleep(Duration::from_millis(5));
            server.try_connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection)).is_ok()
        };
        assert!((0..2_000).any(answers), "redis-server does not answer on port {port}");
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("a valid URL")
    }

    fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        self.client().get_connection()
    }

    /// Runs one command on a connection of its own.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let asked =
            self.try_connect().and_then(|mut connection| redis::cmd(words[0]).arg(&words[1..]).query(&mut connection));
        asked.unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")))
    }

    /// One section of `INFO`, its numbers by name.
    pub fn info(&self, section: &str) -> HashMap<String, f64> {
        let text: String = self.ask(&["INFO", section]);
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.filter_map(|(name, value)| Some((name.to_string(), value.trim().parse().ok()?))).collect()
    }

    pub fn version(&self) -> String {
        let text: String = self.ask(&["INFO", "server"]);
        let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version.unwrap_or("of unknown version").trim().to_string()
    }

    /// Scripts that were run so far.
    pub fn calls(&self) -> u64 {
        let text: String = self.ask(&["INFO", "commandstats"]);
        let scripts = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        scripts.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    pub fn cpu(&self) -> Cpu {
        let info = self.info("cpu");
        let micros = |suffix: &str| {
            let seconds = |mode: &str| info.get(&format!("used_cpu_{mode}{suffix}"));
            Some((seconds("user")? + seconds("sys")?) * 1e6)
        };
        let process = micros("").expect("INFO cpu tells");
        Cpu { process, main_thread: micros("_main_thread").unwrap_or(process) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
