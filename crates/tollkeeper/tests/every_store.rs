//! The stores under test. A new store joins by adding its constructor to [`STORES`].

#[cfg(feature = "redis")]
mod servers;

use std::sync::LazyLock;

use tollkeeper::{ManualClock, MemoryStore, Store};

#[cfg(feature = "redis")]
use servers::{CLUSTER, cluster_store, redis_store};
#[cfg(feature = "redis")]
use tollkeeper_testkit::store::Kind;

pub(crate) type NewStore = fn(ManualClock) -> Store;

/// The stores under test, each on a clock that the test moves, with room for all keys of the tests.
pub(crate) const STORES: &[(&str, NewStore)] = &[
    ("memory", |clock| MemoryStore::with(10_000, clock).into()),
    #[cfg(feature = "redis")]
    ("redis 6.2", |clock| redis_store(Kind::Redis62, clock)),
    #[cfg(feature = "redis")]
    ("redis 7", |clock| redis_store(Kind::Redis7, clock)),
    #[cfg(feature = "redis")]
    ("valkey 9", |clock| redis_store(Kind::Valkey9, clock)),
    #[cfg(feature = "redis")]
    (CLUSTER, cluster_store),
];

/// One runtime for all: a connection lives on the runtime that opened it.
static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());

pub(crate) fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(future)
}

#[cfg(feature = "redis")]
pub(crate) use servers::{Turn, turn};

/// Nothing is shared, so no test has to wait for its turn.
#[cfg(not(feature = "redis"))]
pub(crate) type Turn = ();

#[cfg(not(feature = "redis"))]
pub(crate) fn turn(_: &str) -> Option<Turn> {
    None
}
