//! `Forwarded` (RFC 7239), read from the right.
//!
//! Proxies append on the right, so what a trusted proxy wrote is read before anything a client sent, and a quote that
//! a client leaves open can swallow only what stands to its left.

use std::iter;

/// The elements of one line, last first.
pub(super) fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_backwards(line, b',')
}

/// The node of an element's one `for` parameter, without quotes.
pub(super) fn node(element: &[u8]) -> Option<&str> {
    let mut found = None;
    for pair in split_backwards(element, b';') {
        let pair = std::str::from_utf8(pair).ok()?;
        let Some((name, value)) = pair.split_once('=') else { continue };
        if name.trim().eq_ignore_ascii_case("for") && found.replace(value.trim()).is_some() {
            // Two values count as none.
            return None;
        }
    }
    match found?.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => found,
    }
}

/// Splits at separators outside of quotes, last part first.
fn split_backwards(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        for (at, byte) in text.iter().enumerate().rev() {
            if *byte == b'"' && !is_escaped(&text[..at]) {
                quoted = !quoted;
            } else if *byte == separator && !quoted {
                rest = Some(&text[..at]);
                return Some(&text[at + 1..]);
            }
        }
        rest = None;
        Some(text)
    })
}

/// Whether the next byte is escaped: by a backslash that is not itself escaped.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(line: &str) -> Vec<Option<&str>> {
        elements(line.as_bytes()).map(node).collect()
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        assert_eq!(nodes(r#"for="_gazonk""#), [Some("_gazonk")]);
        assert_eq!(nodes(r#"For="[2001:db8:cafe::17]:4711""#), [Some("[2001:db8:cafe::17]:4711")]);
        assert_eq!(nodes("for=192.0.2.60;proto=http;by=203.0.113.43"), [Some("192.0.2.60")]);
        assert_eq!(nodes("for=192.0.2.43, for=198.51.100.17"), [Some("198.51.100.17"), Some("192.0.2.43")]);
        assert_eq!(nodes("proto=https; FOR = unknown"), [Some("unknown")]);
    }

    #[test]
    fn separators_within_quotes_separate_nothing() {
        assert_eq!(nodes(r#"for=1.1.1.1;x="a, for=2.2.2.2; \", for=3.3.3.3""#), [Some("1.1.1.1")]);
    }

    #[test]
    fn an_element_that_says_two_things_says_nothing() {
        assert_eq!(nodes("for=1.1.1.1;for=2.2.2.2"), [None]);
        assert_eq!(nodes("proto=https"), [None]);
        assert_eq!(nodes(""), [None]);
        assert_eq!(nodes(r#"for="1.1.1.1"#), [None]);
    }

    #[test]
    fn an_open_quote_of_the_client_does_not_swallow_what_the_proxy_added() {
        let read = nodes(r#"for="x, for=203.0.113.7"#);
        assert_eq!(read[0], Some("203.0.113.7"));
        let read = nodes(r#"for=6.6.6.6;x="y, for="[2001:db8::1]""#);
        assert_eq!(read[0], Some("[2001:db8::1]"));
    }
}
