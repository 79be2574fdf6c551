//! How a client's connection begins.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::certificate;
use super::renewable::Renewable;

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// HTTP/2 alone.
    Grpc,
    /// The Redis protocol.
    Resp,
}

impl Protocol {
    /// What a client may choose from; those who name nothing may speak what they like.
    fn choices(self) -> Vec<Vec<u8>> {
        match self {
            Protocol::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
            Protocol::Resp => Vec::new(),
        }
    }

    /// What somebody is told who does not speak TLS, in words that their side shows.
    fn farewell(self) -> &'static [u8] {
        match self {
            Protocol::Http => {
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 40\r\nconnection: close\r\n\r\n\
                  this port speaks TLS; begin with https:\n"
            }
            Protocol::Grpc => b"",
            Protocol::Resp => b"-ERR this port speaks TLS; connect with it, as redis-cli --tls does\r\n",
        }
    }
}

/// Begins TLS on connections.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    certificates: Arc<Renewable<ServerConfig>>,
    protocol: Protocol,
}

impl Acceptor {
    pub(crate) fn new(certificates: Arc<Renewable<ServerConfig>>, protocol: Protocol) -> Acceptor {
        Acceptor { certificates, protocol }
    }

    /// Ends a connection on which something else than TLS comes, with a word that its client understands.
    pub(crate) async fn refuse_plain_text(&self, stream: &mut TcpStream) -> io::Result<()> {
        /// With which every connection begins.
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

    /// The handshake, with the certificates of now.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        // A few pointers are copied, which is nothing beside a handshake.
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

/// Ends a connection so that the last word on it arrives: a client may have sent its request already, and closing with
/// that unread would take back why it was refused (the kernel resets the connection).
async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    const MOMENT: Duration = Duration::from_millis(200);
    const MOST: u64 = 64 * 1024;
    let unread = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MOST), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(MOMENT, unread).await;
}

/// The attribute that [`client_name`] fills: no client can choose it.
pub(crate) const CLIENT_ATTRIBUTE: &str = "tls.client";

/// What the certificate of the other side calls it: the first DNS name or URI, else its common name. It is there only
/// where certificates are required, and then it was verified.
pub(crate) fn client_name<S>(stream: &TlsStream<S>) -> Option<Arc<str>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    certificate::name_in(certificate).map(Arc::from)
}
