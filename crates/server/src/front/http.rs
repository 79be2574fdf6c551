//! The HTTP front: decisions for callers and proxies, and the admin part.

mod actions;
mod authorize;
mod batch_size;
mod check;
mod direct;
mod exceptions;
mod guard;
mod insight;
mod keys;
mod large;
mod observe;
mod origin;
mod pages;
mod problem;
mod reserve;
mod rules;
mod shared;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, any};
use tokio::runtime::Handle;

use super::connections::{self, Connected, Limits, Listener};
use super::requests;
use crate::route::{Access, Route};
use crate::service::Service;
use direct::Api;
use shared::Shared;

/// Serves until `shutdown`, then finishes the requests in flight.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    run_within(Limits::of(&listener), listener, service, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let visitors = service.visitors(&service.metrics.connections.http);
    let shared = Arc::new(Shared { service, limits });
    let api = Arc::new(Api { router: router(shared.clone()), shared });
    let protocol = move |executor| connections::protocol_on(executor, limits);
    let (refusing, plain) = (api.clone(), Some(api.clone()));
    let answer = move |request, from: &Arc<Connected>| api.clone().answer(request, from.clone());
    let refuse = move || refusing.refuse();
    requests::serve("HTTP", limits, visitors, protocol, listener.into(), shutdown, answer, refuse, plain).await;
    Ok(())
}

fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for &route in Route::ALL {
        let guard = from_fn_with_state((shared.clone(), route), guard::require);
        let handlers = handlers(route, &shared.service);
        // A method that a route does not support is refused before authentication; this route supports all.
        let handlers = if route == Route::Authorize { handlers.layer(guard) } else { handlers.route_layer(guard) };
        let counted = from_fn_with_state((shared.clone(), Some(route)), observe::count);
        let handlers = handlers.layer(from_fn(observe::survive));
        let handlers = match route.access() {
            Access::Open | Access::Decide => handlers,
            // These may have a lot to read.
            Access::Page | Access::Measure | Access::Admin => {
                handlers.layer(from_fn_with_state(Handle::current(), observe::beside))
            }
        };
        let handlers = handlers.layer(counted);
        for pattern in route.patterns() {
            router = router.route(pattern, handlers.clone());
        }
    }
    let elsewhere = from_fn_with_state((shared.clone(), None), observe::count);
    router.fallback_service(any(problem::not_found).layer(elsewhere)).with_state(shared)
}

/// The handlers of a route.
fn handlers(route: Route, service: &Service) -> MethodRouter<Arc<Shared>> {
    let only = MethodRouter::new().fallback(problem::method_not_allowed);
    match route {
        Route::Index => only.get(pages::index),
        Route::Healthz => only.get(pages::healthz),
        Route::Metrics => only.get(pages::metrics),
        Route::Openapi => {
            let description = pages::Description::new(service);
            only.get(move || description.answer())
        }
        Route::Readyz => only.get(pages::readyz),
        Route::Actions => only.get(actions::list),
        Route::Authorize => any(authorize::authorize),
        Route::Check => only.post(check::check),
        Route::Exceptions => only.get(exceptions::list).put(exceptions::put).delete(exceptions::lift),
        Route::Insight => only.get(insight::insight),
        Route::Keys => only.get(keys::show).delete(keys::reset),
        Route::Preview => only.post(rules::preview),
        Route::Release => only.post(check::release),
        Route::Settle => only.post(reserve::settle),
        Route::Reserve => only.post(reserve::reserve),
        Route::Rules => only.get(rules::list).post(rules::create),
        Route::RulesHistory => only.get(rules::history),
        Route::RulesRollback => only.post(rules::rollback),
        Route::Rule => only.put(rules::put).delete(rules::delete),
        Route::Violations => only.get(insight::violations),
    }
}

#[cfg(test)]
mod tests;
