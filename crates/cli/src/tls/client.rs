//! TLS of outgoing connections, to an upstream or another service: CA certificates and the client certificate.

use std::path::PathBuf;

use anyhow::bail;
use rustls::{ClientConfig, RootCertStore};

use super::pem::Named;
use super::provider::{VERSIONS, provider};

/// Files in PEM format, for an upstream with TLS.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct UpstreamFiles {
    /// CA certificates (PEM) for an https:// upstream; the system's trust store by default
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_UPSTREAM_CA")]
    pub upstream_ca: Option<PathBuf>,
    /// The client certificate for an https:// upstream (PEM)
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_UPSTREAM_CERT", requires = "upstream_key")]
    pub upstream_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_UPSTREAM_KEY", requires = "upstream_cert")]
    pub upstream_key: Option<PathBuf>,
}

/// Reads the files; the system's trust store by default.
pub fn upstream_config(files: &UpstreamFiles) -> anyhow::Result<ClientConfig> {
    let roots = match &files.upstream_ca {
        Some(path) => Named { setting: "--upstream-ca", path }.authorities()?,
        None => trusted_by_the_system("--upstream", "--upstream-ca")?,
    };
    let certificate = files.upstream_cert.as_ref().zip(files.upstream_key.as_ref()).map(|(cert, key)| {
        (Named { setting: "--upstream-cert", path: cert }, Named { setting: "--upstream-key", path: key })
    });
    client_config(roots, certificate, b"http/1.1")
}

/// Files in PEM format, for a call with TLS.
#[derive(Clone, Debug)]
pub struct CallerFiles {
    /// The name of the setting of `authorities`, for errors.
    pub setting: &'static str,
    /// CA certificates, instead of the system's trust store.
    pub authorities: Option<PathBuf>,
    /// The client certificate and its key: `--client-cert` and `--client-key`.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl CallerFiles {
    /// Without a client certificate.
    pub fn trusting(setting: &'static str, authorities: Option<PathBuf>) -> CallerFiles {
        CallerFiles { setting, authorities, certificate: None }
    }
}

/// Reads the files of a call.
pub fn caller_config(files: &CallerFiles, protocol: &[u8]) -> anyhow::Result<ClientConfig> {
    let CallerFiles { setting, authorities, certificate } = files;
    let roots = match authorities {
        Some(path) => Named { setting, path }.authorities()?,
        None => trusted_by_the_system(setting, setting)?,
    };
    let certificate = certificate.as_ref().map(|(cert, key)| {
        (Named { setting: "--client-cert", path: cert }, Named { setting: "--client-key", path: key })
    });
    client_config(roots, certificate, protocol)
}

fn client_config(
    roots: RootCertStore,
    certificate: Option<(Named<'_>, Named<'_>)>,
    protocol: &[u8],
) -> anyhow::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&VERSIONS)?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match certificate {
        Some((cert, key)) => {
            let made = builder.with_client_auth_cert(cert.certificates()?, key.key()?);
            made.map_err(|error| key.refused(cert.path, error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

fn trusted_by_the_system(setting: &str, instead: &str) -> anyhow::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's trust store may contain old certificates that cannot be parsed; the others are used.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let trouble = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        bail!(
            "{setting}: this system has no trusted CA certificates{trouble}; install ca-certificates, or name a file with {instead}"
        );
    }
    Ok(roots)
}

impl UpstreamFiles {
    /// The first flag that was given, for an upstream without TLS.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (&self.upstream_ca, "--upstream-ca"),
            (&self.upstream_cert, "--upstream-cert"),
            (&self.upstream_key, "--upstream-key"),
        ];
        given.into_iter().find_map(|(path, flag)| path.as_ref().map(|_| flag))
    }
}
