//! A token: generated or configured, compared in constant time, never printed by accident.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::anyhow;
use data_encoding::BASE64URL_NOPAD;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// At 40 guesses a second, this length is out of reach.
    const SHORTEST: usize = 16;
    /// The fewest different characters: `aaaaaaaaaaaaaaaa` is long, but weak.
    const FEWEST: usize = 6;

    pub fn new(text: String) -> Token {
        Token(text)
    }

    /// A new one with 192 random bits.
    pub fn make() -> anyhow::Result<Token> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes).map_err(|error| anyhow!("the system cannot provide random numbers: {error}"))?;
        Ok(Token(BASE64URL_NOPAD.encode(&bytes)))
    }

    /// Why a token could be guessed, and what to do instead.
    pub fn weakness(text: &str) -> Option<String> {
        const FIX: &str = "use a random one, such as the output of `openssl rand -hex 16`";
        let length = text.chars().count();
        let lower = text.to_ascii_lowercase();
        let known = ["changeme", "change-me", "change_me", "password", "12345678", "qwerty"];
        if text.trim().is_empty() {
            return Some(format!("is empty; {FIX}, or remove it"));
        }
        if !text.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return Some(format!("has spaces or characters that a header cannot contain; {FIX}"));
        }
        if length < Token::SHORTEST {
            let s = if length == 1 { "" } else { "s" };
            return Some(format!("has {length} character{s} and can be guessed; {} or more: {FIX}", Token::SHORTEST));
        }
        if text.chars().collect::<BTreeSet<char>>().len() < Token::FEWEST {
            return Some(format!("repeats a few characters and can be guessed; {FIX}"));
        }
        let word = known.iter().find(|word| lower.contains(*word))?;
        Some(format!("contains {word:?}, which is easy to guess; {FIX}"))
    }

    /// Compares in constant time, which does not reveal how much of it is right.
    pub fn is(&self, given: &[u8]) -> bool {
        let digest = |bytes: &[u8]| digest(&SHA256, bytes);
        digest(self.0.as_bytes()).as_ref().ct_eq(digest(given).as_ref()).into()
    }

    /// The secret itself, for the places that must show it.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// It stays out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_guessed_is_refused_with_the_fix() {
        for (weak, said) in [
            ("", "is empty"),
            ("  ", "is empty"),
            ("t", "has 1 character and"),
            ("sesame", "has 6 characters and can be guessed; 16 or more"),
            ("aaaaaaaaaaaaaaaaaaaa", "repeats a few characters"),
            ("ChangeMe-ChangeMe-1", "contains \"changeme\""),
            ("correct horse battery", "has spaces"),
            ("pässwörter-sind-lang", "characters that a header cannot contain"),
        ] {
            let problem = Token::weakness(weak).unwrap_or_else(|| panic!("{weak:?} is not strong"));
            assert!(problem.contains(said) && problem.contains("openssl rand -hex 16"), "{weak:?}: {problem}");
        }
        for strong in ["9f8e7d6c5b4a3f2e", "b7zQ-0x8kLmN_pqR", "correct-horse-battery-staple"] {
            assert_eq!(Token::weakness(strong), None, "{strong}");
        }
    }
}
