//! Servers that do nothing but speak a protocol: what the fastest limiter written with the same libraries could reach.
//!
//!     floor http PORT             axum: answers any POST and GET with a small JSON document
//!     floor grpc PORT             tonic: Envoy's rate limit service, always OK
//!     floor resp PORT             five integers for every command, as CL.THROTTLE answers
//!     floor proxy PORT UPSTREAM   hyper: a reverse proxy with a connection pool
//!     floor upstream PORT         the page behind the proxies

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::any;
use bytes::{Buf as _, Bytes, BytesMut};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollkeeper_bench_services::{Service, always};

/// As long as what Tollkeeper answers for one rule.
const ANSWER: &str = r#"{"allowed":true,"limiting":null,"retry_after_ms":0,"source":"store","rules":[{"rule":"per-user","scope":"user","key":"u0000042","allowed":true,"shadow":false,"limit":1000000,"remaining":999999,"retry_after_ms":0,"reset_after_ms":1}]}"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = arguments.get(1).context("name a port")?.parse()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    match arguments[0].as_str() {
        "http" => serve(address, ANSWER, "application/json").await,
        "upstream" => serve(address, "hello from upstream\n", "text/plain").await,
        "grpc" => {
            let service = Service::new(|_| always(true));
            Ok(tonic::transport::Server::builder().add_service(service).serve(address).await?)
        }
        "resp" => resp(TcpListener::bind(address).await?).await,
        "proxy" => {
            let upstream = arguments.get(2).context("name the upstream's port")?.parse()?;
            proxy(TcpListener::bind(address).await?, SocketAddr::from(([127, 0, 0, 1], upstream))).await
        }
        other => bail!("{other} is not known"),
    }
}

async fn serve(address: SocketAddr, answer: &'static str, kind: &'static str) -> anyhow::Result<()> {
    // The body is read, as every server that decides must.
    let page = any(move |_body: Bytes| async move { ([(CONTENT_TYPE, kind)], answer) });
    let app = Router::new().fallback(page);
    Ok(axum::serve(TcpListener::bind(address).await?, app).await?)
}

async fn resp(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream));
    }
}

async fn converse(mut stream: TcpStream) -> anyhow::Result<()> {
    let (mut input, mut output) = (BytesMut::with_capacity(16 * 1024), Vec::new());
    loop {
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        while let Some(length) = command_length(&input) {
            input.advance(length);
            output.extend_from_slice(b"*5\r\n:0\r\n:1000001\r\n:1000000\r\n:-1\r\n:1\r\n");
        }
        stream.write_all(&output).await?;
        output.clear();
    }
}

/// How many bytes the first command has, if all of it has arrived.
fn command_length(input: &[u8]) -> Option<usize> {
    let (count, mut at) = number(input, 0)?;
    for _ in 0..count {
        let (length, start) = number(input, at)?;
        at = start + length + 2;
    }
    (at <= input.len()).then_some(at)
}

/// The number of a line such as `*5` or `$11`, and where the next line starts.
fn number(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = input.get(at + 1..)?;
    let end = line.iter().position(|byte| *byte == b'\r')?;
    let value = line[..end].iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    Some((value, at + 1 + end + 2))
}

async fn proxy(listener: TcpListener, upstream: SocketAddr) -> anyhow::Result<()> {
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let forward = service_fn(move |mut request: Request<Incoming>| {
            let client = client.clone();
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let uri: Result<Uri, _> = format!("http://{upstream}{path}").parse();
            async move {
                if let Ok(uri) = uri {
                    *request.uri_mut() = uri;
                }
                let answer = client.request(request).await;
                Ok::<_, Infallible>(answer.map(|answer| answer.map(http_body_util::Either::Left)).unwrap_or_else(
                    |_| {
                        let mut failed =
                            Response::new(http_body_util::Either::Right(http_body_util::Empty::<Bytes>::new()));
                        *failed.status_mut() = http::StatusCode::BAD_GATEWAY;
                        failed
                    },
                ))
            }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), forward));
    }
}
