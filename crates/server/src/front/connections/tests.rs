//! How TLS connections start, and how connections without a valid handshake end.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::tls::{Protocol, Renewable};

const SOON: Duration = Duration::from_secs(10);

/// A front that answers every connection with these bytes and closes it.
struct Front {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

impl Front {
    async fn open(limits: Limits, answer: &'static [u8]) -> Front {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let (certificate, key) = (cert.der().clone(), signing_key.serialize_der());
        let chain = vec![certificate.clone()];
        let read = move || {
            let key = PrivateKeyDer::try_from(key.clone()).expect("a key");
            Ok(ServerConfig::builder().with_no_client_auth().with_single_cert(chain.clone(), key)?)
        };
        let certificates = Renewable::new("the test's", read).expect("certificates");
        let tcp = listen("127.0.0.1:0").await.expect("a free port");
        let address = tcp.local_addr().expect("an address");
        let listener = Listener { tls: Some(Acceptor::new(certificates, Protocol::Resp)), ..Listener::from(tcp) };
        let serve_one = move |mut accepted: Accepted| async move {
            let _ = accepted.stream.write_all(answer).await;
            let _ = accepted.stream.shutdown().await;
        };
        tokio::spawn(serve(limits, Arc::default(), listener, std::future::pending(), serve_one));
        Front { address, certificate }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a root");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(self.address).await.expect("connected");
        let name = ServerName::try_from("localhost").expect("a name");
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        timeout(SOON, handshake).await.expect("a handshake in time").expect("a handshake")
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut_off_and_gives_its_place_back() {
    let limits = Limits { connections: 1, handshake: Duration::from_millis(300), ..Limits::default() };
    let front = Front::open(limits, b"hello").await;
    // Nothing, and the start of a handshake; below, a client that keeps sending slowly.
    for beginning in [&b""[..], &[0x16, 3, 1, 0x40, 0]] {
        let mut slow = TcpStream::connect(front.address).await.expect("connected");
        slow.write_all(beginning).await.expect("sent");
        let mut fine = front.connect().await;
        let mut said = Vec::new();
        timeout(SOON, fine.read_to_end(&mut said)).await.expect("an end in time").expect("an end");
        assert_eq!(said, b"hello", "there is one place, and its holder is gone");
        timeout(SOON, slow.read_to_end(&mut Vec::new())).await.expect("its end").ok();
    }
    let mut dripping = TcpStream::connect(front.address).await.expect("connected");
    let drip = async {
        dripping.write_all(&[0x16, 3, 1, 0x40, 0]).await?;
        loop {
            dripping.write_all(&[1]).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended: Result<std::io::Result<()>, _> = timeout(SOON, drip).await;
    assert!(ended.expect("the connection ends").is_err());
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_under_tls_too() {
    const MUCH: usize = 64 << 20;
    let limits = Limits { connections: 1, idle: Duration::from_millis(300), ..Limits::default() };
    let front = Front::open(limits, vec![7; MUCH].leak()).await;
    let mut idle = front.connect().await;
    let mut next = front.connect().await;
    let mut first = [0];
    timeout(SOON, next.read_exact(&mut first)).await.expect("the place is free in time").expect("a byte");
    let mut rest = Vec::new();
    let ended = timeout(SOON, idle.read_to_end(&mut rest)).await.expect("its end");
    assert!(ended.is_err() && rest.len() < MUCH, "the client can tell that the answer is incomplete");
}
