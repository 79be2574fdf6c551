//! Certificates, made for one test.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use super::running::file;

/// Somebody who vouches for others.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The file with its certificate.
    pub(crate) pem: String,
}

/// A certificate and its key, as files.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::default();
        // Of two that have one name, the wrong one is found by its signature only, and that is another refusal.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", COUNT.fetch_add(1, Relaxed)));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = file(&params.self_signed(&key).unwrap().pem(), "pem");
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// For 127.0.0.1 and localhost.
    pub(crate) fn server(&self) -> Pair {
        self.server_for(&["127.0.0.1", "localhost"])
    }

    pub(crate) fn server_for(&self, hosts: &[&str]) -> Pair {
        self.issue("server", hosts, ExtendedKeyUsagePurpose::ServerAuth, 2099)
    }

    /// One whose common name is all that it says.
    pub(crate) fn client(&self, name: &str) -> Pair {
        self.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth, 2099)
    }

    pub(crate) fn client_for(&self, common: &str, host: &str) -> Pair {
        self.issue(common, &[host], ExtendedKeyUsagePurpose::ClientAuth, 2099)
    }

    pub(crate) fn expired_client(&self) -> Pair {
        self.issue("late", &[], ExtendedKeyUsagePurpose::ClientAuth, 2001)
    }

    pub(crate) fn expired_server(&self) -> Pair {
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
    /// Puts another one into the same files.
    pub(crate) fn replace(&self, with: &Pair) {
        std::fs::copy(Path::new(&with.cert), &self.cert).unwrap();
        std::fs::copy(Path::new(&with.key), &self.key).unwrap();
    }

    /// What makes the binary serve with it.
    pub(crate) fn flags(&self) -> Vec<&str> {
        vec!["--tls-cert", &self.cert, "--tls-key", &self.key]
    }

    /// The same, for clients of this authority alone.
    pub(crate) fn flags_for<'a>(&'a self, clients: &'a Authority) -> Vec<&'a str> {
        [self.flags(), vec!["--tls-client-ca", &clients.pem]].concat()
    }
}
