//! Fuzz targets for input from outside: a function for each parser, with the properties that must hold for any bytes.
//!
//! `cargo fuzz run TARGET` in `fuzz/` searches for bytes that break one; the tests below try a fixed number of
//! mutations of its corpora in every test run. Compiled for tests and for fuzzing only.

use std::path::Path;

use prost::Message as _;

use crate::front::grpc::envoy::RateLimitRequest;
use crate::front::{grpc, proxy, resp};
use crate::import::{SameDomain, envoy_ratelimit};
use crate::settings::parse;
use crate::wire;
use crate::{rules, strict};

/// Reads bytes, and panics if a law is broken.
pub type Target = fn(&[u8]);

/// All targets, by the name of their corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("rules_file", rules_file),
    ("bodies", bodies),
    ("resp", resp::fuzz),
    ("rls", rls),
    ("envoy_import", envoy_import),
    ("framing", proxy::fuzz_framing),
    ("query", query),
];

/// The target of this name.
#[cfg(fuzzing)]
pub fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("one of the targets").1
}

/// A message must not repeat more of the input than fits on a screen.
fn assert_short(message: &str) {
    assert!(message.len() < 4_000, "a message of {} bytes: {}...", message.len(), &message[..200]);
}

/// A configuration file. Accepted rules are written and read back unchanged.
pub fn rules_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse(Path::new("fuzz.yaml"), text) {
        Ok(read) => {
            let written = rules::yaml(&read.config.rules);
            let again = parse(Path::new("written.yaml"), &written)
                .unwrap_or_else(|error| panic!("what was written is refused: {error:?}\n{written}"));
            assert_eq!(again.config.rules, read.config.rules, "{written}");
        }
        Err(error) => error.problems.iter().for_each(|problem| assert_short(&problem.to_string())),
    }
}

/// The bodies of the HTTP API and the lines of `replay`.
pub fn bodies(bytes: &[u8]) {
    let refused = [
        wire::parse_check(bytes).err(),
        wire::parse_release(bytes).err(),
        wire::parse_reserve(bytes).err(),
        wire::parse_settle(bytes).err(),
    ];
    refused.into_iter().flatten().for_each(|invalid| assert_short(&invalid.to_string()));
    if let Ok(line) = std::str::from_utf8(bytes)
        && let Err(message) = wire::parse_event(line)
    {
        assert_short(&message);
    }
}

/// A message from Envoy.
pub fn rls(bytes: &[u8]) {
    if let Ok(message) = RateLimitRequest::decode(bytes)
        && let Err(status) = grpc::fuzz(message)
    {
        assert_short(status.message());
    }
}

/// A file of envoyproxy/ratelimit. An imported file is a valid configuration.
pub fn envoy_import(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(imported) = envoy_ratelimit(&[("fuzz.yaml".into(), text.into())], SameDomain::Refused) {
        parse(Path::new("imported.yaml"), &imported.yaml)
            .unwrap_or_else(|error| panic!("what was imported is refused: {error:?}\n{}", imported.yaml));
    }
}

/// The query of a request for the audit.
pub fn query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read: Result<std::collections::BTreeMap<String, String>, _> = strict::query(Some(text), "send a=b");
    if let Err(invalid) = read {
        assert_short(&invalid.to_string());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    /// SplitMix64.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ (word >> 31)) as usize % bound.max(1)
        }
    }

    /// Bytes that have a meaning for the parsers.
    const MEANINGFUL: &[&[u8]] = &[
        b"\r\n",
        b"*",
        b"$",
        b"-1",
        b"18446744073709551616",
        b"{",
        b"}",
        b"[",
        b"&a ",
        b"*a",
        b"<<: ",
        b"\0",
        b"\xff",
        b"'",
        b"\"",
        b": ",
        b"- ",
        b"!",
        b"%2f",
        b"1e999",
        b"0.5/s",
        b"null",
        b"\xf0\x9f\x9a\xa6",
        b"\t",
        b"chunked",
    ];

    /// Replaces, removes, duplicates or inserts something, a few times.
    fn mutate(seed: &[u8], others: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + chance.below(6) {
            let at = chance.below(bytes.len() + 1);
            let to = (at + chance.below(24)).min(bytes.len());
            match chance.below(5) {
                0 => drop(bytes.splice(at..to, [])),
                1 => drop(bytes.splice(at..at, bytes[at..to].to_vec())),
                2 => drop(bytes.splice(at..to, MEANINGFUL[chance.below(MEANINGFUL.len())].iter().copied())),
                3 => {
                    let other = &others[chance.below(others.len())];
                    drop(bytes.splice(at..to, other[chance.below(other.len())..].iter().copied().take(64)));
                }
                _ => drop(bytes.splice(at..to, [chance.below(256) as u8])),
            }
        }
        bytes.truncate(16 * 1024);
        bytes
    }

    #[test]
    fn no_bytes_break_a_reader() {
        let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for (name, target) in TARGETS {
            let files = fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"));
            let mut seeds: Vec<Vec<u8>> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
            seeds.sort();
            assert!(!seeds.is_empty(), "fuzz/corpus/{name} is empty");
            seeds.iter().for_each(|seed| target(seed));
            let mut chance = Chance(0x7011);
            for _ in 0..1_500 {
                let bytes = mutate(&seeds[chance.below(seeds.len())], &seeds, &mut chance);
                if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                    panic!("{name} breaks on {:?}", String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
