//! Sentinels: they say which server is the primary.
//!
//! They learn of a failover one after the other, within a few seconds. The one with the highest configuration epoch
//! knows most, so all are asked at the same time, and nobody goes back to an older epoch because some lag behind.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::Address;
use super::link::ConnectionManager;
use super::server::{self, ConnectError};

/// The sentinels of one primary.
pub(super) struct Sentinels {
    name: String,
    address: Address,
}

/// A primary as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    host: String,
    port: u16,
    /// The failover that made it the primary: later ones have higher numbers.
    epoch: u64,
}

impl Primary {
    pub(super) fn is_at(&self, other: &Primary) -> bool {
        self.host == other.host && self.port == other.port
    }

    pub(super) fn is_newer_than(&self, other: &Primary) -> bool {
        self.epoch > other.epoch
    }
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Sentinels {
    /// How long a sentinel may take to answer.
    const PATIENCE: Duration = Duration::from_millis(500);
    /// How long the last ones may take when most have answered.
    const LAST: Duration = Duration::from_millis(100);

    pub(super) fn new(name: String, address: Address) -> Sentinels {
        Sentinels { name, address }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.address.hosts.len()
    }

    /// The primary by the sentinel that knows most. If all that answer know less than `known`, it is an error: they
    /// lag behind. If all sentinels answer and know less, they were configured again, and are right.
    pub(super) async fn survey(self: &Arc<Self>, known: Option<&Primary>) -> Result<Primary, ConnectError> {
        let mut asked = JoinSet::new();
        for number in 0..self.count() {
            let sentinels = Arc::clone(self);
            asked.spawn(async move { sentinels.ask(number).await });
        }
        let (mut newest, mut answers): (Option<Primary>, usize) = (None, 0);
        let mut problem = ConnectError::Url("it has no host".into());
        loop {
            let patience = if answers * 2 > self.count() { Sentinels::LAST } else { Sentinels::PATIENCE * 3 };
            match timeout(patience, asked.join_next()).await {
                Ok(Some(Ok(Ok(primary)))) => {
                    answers += 1;
                    if newest.as_ref().is_none_or(|newest| primary.is_newer_than(newest)) {
                        newest = Some(primary);
                    }
                }
                Ok(Some(Ok(Err(error)))) => problem = error,
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let newest = newest.ok_or(problem)?;
        if answers < self.count() && known.is_some_and(|known| known.is_newer_than(&newest)) {
            let lag = format!("{answers} of {} sentinels answer, and they lag behind", self.count());
            return Err(ConnectError::Connect(lag));
        }
        Ok(newest)
    }

    /// A connection to a primary that has been checked to be one.
    pub(super) async fn connect(&self, primary: &Primary) -> Result<ConnectionManager, ConnectError> {
        let mut connection = server::open(&self.address.client_at(&primary.host, primary.port)?).await?;
        let role: Value = server::ask(&mut connection, &redis::cmd("ROLE")).await.map_err(connect)?;
        if !server::is_primary(&role) {
            return Err(ConnectError::Connect(format!("{primary} is not yet, or no longer, the primary")));
        }
        Ok(connection)
    }

    /// A connection to a primary that is opened on first use.
    pub(super) fn lazy(&self, primary: &Primary) -> Result<ConnectionManager, ConnectError> {
        server::lazy(&self.address.client_at(&primary.host, primary.port)?)
    }

    async fn ask(&self, number: usize) -> Result<Primary, ConnectError> {
        let mut connection = self.open(number, ProtocolVersion::RESP2, Sentinels::config()).await?;
        self.named_by(number, &mut connection).await
    }

    async fn open(
        &self,
        number: usize,
        protocol: ProtocolVersion,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, ConnectError> {
        let info = self.address.sentinel(&self.address.hosts[number]);
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let client = self.address.client(info.set_redis_settings(settings))?;
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(connect)
    }

    fn config() -> AsyncConnectionConfig {
        let patience = Some(Sentinels::PATIENCE);
        AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience)
    }

    /// The epoch is asked for first: if a failover happens in between, the address is the newer one, and the next
    /// answer confirms it. The other way round an old address would get the new epoch.
    async fn named_by(&self, number: usize, of: &mut MultiplexedConnection) -> Result<Primary, ConnectError> {
        let mut ask_master = redis::cmd("SENTINEL");
        ask_master.arg("master").arg(&self.name);
        // Some users may ask only for the address.
        let master: HashMap<String, String> = ask_master.query_async(of).await.unwrap_or_default();
        let epoch = master.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        let mut ask_address = redis::cmd("SENTINEL");
        ask_address.arg("get-master-addr-by-name").arg(&self.name);
        let sentinel = self.address.hosts[number].addr();
        let found: Option<(String, u16)> = ask_address.query_async(of).await.map_err(|error: RedisError| {
            if error.to_string().contains("unknown command") {
                let problem = format!("{sentinel} is not a sentinel; for a server itself write redis://");
                return ConnectError::Mode(problem);
            }
            connect(error)
        })?;
        let unknown =
            || ConnectError::Connect(format!("the sentinel at {sentinel} has no primary named {:?}", self.name));
        let (host, port) = found.ok_or_else(unknown)?;
        Ok(Primary { host, port, epoch })
    }
}

/// A sentinel that announces failovers to us.
pub(super) struct Listener {
    sentinels: Arc<Sentinels>,
    number: usize,
    connection: MultiplexedConnection,
    announced: Arc<Notify>,
}

impl Listener {
    /// What a sentinel publishes when it knows of a new primary.
    const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

    pub(super) async fn start(sentinels: &Arc<Sentinels>, number: usize) -> Result<Listener, ConnectError> {
        let announced = Arc::new(Notify::new());
        let wake = Arc::clone(&announced);
        let config = Sentinels::config().set_push_sender(move |push: PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                wake.notify_one();
            }
            Ok::<(), Infallible>(())
        });
        // A user that may not subscribe asks once a second.
        let connection = match sentinels.open(number, ProtocolVersion::RESP3, config).await {
            Ok(mut connection) => connection.subscribe(&Listener::CHANNELS).await.map(|()| connection).ok(),
            Err(_) => None,
        };
        let connection = match connection {
            Some(connection) => connection,
            None => sentinels.open(number, ProtocolVersion::RESP2, Sentinels::config()).await?,
        };
        Ok(Listener { sentinels: Arc::clone(sentinels), number, connection, announced })
    }

    /// The primary that it names now.
    pub(super) async fn ask(&mut self) -> Result<Primary, ConnectError> {
        self.sentinels.named_by(self.number, &mut self.connection).await
    }

    /// Waits until it announces a failover, at most this long.
    pub(super) async fn wait(&self, at_most: Duration) {
        let _ = timeout(at_most, self.announced.notified()).await;
    }
}

fn connect(error: RedisError) -> ConnectError {
    ConnectError::Connect(error.to_string())
}
