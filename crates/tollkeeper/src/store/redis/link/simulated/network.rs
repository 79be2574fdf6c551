//! A network and its servers in one thread, in virtual time.
//!
//! A connection is two queues, one in each direction: what is sent on it arrives in order, later or never. A connection
//! that is cut fails all calls on it, and what was on its way may still have arrived: as with TCP, nobody knows.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tollkeeper_core::Timestamp;

use super::chance::Chance;
use super::data::{Data, Reply};
use super::lua;
use super::slots::{Slots, slot_of};
use crate::clock::ManualClock;
use crate::store::redis::script;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Network>>> = const { RefCell::new(None) };
}

/// All servers, and what is between them and us.
#[derive(Debug)]
pub(in crate::store::redis) struct Network {
    state: Mutex<State>,
    /// When the run began.
    origin: Instant,
    /// Errors that no server should have to answer with.
    trouble: Mutex<Vec<String>>,
    /// For what decides in this process by a clock of its own. It is right whenever a task is polled.
    clock: ManualClock,
}

#[derive(Debug)]
struct State {
    chance: Chance,
    hosts: BTreeMap<String, Host>,
    /// Of a cluster.
    slots: Option<Slots>,
    /// How many servers took the place of others.
    promoted: u64,
    travel: Travel,
    /// The share of polls, in sixteenths, in which a task lets others go first.
    shuffle: u64,
}

/// How long a message takes in one direction, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store::redis) struct Travel {
    pub(in crate::store::redis) least: u64,
    pub(in crate::store::redis) jitter: u64,
}

#[derive(Debug, Default)]
struct Host {
    data: Data,
    /// How far its clock is ahead of ours, in microseconds.
    clock_ahead: i64,
    /// Known scripts by their hash.
    scripts: HashMap<String, Arc<str>>,
    /// Counts its starts.
    start: u64,
    is_down: bool,
    /// It does nothing until then, or nothing gets through to it.
    stalled_until: Option<Instant>,
    mood: Mood,
    wires: Vec<Weak<Wire>>,
    calls: u64,
}

/// How a server answers commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Mood {
    #[default]
    Fine,
    /// Every other call gets an error.
    Failing,
    /// It runs them, and the replies make no sense.
    Babbling,
}

/// Calls without a reply yet, by number.
type Waiting = BTreeMap<u64, oneshot::Sender<Result<Vec<Value>, RedisError>>>;

/// One TCP connection.
#[derive(Debug)]
struct Wire {
    to: String,
    /// Which start of the server it leads to.
    start: u64,
    is_cut: AtomicBool,
    waiting: Mutex<Waiting>,
    next: AtomicU64,
    arrives: Mutex<Instant>,
    outbound: mpsc::UnboundedSender<Call>,
}

#[derive(Debug)]
struct Call {
    number: u64,
    arrives: Instant,
    commands: Vec<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct Answer {
    number: u64,
    arrives: Instant,
    reply: Result<Vec<Value>, RedisError>,
}

/// Ends the simulation of this thread when it is dropped.
pub(in crate::store::redis) struct Simulated(());

impl Drop for Simulated {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Network {
    /// From here on this thread's stores connect through it. Call it within a runtime whose clock is paused.
    pub(in crate::store::redis) fn start(chance: Chance, travel: Travel, shuffle: u64) -> (Arc<Network>, Simulated) {
        let state = State { chance, hosts: BTreeMap::new(), slots: None, promoted: 0, travel, shuffle };
        let network = Arc::new(Network {
            state: Mutex::new(state),
            origin: Instant::now(),
            trouble: Mutex::default(),
            clock: ManualClock::default(),
        });
        network.show_time();
        CURRENT.set(Some(network.clone()));
        (network, Simulated(()))
    }

    /// The one of this thread.
    pub(in crate::store::redis) fn current() -> Option<Arc<Network>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// A server, or the servers of a cluster.
    pub(in crate::store::redis) fn add_hosts(&self, names: &[String]) {
        let mut state = self.state();
        state.hosts.extend(names.iter().map(|name| (name.clone(), Host::default())));
        state.slots = (names.len() > 1).then(|| Slots::divided(names));
    }

    /// A clock that shows the time of this process.
    pub(in crate::store::redis) fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// Time does not pass while a task is polled.
    pub(super) fn show_time(&self) {
        self.clock.set(Timestamp::from_micros(self.now()));
    }

    /// How many calls its servers have had.
    pub(in crate::store::redis) fn calls(&self) -> u64 {
        self.state().hosts.values().map(|host| host.calls).sum()
    }

    /// Errors that no server should have to answer with.
    pub(in crate::store::redis) fn trouble(&self) -> Vec<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Since the run began.
    pub(in crate::store::redis) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Whether a task should let others go first.
    pub(super) fn lets_others_go_first(&self) -> bool {
        let mut state = self.state();
        let shuffle = state.shuffle;
        state.chance.below(16) < shuffle
    }

    /// Cuts all connections to a server.
    pub(in crate::store::redis) fn cut(&self, host: &str) {
        let wires = self.host(host, |host| std::mem::take(&mut host.wires));
        wires.iter().filter_map(Weak::upgrade).for_each(|wire| wire.cut());
    }

    /// The server does nothing for a while; what is sent meanwhile waits for it.
    pub(in crate::store::redis) fn stall(&self, host: &str, pause: Duration) {
        self.host(host, |host| host.stalled_until = Some(Instant::now() + pause));
    }

    pub(in crate::store::redis) fn set_mood(&self, host: &str, mood: Mood) {
        self.host(host, |host| host.mood = mood);
    }

    pub(in crate::store::redis) fn set_full(&self, host: &str, is_full: bool) {
        self.host(host, |host| host.data.is_full = is_full);
    }

    /// Its clock jumps, forward or back.
    pub(in crate::store::redis) fn step_clock(&self, host: &str, by_ms: i64) {
        self.host(host, |host| host.clock_ahead += by_ms * 1_000);
    }

    /// The slot of a key begins to move to another server; some of its keys have arrived already. False if one moves already.
    pub(in crate::store::redis) fn begin_move(&self, key: &str) -> bool {
        let mut state = self.state();
        let Some((migration, from, to)) = state.slots.as_mut().and_then(|slots| slots.begin(key)) else { return false };
        let mut chance = Chance::of(state.chance.next());
        state.move_keys(&from, &to, |key| slot_of(key) == migration.slot && chance.one_in(2));
        true
    }

    /// The others have arrived too, and the new owner is known.
    pub(in crate::store::redis) fn end_move(&self) {
        let mut state = self.state();
        if let Some((migration, from, to)) = state.slots.as_mut().and_then(Slots::end) {
            state.move_keys(&from, &to, |key| slot_of(key) == migration.slot);
        }
    }

    /// What a replica of this server knows; `None` if it owns nothing now, or if a slot is on its way.
    pub(in crate::store::redis) fn replica(&self, host: &str) -> Option<Data> {
        let state = self.state();
        let is_settled = state.slots.as_ref().is_some_and(|slots| slots.is_settled(host));
        is_settled.then(|| state.hosts.get(host).map(|host| host.data.clone())).flatten()
    }

    /// A replica takes the place of a server, at another address. That one comes back later and owns nothing.
    pub(in crate::store::redis) fn promote(&self, host: &str, replica: Data) {
        let mut state = self.state();
        let name = format!("10.1.0.{}:6379", state.promoted + 1);
        if state.slots.as_mut().is_some_and(|slots| slots.replace(host, &name)) {
            state.promoted += 1;
            state.hosts.insert(name, Host { data: replica, ..Host::default() });
        }
        drop(state);
        self.restart(host, false);
    }

    /// From now on nobody can connect.
    pub(in crate::store::redis) fn stop(&self, host: &str) {
        self.host(host, |host| host.is_down = true);
        self.cut(host);
    }

    /// It starts with what it had, or with nothing.
    pub(in crate::store::redis) fn restart(&self, host: &str, keeps_data: bool) {
        self.host(host, |host| {
            host.is_down = false;
            host.start += 1;
            host.scripts.clear();
            if !keeps_data {
                host.data = Data::default();
            }
        });
    }

    fn host<T>(&self, name: &str, ask: impl FnOnce(&mut Host) -> T) -> T {
        ask(self.state().hosts.get_mut(name).unwrap_or_else(|| panic!("there is no host {name}")))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn travel(&self) -> Duration {
        let mut state = self.state();
        let Travel { least, jitter } = state.travel;
        Duration::from_millis(least + state.chance.below(jitter + 1))
    }

    /// Microseconds of the servers' clock, which runs as ours does.
    fn now(&self) -> u64 {
        // Three seconds before noon in UTC, when the next day begins in another zone.
        1_767_268_797_000_000 + self.origin.elapsed().as_micros() as u64
    }

    async fn connect(self: &Arc<Self>, to: &str) -> Result<Arc<Wire>, RedisError> {
        let travel = self.travel() + self.travel();
        sleep_until(Instant::now() + travel).await;
        while let Some(until) = self.host(to, |host| host.stalled_until).filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
        let start = self.host(to, |host| (!host.is_down).then_some(host.start));
        let start =
            start.ok_or_else(|| RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))?;
        let (outbound, calls) = mpsc::unbounded_channel();
        let wire = Arc::new(Wire {
            to: to.to_string(),
            start,
            is_cut: AtomicBool::new(false),
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            arrives: Mutex::new(Instant::now()),
            outbound,
        });
        self.host(to, |host| host.wires.push(Arc::downgrade(&wire)));
        tokio::spawn(carry_out(self.clone(), Arc::downgrade(&wire), calls));
        Ok(wire)
    }

    /// What the server does; `None` if it cannot be reached on a connection of this start.
    fn carry_out(&self, to: &str, start: u64, commands: &[Vec<Vec<u8>>]) -> Option<Result<Vec<Value>, RedisError>> {
        let now = self.now();
        let mut state = self.state();
        let fails = state.chance.one_in(2);
        let State { hosts, slots, .. } = &mut *state;
        let host = hosts.get_mut(to)?;
        if host.is_down || host.start != start {
            return None;
        }
        host.calls += 1;
        if host.mood == Mood::Failing && fails {
            return Some(
                value(Reply::Error("LOADING Redis is loading the dataset in memory".into())).map(|it| vec![it]),
            );
        }
        host.data.now = now.saturating_add_signed(host.clock_ahead);
        let mut is_asking = false;
        let replies: Vec<Reply> = commands
            .iter()
            .map(|words| {
                let redirect = slots
                    .as_ref()
                    .and_then(|slots| slots.redirect(to, keys_of(words), is_asking, |key| host.data.has(key)));
                is_asking = words.first().is_some_and(|word| word == b"ASKING");
                redirect.unwrap_or_else(|| host.run(words, slots.as_ref()))
            })
            .collect();
        for reply in &replies {
            // Ours do what they are told: an error of this kind is a mistake of a script, or something not simulated.
            if let Reply::Error(text) = reply
                && text.starts_with("ERR")
            {
                self.trouble.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
            }
        }
        if host.mood == Mood::Babbling {
            return Some(Ok(vec![Value::SimpleString("what?".into()); replies.len()]));
        }
        Some(replies.into_iter().map(value).collect())
    }
}

impl State {
    fn move_keys(&mut self, from: &str, to: &str, is_moved: impl FnMut(&[u8]) -> bool) {
        let Some(mut source) = self.hosts.remove(from) else { return };
        if let Some(target) = self.hosts.get_mut(to) {
            source.data.move_to(&mut target.data, is_moved);
        }
        self.hosts.insert(from.to_string(), source);
    }
}

/// The keys of a command.
fn keys_of(words: &[Vec<u8>]) -> &[Vec<u8>] {
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match name.as_slice() {
        b"PING" | b"TIME" | b"INFO" | b"ROLE" | b"SCRIPT" | b"CLUSTER" | b"ASKING" => &[],
        b"EVAL" | b"EVALSHA" => {
            let count: usize = words.get(2).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok()).unwrap_or(0);
            words.get(3..3 + count).unwrap_or_default()
        }
        b"MGET" | b"DEL" => &words[1..],
        _ => words.get(1..2).unwrap_or_default(),
    }
}

impl Host {
    fn run(&mut self, words: &[Vec<u8>], slots: Option<&Slots>) -> Reply {
        let text = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
        match text(0).to_ascii_uppercase().as_str() {
            "SCRIPT" => Reply::Text(self.learn(&words[2]).into_bytes()),
            "ASKING" => Reply::Ok,
            "CLUSTER" => slots.map_or(Reply::List(Vec::new()), Slots::map),
            "EVAL" => {
                let sha = self.learn(&words[1]);
                let source = self.scripts[&sha].clone();
                self.eval(&sha, &source, words)
            }
            "EVALSHA" => match self.scripts.get(&text(1)).cloned() {
                Some(source) => self.eval(&text(1), &source, words),
                None => Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into()),
            },
            _ => {
                self.data.has_written = false;
                self.data.run(words)
            }
        }
    }

    /// Keeps a script, and returns its hash.
    fn learn(&mut self, source: &[u8]) -> String {
        // All instances load the same ones; hashing and copying them would take longer than anything else here.
        let known = script::all().into_iter().find(|script| script.source().as_bytes() == source);
        let sha = known.map_or_else(|| sha_of(source), |script| script.sha().to_string());
        if !self.scripts.contains_key(&sha) {
            self.scripts.insert(sha.clone(), String::from_utf8_lossy(source).into());
        }
        sha
    }

    fn eval(&mut self, sha: &str, source: &str, words: &[Vec<u8>]) -> Reply {
        let keys: usize = String::from_utf8_lossy(&words[2]).parse().expect("how many keys");
        let (keys, arguments) = words[3..].split_at(keys);
        lua::run(&mut self.data, (sha, source), keys, arguments)
    }
}

fn sha_of(source: &[u8]) -> String {
    redis::Script::new(&String::from_utf8_lossy(source)).get_hash().to_string()
}

/// As the client library reads it.
fn value(reply: Reply) -> Result<Value, RedisError> {
    Ok(match reply {
        Reply::Nil => Value::Nil,
        Reply::Ok => Value::Okay,
        Reply::Number(number) => Value::Int(number),
        Reply::Text(text) => Value::BulkString(text),
        Reply::List(items) => Value::Array(items.into_iter().map(value).collect::<Result<_, _>>()?),
        Reply::Error(text) => {
            let line = format!("-{}\r\n", text.replace(['\r', '\n'], " "));
            return redis::parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        }
    })
}

impl Wire {
    fn send(
        &self,
        network: &Network,
        commands: Vec<Vec<Vec<u8>>>,
    ) -> oneshot::Receiver<Result<Vec<Value>, RedisError>> {
        let (reply, wait) = oneshot::channel();
        let number = self.next.fetch_add(1, Relaxed);
        let mut arrives = self.arrives.lock().unwrap_or_else(PoisonError::into_inner);
        *arrives = (*arrives).max(Instant::now() + network.travel());
        self.waiting().insert(number, reply);
        let call = Call { number, arrives: *arrives, commands };
        // The other end is gone only if it was cut.
        if self.is_cut.load(Relaxed) || self.outbound.send(call).is_err() {
            self.waiting().remove(&number);
        }
        wait
    }

    /// Closes it: every call that waits for a reply gets an error.
    fn cut(&self) {
        self.is_cut.store(true, Relaxed);
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's end of a connection.
async fn carry_out(network: Arc<Network>, wire: Weak<Wire>, mut calls: mpsc::UnboundedReceiver<Call>) {
    let (inbound, answers) = mpsc::unbounded_channel();
    tokio::spawn(bring_back(wire.clone(), answers));
    let mut arrives_back = Instant::now();
    while let Some(Call { number, arrives, commands }) = calls.recv().await {
        sleep_until(arrives).await;
        let Some(wire) = wire.upgrade() else { return };
        while let Some(until) =
            network.host(&wire.to, |host| host.stalled_until).filter(|until| *until > Instant::now())
        {
            sleep_until(until).await;
        }
        // What was on its way when the connection was cut has arrived, or not.
        if wire.is_cut.load(Relaxed) && network.state().chance.one_in(2) {
            continue;
        }
        match network.carry_out(&wire.to, wire.start, &commands) {
            Some(reply) => {
                arrives_back = arrives_back.max(Instant::now() + network.travel());
                let _ = inbound.send(Answer { number, arrives: arrives_back, reply });
            }
            None => wire.cut(),
        }
    }
}

/// The way back.
async fn bring_back(wire: Weak<Wire>, mut answers: mpsc::UnboundedReceiver<Answer>) {
    while let Some(Answer { number, arrives, reply }) = answers.recv().await {
        sleep_until(arrives).await;
        let Some(wire) = wire.upgrade() else { return };
        let waiter = wire.waiting().remove(&number);
        if let Some(waiter) = waiter {
            let _ = waiter.send(reply);
        }
    }
}

/// A connection that is opened again when it was cut, as the library's is.
#[derive(Clone)]
pub(in crate::store::redis) struct Connection {
    network: Arc<Network>,
    to: String,
    wire: Arc<Mutex<Option<Arc<Wire>>>>,
}

impl Connection {
    pub(in crate::store::redis) fn lazy(network: Arc<Network>, to: String) -> Connection {
        Connection { network, to, wire: Arc::default() }
    }

    pub(in crate::store::redis) async fn open(network: Arc<Network>, to: String) -> Result<Connection, RedisError> {
        let connection = Connection::lazy(network, to);
        connection.connected().await?;
        Ok(connection)
    }

    async fn connected(&self) -> Result<Arc<Wire>, RedisError> {
        let known = self.wire().clone();
        if let Some(wire) = known.filter(|wire| !wire.is_cut.load(Relaxed)) {
            return Ok(wire);
        }
        let opened = self.network.connect(&self.to).await?;
        let mut wire = self.wire();
        // Another call may have opened one in the meantime.
        match &*wire {
            Some(wire) if !wire.is_cut.load(Relaxed) => Ok(wire.clone()),
            _ => Ok(wire.insert(opened).clone()),
        }
    }

    fn wire(&self) -> MutexGuard<'_, Option<Arc<Wire>>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was sent is carried out even if the caller gives up.
    pub(in crate::store::redis) async fn call(&self, commands: Vec<Vec<Vec<u8>>>) -> Result<Vec<Value>, RedisError> {
        let wire = self.connected().await?;
        let reply = wire.send(&self.network, commands);
        let cut = |_| Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        reply.await.unwrap_or_else(cut)
    }
}
