//! Outgoing HTTP calls: to a webhook, a collector. No redirects, no retries, and every call has a deadline.
//!
//! A URL may carry a password, and the path of a webhook often is one: only scheme and host are ever shown.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use crate::tls::{CallerFiles, Connector, Renewable, caller_config};

/// For a whole call: connecting, sending and reading the answer.
const LIMIT: Duration = Duration::from_secs(5);
/// More of an answer is not read.
const LARGEST_ANSWER: usize = 64 * 1024;

/// Where calls go.
#[derive(Clone, PartialEq)]
pub struct Destination {
    scheme: Scheme,
    /// Host and port, without a user.
    authority: http::uri::Authority,
    path: PathAndQuery,
    authorization: Option<HeaderValue>,
    /// The name that the certificate must be for, with TLS.
    certified: Option<ServerName<'static>>,
}

impl Destination {
    /// Without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether it names more than a host.
    pub fn has_path(&self) -> bool {
        self.path != "/"
    }

    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.scheme == Scheme::HTTPS { 443 } else { 80 })
    }

    /// The same for a service of ours, for which `HOST:PORT` means `http://HOST:PORT`.
    pub fn service(text: &str) -> Result<Destination, String> {
        let is_address = !text.contains("://") && !text.starts_with('/') && text.contains(':');
        let host = if text.starts_with(':') { "127.0.0.1" } else { "" };
        if is_address { Destination::parse(&format!("http://{host}{text}")) } else { Destination::parse(text) }
    }

    /// Parses `https://USER:PASSWORD@HOST:PORT/PATH`. Its errors do not repeat the text.
    pub fn parse(text: &str) -> Result<Destination, String> {
        let no_url = |problem: &str| format!("{problem}; write for example https://HOST:PORT/PATH");
        let uri: Uri = text.parse().map_err(|error| no_url(&format!("is not a URL ({error})")))?;
        let scheme = uri.scheme().cloned().filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let scheme = scheme.ok_or_else(|| no_url("does not begin with http:// or https://"))?;
        let whole = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let (user, host) = whole.rsplit_once('@').map_or((None, whole), |(user, host)| (Some(user), host));
        let authority: http::uri::Authority = host.parse().map_err(|_| no_url("names no host"))?;
        let authorization = user.map(|user| basic(user).ok_or_else(|| no_url("has a user that cannot be sent")));
        let bare = authority.host().trim_start_matches('[').trim_end_matches(']').to_string();
        let certified = (scheme == Scheme::HTTPS).then(|| ServerName::try_from(bare)).transpose();
        Ok(Destination {
            certified: certified.map_err(|_| no_url("names no host that a certificate can be for"))?,
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
            authorization: authorization.transpose()?,
            scheme,
            authority,
        })
    }

    /// The URL, with more appended to its path.
    fn uri(&self, below: &str) -> Uri {
        let path = match below {
            "" => self.path.clone(),
            below => {
                let base = self.path.path().trim_end_matches('/');
                PathAndQuery::try_from(format!("{base}{below}")).unwrap_or_else(|_| self.path.clone())
            }
        };
        let mut parts = http::uri::Parts::default();
        (parts.scheme, parts.authority) = (Some(self.scheme.clone()), Some(self.authority.clone()));
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).expect("all three parts are there")
    }
}

/// `USER:PASSWORD`, where either may be percent-encoded.
fn basic(user: &str) -> Option<HeaderValue> {
    let bytes: Vec<u8> = percent_decode_str(user).collect();
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(&bytes))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// The secrets stay out of logs.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({self})")
    }
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    Http1,
    Http2,
}

/// A client of one destination.
#[derive(Clone, Debug)]
pub struct Caller {
    to: Destination,
    client: Client<Connector, Full<Bytes>>,
    limit: Duration,
    largest_answer: usize,
}

/// The answer.
#[derive(Debug)]
pub struct Answered {
    pub status: StatusCode,
    /// Including trailers.
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Caller {
    /// With these certificates, if the destination uses TLS.
    pub fn new(to: Destination, spoken: Spoken, files: CallerFiles) -> anyhow::Result<Caller> {
        let protocol: &[u8] = if spoken == Spoken::Http2 { b"h2" } else { b"http/1.1" };
        let setting = files.setting;
        let read = move || caller_config(&files, protocol);
        let tls = to.certified.clone().map(|name| anyhow::Ok((Renewable::new(setting, read)?, name))).transpose()?;
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .http2_only(spoken == Spoken::Http2)
            .build(Connector::new(tls, LIMIT));
        Ok(Caller { to, client, limit: LIMIT, largest_answer: LARGEST_ANSWER })
    }

    /// The same, for slower or larger answers.
    pub fn patient(self, limit: Duration, largest_answer: usize) -> Caller {
        Caller { limit, largest_answer, ..self }
    }

    pub fn to(&self) -> &Destination {
        &self.to
    }

    /// Posts a body to a path below the destination's. An error contains no secrets.
    pub async fn post(&self, below: &str, headers: HeaderMap, body: Vec<u8>) -> Result<Answered, String> {
        self.call(Method::POST, below, headers, body).await
    }

    /// The same with any method.
    pub async fn call(
        &self,
        method: Method,
        below: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answered, String> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.to.uri(below);
        *request.headers_mut() = headers;
        let agent = HeaderValue::from_static(concat!("tollkeeper/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        if let Some(authorization) = &self.to.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        match timeout(self.limit, self.exchange(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer within {:?}", self.limit)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answered, String> {
        let response = self.client.request(request).await.map_err(|error| root(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, self.largest_answer).collect().await.map_err(|error| root(&*error))?;
        let mut headers = parts.headers;
        if let Some(trailers) = body.trailers() {
            headers.extend(trailers.clone());
        }
        Ok(Answered { status: parts.status, headers, body: body.to_bytes() })
    }
}

/// The root cause of an error: the rest only says that a call failed.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_and_host_of_a_destination_are_shown() {
        let to = Destination::parse("https://me:p%40ss@hooks.test:8443/services/T0/B0/secret?key=1").expect("a URL");
        assert_eq!(to.to_string(), "https://hooks.test:8443");
        assert_eq!(format!("{to:?}"), "Destination(https://hooks.test:8443)");
        assert_eq!(to.uri("").to_string(), "https://hooks.test:8443/services/T0/B0/secret?key=1");
        assert_eq!(to.authorization.as_ref().expect("a user").to_str().ok(), Some("Basic bWU6cEBzcw=="));
    }

    #[test]
    fn a_bad_destination_is_refused_without_repeating_it() {
        for bad in ["", "hooks.test/secret", "ftp://me:secret@hooks.test/", "https:///secret", "http://bad host/secret"]
        {
            let problem = Destination::parse(bad).expect_err(bad);
            assert!(!problem.contains("secret") && problem.contains("https://HOST"), "{bad}: {problem}");
        }
    }

    #[test]
    fn paths_are_put_below_the_one_that_was_given() {
        for (base, whole) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("http://c/otlp/", "http://c/otlp/v1/traces"),
        ] {
            assert_eq!(Destination::parse(base).expect("a URL").uri("/v1/traces").to_string(), whole);
        }
    }
}
