//! The names and formats of stored state.

use std::borrow::Cow;
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use tollkeeper_core::{Bucket, Counter, Entry, Hold, Key, Log, Span, State, Timestamp, Window};

use crate::store::held::Owner;

/// The default prefix of a store's keys.
pub(super) const NAMESPACE: &str = "tollkeeper";

/// The longest value, in bytes, that is part of a key as it is. What is longer is part of it by its digest, so that clients
/// cannot fill a server with the length of their keys.
const MAX_VALUE: usize = 64;

/// What stands in the braces of a key, and what tells a digest from a value of the same text.
///
/// The digest is the first half of SHA-256, in hexadecimal. It has no secret, so that all instances of all versions write the
/// same key. Without one, a client could look for two keys of its own that share a bucket (2^64 attempts), which would only
/// limit it sooner; to share somebody else's takes 2^128.
fn tag(value: &str) -> (&'static str, Cow<'_, str>) {
    if value.len() <= MAX_VALUE {
        return ("", Cow::Borrowed(value));
    }
    ("h", Cow::Owned(digest_of(value)))
}

fn digest_of(value: &str) -> String {
    let digest = digest(&SHA256, value.as_bytes());
    let mut text = String::with_capacity(32);
    for byte in &digest.as_ref()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key of a state: `tollkeeper:{VALUE}VARIANT:RULE`, or `tollkeeper:h{DIGEST}VARIANT:RULE` for a long value, with the store's namespace as its prefix.
///
/// Braces make the value the hash tag, so that the rules of one identity share a hash slot. Rule names have no
/// braces, so the last closing one ends the value, and no two states share a key.
pub(super) fn state_key(namespace: &str, rule: &str, key: &Key) -> String {
    let mut text = String::with_capacity(namespace.len() + rule.len() + key.value.len().min(MAX_VALUE) + 9);
    let (mark, value) = tag(&key.value);
    for piece in [namespace, ":", mark, "{", &value, "}"] {
        text.push_str(piece);
    }
    let _ = write!(text, "{}", key.variant);
    text.push(':');
    text.push_str(rule);
    text
}

/// The key that counts a bucket's refunds while estimates are unsettled: in the same hash slot, and never the key of
/// a state.
pub(super) fn refunded_key(namespace: &str, rule: &str, key: &Key) -> String {
    let (mark, value) = tag(&key.value);
    format!("{namespace}:r{mark}{{{value}}}{}:{rule}", key.variant)
}

/// The key of the places that an owner's reservations take, by a digest of its name.
pub(super) fn owner_key(namespace: &str, owner: &Owner<'_>) -> String {
    let (kind, name) = match owner {
        Owner::Key(name) => ("key", name),
        Owner::Peer(name) => ("peer", name),
    };
    format!("{namespace}:o{{{}}}{kind}", digest_of(name))
}

/// Stored times may lie past the last valid timestamp by one refill.
fn moment(micros: u64) -> Timestamp {
    Timestamp::default() + Span::from_micros(micros)
}

/// Parses the state of a bucket, window or counter. Anything else is [`State::Fresh`]: a foreign value. The state of
/// an algorithm that the rule no longer uses is left to `decide`.
pub(super) fn read_string(bytes: &[u8]) -> State {
    /// The first number that a script cannot count exactly.
    const EXACT: u64 = 1 << 53;
    /// Parts that need more have four bytes of their own.
    const PART_BITS: u32 = 22;
    let number =
        |from: usize, to: usize| bytes[from..to].iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let digits = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        text.and_then(|text| text.parse::<u64>().ok())
    };
    let small = |from: usize| number(from, from + 4) as u32;
    let state = match (bytes.first(), bytes.len()) {
        (Some(b'-'), 5..) => {
            let (at, tag) = bytes[1..].split_at(bytes.len() - 4);
            let bucket = |(at, tag)| (at, State::Bucket(Bucket { full_at: moment(at), part: 0, tag: tag as u16 }));
            digits(at).zip(digits(tag)).map(bucket)
        }
        // Written before there were tags.
        (Some(b'0'..=b'9'), _) => {
            digits(bytes).map(|at| (at, State::Bucket(Bucket { full_at: moment(at), part: 0, tag: 0 })))
        }
        // The tag is in the upper bits of the parts; 0 if there was none yet.
        (Some(b'b'), 12) => {
            let (at, tag, part) = (number(1, 8), (small(8) >> PART_BITS) as u16, small(8) & ((1 << PART_BITS) - 1));
            Some((at, State::Bucket(Bucket { full_at: moment(at), part, tag })))
        }
        (Some(b'b'), 14) => {
            let (at, tag) = (number(1, 8), number(12, 14) as u16);
            Some((at, State::Bucket(Bucket { full_at: moment(at), part: small(8), tag })))
        }
        (Some(b'w'), 12) => {
            let at = number(1, 8);
            Some((at, State::Window(Window { start: moment(at), admitted: small(8) })))
        }
        (Some(b'c'), 16) => {
            let at = number(1, 8);
            Some((at, State::Counter(Counter { start: moment(at), current: small(8), previous: small(12) })))
        }
        _ => None,
    };
    state.filter(|(at, _)| *at < EXACT).map_or(State::Fresh, |(_, state)| state)
}

/// The sum of what `refunds.lua` wrote, as [`Refunds::total`](tollkeeper_core::Refunds::total): `AT:AMOUNT,AT:AMOUNT/NTH`. What is not
/// of this form does not count.
pub(super) fn read_refunded(bytes: &[u8], now: Timestamp) -> u64 {
    let amount = |refund: &str| {
        let (at, back) = refund.split_once(':')?;
        let is_past = at.parse::<u64>().ok()? <= now.as_micros();
        back.split('/').next()?.parse::<u64>().ok().filter(|_| is_past)
    };
    std::str::from_utf8(bytes).unwrap_or_default().split(',').filter_map(amount).sum()
}

/// Parses the entries of a log: 7 bytes of microseconds, 3 bytes nth and 3 bytes cost each.
pub(super) fn read_log(bytes: &[u8]) -> State {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (entries, rest) = bytes.as_chunks::<13>();
    if entries.is_empty() || !rest.is_empty() {
        return State::Fresh;
    }
    let entry = |bytes: &[u8; 13]| Entry {
        hold: Hold { at: moment(number(&bytes[..7])), nth: number(&bytes[7..10]) as u32 },
        cost: number(&bytes[10..]) as u32,
    };
    State::Log(entries.iter().map(entry).collect::<Log>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(variant: u16, value: &str) -> Key {
        Key { variant, value: value.into() }
    }

    #[test]
    fn the_key_names_identity_first_so_that_its_rules_share_a_slot() {
        assert_eq!(state_key(NAMESPACE, "per-user", &key(0, "42")), "tollkeeper:{42}0:per-user");
    }

    /// 3,863 requests with a key of 62 KB each filled a server of 256 MB in six seconds.
    #[test]
    fn a_key_has_a_maximum_size() {
        let long = "x".repeat(62 << 10);
        let stored = state_key(NAMESPACE, "per-key", &key(3, &long));
        assert_eq!(stored, "tollkeeper:h{DIGEST}3:per-key".replace("DIGEST", &stored[13..45]));
        assert!(stored[13..45].bytes().all(|byte| byte.is_ascii_hexdigit()), "{stored}");
        assert_eq!(refunded_key(NAMESPACE, "per-key", &key(3, &long)), stored.replace(":h{", ":rh{"));
        // The rules of one client share a hash slot.
        assert_eq!(state_key(NAMESPACE, "other", &key(3, &long))[13..45], stored[13..45]);
        assert_ne!(state_key(NAMESPACE, "per-key", &key(3, &format!("{long}x"))), stored);
        // Somebody whose key is that digest has another bucket.
        assert_ne!(state_key(NAMESPACE, "per-key", &key(3, &stored[13..45])), stored);
        let longest = "y".repeat(MAX_VALUE);
        assert_eq!(state_key(NAMESPACE, "a", &key(0, &longest)), format!("tollkeeper:{{{longest}}}0:a"));
    }

    /// The same in every version, or instances of two versions would count a client twice.
    #[test]
    fn a_digest_never_changes() {
        let value = "0123456789".repeat(10);
        assert_eq!(state_key("t", "r", &key(0, &value)), "t:h{9cfe7faff7054298ca87557e15a10262}0:r");
    }

    #[test]
    fn no_two_states_share_a_key() {
        let pieces = ["", "}", "{", "}0:", "1", "0:a", "}1:b", "a", ":", "x}0:a"];
        let rules = ["a", "b", "0:a", "1:a", ":a", "a:0"];
        let mut seen = std::collections::HashMap::new();
        for first in pieces {
            for second in pieces {
                for variant in [0, 1, 10] {
                    for rule in rules {
                        let key = key(variant, &format!("v{first}{second}"));
                        let identity = (rule, key.clone());
                        let before = seen.insert(state_key(NAMESPACE, rule, &key), identity.clone());
                        assert!(before.is_none_or(|before| before == identity));
                    }
                }
            }
        }
    }

    #[test]
    fn a_fraction_of_a_microsecond_comes_with_its_tag() {
        let read = |parts: u32, rest: &[u8]| {
            let value = [&b"b\0\0\0\0\0\0\x05"[..], &parts.to_be_bytes(), rest].concat();
            read_string(&value)
        };
        let bucket = |part, tag| State::Bucket(Bucket { full_at: moment(5), part, tag });
        assert_eq!(read(999 << 22 | 6, &[]), bucket(6, 999));
        assert_eq!(read(6, &[]), bucket(6, 0), "written before there were tags");
        assert_eq!(read(u32::MAX, &[3, 231]), bucket(u32::MAX, 999), "more parts than fit beside a tag");
        assert_eq!(read(6, &[3, 231]), bucket(6, 999), "as 0.1.0 wrote all of them");
    }

    #[test]
    fn refunds_are_summed_as_this_version_and_0_1_0_wrote_them() {
        for (stored, total) in [
            ("", 0),
            ("0:1099511627776,10:6", (1 << 40) + 6),
            ("10:6/7,10:1/42,30:2", 9),
            ("10:6/7,30:2/3,31:5/8", 8),
            ("OK", 0),
        ] {
            assert_eq!(read_refunded(stored.as_bytes(), Timestamp::from_micros(30)), total, "{stored:?}");
        }
    }

    #[test]
    fn foreign_values_are_fresh() {
        for value in
            ["", "b", "b12", "-5", "+5", "1e15", "0x10", "12 ", "99999999999999999999", "9007199254740992", "OK"]
        {
            assert_eq!(read_string(value.as_bytes()), State::Fresh, "{value:?}");
        }
        assert_eq!(read_log(b"short"), State::Fresh);
    }
}
