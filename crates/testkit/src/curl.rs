//! curl, which speaks TLS and HTTP/2 without any code of ours.

use crate::{Authority, Pair, run};

/// What curl prints of an answer from a server of this authority, or its error; with a client certificate, if one is given.
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
