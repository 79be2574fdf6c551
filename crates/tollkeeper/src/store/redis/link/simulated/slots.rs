//! Which server of a cluster owns which hash slot, and a slot that is on its way to another one.

use super::data::Reply;

/// The map of a cluster.
#[derive(Debug)]
pub(super) struct Slots {
    hosts: Vec<String>,
    /// For each slot the position of its owner.
    owners: Vec<u8>,
    migration: Option<Migration>,
}

/// A slot whose keys move one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    pub(super) slot: usize,
    from: u8,
    to: u8,
}

const COUNT: usize = 16_384;

impl Slots {
    /// Each host has an equal part.
    pub(super) fn divided(hosts: &[String]) -> Slots {
        let owners = (0..COUNT).map(|slot| (slot * hosts.len() / COUNT) as u8).collect();
        Slots { hosts: hosts.to_vec(), owners, migration: None }
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn map(&self) -> Reply {
        let mut ranges: Vec<(usize, usize, u8)> = Vec::new();
        for (slot, owner) in self.owners.iter().enumerate() {
            match ranges.last_mut() {
                Some((_, last, of)) if of == owner => *last = slot,
                _ => ranges.push((slot, slot, *owner)),
            }
        }
        let range = |(first, last, owner): (usize, usize, u8)| {
            let (host, port) = self.hosts[usize::from(owner)].split_once(':').expect("host and port");
            let node = vec![Reply::Text(host.into()), Reply::Number(port.parse().expect("a port"))];
            Reply::List(vec![Reply::Number(first as i64), Reply::Number(last as i64), Reply::List(node)])
        };
        Reply::List(ranges.into_iter().map(range).collect())
    }

    /// Another server takes the place of one that failed; false if that owns nothing, or if a slot is on its way.
    pub(super) fn replace(&mut self, host: &str, by: &str) -> bool {
        let known = self.hosts.iter_mut().find(|known| *known == host).filter(|_| self.migration.is_none());
        known.map(|known| *known = by.to_string()).is_some()
    }

    /// Whether a failover of this server is possible now.
    pub(super) fn is_settled(&self, host: &str) -> bool {
        self.migration.is_none() && self.hosts.iter().any(|known| known == host)
    }

    /// The slot of this key begins to move to the next server: from where, and where to.
    pub(super) fn begin(&mut self, key: &str) -> Option<(Migration, String, String)> {
        if self.migration.is_some() || self.hosts.len() < 2 {
            return None;
        }
        let slot = slot_of(key.as_bytes());
        let from = self.owners[slot];
        let migration = Migration { slot, from, to: (from + 1) % self.hosts.len() as u8 };
        self.migration = Some(migration);
        Some((migration, self.hosts[usize::from(from)].clone(), self.hosts[usize::from(migration.to)].clone()))
    }

    /// The slot that moves has a new owner: from where, and where to.
    pub(super) fn end(&mut self) -> Option<(Migration, String, String)> {
        let migration = self.migration.take()?;
        self.owners[migration.slot] = migration.to;
        let [from, to] = [migration.from, migration.to].map(|host| self.hosts[usize::from(host)].clone());
        Some((migration, from, to))
    }

    /// What a server answers instead of running a command on these keys, as Redis 7 does; `None` if it runs it.
    pub(super) fn redirect(
        &self,
        host: &str,
        keys: &[Vec<u8>],
        is_asking: bool,
        has: impl Fn(&[u8]) -> bool,
    ) -> Option<Reply> {
        let slot = slot_of(keys.first()?);
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Some(Reply::Error("ERR CROSSSLOT Keys in request don't hash to the same slot".into()));
        }
        let missing = keys.iter().filter(|key| !has(key)).count();
        let try_again = || Some(Reply::Error("TRYAGAIN Multiple keys request during rehashing of slot".into()));
        let at = |host: u8| &self.hosts[usize::from(host)];
        let owner = at(self.owners[slot]);
        match self.migration.filter(|migration| migration.slot == slot) {
            Some(migration) if owner == host && missing > 0 => {
                if missing < keys.len() {
                    return try_again();
                }
                Some(Reply::Error(format!("ASK {slot} {}", at(migration.to))))
            }
            Some(migration) if at(migration.to) == host && is_asking => {
                if keys.len() > 1 && missing > 0 {
                    try_again()
                } else {
                    None
                }
            }
            _ if owner == host => None,
            _ => Some(Reply::Error(format!("MOVED {slot} {owner}"))),
        }
    }
}

/// The slot of a key: of the text in its first braces, if there is any.
pub(super) fn slot_of(key: &[u8]) -> usize {
    let open = key.iter().position(|byte| *byte == b'{').map(|at| at + 1);
    let tag = open.and_then(|open| {
        let length = key[open..].iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
        Some(&key[open..open + length])
    });
    usize::from(crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key))) % COUNT
}
