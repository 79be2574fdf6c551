//! Bodies are streamed, and their slots are released when they end.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use tollkeeper_testkit::http::header;

use super::world::{Proxy, SOON, Upstream, read_to_end, read_until};

const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";

/// An upstream that starts a response and ends it on command.
async fn until_signalled() -> (Upstream, mpsc::UnboundedSender<()>) {
    let (signal, signalled) = mpsc::unbounded_channel();
    let signalled = std::sync::Arc::new(tokio::sync::Mutex::new(signalled));
    let upstream = Upstream::serving(move |mut visitor| {
        let signalled = signalled.clone();
        async move {
            while visitor.head().await.is_some() {
                visitor.write(STREAM).await;
                signalled.lock().await.recv().await;
                visitor.write("4\r\nlast\r\n0\r\n\r\n").await;
            }
        }
    })
    .await;
    (upstream, signal)
}

#[tokio::test]
async fn the_first_piece_of_a_response_arrives_before_the_last_exists() {
    let (upstream, signal) = until_signalled().await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "5\r\nfirst\r\n").await;
    signal.send(()).unwrap();
    read_until(&mut stream, "4\r\nlast\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn the_first_piece_of_an_upload_arrives_before_the_last_exists() {
    let (signal, mut signalled) = mpsc::unbounded_channel();
    let upstream = Upstream::serving(move |mut visitor| {
        let signal = signal.clone();
        async move {
            let head = visitor.head().await.unwrap();
            signal.send(header(&head, "transfer-encoding").unwrap()).unwrap();
            signal.send(visitor.until("first\r\n").await.unwrap()).unwrap();
            visitor.until("0\r\n\r\n").await.unwrap();
            visitor.write("HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(timeout(SOON, signalled.recv()).await.unwrap().unwrap(), "chunked");
    assert!(timeout(SOON, signalled.recv()).await.unwrap().unwrap().ends_with("first\r\n"));
    stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 204"));
}

#[tokio::test]
async fn nobody_sends_faster_than_the_other_side_takes() {
    const WHOLE: usize = 256 << 20;
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    stream
        .write_all(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {WHOLE}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let (piece, mut sent) = (vec![0; 65_536], 0);
    // Until nothing moves any more: the kernel's buffers are full, and the proxy does not buffer.
    while let Ok(Ok(count)) = timeout(Duration::from_millis(500), stream.write(&piece)).await {
        sent += count;
    }
    assert!(sent < WHOLE / 4, "{sent} bytes were accepted that were never read");
}

#[tokio::test]
async fn nobody_answers_faster_than_the_client_reads() {
    let (signal, mut signalled) = mpsc::unbounded_channel();
    let upstream = Upstream::serving(move |mut visitor| {
        let signal = signal.clone();
        async move {
            visitor.head().await;
            visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 268435456\r\n\r\n").await;
            let (piece, mut sent) = (vec![0; 65_536], 0);
            while let Ok(Ok(count)) = timeout(Duration::from_millis(500), visitor.stream.write(&piece)).await {
                sent += count;
            }
            signal.send(sent).unwrap();
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let sent = timeout(SOON, signalled.recv()).await.unwrap().unwrap();
    assert!(sent < 64 << 20, "{sent} bytes were accepted that were never read");
}

#[tokio::test]
async fn a_websocket_echoes_in_both_directions_and_holds_its_slot() {
    let upstream = Upstream::serving(|mut visitor| async move {
        let head = visitor.head().await.unwrap();
        let asked = (header(&head, "connection"), header(&head, "upgrade"), header(&head, "sec-websocket-key"));
        assert_eq!(asked, (Some("upgrade".into()), Some("websocket".into()), Some("dGhlIHNhbXBsZSBub25jZQ==".into())));
        visitor.write("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nwelcome").await;
        visitor.echo().await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1 by global algorithm concurrency"]);
    let mut stream = proxy.connect().await;
    let ask = "GET /chat HTTP/1.1\r\nhost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
               sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(header(&head, "upgrade").as_deref(), Some("websocket"));
    assert_eq!(header(&head, "connection").as_deref(), Some("upgrade"));
    assert!(header(&head, "ratelimit").is_some(), "{head}");
    read_until(&mut stream, "welcome").await;
    // After an upgrade, what looks like invalid HTTP is passed on unchecked.
    for frame in ["\n\nhello\n", "\0\r\r\n", "GET  / \n"] {
        stream.write_all(frame.as_bytes()).await.unwrap();
        read_until(&mut stream, frame).await;
    }
    assert_eq!(proxy.get("/", "").await.status, 429, "the slot is held while it is open");
    drop(stream);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut again = proxy.connect().await;
        again.write_all(ask.as_bytes()).await.unwrap();
        if read_until(&mut again, "\r\n\r\n").await.starts_with("HTTP/1.1 101") {
            return;
        }
    }
    panic!("the slot was never released");
}

#[tokio::test]
async fn a_large_body_comes_back_unchanged_while_it_is_sent() {
    const WHOLE: usize = 32 << 20;
    let upstream = Upstream::serving(|mut visitor| async move {
        let head = visitor.until("\r\n\r\n").await.unwrap();
        assert_eq!(header(&head, "expect").as_deref(), Some("100-continue"));
        visitor.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {WHOLE}\r\n\r\n")).await;
        visitor.echo().await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    let head = format!("PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {WHOLE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    let sent: Vec<u8> = (0..WHOLE).map(|at| ((at * 31) >> 7) as u8).collect();
    let (mut reader, mut writer) = stream.split();
    let mut came = vec![0; WHOLE];
    let receive = async {
        while reader.read_u8().await.unwrap() != b'\n' || reader.read_u8().await.unwrap() != b'\r' {}
        assert_eq!(reader.read_u8().await.unwrap(), b'\n');
        reader.read_exact(&mut came).await.unwrap();
    };
    let both = async { tokio::join!(receive, async { writer.write_all(&sent).await.unwrap() }) };
    timeout(Duration::from_secs(60), both).await.expect("it does not hang");
    assert!(came == sent);
}

#[tokio::test]
async fn an_upstream_that_switches_to_something_else_is_a_bad_gateway() {
    let upstream =
        Upstream::answering("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    let proxy = Proxy::wide(upstream.address);
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: h2c, websocket\r\n\r\n";
    proxy.send(ask).await.problem(502);
    assert_eq!(header(&upstream.only(), "upgrade").as_deref(), Some("websocket"));
}

/// An upstream that opens every WebSocket and sends nothing, and a client that has opened one.
async fn silent_websocket(args: &[&str]) -> (Proxy, TcpStream) {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
        visitor.head().await;
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[&["--limit", "9/s"], args].concat());
    let mut stream = proxy.connect().await;
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 101"));
    (proxy, stream)
}

#[tokio::test]
async fn a_websocket_on_which_nothing_moves_is_closed() {
    let (_proxy, mut stream) = silent_websocket(&["--idle-timeout", "200ms"]).await;
    assert_eq!(read_to_end(&mut stream).await, b"");
}

#[cfg(unix)]
#[tokio::test]
async fn a_websocket_does_not_keep_the_proxy_from_stopping() {
    let (proxy, mut stream) = silent_websocket(&["--drain-timeout", "1h"]).await;
    proxy.signal("-TERM");
    assert_eq!(read_to_end(&mut stream).await, b"");
    assert_eq!(proxy.ended().await, Some(0));
}

#[tokio::test]
async fn a_concurrency_slot_is_held_until_the_body_has_ended() {
    let (upstream, signal) = until_signalled().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1 by global algorithm concurrency"]);
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "first\r\n").await;
    proxy.get("/", "").await.problem(429);
    signal.send(()).unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    signal.send(()).unwrap();
    assert_eq!(proxy.get("/", "").await.status, 200);
    // A client that disconnects in the middle releases its slot too.
    let mut leaving = proxy.connect().await;
    leaving.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut leaving, "first\r\n").await;
    drop(leaving);
    signal.send(()).unwrap();
    signal.send(()).unwrap();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if proxy.get("/", "").await.status == 200 {
            return;
        }
    }
    panic!("the slot was never released");
}

/// The slot expired with its hold although the response was still running, and another request got in beside it.
#[tokio::test]
async fn a_concurrency_slot_outlives_its_hold() {
    let (upstream, signal) = until_signalled().await;
    let limit = "1 by global algorithm concurrency hold 2s";
    let proxy = Proxy::start(upstream.address, &["--limit", limit]);
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "first\r\n").await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.get("/", "").await.problem(429);
    }
    signal.send(()).unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    signal.send(()).unwrap();
    assert_eq!(proxy.get("/", "").await.status, 200);
}

/// A client that sends a byte now and then is never silent for long, and held a connection to the upstream for as long as it
/// liked.
#[tokio::test]
async fn a_body_that_drips_is_ended() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--upload-timeout", "1s"]);
    let mut stream = proxy.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let dripping = async {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = Vec::new();
    let ended = async {
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut reading, &mut answer).await;
    };
    tokio::time::timeout(SOON, async {
        tokio::select! { () = dripping => {}, () = ended => {} }
    })
    .await
    .expect("it ends");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("took longer than 1s"), "{answer}");
}
