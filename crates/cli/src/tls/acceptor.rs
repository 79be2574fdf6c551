//! The start of a client's connection: plain text is refused, then the TLS handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::certificate;
use super::renewable::Renewable;

/// The protocol inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// HTTP/2 only.
    Grpc,
    /// The Redis protocol.
    Resp,
}

impl Protocol {
    /// The protocols to negotiate (ALPN); a client that names none may use any.
    fn choices(self) -> Vec<Vec<u8>> {
        match self {
            Protocol::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
            Protocol::Resp => Vec::new(),
        }
    }

    /// The answer to a client without TLS, in its own protocol, so that it shows the reason.
    fn farewell(self) -> &'static [u8] {
        match self {
            Protocol::Http => {
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 40\r\nconnection: close\r\n\r\n\
                  this port speaks TLS; begin with https:\n"
            }
            Protocol::Grpc => b"",
            Protocol::Resp => b"-ERR this port speaks TLS; connect with TLS, as redis-cli --tls does\r\n",
        }
    }
}

/// Starts TLS on connections.
#[derive(Clone, Debug)]
pub struct Acceptor {
    certificates: Arc<Renewable<ServerConfig>>,
    protocol: Protocol,
}

impl Acceptor {
    pub fn new(certificates: Arc<Renewable<ServerConfig>>, protocol: Protocol) -> Acceptor {
        Acceptor { certificates, protocol }
    }

    /// Ends a connection that does not start with TLS, with an error that its client understands.
    pub async fn refuse_plain_text(&self, stream: &mut TcpStream) -> io::Result<()> {
        /// The first byte of every TLS connection.
        const HANDSHAKE: u8 = 0x16;
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] == HANDSHAKE {
            return Ok(());
        }
        stream.write_all(self.protocol.farewell()).await?;
        part(stream).await;
        Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"))
    }

    /// The handshake, with the current certificates.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        // A few pointers are copied, which is cheap compared to a handshake.
        let mut config = ServerConfig::clone(&self.certificates.current());
        config.alpn_protocols = self.protocol.choices();
        match TlsAcceptor::from(Arc::new(config)).accept(stream).into_fallible().await {
            Ok(stream) => Ok(stream.into()),
            Err((error, mut stream)) => {
                part(&mut stream).await;
                Err(error)
            }
        }
    }
}

/// Ends a connection so that the last message arrives: a client may have sent its request already, and closing with
/// unread input would discard the reason for the refusal (the kernel resets the connection).
async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    const MOMENT: Duration = Duration::from_millis(200);
    const MOST: u64 = 64 * 1024;
    let unread = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MOST), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(MOMENT, unread).await;
}

/// The attribute with the [`client_name`]: no client can choose it.
pub const CLIENT_ATTRIBUTE: &str = "tls.client";

/// The name in the peer's certificate: the first DNS name or URI, otherwise its common name. Present only if
/// certificates are required, and then it was verified.
pub fn client_name<S>(stream: &TlsStream<S>) -> Option<Arc<str>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    certificate::name_in(certificate).map(Arc::from)
}
