//! A raw connection with TLS.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use tollkeeper_testkit::http::header;
use tollkeeper_testkit::{Authority, Pair};

use crate::proxy::world::SOON;

pub(crate) fn chain(path: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn key(path: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(path).unwrap()
}

pub(crate) fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    chain(&authority.pem).into_iter().for_each(|certificate| roots.add(certificate).unwrap());
    roots
}

/// A connection to a server with a certificate of this authority.
pub(crate) async fn connect(address: &str, authority: &Authority, shown: Option<&Pair>) -> TlsStream<TcpStream> {
    let builder = ClientConfig::builder().with_root_certificates(roots(authority));
    let config = match shown {
        Some(pair) => builder.with_client_auth_cert(chain(&pair.cert), key(&pair.key)).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// The certificate that the peer presented.
pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// Sends a request on a keep-alive connection, and returns the status.
pub(crate) async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n").as_bytes()).await.unwrap();
    let head = read_until(stream, "\r\n\r\n").await;
    let length: usize = header(&head, "content-length").unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    head.split(' ').nth(1).unwrap().to_string()
}

pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.ends_with(end.as_bytes()) {
            bytes.push(stream.read_u8().await.unwrap());
        }
    };
    let in_time = tokio::time::timeout(SOON, reading).await.is_ok();
    let text = String::from_utf8_lossy(&bytes).to_string();
    assert!(in_time, "{end:?} did not come, only {text:?}");
    text
}
