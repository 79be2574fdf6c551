//! The TLS flags, shared by every service that listens.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::config::{Config, ListenTls};
use crate::tls::{self, Renewable};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct TlsArgs {
    /// The certificate and its chain (PEM); everything is then served with TLS
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// CA certificates (PEM) for clients; every client must then present a certificate
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Each flag overrides the file's setting.
    pub(super) fn override_in(&self, config: &mut Config) {
        let TlsArgs { tls_cert, tls_key, tls_client_ca } = self;
        if tls_cert.is_none() && tls_key.is_none() && tls_client_ca.is_none() {
            return;
        }
        let files = config.listen.tls.get_or_insert_default();
        for (flag, file) in
            [(tls_cert, &mut files.cert), (tls_key, &mut files.key), (tls_client_ca, &mut files.client_ca)]
        {
            if flag.is_some() {
                file.clone_from(flag);
            }
        }
    }
}

/// The certificates of a configuration, if it has any.
pub(super) fn certificates(config: &Config) -> anyhow::Result<Option<Arc<Renewable<ServerConfig>>>> {
    let read = |files: ListenTls| Renewable::new("the listeners'", move || tls::server_config(&files));
    config.listen.tls.clone().map(read).transpose()
}
