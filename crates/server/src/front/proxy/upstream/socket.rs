//! The socket of a connection to the upstream.
//!
//! A socket is registered with the runtime of one thread, which learns when it can be read or written. An idle one can move on to
//! another thread, where it is registered again.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What a connection and its socket, which is buried below HTTP and TLS, tell each other. Both are with the same thread.
#[derive(Debug, Default)]
pub(super) struct Control {
    is_moving: AtomicBool,
    is_doubted: AtomicBool,
    is_blocked: AtomicBool,
}

impl Control {
    /// Lets the socket move to the runtime in which it is used next.
    pub(super) fn move_on(&self) {
        self.is_moving.store(true, Relaxed);
    }

    /// Lets an idle socket fail when it is used next, if the upstream has closed it or sent anything. A runtime learns that only
    /// when it is not busy.
    pub(super) fn doubt(&self) {
        self.is_doubted.store(true, Relaxed);
    }

    /// Whether something waits to be written.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Relaxed)
    }
}

/// A socket that can change its thread.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` once it is of no use.
    stream: Option<TcpStream>,
    control: Arc<Control>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, control: Arc<Control>) -> Socket {
        Socket { stream: Some(stream), control }
    }

    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if self.control.is_doubted.load(Relaxed) {
            self.control.is_doubted.store(false, Relaxed);
            self.stream = self.stream.take().map(silent).transpose()?;
        }
        if self.control.is_moving.load(Relaxed) {
            self.control.is_moving.store(false, Relaxed);
            self.stream = self.stream.take().map(register_here).transpose()?;
        }
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn poll_write_with(
        &mut self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = write(self.here()?);
        self.control.is_blocked.store(written.is_pending(), Relaxed);
        written
    }
}

/// The socket, if nothing has arrived, not even its end.
fn silent(stream: TcpStream) -> io::Result<TcpStream> {
    match SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(stream),
        Err(error) => Err(error),
        Ok(_) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Registers a socket with the current runtime.
fn register_here(stream: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(stream.into_std()?)
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::TcpListener;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// Registered with a runtime that is gone, so that only a new registration can wake it.
    struct Orphan {
        socket: Socket,
        control: Arc<Control>,
        /// The same socket, to see what has arrived.
        same: std::net::TcpStream,
        peer: std::net::TcpStream,
    }

    fn orphan() -> Orphan {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        let (same, (peer, _)) = (stream.try_clone().expect("a socket"), listener.accept().expect("a connection"));
        let control = Arc::<Control>::default();
        let stream = runtime().block_on(async { TcpStream::from_std(stream) }).expect("registered");
        Orphan { socket: Socket::new(stream, control.clone()), control, same, peer }
    }

    #[test]
    fn it_goes_on_in_another_runtime() {
        let Orphan { mut socket, control, mut peer, .. } = orphan();
        control.doubt();
        control.move_on();
        runtime().block_on(async {
            // The peer answers only once this has waited.
            let mut first = [0; 5];
            let waiting = poll_fn(|cx| {
                let mut buf = ReadBuf::new(&mut first);
                Poll::Ready(Pin::new(&mut socket).poll_read(cx, &mut buf).is_pending())
            });
            assert!(waiting.await);
            socket.write_all(b"hello").await.expect("written");
            let answering = std::thread::spawn(move || {
                io::Read::read_exact(&mut peer, &mut first).expect("read");
                io::Write::write_all(&mut peer, &first).expect("written");
            });
            let mut answer = [0; 5];
            socket.read_exact(&mut answer).await.expect("an answer");
            assert_eq!(&answer, b"hello");
            answering.join().expect("no panic");
        });
    }

    #[test]
    fn one_that_was_closed_or_has_something_to_say_fails_before_anything_is_written() {
        let close = |peer: std::net::TcpStream| drop(peer);
        let speak = |mut peer: std::net::TcpStream| {
            io::Write::write_all(&mut peer, b"HTTP/1.1 408 Request Timeout\r\n\r\n").expect("written");
        };
        for act in [close, speak] {
            let Orphan { mut socket, control, same, peer } = orphan();
            act(peer);
            while same.peek(&mut [0]).is_err() {
                std::thread::yield_now();
            }
            control.doubt();
            control.move_on();
            runtime().block_on(socket.write_all(b"POST")).expect_err("it is of no use");
            runtime().block_on(socket.write_all(b"POST")).expect_err("for good");
        }
    }

    #[test]
    fn a_peer_that_does_not_read_blocks_it() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
            let control = Arc::<Control>::default();
            let mut socket = Socket::new(stream, control.clone());
            let piece = vec![0; 1 << 20];
            while poll_fn(|cx| Poll::Ready(Pin::new(&mut socket).poll_write(cx, &piece).is_ready())).await {}
            assert!(control.is_blocked());
        });
    }
}
