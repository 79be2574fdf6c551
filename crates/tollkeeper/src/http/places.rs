//! Where values are in the head of a request, and whether two in one place agree.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, AsHeaderName, COOKIE};
use http::{HeaderMap, Uri};
use percent_encoding::{percent_decode, percent_decode_str};

use super::credentials;

pub(super) fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_some_and(|first| values.any(|other| other != first))
}

pub(super) fn header(headers: &HeaderMap, name: impl AsHeaderName + AsRef<str> + Copy) -> Option<Cow<'_, str>> {
    let value = joined(headers, name)?;
    Some(if name.as_ref().eq_ignore_ascii_case(AUTHORIZATION.as_str()) { credentials::usual(value) } else { value })
}

fn joined(headers: &HeaderMap, name: impl AsHeaderName) -> Option<Cow<'_, str>> {
    let all = headers.get_all(name);
    let mut lines = all.iter();
    let first = std::str::from_utf8(lines.next()?.as_bytes()).ok()?;
    let mut joined = Cow::Borrowed(first);
    // A value repeated three times is not three clients.
    if !differ(all.iter()) {
        return Some(joined);
    }
    for line in lines {
        let joined = joined.to_mut();
        joined.push_str(", ");
        joined.push_str(std::str::from_utf8(line.as_bytes()).ok()?);
    }
    Some(joined)
}

pub(super) fn query<'r>(uri: &'r Uri, name: &str) -> Option<Cow<'r, str>> {
    queries(uri, name).next()?
}

/// All parameters of this name; `None` is one that is not valid UTF-8.
pub(super) fn queries<'r>(uri: &'r Uri, name: &str) -> impl Iterator<Item = Option<Cow<'r, str>>> {
    values(uri.query().unwrap_or_default(), name)
}

fn values<'q>(query: &'q str, name: &str) -> impl Iterator<Item = Option<Cow<'q, str>>> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(encoded, _)| decoded(encoded).as_deref() == Some(name)).map(|(_, value)| decoded(value))
}

/// The `query.NAME` attribute of a query as it was sent, without its `?`.
pub fn query_value<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    values(query, name).next()?
}

/// Whether a server may find another value of this name than [`query`] does. Some end a parameter at `;` too (Rack 2, Perl),
/// take `name[]` and `name[0]` for `name` (PHP, Rails, Express), ignore spaces before it (PHP) or its case (ASP.NET).
pub(super) fn is_query_unclear(uri: &Uri, name: &str) -> bool {
    let query = uri.query().unwrap_or_default();
    let own = query_value(query, name);
    query.split(['&', ';']).any(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        let found = decoded(found).unwrap_or_default();
        let found = found.trim_start();
        let found = found.split_once('[').map_or(found, |(name, _)| name);
        found.eq_ignore_ascii_case(name) && decoded(value) != own
    })
}

/// `None` when the bytes are not valid UTF-8.
fn decoded(encoded: &str) -> Option<Cow<'_, str>> {
    if !encoded.contains('+') {
        return percent_decode_str(encoded).decode_utf8().ok();
    }
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

/// The first cookie of this name that all servers read alike.
pub(super) fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    cookies(headers, name).flatten().next()
}

/// All cookies of this name; `None` is one that servers read differently.
///
/// Many servers decode percent escapes and drop quotes, so all these spellings are one session. Names are compared
/// decoded, because PHP decodes them. Bytes are read one by one: a line with one odd byte still has its other cookies.
pub(super) fn cookies<'r>(headers: &'r HeaderMap, name: &str) -> impl Iterator<Item = Option<Cow<'r, str>>> {
    let pairs = headers.get_all(COOKIE).into_iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        percent_decode(found).eq(name.bytes()).then(|| cookie_value(value))
    })
}

/// Whether a server may find a cookie of this name within another one: some end a cookie at a comma or a space too (Rack 1,
/// Java and Python in their older ways).
pub(super) fn is_cookie_unclear(headers: &HeaderMap, name: &str) -> bool {
    let mut pairs = headers.get_all(COOKIE).into_iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.any(|pair| {
        let mut within = pair.trim_ascii().split(|byte| b", \t".contains(byte)).skip(1);
        within.any(|piece| {
            let equals = piece.iter().position(|byte| *byte == b'=');
            equals.is_some_and(|equals| percent_decode(&piece[..equals]).eq(name.bytes()))
        })
    })
}

fn cookie_value(value: &[u8]) -> Option<Cow<'_, str>> {
    let value = match value {
        // Escapes within quotes are octal to some and plain text to others.
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => inner,
        // Some servers drop the last character of a value that only begins with a quote.
        [b'"', ..] => return None,
        value => value,
    };
    match percent_decode(value).decode_utf8() {
        Ok(text) => Some(text),
        // Servers that cannot decode it take it as it is.
        Err(_) => std::str::from_utf8(value).ok().map(Cow::Borrowed),
    }
}
