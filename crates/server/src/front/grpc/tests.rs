//! Misbehaving connections. Decisions are tested from outside, with the real binary.

use std::net::SocketAddr;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{Limiter, MemoryStore, Policy};

use super::*;
use crate::observer::Observer;

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(150);

async fn open() -> SocketAddr {
    open_within(Limits { idle: SHORT, request: SHORT, ..Limits::default() }).await
}

async fn open_within(limits: Limits) -> SocketAddr {
    let service = Arc::new(Service {
        limiter: Arc::new(Limiter::new(Policy::default(), MemoryStore::with(100, tollkeeper::Clock::system()))),
        metrics: crate::front::metrics().into(),
        alerts: Default::default(),
        observer: Observer::new(Default::default(), tollkeeper::Timestamp::default()),
        identity: Identity::new(),
        answer: AnswerStyle::default(),
        seal: Arc::new(crate::seal::Seal::random().expect("random numbers")),
        tokens: Default::default(),
        guesses: Default::default(),
        rules: None,
        tracer: Default::default(),
        draining: Default::default(),
        drains: Default::default(),
        key_places: Default::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(run_within(limits, listener, service, std::future::pending()));
    address
}

#[tokio::test]
async fn who_says_nothing_or_no_http2_is_cut_off() {
    let address = open().await;
    for said in ["", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(said.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        // A reset ends a connection too.
        let ended = timeout(SOON, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "still open after {said:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_only_idle_stays() {
    let stream = TcpStream::connect(open().await).await.expect("connected");
    let io = TokioIo::new(stream);
    let (sender, connection) =
        http2::handshake::<_, _, Empty<&[u8]>>(TokioExecutor::new(), io).await.expect("a handshake");
    let connection = tokio::spawn(connection);
    sleep(6 * SHORT).await;
    assert!(!connection.is_finished() && !sender.is_closed());
}

#[tokio::test]
async fn a_message_that_does_not_end_is_answered() {
    let address = open().await;
    let io = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
    tokio::spawn(connection);
    // The header of a message of 100 bytes, and never the rest.
    let (parts, body) = tokio::sync::mpsc::channel::<Result<Frame<&[u8]>, std::convert::Infallible>>(1);
    parts.send(Ok(Frame::data(&[0, 0, 0, 0, 100, 1][..]))).await.expect("sent");
    let request = http::Request::post(format!("http://{address}/{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(body)))
        .expect("a request");
    let response = timeout(SOON, sender.send_request(request)).await.expect("in time").expect("an answer");
    assert_eq!(response.headers()["grpc-status"], "4", "{response:?}");
}

/// A call whose message came right after its head took the long way through the router.
#[tokio::test]
async fn a_message_may_follow_its_head() {
    let address = open().await;
    let io = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
    tokio::spawn(connection);
    let entries = vec![envoy::Entry { key: "user_id".into(), value: "42".into() }];
    let descriptors = vec![envoy::RateLimitDescriptor { entries, ..Default::default() }];
    let message = RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 }.encode_to_vec();
    let bytes = Bytes::from([&[0, 0, 0, 0, message.len() as u8], message.as_slice()].concat());
    // At once, within the moment for which it is waited, and after it.
    for pause in [0, 3, 40] {
        let (parts, body) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, std::convert::Infallible>>(1);
        let bytes = bytes.clone();
        let later = async move {
            sleep(Duration::from_millis(pause)).await;
            parts.send(Ok(Frame::data(bytes))).await.expect("sent");
        };
        let request = http::Request::post(format!("http://{address}/{METHOD}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(body)))
            .expect("a request");
        let (response, ()) = tokio::join!(timeout(SOON, sender.send_request(request)), later);
        let answered = response.expect("in time").expect("an answer").into_body().collect().await.expect("a body");
        assert_eq!(answered.trailers().expect("trailers")["grpc-status"], "0", "after {pause} ms");
    }
}

/// A caller could hold as many calls open as it liked by not sending their messages.
#[tokio::test]
async fn a_caller_has_as_many_calls_in_flight_as_connections() {
    let address = open_within(Limits { connections_per_address: 2, ..Limits::default() }).await;
    let io = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
    tokio::spawn(connection);
    let unfinished = || {
        let never = tokio_stream::pending::<Result<Frame<&[u8]>, std::convert::Infallible>>();
        let request = http::Request::post(format!("http://{address}/{METHOD}"));
        request.header("content-type", "application/grpc").body(StreamBody::new(never)).expect("a request")
    };
    let _held = [sender.send_request(unfinished()), sender.send_request(unfinished())];
    let response = timeout(SOON, sender.send_request(unfinished())).await.expect("in time").expect("an answer");
    assert_eq!(response.headers()["grpc-status"], (Code::Unavailable as i32).to_string(), "{response:?}");
}
