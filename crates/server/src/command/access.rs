//! Tokens as the command line gives them, and what the first lines of a service say of them.

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::config::Config;
use crate::tokens::{TokenFile, Tokens};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct TokenArgs {
    /// The token that the admin part of the API asks for; on loopback one is made at start by default
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// A token that shows everything and changes nothing
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_READ_TOKEN", hide_env_values = true)]
    read_token: Option<String>,
    /// A token that requests for decisions need, over HTTP and gRPC; none by default
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_DECISIONS_TOKEN", hide_env_values = true)]
    decisions_token: Option<String>,
}

impl TokenArgs {
    /// Flags win over the file, each by itself. What is empty is as if absent: compose files set variables so.
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

/// Keeps the token that was made for a service on this address where commands of this user find it, for as long as the
/// file is held. Without it the token is still in the first lines.
pub(super) fn keep(tokens: &Tokens, bound: SocketAddr) -> Option<TokenFile> {
    let token = tokens.admin.as_ref().filter(|_| tokens.is_made)?;
    match TokenFile::keep(token, bound) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!("the admin token is kept nowhere, so commands need --admin-token: {error}");
            None
        }
    }
}

/// Whether there is an admin part, what it asks for, and where its page is. `base` is as in `http://127.0.0.1:8080`.
pub(super) fn greet(out: &mut impl Write, tokens: &Tokens, file: Option<&TokenFile>, base: &str) -> io::Result<()> {
    if tokens.is_closed() {
        let fix = "set admin.token (or TOLLKEEPER_ADMIN_TOKEN) to use it on an address that is not loopback";
        return writeln!(out, "admin: off; {fix}");
    }
    let (asks, fragment) = match tokens.admin.as_ref().filter(|_| tokens.is_made) {
        // Behind a `#`: browsers keep that to themselves, so it is in no log of a proxy and in no Referer.
        Some(made) => ("the token made at this start", format!("#token={}", made.text())),
        None if tokens.admin.is_none() => ("admin.read_token, and changes nothing", String::new()),
        None => ("admin.token", String::new()),
    };
    let kept = file.map(|file| format!(", kept in {}", file.path().display())).unwrap_or_default();
    writeln!(out, "admin: asks for {asks}{kept}")?;
    writeln!(out, "dashboard: {base}/{fragment}")
}
