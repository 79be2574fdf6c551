//! The fronts of the service. Each is a function `run(listener, service, shutdown)` over the same
//! [`Service`](crate::service::Service).

mod alarm;
mod body;
mod certified;
pub(crate) mod connections;
mod credential;
mod forwarding;
pub(crate) mod grpc;
pub(crate) mod health;
pub(crate) mod http;
mod plain;
pub(crate) mod proxy;
mod requests;
pub(crate) mod resp;
mod stopped;

use std::sync::Arc;

use crate::metrics::{Connections, Labels, Metrics};
use crate::route::Route;
use crate::service::Service;
use connections::Visitors;

/// Metrics with the names of the routes and commands that the fronts serve.
pub(crate) fn metrics() -> Metrics {
    let built_in = vec![resp::throttle_rule(), grpc::overrides::rule()];
    Metrics::new(Labels { routes: Route::NAMES, commands: &resp::COMMANDS, built_in })
}

impl Service {
    /// Those who connect to a front, of which this is counted.
    fn visitors(&self, counted: &Arc<Connections>) -> Arc<Visitors> {
        Visitors::new(counted.clone(), self.identity.clone(), self.draining.clone())
    }
}
