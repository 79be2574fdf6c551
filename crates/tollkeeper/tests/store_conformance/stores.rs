//! The stores under test and the servers that they need. A new store joins by adding its constructor to [`STORES`].

#[cfg(feature = "redis")]
use std::sync::Arc;

use tollkeeper::{ManualClock, MemoryStore, Store};

#[cfg(feature = "redis")]
use crate::now_or_never;

pub type NewStore = fn(ManualClock) -> Store;

/// Six nodes are slow to start, so all tests share them and take turns.
#[cfg(feature = "redis")]
pub type Turn = std::sync::MutexGuard<'static, ()>;
#[cfg(not(feature = "redis"))]
pub type Turn = ();

/// The stores under test, each on a clock that the test moves, with room for all keys that the tests use.
pub const STORES: &[(&str, NewStore)] = &[
    ("memory", |clock| MemoryStore::with(10_000, clock).into()),
    #[cfg(feature = "redis")]
    ("redis 6.2", |clock| redis_store(crate::servers::Kind::Redis62, clock)),
    #[cfg(feature = "redis")]
    ("redis 7", |clock| redis_store(crate::servers::Kind::Redis7, clock)),
    #[cfg(feature = "redis")]
    ("valkey 9", |clock| redis_store(crate::servers::Kind::Valkey9, clock)),
    #[cfg(feature = "redis")]
    (CLUSTER, cluster_store),
];

#[cfg(feature = "redis")]
const CLUSTER: &str = "redis 7, a cluster";

/// An empty store in a real server. Every test has a thread and so servers of its own.
#[cfg(feature = "redis")]
fn redis_store(kind: crate::servers::Kind, clock: ManualClock) -> Store {
    use std::cell::RefCell;
    use std::time::Duration;
    use tollkeeper::{RedisOptions, RedisStore};

    thread_local! {
        static SERVERS: RefCell<Vec<(crate::servers::Kind, crate::servers::Server)>> = const { RefCell::new(Vec::new()) };
    }
    SERVERS.with_borrow_mut(|servers| {
        if !servers.iter().any(|(started, _)| *started == kind) {
            servers.push((kind, crate::servers::Server::start(kind)));
        }
        let (_, server) = servers.iter().find(|(started, _)| *started == kind).unwrap();
        redis::cmd("FLUSHALL").exec(&mut server.connect()).unwrap();
        let options =
            RedisOptions { deadline: Duration::from_secs(10), clock: clock.into(), ..RedisOptions::default() };
        now_or_never(RedisStore::connect(&server.url(), options)).unwrap().into()
    })
}

/// An empty store in a cluster, for whoever has the turn. The last thread that uses the cluster ends it.
#[cfg(feature = "redis")]
fn cluster_store(clock: ManualClock) -> Store {
    use std::cell::OnceCell;
    use std::sync::{Mutex, Weak};
    use std::time::Duration;
    use tollkeeper::{RedisOptions, RedisStore};

    static STARTED: Mutex<Weak<crate::servers::Cluster>> = Mutex::new(Weak::new());
    thread_local! {
        static USED: OnceCell<Arc<crate::servers::Cluster>> = const { OnceCell::new() };
    }
    let start = || {
        let mut started = STARTED.lock().unwrap();
        started.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(crate::servers::Cluster::start());
            *started = Arc::downgrade(&cluster);
            cluster
        })
    };
    USED.with(|used| {
        let cluster = used.get_or_init(start);
        cluster.flush();
        let options =
            RedisOptions { deadline: Duration::from_secs(10), clock: clock.into(), ..RedisOptions::default() };
        now_or_never(RedisStore::connect(&cluster.url(), options)).unwrap().into()
    })
}

#[cfg(feature = "redis")]
pub fn turn(name: &str) -> Option<Turn> {
    static TURNS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    (name == CLUSTER).then(|| TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[cfg(not(feature = "redis"))]
pub fn turn(_: &str) -> Option<Turn> {
    None
}
