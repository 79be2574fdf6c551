//! All that a test needs: an application, Tollkeeper, and a proxy before them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::application::Application;
use super::client::Client;
use super::proxy::{Kind, Ports, Proxy, examples, free_port};

pub struct Site {
    pub application: Application,
    pub tollkeeper: Tollkeeper,
    proxy: Proxy,
}

impl Site {
    /// On the rules of the examples.
    pub fn start(kind: Kind, changes: &[(&str, &str)]) -> Site {
        let rules = std::fs::read_to_string(examples().join("tollkeeper.yaml")).unwrap();
        Site::start_on(kind, changes, &rules)
    }

    pub fn start_on(kind: Kind, changes: &[(&str, &str)], rules: &str) -> Site {
        let application = Application::start();
        let tollkeeper = Tollkeeper::start(free_port(), rules.to_string());
        let ports = Ports { tollkeeper: tollkeeper.port, application: application.port };
        let proxy = Proxy::start(kind, ports, changes);
        Site { application, tollkeeper, proxy }
    }

    /// Not 127.0.0.1, which is the proxy's, and trusted.
    pub fn client(&self, number: u8) -> Client {
        Client::new(Ipv4Addr::new(127, 0, 0, number), SocketAddr::from(([127, 0, 0, 1], self.proxy.port)))
    }

    #[allow(dead_code, reason = "not every test needs it")]
    pub fn proxy_port(&self) -> u16 {
        self.proxy.port
    }

    pub fn connections_to_tollkeeper(&self) -> usize {
        connections_to(self.tollkeeper.port)
    }
}

/// The connections that were opened to a port of this machine, those that ended lately included.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists its connections");
    // Each is there twice, once from either side; after its end, perhaps once.
    let place = format!("0100007F:{port:04X}");
    let ends = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        let other = if local == place { remote } else { local };
        (local == place || remote == place).then_some(other)
    });
    ends.collect::<BTreeSet<_>>().len()
}

/// The service.
pub struct Tollkeeper {
    child: Child,
    pub port: u16,
    rules: String,
    /// Held open: it has more to say than where it listens.
    _stdout: BufReader<ChildStdout>,
}

impl Tollkeeper {
    fn start(port: u16, rules: String) -> Tollkeeper {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("site-{port}.yaml"));
        std::fs::write(&file, &rules).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
        // Whatever the developer has set must not change the tests.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLKEEPER_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(["serve", "--http", &format!("127.0.0.1:{port}"), "--config"])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).unwrap();
        assert!(greeting.contains(&format!(":{port}")), "tollkeeper does not listen on port {port}: {greeting:?}");
        Tollkeeper { child, port, rules, _stdout: stdout }
    }

    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Where it was before, after it was killed.
    pub fn restart(&mut self) {
        *self = Tollkeeper::start(self.port, std::mem::take(&mut self.rules));
    }
}

impl Drop for Tollkeeper {
    fn drop(&mut self) {
        self.kill();
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
