//! Credentials in their usual spelling: however a client writes them, servers accept them as the same.

use std::borrow::Cow;

/// The value of an `Authorization` header in the usual spelling: the scheme is case-insensitive and may be followed by
/// several spaces (RFC 9110 11.4), so `bearer  abc` is `Bearer abc`.
///
/// Base64 has many spellings too: most decoders skip characters that do not belong to it, accept both of its alphabets and do
/// not look at padding and at the bits left over in the last character. That concerns `Basic`, and the signature of a JSON
/// web token; the rest of a token is signed as it is written.
pub(super) fn usual(value: Cow<'_, str>) -> Cow<'_, str> {
    let Some((scheme, rest)) = value.split_once([' ', '\t']) else { return value };
    let capital = |(index, letter): (usize, char)| match index {
        0 => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    let (scheme, rest) = (scheme.chars().enumerate().map(capital).collect::<String>(), rest.trim());
    let rest = match scheme.as_str() {
        "Basic" => Cow::Owned(base64(rest, b"+/", Padding::Usual)),
        _ => signed(rest),
    };
    let usual = format!("{scheme} {rest}");
    if usual == *value { value } else { Cow::Owned(usual) }
}

/// A JSON web token with its signature in the usual spelling; anything else as it is.
fn signed(token: &str) -> Cow<'_, str> {
    // `ey` is `{` and what can follow it in a JSON object.
    let parts = token.rsplit_once('.').filter(|(said, _)| said.starts_with("ey") && said.matches('.').count() == 1);
    match parts {
        Some((said, signature)) => Cow::Owned(format!("{said}.{}", base64(signature, b"-_", Padding::None))),
        None => Cow::Borrowed(token),
    }
}

/// What follows the last character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    None,
    /// As many `=` as make up a multiple of four.
    Usual,
}

/// What decoders make of a text in base64, encoded again. `last` are the last two letters of the alphabet.
fn base64(text: &str, last: &[u8; 2], padding: Padding) -> String {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    // Padding ends it.
    let mut sextets: Vec<u8> = text.bytes().take_while(|byte| *byte != b'=').filter_map(sextet).collect();
    let rest = sextets.len() % 4;
    if rest == 1 {
        // Less than a byte.
        sextets.pop();
    } else if let Some(end) = sextets.last_mut().filter(|_| rest > 1) {
        // Two of them are one byte and four bits, three are two bytes and two bits.
        *end &= if rest == 2 { 0b11_0000 } else { 0b11_1100 };
    }
    let letter = |sextet: &u8| match sextet {
        0..26 => b'A' + sextet,
        26..52 => b'a' + sextet - 26,
        52..62 => b'0' + sextet - 52,
        62 => last[0],
        _ => last[1],
    };
    let mut usual: String = sextets.iter().map(|sextet| char::from(letter(sextet))).collect();
    if padding == Padding::Usual {
        (usual.len()..usual.len().next_multiple_of(4)).for_each(|_| usual.push('='));
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &str) -> String {
        usual(Cow::Borrowed(value)).into_owned()
    }

    /// `Basic YTpi` and `Basic YTp.i` are the same user to Node and to Python, and each spelling had a bucket of its own.
    #[test]
    fn basic_credentials_are_one_value_however_base64_is_written() {
        for spelled in
            ["YTpiYw==", "YTpiYw", "YTpiYx==", "YT.piYw==", "YTpi Yw==", "YTpiYw==AAAA", "YTpiYw===", "YTpiYw==="]
        {
            assert_eq!(shown(&format!("Basic {spelled}")), "Basic YTpiYw==", "{spelled}");
        }
        for spelled in ["YTpi", "Y!T~pi", "YTpiA", "YTpi="] {
            assert_eq!(shown(&format!("Basic {spelled}")), "Basic YTpi", "{spelled}");
        }
        for spelled in ["Pj4+Pz8/", "Pj4-Pz8_"] {
            assert_eq!(shown(&format!("Basic {spelled}")), "Basic Pj4+Pz8/", "{spelled}");
        }
        assert_ne!(shown("Basic YTpi"), shown("Basic YTpj"));
    }

    /// The last letter of a signature has bits that no decoder looks at: a token of 256 bits had four spellings, and with
    /// decoders that skip other characters as many as a client liked.
    #[test]
    fn a_web_token_is_one_value_however_its_signature_is_written() {
        // 32 bytes: 42 letters, and one with two bits to spare.
        let (said, signature) = ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0", "A".repeat(42));
        for spelled in ["A", "B", "C", "D", "A=", "A~", "A.=", "~A"] {
            let token = format!("Bearer {said}.{signature}{}", spelled.replace('.', "!"));
            assert_eq!(shown(&token), format!("Bearer {said}.{signature}A"), "{spelled}");
        }
        assert_ne!(shown(&format!("Bearer {said}.{signature}E")), shown(&format!("Bearer {said}.{signature}A")));
        // The other parts are signed as they are, and other tokens are compared as they are.
        for kept in ["Bearer eyJ.B.", "Bearer abc.def.ghB", "Bearer eyJ.ghB", "Bearer eyJ.a.b.cB", "Token sk_live=B!"] {
            assert_eq!(shown(kept), kept);
        }
    }
}
