//! Stores on real servers, and turns to use shared ones.

use std::cell::{OnceCell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tollkeeper::{ManualClock, RedisOptions, RedisStore, Store};
use tollkeeper_testkit::store::{Cluster, Kind, Server};

use super::now_or_never;

pub(super) const CLUSTER: &str = "redis 7, a cluster";

/// Six nodes start slowly, so all tests share them and take turns.
pub(crate) type Turn = MutexGuard<'static, ()>;

pub(crate) fn turn(name: &str) -> Option<Turn> {
    static TURNS: Mutex<()> = Mutex::new(());
    (name == CLUSTER).then(|| TURNS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An empty store on a real server. Every test has its own thread, and so its own servers.
pub(super) fn redis_store(kind: Kind, clock: ManualClock) -> Store {
    thread_local! {
        static SERVERS: RefCell<Vec<(Kind, Server)>> = const { RefCell::new(Vec::new()) };
    }
    SERVERS.with_borrow_mut(|servers| {
        if !servers.iter().any(|(started, _)| *started == kind) {
            servers.push((kind, Server::start(kind)));
        }
        let (_, server) = servers.iter().find(|(started, _)| *started == kind).unwrap();
        redis::cmd("FLUSHALL").exec(&mut server.connect()).unwrap();
        connect(&server.url(), clock)
    })
}

/// An empty store in a cluster, for the test whose turn it is. The last thread that uses the cluster stops it.
pub(super) fn cluster_store(clock: ManualClock) -> Store {
    static STARTED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    thread_local! {
        static USED: OnceCell<Arc<Cluster>> = const { OnceCell::new() };
    }
    let start = || {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        started.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Cluster::start());
            *started = Arc::downgrade(&cluster);
            cluster
        })
    };
    USED.with(|used| {
        let cluster = used.get_or_init(start);
        cluster.flush();
        connect(&cluster.url(), clock)
    })
}

fn connect(url: &str, clock: ManualClock) -> Store {
    let options = RedisOptions { deadline: Duration::from_secs(10), clock: clock.into(), ..RedisOptions::default() };
    now_or_never(RedisStore::connect(url, options)).unwrap().into()
}
