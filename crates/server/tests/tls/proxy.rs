//! The reverse proxy with TLS on either side, and on both.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use tollkeeper_testkit::http::header;
use tollkeeper_testkit::{Authority, Service, curl, file, tollkeeper};

use super::peer::{connect, read_until};
use super::upstream::{Handshake, TlsUpstream};
use crate::proxy::world::{self, SOON, Upstream};

fn proxy(upstream: &str, more: &[&str]) -> Service {
    let args = ["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream, "--limit", "100000/s by global"];
    Service::start(&[&args, more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_shown_and_verified_on_both_sides() {
    let authority = Authority::new();
    let (server, ours) = (authority.server(), authority.client("proxy"));
    let upstream = TlsUpstream::start(Upstream::plain().await, &authority.server(), Some(&authority)).await;
    let url = format!("https://localhost:{}", upstream.port);
    let files = ["--upstream-ca", &authority.pem, "--upstream-cert", &ours.cert, "--upstream-key", &ours.key];
    let proxy = proxy(&url, &[&server.flags_for(&authority)[..], &files].concat());
    let client = authority.client("ann");
    for version in ["--http1.1", "--http2"] {
        let forged = ["--header", "x-forwarded-proto: http", "--header", "tls.client: eve"];
        let url = format!("https://{}/orders", proxy.http);
        assert_eq!(curl(&authority, Some(&client), &[&[version, &url], &forged[..]].concat()).unwrap(), "hello");
    }
    let expected = Handshake {
        server_name: Some("localhost".into()),
        protocol: Some(b"http/1.1".to_vec()),
        has_certificate: true,
    };
    assert!(upstream.handshakes().iter().all(|handshake| *handshake == expected), "{:?}", upstream.handshakes());
    for head in upstream.plain.seen().iter().flat_map(|seen| seen.split_inclusive("\r\n\r\n")) {
        assert!(head.starts_with("GET /orders HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(head, "x-forwarded-proto").as_deref(), Some("https"), "{head}");
    }
    assert!(curl(&authority, None, &[&format!("https://{}/", proxy.http)]).is_err());
}

/// A connection that one thread took over from another could not be written to at first. What TLS kept of the request was never sent.
#[tokio::test(flavor = "multi_thread")]
async fn clients_on_all_threads_share_connections_to_the_upstream() {
    let authority = Authority::new();
    let upstream = TlsUpstream::start(Upstream::plain().await, &authority.server(), None).await;
    let url = format!("https://localhost:{}", upstream.port);
    let proxy = proxy(&url, &["--upstream-ca", &authority.pem]);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = TcpStream::connect(&proxy.http).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let answer = world::read_until(&mut client, "\r\n\r\nhello").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        clients.push(client);
    }
    assert_eq!(upstream.handshakes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_limited_by_their_certificates() {
    let authority = Authority::new();
    let server = authority.server();
    let upstream = Upstream::plain().await;
    let url = format!("http://{}", upstream.address);
    let args = ["proxy", "--listen", "127.0.0.1:0", "--upstream", &url, "--limit", "1/h by tls.client"];
    let proxy = Service::start(&[&args[..], &server.flags_for(&authority)].concat());
    let (ann, bob) = (authority.client("ann"), authority.client("bob"));
    let ask = |pair| {
        let url = format!("https://{}/", proxy.http);
        curl(&authority, Some(pair), &["--output", "/dev/null", "--write-out", "%{http_code}", &url]).unwrap()
    };
    assert_eq!([ask(&ann), ask(&ann), ask(&bob)], ["200", "429", "200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_websockets_pass_through_both_sides() {
    let authority = Authority::new();
    let server = authority.server();
    let plain = Upstream::serving(|mut visitor| async move {
        let head = visitor.head().await.unwrap();
        if head.starts_with("GET /stream ") {
            visitor.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
            std::future::pending::<()>().await;
        }
        visitor.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
        visitor.echo().await;
    });
    let upstream = TlsUpstream::start(plain.await, &authority.server(), None).await;
    let url = format!("https://127.0.0.1:{}", upstream.port);
    let proxy = proxy(&url, &[&server.flags()[..], &["--upstream-ca", &authority.pem]].concat());

    let mut stream = connect(&proxy.http, &authority, None).await;
    stream.write_all(b"GET /stream HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap();
    read_until(&mut stream, "5\r\nfirst\r\n").await;

    let mut socket = connect(&proxy.http, &authority, None).await;
    let upgrade = "GET /chat HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello";
    socket.write_all(upgrade.as_bytes()).await.unwrap();
    assert!(read_until(&mut socket, "\r\n\r\n").await.starts_with("HTTP/1.1 101"));
    read_until(&mut socket, "hello").await;
    // More than all buffers on the way hold.
    const WHOLE: usize = 8 << 20;
    let (mut reader, mut writer) = tokio::io::split(socket);
    let sending = tokio::spawn(async move {
        writer.write_all(&vec![7; WHOLE]).await?;
        // TLS keeps what the socket did not take yet.
        writer.flush().await
    });
    let mut echoed = vec![0; WHOLE];
    tokio::time::timeout(SOON, reader.read_exact(&mut echoed)).await.unwrap().unwrap();
    sending.await.unwrap().unwrap();
    assert!(echoed.iter().all(|byte| *byte == 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_not_who_it_should_be_gets_no_request() {
    let (authority, unknown) = (Authority::new(), Authority::new());
    let wrong = [
        (unknown.server(), None, "UnknownIssuer", "certificate was refused"),
        (authority.server_for(&["elsewhere.test"]), None, "not valid for", "certificate was refused"),
        (authority.expired_server(), None, "expired", "certificate was refused"),
        (authority.server(), Some(&authority), "CertificateRequired", "the upstream refused a TLS connection"),
    ];
    for (pair, clients, logged, shown) in wrong {
        let upstream = TlsUpstream::start(Upstream::plain().await, &pair, clients).await;
        let url = format!("https://127.0.0.1:{}", upstream.port);
        let proxy = proxy(&url, &["--upstream-ca", &authority.pem]);
        let answer = proxy.get("/");
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(shown), "{logged}: {answer}");
        assert!(!answer.contains("elsewhere"), "{answer}");
        proxy.wait_for_log(logged, 1);
        assert!(upstream.plain.seen().iter().all(String::is_empty), "{:?}", upstream.plain.seen());
    }
    let plain = Upstream::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let proxy =
        proxy(&format!("https://{}", plain.address), &["--upstream-ca", &authority.pem, "--connect-timeout", "1s"]);
    let answer = proxy.get("/");
    // The upstream waits for the end of a request head that never comes, so there is no answer within the time for a
    // handshake.
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("did not accept a connection within 1s"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstreams_authority_is_reloaded_on_sighup() {
    let (authority, next) = (Authority::new(), Authority::new());
    let trusted = file(&std::fs::read_to_string(&authority.pem).unwrap(), "pem");
    let upstream = TlsUpstream::start(Upstream::plain().await, &next.server(), None).await;
    let proxy = proxy(&format!("https://127.0.0.1:{}", upstream.port), &["--upstream-ca", &trusted]);
    assert!(proxy.get("/").starts_with("HTTP/1.1 502"));
    std::fs::write(&trusted, "").unwrap();
    proxy.signal("-HUP");
    proxy.wait_for_log(
        "the upstream's certificates were not reloaded, and the old ones stay in use: --upstream-ca: ",
        1,
    );
    std::fs::copy(&next.pem, &trusted).unwrap();
    proxy.signal("-HUP");
    proxy.wait_for_log("the upstream's certificates were reloaded", 1);
    assert!(proxy.get("/").starts_with("HTTP/1.1 200"));
}

/// Servers close idle connections, and most do so without TLS's close_notify. A request that hits this got no answer
/// for a reason that is invisible outside, and is retried if its method is safe and it has no body.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_the_upstream_just_closes_costs_no_request() {
    let authority = Authority::new();
    let plain = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        visitor.head().await;
    });
    let upstream = TlsUpstream::start(plain.await, &authority.server(), None).await;
    let url = format!("https://127.0.0.1:{}", upstream.port);
    let proxy = proxy(&url, &["--upstream-ca", &authority.pem]);
    for _ in 0..5 {
        let answer = proxy.get("/");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(upstream.handshakes().len(), 5, "each connection was used again, once, and lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_on_all_threads_share_a_connection() {
    let authority = Authority::new();
    let upstream = TlsUpstream::start(Upstream::plain().await, &authority.server(), None).await;
    let proxy = proxy(&format!("https://127.0.0.1:{}", upstream.port), &["--upstream-ca", &authority.pem]);
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = TcpStream::connect(&proxy.http).await.unwrap();
        client.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        assert!(world::read_until(&mut client, "\r\n\r\nhello").await.starts_with("HTTP/1.1 200"));
        // It stays open, so that the next one is served by another thread.
        clients.push(client);
    }
    assert_eq!(upstream.handshakes().len(), 1);
}

#[test]
fn flags_that_mean_nothing_are_refused() {
    let authority = Authority::new();
    let error = |args: &[&str]| {
        let all = [&["proxy", "--listen", "127.0.0.1:0", "--limit", "1/s"], args].concat();
        let output = tollkeeper(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = error(&["--upstream", "http://127.0.0.1:1", "--upstream-ca", &authority.pem]);
    assert!(plain.contains("--upstream-ca: is for an upstream with TLS"), "{plain}");
    let nobody = error(&["--upstream", "http://127.0.0.1:1", "--limit", "1/s by tls.client"]);
    assert!(nobody.contains("nobody would be limited; add --tls-client-ca"), "{nobody}");
    let half = error(&["--upstream", "https://127.0.0.1:1", "--upstream-cert", &authority.pem]);
    assert!(half.contains("--upstream-key"), "{half}");
    let nobody = error(&["--upstream", "https://127.0.0.1:1", "--upstream-ca", "/dev/null"]);
    assert!(nobody.contains("--upstream-ca: /dev/null: contains no certificate"), "{nobody}");
}

/// Half a second without an answer is the time for a handshake here; this client gets an error, and no other client
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_never_finishes_its_handshake_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::new();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let proxy = proxy(&url, &["--upstream-ca", &authority.pem, "--connect-timeout", "500ms"]);
    let answer = tokio::task::spawn_blocking(move || proxy.get("/"));
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
}
