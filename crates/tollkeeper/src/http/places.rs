//! Where values are in the head of a request, and whether two in one place agree.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, Uri};
use percent_encoding::{percent_decode, percent_decode_str};

pub(super) fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_some_and(|first| values.any(|other| other != first))
}

pub(super) fn header<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    let value = joined(headers, name)?;
    Some(if name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) { credentials(value) } else { value })
}

fn joined<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
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

/// The credentials in an `Authorization` header, in the usual spelling: the scheme is case-insensitive and may be
/// followed by several spaces (RFC 9110 11.4), so `bearer  abc` is `Bearer abc`.
fn credentials(value: Cow<'_, str>) -> Cow<'_, str> {
    let Some((scheme, rest)) = value.split_once([' ', '\t']) else { return value };
    let capital = |(index, letter): (usize, char)| match index {
        0 => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    let usual = format!("{} {}", scheme.chars().enumerate().map(capital).collect::<String>(), rest.trim());
    if usual == *value { value } else { Cow::Owned(usual) }
}
