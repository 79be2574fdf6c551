//! The head of a response, written as bytes.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::ext::ReasonPhrase;

use super::lines::trim;
use crate::front::connections::class_of;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    NoBody,
    Length(u64),
    Chunked,
}

impl Framing {
    /// For a body of this length, if it is known. Plain requests are never `HEAD`.
    pub(super) fn of(status: StatusCode, length: Option<u64>) -> Framing {
        match length {
            _ if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED => Framing::NoBody,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        }
    }
}

/// Whether a word is in the list of a header.
pub(in crate::front) fn says(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut words = headers.get_all(name).into_iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    words.any(|other| trim(other).eq_ignore_ascii_case(word.as_bytes()))
}

/// Appends the head, with these lines and `Connection: close` after its other headers.
pub(super) fn write_head(out: &mut Vec<u8>, parts: &Parts, lines: &[u8], closes: bool, framing: Framing) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(parts.status.as_str().as_bytes());
    out.push(b' ');
    match parts.extensions.get::<ReasonPhrase>() {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        None => {
            out.extend_from_slice(parts.status.canonical_reason().unwrap_or_else(|| class_of(parts.status)).as_bytes())
        }
    }
    out.extend_from_slice(b"\r\n");
    let (mut is_dated, mut is_framed) = (false, false);
    for (name, value) in &parts.headers {
        // The length is that of the body as it is sent, in the place where it was.
        if *name == CONTENT_LENGTH {
            if !is_framed {
                write_framing(out, framing);
            }
            is_framed = true;
            continue;
        }
        is_dated |= *name == DATE;
        write_field(out, name.as_str(), value.as_bytes());
    }
    out.extend_from_slice(lines);
    if closes {
        write_field(out, CONNECTION.as_str(), b"close");
    }
    if !is_framed {
        write_framing(out, framing);
    }
    if !is_dated {
        write_date(out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::NoBody => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"content-length: ");
            write_decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
}

pub(in crate::front) fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk.
pub(super) fn write_chunk_size(out: &mut Vec<u8>, size: usize) {
    out.extend_from_slice(format!("{size:x}\r\n").as_bytes());
}

fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    // As many digits as the largest number has, from the last.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the `Date`, which a thread writes once a second.
fn write_date(out: &mut Vec<u8>) {
    thread_local! {
        static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    WRITTEN.with_borrow_mut(|(second, date)| {
        if *second != now {
            *second = now;
            *date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now));
        }
        write_field(out, "date", date.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Response};

    use super::*;

    fn written(response: Response<()>, framing: Framing) -> String {
        let mut out = Vec::new();
        write_head(&mut out, &response.into_parts().0, b"", false, framing);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_head_has_a_length_and_a_date() {
        let response = Response::builder().header("content-length", "9").header("x-a", "1").body(()).expect("valid");
        let text = written(response, Framing::Length(10_230));
        let (head, date) = text.split_once("date: ").expect("a date");
        assert_eq!(head, "HTTP/1.1 200 OK\r\ncontent-length: 10230\r\nx-a: 1\r\n");
        httpdate::parse_http_date(date.trim_end()).expect("a date");
        assert!(date.ends_with(" GMT\r\n\r\n"), "{date}");
    }

    #[test]
    fn a_date_or_a_reason_that_is_there_is_kept() {
        let mut response = Response::builder().status(799).header("date", "then").body(()).expect("valid");
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Other"));
        let chunked = "HTTP/1.1 799 Other\r\ndate: then\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(written(response, Framing::Chunked), chunked);
        let response = Response::builder().status(304).header("date", "then").header("content-length", "7").body(());
        let unchanged = "HTTP/1.1 304 Not Modified\r\ndate: then\r\n\r\n";
        assert_eq!(written(response.expect("valid"), Framing::of(StatusCode::NOT_MODIFIED, Some(0))), unchanged);
    }

    #[test]
    fn numbers_have_all_of_their_digits() {
        for number in [0, 9, 10, 305, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_word_may_be_one_of_several() {
        let headers = |value: &'static str| HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static(value))]);
        let says = |value| says(&headers(value), CONNECTION, "close");
        assert!(says("close") && says("te, Close") && !says("keep-alive") && !says("closed"));
    }
}
