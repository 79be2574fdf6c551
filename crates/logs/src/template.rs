//! A text format: variables and the text between them. A value ends where the text after its variable begins.

use std::borrow::Cow;

use crate::entry::Entry;
use crate::field::{Field, Times};
use crate::search::find;

/// A line format, compiled from nginx's `log_format` or Apache's `LogFormat`.
#[derive(Debug, Clone)]
pub struct Template {
    /// The text before the first variable.
    start: String,
    values: Vec<Value>,
    /// Whether a line may go on after the last value.
    open: bool,
}

#[derive(Debug, Clone)]
struct Value {
    name: String,
    field: Field,
    /// The text after it, which ends it. Empty only at the end of the line.
    end: Box<[u8]>,
}

/// A format that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTemplate(String);

impl BadTemplate {
    pub(crate) fn unknown(name: &str, known: &[&str]) -> BadTemplate {
        BadTemplate(format!(
            "{name:?} is not a known format; use one of {}, or the format as written in nginx's or Apache's configuration",
            known.join(", ")
        ))
    }
}

impl Template {
    /// Compiles a format as it stands in the configuration of nginx (`$remote_addr - $remote_user [$time_local] ...`, with or without
    /// `log_format NAME` and quotes) or Apache (`%h %l %u %t "%r" %>s %b`, with or without `LogFormat` and quotes).
    pub fn compile(written: &str) -> Result<Template, BadTemplate> {
        let text = unwrapped(written);
        let pieces = if text.contains('$') { nginx(&text)? } else { apache(&text)? };
        let template = Template::from_pieces(pieces, false)?;
        let known = |wanted: &[Field]| template.values.iter().any(|value| wanted.contains(&value.field));
        if !known(&[Field::Time]) {
            return Err(BadTemplate(
                "the format has no time; add $time_iso8601, $msec or $time_local (Apache: %t)".to_owned(),
            ));
        }
        Ok(template)
    }

    /// A built-in format, in nginx's notation with a few names of ours.
    pub(crate) fn built_in(text: &str, open: bool) -> Result<Template, BadTemplate> {
        Template::from_pieces(nginx(text)?, open)
    }

    fn from_pieces(pieces: Vec<Piece>, open: bool) -> Result<Template, BadTemplate> {
        let mut pieces = pieces.into_iter().peekable();
        let start = match pieces.next_if(|piece| matches!(piece, Piece::Text(_))) {
            Some(Piece::Text(text)) => text,
            _ => String::new(),
        };
        let mut values = Vec::new();
        while let Some(piece) = pieces.next() {
            let Piece::Variable(name, field) = piece else { continue };
            let end = match pieces.next_if(|piece| matches!(piece, Piece::Text(_))) {
                Some(Piece::Text(text)) => text,
                _ => String::new(),
            };
            if end.is_empty() && pieces.peek().is_some() {
                return Err(BadTemplate(format!(
                    "{name} and the variable after it have no text between them, so it is unclear where the first one ends; put a space there"
                )));
            }
            values.push(Value { name, field, end: end.as_bytes().into() });
        }
        Ok(Template { start, values, open })
    }

    pub(crate) fn read<'l>(&self, line: &'l str, times: &mut Times, entry: &mut Entry<'l>) -> Result<(), String> {
        let mut rest =
            line.strip_prefix(self.start.as_str()).ok_or_else(|| format!("does not begin with {:?}", self.start))?;
        let escapes = memchr::memchr(b'\\', line.as_bytes()).is_some();
        for value in &self.values {
            let (found, after) = value.split(rest).ok_or_else(|| value.missing())?;
            rest = after;
            // Two calls, because the compiler makes a short one of that for borrowed values.
            let set = match escapes {
                false => value.field.set(entry, Cow::Borrowed(found), times),
                true => value.field.set(entry, unescaped(found), times),
            };
            set.map_err(|wanted| value.is_not(wanted, found))?;
        }
        if !rest.is_empty() && !self.open {
            return Err(format!("{:?} is more than the format has", rest.chars().take(40).collect::<String>()));
        }
        Ok(())
    }
}

impl Value {
    #[cold]
    fn missing(&self) -> String {
        format!("{:?} after {} is missing", String::from_utf8_lossy(&self.end), self.name)
    }

    #[cold]
    fn is_not(&self, wanted: &str, found: &str) -> String {
        let shown: String = unescaped(found).chars().take(40).collect();
        format!("{}: {shown:?} is not {wanted}", self.name)
    }

    #[inline]
    fn split<'l>(&self, rest: &'l str) -> Option<(&'l str, &'l str)> {
        let Some((&first, others)) = self.end.split_first() else {
            return Some((rest, ""));
        };
        let mut from = 0;
        loop {
            // These texts are short and their first byte is rare in values: a general search takes longer to begin.
            let at = from + find(first, &rest.as_bytes()[from..])?;
            if !begins_with(&rest.as_bytes()[at + 1..], others) {
                from = at + 1;
                continue;
            }
            let value = &rest[..at];
            let goes_on = match first {
                b'"' => escaped(value),
                b' ' => {
                    matches!(self.field, Field::List)
                        && (value.ends_with([',', ':']) || rest[at + 1..].starts_with(": "))
                }
                _ => false,
            };
            if !goes_on {
                return Some((value, &rest[at + self.end.len()..]));
            }
            from = at + 1;
        }
    }
}

/// `starts_with` for one or two bytes: calling a function for them takes longer than comparing them.
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && start.iter().zip(text).all(|(wanted, found)| wanted == found)
}

/// Whether what follows is escaped: an odd number of backslashes comes before it.
fn escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// `\x22`, `\"`, `\\`, `\t` and `\u0022` as the characters that they stand for.
fn unescaped(value: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', value.as_bytes()) else {
        return Cow::Borrowed(value);
    };
    let mut bytes = value.as_bytes()[..first].to_vec();
    let mut rest = &value.as_bytes()[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let hex = |digits: usize| {
            rest.get(1..=digits)
                .and_then(|text| std::str::from_utf8(text).ok())
                .and_then(|text| u32::from_str_radix(text, 16).ok())
        };
        match rest.first() {
            Some(b'x') if hex(2).is_some() => {
                bytes.push(hex(2).unwrap_or_default() as u8);
                rest = &rest[3..];
            }
            Some(b'u') if hex(4).is_some() => {
                let character = hex(4).and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[5..];
            }
            Some(&letter) => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => other,
                });
                rest = &rest[1..];
            }
            None => bytes.push(b'\\'),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

enum Piece {
    Text(String),
    Variable(String, Field),
}

fn push_text(pieces: &mut Vec<Piece>, character: char) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.push(character),
        _ => pieces.push(Piece::Text(character.to_string())),
    }
}

fn nginx(text: &str) -> Result<Vec<Piece>, BadTemplate> {
    let mut pieces = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character != '$' {
            push_text(&mut pieces, character);
            continue;
        }
        let braced = characters.next_if(|(_, next)| *next == '{').is_some();
        let mut name = String::new();
        while let Some((_, next)) = characters.next_if(|(_, next)| next.is_ascii_alphanumeric() || *next == '_') {
            name.push(next);
        }
        if name.is_empty() || braced && characters.next_if(|(_, next)| *next == '}').is_none() {
            return Err(BadTemplate(format!("{:?}: a variable is written $name or ${{name}}", &text[at..])));
        }
        let field = match name.as_str() {
            "forwarded_for" => Field::ForwardedFor,
            "remote_addr_and_port" => Field::IpAndPort,
            "peer_and_port" => Field::PeerAndPort,
            "number" => Field::Number,
            "list" => Field::List,
            _ => Field::nginx(&name),
        };
        pieces.push(Piece::Variable(format!("${name}"), field));
    }
    Ok(pieces)
}

fn apache(text: &str) -> Result<Vec<Piece>, BadTemplate> {
    let mut pieces = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character != '%' {
            push_text(&mut pieces, character);
            continue;
        }
        let unknown = || BadTemplate(format!("{:?}: a directive is written %h, %>s or %{{Name}}i", &text[at..]));
        let mut argument = None;
        loop {
            match characters.next().ok_or_else(unknown)?.1 {
                '%' => {
                    push_text(&mut pieces, '%');
                    break;
                }
                '>' | '<' | '!' | ',' | '0'..='9' | '^' => {}
                '{' => {
                    let mut name = String::new();
                    loop {
                        match characters.next().ok_or_else(unknown)?.1 {
                            '}' => break,
                            other => name.push(other),
                        }
                    }
                    argument = Some(name);
                }
                letter if letter.is_ascii_alphabetic() => {
                    let name = text[at..].split_inclusive(letter).next().unwrap_or_default().to_owned();
                    pieces.push(Piece::Variable(name, Field::apache(letter, argument.as_deref())));
                    break;
                }
                _ => return Err(unknown()),
            }
        }
    }
    if !pieces.iter().any(|piece| matches!(piece, Piece::Variable(..))) {
        return Err(BadTemplate(format!(
            "{text:?} has no variables; write it as in nginx ($remote_addr ...) or Apache (%h ...)"
        )));
    }
    Ok(pieces)
}

/// The format itself, out of a directive that was copied from a configuration file: several quoted strings are one text.
fn unwrapped(written: &str) -> String {
    let text = written.trim();
    let directive = ["log_format", "LogFormat", "CustomLog"].iter().any(|word| text.starts_with(word));
    let Some(first) =
        text.find(['\'', '"']).filter(|at| directive || *at == 0 && text.trim_end_matches(';').ends_with(['\'', '"']))
    else {
        return text.trim_end_matches(';').to_owned();
    };
    let mut format = String::new();
    let mut characters = text[first..].chars();
    while let Some(quote) = characters.next() {
        if quote != '\'' && quote != '"' {
            // A name after Apache's format, or the end of nginx's directive.
            if quote.is_whitespace() {
                continue;
            }
            break;
        }
        while let Some(character) = characters.next() {
            match character {
                '\\' => format.extend(characters.next()),
                _ if character == quote => break,
                _ => format.push(character),
            }
        }
    }
    format
}
