//! The head of a request, line by line.

/// What the lines so far say about the body.
#[derive(Debug, Default)]
pub(super) struct Head {
    begun: bool,
    is_http_1_0: bool,
    content_length: Option<u64>,
    chunked: bool,
}

/// The length of the body, once the head is complete.
#[derive(Debug, PartialEq)]
pub(super) enum Length {
    NotYet,
    None,
    Known(u64),
    Chunked,
}

impl Head {
    /// Parses a line without its ending; `None` refuses it.
    pub(super) fn read_line(&mut self, line: &[u8]) -> Option<Length> {
        match (self.begun, line.is_empty()) {
            // Empty lines before a request are ignored.
            (false, true) => {}
            (false, false) => {
                self.is_http_1_0 = request_line(line)?;
                self.begun = true;
            }
            (true, false) => self.read_field(line)?,
            (true, true) => {
                return match (self.chunked, self.content_length) {
                    (true, Some(_)) => None,
                    (true, None) => Some(Length::Chunked),
                    (false, None | Some(0)) => Some(Length::None),
                    (false, Some(length)) => Some(Length::Known(length)),
                };
            }
        }
        Some(Length::NotYet)
    }

    fn read_field(&mut self, line: &[u8]) -> Option<()> {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()?;
            if self.content_length.replace(length).is_some_and(|other| other != length) {
                return None;
            }
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // Parsers disagree about other codings, and about the same one twice.
            let plain = value.eq_ignore_ascii_case(b"chunked") && !self.chunked && !self.is_http_1_0;
            self.chunked = plain.then_some(true)?;
        }
        Some(())
    }
}

/// `METHOD target HTTP/1.1`, with one space each; returns whether it is HTTP/1.0.
fn request_line(line: &[u8]) -> Option<bool> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let fine = parts.next().is_none()
        && is_token(method)
        && !target.is_empty()
        // A fragment is never sent; servers that drop it and servers that do not would see different targets.
        && target.iter().all(|byte| matches!(byte, 0x21..=0x7e) && *byte != b'#');
    match version {
        b"HTTP/1.1" if fine => Some(false),
        b"HTTP/1.0" if fine => Some(true),
        _ => None,
    }
}

/// `name: value`, without the space around the value. A name with space at either end is invalid, and so is a
/// continuation line.
pub(super) fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let fine = is_token(name) && value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
    fine.then_some((name, value))
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| IN_TOKENS[usize::from(*byte)])
}

/// Which bytes a token may have: looked up, because every byte of every name is.
static IN_TOKENS: [bool; 256] = {
    let mut allowed = [false; 256];
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < allowed.len() {
        allowed[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    at = 0;
    while at < marks.len() {
        allowed[marks[at] as usize] = true;
        at += 1;
    }
    allowed
};
