//! The body of a response, on its way to the client.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::task::yield_now;
use tokio::time::Instant;
use tollkeeper::Permit;

use super::estimate::Estimate;
use super::paced::{Error, Paced, Piece};
use super::upstream::{Left, Taken};
use crate::front::connections::{InFlight, UnderWay};

/// What a request holds until its response has ended.
pub(super) type Occupied = (Permit, UnderWay, Arc<InFlight>);

/// The body of a response. Slots of `concurrency` rules are released when it has ended or is dropped.
#[derive(Debug)]
pub(super) struct Download {
    source: Source,
    occupied: Option<Occupied>,
    /// The estimate, if the response's head did not settle it and its trailers may.
    estimate: Option<Estimate>,
    /// Why it ends early.
    failure: Option<Error>,
    /// How many bytes came without a pause.
    in_a_row: usize,
}

/// Where it comes from.
#[derive(Debug)]
enum Source {
    /// hyper reads it, from a connection unless that runs in a task of its own.
    Hyper { body: Paced, connection: Option<Taken> },
    /// It is read here.
    Own(Box<Arriving>),
}

/// A body that is read from a connection without hyper.
#[derive(Debug)]
struct Arriving {
    /// `None` once all of it has arrived.
    connection: Option<Taken>,
    idle: Duration,
    /// Since when nothing has come.
    since: Option<Instant>,
}

impl Arriving {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        let piece = match connection.poll_piece(cx) {
            Poll::Pending => {
                let due = *self.since.get_or_insert_with(Instant::now) + self.idle;
                ready!(connection.poll_late(due, cx));
                Err(io::ErrorKind::TimedOut.into())
            }
            Poll::Ready(piece) => piece,
        };
        self.since = None;
        if connection.left() == Left::Nothing || piece.is_err() {
            // The connection can be used again, however slowly the client takes the rest.
            self.connection = None;
        }
        Poll::Ready(piece.map_err(Error::from).transpose())
    }

    fn left(&self) -> Left {
        self.connection.as_ref().map_or(Left::Nothing, Taken::left)
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Piece {
        let (body, connection) = match self {
            Source::Hyper { body, connection } => (body, connection),
            Source::Own(arriving) => {
                return arriving.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)));
            }
        };
        let mut piece = body.poll_arrived(cx);
        // Nobody else reads from the connection.
        if piece.is_pending()
            && let Some(connection) = connection
        {
            connection.work(cx);
            piece = body.poll_arrived(cx);
        }
        if piece.is_pending() {
            piece = body.wait(cx);
        }
        if body.body.is_end_stream() || matches!(piece, Poll::Ready(None | Some(Err(_)))) {
            // All of it has arrived: the connection can be used again, however slowly the client takes it.
            drop(connection.take());
        }
        piece
    }
}

impl Download {
    /// After so many bytes in a row it is the turn of others: where both sides are fast, a large body would keep the thread, with all
    /// its connections, to itself.
    const TURN: usize = 256 * 1024;

    pub(super) fn new(
        body: Incoming,
        connection: Option<Taken>,
        idle: Duration,
        occupied: Occupied,
        estimate: Option<Estimate>,
    ) -> Download {
        let source = Source::Hyper { body: Paced::new(body, idle), connection };
        Download { source, occupied: Some(occupied), estimate, failure: None, in_a_row: 0 }
    }

    /// The body of a response that was fetched without hyper.
    pub(super) fn fetched(connection: Taken, idle: Duration, occupied: Occupied) -> Download {
        // One without a body is over already.
        let connection = Some(connection).filter(|connection| connection.left() != Left::Nothing);
        let source = Source::Own(Box::new(Arriving { connection, idle, since: None }));
        Download { source, occupied: Some(occupied), estimate: None, failure: None, in_a_row: 0 }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let Download { source, occupied, estimate, failure, in_a_row } = &mut *self;
        if *in_a_row >= Download::TURN {
            *in_a_row = 0;
            // Pending the first time: this task is woken once the thread has seen who else has something to do.
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        if let Some(failure) = failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let piece = source.poll_frame(cx);
        *in_a_row = match &piece {
            Poll::Ready(Some(Ok(frame))) => *in_a_row + frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if let Poll::Ready(Some(Ok(frame))) = &piece
            && let Some(trailers) = frame.trailers_ref()
        {
            *estimate = estimate.take().and_then(|estimate| estimate.settle_by(trailers));
        }
        if let Poll::Ready(None | Some(Err(_))) = piece {
            // The response has ended, though the server may keep the body for a while.
            drop(occupied.take());
        }
        if let Poll::Ready(Some(Err(error))) = piece {
            // The head and what came before may not have been sent yet, and would be lost with the connection.
            *failure = Some(error);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Hyper { body, .. } => body.body.is_end_stream(),
            Source::Own(arriving) => arriving.connection.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Hyper { body, .. } => body.body.size_hint(),
            Source::Own(arriving) => match arriving.left() {
                Left::Nothing => SizeHint::with_exact(0),
                Left::Exactly(left) => SizeHint::with_exact(left),
                Left::Unknown => SizeHint::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use http::Request;

    use super::super::upload::{Pace, Upload};
    use super::super::upstream::{Timeouts, Upstream, parse_upstream};
    use super::*;
    use crate::metrics::Proxied;

    /// A fast upstream and a fast client kept a thread busy for hundreds of milliseconds, in which it served no other connection.
    #[tokio::test]
    async fn others_have_their_turn_during_a_large_body() {
        const LENGTH: usize = 16 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("a connection").0;
            let head = BufReader::new(stream.try_clone().expect("a socket")).lines();
            assert!(head.map_while(Result::ok).any(|line| line.is_empty()), "a request");
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n").expect("written");
            stream.write_all(&vec![0; LENGTH]).expect("written");
        });
        let long = Duration::from_secs(60);
        let timeouts = Timeouts { connect: long, response: long, idle: long, upload: Pace { rate: 0, longest: long } };
        let upstream = Upstream::new(parse_upstream(&format!("http://{address}")).expect("valid"), None, timeouts, 1);
        let answered = upstream.send(0, Request::new(Upload::empty()), &Proxied::default()).await.expect("a response");
        let (body, connection) = (Paced::new(answered.response.into_body(), long), answered.connection);
        let source = Source::Hyper { body, connection };
        let mut download = Download { source, occupied: None, estimate: None, failure: None, in_a_row: 0 };
        let (mut all, mut in_a_row, mut most) = (0, 0, 0);
        let next = |download: &mut Download, in_a_row: &mut usize, cx: &mut Context<'_>| {
            let piece = Pin::new(download).poll_frame(cx);
            if piece.is_pending() {
                *in_a_row = 0;
            }
            piece
        };
        while let Some(piece) = poll_fn(|cx| next(&mut download, &mut in_a_row, cx)).await {
            let length = piece.expect("a piece").data_ref().map_or(0, Bytes::len);
            (all, in_a_row) = (all + length, in_a_row + length);
            most = most.max(in_a_row);
        }
        assert_eq!(all, LENGTH);
        assert!(most <= Download::TURN + 512 * 1024, "{most} bytes without a pause");
        serving.join().expect("no panic");
    }
}
