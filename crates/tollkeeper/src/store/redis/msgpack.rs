//! The part of MessagePack that a script's argument needs: an array of integers.

/// The array, each integer in the fewest bytes.
pub(super) fn integers(numbers: &[i64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(numbers.len() + numbers.len() / 2 + 16);
    match numbers.len() {
        length @ 0..=15 => out.push(0x90 | length as u8),
        length @ 16..=0xffff => tagged(&mut out, 0xdc, &(length as u16).to_be_bytes()),
        length => tagged(&mut out, 0xdd, &(length as u32).to_be_bytes()),
    }
    for number in numbers {
        match *number {
            number @ -32..=127 => out.push(number as i8 as u8),
            number @ 128..=0xff => out.extend([0xcc, number as u8]),
            number @ 0x100..=0xffff => tagged(&mut out, 0xcd, &(number as u16).to_be_bytes()),
            number @ 0x1_0000..=0xffff_ffff => tagged(&mut out, 0xce, &(number as u32).to_be_bytes()),
            number @ 0.. => tagged(&mut out, 0xcf, &number.to_be_bytes()),
            number => tagged(&mut out, 0xd3, &number.to_be_bytes()),
        }
    }
    out
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_the_fewest_bytes() {
        assert_eq!(integers(&[0, 127, 128, -1, -32]), [0x95, 0, 127, 0xcc, 128, 0xff, 0xe0]);
        assert_eq!(integers(&[256, 65_536]), [0x92, 0xcd, 1, 0, 0xce, 0, 1, 0, 0]);
        assert_eq!(integers(&[1 << 40, -33])[..2], [0x92, 0xcf]);
        assert_eq!(integers(&[1; 16])[..3], [0xdc, 0, 16]);
    }
}
