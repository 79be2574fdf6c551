//! Hashes of texts: the same in every run, so that reports can be compared, and fast, because every line needs several.
//!
//! Two words at a time are multiplied to 128 bits and folded, as wyhash and its relatives do. The samples of keys need hashes that are
//! spread evenly; they need no secret, because a log is read after the fact.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

/// Of a text, and of a number that tells equal texts apart.
pub(crate) fn hash_of(number: u64, text: &[u8]) -> u64 {
    let mut hash = fold(SEED ^ number, ODD ^ text.len() as u64);
    let mut rest = text;
    while let Some((sixteen, after)) = rest.split_first_chunk::<16>().filter(|(_, after)| !after.is_empty()) {
        let (first, second) = halves(sixteen);
        hash = fold(first ^ hash, second ^ ODD);
        rest = after;
    }
    let (first, second) = ends(rest);
    fold(fold(first ^ hash, second ^ MIX) ^ ODD, MIX)
}

/// Of a hash, and of a number that tells equal hashes apart.
pub(crate) fn rehash(number: u64, hash: u64) -> u64 {
    fold(fold(hash ^ SEED, ODD ^ number) ^ hash, MIX)
}

/// Up to sixteen bytes as two words that overlap if they are fewer: of one length, no two texts give the same. Copying them would call
/// a function.
fn ends(text: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
    } else {
        let byte = |place: usize| text.get(place).copied().map_or(0, u64::from);
        (byte(0), byte(1) << 8 | byte(2))
    }
}

fn halves(sixteen: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*sixteen);
    (both as u64, (both >> 64) as u64)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Takes a hash as it is. A table uses the highest and the lowest bits, and samples hold keys whose highest bits are all zero, so the halves
/// are swapped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_of(self.0, bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(32);
    }
}

/// Values by a hash.
pub(crate) type ByHash<T> = HashMap<u64, T, BuildHasherDefault<AsIs>>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_little_have_hashes_that_differ_much() {
        let texts: Vec<String> = (0..200_000).map(|n| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)).collect();
        let hashes: HashSet<u64> = texts.iter().map(|text| hash_of(0, text.as_bytes())).collect();
        assert_eq!(hashes.len(), texts.len());
        // Each bit is set in half of them, within four standard errors.
        for bit in 0..64 {
            let set = hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count() as f64;
            assert!((set - 100_000.0).abs() < 4.0 * 224.0, "bit {bit}: {set}");
        }
    }

    #[test]
    fn length_number_and_every_byte_count() {
        let texts: [&[u8]; 6] = [b"", b"\0", b"\0\0", &[0; 16], &[0; 17], &[0; 32]];
        let hashes: HashSet<u64> = texts.iter().flat_map(|text| [0, 1].map(|number| hash_of(number, text))).collect();
        assert_eq!(hashes.len(), 12);
        let again: HashSet<u64> = hashes.iter().flat_map(|hash| [0, 1].map(|number| rehash(number, *hash))).collect();
        assert_eq!(again.len(), 24);
        for length in 1..40 {
            let mut text = vec![7; length];
            let mut hashes = HashSet::from([hash_of(0, &text)]);
            for place in 0..length {
                text[place] ^= 1;
                hashes.insert(hash_of(0, &text));
                text[place] ^= 1;
            }
            assert_eq!(hashes.len(), length + 1, "every byte of {length}");
        }
    }
}
