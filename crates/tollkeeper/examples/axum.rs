//! The layer in an axum server that answers a few requests and then stops.
//!
//! `cargo run -p tollkeeper --example axum --features tower`

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollkeeper::http::Identity;
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Limiter, MemoryStore, Policy, RuleSpec};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let rule = RuleSpec {
        name: "per-client".into(),
        key: "{api_key|ip}".into(),
        limit: "2/min".into(),
        ..RuleSpec::default()
    };
    let limiter = Limiter::new(Policy::new([rule]).expect("a valid rule"), MemoryStore::new());
    let layer = TollkeeperLayer::new(limiter)
        .identity(Identity::new().identify("api_key", "header.x-api-key".parse().expect("a place in a request")))
        .peer(|found| found.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()))
        .skip(|request| request.uri.path() == "/healthz");
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/healthz", get(|| async { "fine" }))
        .layer(layer)
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    for _ in 0..3 {
        show(address, "/", "").await?;
    }
    show(address, "/", "x-api-key: somebody-else\r\n").await?;
    show(address, "/healthz", "").await?;
    server.abort();
    Ok(())
}

/// Sends a request, and shows the response without the headers that every server sends.
async fn show(address: SocketAddr, path: &str, fields: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("GET {path} {}", fields.trim_end());
    let dull = ["content-length", "connection", "date"];
    for line in answer.lines().filter(|line| !line.is_empty() && !dull.iter().any(|name| line.starts_with(name))) {
        println!("    {line}");
    }
    Ok(())
}
