//! Upstreams and clients that are unreachable, slow or broken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http_body_util::{Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use tollkeeper_testkit::http::Answer;

use super::world::{Proxy, SOON, Upstream, read_to_end, read_until};

#[tokio::test]
async fn an_upstream_that_is_unreachable_is_a_bad_gateway() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let reply = Proxy::wide(address).get("/", "").await;
    assert_eq!(reply.problem(502)["detail"], "the upstream is unreachable");
    assert!(reply.header("ratelimit").is_some(), "it was charged, so the headers show it: {reply:?}");
}

#[tokio::test]
async fn an_upstream_that_answers_nonsense_is_a_bad_gateway() {
    for answer in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let upstream = Upstream::serving(move |mut visitor| async move {
            visitor.head().await;
            visitor.write(answer).await;
        })
        .await;
        Proxy::wide(upstream.address).get("/", "").await.problem(502);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_is_a_gateway_timeout() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--response-timeout", "200ms"]);
    let began = Instant::now();
    let reply = proxy.get("/", "").await;
    assert_eq!(reply.problem(504)["detail"], "the upstream did not answer within 200ms");
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn an_upstream_that_accepts_no_connection_in_time_is_a_gateway_timeout() {
    // A full accept queue: the kernel leaves further connections without an answer.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
    }
    let proxy = Proxy::start(address, &["--limit", "9/s", "--connect-timeout", "300ms"]);
    let reply = proxy.get("/", "").await;
    assert_eq!(reply.problem(504)["detail"], "the upstream did not accept a connection within 300ms");
}

#[tokio::test]
async fn a_slow_upload_is_no_slow_answer() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--response-timeout", "300ms"]);
    let mut stream = proxy.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 6\r\n\r\n").await.unwrap();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(120)).await;
        stream.write_all(b"x").await.unwrap();
    }
    assert_eq!(Answer::parse(&read_to_end(&mut stream).await).status, 200);
}

#[tokio::test]
async fn a_client_that_stops_sending_is_answered() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--idle-timeout", "200ms"]);
    let reply = proxy.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc").await;
    reply.problem(408);
}

#[tokio::test]
async fn a_response_that_stands_still_is_cut_off() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--idle-timeout", "200ms"]);
    let reply = proxy.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "5\r\nfirst\r\n"), "it does not look whole");
}

#[tokio::test]
async fn an_upstream_that_breaks_off_is_not_made_to_look_whole() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst").await;
    })
    .await;
    let reply = Proxy::wide(upstream.address).send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!((reply.header("content-length").as_deref(), reply.body.as_str()), (Some("9"), "first"));
}

#[tokio::test]
async fn an_answer_may_come_before_the_upload_has_ended() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlong").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nabc").await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\nlong").await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
}

#[tokio::test]
async fn a_connection_that_the_upstream_has_just_closed_loses_no_harmless_request() {
    let upstream = Upstream::serving(|mut visitor| async move {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        visitor.head().await;
        visitor.write(answer).await;
        // The connection looks as if it were kept alive, but ends with the next request.
        visitor.head().await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    for _ in 0..5 {
        assert_eq!(proxy.get("/", "").await.status, 200);
    }
    let post = "POST /once HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    proxy.send(post).await.problem(502);
    assert_eq!(upstream.seen().concat().matches("/once").count(), 1, "what may change something is never repeated");
}

#[tokio::test]
async fn a_denied_upload_is_answered_and_not_cut_off() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1/h"]);
    proxy.get("/", "").await;
    let body = "x".repeat(4 << 20);
    let length = body.len();
    let upload = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    proxy.send(upload).await.problem(429);
    let asking = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    proxy.send(asking).await.problem(429);
}

/// The rest of the upload was left unread and the connection closed, which resets it: some clients lost the answer.
#[tokio::test]
async fn an_upload_that_the_upstream_breaks_off_is_answered_and_not_cut_off() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let body = "x".repeat(4 << 20);
    let length = body.len();
    let upload = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    for _ in 0..8 {
        proxy.send(&upload).await.problem(502);
    }
}

/// Each request in flight has a connection to the upstream. HTTP/2 carries hundreds of requests on one connection, and only
/// those to clients were counted: one client with a few connections used up the proxy's files, and everybody else got 502.
#[tokio::test]
async fn a_client_of_http_2_has_as_many_requests_in_flight_as_connections() {
    let upstream = Upstream::serving(|mut visitor| async move {
        let head = visitor.head().await.unwrap_or_default();
        if head.starts_with("GET /slow") {
            std::future::pending::<()>().await;
        }
        visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    })
    .await;
    let limits = ["--limit", "1000/s", "--connections", "20", "--connections-per-address", "5"];
    let proxy = Proxy::start(upstream.address, &limits);
    let io = TokioIo::new(proxy.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let slow = || http::Request::get("http://a/slow").body(Empty::<Bytes>::new()).unwrap();
    let held: Vec<_> = (0..5).map(|_| sender.send_request(slow())).collect();
    for _ in 0..20 {
        let response = timeout(SOON, sender.send_request(slow())).await.unwrap().unwrap();
        assert_eq!(response.status(), 503, "{response:?}");
        assert_eq!(response.headers()["retry-after"], "1");
    }
    assert!(upstream.seen().len() <= 5, "{}", upstream.seen().len());
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(proxy.http.parse().unwrap()).await.unwrap();
    other.write_all(b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(Answer::parse(&read_to_end(&mut other).await).status, 200, "others are served");
    drop(held);
    connection.abort();
    let begun = Instant::now();
    while proxy.get("/quick", "").await.status != 200 {
        assert!(begun.elapsed() < SOON, "there is no room again");
    }
}

/// A request was in flight until its response had ended. An upload that the upstream answers early goes on, on a connection to the
/// upstream, and did not count any more: a client of HTTP/2 had any number of them.
#[tokio::test]
async fn an_upload_that_outlives_its_response_is_still_in_flight() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        visitor.until("the end of the upload").await;
    })
    .await;
    let limits = ["--limit", "1000/s", "--connections", "20", "--connections-per-address", "5"];
    let proxy = Proxy::start(upstream.address, &limits);
    let io = TokioIo::new(proxy.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let (mut statuses, given_up) = (Vec::new(), Arc::new(Notify::new()));
    for _ in 0..20 {
        let piece = Ok(Frame::data(Bytes::from_static(b"piece")));
        let given_up = given_up.clone();
        let end = async move {
            given_up.notified().await;
            Err(std::io::Error::other("the client gives up"))
        };
        let body = StreamBody::new(stream::iter([piece]).chain(stream::once(end)).boxed());
        let response = sender.send_request(http::Request::post("http://a/").body(body).unwrap());
        let response = timeout(SOON, response).await.unwrap().unwrap();
        statuses.push(response.status().as_u16());
        // Read to its end.
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    }
    assert_eq!(statuses, [[200; 5].as_slice(), &[503; 15]].concat());
    assert_eq!(upstream.seen().len(), 5);
    given_up.notify_waiters();
    let begun = Instant::now();
    while proxy.get("/", "").await.status != 200 {
        assert!(begun.elapsed() < SOON, "there is no room again");
    }
}

/// A client of HTTP/2 decides how much of each response it takes. One that took nothing held its connections to the upstream for as
/// long as it liked, without sending another byte.
#[tokio::test]
async fn a_client_of_http_2_that_takes_nothing_is_cut_off() {
    const WHOLE: usize = 1 << 20;
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        let _ =
            visitor.stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {WHOLE}\r\n\r\n").as_bytes()).await;
        let _ = visitor.stream.write_all(&vec![b'x'; WHOLE]).await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1000/s", "--idle-timeout", "1s"]);
    for window in [0_u32, 1_000] {
        let io = TokioIo::new(proxy.connect().await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.initial_stream_window_size(window).handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::get("http://a/").body(Full::new(Bytes::new())).unwrap();
        let response = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        timeout(SOON, connection).await.expect("the connection ends").unwrap().ok();
    }
}

/// The response waits for the client, and then goes on.
#[tokio::test]
async fn a_client_of_http_2_may_be_slow() {
    const PIECES: usize = 6;
    const PIECE: usize = 16 * 1024;
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        let whole = vec![b'x'; PIECES * PIECE];
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", whole.len());
        // Slower than a client may be, too.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        visitor.write(head).await;
        visitor.write(whole).await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1000/s", "--idle-timeout", "1s"]);
    let io = TokioIo::new(proxy.connect().await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.initial_stream_window_size(PIECE as u32).handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://a/").body(Full::new(Bytes::new())).unwrap();
    let mut body = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap().into_body();
    let mut read = 0;
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        read += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(read, PIECES * PIECE);
}
