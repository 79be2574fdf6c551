//! The limitador library behind axum or tonic. Its own server is in no registry, so this is what a user of the library would write:
//! faster than that server, which does more.
//!
//!     limitador http|grpc PORT one|three
//!
//! In memory only: the library's Redis storage (0.14.0) does not compile without RocksDB.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use bytes::Bytes;
use limitador::RateLimiter;
use limitador::limit::{Limit, Namespace};
use tokio::net::TcpListener;
use tollkeeper_bench_services::{RateLimitRequest, Service, always};

fn decide(limiter: &RateLimiter, attributes: HashMap<String, String>) -> bool {
    let checked = limiter.check_rate_limited_and_update(&Namespace::from("bench"), &attributes.into(), 1);
    checked.is_ok_and(|checked| !checked.limited)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, port, rules] = arguments.as_slice() else { anyhow::bail!("three arguments, please") };
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse()?));
    let variables: &[&[&str]] = if rules == "three" { &[&["user_id"], &["plan"], &[]] } else { &[&["user_id"]] };
    let limits = variables.iter().map(|names| {
        let expressions = names.iter().map(|name| (*name).try_into()).collect::<Result<Vec<_>, _>>();
        Ok(Limit::new("bench", 100_000_000, 60, Vec::new(), expressions.map_err(|error| anyhow::anyhow!("{error:?}"))?))
    });
    let limiter = Arc::new(RateLimiter::new(1_000_000));
    for limit in limits {
        let limit: anyhow::Result<Limit> = limit;
        limiter.add_limit(limit?);
    }
    if protocol == "grpc" {
        let service = Service::new(move |request: RateLimitRequest| {
            let limiter = limiter.clone();
            let entries = request.descriptors.into_iter().flat_map(|descriptor| descriptor.entries);
            let attributes = entries.map(|entry| (entry.key, entry.value)).collect();
            always(decide(&limiter, attributes))
        });
        return Ok(tonic::transport::Server::builder().add_service(service).serve(address).await?);
    }
    let check = post(move |body: Bytes| {
        let limiter = limiter.clone();
        async move {
            let Ok(attributes) = read(&body) else {
                return (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "text/plain")], "");
            };
            let allowed = decide(&limiter, attributes);
            let answer = if allowed { r#"{"allowed":true}"# } else { r#"{"allowed":false}"# };
            (StatusCode::OK, [(CONTENT_TYPE, "application/json")], answer)
        }
    });
    Ok(axum::serve(TcpListener::bind(address).await?, Router::new().route("/v1/check", check)).await?)
}

/// The attributes of `{"attributes": {...}}`.
fn read(body: &[u8]) -> anyhow::Result<HashMap<String, String>> {
    let mut document: HashMap<String, HashMap<String, String>> = serde_json::from_slice(body)?;
    document.remove("attributes").context("no attributes")
}
