//! The flags for listening and stopping, shared by every service.

use std::sync::Arc;
use std::time::Duration;

use super::open_files;
use super::signals::{Asked, Stop};
use crate::config::{Config, Listen};
use crate::front::connections::{self, MostConnections};
use crate::front::health;
use crate::service::Service;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListeningArgs {
    /// An address that serves only /healthz and /readyz, and answers even when the others are overloaded
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_HEALTH")]
    health: Option<String>,
    /// The maximum number of connections to each address
    #[arg(long, value_name = "N", env = "TOLLKEEPER_CONNECTIONS")]
    connections: Option<usize>,
    /// The maximum number of connections from one client address, by default a quarter of all; trusted proxies are exempt
    #[arg(long, value_name = "N", env = "TOLLKEEPER_CONNECTIONS_PER_ADDRESS")]
    connections_per_address: Option<usize>,
    /// How long /readyz reports that it is draining, after SIGTERM and before connections are closed
    #[arg(long, value_name = "TIME", env = "TOLLKEEPER_SHUTDOWN_DELAY")]
    shutdown_delay: Option<String>,
}

impl ListeningArgs {
    /// Each flag overrides the file's setting.
    pub(super) fn override_in(&self, config: &mut Config) {
        let listen = &mut config.listen;
        if self.health.is_some() {
            listen.health.clone_from(&self.health);
        }
        listen.connections = self.connections.unwrap_or(listen.connections);
        listen.connections_per_address = self.connections_per_address.or(listen.connections_per_address);
        if let Some(delay) = &self.shutdown_delay {
            config.shutdown.delay.clone_from(delay);
        }
    }
}

/// How many connections each of `listeners` listeners accepts, if each connection needs `files_each` files.
pub(super) fn most_connections(config: &Config, listeners: usize, files_each: usize) -> MostConnections {
    let listen = &config.listen;
    let all = open_files::connections(listen.connections, listeners, files_each);
    let per_address = per_address(listen);
    MostConnections { all, per_address: share(per_address, listen.connections, all) }
}

/// A quarter of all unless it is set: a number of its own would be all of them where `connections` is lower.
fn per_address(listen: &Listen) -> usize {
    listen.connections_per_address.unwrap_or((listen.connections / 4).max(1)).min(listen.connections)
}

/// What one address may have of the connections that are possible: the same share as of those that were wanted.
fn share(per_address: usize, wanted: usize, possible: usize) -> usize {
    let share = per_address as u128 * possible as u128 / (wanted as u128).max(1);
    usize::try_from(share).unwrap_or(usize::MAX).max(1)
}

/// Why an address cannot be listened on; if another program has it, with what to do.
pub(super) fn cannot_listen(field: &str, flag: &str, address: &str, error: std::io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(" (another program uses it; choose another address with {flag})"),
        _ => String::new(),
    };
    anyhow::Error::new(error).context(format!("{field}: cannot listen on {address}{advice}"))
}

/// Serves health on its own address, if one is configured; returns that address.
pub(super) async fn serve_health(config: &Config, service: &Arc<Service>) -> anyhow::Result<Option<String>> {
    let Some(address) = &config.listen.health else { return Ok(None) };
    let listener = connections::listen(address).await;
    let listener = listener.map_err(|error| cannot_listen("listen.health", "--health", address, error))?;
    let bound = listener.local_addr()?;
    health::start(listener.into_std()?, service.clone())?;
    Ok(Some(bound.to_string()))
}

/// Waits until the service should stop: at once on an interrupt, after the drain delay on a termination. A second
/// signal ends the delay.
pub(super) async fn wind_down(mut stop: Stop, service: &Service, delay: Duration) {
    let asked = stop.asked().await;
    service.begin_draining();
    if asked == Asked::ToTerminate && !delay.is_zero() {
        tracing::info!("draining: /readyz reports it for {delay:?}, and requests are still answered");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = stop.asked() => {}
        }
    }
    tracing::info!("stopping: finishing the requests in flight");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With few open files, as in a container with 1,024, the service took 256 connections and a single client could have
    /// them all: its own limit of 2,500 was above that.
    #[test]
    fn one_address_never_gets_all_connections_because_files_are_few() {
        assert_eq!(share(2_500, 10_000, 10_000), 2_500);
        assert_eq!(share(2_500, 10_000, 256), 64);
        assert_eq!(share(2_500, 10_000, 2), 1, "few are better than none");
        assert_eq!(share(2_000, 2_000, 256), 256, "who wants no limit has none");
    }

    /// The default was 2,500 whatever `listen.connections` was: with 2,000 connections or fewer, one client could have them
    /// all, and nobody else was answered.
    #[test]
    fn by_default_one_address_gets_a_quarter_of_all_connections() {
        let listen =
            |connections, connections_per_address| Listen { connections, connections_per_address, ..Listen::default() };
        assert_eq!(per_address(&Listen::default()), 2_500);
        assert_eq!([2_000, 100, 3, 1].map(|all| per_address(&listen(all, None))), [500, 25, 1, 1]);
        assert_eq!(per_address(&listen(2_000, Some(2_000))), 2_000, "who wants no limit has none");
        assert_eq!(per_address(&listen(100, Some(500))), 100);
    }
}
