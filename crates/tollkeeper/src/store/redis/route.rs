//! How a node is reached: at a fixed address, or wherever Sentinel says that the primary is.

use std::fmt;
use std::sync::Arc;

use redis::{Client, ConnectionAddr};

use super::link::ConnectionManager;
use super::sentinel::{Primary, Sentinels};
use super::server::{self, ConnectError};

/// The route to a node.
pub(super) enum Route {
    /// Always the same address.
    Direct(Box<Client>),
    /// Looked up again for each connection.
    Sentinel(Arc<Sentinels>),
}

/// A connection, and where it goes if sentinels said so.
pub(super) struct Found {
    pub(super) connection: ConnectionManager,
    pub(super) primary: Option<Primary>,
}

impl Route {
    /// A new, working connection.
    pub(super) async fn open(&self) -> Result<ConnectionManager, ConnectError> {
        Ok(self.find(None).await?.connection)
    }

    /// The same, and where it goes. Sentinels that know less than what is known are not believed.
    pub(super) async fn find(&self, known: Option<&Primary>) -> Result<Found, ConnectError> {
        match self {
            Route::Direct(client) => Ok(Found { connection: server::open(client).await?, primary: None }),
            Route::Sentinel(sentinels) => {
                let primary = sentinels.survey(known).await?;
                Ok(Found { connection: sentinels.connect(&primary).await?, primary: Some(primary) })
            }
        }
    }

    /// A connection to a fixed place, which is made when it is first used.
    pub(super) fn lazy(&self) -> Option<ConnectionManager> {
        match self {
            Route::Direct(client) => server::lazy(client).ok(),
            Route::Sentinel(_) => None,
        }
    }

    /// The host of a fixed address.
    pub(super) fn host(&self) -> &str {
        match self {
            Route::Direct(client) => host_of(client),
            Route::Sentinel(_) => "",
        }
    }

    /// The sentinels, if they say where it is.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Route::Direct(_) => None,
            Route::Sentinel(sentinels) => Some(sentinels),
        }
    }
}

pub(super) fn host_of(client: &Client) -> &str {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Direct(client) => write!(f, "{}", client.get_connection_info().addr()),
            Route::Sentinel(sentinels) => write!(f, "the primary {}", sentinels.name()),
        }
    }
}
