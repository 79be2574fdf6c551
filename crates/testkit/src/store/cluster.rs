//! A Redis Cluster in which tests trigger failovers and slot migrations.

use std::process::Command;

use super::server::{Kind, Launch, Server};
use crate::program::system;
use crate::{free_port, wait_until};

/// Three primaries with a replica each.
pub struct Cluster {
    /// All six.
    pub nodes: Vec<Server>,
    password: Option<String>,
}

impl Cluster {
    /// One whose failover takes a few seconds.
    pub fn start() -> Cluster {
        Cluster::launch(1_000, None)
    }

    /// A failover takes about two to five times the timeout.
    pub fn start_with(node_timeout_ms: u32) -> Cluster {
        Cluster::launch(node_timeout_ms, None)
    }

    /// With a password for clients and nodes.
    pub fn start_with_password(password: &str) -> Cluster {
        Cluster::launch(1_000, Some(password))
    }

    fn launch(node_timeout_ms: u32, password: Option<&str>) -> Cluster {
        let launch = |_| {
            let (timeout, bus) = (node_timeout_ms.to_string(), free_port().to_string());
            let mut options = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout];
            options.extend(["--cluster-port", &bus, "--repl-diskless-sync-delay", "0"]);
            if let Some(password) = password {
                options.extend(["--requirepass", password, "--masterauth", password]);
            }
            let login = password.map(|password| (String::new(), password.to_string()));
            Launch { login, ..Launch::new(Kind::Redis7, options) }
        };
        let nodes: Vec<Server> = (0..6).map(|_| Server::launch(launch)).collect();
        let output = Command::new(system("redis-cli"))
            .args(password.into_iter().flat_map(|password| ["-a", password]))
            .args(["--cluster", "create"])
            .args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)))
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .unwrap_or_else(|error| panic!("cannot run redis-cli: {error}"));
        assert!(output.status.success(), "no cluster: {}", String::from_utf8_lossy(&output.stdout));
        let cluster = Cluster { nodes, password: password.map(str::to_string) };
        wait_until("the cluster is complete", || cluster.nodes.iter().all(Cluster::is_ready));
        cluster
    }

    /// Names two of the nodes: clients discover the others.
    pub fn url(&self) -> String {
        let password = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis+cluster://{password}127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port, self.nodes[5].port)
    }

    /// The node on a port.
    pub fn node(&self, port: u16) -> &Server {
        self.nodes.iter().find(|node| node.port == port).unwrap_or_else(|| panic!("no node on port {port}"))
    }

    /// The hash slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes.iter().find_map(|node| node.ask(&["CLUSTER", "KEYSLOT", key]).ok()).expect("a node is alive")
    }

    /// The port of the primary of a slot, as the first node that answers sees it.
    pub fn primary_of(&self, slot: u16) -> u16 {
        let primary = self.views().find_map(|view| primary_in(&view, slot));
        primary.unwrap_or_else(|| panic!("nobody serves slot {slot}"))
    }

    /// The ports of the nodes that serve slots.
    pub fn primaries(&self) -> Vec<u16> {
        let view = self.views().next().expect("a node is alive");
        view.iter().filter(|node| node.is_serving()).map(|node| node.port).collect()
    }

    /// Kills the primary of a slot, like a crash; its port.
    pub fn kill_primary_of(&mut self, slot: u16) -> u16 {
        let port = self.primary_of(slot);
        self.nodes.iter_mut().filter(|node| node.port == port).for_each(Server::kill);
        port
    }

    /// Makes a replica of this slot's primary take over while the primary is healthy; the port of the old primary.
    pub fn fail_over(&self, slot: u16) -> u16 {
        let port = self.primary_of(slot);
        let id = id_of(self.node(port));
        let is_its_replica = |node: &&Server| {
            node.ask::<Vec<redis::Value>>(&["ROLE"])
                .is_ok_and(|role| matches!(&role[..], [_, _, redis::Value::Int(of), ..] if *of == i64::from(port)))
        };
        let replica = self.nodes.iter().find(is_its_replica).unwrap_or_else(|| panic!("{id} has no replica"));
        replica.execute(&["CLUSTER", "FAILOVER"]);
        port
    }

    /// Waits until all nodes that answer are healthy and agree on a new primary of the slot; its port.
    pub fn wait_for_new_primary(&self, slot: u16, old_port: u16) -> u16 {
        wait_until("the slot has a new primary", || self.agree(slot, |port| port != old_port) && self.is_up());
        self.primary_of(slot)
    }

    /// Moves a slot with all of its keys, as `redis-cli --cluster reshard` does.
    pub fn migrate_slot(&self, slot: u16, to: u16) {
        self.begin_migration(slot, self.primary_of(slot), to);
        while self.move_keys(slot, 100) > 0 {}
        self.finish_migration(slot, to);
    }

    /// From now on the old primary answers ASK for keys that it lacks, and TRYAGAIN for calls of which it has only
    /// some keys.
    pub fn begin_migration(&self, slot: u16, from: u16, to: u16) {
        let (slot, from, to) = (slot.to_string(), self.node(from), self.node(to));
        to.execute(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        from.execute(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    }

    /// Moves up to `most` keys of a migrating slot; how many it moved.
    pub fn move_keys(&self, slot: u16, most: usize) -> usize {
        let (from, slot, most) = (self.node(self.primary_of(slot)), slot.to_string(), most.to_string());
        let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]).unwrap();
        if keys.is_empty() {
            return 0;
        }
        let view = view_of(from).unwrap();
        let sign = format!("[{slot}->-");
        let target = view.iter().flat_map(|node| &node.slots).find_map(|word| word.strip_prefix(&sign));
        let target = target.unwrap_or_else(|| panic!("slot {slot} is not being migrated")).trim_end_matches(']');
        let to = view.iter().find(|node| node.id == target).unwrap().port.to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &to, "", "0", "5000"];
        command.extend(self.password.iter().flat_map(|password| ["AUTH", password]));
        command.push("KEYS");
        command.extend(keys.iter().map(String::as_str));
        from.execute(&command);
        keys.len()
    }

    /// Gives the slot to its new primary; all of its keys must have been moved.
    pub fn finish_migration(&self, slot: u16, to: u16) {
        let id = id_of(self.node(to));
        // The new primary first: otherwise the old one could take the slot back in between.
        let others = self.primaries().into_iter().filter(|port| *port != to);
        for port in [to].into_iter().chain(others) {
            self.node(port).execute(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
        }
        wait_until("all nodes know the slot's new primary", || self.agree(slot, |port| port == to));
    }

    /// Removes all keys.
    pub fn flush(&self) {
        self.primaries().into_iter().for_each(|port| self.node(port).execute(&["FLUSHALL"]));
    }

    /// Each answering node's view of all nodes.
    fn views(&self) -> impl Iterator<Item = Vec<Known>> {
        self.nodes.iter().filter_map(view_of)
    }

    fn agree(&self, slot: u16, is_expected: impl Fn(u16) -> bool) -> bool {
        let seen: Vec<_> = self.views().map(|view| primary_in(&view, slot)).collect();
        seen.windows(2).all(|pair| pair[0] == pair[1]) && seen[0].is_some_and(is_expected)
    }

    fn is_up(&self) -> bool {
        let states = self.nodes.iter().filter_map(|node| node.ask::<String>(&["CLUSTER", "INFO"]).ok());
        states.into_iter().all(|info| info.contains("cluster_state:ok"))
    }

    /// Whether it sees three linked replicas, and if it is one, its own link is up. `cluster_state:ok` comes earlier.
    fn is_ready(node: &Server) -> bool {
        let ask = |words: &[&str]| node.ask::<String>(words);
        let (Ok(info), Ok(nodes), Ok(replication)) =
            (ask(&["CLUSTER", "INFO"]), ask(&["CLUSTER", "NODES"]), ask(&["INFO", "replication"]))
        else {
            return false;
        };
        let replicas = nodes.lines().filter(|line| line.contains("slave") && line.contains(" connected")).count();
        info.contains("cluster_state:ok") && replicas == 3 && !replication.contains("master_link_status:down")
    }
}

/// A node as another one sees it: a line of `CLUSTER NODES`.
struct Known {
    id: String,
    port: u16,
    flags: String,
    /// Slots and ranges of slots; for the node that was asked, also migrations.
    slots: Vec<String>,
}

impl Known {
    /// `id 127.0.0.1:port@bus flags primary ping pong epoch link slot slot ...`
    fn parse(line: &str) -> Option<Known> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = words.get(1)?.split(['@', ',']).next()?.rsplit(':').next()?.parse().ok()?;
        let slots = words.iter().skip(8).map(|word| word.to_string()).collect();
        Some(Known { id: words[0].into(), port, flags: words.get(2)?.to_string(), slots })
    }

    /// A primary that is not known to be dead.
    fn is_serving(&self) -> bool {
        let mut flags = self.flags.split(',');
        !self.slots.is_empty() && flags.clone().any(|flag| flag == "master") && flags.all(|flag| flag != "fail")
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }
}

fn view_of(node: &Server) -> Option<Vec<Known>> {
    let nodes: String = node.ask(&["CLUSTER", "NODES"]).ok()?;
    Some(nodes.lines().filter_map(Known::parse).collect())
}

fn primary_in(view: &[Known], slot: u16) -> Option<u16> {
    view.iter().find(|node| node.is_serving() && node.has(slot)).map(|node| node.port)
}

fn id_of(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"]).unwrap()
}
