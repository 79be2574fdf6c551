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

use super::chance::Chance;
use super::data::{Data, Reply};
use super::lua;

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
}

#[derive(Debug)]
struct State {
    chance: Chance,
    hosts: BTreeMap<String, Host>,
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

/// What a server answers instead of doing what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Mood {
    #[default]
    Fine,
    /// Every other call gets an error.
    Failing,
    /// It does what it is told, and the reply makes no sense.
    Babbling,
}

/// Who waits for a reply, by the number of the call.
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
        let state = State { chance, hosts: BTreeMap::new(), travel, shuffle };
        let network = Arc::new(Network { state: Mutex::new(state), origin: Instant::now(), trouble: Mutex::default() });
        CURRENT.set(Some(network.clone()));
        (network, Simulated(()))
    }

    /// The one of this thread.
    pub(in crate::store::redis) fn current() -> Option<Arc<Network>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(in crate::store::redis) fn add_host(&self, name: &str) {
        self.state().hosts.insert(name.to_string(), Host::default());
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
        // Noon, so that no day ends during a run.
        1_767_268_800_000_000 + self.origin.elapsed().as_micros() as u64
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
        let map = state.map();
        let host = state.hosts.get_mut(to)?;
        if host.is_down || host.start != start {
            return None;
        }
        host.calls += 1;
        if host.mood == Mood::Failing && fails {
            return Some(
                value(Reply::Error("LOADING Redis is loading the dataset in memory".into())).map(|it| vec![it]),
            );
        }
        host.data.now = now;
        let replies: Vec<Reply> = commands.iter().map(|words| host.run(words, &map)).collect();
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
    /// The slots of a cluster: each host has an equal part.
    fn map(&self) -> Reply {
        const SLOTS: i64 = 16_384;
        let each = SLOTS / self.hosts.len().max(1) as i64;
        let part = |(nth, address): (usize, &String)| {
            let (host, port) = address.split_once(':').expect("host and port");
            let first = nth as i64 * each;
            let last = if nth + 1 == self.hosts.len() { SLOTS - 1 } else { first + each - 1 };
            let node = vec![Reply::Text(host.into()), Reply::Number(port.parse().expect("a port"))];
            Reply::List(vec![Reply::Number(first), Reply::Number(last), Reply::List(node)])
        };
        Reply::List(self.hosts.keys().enumerate().map(part).collect())
    }
}

impl Host {
    fn run(&mut self, words: &[Vec<u8>], map: &Reply) -> Reply {
        let text = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
        match text(0).to_ascii_uppercase().as_str() {
            "SCRIPT" => {
                self.scripts.insert(sha_of(&text(2)), text(2).into());
                Reply::Text(sha_of(&text(2)).into_bytes())
            }
            "CLUSTER" => map.clone(),
            "EVAL" => {
                self.scripts.insert(sha_of(&text(1)), text(1).into());
                self.eval(&sha_of(&text(1)), &text(1), words)
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

    fn eval(&mut self, sha: &str, source: &str, words: &[Vec<u8>]) -> Reply {
        let keys: usize = String::from_utf8_lossy(&words[2]).parse().expect("how many keys");
        let (keys, arguments) = words[3..].split_at(keys);
        lua::run(&mut self.data, (sha, source), keys, arguments)
    }
}

fn sha_of(source: &str) -> String {
    redis::Script::new(source).get_hash().to_string()
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

    /// Everybody who waits on it learns of it.
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
