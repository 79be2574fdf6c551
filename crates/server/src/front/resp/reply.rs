//! Answers, in the two versions of the protocol.

use std::io::Write as _;

use tollkeeper::Overloaded;

/// The protocol version of a connection: RESP2 until it sends `HELLO 3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    /// As numbered by `HELLO`.
    pub(super) fn version(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A short word of ours.
    Simple(&'static str),
    /// A code in capitals and a message.
    Error(String),
    Integer(i64),
    Bytes(Vec<u8>),
    /// For people: `INFO`.
    Text(String),
    Null,
    /// 1 or 0 in RESP2.
    Boolean(bool),
    Array(Vec<Reply>),
    /// An array of integers: what `CL.THROTTLE` answers.
    Integers([i64; 5]),
    /// Names and values one after the other in RESP2.
    Map(Vec<(&'static str, Reply)>),
    /// The same in both versions, and written before: a client may ask for it many times.
    Written(&'static [u8]),
}

impl Reply {
    pub(super) const OK: Reply = Reply::Simple("OK");
    pub(super) const QUEUED: Reply = Reply::Simple("QUEUED");

    /// A text as bytes.
    pub(super) fn text(text: impl Into<String>) -> Reply {
        Reply::Bytes(text.into().into_bytes())
    }

    pub(super) fn error(problem: impl Into<String>) -> Reply {
        Reply::Error(problem.into())
    }

    /// Too many wait for a decision. As Redis says that it has no time.
    pub(super) fn busy(overloaded: &Overloaded) -> Reply {
        Reply::error(format!("BUSY {overloaded}"))
    }

    /// In Redis' words.
    pub(super) fn wrong_number_of_arguments(command: &str) -> Reply {
        Reply::Error(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// About how many bytes it takes, here and on the wire.
    pub(super) fn size(&self) -> usize {
        let within = match self {
            Reply::Error(text) | Reply::Text(text) => text.len(),
            Reply::Bytes(bytes) => bytes.len(),
            Reply::Array(elements) => elements.iter().map(Reply::size).sum(),
            Reply::Map(entries) => entries.iter().map(|(name, value)| name.len() + value.size()).sum(),
            Reply::Written(bytes) => bytes.len(),
            Reply::Simple(_) | Reply::Integer(_) | Reply::Integers(_) | Reply::Null | Reply::Boolean(_) => 0,
        };
        size_of::<Reply>() + within
    }

    pub(super) fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let is_new = protocol == Protocol::Resp3;
        match self {
            Reply::Simple(text) => line(out, format_args!("+{text}")),
            Reply::Error(text) => {
                out.push(b'-');
                // The text may contain what a client sent, and must stay one line.
                out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
                out.extend(b"\r\n");
            }
            Reply::Integer(number) => integer(out, *number),
            Reply::Integers(numbers) => integers(out, b"*5\r\n", numbers),
            Reply::Bytes(bytes) => bulk(out, bytes),
            Reply::Written(bytes) => out.extend_from_slice(bytes),
            Reply::Text(text) if is_new => {
                line(out, format_args!("={}", text.len() + 4));
                line(out, format_args!("txt:{text}"));
            }
            Reply::Text(text) => bulk(out, text.as_bytes()),
            Reply::Null if is_new => line(out, format_args!("_")),
            Reply::Null => line(out, format_args!("$-1")),
            Reply::Boolean(yes) if is_new => line(out, format_args!("#{}", if *yes { 't' } else { 'f' })),
            Reply::Boolean(yes) => line(out, format_args!(":{}", u8::from(*yes))),
            Reply::Array(elements) => {
                line(out, format_args!("*{}", elements.len()));
                elements.iter().for_each(|element| element.write(protocol, out));
            }
            Reply::Map(entries) => {
                let (kind, size) = if is_new { ('%', entries.len()) } else { ('*', entries.len() * 2) };
                line(out, format_args!("{kind}{size}"));
                for (name, value) in entries {
                    bulk(out, name.as_bytes());
                    value.write(protocol, out);
                }
            }
        }
    }
}

/// A client's text for an error message, shortened.
pub(super) fn shown(word: &[u8]) -> String {
    const MOST: usize = 128;
    let text = String::from_utf8_lossy(word);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, format_args!("${}", bytes.len()));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn integer(out: &mut Vec<u8>, number: i64) {
    integers(out, b"", &[number]);
}

/// Digits by hand, from the last to the first, two at a time, and copied once: most answers are integers, and formatting takes
/// longer than all else.
fn integers<const N: usize>(out: &mut Vec<u8>, head: &[u8], numbers: &[i64; N]) {
    /// A colon, a sign, 19 digits, and the end of the line.
    const LONGEST: usize = 23;
    let mut lines = [[0_u8; LONGEST]; N];
    let lines = lines.as_flattened_mut();
    let mut start = lines.len();
    for number in numbers.iter().rev() {
        // Most are a limit and what is left of it, a 0 or a 1.
        if let digit @ 0..=9 = *number {
            put(lines, &mut start, [b':', b'0' + digit as u8, b'\r', b'\n']);
            continue;
        }
        put(lines, &mut start, *b"\r\n");
        let mut rest = number.unsigned_abs();
        while rest >= 10 {
            put(lines, &mut start, [b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8]);
            rest /= 100;
        }
        if rest > 0 {
            put(lines, &mut start, [b'0' + rest as u8]);
        }
        if *number < 0 {
            put(lines, &mut start, *b"-");
        }
        put(lines, &mut start, *b":");
    }
    out.extend_from_slice(head);
    out.extend_from_slice(&lines[start..]);
}

/// Puts bytes before those that are there.
fn put<const N: usize>(lines: &mut [u8], start: &mut usize, bytes: [u8; N]) {
    let end = *start;
    *start -= N;
    lines[*start..end].copy_from_slice(&bytes);
}

fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_differ_where_the_second_has_no_type() {
        let reply = Reply::Map(vec![
            ("yes", Reply::Boolean(true)),
            ("none", Reply::Null),
            ("text", Reply::Text("a".into())),
            ("list", Reply::Array(vec![Reply::Integer(-1), Reply::OK])),
            ("numbers", Reply::Integers([0, -20, i64::MIN, i64::MAX, 7])),
        ]);
        let written = |protocol| {
            let mut out = Vec::new();
            reply.write(protocol, &mut out);
            String::from_utf8(out).expect("text").replace("\r\n", " ")
        };
        let numbers = "$7 numbers *5 :0 :-20 :-9223372036854775808 :9223372036854775807 :7 ";
        assert_eq!(
            written(Protocol::Resp2),
            format!("*10 $3 yes :1 $4 none $-1 $4 text $1 a $4 list *2 :-1 +OK {numbers}")
        );
        assert_eq!(
            written(Protocol::Resp3),
            format!("%5 $3 yes #t $4 none _ $4 text =5 txt:a $4 list *2 :-1 +OK {numbers}")
        );
    }

    #[test]
    fn an_error_is_one_line_whatever_a_client_sent() {
        let mut out = Vec::new();
        Reply::error(format!("ERR no {}", shown(b"a\r\n+OK\r\n"))).write(Protocol::Resp2, &mut out);
        assert_eq!(out, b"-ERR no a  +OK  \r\n");
        assert_eq!(shown(&[b'x'; 500]).len(), 131);
    }

    #[test]
    fn integers_have_all_of_their_digits() {
        for number in [0, 9, 10, 99, 100, 1_005, -1, -10, -123, 1_000_001, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            Reply::Integer(number).write(Protocol::Resp2, &mut out);
            assert_eq!(String::from_utf8(out), Ok(format!(":{number}\r\n")));
        }
    }
}
