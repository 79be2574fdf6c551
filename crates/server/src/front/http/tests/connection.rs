use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(5);

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends a connection too.
    let _ = timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("the connection ends");
    bytes
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_order() {
    let gate = Plan::new([per_user()]).open().await;
    let mut stream = gate.connect().await;
    let body = r#"{"attributes": {"user_id": "42"}}"#;
    let one = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let last = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{one}{one}{one}{one}{last}").as_bytes()).await.expect("sent");
    let bytes = read_to_end(&mut stream).await;
    let mut rest = bytes.as_slice();
    for remaining in [2, 1, 0, 0] {
        let (reply, after) = Reply::parse(rest);
        assert_eq!(reply.json()["rules"][0]["remaining"], remaining);
        rest = after;
    }
    let (health, after) = Reply::parse(rest);
    assert_eq!((health.json(), after.len()), (json!({"status": "ok"}), 0));
}

#[tokio::test]
async fn a_client_that_closes_its_half_still_gets_the_answer() {
    let gate = Plan::new([]).open().await;
    let mut stream = gate.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    stream.shutdown().await.expect("half closed");
    assert_eq!(Reply::parse(&read_to_end(&mut stream).await).0.status, 200);
}

#[tokio::test]
async fn http_2_is_spoken_with_those_who_begin_with_it() {
    let gate = Plan::new([per_ip()]).open().await;
    let io = TokioIo::new(gate.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
    tokio::spawn(connection);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = http::Request::post("http://gate.localhost/v1/authorize/orders")
            .body(Full::new(axum::body::Bytes::from_static(b"ignored")))
            .expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        statuses.push(response.status().as_u16());
        response.into_body().collect().await.expect("a body");
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_is_closed() {
    let gate = Plan::new([]).limits(|limits| limits.idle = Duration::from_millis(100)).open().await;
    let beginnings = ["", "G", "PRI * HTTP/2.0\r\n", "GET /healthz HTTP/1.1\r\nhost: x\r\n"];
    for beginning in beginnings {
        let mut stream = gate.connect().await;
        stream.write_all(beginning.as_bytes()).await.expect("sent");
        assert_eq!(Reply::statuses(&read_to_end(&mut stream).await), "", "{beginning:?}");
    }
    let mut stream = gate.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    assert_eq!(Reply::statuses(&read_to_end(&mut stream).await), "200", "answered, then idle");
}

impl Reply {
    fn statuses(mut bytes: &[u8]) -> String {
        let mut statuses = Vec::new();
        while bytes.starts_with(b"HTTP/") {
            let (reply, rest) = Reply::parse(bytes);
            statuses.push(reply.status.to_string());
            bytes = rest;
        }
        statuses.join(" ")
    }
}

#[tokio::test]
async fn past_the_most_connections_further_ones_wait_for_room() {
    let gate = Plan::new([]).limits(|limits| limits.connections = 1).open().await;
    let mut first = gate.connect().await;
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut some = [0; 12];
    first.read_exact(&mut some).await.expect("an answer");
    let mut second = gate.connect().await;
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("sent");
    let early = timeout(Duration::from_millis(50), second.read(&mut some)).await;
    assert!(early.is_err(), "served while there was no room");
    drop(first);
    assert_eq!(Reply::statuses(&read_to_end(&mut second).await), "200");
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_takes_nothing_new() {
    let mut gate = Plan::new([]).open().await;
    let mut idle = gate.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut some = [0; 12];
    idle.read_exact(&mut some).await.expect("an answer");

    let mut busy = gate.connect().await;
    busy.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        .await
        .expect("sent");
    // The service asks for the body, so the request is in flight.
    let mut asked = [0; 25];
    busy.read_exact(&mut asked).await.expect("asked for the body");
    assert!(asked.starts_with(b"HTTP/1.1 100 Continue"));

    gate.begin_to_stop();
    read_to_end(&mut idle).await;
    TcpStream::connect(gate.address).await.expect_err("the listener is closed");
    assert!(!gate.running.is_finished(), "a request is still in flight");
    busy.write_all(b"{}").await.expect("sent");
    let reply = Reply::parse(&read_to_end(&mut busy).await).0;
    assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(true)));
    timeout(SOON, gate.running).await.expect("it stops").expect("without a panic").expect("without an error");
}

/// A client that sent half a body and left kept the service from stopping for ten seconds.
#[tokio::test]
async fn stopping_does_not_wait_for_the_rest_of_a_body() {
    let mut gate = Plan::new([]).limits(|limits| limits.drain = Duration::from_secs(3_600)).open().await;
    let mut half = gate.connect().await;
    half.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 20\r\n\r\n")
        .await
        .expect("sent");
    let mut asked = [0; 25];
    half.read_exact(&mut asked).await.expect("asked for the body");
    half.write_all(b"{").await.expect("sent");
    gate.begin_to_stop();
    let reply = Reply::parse(&read_to_end(&mut half).await).0;
    assert_eq!(reply.status, 503);
    assert!(reply.json()["detail"].as_str().expect("text").contains("the body is not complete"));
    timeout(SOON, gate.running).await.expect("it stops").expect("without a panic").expect("without an error");
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let mut gate = Plan::new([]).limits(|limits| limits.drain = Duration::from_millis(50)).open().await;
    let mut busy = gate.connect().await;
    busy.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        .await
        .expect("sent");
    let mut asked = [0; 25];
    busy.read_exact(&mut asked).await.expect("asked for the body");
    gate.begin_to_stop();
    timeout(SOON, gate.running).await.expect("it stops").expect("without a panic").expect("without an error");
    assert_eq!(Reply::statuses(&read_to_end(&mut busy).await), "");
}

/// Plain requests are answered without hyper. An empty line before one is ignored, but makes it go the long way.
#[tokio::test]
async fn both_ways_give_the_same_answer() {
    let check =
        |body: &str| format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let authorize = |rest: &str| format!("{rest} HTTP/1.1\r\nhost: x\r\nx-user-id: 42\r\n\r\n");
    let requests = [
        check(r#"{"attributes": {"user_id": "42"}}"#),
        check(r#"{"attributes": {"user_id": "42"}, "cost": 9, "headers": true}"#),
        check(r#"{"checks": [{"attributes": {"user_id": "42"}}, {"attributes": {}}]}"#),
        check("{"),
        authorize("GET /v1/authorize"),
        authorize("OPTIONS /v1/authorize/orders?a=b"),
        authorize("GET /v1/authorize//"),
    ];
    let lines = |head: &str| {
        let mut lines: Vec<String> = head.lines().filter(|line| !line.starts_with("date: ")).map(Into::into).collect();
        lines.sort_unstable();
        lines
    };
    for request in requests {
        let mut answers = Vec::new();
        for before in ["", "\r\n"] {
            let gate = Plan::new([per_user(), per_ip()]).open().await;
            let mut stream = gate.connect().await;
            stream.write_all(format!("{before}{request}").as_bytes()).await.expect("sent");
            stream.shutdown().await.expect("half closed");
            let answer = String::from_utf8(read_to_end(&mut stream).await).expect("text");
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
            assert!(head.contains("\r\ndate: "), "{head}");
            answers.push((lines(head), body.to_string()));
        }
        assert_eq!(answers[0], answers[1], "{request}");
    }
}
