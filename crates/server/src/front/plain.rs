//! HTTP/1.1 for plain requests, read and written without a framework, whose own work costs more than a decision.
//!
//! A request is plain if it has arrived whole, with a head as nearly every client writes it, that says nothing about the connection. At
//! the first request that is not, hyper takes over the connection, with all bytes that were not answered. So what is unusual,
//! slow, malformed or HTTP/2 is handled in one place, and here nothing has to be refused.

mod head;
pub(super) mod lines;
mod response;
mod rewound;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use bytes::BytesMut;
use http::header::CONNECTION;
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::yield_now;

use super::stopped::Stopped;
#[cfg(any(test, fuzzing))]
pub(super) use head::length_of_plain;
use head::{Beginning, Taken};
use response::Framing;
pub(super) use response::{says, write_field};
pub(super) use rewound::Rewound;

/// A connection on which plain requests are answered.
pub(super) struct Plain<S> {
    stream: S,
    input: BytesMut,
    output: Vec<u8>,
    /// Headers of the last request or response, cleared: to make room for headers costs more than to fill it.
    spare: HeaderMap,
    /// Whether the client sends no other request.
    is_last: bool,
    has_answered: bool,
    /// How many bytes of bodies were sent without a pause.
    in_a_row: usize,
    stop: Stopped,
}

/// What comes next on a connection.
#[expect(clippy::large_enum_variant, reason = "used at once where it is made")]
pub(super) enum Next {
    Request(Taken),
    /// A request that is not plain, and stays in the buffer.
    Other,
    /// Nothing: the client has closed it, or the service stops.
    End,
}

/// What follows a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Continue,
    Close,
}

/// Why there is no next piece of a response.
#[derive(Debug)]
struct Gone;

/// Room for other headers, unless it is too much to keep.
pub(super) fn cleared(mut headers: HeaderMap) -> HeaderMap {
    const KEPT: usize = 64;
    if headers.capacity() > KEPT {
        return HeaderMap::new();
    }
    headers.clear();
    headers
}

impl<S: AsyncRead + AsyncWrite + Unpin> Plain<S> {
    /// What is read at a time.
    const BUFFER: usize = 8 * 1024;
    /// Larger pieces are written from where they are.
    const COPIED: usize = 16 * 1024;
    /// After so many bytes it is the turn of others: where both sides are fast, a large body would keep the thread, with all its
    /// connections, to itself.
    const TURN: usize = 256 * 1024;

    pub(super) fn new(stream: S, stop: Stopped) -> Plain<S> {
        let (input, output, spare) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        Plain { stream, input, output, spare, is_last: false, has_answered: false, in_a_row: 0, stop }
    }

    /// The connection, for whoever understands more than plain requests.
    pub(super) fn hand_over(self) -> Rewound<S> {
        Rewound::with(self.stream, self.input, self.has_answered)
    }

    /// The same, with the bytes of a request that was taken and is not answered here.
    pub(super) fn hand_over_with(mut self, request: &[u8]) -> Rewound<S> {
        head::put_back(&mut self.input, request);
        self.hand_over()
    }

    /// Waits for the next request.
    pub(super) async fn next(&mut self) -> io::Result<Next> {
        loop {
            match head::take(&mut self.input, &mut self.spare) {
                Beginning::Plain(taken) => {
                    self.is_last = taken.is_last;
                    return Ok(Next::Request(taken));
                }
                Beginning::Other => return Ok(Next::Other),
                Beginning::Nothing if poll_fn(|cx| self.poll_more(cx)).await? == 0 => {
                    // TLS says so. If the client has gone, nobody needs to know.
                    let _ = self.stream.shutdown().await;
                    return Ok(Next::End);
                }
                Beginning::Nothing => {}
            }
        }
    }

    /// How much has arrived; nothing if the service stops.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Costs nothing: nobody uses the buffer any more.
        self.input.reserve(Plain::<S>::BUFFER);
        match self.poll_read(cx) {
            Poll::Pending => self.stop.poll(cx).map(|()| Ok(0)),
            read => read,
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }

    /// Ready once the client has closed its half, or the connection is broken. What it sends before its answer is kept, within bounds.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.input.len() >= Plain::<S>::BUFFER {
                return Poll::Pending;
            }
            // A request that is being answered shares the buffer, so that more room would be a new one.
            if self.input.len() == self.input.capacity() {
                self.input.reserve(Plain::<S>::BUFFER);
            }
            if !matches!(ready!(self.poll_read(cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }

    /// Takes the headers of a request that was answered, whose room the next one gets.
    pub(super) fn reuse(&mut self, headers: HeaderMap) {
        let headers = cleared(headers);
        if headers.capacity() > self.spare.capacity() {
            self.spare = headers;
        }
    }

    /// No other request is answered after the next response.
    pub(super) fn end(&mut self) {
        self.is_last = true;
    }

    /// Sends a response.
    pub(super) async fn respond<B>(&mut self, response: Response<B>) -> io::Result<After>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        self.respond_with(response, b"").await
    }

    /// Sends a response with more headers, which are written already: see [`write_field`]. None of them is in the response too.
    pub(super) async fn respond_with<B>(&mut self, response: Response<B>, lines: &[u8]) -> io::Result<After>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        self.has_answered = true;
        let (parts, mut body) = response.into_parts();
        let says_close = says(&parts.headers, CONNECTION, "close");
        let closes = says_close || self.is_last || self.stop.has_begun();
        let framing = Framing::of(parts.status, body.size_hint().exact());
        response::write_head(&mut self.output, &parts, lines, closes && !says_close, framing);
        if framing != Framing::NoBody {
            while !body.is_end_stream() {
                let Some(frame) = self.next_frame(&mut body).await? else { break };
                if let Ok(data) = frame.into_data() {
                    self.write_piece(&data, framing).await?;
                }
            }
        }
        if framing == Framing::Chunked {
            self.output.extend_from_slice(b"0\r\n\r\n");
        }
        self.flush().await?;
        if !closes {
            self.reuse(parts.headers);
            return Ok(After::Continue);
        }
        self.stream.shutdown().await?;
        Ok(After::Close)
    }

    /// The next piece of a body. What was written before is sent rather than wait with it.
    async fn next_frame<B: Body<Data = Bytes> + Unpin>(&mut self, body: &mut B) -> io::Result<Option<Frame<Bytes>>> {
        let mut poll = |cx: &mut Context<'_>| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Err(_))) => Poll::Ready(Err(Gone)),
            Poll::Ready(frame) => Poll::Ready(Ok(frame.and_then(Result::ok))),
            Poll::Pending => Poll::Pending,
        };
        let mut next = poll_fn(|cx| Poll::Ready(poll(cx))).await;
        if next.is_pending() {
            self.flush().await?;
            next = poll_fn(|cx| match poll(cx) {
                Poll::Pending => self.poll_gone(cx).map(|()| Poll::Ready(Err(Gone))),
                next => Poll::Ready(next),
            })
            .await;
        }
        let Poll::Ready(next) = next else { return Ok(None) };
        if next.is_err() {
            // What has arrived is sent; that it is not all of it shows in how the connection ends.
            self.flush().await?;
        }
        next.map_err(|Gone| io::ErrorKind::ConnectionAborted.into())
    }

    async fn write_piece(&mut self, data: &[u8], framing: Framing) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if framing == Framing::Chunked {
            response::write_chunk_size(&mut self.output, data.len());
        }
        if self.output.len() + data.len() <= Plain::<S>::COPIED {
            self.output.extend_from_slice(data);
        } else {
            self.flush().await?;
            self.stream.write_all(data).await?;
        }
        if framing == Framing::Chunked {
            self.output.extend_from_slice(b"\r\n");
        }
        self.in_a_row += data.len();
        if self.in_a_row >= Plain::<S>::TURN {
            self.in_a_row = 0;
            yield_now().await;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
            self.output.shrink_to(2 * Plain::<S>::COPIED);
        }
        self.stream.flush().await
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::Full;
    use tokio::io::duplex;
    use tokio::sync::watch;

    use super::*;

    /// Written headers come after those of the response, and what ends the connection after them.
    #[tokio::test]
    async fn written_headers_are_sent_with_those_of_the_response() {
        let (mut client, server) = duplex(8 * 1024);
        let (_keep, stopping) = watch::channel(false);
        let mut plain = Plain::new(server, Stopped::new(stopping));
        let response = || Response::builder().header("x-a", "1").body(Full::<Bytes>::from("hi")).expect("valid");
        assert_eq!(plain.respond_with(response(), b"x-b: 2\r\n").await.expect("sent"), After::Continue);
        plain.end();
        assert_eq!(plain.respond_with(response(), b"x-b: 2\r\n").await.expect("sent"), After::Close);
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.expect("answers");
        let heads: Vec<&str> = answers.split("date: ").collect();
        assert_eq!(heads[0], "HTTP/1.1 200 OK\r\nx-a: 1\r\nx-b: 2\r\ncontent-length: 2\r\n");
        let last = "HTTP/1.1 200 OK\r\nx-a: 1\r\nx-b: 2\r\nconnection: close\r\ncontent-length: 2\r\n";
        assert!(heads[1].ends_with(last), "{answers}");
    }

    /// The memory of a request's headers is used for the next one: what one client of a shared connection sends is not seen with
    /// the request of another, nor in an answer.
    #[tokio::test]
    async fn headers_of_one_request_are_not_seen_in_the_next() {
        let (mut client, server) = duplex(8 * 1024);
        let (_keep, stopping) = watch::channel(false);
        let mut plain = Plain::new(server, Stopped::new(stopping));
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-key: secret\r\nx-key: other\r\n\r\n").await.expect("sent");
        let Ok(Next::Request(mut first)) = plain.next().await else { panic!("a plain request") };
        plain.reuse(std::mem::take(first.request.headers_mut()));
        assert_eq!(plain.respond(Response::new(Full::<Bytes>::default())).await.expect("sent"), After::Continue);
        client.write_all(b"GET / HTTP/1.1\r\nhost: b\r\n\r\n").await.expect("sent");
        let Ok(Next::Request(second)) = plain.next().await else { panic!("a plain request") };
        let expected = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("b"))]);
        assert_eq!(*second.request.headers(), expected);
        let mut answer = vec![0; 1_024];
        let length = client.read(&mut answer).await.expect("an answer");
        assert!(!String::from_utf8_lossy(&answer[..length]).contains("secret"));
    }
}
