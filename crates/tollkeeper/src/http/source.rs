//! The places from which attributes can be taken.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName, Uri};

use super::places::{cookies, differ, is_cookie_unclear, is_query_unclear, queries};

/// Where an attribute comes from.
///
/// ```
/// use tollkeeper::http::AttributeSource;
///
/// assert_eq!("cookie.sid".parse(), Ok(AttributeSource::Cookie("sid".into())));
/// let error = "headers.x-user".parse::<AttributeSource>().unwrap_err();
/// assert!(error.to_string().contains("header.NAME"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeSource {
    /// A header; several lines that differ are joined with `, `.
    Header(HeaderName),
    /// The first query parameter of this name.
    Query(String),
    /// The first cookie of this name, percent-decoded and without quotes.
    Cookie(String),
    /// One of `ip`, `method`, `path` and `host`.
    Attribute(String),
}

/// A text that is not a place in a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a place in a request; write header.NAME, query.NAME, cookie.NAME, ip, method, path or host")]
pub struct AttributeSourceError(String);

impl FromStr for AttributeSource {
    type Err = AttributeSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let source = match text.split_once('.') {
            Some((_, "")) => None,
            Some(("header", name)) => name.parse().ok().map(AttributeSource::Header),
            Some(("query", name)) => Some(AttributeSource::Query(name.into())),
            Some(("cookie", name)) => Some(AttributeSource::Cookie(name.into())),
            None if matches!(text, "ip" | "method" | "path" | "host") => Some(AttributeSource::Attribute(text.into())),
            _ => None,
        };
        source.ok_or_else(|| AttributeSourceError(text.into()))
    }
}

impl fmt::Display for AttributeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeSource::Header(name) => write!(f, "header.{name}"),
            AttributeSource::Query(name) => write!(f, "query.{name}"),
            AttributeSource::Cookie(name) => write!(f, "cookie.{name}"),
            AttributeSource::Attribute(name) => f.write_str(name),
        }
    }
}

impl AttributeSource {
    /// Whether a request has this more than once, with different values, or in a spelling that servers read differently.
    pub fn is_contradicted(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        match self {
            AttributeSource::Header(name) => {
                let mut lines = headers.get_all(name).into_iter();
                let Some(first) = lines.next() else { return false };
                // One that is not UTF-8 is absent here, and there is still a server that accepts it.
                lines.any(|other| other != first) || std::str::from_utf8(first.as_bytes()).is_err()
            }
            AttributeSource::Query(name) => differ(queries(uri, name)) || is_query_unclear(uri, name),
            AttributeSource::Cookie(name) => {
                let mut cookies = cookies(headers, name).peekable();
                cookies.peek().is_some_and(Option::is_none) || differ(cookies) || is_cookie_unclear(headers, name)
            }
            AttributeSource::Attribute(_) => false,
        }
    }
}
