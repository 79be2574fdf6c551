//! A plain request, read from the bytes that have arrived.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::lines::{content_length, field, request_line};

/// More than nearly every request has; the ranges are kept on the stack.
const MOST_HEADERS: usize = 32;
/// For headers that are added on the way.
const MORE_HEADERS: usize = 8;

/// What the bytes at the beginning of a buffer are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "used at once where it is made")]
pub(super) enum Beginning {
    /// Nothing has arrived.
    Nothing,
    /// A plain request, taken from the buffer with its body.
    Plain(Taken),
    /// Anything else: it is left in the buffer.
    Other,
}

/// A request that was taken from a buffer.
#[derive(Debug)]
pub(in crate::front) struct Taken {
    pub(in crate::front) request: Request<Bytes>,
    /// The same as it arrived, for somebody else to read.
    pub(in crate::front) bytes: Bytes,
    /// Whether the client sends no other on this connection.
    pub(super) is_last: bool,
}

/// Where things are in a head.
struct Layout {
    method: Range<usize>,
    target: Range<usize>,
    fields: [(Range<usize>, Range<usize>); MOST_HEADERS],
    count: usize,
    /// Of the head.
    length: usize,
    body: usize,
    is_last: bool,
}

/// How long the plain request at the beginning of these bytes is.
#[cfg(any(test, fuzzing))]
pub(in crate::front) fn length_of_plain(input: &[u8]) -> Option<usize> {
    match take(&mut input.into(), &mut HeaderMap::new()) {
        Beginning::Plain(taken) => Some(taken.bytes.len()),
        Beginning::Nothing | Beginning::Other => None,
    }
}

/// Takes a plain request. Its headers are put into `spare`, which is empty.
pub(super) fn take(input: &mut BytesMut, spare: &mut HeaderMap) -> Beginning {
    if input.is_empty() {
        return Beginning::Nothing;
    }
    let Some(layout) = layout(input) else { return Beginning::Other };
    let Ok(method) = Method::from_bytes(&input[layout.method.clone()]) else { return Beginning::Other };
    let bytes = input.split_to(layout.length + layout.body).freeze();
    let Ok(target) = PathAndQuery::from_maybe_shared(bytes.slice(layout.target)) else {
        put_back(input, &bytes);
        return Beginning::Other;
    };
    let mut request = Request::new(if layout.body == 0 { Bytes::new() } else { bytes.slice(layout.length..) });
    *request.method_mut() = method;
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers(std::mem::take(spare), &bytes, &layout.fields[..layout.count]);
    Beginning::Plain(Taken { request, bytes, is_last: layout.is_last })
}

/// Undoes that these bytes were taken.
pub(super) fn put_back(input: &mut BytesMut, taken: &[u8]) {
    let later = input.split();
    input.extend_from_slice(taken);
    input.extend_from_slice(&later);
}

fn headers(mut headers: HeaderMap, head: &Bytes, fields: &[(Range<usize>, Range<usize>)]) -> HeaderMap {
    headers.reserve(fields.len() + MORE_HEADERS);
    for (name, value) in fields {
        let name = HeaderName::from_bytes(&head[name.clone()]).expect("a token");
        let value = HeaderValue::from_maybe_shared(head.slice(value.clone())).expect("no control characters");
        headers.append(name, value);
    }
    headers
}

/// Where everything is, if the request is plain and has arrived whole.
fn layout(input: &[u8]) -> Option<Layout> {
    let mut lines = Lines { input, at: 0 };
    let line = lines.next()?;
    let begin = request_line(&input[line]).filter(|begin| !begin.is_http_1_0 && begin.target[0] == b'/')?;
    if !is_plain_method(begin.method) {
        return None;
    }
    let (method, after_method) = (0..begin.method.len(), begin.method.len() + 1);
    let target = after_method..after_method + begin.target.len();
    let (mut fields, mut count) = ([const { (0..0, 0..0) }; MOST_HEADERS], 0);
    let (mut length, mut is_last) = (None, false);
    loop {
        let line = lines.next()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = field(&input[line.clone()])?;
        match says(name, value) {
            Says::Nothing => {}
            Says::Close => is_last = true,
            Says::Length if length.is_none() => length = Some(content_length(value)?),
            // Two lengths, or something about this connection.
            Says::Length | Says::More => return None,
        }
        let name = line.start..line.start + name.len();
        // An empty value is somewhere in the line.
        let start = value.as_ptr() as usize - input.as_ptr() as usize;
        *fields.get_mut(count)? = (name, start..start + value.len());
        count += 1;
    }
    let body = usize::try_from(length.unwrap_or(0)).ok()?;
    let has_arrived = input.len() - lines.at >= body;
    has_arrived.then_some(Layout { method, target, fields, count, length: lines.at, body, is_last })
}

/// `HEAD` and `CONNECT` are answered in their own ways.
fn is_plain_method(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"POST" | b"PUT" | b"PATCH" | b"DELETE" | b"OPTIONS")
}

/// What a field says about how the message is read.
enum Says {
    Nothing,
    Length,
    /// This is the last request.
    Close,
    /// Something that plain requests do not say.
    More,
}

fn says(name: &[u8], value: &[u8]) -> Says {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let more = match name.len() {
        2 => is("te"),
        6 => is("expect"),
        7 => is("upgrade") || is("trailer"),
        10 if is("connection") && value.eq_ignore_ascii_case(b"close") => return Says::Close,
        10 => is("keep-alive") || (is("connection") && !value.eq_ignore_ascii_case(b"keep-alive")),
        14 if is("content-length") => return Says::Length,
        14 => is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        _ => false,
    };
    if more { Says::More } else { Says::Nothing }
}

/// Lines that end in CRLF, without it. A line with another ending is one line to some parsers and part of one to others.
struct Lines<'i> {
    input: &'i [u8],
    at: usize,
}

impl Lines<'_> {
    fn next(&mut self) -> Option<Range<usize>> {
        let rest = &self.input[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
        if !rest[end..].starts_with(b"\r\n") {
            return None;
        }
        let line = self.at..self.at + end;
        self.at += end + 2;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (Beginning, BytesMut) {
        let mut input = BytesMut::from(text);
        (take(&mut input, &mut HeaderMap::new()), input)
    }

    #[test]
    fn a_plain_request_is_taken_and_the_next_one_stays() {
        let first = "POST /v1/check?a=b HTTP/1.1\r\nHost: a\r\nX-Empty:\r\ncontent-length: 2\r\n\r\n{}";
        let (Beginning::Plain(Taken { request, bytes, is_last: false }), rest) =
            taken(&format!("{first}GET / HTTP/1.1\r\n"))
        else {
            panic!("plain")
        };
        assert_eq!(
            (request.method(), request.uri().path(), request.uri().query()),
            (&Method::POST, "/v1/check", Some("a=b"))
        );
        let headers: Vec<_> = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("host", &b"a"[..]), ("x-empty", b""), ("content-length", b"2")]);
        assert_eq!(request.body(), "{}");
        assert_eq!((bytes, rest), (first.into(), "GET / HTTP/1.1\r\n".into()));
    }

    #[test]
    fn whatever_is_not_plain_stays_as_it_is() {
        let lines = |lines: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
        let many: String = (0..MOST_HEADERS).map(|number| format!("a{number}: 1\r\n")).collect();
        let others = [
            "GET / HTTP/1.1\r\nhost: a\r\n".to_string(),
            "GET / HTTP/1.0\r\nhost: a\r\n\r\n".into(),
            "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n".into(),
            "GET  / HTTP/1.1\r\nhost: a\r\n\r\n".into(),
            "GET /<a> HTTP/1.1\r\nhost: a\r\n\r\nGET".into(),
            "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n".into(),
            "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".into(),
            "\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n".into(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
            "GET / HTTP/1.1\nhost: a\n\n".into(),
            "GET / HTTP/1.1\r\nhost: a\rb\r\n\r\n".into(),
            lines("Connection: close, x-user\r\n"),
            lines("connection: upgrade\r\nupgrade: websocket\r\n"),
            lines("expect: 100-continue\r\n"),
            lines("te: trailers\r\n"),
            lines("transfer-encoding: chunked\r\n"),
            lines("content-length: 1\r\n"),
            lines("content-length: 0\r\ncontent-length: 0\r\n"),
            lines("content-length: +0\r\n"),
            lines("content-length: \x0c0\r\n"),
            lines("x-a: \x0cfoo\r\n"),
            lines("content-length: 18446744073709551616\r\n"),
            lines("name : value\r\n"),
            lines(" folded\r\n"),
            lines("no colon\r\n"),
            lines("a: b\0c\r\n"),
            lines(&many),
        ];
        for text in others {
            let (beginning, rest) = taken(&text);
            assert!(matches!(beginning, Beginning::Other), "{text:?}");
            assert_eq!(rest, text.as_str());
        }
        assert!(matches!(taken("").0, Beginning::Nothing));
        let is_last = |lines: String| matches!(taken(&lines).0, Beginning::Plain(Taken { is_last: true, .. }));
        assert!(is_last(lines("Connection: Close\r\n")) && !is_last(lines("Connection: Keep-Alive\r\n")));
    }
}
