//! A server that speaks TLS only, with certificates made for it.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::{Folder, Kind, Launch, Server};

/// Whether clients must show a certificate too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    NotAsked,
    Required,
}

/// Its certificate is for 127.0.0.1 and localhost, from an authority of its own that no trust store knows.
pub struct TlsServer {
    pub server: Server,
    folder: Folder,
}

impl TlsServer {
    pub fn start(clients: ClientCertificates) -> TlsServer {
        let folder = Folder::new();
        make_certificates(&folder);
        let path = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
        let read = |name: &str| std::fs::read(path(name)).unwrap();
        let client = redis::ClientTlsConfig { client_cert: read("client.pem"), client_key: read("client.key") };
        let certificates = redis::TlsCertificates {
            client_tls: (clients == ClientCertificates::Required).then_some(client),
            root_cert: Some(read("ca.pem")),
        };
        let server = Server::launch(|port| {
            let options = [
                ("--port", "0".to_string()),
                ("--tls-port", port.to_string()),
                ("--tls-ca-cert-file", path("ca.pem")),
                ("--tls-cert-file", path("server.pem")),
                ("--tls-key-file", path("server.key")),
                ("--tls-auth-clients", if clients == ClientCertificates::Required { "yes" } else { "no" }.into()),
            ];
            let options = options.into_iter().flat_map(|(name, value)| [name.to_string(), value]);
            Launch { certificates: Some(certificates.clone()), ..Launch::new(Kind::Redis7, options) }
        });
        TlsServer { server, folder }
    }

    /// `rediss://127.0.0.1:port/`
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The file with the authority's certificate.
    pub fn ca_pem(&self) -> PathBuf {
        self.folder.0.join("ca.pem")
    }

    /// The file with a certificate that the server accepts from clients.
    pub fn client_pem(&self) -> PathBuf {
        self.folder.0.join("client.pem")
    }

    /// The file with the key of that certificate.
    pub fn client_key(&self) -> PathBuf {
        self.folder.0.join("client.key")
    }
}

fn make_certificates(folder: &Folder) {
    let write = |name: &str, pem: String| std::fs::write(folder.0.join(name), pem).unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    write("ca.pem", authority.self_signed(&key).unwrap().pem());
    let authority = Issuer::new(authority, key);

    let leaves = [
        ("server", vec!["127.0.0.1", "localhost"], ExtendedKeyUsagePurpose::ServerAuth),
        ("client", vec!["client"], ExtendedKeyUsagePurpose::ClientAuth),
    ];
    for (name, hosts, purpose) in leaves {
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(hosts.into_iter().map(String::from).collect::<Vec<_>>()).unwrap();
        // An authority and a leaf of one name look like one self-signed certificate to OpenSSL.
        leaf.distinguished_name.push(rcgen::DnType::CommonName, name);
        leaf.extended_key_usages = vec![purpose];
        write(&format!("{name}.pem"), leaf.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}
