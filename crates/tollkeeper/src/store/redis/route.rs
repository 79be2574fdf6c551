//! How a node is reached: at a fixed address, or wherever Sentinel says that the primary is.

use std::fmt;
use std::time::Duration;

use redis::aio::ConnectionManager;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Value};

use super::address::Address;
use super::server::{self, ConnectError};

/// The route to a node.
pub(super) enum Route {
    /// Always the same address.
    Direct(Client),
    /// Looked up again for each connection.
    Sentinel { name: String, address: Address },
}

impl Route {
    /// How long a sentinel may take before another one is asked.
    const SENTINEL: Duration = Duration::from_millis(500);

    /// A new, working connection.
    pub(super) async fn open(&self) -> Result<ConnectionManager, ConnectError> {
        match self {
            Route::Direct(client) => server::open(client).await,
            Route::Sentinel { name, address } => {
                // One sentinel may lag behind the others, or be the only one left.
                let mut problem = ConnectError::Url("it names no sentinel".into());
                for sentinel in &address.hosts {
                    match Route::primary(name, address, sentinel).await {
                        Ok(connection) => return Ok(connection),
                        Err(error) => problem = error,
                    }
                }
                Err(problem)
            }
        }
    }

    /// A connection to the primary that a sentinel knows.
    async fn primary(
        name: &str,
        address: &Address,
        sentinel: &ConnectionInfo,
    ) -> Result<ConnectionManager, ConnectError> {
        let Some((host, port)) = Route::ask(name, address, sentinel).await? else {
            let unknown = format!("the sentinel at {} knows no primary named {name:?}", sentinel.addr());
            return Err(ConnectError::Connect(unknown));
        };
        let mut connection = server::open(&address.client_at(&host, port)?).await?;
        // Just after a failover a sentinel may still name the old primary.
        let role: Vec<Value> = server::ask(&mut connection, &redis::cmd("ROLE")).await.map_err(connect)?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(connection),
            _ => Err(ConnectError::Connect(format!("{host}:{port} is not yet, or no longer, the primary"))),
        }
    }

    /// A connection to a fixed place, which is made when it is first used.
    pub(super) fn lazy(&self) -> Option<ConnectionManager> {
        match self {
            Route::Direct(client) => server::lazy(client).ok(),
            Route::Sentinel { .. } => None,
        }
    }

    /// The host of a fixed address.
    pub(super) fn host(&self) -> &str {
        match self {
            Route::Direct(client) => host_of(client),
            Route::Sentinel { .. } => "",
        }
    }

    async fn ask(
        name: &str,
        address: &Address,
        sentinel: &ConnectionInfo,
    ) -> Result<Option<(String, u16)>, ConnectError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Route::SENTINEL))
            .set_response_timeout(Some(Route::SENTINEL));
        let client = address.client(address.sentinel(sentinel))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(connect)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        command.query_async(&mut connection).await.map_err(|error: redis::RedisError| {
            if error.to_string().contains("unknown command") {
                let problem = format!("{} is not a sentinel; for a server itself write redis://", sentinel.addr());
                return ConnectError::Mode(problem);
            }
            connect(error)
        })
    }
}

pub(super) fn host_of(client: &Client) -> &str {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

fn connect(error: redis::RedisError) -> ConnectError {
    ConnectError::Connect(error.to_string())
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Direct(client) => write!(f, "{}", client.get_connection_info().addr()),
            Route::Sentinel { name, .. } => write!(f, "the primary {name}"),
        }
    }
}
