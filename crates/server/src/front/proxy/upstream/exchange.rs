//! One request without a body and its response at a time, over HTTP/1, without a framework.
//!
//! What a response means is as in hyper: the same parser reads its head, and the body ends as RFC 9112 6.3 says. Trailers are read
//! and dropped: who wants them lets hyper speak.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::chunks::Chunks;
use crate::front::plain::lines;
use crate::front::plain::says;

/// One connection.
#[derive(Debug)]
pub(super) struct Exchange<S> {
    stream: S,
    /// Where bytes are read to.
    input: BytesMut,
    /// What was read and not used yet.
    arrived: Bytes,
    /// Whether the last read filled its buffer: more is read the next time.
    is_large: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    /// The response has yet to come.
    Busy,
    Body {
        length: Length,
        is_last: bool,
    },
    /// Nothing can follow.
    Over,
}

/// How the end of a body is found.
#[derive(Debug)]
enum Length {
    Exact(u64),
    Chunked(Chunks),
    UntilClosed,
}

/// How much of a body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Left {
    Nothing,
    Exactly(u64),
    Unknown,
}

/// The most that a head may have, as in hyper.
const MOST_HEADERS: usize = 100;
const LARGEST_HEAD: usize = 408 * 1024;

/// What is read at a time.
const BUFFER: usize = 8 * 1024;
const LARGE_BUFFER: usize = 64 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<S> {
    pub(super) fn new(stream: S) -> Exchange<S> {
        Exchange { stream, input: BytesMut::new(), arrived: Bytes::new(), is_large: false, state: State::Idle }
    }

    pub(super) fn into_stream(self) -> S {
        self.stream
    }

    /// Whether the last request has ended, and another one can follow.
    pub(super) fn is_idle(&self) -> bool {
        // What came unasked is no answer to the next request.
        matches!(self.state, State::Idle) && self.arrived.is_empty()
    }

    /// Whether nothing has arrived on an idle connection, not even its end.
    pub(super) fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_read(cx).is_pending()
    }

    /// Sends what is left of a request, and waits for the head of the response. Its headers are put into `spare`, which is empty.
    pub(super) fn poll_head(
        &mut self,
        request: &mut &[u8],
        spare: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Response<()>>> {
        self.state = State::Busy;
        while !request.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, request))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *request = &request[written..];
        }
        // TLS may have kept some of it. Asked each time: there is nothing to do once all of it has gone out.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        loop {
            if !self.arrived.is_empty()
                && let Some(response) = self.take_head(spare)?
            {
                return Poll::Ready(Ok(response));
            }
            if self.arrived.len() > LARGEST_HEAD {
                return Poll::Ready(Err(invalid("the head of the response is too large")));
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The head of a response, if all of it has arrived. Interim responses, such as 103, are skipped.
    fn take_head(&mut self, spare: &mut HeaderMap) -> io::Result<Option<Response<()>>> {
        loop {
            let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
            let mut head = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default()
                .parse_response_with_uninit_headers(&mut head, &self.arrived, &mut headers)
                .map_err(|error| invalid(error.to_string()))?;
            let httparse::Status::Complete(length) = parsed else { return Ok(None) };
            let status =
                StatusCode::from_u16(head.code.unwrap_or_default()).map_err(|error| invalid(error.to_string()))?;
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                self.arrived = self.arrived.slice(length..);
                continue;
            }
            let mut response = Response::new(());
            *response.status_mut() = status;
            *response.version_mut() = if head.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
            *response.headers_mut() = headers_of(std::mem::take(spare), head.headers, &self.arrived)?;
            if let Some(reason) = head.reason.filter(|reason| status.canonical_reason() != Some(reason))
                && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
            {
                response.extensions_mut().insert(reason);
            }
            self.arrived = self.arrived.slice(length..);
            let is_last = is_last(&response);
            self.state = State::Body { length: length_of(&response)?, is_last };
            self.end_if_over();
            return Ok(Some(response));
        }
    }

    /// The next piece of the body; `None` at its end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            let State::Body { length, .. } = &mut self.state else { return Poll::Ready(Ok(None)) };
            let piece = match length {
                Length::Exact(left) => {
                    let here = self.arrived.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= here as u64;
                    self.arrived.split_to(here)
                }
                Length::Chunked(chunks) => chunks.take(&mut self.arrived)?,
                Length::UntilClosed => std::mem::take(&mut self.arrived),
            };
            self.end_if_over();
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
            let State::Body { length, .. } = &self.state else { return Poll::Ready(Ok(None)) };
            let ends_with_the_connection = matches!(length, Length::UntilClosed);
            if ready!(self.poll_read(cx))? == 0 {
                self.state = State::Over;
                let ended = if ends_with_the_connection { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
                return Poll::Ready(ended);
            }
        }
    }

    /// How much of the body is left.
    pub(super) fn left(&self) -> Left {
        match &self.state {
            State::Body { length: Length::Exact(left), .. } => Left::Exactly(*left),
            State::Body { .. } | State::Busy => Left::Unknown,
            State::Idle | State::Over => Left::Nothing,
        }
    }

    fn end_if_over(&mut self) {
        let State::Body { length, is_last } = &self.state else { return };
        let is_over = match length {
            Length::Exact(left) => *left == 0,
            Length::Chunked(chunks) => chunks.is_over(),
            Length::UntilClosed => false,
        };
        if is_over {
            self.state = if *is_last { State::Over } else { State::Idle };
        }
    }

    /// Reads more, behind what was not used yet.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = if self.is_large { LARGE_BUFFER } else { BUFFER };
        if !self.arrived.is_empty() {
            // The same buffer again, now that nothing else is in it: what has arrived is not copied for each piece that follows.
            self.input = BytesMut::new();
            self.input = std::mem::take(&mut self.arrived).try_into_mut().unwrap_or_else(|shared| shared[..].into());
        }
        self.input.reserve(room);
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        if !self.input.is_empty() {
            self.arrived = self.input.split().freeze();
        }
        let read = ready!(read)?;
        self.is_large = read >= room;
        Poll::Ready(Ok(read))
    }
}

fn headers_of(mut headers: HeaderMap, parsed: &[httparse::Header<'_>], head: &Bytes) -> io::Result<HeaderMap> {
    // With room for what is added on the way.
    headers.reserve(parsed.len() + 4);
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|error| invalid(error.to_string()))?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(header.value));
        headers.append(name, value.map_err(|error| invalid(error.to_string()))?);
    }
    Ok(headers)
}

/// Whether the connection ends with this response.
fn is_last(response: &Response<()>) -> bool {
    let says = |what| says(response.headers(), CONNECTION, what);
    let lasts = if response.version() == Version::HTTP_10 { says("keep-alive") } else { !says("close") };
    !lasts || response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// RFC 9112 6.3; the request was not `HEAD`.
fn length_of(response: &Response<()>) -> io::Result<Length> {
    let (status, headers) = (response.status(), response.headers());
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS) {
        return Ok(Length::Exact(0));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        if response.version() == Version::HTTP_10 {
            return Err(invalid("Transfer-Encoding in a response of HTTP/1.0"));
        }
        let last = headers.get_all(TRANSFER_ENCODING).into_iter().next_back();
        let coding = last.and_then(|line| line.as_bytes().rsplit(|byte| *byte == b',').next());
        let is_chunked = coding.is_some_and(|coding| lines::trim(coding).eq_ignore_ascii_case(b"chunked"));
        return Ok(if is_chunked { Length::Chunked(Chunks::default()) } else { Length::UntilClosed });
    }
    let mut length = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for value in line.as_bytes().split(|byte| *byte == b',') {
            let value =
                lines::content_length(lines::trim(value)).ok_or_else(|| invalid("Content-Length is no number"))?;
            if length.replace(value).is_some_and(|other| other != value) {
                return Err(invalid("several Content-Lengths"));
            }
        }
    }
    Ok(length.map_or(Length::UntilClosed, Length::Exact))
}

fn invalid(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests;
