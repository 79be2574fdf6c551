//! JSON, member by member, for what is written most: answers to checks, and the lines of `replay`. The generic way looks for characters to
//! escape in every name of a member, which is most of what it costs.

use serde::Serialize;

/// `name` is written as it is, with what is around it.
pub(super) fn member(out: &mut Vec<u8>, name: &str, value: impl Serialize) {
    out.extend_from_slice(name.as_bytes());
    serde_json::to_writer(out, &value).expect("an answer is always JSON");
}

/// Nothing of `None`.
pub(super) fn optional(out: &mut Vec<u8>, name: &str, value: Option<impl Serialize>) {
    value.into_iter().for_each(|value| member(out, name, value));
}

/// Texts seldom have characters to escape.
pub(super) fn text(out: &mut Vec<u8>, name: &str, text: Option<&str>) {
    let Some(plain) = text.filter(|text| text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')) else {
        return member(out, name, text);
    };
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    out.extend_from_slice(plain.as_bytes());
    out.push(b'"');
}
