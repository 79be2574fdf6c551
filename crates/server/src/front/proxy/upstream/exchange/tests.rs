use std::future::poll_fn;

use tokio::io::AsyncWriteExt as _;

use super::*;

/// What comes of a response that arrives in pieces of this size: its status, body, and whether the connection can be used again.
async fn read(answer: &str, at_a_time: usize) -> io::Result<(u16, String, bool)> {
    let (here, mut there) = tokio::io::duplex(at_a_time);
    let answer = answer.to_string();
    // Held open, unless the response says that it ends with the connection.
    let writing = tokio::spawn(async move {
        let _ = there.write_all(answer.as_bytes()).await;
        if answer.contains("until-closed") {
            return None;
        }
        Some(there)
    });
    let mut exchange = Exchange::new(here);
    let mut request: &[u8] = b"";
    let response = poll_fn(|cx| exchange.poll_head(&mut request, &mut HeaderMap::new(), cx)).await?;
    let mut body = Vec::new();
    while let Some(piece) = poll_fn(|cx| exchange.poll_piece(cx)).await? {
        body.extend_from_slice(&piece);
    }
    assert_eq!(exchange.left(), Left::Nothing);
    drop(writing.await.expect("no panic"));
    let body = String::from_utf8(body).expect("text");
    Ok((response.status().as_u16(), body, exchange.is_idle()))
}

#[tokio::test]
async fn a_response_is_the_same_however_it_arrives() {
    let cases = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", (200, "hello", true)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello", (200, "hello", true)),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\nHTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            (404, "", true),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n5\r\nhello\r\n0\r\na: b\r\n\r\n",
            (200, "hello", true),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n0\r\n\r\n",
            (200, "h", true),
        ),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", (204, "", true)),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", (304, "", true)),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", (101, "", false)),
        ("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 1\r\n\r\nh", (200, "h", false)),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nh", (200, "h", false)),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nh", (200, "h", true)),
        ("HTTP/1.1 200 OK\r\nx: until-closed\r\n\r\nhello", (200, "hello", false)),
        ("HTTP/1.1 200 OK\r\nx: until-closed\r\ntransfer-encoding: chunked, gzip\r\n\r\nhello", (200, "hello", false)),
    ];
    for (answer, expected) in cases {
        for at_a_time in [1, 2, 7, 1000] {
            let (status, body, is_reusable) = read(answer, at_a_time).await.expect(answer);
            assert_eq!((status, body.as_str(), is_reusable), expected, "{answer}, {at_a_time} bytes at a time");
        }
    }
}

#[tokio::test]
async fn what_is_no_response_is_an_error() {
    let many: String = (0..=MOST_HEADERS).map(|number| format!("a{number}: b\r\n")).collect();
    let cases = [
        "HTTP/2 200 OK\r\n\r\n".to_string(),
        "hello\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello".into(),
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nhello".into(),
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello\r\n".into(),
        // Cut off.
        "HTTP/1.1 200 OK\r\nx: until-closed\r\n".into(),
        "HTTP/1.1 200 OK\r\nx: until-closed\r\ncontent-length: 6\r\n\r\nhello".into(),
        "HTTP/1.1 200 OK\r\nx: until-closed\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".into(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(LARGEST_HEAD + BUFFER)),
    ];
    for answer in cases {
        for at_a_time in [7, 1000] {
            // In pieces that are not too many.
            read(&answer, at_a_time.max(answer.len() / 1000)).await.expect_err(&answer);
        }
    }
}

/// The next request would get it as its answer.
#[tokio::test]
async fn a_connection_with_an_answer_too_many_is_not_used_again() {
    let twice = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nhHTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(read(twice, 1000).await.expect("a response"), (200, "h".into(), false));
}
