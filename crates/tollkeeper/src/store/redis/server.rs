//! Checks, before anything is decided, whether a server can be used.

use std::fmt;
use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, RedisError, Value};

use super::link::{self, ConnectionManager};
use super::script;

/// What was found about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `redis`, `valkey` or another name that the server reports.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `standalone`, `sentinel` or `cluster`, as reported.
    pub mode: String,
    /// Whether it is a replica, which cannot be written to.
    pub is_replica: bool,
    /// How many servers share the keys: more than one in a cluster.
    pub primaries: usize,
    /// What it does when memory is short.
    pub maxmemory_policy: Option<String>,
}

impl Server {
    /// What an operator should know about this server.
    pub fn warning(&self) -> Option<String> {
        let policy = self.maxmemory_policy.as_deref()?;
        (policy != "noeviction").then(|| {
            format!(
                "maxmemory-policy is {policy}: when memory is short, the server evicts live limits, and those clients \
                 get full buckets; set it to noeviction"
            )
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}", self.name, self.version, self.mode)?;
        if self.mode == "cluster" { write!(f, " of {} primaries", self.primaries) } else { Ok(()) }
    }
}

/// Why a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error(
        "{0}; write for example redis://127.0.0.1:6379, redis+cluster://10.0.0.1:6379,10.0.0.2:6379 or \
         redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
    )]
    Url(String),
    /// The certificates are unusable.
    #[error("{0}")]
    Tls(String),
    /// Unreachable, or authentication failed.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Scripts need effects replication and more.
    #[error("the server is {0}, and Tollkeeper needs 6.2 or newer")]
    TooOld(String),
    /// A replica cannot be written to.
    #[error("the server is a read-only replica; give the address of its primary")]
    Replica,
    /// Another kind of address is needed.
    #[error("{0}")]
    Mode(String),
    /// A cluster that does not serve all slots.
    #[error(
        "the cluster serves {0} of 16384 slots; wait until it is complete, or repair it with redis-cli --cluster fix"
    )]
    Incomplete(usize),
    /// The thread that makes the calls does not start, or ended.
    #[error("cannot start the thread that talks to the store: {0}")]
    Thread(String),
    /// The user may not run scripts.
    #[error("the server does not let this user run scripts ({0}); allow EVAL, EVALSHA and SCRIPT")]
    Scripts(String),
    /// The user may not run the commands that the scripts use.
    #[error(
        "this user lacks permissions on the server ({0}); allow \
         ~tollkeeper:* +@scripting +@string +@list +@hash +@sortedset +@keyspace +@connection +time +info"
    )]
    Permission(String),
}

/// Asks a server what it is.
pub(super) async fn identify(connection: &mut ConnectionManager) -> Result<Server, ConnectError> {
    let info: String = ask(connection, &redis::cmd("INFO")).await.map_err(connect)?;
    judge(&info)
}

/// For use at the start, with a generous timeout. Later each call has its own deadline.
pub(super) async fn ask<T: FromRedisValue>(connection: &mut ConnectionManager, command: &Cmd) -> Result<T, RedisError> {
    in_time(command.query_async(connection)).await
}

async fn in_time<T>(asked: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(Duration::from_secs(2), asked).await.unwrap_or_else(late)
}

/// Whether a reply to `ROLE` is a primary's.
pub(super) fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// Loads all scripts in one round trip, and finds out whether they may be run.
pub(super) async fn teach(connection: &mut ConnectionManager) -> Result<(), ConnectError> {
    let mut load = redis::pipe();
    for script in script::all() {
        load.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    let loaded: Vec<Result<String, RedisError>> =
        in_time(load.ignore_errors().query_async(connection)).await.map_err(connect)?;
    match loaded.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some(error) if error.code() == Some("NOPERM") || error.kind() == ErrorKind::AuthenticationFailed => {
            Err(ConnectError::Scripts(error.to_string()))
        }
        Some(error) => Err(connect(error)),
    }
}

/// A working connection.
pub(super) async fn open(client: &Client) -> Result<ConnectionManager, ConnectError> {
    link::open(client).await.map_err(|error| match client.get_connection_info().addr() {
        // A server without TLS waits for the rest of what it takes for a command.
        ConnectionAddr::TcpTls { .. } if error.is_timeout() => ConnectError::Connect(format!(
            "{error}; if that port does not speak TLS, use redis instead of rediss in \
                                           the URL"
        )),
        ConnectionAddr::Tcp(..) if error.to_string().contains("reset") => {
            ConnectError::Connect(format!("{error}; if that port speaks TLS, use rediss instead of redis in the URL"))
        }
        _ => connect(error),
    })
}

/// A connection that is opened on first use.
pub(super) fn lazy(client: &Client) -> Result<ConnectionManager, ConnectError> {
    link::lazy(client).map_err(connect)
}

fn connect(error: RedisError) -> ConnectError {
    ConnectError::Connect(error.to_string())
}

/// Parses `INFO`.
fn judge(info: &str) -> Result<Server, ConnectError> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let name = field("server_name").unwrap_or("redis").to_string();
    let version = field("valkey_version").or(field("redis_version")).unwrap_or("0").to_string();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if number < (6, 2) {
        return Err(ConnectError::TooOld(format!("{name} {version}")));
    }
    let mode = field("server_mode").or(field("redis_mode")).unwrap_or("standalone").to_string();
    let maxmemory_policy = field("maxmemory").filter(|max| *max != "0").and(field("maxmemory_policy"));
    Ok(Server {
        name,
        version,
        mode,
        is_replica: field("role") == Some("slave"),
        primaries: 1,
        maxmemory_policy: maxmemory_policy.map(str::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_judged_by_what_it_says() {
        let info = |extra: &str| {
            format!("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n{extra}")
        };
        assert_eq!(judge(&info("")).expect("fine").to_string(), "redis 7.0.15, standalone");
        assert_eq!(judge("redis_version:5.0.1\r\n"), Err(ConnectError::TooOld("redis 5.0.1".into())));
        assert!(judge("redis_version:7.0.0\r\nrole:slave\r\n").expect("fine").is_replica);
        let valkey =
            judge("server_name:valkey\r\nredis_version:7.2.4\r\nvalkey_version:9.1.0\r\nserver_mode:standalone\r\n");
        assert_eq!(valkey.expect("fine").to_string(), "valkey 9.1.0, standalone");
        let evicting = judge(&info("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n")).expect("fine");
        assert!(evicting.warning().expect("a warning").contains("allkeys-lru"));
        let unbounded = judge(&info("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n")).expect("fine");
        assert_eq!(unbounded.warning(), None);
    }
}
