//! A primary and a replica, watched by three sentinels.

use std::collections::HashMap;

use super::server::{Kind, Launch, Server};
use crate::wait_until;

const SERVICE: &str = "mymaster";

/// One primary, one replica, three sentinels with a quorum of two.
pub struct Sentinels {
    /// All three.
    pub sentinels: Vec<Server>,
    /// The first one starts as the primary.
    pub data: Vec<Server>,
}

impl Sentinels {
    /// Without a password.
    pub fn start() -> Sentinels {
        Sentinels::launch(None)
    }

    /// Clients of the primary and the replica need a user and a password; those of the sentinels do not.
    pub fn start_with_password(user: &str, password: &str) -> Sentinels {
        Sentinels::launch(Some((user, password)))
    }

    fn launch(login: Option<(&str, &str)>) -> Sentinels {
        let data = |primary: Option<u16>| {
            Server::launch(|_| {
                let mut options = vec!["--repl-diskless-sync-delay".to_string(), "0".into()];
                if let Some((user, password)) = login {
                    options.extend(["--user", "default", "off", "--user", user, "on"].map(String::from));
                    options.extend([format!(">{password}"), "~*".into(), "&*".into(), "+@all".into()]);
                    options.extend(["--masteruser", user, "--masterauth", password].map(String::from));
                }
                if let Some(port) = primary {
                    options.extend(["--replicaof".into(), "127.0.0.1".into(), port.to_string()]);
                }
                let login = login.map(|(user, password)| (user.to_string(), password.to_string()));
                Launch { login, ..Launch::new(Kind::Redis7, options) }
            })
        };
        let primary = data(None);
        let replica = data(Some(primary.port));
        let config = watch(primary.port, login);
        let sentinel = |_| {
            Server::launch(|_| Launch { config: Some(config.clone()), ..Launch::new(Kind::Redis7, ["--sentinel"]) })
        };
        let all = Sentinels { sentinels: (0..3).map(sentinel).collect(), data: vec![primary, replica] };
        for sentinel in &all.sentinels {
            // By default sentinels greet each other every two seconds and look at replicas every ten, and a machine
            // that stood still for two seconds would delay a failover by thirty. The ping period stays at its
            // default: a replica not heard of within five of them is not promoted, and during a failover it is heard
            // of once a second.
            let periods = ["INFO-PERIOD", "100", "PUBLISH-PERIOD", "100", "ASK-PERIOD", "100", "TILT-PERIOD", "500"];
            sentinel.execute(&[&["SENTINEL", "DEBUG"], &periods[..]].concat());
        }
        wait_until("the sentinels know all", || all.sentinels.iter().all(knows_all) && all.is_replicating());
        all
    }

    /// From now on the sentinels work at their default pace, as in production: then one that failed over as planned
    /// leaves the old primary writable for about ten seconds.
    pub fn slow_down(&self) {
        for sentinel in &self.sentinels {
            let periods = ["INFO-PERIOD", "10000", "PUBLISH-PERIOD", "2000", "ASK-PERIOD", "1000"];
            sentinel.execute(&[&["SENTINEL", "DEBUG"], &periods[..]].concat());
        }
    }

    /// Where the sentinels listen.
    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect()
    }

    /// The name by which sentinels know the primary.
    pub fn service(&self) -> &'static str {
        SERVICE
    }

    /// The port of the primary, as the first sentinel that answers says.
    pub fn primary_port(&self) -> u16 {
        self.answers().next().expect("a sentinel is alive")
    }

    /// Kills the current primary, like a crash; its port.
    pub fn kill_primary(&mut self) -> u16 {
        let port = self.primary_port();
        self.data.iter_mut().filter(|server| server.port == port).for_each(Server::kill);
        port
    }

    /// Makes the sentinels promote the replica while the primary is healthy; the port of the old primary.
    pub fn fail_over(&self) -> u16 {
        let old_port = self.primary_port();
        // While the primary is healthy, a replica is promoted only if it was heard of within three of these periods.
        self.sentinels[0].execute(&["SENTINEL", "DEBUG", "INFO-PERIOD", "10000"]);
        wait_until("the sentinels have promoted the replica", || {
            // Repeated in case it failed; refused while a failover is in progress.
            let _ = self.sentinels[0].ask::<()>(&["SENTINEL", "FAILOVER", SERVICE]);
            self.answers().next().is_some_and(|port| port != old_port)
        });
        old_port
    }

    /// Waits until all sentinels that answer name another primary and it accepts writes; its port.
    pub fn wait_for_failover(&self, old_port: u16) -> u16 {
        wait_until("the sentinels name a new primary", || self.answers().all(|port| port != old_port));
        let port = self.primary_port();
        wait_until("it is a primary", || self.is_primary(port));
        port
    }

    /// Whether the server on this port takes itself for a primary.
    pub fn is_primary(&self, port: u16) -> bool {
        self.data(port).ask(&["INFO", "replication"]).is_ok_and(is_primary)
    }

    /// The server on this port.
    pub fn data(&self, port: u16) -> &Server {
        self.data.iter().find(|server| server.port == port).unwrap_or_else(|| panic!("no server on port {port}"))
    }

    /// Starts the server on this port again after it was killed: empty, and as a primary until the sentinels demote it.
    pub fn restart(&mut self, port: u16) {
        self.data.iter_mut().filter(|server| server.port == port).for_each(|server| {
            let options = &mut server.launch.options;
            if let Some(at) = options.iter().position(|option| option == "--replicaof") {
                options.drain(at..at + 3);
            }
            server.restart();
        });
    }

    fn answers(&self) -> impl Iterator<Item = u16> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        self.sentinels.iter().filter_map(move |one| one.ask::<(String, u16)>(&words).ok()).map(|(_, port)| port)
    }

    fn is_replicating(&self) -> bool {
        let replication = self.data[1].ask::<String>(&["INFO", "replication"]);
        replication.is_ok_and(|replication| replication.contains("master_link_status:up"))
    }
}

/// The config file of a sentinel, which rewrites it with what it discovers.
fn watch(primary: u16, login: Option<(&str, &str)>) -> String {
    let mut config = format!("sentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n");
    let mut set = |option: &str, value: &str| config.push_str(&format!("sentinel {option} {SERVICE} {value}\n"));
    set("down-after-milliseconds", "500");
    set("failover-timeout", "2000");
    if let Some((user, password)) = login {
        set("auth-user", user);
        set("auth-pass", password);
    }
    config
}

/// Whether it sees a healthy replica and the two other sentinels.
fn knows_all(sentinel: &Server) -> bool {
    let primary = sentinel.ask::<HashMap<String, String>>(&["SENTINEL", "MASTER", SERVICE]);
    let replicas = sentinel.ask::<Vec<HashMap<String, String>>>(&["SENTINEL", "REPLICAS", SERVICE]);
    let (Ok(primary), Ok(replicas)) = (primary, replicas) else { return false };
    let is_well =
        |replica: &HashMap<String, String>| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
    primary["flags"] == "master" && primary["num-other-sentinels"] == "2" && replicas.iter().any(is_well)
}

fn is_primary(replication: String) -> bool {
    replication.contains("role:master")
}
