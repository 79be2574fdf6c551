//! Searching for a byte in short texts.

/// Where a byte is. Most values are shorter than the call of a general search takes, so the first bytes are looked at here, eight at a time
/// (Warren, *Hacker's Delight*: the first zero byte of a word).
#[inline]
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let wanted = ONES * u64::from(byte);
    for place in [0, 8] {
        let Some(eight) = text[place.min(text.len())..].first_chunk::<8>() else {
            return text[place.min(text.len())..].iter().position(|one| *one == byte).map(|at| place + at);
        };
        let differing = u64::from_le_bytes(*eight) ^ wanted;
        let equal = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
        if equal != 0 {
            return Some(place + equal.trailing_zeros() as usize / 8);
        }
    }
    memchr::memchr(byte, &text[16..]).map(|at| 16 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_its_kind_wherever_it_is() {
        for length in 0..40 {
            // Neighbours of the wanted byte, and one with the highest bit: what a search by words may take for it.
            let text: Vec<u8> = (0..length).map(|place| [b'!', 0x1f, 0xa0, b'a'][place % 4]).collect();
            assert_eq!(find(b' ', &text), None);
            for at in 0..length {
                let mut text = text.clone();
                text[at] = b' ';
                assert_eq!(find(b' ', &text), Some(at), "{text:?}");
                text[length - 1] = b' ';
                assert_eq!(find(b' ', &text), Some(at), "{text:?}");
            }
        }
    }
}
