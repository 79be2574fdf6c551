//! The lines of a head, read strictly: nothing that another parser could read in a second way.

/// What a request line says.
#[derive(Debug, PartialEq)]
pub(in crate::front) struct RequestLine<'l> {
    pub(in crate::front) method: &'l [u8],
    pub(in crate::front) target: &'l [u8],
    pub(in crate::front) is_http_1_0: bool,
}

/// `METHOD target HTTP/1.1`, with one space each.
pub(in crate::front) fn request_line(line: &[u8]) -> Option<RequestLine<'_>> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let fine = parts.next().is_none()
        && is_token(method)
        && !target.is_empty()
        // A fragment is never sent; servers that drop it and servers that do not would see different targets.
        && target.iter().all(|byte| matches!(byte, 0x21..=0x7e) && *byte != b'#');
    let is_http_1_0 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return None,
    };
    fine.then_some(RequestLine { method, target, is_http_1_0 })
}

/// `name: value`, without the space around the value. A name with space at either end is invalid, and so is a
/// continuation line.
pub(in crate::front) fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
    let fine = is_token(name) && value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
    fine.then_some((name, value))
}

/// Without the space around it: only blanks and tabs are (RFC 9110 5.6.3).
pub(in crate::front) fn trim(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(start) = value.iter().position(|byte| !is_blank(byte)) else { return &value[..0] };
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// The number of a `Content-Length`.
pub(in crate::front) fn content_length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

/// Hexadecimal digits and nothing around them. Extensions may follow, and are not passed on. Space is allowed only
/// before an extension (RFC 9112 7.1.1): some parsers stop at it, and others do not.
pub(in crate::front) fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let is_extension = rest.iter().find(|byte| !is_blank(byte)) == Some(&b';')
        && rest.iter().all(|byte| is_blank(byte) || !byte.is_ascii_control());
    let fine = rest.is_empty() || is_extension;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| fine)
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
