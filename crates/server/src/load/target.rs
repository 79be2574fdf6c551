//! Where requests go, and what each one says.

use std::fmt;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use tollkeeper::Descriptor;

/// How requests are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `POST /v1/check`
    Check,
    /// `GET` of any other path, limited or forwarded by the service.
    Get(PathAndQuery),
    /// `ShouldRateLimit` of Envoy's rate limit service.
    Grpc,
    /// `TOLLKEEPER.CHECK`
    Resp,
}

/// A service, and the requests for it. They differ in one attribute, the key.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) protocol: Protocol,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The attribute that has another value for each key.
    pub(crate) key: String,
    /// The others, the same in every request.
    pub(crate) attributes: Vec<(String, String)>,
    /// A bearer token over HTTP, the password over RESP.
    pub(crate) token: Option<String>,
}

impl Target {
    pub(crate) fn parse(
        url: &str,
        key: &str,
        attributes: &[(String, String)],
        token: Option<String>,
    ) -> Result<Target, String> {
        const HOW: &str = "write http://HOST:PORT for /v1/check, http://HOST:PORT/PATH for any other page, \
                           grpc://HOST:PORT for Envoy's protocol, or redis://HOST:PORT";
        let uri: Uri = url.parse().map_err(|_| format!("is not a URL; {HOW}"))?;
        let host = uri.host().ok_or_else(|| format!("names no host; {HOW}"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("has a user or a password; pass it as --token".into());
        }
        let has_path = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
        let (protocol, port) = match uri.scheme_str() {
            Some("http") => match uri.path_and_query() {
                Some(path) if has_path && path.as_str() != "/v1/check" => (Protocol::Get(path.clone()), 80),
                _ => (Protocol::Check, 80),
            },
            Some("grpc") if !has_path => (Protocol::Grpc, 8081),
            Some("redis") if !has_path => (Protocol::Resp, 6379),
            Some("https" | "grpcs" | "rediss") => {
                return Err("uses TLS, which would measure the handshakes; use the plain port".into());
            }
            _ => return Err(format!("is not understood; {HOW}")),
        };
        let target = Target {
            protocol,
            host,
            port: uri.port_u16().unwrap_or(port),
            key: key.to_string(),
            attributes: attributes.to_vec(),
            token,
        };
        target.refuse_unsendable()?;
        Ok(target)
    }

    /// A page is asked for by a path and headers; nothing else can be sent with it.
    fn refuse_unsendable(&self) -> Result<(), String> {
        if !matches!(self.protocol, Protocol::Get(_)) {
            return Ok(());
        }
        for (name, value) in
            self.attributes.iter().map(|(name, value)| (name, value.as_str())).chain([(&self.key, "k")])
        {
            if header(name, value).is_none() {
                return Err(format!(
                    "names a page, and `{name}` cannot be sent with it; use header.NAME, for example --key header.x-api-key"
                ));
            }
        }
        Ok(())
    }

    /// The value of the key with this number.
    pub(crate) fn value(number: u64) -> String {
        format!("k{number}")
    }

    /// As the rules see the request.
    pub(crate) fn descriptor(&self, number: u64) -> Descriptor {
        let constant = self.attributes.iter().cloned();
        Descriptor::new(constant.chain([(self.key.clone(), Target::value(number))]))
    }

    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// `header.NAME` as a header.
pub(crate) fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.strip_prefix("header.")?.as_bytes()).ok()?;
    Some((name, HeaderValue::from_str(value).ok()?))
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.authority();
        match &self.protocol {
            Protocol::Check => write!(out, "POST http://{to}/v1/check"),
            Protocol::Get(path) => write!(out, "GET http://{to}{path}"),
            Protocol::Grpc => write!(out, "ShouldRateLimit at grpc://{to}"),
            Protocol::Resp => write!(out, "TOLLKEEPER.CHECK at redis://{to}"),
        }
    }
}

/// Without the token.
impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, key: &str) -> Result<Target, String> {
        Target::parse(url, key, &[], None)
    }

    #[test]
    fn the_url_says_how_to_ask() {
        let shown = |url: &str, key: &str| target(url, key).map(|target| target.to_string());
        assert_eq!(shown("http://127.0.0.1:8080", "user_id").as_deref(), Ok("POST http://127.0.0.1:8080/v1/check"));
        assert_eq!(
            shown("http://[::1]:8080/v1/authorize?a=b", "header.x-api-key").as_deref(),
            Ok("GET http://[::1]:8080/v1/authorize?a=b")
        );
        assert_eq!(shown("grpc://localhost", "user_id").as_deref(), Ok("ShouldRateLimit at grpc://localhost:8081"));
        assert_eq!(
            shown("redis://127.0.0.1:6380", "user_id").as_deref(),
            Ok("TOLLKEEPER.CHECK at redis://127.0.0.1:6380")
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_the_fix() {
        for (url, key, expected) in [
            ("https://127.0.0.1", "user_id", "uses TLS"),
            ("127.0.0.1:8080", "user_id", "write http://HOST:PORT"),
            ("redis://:secret@127.0.0.1", "user_id", "--token"),
            ("http://127.0.0.1/api", "user_id", "--key header.x-api-key"),
        ] {
            let problem = target(url, key).expect_err(url);
            assert!(problem.contains(expected) && !problem.contains("secret"), "{url}: {problem}");
        }
    }
}
