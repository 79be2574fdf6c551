//! Doors to the service. Each is a function `run(listener, service, shutdown)` over the same
//! [`Service`](crate::service::Service).

mod body;
mod certified;
pub(crate) mod connections;
mod credential;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod proxy;
pub(crate) mod resp;
mod stranger;

use crate::metrics::{Labels, Metrics};
use crate::route::Route;

/// Metrics with the names of what the fronts serve.
pub(crate) fn metrics() -> Metrics {
    Metrics::new(Labels { routes: Route::NAMES, commands: &resp::COMMANDS, throttle: resp::throttle_rule() })
}
