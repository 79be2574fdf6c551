//! Connections to the upstream: they are shared by all clients, and one whose state is in doubt is never used again.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::world::{Proxy, SOON, Upstream, read_until};

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const EVIL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
/// Is never repeated, so that one that is lost shows.
const POST: &str = "POST /next HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";

/// Sends on a new connection and reads until this text. The connection stays open, so that the next client is served by another
/// thread of the proxy.
async fn ask(proxy: &Proxy, request: &str, end: &str) -> (TcpStream, String) {
    let mut client = proxy.connect().await;
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut client, end).await;
    (client, answer)
}

/// Each thread kept its connections for itself, so that an upstream got as many as there were threads.
#[tokio::test]
async fn clients_on_all_threads_share_them() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(ask(&proxy, POST, "\r\n\r\nhello").await.0);
    }
    assert_eq!(upstream.only().matches("POST /next HTTP/1.1").count(), 16);
}

#[tokio::test]
async fn one_that_was_closed_is_not_used() {
    let (closed, mut closings) = mpsc::unbounded_channel();
    let upstream = Upstream::serving(move |mut visitor| {
        let closed = closed.clone();
        async move {
            visitor.head().await;
            // As if it were kept alive.
            visitor.write(HELLO).await;
            drop(visitor);
            let _ = closed.send(());
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(ask(&proxy, POST, "\r\n\r\nhello").await.0);
        timeout(SOON, closings.recv()).await.expect("closed").unwrap();
    }
}

#[tokio::test]
async fn an_idle_one_is_closed_after_some_seconds() {
    let (closed, mut closings) = mpsc::unbounded_channel();
    let upstream = Upstream::serving(move |mut visitor| {
        let closed = closed.clone();
        async move {
            while visitor.head().await.is_some() {
                visitor.write(HELLO).await;
            }
            let _ = closed.send(());
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let _client = ask(&proxy, POST, "\r\n\r\nhello").await;
    timeout(SOON, closings.recv()).await.expect("closed").unwrap();
}

#[tokio::test]
async fn nobody_gets_an_answer_that_nobody_asked_for() {
    let upstream = Upstream::serving(|mut visitor| async move {
        while visitor.head().await.is_some() {
            let _ = visitor.stream.write_all(format!("{HELLO}{EVIL}").as_bytes()).await;
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut clients = Vec::new();
    for _ in 0..16 {
        let (client, answer) = ask(&proxy, POST, "\r\n\r\nhello").await;
        assert!(!answer.contains("evil"), "{answer}");
        clients.push(client);
    }
    assert_eq!(upstream.seen().len(), 16, "none was used again");
}

/// The same, when it comes while nobody reads from the connection.
#[tokio::test]
async fn nobody_gets_an_answer_that_comes_too_late() {
    let (idle, sent) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (now, done) = (idle.clone(), sent.clone());
    let upstream = Upstream::serving(move |mut visitor| {
        let (now, done) = (now.clone(), done.clone());
        async move {
            while visitor.head().await.is_some() {
                visitor.write(HELLO).await;
                now.notified().await;
                visitor.write(EVIL).await;
                done.notify_one();
            }
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut clients = Vec::new();
    for _ in 0..16 {
        let (client, answer) = ask(&proxy, POST, "\r\n\r\nhello").await;
        assert!(!answer.contains("evil"), "{answer}");
        clients.push(client);
        idle.notify_one();
        timeout(SOON, sent.notified()).await.expect("sent");
    }
    assert_eq!(upstream.seen().len(), 16, "none was used again");
}

/// What follows would be read as the rest of the body.
#[tokio::test]
async fn one_with_an_unfinished_upload_is_not_used_again() {
    let upstream = Upstream::serving(|mut visitor| async move {
        while visitor.head().await.is_some() {
            visitor.write(HELLO).await;
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let upload = "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nabc";
    let mut clients = Vec::new();
    for _ in 0..4 {
        // One is left in the middle of its upload, the other one stays.
        drop(ask(&proxy, upload, "\r\n\r\nhello").await);
        clients.push(ask(&proxy, upload, "\r\n\r\nhello").await.0);
        clients.push(ask(&proxy, POST, "\r\n\r\nhello").await.0);
    }
    let seen = upstream.seen();
    let uploads: Vec<&str> = seen.iter().filter_map(|seen| Some(seen.split_once("/upload")?.1)).collect();
    assert_eq!(uploads.len(), 8, "{seen:?}");
    assert!(uploads.iter().all(|after| !after.contains("POST")), "{seen:?}");
}

/// The rest of a response would be read as the next one.
#[tokio::test]
async fn one_with_an_unfinished_response_is_not_used_again() {
    let rest = Arc::new(Notify::new());
    let until = rest.clone();
    let upstream = Upstream::serving(move |mut visitor| {
        let until = until.clone();
        async move {
            while let Some(head) = visitor.head().await {
                if head.starts_with("GET /half") {
                    visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf").await;
                    until.notified().await;
                    let _ = visitor.stream.write_all(EVIL.as_bytes()).await;
                } else {
                    visitor.write(HELLO).await;
                }
            }
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut clients = Vec::new();
    for _ in 0..4 {
        drop(ask(&proxy, "GET /half HTTP/1.1\r\nhost: a\r\n\r\n", "half").await);
        clients.push(ask(&proxy, POST, "\r\n\r\nhello").await.0);
        rest.notify_waiters();
        clients.push(ask(&proxy, POST, "\r\n\r\nhello").await.0);
    }
    let seen = upstream.seen();
    let halves: Vec<&str> = seen.iter().filter_map(|seen| Some(seen.split_once("/half")?.1)).collect();
    assert_eq!(halves.len(), 4, "{seen:?}");
    assert!(halves.iter().all(|after| !after.contains("POST")), "{seen:?}");
}

#[tokio::test]
async fn one_that_the_upstream_wants_to_close_is_not_used_again() {
    for answer in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    ] {
        // It does not close it, though.
        let upstream = Upstream::answering(answer).await;
        let proxy = Proxy::wide(upstream.address);
        for _ in 0..4 {
            ask(&proxy, POST, "\r\n\r\nhello").await;
        }
        assert_eq!(upstream.seen().len(), 4, "{answer}");
    }
}
