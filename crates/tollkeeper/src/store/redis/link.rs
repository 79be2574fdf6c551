//! A connection to a server. In unit tests it may lead into a simulated network instead.

#[cfg(test)]
pub(super) mod simulated;

use std::time::Duration;

use redis::aio::ConnectionManagerConfig;
use redis::{Client, RedisError, aio};

/// A connection that reconnects in the background; waiting for that is bounded by each call's deadline.
#[cfg(not(test))]
pub(super) type ConnectionManager = aio::ConnectionManager;

/// The real one, or a simulated one.
#[cfg(test)]
#[derive(Clone)]
pub(super) enum ConnectionManager {
    Real(aio::ConnectionManager),
    Simulated(simulated::network::Connection),
}

/// A working connection.
pub(super) async fn open(client: &Client) -> Result<ConnectionManager, RedisError> {
    #[cfg(test)]
    if let Some(network) = simulated::network::Network::current() {
        let to = client.get_connection_info().addr().to_string();
        return simulated::network::Connection::open(network, to).await.map(ConnectionManager::Simulated);
    }
    aio::ConnectionManager::new_with_config(client.clone(), config()).await.map(real)
}

/// A connection that is opened on first use.
pub(super) fn lazy(client: &Client) -> Result<ConnectionManager, RedisError> {
    #[cfg(test)]
    if let Some(network) = simulated::network::Network::current() {
        let to = client.get_connection_info().addr().to_string();
        return Ok(ConnectionManager::Simulated(simulated::network::Connection::lazy(network, to)));
    }
    aio::ConnectionManager::new_lazy_with_config(client.clone(), config()).map(real)
}

#[cfg(not(test))]
fn real(connection: aio::ConnectionManager) -> ConnectionManager {
    connection
}

#[cfg(test)]
fn real(connection: aio::ConnectionManager) -> ConnectionManager {
    ConnectionManager::Real(connection)
}

/// Without a response timeout: the caller has one, and another would only add overhead.
fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(None)
        .set_number_of_retries(2)
        .set_max_delay(Duration::from_millis(500))
}

#[cfg(test)]
mod dispatch {
    use redis::aio::ConnectionLike;
    use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};

    use super::ConnectionManager;

    impl ConnectionLike for ConnectionManager {
        fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
            match self {
                ConnectionManager::Real(connection) => connection.req_packed_command(command),
                ConnectionManager::Simulated(connection) => {
                    let command = words(command);
                    Box::pin(async move { Ok(connection.call(vec![command]).await?.pop().unwrap_or(Value::Nil)) })
                }
            }
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            commands: &'a Pipeline,
            offset: usize,
            count: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            match self {
                ConnectionManager::Real(connection) => connection.req_packed_commands(commands, offset, count),
                ConnectionManager::Simulated(connection) => {
                    let commands = commands.cmd_iter().map(words).collect();
                    Box::pin(async move { Ok(connection.call(commands).await?.split_off(offset)) })
                }
            }
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    fn words(command: &Cmd) -> Vec<Vec<u8>> {
        let word = |argument: Arg<&[u8]>| match argument {
            Arg::Simple(word) => word.to_vec(),
            _ => Vec::new(),
        };
        command.args_iter().map(word).collect()
    }
}
