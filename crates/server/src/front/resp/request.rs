//! Parses commands: arrays of bulk strings, or inline commands.
//!
//! Nothing is kept between calls: an incomplete command is parsed again from its first byte, which is cheap because
//! commands are short. Every length is compared with its limit before anything is waited for.

use std::borrow::Cow;

use super::inline;

/// The longest command in bytes, lengths included.
pub(super) const MAX_COMMAND: usize = 64 * 1024;
/// The most words of a command.
pub(super) const MAX_WORDS: usize = 1_024;
/// The longest line with a length: a sign, the digits of a 64-bit integer, and a few leading zeros.
const MAX_LENGTH_LINE: usize = 32;

/// The name of a command or an argument. Only inline ones have to be copied, because of their quotes.
pub(super) type Word<'b> = Cow<'b, [u8]>;

/// What the first bytes of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The beginning of a command.
    Incomplete,
    /// A command, and how many bytes it took. An empty line or array has no words and gets no answer.
    Command(usize),
}

/// Why the input is not a command. The start of the next one is then unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("invalid multibulk length")]
    Words,
    #[error("invalid bulk length")]
    Length,
    #[error("expected '$', got {0:?}")]
    NoBulk(char),
    #[error("too big {0} string")]
    LongLine(&'static str),
    #[error("too big inline request")]
    LongInline,
    #[error("too big command, the largest is {MAX_COMMAND} bytes")]
    LongCommand,
    #[error("a bulk string does not end where its length says")]
    NoEnd,
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// Reads the first command. Its words take the place of those that are there, in the same memory.
pub(super) fn parse<'b>(bytes: &'b [u8], words: &mut Vec<Word<'b>>) -> Result<Parsed, ProtocolError> {
    words.clear();
    match bytes.first() {
        None => Ok(Parsed::Incomplete),
        Some(b'*') => array(bytes, words),
        Some(_) => line(bytes, words),
    }
}

fn line<'b>(bytes: &'b [u8], words: &mut Vec<Word<'b>>) -> Result<Parsed, ProtocolError> {
    let Some(end) = bytes.iter().take(MAX_COMMAND).position(|byte| *byte == b'\n') else {
        return if bytes.len() >= MAX_COMMAND { Err(ProtocolError::LongInline) } else { Ok(Parsed::Incomplete) };
    };
    let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let split = inline::split(text).ok_or(ProtocolError::Quotes)?;
    if split.len() > MAX_WORDS {
        return Err(ProtocolError::LongInline);
    }
    words.extend(split.into_iter().map(Cow::Owned));
    Ok(Parsed::Command(end + 1))
}

fn array<'b>(bytes: &'b [u8], words: &mut Vec<Word<'b>>) -> Result<Parsed, ProtocolError> {
    let Some((count, mut at)) = length(bytes, 1, "mbulk count")? else { return Ok(Parsed::Incomplete) };
    let count = count.filter(|count| *count <= MAX_WORDS as i64).ok_or(ProtocolError::Words)?;
    // No room for the count that the client announces: the words have to come first.
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(Parsed::Incomplete),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoBulk(char::from(*other))),
        }
        let Some((length, start)) = length(bytes, at + 1, "bulk count")? else { return Ok(Parsed::Incomplete) };
        let length = length.and_then(|length| usize::try_from(length).ok()).ok_or(ProtocolError::Length)?;
        let end = start.checked_add(length).filter(|end| *end <= MAX_COMMAND).ok_or(ProtocolError::LongCommand)?;
        let Some(after) = bytes.get(end..end + 2) else { return Ok(Parsed::Incomplete) };
        if after != b"\r\n" {
            return Err(ProtocolError::NoEnd);
        }
        words.push(Cow::Borrowed(&bytes[start..end]));
        at = end + 2;
    }
    Ok(Parsed::Command(at))
}

/// The integer of a line that starts at `start` and where the line ends. The integer is `None` if it is invalid, and
/// all is `None` if the line is incomplete.
type Length = Option<(Option<i64>, usize)>;

#[inline(always)]
fn length(bytes: &[u8], start: usize, what: &'static str) -> Result<Length, ProtocolError> {
    let rest = &bytes[start..];
    // Nearly all are like this.
    match rest {
        [one @ b'0'..=b'9', b'\r', b'\n', ..] => return Ok(Some((Some(digit(*one)), start + 3))),
        [ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((Some(10 * digit(*ten) + digit(*one)), start + 4)));
        }
        _ => {}
    }
    let Some(end) = rest.iter().take(MAX_LENGTH_LINE).position(|byte| *byte == b'\n') else {
        return if rest.len() >= MAX_LENGTH_LINE { Err(ProtocolError::LongLine(what)) } else { Ok(None) };
    };
    let number = rest[..end].strip_suffix(b"\r").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    Ok(Some((number, start + end + 1)))
}

fn digit(byte: u8) -> i64 {
    i64::from(byte - b'0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Words = Vec<Vec<u8>>;

    /// The words of the first command, and how many bytes it takes.
    fn parsed(bytes: &[u8]) -> Result<Option<(Words, usize)>, ProtocolError> {
        let mut words = Vec::new();
        Ok(match parse(bytes, &mut words)? {
            Parsed::Incomplete => None,
            Parsed::Command(taken) => Some((words.into_iter().map(Cow::into_owned).collect(), taken)),
        })
    }

    /// All commands of an input, up to the first error.
    fn commands(bytes: &[u8]) -> (Vec<Words>, Option<ProtocolError>) {
        let (mut at, mut commands) = (0, Vec::new());
        loop {
            match parsed(&bytes[at..]) {
                Ok(None) => return (commands, None),
                Ok(Some((words, taken))) => {
                    commands.push(words);
                    at += taken;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }

    /// The same as it arrives in two pieces.
    fn commands_in_pieces(bytes: &[u8], cut: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut buffer, mut all) = (bytes[..cut].to_vec(), Vec::new());
        for rest in [&bytes[cut..], &[]] {
            let mut at = 0;
            loop {
                match parsed(&buffer[at..]) {
                    Ok(None) => break,
                    Ok(Some((words, taken))) => {
                        all.push(words);
                        at += taken;
                    }
                    Err(error) => return (all, Some(error)),
                }
            }
            buffer.drain(..at);
            buffer.extend_from_slice(rest);
        }
        (all, None)
    }

    fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    fn error(bytes: &[u8]) -> String {
        parsed(bytes).expect_err("refused").to_string()
    }

    #[test]
    fn what_is_wrong_is_said_as_redis_says_it() {
        assert_eq!(error(b"*x\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*1025\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*99999999999999999999\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*1\r\n:1\r\n"), "expected '$', got ':'");
        assert_eq!(error(b"*1\r\n$-1\r\n"), "invalid bulk length");
        assert_eq!(error(b"*1\r\n$x\r\n"), "invalid bulk length");
        assert_eq!(error(&[b"*".as_slice(), &[b'1'; 40]].concat()), "too big mbulk count string");
        assert_eq!(error(&[b"*1\r\n$".as_slice(), &[b'0'; 40]].concat()), "too big bulk count string");
        assert_eq!(error(b"*1\r\n$70000\r\n"), "too big command, the largest is 65536 bytes");
        assert_eq!(error(b"*1\r\n$9223372036854775807\r\n"), "too big command, the largest is 65536 bytes");
        assert_eq!(error(&[b'a'; MAX_COMMAND]), "too big inline request");
        assert_eq!(error(b"*1\r\n$4\r\nPINGG\r\n"), "a bulk string does not end where its length says");
        assert_eq!(error(b"ECHO \"a\r\n"), "unbalanced quotes in request");
    }

    #[test]
    fn nothing_asked_is_nothing_answered() {
        for input in [b"*0\r\n".as_slice(), b"*-1\r\n", b"\r\n", b"\n", b"  \r\n"] {
            assert_eq!(parsed(input), Ok(Some((Vec::new(), input.len()))), "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn where_a_pipeline_is_cut_does_not_matter(
            pipeline in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5).prop_map(|words| encoded(&words)),
                    "[a-zA-Z ]{0,20}\r?\n".prop_map(String::into_bytes),
                    prop::collection::vec(any::<u8>(), 0..6),
                ],
                0..6,
            )
        ) {
            let bytes = pipeline.concat();
            let whole = commands(&bytes);
            for cut in 0..=bytes.len() {
                prop_assert_eq!(&commands_in_pieces(&bytes, cut), &whole, "cut at {}", cut);
            }
        }

        #[test]
        fn what_was_written_is_read(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20)) {
            prop_assert_eq!(commands(&encoded(&words)), (vec![words], None));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), star in any::<bool>()) {
            let bytes = if star { [b"*2\r\n$".as_slice(), &bytes].concat() } else { bytes };
            let _ = commands(&bytes);
        }
    }
}
