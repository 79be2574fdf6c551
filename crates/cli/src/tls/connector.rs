//! Outgoing connections, with or without TLS.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service};

use super::renewable::Renewable;
use super::stream::Stream;

/// Opens connections to one server.
#[derive(Clone, Debug)]
pub struct Connector {
    tcp: HttpConnector,
    tls: Option<(Arc<Renewable<ClientConfig>>, ServerName<'static>)>,
    /// For the connection, and again for the handshake.
    limit: Duration,
}

impl Connector {
    /// `tls` is the TLS configuration, and the name that the server's certificate must be for.
    pub fn new(tls: Option<(Arc<Renewable<ClientConfig>>, ServerName<'static>)>, limit: Duration) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limit));
        tcp.enforce_http(false);
        Connector { tcp, tls, limit }
    }

    /// Opens a connection. `wrap` goes around its socket, below TLS.
    pub async fn open<S>(&self, uri: Uri, wrap: impl FnOnce(TcpStream) -> S) -> Result<Stream<S>, BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut tcp = self.tcp.clone();
        poll_fn(|cx| tcp.poll_ready(cx)).await?;
        let socket = wrap(tcp.call(uri).await?.into_inner());
        let Some((config, name)) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let handshake = TlsConnector::from(config.current()).connect(name.clone(), socket);
        let stream = timeout(self.limit, handshake).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open(uri, |socket| socket).await.map(TokioIo::new) })
    }
}
