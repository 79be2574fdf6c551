//! The data of a simulated server, and the commands that the store and its scripts use.
//!
//! Only as much of Redis as they need. An unknown command is an error, so a script that begins to use another one fails
//! the simulation at once.

use std::collections::{BTreeMap, VecDeque};

/// What a server knows.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Data {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The server's time in microseconds, set before each command.
    pub(in crate::store::redis) now: u64,
    /// It has reached its `maxmemory`.
    pub(in crate::store::redis) is_full: bool,
    /// The script that runs has written: from then on a full server lets it go on.
    pub(super) has_written: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Stored,
    /// In milliseconds.
    until: Option<u64>,
}

#[derive(Clone, Debug)]
enum Stored {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Fields),
    Sorted(Scores),
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store::redis) enum Reply {
    Nil,
    Ok,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Error(String),
}

type Done = Result<Reply, String>;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

type Scores = BTreeMap<Vec<u8>, f64>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_ROOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

impl Data {
    /// Runs one command.
    pub(super) fn run(&mut self, words: &[Vec<u8>]) -> Reply {
        let Some((name, arguments)) = words.split_first() else { return Reply::Error("ERR no command".into()) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let may_grow = ["SET", "MSET", "PSETEX", "INCRBY", "RPUSH", "LPUSH", "LSET", "HSET", "HSETNX", "ZADD"]
            .contains(&name.as_str());
        if may_grow && self.is_full && !self.has_written {
            return Reply::Error(NO_ROOM.into());
        }
        let may_write = ["DEL", "HDEL", "PEXPIRE", "PEXPIREAT", "LREM", "LTRIM", "GETDEL", "ZREM", "ZREMRANGEBYSCORE"];
        self.has_written |= may_grow || may_write.contains(&name.as_str());
        let now_ms = self.now / 1_000;
        self.entries.retain(|_, entry| entry.until.is_none_or(|until| until > now_ms));
        self.command(&name, arguments).unwrap_or_else(Reply::Error)
    }

    /// Whether there is a key.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let now_ms = self.now / 1_000;
        self.entries.get(key).is_some_and(|entry| entry.until.is_none_or(|until| until > now_ms))
    }

    /// Moves keys to another server.
    pub(super) fn move_to(&mut self, other: &mut Data, mut is_moved: impl FnMut(&[u8]) -> bool) {
        let (moved, kept) = std::mem::take(&mut self.entries).into_iter().partition(|(key, _)| is_moved(key));
        self.entries = kept;
        other.entries.extend::<BTreeMap<_, _>>(moved);
    }

    fn command(&mut self, name: &str, words: &[Vec<u8>]) -> Done {
        let key = words.first().cloned().unwrap_or_default();
        let number = |at: usize| number(words.get(at));
        let now_ms = self.now / 1_000;
        Ok(match name {
            "ROLE" => Reply::List(vec![Reply::Text(b"master".to_vec())]),
            "PING" => Reply::Text(b"PONG".to_vec()),
            "TIME" => Reply::List(vec![text(self.now / 1_000_000), text(self.now % 1_000_000)]),
            "INFO" => Reply::Text(b"redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n".to_vec()),
            "GET" => self.text(&key)?.map_or(Reply::Nil, Reply::Text),
            "MGET" => {
                // A value of another type reads as none.
                let values = words.iter().map(|key| self.text(key).ok().flatten().map_or(Reply::Nil, Reply::Text));
                Reply::List(values.collect())
            }
            "GETDEL" => {
                let value = self.text(&key)?;
                self.entries.remove(&key);
                value.map_or(Reply::Nil, Reply::Text)
            }
            "SET" => {
                let has = |option: &str| words[2..].iter().any(|word| word.eq_ignore_ascii_case(option.as_bytes()));
                if has("NX") && self.entries.contains_key(&key) {
                    return Ok(Reply::Nil);
                }
                let kept = self.entries.get(&key).and_then(|entry| entry.until).filter(|_| has("KEEPTTL"));
                let until = if has("PX") { Some(now_ms + number(3)? as u64) } else { kept };
                self.entries.insert(key, Entry { value: Stored::Text(words[1].clone()), until });
                Reply::Ok
            }
            "PSETEX" => {
                let until = Some(now_ms + number(1)? as u64);
                self.entries.insert(key, Entry { value: Stored::Text(words[2].clone()), until });
                Reply::Ok
            }
            "MSET" => {
                for pair in words.chunks_exact(2) {
                    let entry = Entry { value: Stored::Text(pair[1].clone()), until: None };
                    self.entries.insert(pair[0].clone(), entry);
                }
                Reply::Ok
            }
            "INCRBY" => {
                let before = self.text(&key)?.map_or(Ok(0), |text| to_number(&text))?;
                let sum = before.checked_add(number(1)?).ok_or("ERR increment or decrement would overflow")?;
                let until = self.entries.get(&key).and_then(|entry| entry.until);
                self.entries.insert(key, Entry { value: Stored::Text(sum.to_string().into_bytes()), until });
                Reply::Number(sum)
            }
            "DEL" => {
                Reply::Number(words.iter().filter(|key| self.entries.remove(key.as_slice()).is_some()).count() as i64)
            }
            "PTTL" => Reply::Number(match self.entries.get(&key) {
                None => -2,
                Some(Entry { until: None, .. }) => -1,
                Some(Entry { until: Some(until), .. }) => (until - now_ms) as i64,
            }),
            "PEXPIRE" => {
                let until = now_ms + number(1)? as u64;
                let entry = self.entries.get_mut(&key);
                Reply::Number(entry.map(|entry| entry.until = Some(until)).is_some().into())
            }
            "PEXPIREAT" => {
                let until = number(1)? as u64;
                if until <= now_ms {
                    return Ok(Reply::Number(self.entries.remove(&key).is_some().into()));
                }
                let entry = self.entries.get_mut(&key);
                Reply::Number(entry.map(|entry| entry.until = Some(until)).is_some().into())
            }
            "LLEN" => Reply::Number(self.list(&key)?.map_or(0, |list| list.len() as i64)),
            "LINDEX" => {
                let index = number(1)?;
                let found = self.list(&key)?.and_then(|list| list.get(position(index, list.len())?));
                found.map_or(Reply::Nil, |item| Reply::Text(item.clone()))
            }
            "LRANGE" => {
                let (first, last) = (number(1)?, number(2)?);
                let items = self.list(&key)?.map_or(Vec::new(), |list| {
                    let range = range(first, last, list.len());
                    list.range(range).cloned().map(Reply::Text).collect()
                });
                Reply::List(items)
            }
            "LTRIM" => {
                let (first, last) = (number(1)?, number(2)?);
                if let Some(list) = self.list_mut(&key)? {
                    let range = range(first, last, list.len());
                    *list = list.range(range).cloned().collect();
                }
                self.drop_if_empty(&key);
                Reply::Ok
            }
            "LSET" => {
                let index = number(1)?;
                let list = self.list_mut(&key)?.ok_or("ERR no such key")?;
                let place = position(index, list.len()).ok_or("ERR index out of range")?;
                list[place] = words[2].clone();
                Reply::Ok
            }
            "LREM" => {
                let mut removed = 0;
                if let Some(list) = self.list_mut(&key)?
                    && let Some(place) = list.iter().position(|item| *item == words[2])
                {
                    list.remove(place);
                    removed = 1;
                }
                self.drop_if_empty(&key);
                Reply::Number(removed)
            }
            "RPUSH" | "LPUSH" => {
                if !self.entries.contains_key(&key) {
                    self.entries.insert(key.clone(), Entry { value: Stored::List(VecDeque::new()), until: None });
                }
                let list = self.list_mut(&key)?.ok_or("ERR no such key")?;
                for item in &words[1..] {
                    if name == "RPUSH" { list.push_back(item.clone()) } else { list.push_front(item.clone()) }
                }
                Reply::Number(list.len() as i64)
            }
            "HGET" => self.hash(&key)?.and_then(|hash| hash.get(&words[1])).cloned().map_or(Reply::Nil, Reply::Text),
            "HGETALL" => {
                let pairs = self.hash(&key)?.into_iter().flatten();
                Reply::List(pairs.flat_map(|(field, value)| [field.clone(), value.clone()]).map(Reply::Text).collect())
            }
            "HEXISTS" => Reply::Number(self.hash(&key)?.is_some_and(|hash| hash.contains_key(&words[1])).into()),
            "HLEN" => Reply::Number(self.hash(&key)?.map_or(0, |hash| hash.len() as i64)),
            "HSETNX" if self.hash(&key)?.is_some_and(|hash| hash.contains_key(&words[1])) => Reply::Number(0),
            "HSET" | "HSETNX" => {
                let fresh = || Entry { value: Stored::Hash(BTreeMap::new()), until: None };
                match &mut self.entries.entry(key).or_insert_with(fresh).value {
                    Stored::Hash(hash) => {
                        Reply::Number(hash.insert(words[1].clone(), words[2].clone()).is_none().into())
                    }
                    _ => return Err(WRONG_TYPE.into()),
                }
            }
            "HDEL" => match self.entries.get_mut(&key).map(|entry| &mut entry.value) {
                None => Reply::Number(0),
                Some(Stored::Hash(hash)) => Reply::Number(hash.remove(&words[1]).is_some().into()),
                Some(_) => return Err(WRONG_TYPE.into()),
            },
            "ZADD" => {
                let score = number(1)? as f64;
                let fresh = || Entry { value: Stored::Sorted(BTreeMap::new()), until: None };
                match &mut self.entries.entry(key).or_insert_with(fresh).value {
                    Stored::Sorted(set) => Reply::Number(set.insert(words[2].clone(), score).is_none().into()),
                    _ => return Err(WRONG_TYPE.into()),
                }
            }
            "ZCARD" => Reply::Number(self.sorted(&key)?.map_or(0, |set| set.len() as i64)),
            "ZCOUNT" => {
                let least = number(1)? as f64;
                let set = self.sorted(&key)?;
                Reply::Number(set.map_or(0, |set| set.values().filter(|score| **score >= least).count() as i64))
            }
            "ZREM" => {
                let set = self.sorted(&key)?;
                Reply::Number(set.map_or(0, |set| words[1..].iter().filter_map(|word| set.remove(word)).count() as i64))
            }
            "ZREMRANGEBYSCORE" => {
                let end = number(2)? as f64;
                if let Some(set) = self.sorted(&key)? {
                    set.retain(|_, score| *score > end);
                }
                Reply::Number(0)
            }
            other => return Err(format!("ERR unknown command '{other}' in the simulation")),
        })
    }

    fn text(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn list(&self, key: &[u8]) -> Result<Option<&VecDeque<Vec<u8>>>, String> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Stored::List(list)) => Ok(Some(list)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn list_mut(&mut self, key: &[u8]) -> Result<Option<&mut VecDeque<Vec<u8>>>, String> {
        match self.entries.get_mut(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Stored::List(list)) => Ok(Some(list)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn drop_if_empty(&mut self, key: &[u8]) {
        if self.list(key).is_ok_and(|list| list.is_some_and(VecDeque::is_empty)) {
            self.entries.remove(key);
        }
    }

    fn hash(&self, key: &[u8]) -> Result<Option<&Fields>, String> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Stored::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn sorted(&mut self, key: &[u8]) -> Result<Option<&mut Scores>, String> {
        match self.entries.get_mut(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Stored::Sorted(set)) => Ok(Some(set)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }
}

fn text(number: u64) -> Reply {
    Reply::Text(number.to_string().into_bytes())
}

fn number(word: Option<&Vec<u8>>) -> Result<i64, String> {
    to_number(word.map(Vec::as_slice).unwrap_or_default())
}

fn to_number(word: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(word);
    text.parse().map_err(|_| format!("ERR {text:?} is not an integer"))
}

/// Negative ones count from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    let place = if index < 0 { index + length as i64 } else { index };
    usize::try_from(place).ok().filter(|place| *place < length)
}

fn range(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let from_start = |index: i64| if index < 0 { index + length as i64 } else { index };
    let first = from_start(first).max(0) as usize;
    let end = (from_start(last) + 1).clamp(0, length as i64) as usize;
    if first < end { first..end } else { 0..0 }
}
