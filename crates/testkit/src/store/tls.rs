//! A server with TLS only, and the certificates for it.

use super::server::{Kind, Launch, Server};
use crate::{Authority, Pair};

/// Whether clients must present a certificate too.
#[allow(missing_docs)] // Their names say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    NotAsked,
    Required,
}

/// Its certificate is for 127.0.0.1 and localhost, from an authority of its own that no trust store knows.
pub struct TlsServer {
    server: Server,
    /// The authority of both certificates.
    pub authority: Authority,
    /// A certificate that it accepts from clients.
    pub client: Pair,
}

impl TlsServer {
    /// An empty one.
    pub fn start(clients: ClientCertificates) -> TlsServer {
        let authority = Authority::new();
        let (own, client) = (authority.server(), authority.client("client"));
        let read = |path: &str| std::fs::read(path).unwrap();
        let shown = redis::ClientTlsConfig { client_cert: read(&client.cert), client_key: read(&client.key) };
        let certificates = redis::TlsCertificates {
            client_tls: (clients == ClientCertificates::Required).then_some(shown),
            root_cert: Some(read(&authority.pem)),
        };
        let server = Server::launch(|port| {
            let options = [
                ("--port", "0".to_string()),
                ("--tls-port", port.to_string()),
                ("--tls-ca-cert-file", authority.pem.clone()),
                ("--tls-cert-file", own.cert.clone()),
                ("--tls-key-file", own.key.clone()),
                ("--tls-auth-clients", if clients == ClientCertificates::Required { "yes" } else { "no" }.into()),
            ];
            let options = options.into_iter().flat_map(|(name, value)| [name.to_string(), value]);
            Launch { certificates: Some(certificates.clone()), ..Launch::new(Kind::Redis7, options) }
        });
        TlsServer { server, authority, client }
    }

    /// `rediss://127.0.0.1:port/`
    pub fn url(&self) -> String {
        self.server.url()
    }
}
