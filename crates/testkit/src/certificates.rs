//! Certificates made for one test, as files.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use crate::file;

/// A certificate authority that no trust store knows.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The file with its certificate.
    pub pem: String,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The file with the certificate.
    pub cert: String,
    /// The file with its private key.
    pub key: String,
}

impl Authority {
    /// A new authority with a unique name.
    #[allow(clippy::new_without_default)] // An authority is made on purpose.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        // If two authorities have the same name, only the signature shows which is wrong, and that is another error.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", COUNT.fetch_add(1, Relaxed)));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = file(&params.self_signed(&key).unwrap().pem(), "pem");
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A server certificate for 127.0.0.1 and localhost.
    pub fn server(&self) -> Pair {
        self.server_for(&["127.0.0.1", "localhost"])
    }

    /// A server certificate for these hosts.
    pub fn server_for(&self, hosts: &[&str]) -> Pair {
        self.issue("server", hosts, ExtendedKeyUsagePurpose::ServerAuth, 2099)
    }

    /// A client certificate with a common name only.
    pub fn client(&self, name: &str) -> Pair {
        self.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth, 2099)
    }

    /// A client certificate with a common name and an alternative name.
    pub fn client_for(&self, common: &str, host: &str) -> Pair {
        self.issue(common, &[host], ExtendedKeyUsagePurpose::ClientAuth, 2099)
    }

    /// A client certificate that has expired.
    pub fn expired_client(&self) -> Pair {
        self.issue("late", &[], ExtendedKeyUsagePurpose::ClientAuth, 2001)
    }

    /// A server certificate that has expired.
    pub fn expired_server(&self) -> Pair {
        self.issue("server", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth, 2001)
    }

    fn issue(&self, name: &str, hosts: &[&str], purpose: ExtendedKeyUsagePurpose, until: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Pair { cert: file(&cert.pem(), "pem"), key: file(&key.serialize_pem(), "key") }
    }
}

impl Pair {
    /// Writes another certificate and key into the same files.
    pub fn replace(&self, with: &Pair) {
        std::fs::copy(&with.cert, &self.cert).unwrap();
        std::fs::copy(&with.key, &self.key).unwrap();
    }

    /// The flags for `tollkeeper` to serve with it.
    pub fn flags(&self) -> Vec<&str> {
        vec!["--tls-cert", &self.cert, "--tls-key", &self.key]
    }

    /// The same, requiring client certificates of this authority.
    pub fn flags_for<'a>(&'a self, clients: &'a Authority) -> Vec<&'a str> {
        [self.flags(), vec!["--tls-client-ca", &clients.pem]].concat()
    }
}
