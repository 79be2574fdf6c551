//! Where values are in the head of a request, and whether two in one place agree.

use std::borrow::Cow;

use http::header::COOKIE;
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

pub(super) fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_some_and(|first| values.any(|other| other != first))
}

pub(super) fn header<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    let mut lines = headers.get_all(name).into_iter().map(|line| std::str::from_utf8(line.as_bytes()));
    let first = lines.next()?.ok()?;
    let mut joined = Cow::Borrowed(first);
    // A value repeated three times is not three clients.
    if !differ(headers.get_all(name).into_iter()) {
        return Some(joined);
    }
    for line in lines {
        let joined = joined.to_mut();
        joined.push_str(", ");
        joined.push_str(line.ok()?);
    }
    Some(joined)
}

pub(super) fn query<'r>(uri: &'r Uri, name: &str) -> Option<Cow<'r, str>> {
    queries(uri, name).next()?
}

/// All parameters of this name; `None` is one that is not valid UTF-8.
pub(super) fn queries<'r>(uri: &'r Uri, name: &str) -> impl Iterator<Item = Option<Cow<'r, str>>> {
    let pairs = uri.query().unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(encoded, _)| decoded(encoded).as_deref() == Some(name)).map(|(_, value)| decoded(value))
}

/// `None` when the bytes are not valid UTF-8.
fn decoded(encoded: &str) -> Option<Cow<'_, str>> {
    if !encoded.contains('+') {
        return percent_decode_str(encoded).decode_utf8().ok();
    }
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

pub(super) fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(found, _)| found.trim() == name)?;
    let value = value.trim();
    // Servers drop the quotes that RFC 6265 allows, so with or without them it is the same session.
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}
