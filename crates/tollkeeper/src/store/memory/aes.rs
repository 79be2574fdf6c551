//! AES-128 of one block, by the instructions that processors have for it: far less work than `SipHash`.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod processor {
    use std::arch::x86_64::{
        __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si64, _mm_set_epi64x,
        _mm_shuffle_epi32, _mm_slli_si128, _mm_unpackhi_epi64, _mm_xor_si128,
    };

    /// A key. There is one only if the processor has the instructions.
    pub(in super::super) struct Aes([__m128i; 11]);

    impl Aes {
        /// `None` if the processor lacks the instructions.
        pub(in super::super) fn new(key: u128) -> Option<Aes> {
            // SAFETY: the processor has the instructions.
            is_x86_feature_detected!("aes").then(|| Aes(unsafe { expand(key) }))
        }

        #[inline(always)]
        pub(in super::super) fn encrypt(&self, block: u128) -> u128 {
            // SAFETY: this key was made because the processor has the instructions.
            unsafe { encrypt(&self.0, block) }
        }
    }

    #[target_feature(enable = "aes")]
    fn encrypt(keys: &[__m128i; 11], block: u128) -> u128 {
        let [first, rounds @ .., last] = keys;
        let mut state = _mm_xor_si128(vector(block), *first);
        for key in rounds {
            state = _mm_aesenc_si128(state, *key);
        }
        let sealed = _mm_aesenclast_si128(state, *last);
        let (low, high) = (_mm_cvtsi128_si64(sealed), _mm_cvtsi128_si64(_mm_unpackhi_epi64(sealed, sealed)));
        u128::from(low as u64) | u128::from(high as u64) << 64
    }

    #[target_feature(enable = "aes")]
    fn expand(key: u128) -> [__m128i; 11] {
        let k0 = vector(key);
        let k1 = next_key::<0x01>(k0);
        let k2 = next_key::<0x02>(k1);
        let k3 = next_key::<0x04>(k2);
        let k4 = next_key::<0x08>(k3);
        let k5 = next_key::<0x10>(k4);
        let k6 = next_key::<0x20>(k5);
        let k7 = next_key::<0x40>(k6);
        let k8 = next_key::<0x80>(k7);
        let k9 = next_key::<0x1B>(k8);
        [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, next_key::<0x36>(k9)]
    }

    #[target_feature(enable = "aes")]
    fn next_key<const ROUND: i32>(key: __m128i) -> __m128i {
        let assist = _mm_shuffle_epi32::<0xFF>(_mm_aeskeygenassist_si128::<ROUND>(key));
        let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
        let key = _mm_xor_si128(key, _mm_slli_si128::<8>(key));
        _mm_xor_si128(key, assist)
    }

    #[target_feature(enable = "aes")]
    fn vector(block: u128) -> __m128i {
        _mm_set_epi64x((block >> 64) as i64, block as i64)
    }
}

// Miri and other processors.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod processor {
    /// Never made.
    pub(in super::super) enum Aes {}

    impl Aes {
        pub(in super::super) fn new(_: u128) -> Option<Aes> {
            None
        }

        pub(in super::super) fn encrypt(&self, _: u128) -> u128 {
            match *self {}
        }
    }
}

pub(super) use processor::Aes;

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of FIPS 197, appendices B and C.1.
    #[test]
    fn encrypts_as_the_standard_does() {
        let examples = [
            (
                0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c,
                0x3243_f6a8_885a_308d_3131_98a2_e037_0734,
                0x3925_841d_02dc_09fb_dc11_8597_196a_0b32,
            ),
            (
                0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
                0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
                0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a,
            ),
        ];
        for (key, plain, sealed) in
            examples.map(|(key, plain, sealed)| (u128::from_be(key), u128::from_be(plain), u128::from_be(sealed)))
        {
            if let Some(aes) = Aes::new(key) {
                assert_eq!(aes.encrypt(plain), sealed);
            }
        }
    }
}
