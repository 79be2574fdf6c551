//! `/openapi.json`: this service's API as OpenAPI 3.1.
//!
//! The paths are those of [`Route`], and every schema comes from the wire types themselves. The document describes
//! this very service: its status for denials, and a token wherever one is required.

mod admin;
mod decisions;
mod pages;
mod rules;
mod writer;

pub(crate) use writer::Facts;

use serde_json::{Map, Value, json};

use crate::route::Route;
use writer::{Operation, Writer};

/// The description of a service.
pub(crate) fn document(facts: &Facts) -> Value {
    let mut writer = Writer::new(facts);
    let mut paths = Map::new();
    for &route in Route::ALL {
        for path in route.paths() {
            let operations = operations(&mut writer, route, &path);
            let written = operations.into_iter().map(|(method, operation)| {
                let written = writer.write(route, method, operation);
                (method.to_string(), written)
            });
            paths.insert(path, written.collect::<Map<_, _>>().into());
        }
    }
    let schemes = json!({ "token": { "type": "http", "scheme": "bearer" } });
    let components = json!({ "schemas": writer.definitions(), "securitySchemes": schemes });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollkeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An exact rate limiter: decisions, buckets and rules.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": components,
    })
}

/// The operations on a path of a route, by method.
fn operations(writer: &mut Writer<'_>, route: Route, path: &str) -> Vec<(&'static str, Operation)> {
    match route {
        Route::Index => vec![("get", pages::index())],
        Route::Healthz => vec![("get", pages::healthz(writer))],
        Route::Metrics => vec![("get", pages::metrics())],
        Route::Openapi => vec![("get", pages::description())],
        Route::Readyz => vec![("get", pages::readyz(writer))],
        Route::Actions => vec![("get", admin::actions(writer))],
        Route::Authorize => decisions::authorize(writer, path),
        Route::Check => vec![("post", decisions::check(writer))],
        Route::Exceptions => vec![
            ("get", admin::exceptions(writer)),
            ("put", admin::put_exception(writer)),
            ("delete", admin::lift_exception(writer)),
        ],
        Route::Insight => vec![("get", admin::insight(writer))],
        Route::Keys => vec![("get", admin::show_key(writer)), ("delete", admin::reset_key(writer))],
        Route::Preview => vec![("post", rules::preview(writer))],
        Route::Release => vec![("post", decisions::release(writer))],
        Route::Settle => vec![("post", decisions::settle(writer))],
        Route::Reserve => vec![("post", decisions::reserve(writer))],
        Route::Rules => vec![("get", rules::list(writer)), ("post", rules::create(writer))],
        Route::RulesHistory => vec![("get", rules::history(writer))],
        Route::RulesRollback => vec![("post", rules::rollback(writer))],
        Route::Rule => vec![("put", rules::put(writer)), ("delete", rules::delete(writer))],
        Route::Violations => vec![("get", admin::violations(writer))],
    }
}

#[cfg(test)]
mod tests;
