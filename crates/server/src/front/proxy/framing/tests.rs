use super::*;

/// Where reading stops, however the bytes are cut.
fn read(bytes: &[u8]) -> Result<(), usize> {
    let whole = Strict::new((), Sequel::default()).read(bytes).map_err(|Refused(at)| at);
    let mut strict = Strict::new((), Sequel::default());
    let cut = bytes.iter().enumerate().try_for_each(|(at, byte)| strict.read(&[*byte]).map_err(|_| at));
    assert_eq!(whole, cut, "{}", String::from_utf8_lossy(bytes));
    whole
}

#[test]
fn ordinary_requests_pass_one_after_the_other() {
    let requests = [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "\r\nPOST /a?b=c HTTP/1.1\r\nhost: a\r\nContent-Length: 5\r\n\r\nhe\nlo",
        "POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5 \t;a=b\r\nhe\nlo\r\n00\r\nx-sum: 7\r\n\r\n",
        "DELETE / HTTP/1.0\r\n\r\n",
        "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 0\r\nx: \tt\u{e9}xt\t \r\n\r\n",
    ];
    assert_eq!(read(requests.concat().repeat(2).as_bytes()), Ok(()));
}

#[test]
fn http_2_is_not_read() {
    assert_eq!(read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\n\n\n"), Ok(()));
    read(b"PRI * HTTP/2.0\r\n\r\nSN").expect_err("almost");
}

#[test]
fn doubtful_framing_is_refused_at_the_line_that_makes_it_so() {
    for head in [
        "content-length: 1\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 1\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "content-length: 1\r\ncontent-length: 2\r\n",
        "content-length: 1, 1\r\n",
        "content-length: +1\r\n",
        "content-length:\r\n",
        "content-length: 99999999999999999999\r\n",
        "x: a\r\n b\r\n",
        " x: a\r\n",
        "x: a\n",
        "x: a\rb\r\n",
        "x: a\0\r\n",
        "x\r\n",
        ": a\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{head}\r\n");
        let at = read(request.as_bytes()).expect_err(head);
        assert_eq!(request.as_bytes()[at], b'\n', "{head:?}");
    }
    for line in [
        "GET / HTTP/1.1\n",
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET /\t HTTP/1.1\r\n",
        "GET /\u{e9} HTTP/1.1\r\n",
        "GET /#a HTTP/1.1\r\n",
        "G(T / HTTP/1.1\r\n",
        "GET /\r\n",
        "GET / HTTP/2.0\r\n",
        " GET / HTTP/1.1\r\n",
    ] {
        read(format!("{line}host: a\r\n\r\n").as_bytes()).expect_err(line);
    }
    read(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n").expect_err("chunks are younger than HTTP/1.0");
}

#[test]
fn doubtful_chunks_are_refused() {
    for chunks in [
        "5\nhello\r\n",
        "0x5\r\n",
        "-5\r\n",
        " 5\r\n",
        "5 5\r\n",
        "5 \r\n",
        "5\t\r\n",
        "5\x0c;a\r\n",
        "5;a\0\r\n",
        "\r\n",
        "5\r\nhello!\r\n",
        "5\r\nhello\n",
        "10000000000000000\r\n",
        "0\r\nx\r\n",
        "0\r\n a: b\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        read(request.as_bytes()).expect_err(chunks);
    }
}
