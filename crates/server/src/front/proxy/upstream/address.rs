//! The upstream's address as people write it.

use std::fmt;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use rustls::pki_types::ServerName;

/// The upstream's address, and whether it uses TLS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    pub(crate) authority: Authority,
    /// The name that its certificate must be for, with TLS.
    pub(crate) certified: Option<ServerName<'static>>,
}

impl Address {
    pub(super) fn scheme(&self) -> Scheme {
        if self.certified.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)
    }
}

/// Reads `http://HOST:PORT` or `https://HOST:PORT`. Errors do not repeat a user or a password.
pub(crate) fn parse_upstream(text: &str) -> Result<Address, String> {
    let example = "write for example http://127.0.0.1:3000";
    let shown = match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_string(),
    };
    let uri: Uri = text.parse().map_err(|error| format!("{shown:?} is not a URL ({error}); {example}"))?;
    let parts = uri.into_parts();
    let is_certified = match parts.scheme.as_ref().map(Scheme::as_str) {
        Some("http") => false,
        Some("https") => true,
        Some(scheme) => return Err(format!("{scheme}:// is not supported; {example}")),
        None => return Err(format!("{shown:?} has no scheme; {example}")),
    };
    let authority = parts.authority.ok_or_else(|| format!("{shown:?} has no host; {example}"))?;
    if authority.as_str().contains('@') {
        return Err("a user and a password are not sent to an upstream; remove what is before the @".into());
    }
    match parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str) {
        "/" => {}
        path => return Err(format!("an upstream cannot have a path, because requests keep their own; remove {path}")),
    }
    let certified = is_certified.then(|| server_name(authority.host())).transpose()?;
    Ok(Address { authority, certified })
}

/// The brackets around an IPv6 address belong to the URL.
fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let no_name = |_| format!("{host:?} cannot be the name in a certificate; write a host name or an address");
    ServerName::try_from(bare.to_string()).map_err(no_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A URL that could not be used was repeated whole, on the screen and in the log.
    #[test]
    fn a_password_is_not_repeated() {
        for url in [
            "http://u:s3cret@a b/",
            "u:s3cret@app.test",
            "http://u:s3cret@app.test",
            "//u:s3cret@app.test/x",
            "ftp://u:s3cret@a",
        ] {
            let problem = parse_upstream(url).expect_err(url);
            assert!(!problem.contains("s3cret"), "{url}: {problem}");
        }
    }

    #[test]
    fn a_certificate_must_be_for_the_host_without_port_and_brackets() {
        for (url, name) in
            [("https://app.test", "app.test"), ("https://10.0.0.7:8443/", "10.0.0.7"), ("https://[::1]:8443", "::1")]
        {
            let address = parse_upstream(url).expect(url);
            assert_eq!(address.certified.as_ref().map(|name| name.to_str().to_string()).as_deref(), Some(name));
            assert_eq!(address.to_string(), url.trim_end_matches('/'));
        }
        assert_eq!(parse_upstream("http://app.test").expect("an address").certified, None);
        assert!(
            parse_upstream("https://app..test").expect_err("no name").contains("cannot be the name in a certificate")
        );
    }
}
