//! Proxies as their examples set them up, on free ports and in folders of their own; gone when dropped.
//!
//! nginx and HAProxy come from the system, the others from `target/tools`, where `./run setup` puts them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::client::Client;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Nginx,
    Traefik,
    Caddy,
    Haproxy,
    Envoy,
}

impl Kind {
    fn example(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Traefik => "traefik",
            Kind::Caddy => "caddy",
            Kind::Haproxy => "haproxy",
            Kind::Envoy => "envoy-ext-authz",
        }
    }

    fn binary(self) -> PathBuf {
        let tools = repository().join("target/tools");
        let places: Vec<PathBuf> = match self {
            Kind::Nginx => on_path("nginx"),
            Kind::Haproxy => on_path("haproxy"),
            Kind::Traefik => vec![tools.join("bin/traefik")],
            Kind::Caddy => vec![tools.join("bin/caddy")],
            Kind::Envoy => {
                let pythons = fs::read_dir(tools.join("lib")).into_iter().flatten().flatten();
                pythons.map(|python| python.path().join("site-packages/envoy/_bin/envoy")).collect()
            }
        };
        let found = places.iter().find(|path| path.exists());
        found.cloned().unwrap_or_else(|| panic!("no {self:?} in {places:?}; run ./run setup to install the proxies"))
    }

    /// As the example's first lines say, or nearly so.
    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new(self.binary());
        match self {
            Kind::Nginx => {
                // The example is a part of a configuration; this is the least that the rest can be.
                let rest = "daemon off; pid nginx.pid; events {} http { access_log off; client_body_temp_path body; \
                            proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi; \
                            include tollkeeper.conf; }";
                fs::write(folder.join("nginx.conf"), rest).unwrap();
                command.arg("-p").arg(folder).args(["-e", "stderr", "-c"]).arg(folder.join("nginx.conf"))
            }
            Kind::Traefik => command.arg("--configFile=traefik.yaml"),
            Kind::Caddy => command.args(["run", "--config", "Caddyfile"]),
            Kind::Haproxy => command.args(["-f", "haproxy.cfg"]),
            Kind::Envoy => command.args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]),
        };
        // Caddy writes into its user's home.
        command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    }
}

/// Where the proxy finds the others.
#[derive(Clone, Copy)]
pub struct Ports {
    pub tollkeeper: u16,
    pub application: u16,
}

pub struct Proxy {
    kind: Kind,
    pub port: u16,
    child: Child,
    folder: PathBuf,
}

impl Proxy {
    pub fn start(kind: Kind, ports: Ports, changes: &[(&str, &str)]) -> Proxy {
        let mut log = String::new();
        // Another process may take a port between finding and using it; then the proxy ends at once.
        for _ in 0..5 {
            let mut proxy = Proxy::spawn(kind, ports, changes);
            let watcher = Client::new(Ipv4Addr::LOCALHOST, SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.port)));
            let deadline = Instant::now() + Duration::from_secs(20);
            while proxy.child.try_wait().is_ok_and(|status| status.is_none()) {
                let answer = watcher.try_send("GET", "/ready", "");
                if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                    return proxy;
                }
                assert!(Instant::now() < deadline, "{kind:?} runs but lets nothing pass: {answer:?}");
                sleep(Duration::from_millis(20));
            }
            log = fs::read_to_string(proxy.folder.join("log")).unwrap_or_default();
        }
        panic!("{kind:?} does not start with examples/{}; its log says:\n{log}", kind.example());
    }

    fn spawn(kind: Kind, ports: Ports, changes: &[(&str, &str)]) -> Proxy {
        let port = free_port();
        let folder = new_folder(kind);
        // By way of words: a new port such as 23000 must not be taken for one that is still to be replaced.
        let words = [("8080", "TOLLKEEPER-PORT"), ("3000", "APPLICATION-PORT"), ("8000", "PROXY-PORT")];
        let numbers = [ports.tollkeeper, ports.application, port].map(|port| port.to_string());
        let renumbered = words.iter().zip(&numbers).map(|((_, word), number)| (*word, number.as_str()));
        let all: Vec<_> = changes.iter().copied().chain(words).chain(renumbered).collect();
        copy_changed(&examples().join(kind.example()), &folder, &all);

        let log = fs::File::create(folder.join("log")).unwrap();
        let child = kind
            .command(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {kind:?}: {error}"));
        Proxy { kind, port, child, folder }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Only if it is asked politely does nginx take its workers along. Others take their time.
        if self.kind == Kind::Nginx {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let deadline = Instant::now() + Duration::from_secs(2);
            while Instant::now() < deadline && self.child.try_wait().is_ok_and(|status| status.is_none()) {
                sleep(Duration::from_millis(10));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Copies an example. A change that finds nothing to change would let the test pass for the wrong reason.
fn copy_changed(example: &Path, folder: &Path, changes: &[(&str, &str)]) {
    let mut missing: Vec<&str> = changes.iter().map(|(from, _)| *from).collect();
    let files = fs::read_dir(example).unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    for file in files.flatten() {
        let mut text = fs::read_to_string(file.path()).unwrap();
        for (from, to) in changes {
            if text.contains(from) {
                missing.retain(|missing| missing != from);
                text = text.replace(from, to);
            }
        }
        fs::write(folder.join(file.file_name()), text).unwrap();
    }
    assert!(missing.is_empty(), "{} does not say {missing:?}", example.display());
}

pub fn examples() -> PathBuf {
    repository().join("examples")
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A port that nobody listens on. Not one of those that the system gives to clients, because any connection might take
/// it while the server is away.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(100);
    let mut candidates = (0..10_000).map(|_| 20_000 + (first + NEXT.fetch_add(1, Relaxed)) % 10_000);
    let free = candidates.find_map(|port| TcpListener::bind(("127.0.0.1", port as u16)).ok()?.local_addr().ok());
    free.expect("a free port between 20000 and 30000").port()
}

/// Debian puts servers where only root's path looks.
fn on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join(name)).collect()
}

fn new_folder(kind: Kind) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    let name = format!("{}-{}-{number}", kind.example(), std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}
