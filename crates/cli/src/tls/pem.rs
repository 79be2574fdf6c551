//! Files in PEM format, with errors that name the setting, the file and what to do.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A setting, and the file that it names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) setting: &'a str,
    pub(super) path: &'a Path,
}

impl Named<'_> {
    fn read(&self) -> anyhow::Result<Vec<u8>> {
        let Named { setting, path } = self;
        std::fs::read(path).with_context(|| format!("{setting}: cannot read {}", path.display()))
    }

    fn problem(&self, problem: impl std::fmt::Display) -> anyhow::Error {
        anyhow!("{}: {}: {problem}", self.setting, self.path.display())
    }

    /// All certificates of the file, at least one.
    pub(super) fn certificates(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let text = self.read()?;
        let certificates: Result<Vec<_>, Error> = CertificateDer::pem_slice_iter(&text).collect();
        let certificates = certificates.map_err(|error| self.problem(format!("is not PEM: {error}")))?;
        if certificates.is_empty() {
            bail!(self.problem("contains no certificate; one begins with -----BEGIN CERTIFICATE-----"));
        }
        Ok(certificates)
    }

    /// The certificates of the file as CA certificates.
    pub(super) fn authorities(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.problem(format!("a certificate is invalid: {error}")))?;
        }
        Ok(roots)
    }

    pub(super) fn key(&self) -> anyhow::Result<PrivateKeyDer<'static>> {
        let text = self.read()?;
        let says = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
        if says(b"BEGIN ENCRYPTED PRIVATE KEY") || says(b"Proc-Type: 4,ENCRYPTED") {
            let path = self.path.display();
            bail!(self.problem(format!(
                "the key is encrypted; store it without a password: openssl pkey -in {path} -out plain.key"
            )));
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            Error::NoItemsFound => self.problem("contains no private key; one begins with -----BEGIN PRIVATE KEY-----"),
            // The error may quote what it could not parse, which may be part of the key.
            _ => self.problem("is not PEM; a private key begins with -----BEGIN PRIVATE KEY-----"),
        })
    }

    /// rustls' error about this key and that certificate.
    pub(super) fn refused(&self, certificate: &Path, error: rustls::Error) -> anyhow::Error {
        match error {
            rustls::Error::InconsistentKeys(_) => self.problem(format!(
                "is not the key of the first certificate in {}; put the server certificate first and its chain after it",
                certificate.display()
            )),
            error => self.problem(format!("cannot be used with {}: {error}", certificate.display())),
        }
    }
}
