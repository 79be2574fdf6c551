//! The bytes of a key, as they are written, and their keyed 128-bit hash.
//!
//! Up to 16 bytes are one block of AES, if the processor has instructions for it. All others go through SipHash-1-3. Which of the two
//! it is depends on the length alone, and each has a secret of its own.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::aes::Aes;

/// The bytes of a block of AES.
const BLOCK: usize = 16;

/// The secret of blocks.
pub(super) struct Cipher {
    pub(super) aes: Aes,
    /// A shorter message ends with its length. A full block has no room for it and gets this instead, as in XCBC-MAC.
    pub(super) full: u128,
}

impl Cipher {
    #[inline(always)]
    fn hash(&self, message: u128, length: usize) -> (u64, u64) {
        let end = if length == BLOCK { self.full } else { (length as u128) << 120 };
        let sealed = self.aes.encrypt(message ^ end);
        (sealed as u64, (sealed >> 64) as u64)
    }
}

/// What was written so far.
pub(super) struct Message<'s> {
    /// `None` if the message is not a block: SipHash has all of it.
    cipher: Option<&'s Cipher>,
    siphash: SipHasher13,
    /// The bytes of a block, the first one lowest.
    block: u128,
    length: usize,
}

impl<'s> Message<'s> {
    #[inline(always)]
    pub(super) fn new(cipher: Option<&'s Cipher>, siphash: SipHasher13) -> Message<'s> {
        Message { cipher, siphash, block: 0, length: 0 }
    }

    /// The bytes and their number, if they are a block.
    #[inline(always)]
    pub(super) fn short(&self) -> Option<(u128, usize)> {
        self.cipher.map(|_| (self.block, self.length))
    }

    /// Both halves of the hash.
    #[inline(always)]
    pub(super) fn finish128(&self) -> (u64, u64) {
        match self.cipher {
            Some(cipher) => cipher.hash(self.block, self.length),
            None => {
                let hash = self.siphash.finish128();
                (hash.h1, hash.h2)
            }
        }
    }

    /// Whether the message is a block even with this many more bytes. If not, SipHash gets what there is.
    #[inline(always)]
    fn is_block_with(&mut self, more: usize) -> bool {
        let is_block = self.cipher.is_some() && self.length + more <= BLOCK;
        if !is_block && self.cipher.take().is_some() {
            self.siphash.write(&self.block.to_le_bytes()[..self.length]);
        }
        is_block
    }

    #[inline(always)]
    fn append(&mut self, bytes: u128, count: usize) {
        // After a full block there is nothing to shift.
        self.block |= bytes.wrapping_shl(8 * self.length as u32);
        self.length += count;
    }
}

impl Hasher for Message<'_> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        if self.is_block_with(bytes.len()) {
            self.append(little_endian(bytes), bytes.len());
        } else {
            self.siphash.write(bytes);
        }
    }

    #[inline(always)]
    fn write_u8(&mut self, byte: u8) {
        if self.is_block_with(size_of_val(&byte)) {
            self.append(byte.into(), size_of_val(&byte));
        } else {
            self.siphash.write_u8(byte);
        }
    }

    #[inline(always)]
    fn write_u16(&mut self, number: u16) {
        if self.is_block_with(size_of_val(&number)) {
            self.append(number.into(), size_of_val(&number));
        } else {
            self.siphash.write_u16(number);
        }
    }

    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        if self.is_block_with(size_of_val(&number)) {
            self.append(number.into(), size_of_val(&number));
        } else {
            self.siphash.write_u32(number);
        }
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        if self.is_block_with(size_of_val(&number)) {
            self.append(number.into(), size_of_val(&number));
        } else {
            self.siphash.write_u64(number);
        }
    }

    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        if self.is_block_with(size_of_val(&number)) {
            self.append(number as u128, size_of_val(&number));
        } else {
            self.siphash.write_usize(number);
        }
    }

    /// Half of the hash.
    fn finish(&self) -> u64 {
        self.finish128().0
    }
}

/// At most a block of bytes as a number, without a loop: what is read twice is the same both times.
#[inline(always)]
fn little_endian(bytes: &[u8]) -> u128 {
    let count = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u128::from(u64::from_le_bytes(*first)) | u128::from(u64::from_le_bytes(*last)) << (8 * (count - 8));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return (u64::from(first) | u64::from(last) << (8 * (count - 4))).into();
    }
    let byte = |at: usize| u32::from(bytes[at]) << (8 * at);
    if count == 0 { 0 } else { (byte(0) | byte(count / 2) | byte(count - 1)).into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the bytes come, and with every length.
        #[test]
        fn a_short_message_is_a_block_and_a_long_one_goes_through_siphash(
            key: u128, full: u128, k0: u64, k1: u64, pieces in prop::collection::vec(piece(), 0..6),
        ) {
            let cipher = Aes::new(key).map(|aes| Cipher { aes, full });
            let siphash = SipHasher13::new_with_keys(k0, k1);
            let mut message = Message::new(cipher.as_ref(), siphash);
            pieces.iter().for_each(|piece| piece.write(&mut message));
            let bytes = pieces.iter().flat_map(Piece::bytes).collect::<Vec<u8>>();
            let expected = match &cipher {
                Some(cipher) if bytes.len() <= BLOCK => {
                    let mut block = [0; BLOCK];
                    block[..bytes.len()].copy_from_slice(&bytes);
                    if bytes.len() < BLOCK {
                        block[BLOCK - 1] = bytes.len() as u8;
                    } else {
                        block = (u128::from_le_bytes(block) ^ full).to_le_bytes();
                    }
                    let sealed = cipher.aes.encrypt(u128::from_le_bytes(block));
                    (sealed as u64, (sealed >> 64) as u64)
                }
                _ => {
                    let hash = siphash.hash(&bytes);
                    (hash.h1, hash.h2)
                }
            };
            prop_assert_eq!(message.finish128(), expected, "{:?}", bytes);
        }

        #[test]
        fn bytes_are_read_in_order(bytes in prop::collection::vec(any::<u8>(), 0..=BLOCK)) {
            let expected = bytes.iter().rev().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
            prop_assert_eq!(little_endian(&bytes), expected);
        }
    }

    #[derive(Clone, Debug)]
    enum Piece {
        Bytes(Vec<u8>),
        U8(u8),
        U16(u16),
        U32(u32),
        U64(u64),
        Usize(usize),
    }

    impl Piece {
        fn write(&self, hasher: &mut impl Hasher) {
            match self {
                Piece::Bytes(bytes) => hasher.write(bytes),
                Piece::U8(number) => hasher.write_u8(*number),
                Piece::U16(number) => hasher.write_u16(*number),
                Piece::U32(number) => hasher.write_u32(*number),
                Piece::U64(number) => hasher.write_u64(*number),
                Piece::Usize(number) => hasher.write_usize(*number),
            }
        }

        fn bytes(&self) -> Vec<u8> {
            match self {
                Piece::Bytes(bytes) => bytes.clone(),
                Piece::U8(number) => vec![*number],
                Piece::U16(number) => number.to_le_bytes().into(),
                Piece::U32(number) => number.to_le_bytes().into(),
                Piece::U64(number) => number.to_le_bytes().into(),
                Piece::Usize(number) => number.to_le_bytes().into(),
            }
        }
    }

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Piece::Bytes),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Piece::Bytes),
            any::<u8>().prop_map(Piece::U8),
            any::<u16>().prop_map(Piece::U16),
            any::<u32>().prop_map(Piece::U32),
            any::<u64>().prop_map(Piece::U64),
            any::<usize>().prop_map(Piece::Usize),
        ]
    }
}
