//! State in Redis or Valkey, decided by a script next to it, on the server's own clock.
//!
//! Requests that arrive while a call is in flight are batched into the next one, and equal ones are summed, so a busy
//! limiter costs the server a fraction of a call per request. Denials are cached until they can pass, and a rule may
//! lease tokens. A dedicated thread makes the calls: each has a deadline, which counts from when it was sent, and a
//! circuit breaker stops calls to a server that does not answer. Waiting for a call is bounded too, and a request
//! that waits too long is shed.

mod across;
mod address;
mod ahead;
mod batch;
mod breaker;
mod callers;
mod calls;
mod denials;
mod exceptions;
mod failover;
mod fleet;
mod full;
mod gate;
mod heartbeat;
mod holds;
mod instant;
mod io;
mod leases;
mod link;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod lua_twin;
mod msgpack;
mod new_keys;
mod node;
mod nodes;
mod options;
mod outages;
mod overload;
mod queue;
mod round_trip;
mod route;
mod script;
mod sentinel;
mod server;
mod shared;
#[cfg(test)]
mod simulation;
mod stored;
mod traffic;
mod version;

pub use breaker::BreakerState;
pub use options::{RedisOptions, RedisTls};
pub use server::{ConnectError, Server};
pub use traffic::{DURATION_BOUNDS, Traffic};
pub use version::ExceptionsCopy;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tollkeeper_core::{BucketRef, Charge, Decision, Hold, Source, Span, Timestamp, decide, is_denied};

use super::error::StoreError;
use crate::clock::Clock;
use crate::store::exceptions::Exceptions;
use address::{Address, Mode};
use batch::Ask;
use denials::Denials;
use fleet::Fleet;
use instant::Instant;
use io::Io;
use leases::Leases;
use node::Node;
use nodes::{Cluster, Nodes};
use overload::Overload;
use queue::Queue;
use route::Route;
use script::{Call, REFUND, RELEASE, RENEW};
use sentinel::Sentinels;
use shared::{Ahead, Shared, from};
use traffic::Counts;

/// Keeps state in a Redis or Valkey server, or in a cluster of them. Clones share the connections.
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

impl RedisStore {
    /// Connects, and refuses a server that cannot be used: too old, a read-only replica, or without the right to run
    /// scripts.
    ///
    /// `redis://USER:PASSWORD@HOST:PORT/DATABASE` is one server, `redis+cluster://A,B,C` a cluster of which some
    /// nodes are named, `redis+sentinel://A,B,C/NAME` the primary that these sentinels know; `rediss` instead of
    /// `redis` means TLS.
    pub async fn connect(url: &str, options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let address = Address::parse(url, options.tls.as_ref())?;
        let thread = |error| ConnectError::Thread(format!("{error}"));
        let io = Io::start().map_err(thread)?;
        let handle = io.handle().clone();
        let connected = handle.spawn(RedisStore::start(address, options, io)).await;
        connected.unwrap_or_else(|error| Err(ConnectError::Thread(error.to_string())))
    }

    /// Runs on the thread that makes the calls: tasks started here stay there. Boxed, so that all of it is compiled here and not
    /// again where a store is connected.
    fn start(
        address: Address,
        options: RedisOptions,
        io: Io,
    ) -> Pin<Box<dyn Future<Output = Result<RedisStore, ConnectError>> + Send>> {
        Box::pin(RedisStore::start_here(address, options, io))
    }

    async fn start_here(address: Address, options: RedisOptions, io: Io) -> Result<RedisStore, ConnectError> {
        let RedisOptions { deadline, clock, namespace, .. } = options;
        let (nodes, server) = connect(address, deadline).await?;
        let is_real_time = matches!(clock, Clock::System(_));
        let shared = Arc::new(Shared {
            queues: (0..nodes.slots()).map(|_| Queue::default()).collect(),
            nodes,
            namespace: namespace.into(),
            server,
            clock,
            deadline,
            counts: Counts::default(),
            ahead: is_real_time.then(|| Ahead { denials: Denials::new(), leases: Leases::new() }),
            fleet: Fleet::new(),
            clock_ahead: AtomicI64::new(0),
            io,
            overload: Overload::new(deadline),
            full: AtomicU64::new(0),
            exceptions: Exceptions::new(),
            exceptions_known: AsyncMutex::default(),
            reads_exceptions: AtomicBool::new(true),
        });
        shared.rehearse().await?;
        shared.start_exceptions().await;
        if is_real_time {
            heartbeat::start(&shared);
        }
        Ok(RedisStore(shared))
    }

    /// Whether a URL is valid. Whether the server is reachable is known only when connecting.
    pub fn check_url(url: &str) -> Result<(), ConnectError> {
        Address::parse(url, None).map(drop)
    }

    /// Runs `poll`, in which a request that needs a call returns `Pending` right before it, and nothing will wake it: poll it
    /// again to let it go on. An event loop polls requests once on its own thread like this, which answers cached denials
    /// and leases at once, and later the others together, in [`RedisStore::runtime`], so that they share a call.
    pub fn without_calls<T>(poll: impl FnOnce() -> T) -> T {
        gate::closed(poll)
    }

    /// The runtime whose one thread makes the calls. A task there needs no hop to another thread, and must not block it.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.0.io.handle()
    }

    /// What was found about the server.
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// The clock of this process, or the manual one. Decisions use the server's.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn exceptions(&self) -> &Exceptions {
        &self.0.exceptions
    }

    /// The server's time, estimated from its last answer and the clock of this process.
    pub fn now(&self) -> Timestamp {
        self.0.server_time()
    }

    /// The rules have changed: cached denials are dropped, and leases are returned.
    pub(crate) fn rules_changed(&self) {
        if let Some(Ahead { denials, leases }) = &self.0.ahead {
            denials.forget_all();
            if let Some(back) = leases.sweep(Instant::now(), true) {
                let shared = self.0.clone();
                self.0.io.spawn(async move { shared.return_tokens(back).await });
            }
        }
    }

    /// The state of the circuit breaker; in a cluster, the worst of all nodes.
    pub fn breaker(&self) -> BreakerState {
        self.0.nodes.breaker_state()
    }

    /// The calls made so far.
    pub fn traffic(&self) -> Traffic {
        self.0.counts.read()
    }

    /// How many stores are connected to the same server, in all processes, by their heartbeats.
    pub fn instances(&self) -> u32 {
        self.0.fleet.alive()
    }

    /// Among how many instances a limit is divided while the server is unreachable: those of
    /// [`RedisStore::instances`], and those that were heard of in the last ten minutes and have not called
    /// [`RedisStore::leave`]. They may be cut off, and deciding by themselves.
    pub fn sharers(&self) -> u32 {
        self.0.fleet.sharers()
    }

    /// How often the server was found to have lost its data: restarted without persistence, emptied, or replaced by an
    /// empty replica.
    pub fn losses(&self) -> u64 {
        self.0.fleet.losses()
    }

    /// How many charges of new keys found no room because the server has reached its `maxmemory`. Each rule's failure policy
    /// decided about them; keys that are stored are counted as ever.
    pub fn full(&self) -> u64 {
        self.0.full.load(Relaxed)
    }

    /// Tokens leased and not yet spent. If the process is killed they are lost until they expire.
    pub fn leased_tokens(&self) -> u64 {
        self.0.ahead.as_ref().map_or(0, |ahead| ahead.leases.tokens(Instant::now()))
    }

    /// The last call before a process exits: returns leased tokens, and leaves its share of the limits to the other
    /// instances.
    pub async fn leave(&self) {
        self.return_leases().await;
        self.0.sign_off().await;
    }

    /// Returns leased tokens.
    pub async fn return_leases(&self) {
        if let Some(ahead) = &self.0.ahead
            && let Some(back) = ahead.leases.sweep(Instant::now(), true)
        {
            let shared = self.0.clone();
            // Leases that cannot be returned expire.
            let _ = self.0.io.run(async move { shared.return_tokens(back).await }).await;
        }
    }

    /// How many requests were shed, because too many waited for the store.
    pub fn shed(&self) -> u64 {
        self.0.overload.count()
    }

    /// Removes everything in this store's namespace: for cleaning up after a replay.
    pub async fn clear(&self) -> Result<(), ConnectError> {
        let nodes = match &self.0.nodes {
            Nodes::One(node) => vec![node.clone()],
            Nodes::Cluster(cluster) => cluster.primaries(),
        };
        let pattern = format!("{}:*", self.0.namespace);
        for node in nodes {
            let mut connection = node.open().await?;
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
                let failed = |error: redis::RedisError| ConnectError::Connect(error.to_string());
                let (next, keys): (u64, Vec<Vec<u8>>) = server::ask(&mut connection, &scan).await.map_err(failed)?;
                for key in keys {
                    // One by one: they lie in different hash slots of a cluster.
                    let _: i64 = server::ask(&mut connection, redis::cmd("DEL").arg(key)).await.map_err(failed)?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Decides all charges together, all or nothing, and says what decided: the store, a cached denial, or a lease.
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<(Decision, Source)>, StoreError> {
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        let Some(Ahead { denials, .. }) = &self.0.ahead else {
            return Ok(from(Source::Store, self.0.decide(charges, Ask::Charge).await?.decisions));
        };
        let question = denials.question(charges);
        if let Some(decisions) = denials.recall(question, Instant::now()) {
            return Ok(decisions);
        }
        let (decided, asked_at) = self.0.charge(charges).await?;
        let decisions: Vec<Decision> = decided.iter().map(|(decision, _)| *decision).collect();
        if is_denied(charges.iter().zip(&decisions)) {
            denials.remember(question, charges, &decisions, asked_at, Instant::now());
        }
        Ok(decided)
    }

    /// Decides as [`RedisStore::charge`] does, if that takes no call.
    pub(crate) fn charge_ahead(&self, charges: &[Charge]) -> Option<Vec<(Decision, Source)>> {
        if charges.is_empty() {
            return Some(Vec::new());
        }
        let Ahead { denials, leases } = self.0.ahead.as_ref()?;
        let now = Instant::now();
        // What was taken ahead may be spent, whatever was denied before.
        self.0.spend_held(leases, charges, now).or_else(|| denials.recall(denials.question(charges), now))
    }

    /// The bucket's answer to a request of cost 1, without changing it: `remaining` does not include that request.
    pub async fn inspect(&self, bucket: BucketRef<'_>) -> Result<Decision, StoreError> {
        let (state, now) = self.0.read(bucket.quota, &self.0.key(bucket)).await?;
        let (untouched, _) = decide(bucket.quota, 0, &state, now);
        let (asked, _) = decide(bucket.quota, 1, &state, now);
        Ok(Decision { outcome: asked.outcome, hold: None, ..untouched })
    }

    /// Resets a bucket; false when there was nothing to reset.
    pub async fn reset(&self, bucket: BucketRef<'_>) -> Result<bool, StoreError> {
        // An idle state may still be stored for a moment; it counts as reset already.
        let counted = self.inspect(bucket).await?.reset_after > Span::ZERO;
        let key = self.0.key(bucket);
        let slot = self.0.nodes.slot(&key);
        let call = Call { keys: [key, self.0.refunded_key(bucket)].map(Arc::from).into(), arguments: Vec::new() };
        let removed: i64 = self.0.run(slot, &script::RESET, call).await?;
        if let Some(Ahead { denials, leases }) = &self.0.ahead {
            leases.forget(bucket);
            denials.forget_all();
        }
        Ok(counted && removed > 0)
    }

    /// Releases a `concurrency` slot; false when it had expired or was released before.
    pub async fn release(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<bool, StoreError> {
        let key = self.0.key(bucket);
        let slot = self.0.nodes.slot(&key);
        let call = Call::release(key, bucket.quota, hold, self.0.when());
        let released: i64 = self.0.run(slot, &RELEASE, call).await?;
        Ok(released > 0)
    }

    /// Holds a `concurrency` slot for another period and returns its new name; `None` when it had expired or was
    /// released before. After an error it may have a new name that was lost; then it is free when its hold expires.
    pub async fn renew(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<Option<Hold>, StoreError> {
        let key = self.0.key(bucket);
        let slot = self.0.nodes.slot(&key);
        let call = Call::renew(key, bucket.quota, hold, self.0.when());
        let renewed: Option<(u64, u32)> = self.0.run(slot, &RENEW, call).await?;
        Ok(renewed.map(|(at, nth)| Hold { at: Timestamp::from_micros(at), nth }))
    }

    /// Refunds up to `cost` of a bucket's latest charges; false when none of it still counts. Concurrent charges or
    /// refunds can only make the refund smaller.
    pub async fn refund(&self, bucket: BucketRef<'_>, cost: u32) -> Result<bool, StoreError> {
        let key = self.0.key(bucket);
        let (state, now) = self.0.read(bucket.quota, &key).await?;
        let receipts = state.latest(bucket.quota, cost, now);
        if receipts.is_empty() {
            return Ok(false);
        }
        let slot = self.0.nodes.slot(&key);
        let (counter, quota) = (self.0.refunded_key(bucket), *bucket.quota);
        let call = move |when| {
            let refunds = receipts.iter().map(|receipt| (key.clone(), counter.clone(), &quota, *receipt));
            Call::refund(refunds, when)
        };
        let refunded: Vec<i64> = self.0.run_at(slot, &REFUND, call).await?;
        Ok(refunded.contains(&1))
    }
}

async fn connect(address: Address, deadline: Duration) -> Result<(Nodes, Server), ConnectError> {
    let route = match &address.mode {
        Mode::Single => Route::Direct(Box::new(address.client(address.hosts[0].clone())?)),
        Mode::Sentinel { name } => Route::Sentinel(Arc::new(Sentinels::new(name.clone(), address.clone()))),
        Mode::Cluster => {
            let cluster = Cluster::connect(address, deadline).await?;
            let mut found = None;
            let primaries = cluster.primaries();
            for node in &primaries {
                let mut connection = node.open().await?;
                server::teach(&mut connection).await?;
                let server = server::identify(&mut connection).await?;
                // A warning about one node is a warning about the cluster.
                if found.as_ref().is_none_or(|found: &Server| found.warning().is_none()) {
                    found = Some(server);
                }
            }
            let server = found.ok_or(ConnectError::Incomplete(0))?;
            return Ok((Nodes::Cluster(cluster), Server { primaries: primaries.len(), ..server }));
        }
    };
    let mut found = route.find(None).await?;
    let server = server::identify(&mut found.connection).await?;
    let other = |problem: &str| Err(ConnectError::Mode(problem.to_string()));
    match server.mode.as_str() {
        "cluster" => return other("the server is a node of a cluster; write redis+cluster://HOST:PORT,HOST:PORT"),
        "sentinel" => return other("the server is a sentinel; write redis+sentinel://HOST:PORT,HOST:PORT/NAME"),
        _ if server.is_replica => return Err(ConnectError::Replica),
        _ => server::teach(&mut found.connection).await?,
    }
    let node = Arc::new(Node::new(route, found, deadline));
    failover::start(&node);
    Ok((Nodes::One(node), server))
}

/// Does not print the address, which may contain a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.0.server).finish_non_exhaustive()
    }
}
