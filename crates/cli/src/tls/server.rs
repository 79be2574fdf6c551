//! A front's TLS: its certificate, and the client certificates it requires.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::pem::Named;
use super::provider::{VERSIONS, provider};
use crate::config::ListenTls;

/// Reads the configured files. That there are a certificate and a key has been checked.
pub fn server_config(files: &ListenTls) -> anyhow::Result<ServerConfig> {
    let ListenTls { cert, key, client_ca } = files;
    let cert = named("listen.tls.cert", cert)?;
    let key = named("listen.tls.key", key)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&VERSIONS)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let setting = Named { setting: "listen.tls.client_ca", path };
            let roots = Arc::new(setting.authorities()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.with_context(|| format!("{}: {path:?}", setting.setting))?)
        }
    };
    let made = builder.with_single_cert(cert.certificates()?, key.key()?);
    let mut config = made.map_err(|error| key.refused(cert.path, error))?;
    if client_ca.is_some() {
        // A resumed session is not verified again: an expired client certificate would still pass.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn named<'a>(setting: &'a str, path: &'a Option<PathBuf>) -> anyhow::Result<Named<'a>> {
    let path = path.as_deref().with_context(|| format!("{setting}: is missing; name a file in PEM format"))?;
    Ok(Named { setting, path })
}
