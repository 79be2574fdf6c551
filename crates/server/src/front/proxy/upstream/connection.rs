//! A connection to the upstream, run by whoever waits for its answer: the request first, then the body of the response.
//!
//! In a task of its own, as is usual with hyper, a connection has to be woken for every request and to wake its task for
//! every answer, and often that runs on another thread. Here both are one task. Nobody runs an idle connection, so it is
//! found out when it is taken that the upstream has closed it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::super::upload::Upload;
use super::socket::{Control, Socket};
use crate::front::alarm::Alarm;
use crate::tls::Stream;

/// A connection over HTTP/1.
pub(super) struct Connection {
    requests: SendRequest<Upload>,
    /// What reads and writes; `None` once it has ended.
    work: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    /// For the answer; kept, so that it is not set again for every request.
    alarm: Alarm,
    control: Arc<Control>,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: hyper::Error,
    /// The request, if none of it was sent.
    pub(super) unsent: Option<Box<Request<Upload>>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("ended", &self.work.is_none()).finish_non_exhaustive()
    }
}

impl Connection {
    /// `control` is of its socket.
    pub(super) async fn new(stream: Stream<Socket>, control: Arc<Control>) -> hyper::Result<Connection> {
        let (requests, work) = Builder::new().handshake(TokioIo::new(stream)).await?;
        Ok(Connection { requests, work: Some(Box::pin(work.with_upgrades())), alarm: Alarm::default(), control })
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

    /// Sends a request. The answer comes only while [`Connection::work`] is called.
    pub(super) fn send(
        &mut self,
        request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, Unanswered>> + use<> {
        let answer = self.requests.try_send_request(request);
        async move {
            answer.await.map_err(|mut failed| {
                let unsent = failed.take_message().map(Box::new);
                Unanswered { error: failed.into_error(), unsent }
            })
        }
    }

    /// Reads and writes as much as is possible now. Whoever waits for a request or a body learns of errors there.
    pub(super) fn work(&mut self, cx: &mut Context<'_>) {
        if self.work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            self.work = None;
        }
    }

    /// Ready if the answer is late.
    pub(super) fn poll_late(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(due, cx)
    }

    /// Whether it can take another request: the last one was sent, and its response read, to the end.
    pub(super) fn is_ready(&mut self) -> bool {
        if self.work.is_some() && !self.is_quiet() {
            // It may only have to notice that the last one has ended. Nobody is to be woken for it.
            self.work(&mut Context::from_waker(Waker::noop()));
        }
        self.work.is_some() && self.is_quiet()
    }

    /// hyper wants a request once both messages have ended, even if some of the last one waits to be written.
    fn is_quiet(&self) -> bool {
        self.requests.is_ready() && !self.control.is_blocked()
    }

    /// From now on it runs in a task of its own, until its request has ended.
    pub(super) fn detach(self) {
        if let Some(work) = self.work {
            tokio::spawn(work);
        }
    }
}
