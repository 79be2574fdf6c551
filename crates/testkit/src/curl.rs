//! curl: an independent client for TLS and HTTP/2.

use crate::{Authority, Pair, run};

/// Runs curl against a server of this authority, with a client certificate if given; what it prints, or its error.
pub fn curl(authority: &Authority, client: Option<&Pair>, args: &[&str]) -> Result<String, String> {
    let mut all = vec!["--silent", "--show-error", "--max-time", "20", "--cacert", &authority.pem];
    if let Some(pair) = client {
        all.extend(["--cert", &pair.cert, "--key", &pair.key]);
    }
    let output = run("curl", &[&all, args].concat());
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}
