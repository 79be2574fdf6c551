//! Plain requests take a shorter way through the proxy. Nobody may be able to tell: neither the client nor the upstream.

use tokio::io::AsyncWriteExt as _;

use super::world::{Proxy, Upstream, read_to_end, read_until};

/// An empty line before a request is ignored, but such a request is not plain.
const LONG_WAY: &str = "\r\n";

/// The lines of a head in any order, without the date.
fn lines(head: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("date: ")).collect();
    lines[1..].sort_unstable();
    lines
}

fn body_after(message: &str) -> (&str, String) {
    let (head, body) = message.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{message:?} has no head"));
    if !head.contains("transfer-encoding: chunked") {
        return (head, body.into());
    }
    // Chunks may be cut in any way.
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    (head, whole)
}

/// What the client and the upstream see.
async fn exchanged(upstream: &Upstream, request: &str) -> (String, String) {
    let proxy = Proxy::start(upstream.address, &["--limit", "100000/s by global"]);
    let mut client = proxy.connect().await;
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap();
    (answer, upstream.seen().last().cloned().unwrap_or_default())
}

#[tokio::test]
async fn both_ways_give_the_same() {
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-a: 1\r\nX-A: 2\r\n\r\nhello",
        "HTTP/1.1 200 Fine\r\ncontent-length: 0\r\nkeep-alive: timeout=5\r\nconnection: keep-alive, x-a\r\nx-a: 1\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nratelimit: \"own\";r=1\r\ndate: then\r\nvia: 1.0 fred\r\ncontent-length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nx-t: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncontent-length: 7\r\n\r\n",
        "HTTP/1.1 799 Whatever\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nab",
        "hello\r\n\r\n",
    ];
    let request = "GET /a/../b?c=%20d HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n\
        cookie: a=b\r\nCookie: c=d\r\nx_real: 1\r\nTollkeeper-Over-Limit: a\r\nAccept: */*\r\nContent-Length: 000\r\nConnection: close\r\n\r\n";
    for answer in answers {
        let upstream = Upstream::answering(answer).await;
        let (short, sent_short) = exchanged(&upstream, request).await;
        let (long, sent_long) = exchanged(&upstream, &format!("{LONG_WAY}{request}")).await;
        assert_eq!(lines(&sent_short), lines(&sent_long), "{answer}");
        let ((short, short_body), (long, long_body)) = (body_after(&short), body_after(&long));
        assert_eq!((lines(short), short_body), (lines(long), long_body), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_goes_from_one_way_to_the_other_and_keeps_its_order() {
    let upstream = Upstream::serving(|mut visitor| async move {
        while let Some(head) = visitor.head().await {
            visitor.body(&head).await;
            let path = head.split(' ').nth(1).unwrap().to_string();
            visitor.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len())).await;
        }
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut client = proxy.connect().await;
    let (get, post) = (
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"),
        |path: &str| format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"),
    );
    // All at once, the last in two pieces.
    let (first, second) = ("GET /6 HTTP/1.1\r\nhost: a\r\nconn", "ection: close\r\n\r\n");
    let all = [get("/1"), get("/2"), post("/3"), get("/4"), post("/5"), first.into()].concat();
    client.write_all(all.as_bytes()).await.unwrap();
    for path in ["/1", "/2", "/3", "/4", "/5"] {
        read_until(&mut client, &format!("\r\n\r\n{path}")).await;
    }
    client.write_all(second.as_bytes()).await.unwrap();
    let last = String::from_utf8(read_to_end(&mut client).await).unwrap();
    assert!(last.ends_with("\r\n\r\n/6"), "{last}");
    assert_eq!(upstream.only().matches(" HTTP/1.1\r\n").count(), 6, "all on one connection to the upstream");
}

/// A connection of HTTP/1 became HTTP/2 in the middle, where a proxy in front still reads HTTP/1.
#[tokio::test]
async fn http_2_begins_at_the_beginning_or_not_at_all() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    for before in ["", LONG_WAY] {
        let mut client = proxy.connect().await;
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        client.write_all(format!("{before}GET / HTTP/1.1\r\nhost: a\r\n\r\n{preface}").as_bytes()).await.unwrap();
        let answers = String::from_utf8_lossy(&read_to_end(&mut client).await).to_string();
        assert!(answers.starts_with("HTTP/1.1 200 OK\r\n") && answers.contains("HTTP/1.1 400 "), "{answers}");
    }
}
