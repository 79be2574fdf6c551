//! Request smuggling: bytes that two parsers could read differently are refused with 400, and none of them reaches
//! the upstream.

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;

use tollkeeper_testkit::http::Answer;

use super::world::{Proxy, Upstream, read_to_end};

/// Each attack is followed by this request, which must not be read as one.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";

const HEADS: &[(&str, &str)] = &[
    (
        "two ways to tell the length",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "the same the other way",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
    ),
    ("two lengths", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 30\r\n\r\nabc"),
    ("a list of lengths", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 3\r\n\r\nabc"),
    ("a length with a sign", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +3\r\n\r\nabc"),
    ("a negative length", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -3\r\n\r\nabc"),
    ("a length in hexadecimal", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x3\r\n\r\nabc"),
    ("an empty length", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: \r\n\r\nabc"),
    ("a length beyond counting", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551617\r\n\r\na"),
    ("another coding", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("a coding below another", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked that is not last", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    (
        "chunked twice",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked and identity",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("chunks in HTTP/1.0", "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("space before the colon", "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a tab before the colon", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length\t: 3\r\n\r\nabc"),
    (
        "a vertical tab before the value",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    ("a line that goes on", "POST / HTTP/1.1\r\nhost: a\r\nx: y\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("space before the first name", "POST / HTTP/1.1\r\n host: a\r\ncontent-length: 3\r\n\r\nabc"),
    ("a line that ends with a bare LF", "POST / HTTP/1.1\r\nhost: a\ncontent-length: 3\r\n\r\nabc"),
    ("a request line that ends with a bare LF", "GET / HTTP/1.1\nhost: a\r\n\r\n"),
    ("a head that ends with a bare LF", "GET / HTTP/1.1\r\nhost: a\r\n\n"),
    ("a bare CR in a value", "GET / HTTP/1.1\r\nhost: a\r\nx: a\rtransfer-encoding: chunked\r\n\r\n"),
    ("a NUL in a value", "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n"),
    ("a name that is none", "GET / HTTP/1.1\r\nhost: a\r\nx(y): a\r\n\r\n"),
    ("no name", "GET / HTTP/1.1\r\nhost: a\r\n: a\r\n\r\n"),
    ("a line without a colon", "GET / HTTP/1.1\r\nhost: a\r\nx\r\n\r\n"),
    ("a method that is none", "G[T / HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a tab in the request line", "GET\t/ HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("two spaces in the request line", "GET  / HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a space in the target", "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a letter beyond ASCII in the target", "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a control character in the target", "GET /\x01 HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a fragment", "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("no version", "GET /\r\nhost: a\r\n\r\n"),
    ("a version that is none", "GET / HTTP/1.2\r\nhost: a\r\n\r\n"),
    ("a version in small letters", "GET / http/1.1\r\nhost: a\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
    ("a host that is none", "GET / HTTP/1.1\r\nhost: a b\r\n\r\n"),
    ("a host with a path", "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n"),
    ("a host with a user", "GET / HTTP/1.1\r\nhost: b@a\r\n\r\n"),
    ("an empty host", "GET / HTTP/1.1\r\nhost: \r\n\r\n"),
    ("a target for another host", "GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a target with a user", "GET http://a@a/ HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a target without a slash", "GET a HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("the asterisk", "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n"),
];

#[tokio::test]
async fn doubtful_heads_are_refused_and_nothing_of_them_is_forwarded() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    for (what, head) in HEADS {
        let reply = proxy.send(format!("{head}{HIDDEN}")).await;
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert!(!reply.body.contains("HTTP/1.1 200"), "{what}: {reply:?}");
        assert!(upstream.seen().is_empty(), "{what}: {:?}", upstream.seen());
    }
}

#[tokio::test]
async fn one_byte_at_a_time_changes_nothing() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    for (what, head) in HEADS.iter().take(24).step_by(3) {
        let mut stream = proxy.connect().await;
        stream.set_nodelay(true).unwrap();
        for byte in head.as_bytes() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let reply = Answer::parse(&read_to_end(&mut stream).await);
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

#[tokio::test]
async fn after_a_good_request_a_doubtful_one_is_refused_all_the_same() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let good = "POST /good HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n";
    let bad = "POST /bad HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let mut stream = proxy.connect().await;
    stream.write_all(format!("{good}{good}{bad}{HIDDEN}").as_bytes()).await.unwrap();
    let answers = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "200", "400"]);
    let seen = upstream.only();
    assert_eq!(seen.matches("/good").count(), 2);
    assert!(!seen.contains("/bad") && !seen.contains("/hidden"), "{seen}");
}

#[tokio::test]
async fn doubtful_chunks_end_the_request_and_hide_nothing() {
    let chunks = [
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello!!\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nx y: z\r\n\r\n",
        "5\r\nhello\r\n0\r\n x: z\r\n\r\n",
        "5\r\nhello\r\n0\r\nx: z\n\r\n",
    ];
    for chunks in chunks {
        let upstream = Upstream::plain().await;
        let proxy = Proxy::wide(upstream.address);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let reply = proxy.send(format!("{head}{chunks}{HIDDEN}")).await;
        assert_eq!(reply.status, 400, "{chunks:?}: {reply:?}");
        let seen = upstream.seen().concat();
        assert!(!seen.contains("hidden") && !seen.contains("0\r\n\r\n"), "{chunks:?}: {seen}");
    }
}

#[tokio::test]
async fn chunk_extensions_are_not_passed_on() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n";
    assert_eq!(proxy.send(request).await.status, 200);
    let seen = upstream.only();
    assert!(seen.contains("\r\n5\r\nhello\r\n0\r\n\r\n") && !seen.contains("a=b"), "{seen}");
}

/// Some servers add trailers to the headers of a request. Rules do not see them, and neither do the checks of forwarding headers.
#[tokio::test]
async fn trailers_of_a_request_are_not_passed_on() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\
                trailer: x-forwarded-for, x-user-id\r\n\r\n";
    let request = format!("{head}5\r\nhello\r\n0\r\nx-forwarded-for: 6.6.6.6\r\nx-user-id: root\r\n\r\n");
    assert_eq!(proxy.send(request).await.status, 200);
    let seen = upstream.only();
    assert!(seen.ends_with("\r\n5\r\nhello\r\n0\r\n\r\n"), "{seen}");
    assert!(!seen.contains("6.6.6.6") && !seen.contains("root") && !seen.contains("trailer:"), "{seen}");
}

#[tokio::test]
async fn a_target_that_names_the_host_too_is_forwarded_as_a_path() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let request = "GET http://Shop.test/a?b HTTP/1.1\r\nhost: shop.TEST\r\nconnection: close\r\n\r\n";
    assert_eq!(proxy.send(request).await.status, 200);
    assert!(upstream.only().starts_with("GET /a?b HTTP/1.1\r\n"));
    let tunnel = proxy.send("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\nconnection: close\r\n\r\n").await;
    tunnel.problem(501);
}

/// TRACE was passed on. An upstream that answers it would have shown a script cookies that it cannot read, and any
/// client what proxies add on the way.
#[tokio::test]
async fn trace_is_not_passed_on() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let reply = proxy.send("TRACE / HTTP/1.1\r\nhost: a\r\ncookie: sid=1\r\nconnection: close\r\n\r\n").await;
    reply.problem(501);
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

/// Space after the size of a chunk ends it for some parsers; for others it makes another size, or an invalid one.
#[tokio::test]
async fn space_after_a_chunk_size_is_refused() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    for chunks in ["5 \r\nhello\r\n0\r\n\r\n", "5\t\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0 \r\n\r\n"] {
        assert_eq!(proxy.send(format!("{head}{chunks}")).await.status, 400, "{chunks:?}");
    }
    assert_eq!(
        proxy.send(format!("{head}5 ;a\r\nhello\r\n0\r\n\r\n")).await.status,
        200,
        "it may precede an extension"
    );
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let reply = proxy.get("/", &format!("x: {}\r\n", "a".repeat(70_000))).await;
    assert_eq!(reply.status, 431);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn http_2_smuggles_nothing_either() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    let io = TokioIo::new(proxy.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = |uri: &str| http::Request::get(uri);
    let doubtful = [
        ("another host", request("http://a/").header("host", "b")),
        ("two hosts", request("http://a/").header("host", "a").header("host", "a")),
        ("a user", request("http://u@a/")),
        ("characters beyond ASCII", request("http://a/\u{e9}")),
    ];
    for (what, request) in doubtful {
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await;
        assert_ne!(response.map(|response| response.status().as_u16()).unwrap_or(400), 200, "{what}");
        sender.ready().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}
