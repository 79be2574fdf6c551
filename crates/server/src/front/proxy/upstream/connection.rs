//! A connection to the upstream, run by whoever waits for its answer: the request first, then the body of the response.
//!
//! In a task of its own, as is usual with hyper, a connection has to be woken for every request and to wake its task for
//! every answer, and often that runs on another thread. Here both are one task. Nobody runs an idle connection, so it is
//! found out when it is taken that the upstream has closed it.
//!
//! An idle connection is just a socket. Who takes it chooses who speaks HTTP on it: hyper, which can do everything, or
//! [`Exchange`], which is quicker.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::super::upload::Upload;
use super::exchange::{Exchange, Left};
use super::socket::{Control, Socket};
use crate::front::alarm::Alarm;
use crate::tls::Stream;

/// A connection over HTTP/1.
#[derive(Debug)]
pub(super) struct Connection {
    speaker: Speaker,
    /// For the answer; kept, so that it is not set again for every request.
    alarm: Alarm,
    control: Arc<Control>,
}

/// Who reads and writes.
#[derive(Debug)]
enum Speaker {
    Exchange(Exchange<Stream<Socket>>),
    Hyper(Box<Hyper>),
    /// Nobody: the connection has ended.
    Nobody,
}

#[derive(Debug)]
struct Hyper {
    requests: SendRequest<Upload>,
    work: Work,
}

/// What reads and writes.
#[expect(clippy::large_enum_variant, reason = "both are in the same box")]
enum Work {
    /// The connection can be used again afterwards.
    Http(http1::Connection<TokioIo<Stream<Socket>>, Upload>),
    /// It may become something else.
    Upgradable(Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>),
}

/// What a connection is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Http,
    /// A WebSocket may come of it.
    Upgrade,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: hyper::Error,
    /// The request, if none of it was sent.
    pub(super) unsent: Option<Box<Request<Upload>>>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Work::Http(_) => "Http",
            Work::Upgradable(_) => "Upgradable",
        })
    }
}

impl Work {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Work::Http(work) => Pin::new(work).poll(cx),
            Work::Upgradable(work) => work.as_mut().poll(cx),
        }
    }
}

impl Connection {
    /// `control` is of its socket.
    pub(super) fn new(stream: Stream<Socket>, control: Arc<Control>) -> Connection {
        Connection { speaker: Speaker::Exchange(Exchange::new(stream)), alarm: Alarm::default(), control }
    }

    /// From now on it is run in the current runtime. To be called while it is idle.
    pub(super) fn move_here(&mut self) {
        // The current runtime has yet to learn what has arrived.
        self.control.doubt();
        self.control.move_on();
        // Its timer stays behind.
        self.alarm = Alarm::default();
    }

    /// Looks closely, when it is used next, whether it is still open. To be called while it is idle.
    pub(super) fn doubt(&self) {
        self.control.doubt();
    }

    /// Whether an idle connection is still open. If the upstream has closed it, or said something unasked, this is where it is
    /// noticed.
    pub(super) fn is_open(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.speaker {
            Speaker::Exchange(exchange) => exchange.is_silent(cx),
            Speaker::Hyper(_) | Speaker::Nobody => false,
        }
    }

    /// Lets hyper speak from now on. To be called while it is idle.
    pub(super) async fn let_hyper_speak(&mut self, purpose: Purpose) -> hyper::Result<()> {
        let Speaker::Exchange(exchange) = std::mem::replace(&mut self.speaker, Speaker::Nobody) else { return Ok(()) };
        let (requests, work) = Builder::new().handshake(TokioIo::new(exchange.into_stream())).await?;
        let work = match purpose {
            Purpose::Http => Work::Http(work),
            Purpose::Upgrade => Work::Upgradable(Box::pin(work.with_upgrades())),
        };
        self.speaker = Speaker::Hyper(Box::new(Hyper { requests, work }));
        Ok(())
    }

    /// Sends a request by hyper. The answer comes only while [`Connection::work`] is called. `None` if hyper does not speak here.
    pub(super) fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Option<impl Future<Output = Result<Response<Incoming>, Unanswered>> + use<>> {
        let Speaker::Hyper(hyper) = &mut self.speaker else { return None };
        let answer = hyper.requests.try_send_request(request);
        Some(async move {
            answer.await.map_err(|mut failed| {
                let unsent = failed.take_message().map(Box::new);
                Unanswered { error: failed.into_error(), unsent }
            })
        })
    }

    /// Lets hyper read and write as much as is possible now. Whoever waits for a request or a body learns of errors there.
    pub(super) fn work(&mut self, cx: &mut Context<'_>) {
        if let Speaker::Hyper(hyper) = &mut self.speaker
            && hyper.work.poll(cx).is_ready()
        {
            self.speaker = Speaker::Nobody;
        }
    }

    /// Sends a request that has no body, and waits for the head of its response.
    pub(super) fn poll_exchange(
        &mut self,
        request: &mut &[u8],
        spare: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Response<()>>> {
        match &mut self.speaker {
            Speaker::Exchange(exchange) => exchange.poll_head(request, spare, cx),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The next piece of the body after [`Connection::poll_exchange`].
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        match &mut self.speaker {
            Speaker::Exchange(exchange) => exchange.poll_piece(cx),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// How much of that body is left.
    pub(super) fn left(&self) -> Left {
        match &self.speaker {
            Speaker::Exchange(exchange) => exchange.left(),
            _ => Left::Unknown,
        }
    }

    /// Ready if the answer is late.
    pub(super) fn poll_late(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(due, cx)
    }

    /// Whether it can take another request: the last one was sent, and its response read, to the end.
    pub(super) fn become_idle(&mut self) -> bool {
        if let Speaker::Exchange(exchange) = &self.speaker {
            return exchange.is_idle();
        }
        if !self.is_quiet() {
            // It may only have to notice that the last one has ended. Nobody is to be woken for it.
            self.work(&mut Context::from_waker(Waker::noop()));
        }
        if !self.is_quiet() {
            return false;
        }
        let Speaker::Hyper(hyper) = std::mem::replace(&mut self.speaker, Speaker::Nobody) else { return false };
        let Work::Http(work) = hyper.work else { return false };
        let http1::Parts { io, read_buf, .. } = work.into_parts();
        self.speaker = Speaker::Exchange(Exchange::new(io.into_inner()));
        // What came unasked is no answer to the next request.
        read_buf.is_empty()
    }

    /// hyper wants a request once both messages have ended, even if some of the last one waits to be written.
    fn is_quiet(&self) -> bool {
        matches!(&self.speaker, Speaker::Hyper(hyper) if hyper.requests.is_ready()) && !self.control.is_blocked()
    }

    /// From now on it runs in a task of its own, until its request has ended.
    pub(super) fn detach(self) {
        if let Speaker::Hyper(hyper) = self.speaker {
            match hyper.work {
                Work::Http(work) => drop(tokio::spawn(work)),
                Work::Upgradable(work) => drop(tokio::spawn(work)),
            }
        }
    }
}
