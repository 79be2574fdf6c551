//! Third-party proxies, each configured by its folder in `examples`, with other ports.
//!
//! `TOLLKEEPER_ENVOY` names another Envoy than the one that `./run setup` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::http::Client;
use crate::program::{packaged, pinned, repository, system};
use crate::wait::PATIENCE;
use crate::{Folder, Process, free_port};

/// Which proxy.
#[allow(missing_docs)] // Their names say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Traefik,
    Caddy,
    Haproxy,
    Envoy,
}

impl Kind {
    fn binary(self) -> PathBuf {
        match self {
            Kind::Nginx => system("nginx"),
            Kind::Haproxy => system("haproxy"),
            Kind::Traefik => pinned("traefik"),
            Kind::Caddy => pinned("caddy"),
            Kind::Envoy => packaged("envoy/_bin/envoy", "TOLLKEEPER_ENVOY"),
        }
    }

    /// The command from the example's first lines, or nearly so.
    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new(self.binary());
        match self {
            Kind::Nginx => {
                // The example is only a part of a configuration; this is the minimal rest.
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

/// What to change in an example. A change that matches nothing fails, because the test would then pass for the wrong
/// reason.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Which proxy reads it.
    pub kind: Kind,
    /// The folder in `examples`.
    pub example: &'a str,
    /// The port on which the example's proxy listens.
    pub own_port: u16,
    /// Other ports in the example, and their replacements.
    pub ports: &'a [(u16, u16)],
    /// Texts in the example, and what replaces them.
    pub changes: &'a [(&'a str, &'a str)],
}

/// A running proxy, stopped when dropped.
pub struct Proxy {
    kind: Kind,
    process: Process,
    /// Where it listens.
    pub port: u16,
    _folder: Folder,
}

impl Proxy {
    /// Starts it and waits until it answers a request with a status for which `is_ready` holds.
    pub fn start(setup: &Setup, is_ready: impl Fn(u16) -> bool) -> Proxy {
        let (kind, mut log) = (setup.kind, String::new());
        // Another process may take the port first; then the proxy exits at once.
        for _ in 0..5 {
            let mut proxy = Proxy::spawn(setup);
            let watcher = Client::to(&proxy.address());
            let deadline = Instant::now() + PATIENCE;
            while proxy.process.is_running() {
                let answer = watcher.try_send("GET", "/ready", "");
                if answer.as_ref().is_ok_and(|answer| is_ready(answer.status)) {
                    return proxy;
                }
                assert!(Instant::now() < deadline, "{kind:?} runs but lets nothing pass: {answer:?}");
                sleep(Duration::from_millis(20));
            }
            log = proxy.process.log();
        }
        panic!("{kind:?} does not start with examples/{}; its log says:\n{log}", setup.example);
    }

    fn spawn(setup: &Setup) -> Proxy {
        let (port, folder) = (free_port(), Folder::new());
        let numbers: Vec<(u16, u16)> = setup.ports.iter().copied().chain([(setup.own_port, port)]).collect();
        // Replaced in two steps: a new port such as 23000 must not be mistaken for one that is still to be replaced.
        let words = numbers.iter().map(|(old, _)| (old.to_string(), format!("PORT-{old}-")));
        let renumbered = numbers.iter().map(|(old, new)| (format!("PORT-{old}-"), new.to_string()));
        let changes = setup.changes.iter().map(|(from, to)| (from.to_string(), to.to_string()));
        // Texts come last: they may hold paths that contain any number.
        let all: Vec<(String, String)> = words.chain(renumbered).chain(changes).collect();
        copy_changed(&repository().join("examples").join(setup.example), &folder, &all);
        let process = Process::spawn(&mut setup.kind.command(folder.path()), folder.join("log"));
        Proxy { kind: setup.kind, process, port, _folder: folder }
    }

    /// Its address as a string.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx stops its workers only on a graceful signal. Other proxies would take too long.
        if self.kind == Kind::Nginx && self.process.is_running() {
            self.process.signal("-TERM");
            let deadline = Instant::now() + Duration::from_secs(2);
            while Instant::now() < deadline && self.process.is_running() {
                sleep(Duration::from_millis(10));
            }
        }
        self.process.kill();
    }
}

fn copy_changed(example: &Path, folder: &Folder, changes: &[(String, String)]) {
    let mut missing: Vec<&str> = changes.iter().map(|(from, _)| from.as_str()).collect();
    let files = fs::read_dir(example).unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    for file in files.flatten() {
        let mut text = fs::read_to_string(file.path()).unwrap();
        for (from, to) in changes {
            if text.contains(from) {
                missing.retain(|missing| missing != from);
                text = text.replace(from, to);
            }
        }
        fs::write(folder.path().join(file.file_name()), text).unwrap();
    }
    assert!(missing.is_empty(), "{} does not say {missing:?}", example.display());
}
