//! Which node decides: the only one, or in a cluster the one that owns the hash slot of a key.
//!
//! The slot map is read at the start and again whenever a node redirects or fails. A redirected call follows at once;
//! one whose outcome is unknown is never repeated, since it may have been charged. Each node has its own connection
//! and circuit breaker, so that an unreachable node does not delay the others.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{RedisError, Value};
use tokio::time::timeout;

use super::address::{Address, split_host};
use super::breaker::BreakerState;
use super::instant::Instant;
use super::io::Io;
use super::link;
use super::node::{Node, Read, Refusal, Work};
use super::route::{Route, host_of};
use super::server::ConnectError;
use crate::sparing::Sparing;
use crate::store::error::StoreError;

/// A boxed future: what an `async fn` awaits by its type is compiled again in each crate that awaits it.
type Answered<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

/// A hash slot: one of the parts into which a cluster divides its keys. A single server has one for all.
pub(super) type Slot = u16;

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16_384;

/// All servers of a store.
pub(super) enum Nodes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Nodes {
    /// How many slots there are to choose from.
    pub(super) fn slots(&self) -> usize {
        match self {
            Nodes::One(_) => 1,
            Nodes::Cluster(_) => SLOTS,
        }
    }

    pub(super) fn slot(&self, key: &str) -> Slot {
        match self {
            Nodes::One(_) => 0,
            Nodes::Cluster(_) => slot_of(key),
        }
    }

    /// The node of this slot.
    pub(super) fn owner(&self, slot: Slot) -> Result<Arc<Node>, ConnectError> {
        match self {
            Nodes::One(node) => Ok(node.clone()),
            Nodes::Cluster(cluster) => cluster.owner(slot).map_err(|error| ConnectError::Connect(error.to_string())),
        }
    }

    /// Whether the node of this slot may be called.
    pub(super) fn admit(&self, slot: Slot) -> Result<(), StoreError> {
        match self {
            Nodes::One(node) => node.admit(),
            Nodes::Cluster(cluster) => cluster.owner(slot)?.admit().inspect_err(|_| cluster.refresh_soon()),
        }
    }

    /// The round trip time to the node of this slot.
    pub(super) fn round_trip(&self, slot: Slot) -> Duration {
        match self {
            Nodes::One(node) => node.round_trip(),
            Nodes::Cluster(cluster) => cluster.owner(slot).map_or(Duration::ZERO, |node| node.round_trip()),
        }
    }

    /// Whether the node of this slot is known to fail.
    pub(super) fn is_known_to_fail(&self, slot: Slot) -> bool {
        match self {
            Nodes::One(node) => node.breaker_state() != BreakerState::Closed,
            Nodes::Cluster(cluster) => {
                cluster.owner(slot).map_or(true, |node| node.breaker_state() != BreakerState::Closed)
            }
        }
    }

    /// Whether a caller may make a call in its own runtime: only to a single server at a fixed address.
    pub(super) fn is_callable_here(&self) -> bool {
        matches!(self, Nodes::One(node) if node.is_callable_here())
    }

    /// Calls that server in the caller's runtime.
    pub(super) async fn call_here<T: Send>(
        &self,
        io: &Io,
        work: Work<'_>,
        read: impl Fn(Value) -> Result<T, StoreError> + Sync,
    ) -> Result<T, Refusal> {
        let mut kept = None;
        self.ask_here(io, work, &mut |value| keep(&mut kept, read(value))).await?;
        kept.ok_or_else(unread)
    }

    fn ask_here<'a>(&'a self, io: &'a Io, work: Work<'a>, read: &'a mut Read<'_>) -> Answered<'a> {
        Box::pin(async move {
            match self {
                Nodes::One(node) => node.call_here(io, work, read).await,
                Nodes::Cluster(_) => Err(Refusal::TryAgain),
            }
        })
    }

    /// Calls the node of this slot, on the thread that makes calls.
    pub(super) async fn call<T: Send>(
        &self,
        slot: Slot,
        work: Work<'_>,
        read: impl Fn(Value) -> Result<T, StoreError> + Sync,
    ) -> Result<T, Refusal> {
        let mut kept = None;
        self.ask(slot, work, &mut |value| keep(&mut kept, read(value))).await?;
        kept.ok_or_else(unread)
    }

    fn ask<'a>(&'a self, slot: Slot, work: Work<'a>, read: &'a mut Read<'_>) -> Answered<'a> {
        Box::pin(async move {
            match self {
                Nodes::One(node) => node.call(work, false, read).await,
                Nodes::Cluster(cluster) => cluster.call(slot, work, read).await,
            }
        })
    }

    /// Probes nodes that did not answer, so that they are found again even if none of their keys is used.
    pub(super) async fn probe(&self) {
        let nodes = match self {
            Nodes::One(node) => vec![node.clone()],
            Nodes::Cluster(cluster) => cluster.primaries(),
        };
        for node in nodes.iter().filter(|node| node.breaker_state() != BreakerState::Closed) {
            if node.admit().is_ok() {
                // The outcome is reported to its breaker.
                let _ = node.call(Work::Command(&redis::cmd("PING")), false, &mut |_| Ok(())).await;
            } else if let Nodes::Cluster(cluster) = self {
                cluster.refresh_soon();
            }
        }
    }

    /// The worst state of all nodes.
    pub(super) fn breaker_state(&self) -> BreakerState {
        match self {
            Nodes::One(node) => node.breaker_state(),
            Nodes::Cluster(cluster) => {
                let view = cluster.view.load();
                let states = view.iter().map(|range| range.node.breaker_state());
                states.max().unwrap_or(BreakerState::Open)
            }
        }
    }
}

/// A cluster as last seen.
pub(super) struct Cluster {
    address: Address,
    deadline: Duration,
    view: ArcSwap<Vec<Range>>,
    /// Every known node, by its address.
    nodes: Mutex<HashMap<String, Arc<Node>>>,
    is_refreshing: AtomicBool,
    /// That the map cannot be read.
    unread: Sparing,
}

/// A range of slots that one node owns.
struct Range {
    first: Slot,
    last: Slot,
    node: Arc<Node>,
}

impl Cluster {
    /// How many redirections a call follows. A migrating slot causes two.
    const HOPS: usize = 5;
    /// The shortest time between two reads of the map.
    const REFRESH: Duration = Duration::from_millis(100);
    /// How long a node may take to return the map.
    const TELL: Duration = Duration::from_millis(500);

    /// Reads the map from the first host that has one.
    pub(super) async fn connect(address: Address, deadline: Duration) -> Result<Arc<Cluster>, ConnectError> {
        let cluster = Arc::new(Cluster {
            address,
            deadline,
            view: ArcSwap::from_pointee(Vec::new()),
            nodes: Mutex::default(),
            is_refreshing: AtomicBool::new(false),
            unread: Sparing::while_failing(),
        });
        cluster.refresh().await?;
        let view = cluster.view.load();
        let covered = view.iter().map(|range| usize::from(range.last - range.first) + 1).sum();
        if covered < SLOTS {
            return Err(ConnectError::Incomplete(covered));
        }
        Ok(cluster)
    }

    /// The nodes that own slots.
    pub(super) fn primaries(&self) -> Vec<Arc<Node>> {
        let mut primaries: Vec<Arc<Node>> = Vec::new();
        for range in self.view.load().iter() {
            if !primaries.iter().any(|known| Arc::ptr_eq(known, &range.node)) {
                primaries.push(range.node.clone());
            }
        }
        primaries
    }

    fn owner(&self, slot: Slot) -> Result<Arc<Node>, StoreError> {
        let view = self.view.load();
        let range = view.get(view.partition_point(|range| range.last < slot)).filter(|range| range.first <= slot);
        range
            .map(|range| range.node.clone())
            .ok_or_else(|| StoreError::unavailable(format!("no node serves slot {slot}")))
    }

    async fn call(self: &Arc<Self>, slot: Slot, work: Work<'_>, read: &mut Read<'_>) -> Result<(), Refusal> {
        let failed = |error| {
            self.refresh_soon();
            Refusal::Failed(error)
        };
        let mut node = self.owner(slot).map_err(failed)?;
        let (started, mut asking, mut hops) = (Instant::now(), false, 0);
        loop {
            let refusal = match node.call(work, asking, read).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Failed(error)) => return Err(failed(error)),
                Err(late @ Refusal::Late(_)) => {
                    self.refresh_soon();
                    return Err(late);
                }
                Err(refusal) => refusal,
            };
            hops += 1;
            if hops > Cluster::HOPS || started.elapsed() > self.deadline {
                return Err(refusal);
            }
            (node, asking) = match &refusal {
                Refusal::Moved(address) => {
                    self.refresh_soon();
                    (self.node_at(&whole(address, &node)).map_err(failed)?, false)
                }
                Refusal::Ask(address) => (self.node_at(&whole(address, &node)).map_err(failed)?, true),
                Refusal::TryAgain
                | Refusal::Overloaded
                | Refusal::Full(_)
                | Refusal::OtherTime(_)
                | Refusal::Late(_)
                | Refusal::Failed(_) => return Err(refusal),
            };
        }
    }

    /// The node at an address from the cluster, which may be new.
    fn node_at(&self, address: &str) -> Result<Arc<Node>, StoreError> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let unusable = |error: ConnectError| StoreError::unavailable(format!("{address}: {error}"));
        let (host, port) = split_host(address).ok_or_else(|| unusable(ConnectError::Url("no address".into())))?;
        let client = self.address.client_at(host, port).map_err(unusable)?;
        let node = Node::lazy(Route::Direct(Box::new(client.clone())), &client, self.deadline).map_err(unusable)?;
        let node = Arc::new(node);
        nodes.insert(address.to_string(), node.clone());
        Ok(node)
    }

    /// Reads the map again, in the background and not too often.
    fn refresh_soon(self: &Arc<Self>) {
        if self.is_refreshing.swap(true, Relaxed) {
            return;
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = cluster.refresh().await
                && let Some(left_out) = cluster.unread.turn()
            {
                tracing::warn!("cannot read the slot map of the cluster yet: {error}{left_out}");
            }
            tokio::time::sleep(Cluster::REFRESH).await;
            cluster.is_refreshing.store(false, Relaxed);
        });
    }

    async fn refresh(&self) -> Result<(), ConnectError> {
        let mut problem = None;
        // The owners of slots know best; the configured hosts may have left.
        let mut known = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect::<Vec<_>>();
        known.sort();
        let known = known.iter().filter_map(|address| {
            let (host, port) = split_host(address)?;
            self.address.client_at(host, port).ok()
        });
        let named = self.address.hosts.iter().filter_map(|info| self.address.client(info.clone()).ok());
        for client in known.chain(named) {
            match ask_for_slots(&client).await {
                Ok(ranges) => return self.replace_view(ranges),
                Err(error) => problem = Some(problem.unwrap_or(error)),
            }
        }
        Err(problem.unwrap_or_else(|| ConnectError::Url("it has no host".into())))
    }

    fn replace_view(&self, owners: Vec<(Slot, Slot, String)>) -> Result<(), ConnectError> {
        let mut view = Vec::with_capacity(owners.len());
        for (first, last, address) in &owners {
            let node = self.node_at(address).map_err(|error| ConnectError::Connect(error.to_string()))?;
            view.push(Range { first: *first, last: *last, node });
        }
        view.sort_by_key(|range| range.first);
        self.view.store(Arc::new(view));
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|address, _| owners.iter().any(|(_, _, owner)| owner == address));
        Ok(())
    }
}

/// A node that does not know its own host name redirects to a port of the host that was asked.
fn whole(address: &str, asked: &Node) -> String {
    if address.starts_with(':') { format!("{}{address}", asked.host()) } else { address.to_string() }
}

async fn ask_for_slots(client: &redis::Client) -> Result<Vec<(Slot, Slot, String)>, ConnectError> {
    let connect = |error: redis::RedisError| ConnectError::Connect(error.to_string());
    let late = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    let opened = timeout(Cluster::TELL, link::open(client)).await.map_err(late).flatten();
    let mut connection = opened.map_err(connect)?;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let told = timeout(Cluster::TELL, command.query_async(&mut connection)).await.map_err(late).flatten();
    let slots = told.map_err(|error| {
        let text = error.to_string();
        if text.contains("cluster support disabled") || text.contains("unknown command") {
            return ConnectError::Mode("the server is not part of a cluster; write redis://HOST:PORT".into());
        }
        connect(error)
    })?;
    Ok(read_slots(&slots, host_of(client)))
}

/// Parses `CLUSTER SLOTS`: ranges and the address of each primary. A node that does not know its own host name is
/// where the answer came from.
fn read_slots(slots: &Value, answering: &str) -> Vec<(Slot, Slot, String)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else { return None };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let host = if host.is_empty() || host == "?" { answering } else { &host };
        Some((Slot::try_from(*first).ok()?, Slot::try_from(*last).ok()?, format!("{host}:{port}")))
    };
    ranges.iter().filter_map(range).collect()
}

/// The slot of a key: of the text in its first braces, if there is any.
pub(super) fn slot_of(key: &str) -> Slot {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS as u16
}

/// A call that succeeded has read its reply, so this is never seen.
fn unread() -> Refusal {
    Refusal::Failed(StoreError::unavailable("its reply was not read"))
}

/// Keeps what a reply said.
fn keep<T>(place: &mut Option<T>, said: Result<T, StoreError>) -> Result<(), StoreError> {
    *place = Some(said?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // From `CLUSTER KEYSLOT`.
        for (key, slot) in [("foo", 12_182), ("tollkeeper:{foo}0:rule", 12_182), ("{}foo", 9_500), ("x{a}{b}", 15_495)]
        {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }

    #[test]
    fn the_map_is_read_whatever_a_node_calls_itself() {
        let text = |text: &str| Value::BulkString(text.into());
        let range = |first, last, host: Value, port| {
            let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(Vec::new())]);
            Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node(text("replica"), 1)])
        };
        let slots =
            Value::Array(vec![range(0, 5, text("10.0.0.1"), 7_000), range(6, 9, Value::Nil, 7_001), Value::Int(3)]);
        let expected = [(0, 5, "10.0.0.1:7000".to_string()), (6, 9, "asked:7001".to_string())];
        assert_eq!(read_slots(&slots, "asked"), expected);
    }
}
