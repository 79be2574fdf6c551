//! An upstream behind TLS: it records the handshake, and passes the rest to the plain upstream of the proxy's tests.

use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use tollkeeper_testkit::{Authority, Pair};

use super::peer::{chain, key, roots};
use crate::proxy::world::Upstream;

/// What a connection asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Handshake {
    pub(crate) server_name: Option<String>,
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) has_certificate: bool,
}

pub(crate) struct TlsUpstream {
    pub(crate) port: u16,
    pub(crate) plain: Upstream,
    handshakes: Arc<Mutex<Vec<Handshake>>>,
}

impl TlsUpstream {
    /// With this certificate; it requires one of `clients`, if given.
    pub(crate) async fn start(plain: Upstream, pair: &Pair, clients: Option<&Authority>) -> TlsUpstream {
        let builder = match clients {
            Some(authority) => {
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots(authority))).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain(&pair.cert), key(&pair.key)).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = TlsUpstream { port, plain, handshakes: Arc::default() };
        let (address, handshakes) = (upstream.plain.address, upstream.handshakes.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handshakes) = (acceptor.clone(), handshakes.clone());
                tokio::spawn(async move {
                    let Ok(client) = acceptor.accept(stream).await else { return };
                    let session = client.get_ref().1;
                    handshakes.lock().unwrap().push(Handshake {
                        server_name: session.server_name().map(str::to_string),
                        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
                        has_certificate: session.peer_certificates().is_some(),
                    });
                    let mut plain = TcpStream::connect(address).await.unwrap();
                    let (mut from_client, mut to_client) = tokio::io::split(client);
                    let (mut from_plain, mut to_plain) = plain.split();
                    // It just closes at the end, without TLS's close_notify, as many servers do.
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_client, &mut to_plain) => {}
                        _ = tokio::io::copy(&mut from_plain, &mut to_client) => {}
                    }
                });
            }
        });
        upstream
    }

    pub(crate) fn handshakes(&self) -> Vec<Handshake> {
        self.handshakes.lock().unwrap().clone()
    }
}
