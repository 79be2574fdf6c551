//! Inline commands, as people type them: words between spaces, with Redis' quotes.

/// The words of a line; `None` when a quote is not closed, or is followed by anything but a space.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    // A zero ends the line, as it does in C.
    let end = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
    let mut rest = line[..end].trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// A word may start unquoted and continue in quotes, but a closing quote ends it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    while let [byte, after @ ..] = rest {
        match byte {
            space if space.is_ascii_whitespace() => break,
            quote @ (b'"' | b'\'') => {
                let after = quoted(after, *quote, &mut word)?;
                let is_end = after.first().is_none_or(u8::is_ascii_whitespace);
                return is_end.then_some((word, after));
            }
            plain => word.push(*plain),
        }
        rest = after;
    }
    Some((word, rest))
}

/// Appends what is before the closing quote, and returns what follows it.
fn quoted<'l>(mut rest: &'l [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, after) = match rest {
            [] => return None,
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (digit(*high) << 4 | digit(*low), after)
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => (control(*escaped), after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => (b'\'', after),
            [byte, after @ ..] if *byte == quote => return Some(after),
            [byte, after @ ..] => (*byte, after),
        };
        word.push(byte);
        rest = after;
    }
}

fn digit(hex: u8) -> u8 {
    char::from(hex).to_digit(16).unwrap_or(0) as u8
}

fn control(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_are_those_of_redis() {
        let words = |line: &str| {
            split(line.as_bytes()).map(|words| words.iter().map(|word| word.escape_ascii().to_string()).collect())
        };
        let some = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words("PING"), some(&["PING"]));
        assert_eq!(words("  ECHO   a b "), some(&["ECHO", "a", "b"]));
        assert_eq!(words(r#"ECHO "a b" 'c d'"#), some(&["ECHO", "a b", "c d"]));
        assert_eq!(words(r#"ECHO "\x41\n\"\\" '\'\n'"#), some(&["ECHO", r#"A\n\"\\"#, r"\'\\n"]));
        assert_eq!(words(r#"ECHO "" x"y z""#), some(&["ECHO", "", "xy z"]));
        for unbalanced in [r#"ECHO "a"#, "ECHO 'a", r#"ECHO "a"b"#, "ECHO 'a'b", r#"ECHO "a\"#] {
            assert_eq!(words(unbalanced), None, "{unbalanced}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = split(&line);
        }

        #[test]
        fn words_in_quotes_are_kept(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..10), 1..5)) {
            let hex = |word: &Vec<u8>| word.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
            let line: Vec<String> = words.iter().map(|word| format!("\"{}\"", hex(word))).collect();
            prop_assert_eq!(split(line.join(" ").as_bytes()), Some(words));
        }
    }
}
