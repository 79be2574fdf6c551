//! The identity of an entry: a keyed 128-bit hash of rule and key (SipHash), or of a key without rules (AES if it is short).
//!
//! One half is compared, the other half places the entry in a small table. In a larger one the first half places it too, in part. Two buckets
//! are confused only if they agree in all of that, and without the secret an attacker cannot search for such a pair.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};
use tollkeeper_core::{Key, Quota};

use super::aes::Aes;
use super::message::{Cipher, Message};
use super::recent::{Short, recall};

/// A bucket's name within a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    /// The fingerprint, as in an entry at its home slot.
    pub(super) tag: u64,
    /// Chooses the shard and, with the highest bits of the tag, the home slot.
    pub(in crate::store) place: u64,
}

impl Id {
    /// From both halves of a hash.
    #[inline(always)]
    fn new((place, tag): (u64, u64)) -> Id {
        Id { tag: tag & !DISTANCE | 1, place }
    }

    /// One of [`CLASSES`], which a client cannot choose without the secret.
    pub(super) fn class(self) -> u8 {
        (self.tag >> 8) as u8 % CLASSES
    }
}

/// New keys without room share a bucket with one in this many of all keys.
pub(super) const CLASSES: u8 = 64;

/// The lowest byte of a tag is not part of the fingerprint: it is 1 plus the entry's distance from its home slot. So
/// a tag is never 0, and entries with different homes never compare equal.
pub(super) const DISTANCE: u64 = 0xFF;

/// The random seed that makes the hashes of one table unpredictable.
pub(crate) struct Secret {
    siphash: (u64, u64),
    /// If the processor has instructions for it.
    cipher: Option<Cipher>,
}

impl Secret {
    /// Nearly all buckets are this short. To hash pieces one by one takes longer than to put them together first.
    const AT_ONCE: usize = 64;

    pub(crate) fn random() -> Secret {
        let draw = || RandomState::new().hash_one(0_u8);
        let draw_block = || u128::from(draw()) << 64 | u128::from(draw());
        let cipher = Aes::new(draw_block()).map(|aes| Cipher { aes, full: draw_block() });
        Secret { siphash: (draw(), draw()), cipher }
    }

    /// Made again for each key: the compiler then knows that nothing has been hashed yet.
    #[inline]
    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.siphash.0, self.siphash.1)
    }

    /// The bucket of a rule. 0xFF does not occur in UTF-8 and the variant has a fixed length, so no two buckets hash
    /// the same bytes.
    #[inline]
    pub(crate) fn bucket(&self, rule: &str, key: &Key) -> Id {
        let ([low, high], mut hasher) = (key.variant.to_le_bytes(), self.hasher());
        let (rule, between, value) = (rule.as_bytes(), [0xFF, low, high], key.value.as_bytes());
        let (begin, end) = (rule.len() + between.len(), rule.len() + between.len() + value.len());
        let mut whole = [0; Secret::AT_ONCE];
        if end <= whole.len() {
            whole[..rule.len()].copy_from_slice(rule);
            whole[rule.len()..begin].copy_from_slice(&between);
            whole[begin..end].copy_from_slice(value);
            hasher.write(&whole[..end]);
        } else {
            [rule, &between, value].into_iter().for_each(|piece| hasher.write(piece));
        }
        Id::from(hasher)
    }

    /// The bucket that new keys of a rule share when there is no room, one for each class of keys and for each quota:
    /// a caller may bring its own numbers. 0xFE does not occur in UTF-8 either.
    pub(super) fn overflow(&self, rule: &str, quota: &Quota, class: u8) -> Id {
        let mut hasher = self.hasher();
        hasher.write(rule.as_bytes());
        hasher.write(&[0xFE, class]);
        hasher.write(quota.algorithm().name().as_bytes());
        hasher.write_u32(quota.count());
        hasher.write_u32(quota.limit());
        hasher.write_u64(quota.period().as_micros());
        if let Some(calendar) = quota.calendar() {
            calendar.hash(&mut hasher);
        }
        Id::from(hasher)
    }

    /// The only bucket of a key, for one quota without rules.
    #[inline]
    pub(crate) fn key(&self, key: &(impl Hash + ?Sized)) -> Id {
        let mut message = Message::new(self.cipher.as_ref(), self.hasher());
        key.hash(&mut message);
        let hash = || message.finish128();
        Id::new(match message.short() {
            Some((bytes, length)) => recall(Short { bytes, length, secret: self.siphash }, hash),
            None => hash(),
        })
    }
}

impl From<SipHasher13> for Id {
    #[inline]
    fn from(hasher: SipHasher13) -> Id {
        let hash = hasher.finish128();
        Id::new((hash.h1, hash.h2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_variant_and_value_cannot_run_into_each_other() {
        let secret = Secret::random();
        let id = |rule: &str, variant, value: &str| secret.bucket(rule, &Key { variant, value: value.into() });
        assert_ne!(id("ab", 0, "c"), id("a", 0, "bc"));
        assert_ne!(id("a", 0, "b"), id("a", 1, "b"));
        assert_ne!(id("a", 0x6261, "c"), id("a", 0x62, "ac"));
        assert_eq!(id("a", 0, "b"), id("a", 0, "b"));
    }

    #[test]
    fn every_table_has_a_secret_of_its_own() {
        assert_ne!(Secret::random().key("a"), Secret::random().key("a"));
    }
}
