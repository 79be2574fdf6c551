//! A server to be called: a webhook's receiver, a collector, an upstream.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::runtime::Runtime;

use tollkeeper_testkit::http::{self as raw, Answer, Client};
use tollkeeper_testkit::wait_until;

/// What was received.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Call {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Accepts everything over HTTP/1 and HTTP/2, and answers as configured. Stopped, with its connections, when dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
    status: Arc<AtomicU16>,
    runtime: Option<Runtime>,
}

impl Receiver {
    pub(crate) fn start() -> Receiver {
        Receiver::start_on(0)
    }

    pub(crate) fn start_on(port: u16) -> Receiver {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (calls, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU16::new(200)));
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", port))).unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answer) = (calls.clone(), status.clone());
        let router = axum::Router::new().fallback(move |request: Request| {
            let (seen, status) = (seen.clone(), StatusCode::from_u16(answer.load(Relaxed)).unwrap());
            async move {
                let (parts, body) = request.into_parts();
                if parts.method != "POST" {
                    // From another test: the port may have belonged to another server a moment ago.
                    return plain_answer(StatusCode::METHOD_NOT_ALLOWED);
                }
                let body = body.collect().await.unwrap().to_bytes().to_vec();
                let is_grpc = parts.headers.get("content-type").is_some_and(|kind| kind == "application/grpc");
                seen.lock().unwrap().push(Call { path: parts.uri.path().into(), headers: parts.headers, body });
                if is_grpc { grpc_answer() } else { plain_answer(status) }
            }
        });
        runtime.spawn(async move { axum::serve(listener, router).await });
        Receiver { address, calls, status, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Relaxed);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits until the received calls satisfy a condition.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, is_enough: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        wait_until(what, || is_enough(&self.calls.lock().unwrap()));
        self.calls()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn plain_answer(status: StatusCode) -> Response {
    let mut response = Response::new(Body::from("seen"));
    *response.status_mut() = status;
    if status.is_redirection() {
        response.headers_mut().insert("location", HeaderValue::from_static("/elsewhere"));
    }
    response
}

/// An empty message, with the status in the trailers.
fn grpc_answer() -> Response {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(bytes::Bytes::from_static(&[0; 5])).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// Posts a body on a connection of its own, with more headers, each a line.
#[track_caller]
pub(crate) fn post(address: &str, path: &str, headers: &str, body: &str) -> Answer {
    Client::to(address).with_lines(headers).post(path, body)
}

/// The value of a counter on a metrics page; 0 if absent.
pub(crate) fn metric(page: &str, series: &str) -> u64 {
    raw::metric(page, series).unwrap_or_default() as u64
}
