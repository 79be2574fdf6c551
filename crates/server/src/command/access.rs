//! The token flags, and the first lines that a service prints about tokens.

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::config::Config;
use crate::tokens::{TokenFile, Tokens};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct TokenArgs {
    /// The token for the admin API; on loopback one is generated at start by default
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// A token for read-only access to the admin API
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_READ_TOKEN", hide_env_values = true)]
    read_token: Option<String>,
    /// A token that callers need for decisions, over HTTP and gRPC; none by default
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_DECISIONS_TOKEN", hide_env_values = true)]
    decisions_token: Option<String>,
}

impl TokenArgs {
    /// Each flag overrides the file's setting. An empty value counts as absent: compose files set variables like
    /// that.
    pub(super) fn override_in(&self, config: &mut Config) {
        for (flag, setting) in [
            (&self.admin_token, &mut config.admin.token),
            (&self.read_token, &mut config.admin.read_token),
            (&self.decisions_token, &mut config.decisions.token),
        ] {
            if flag.as_ref().is_some_and(|given| !given.is_empty()) {
                setting.clone_from(flag);
            }
        }
    }
}

/// Writes the generated token of a service on this address to a file where this user's commands find it, for as long
/// as the result lives. Without the file, the token is still in the first lines.
pub(super) fn keep(tokens: &Tokens, bound: SocketAddr) -> Option<TokenFile> {
    let token = tokens.admin.as_ref().filter(|_| tokens.is_made)?;
    match TokenFile::keep(token, bound) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!("the admin token could not be stored in a file, so commands need --admin-token: {error}");
            None
        }
    }
}

/// Whether there is an admin part, which token it needs, and where its page is. `base` is as in
/// `http://127.0.0.1:8080`.
pub(super) fn greet(out: &mut impl Write, tokens: &Tokens, file: Option<&TokenFile>, base: &str) -> io::Result<()> {
    if tokens.is_closed() {
        let fix = "set admin.token (or TOLLKEEPER_ADMIN_TOKEN) to use it on an address that is not loopback";
        return writeln!(out, "admin: off; {fix}");
    }
    let (asks, fragment) = match tokens.admin.as_ref().filter(|_| tokens.is_made) {
        // After a `#`: browsers do not send that part, so it appears in no proxy's log and in no Referer.
        Some(made) => ("the token generated at this start", format!("#token={}", made.text())),
        None if tokens.admin.is_none() => ("admin.read_token, and is read-only", String::new()),
        None => ("admin.token", String::new()),
    };
    let kept = file.map(|file| format!(", stored in {}", file.path().display())).unwrap_or_default();
    writeln!(out, "admin: needs {asks}{kept}")?;
    writeln!(out, "dashboard: {base}/{fragment}")
}
