//! How large the answer to a batch may be: a few kilobytes of checks must not make megabytes of answers.

use http::StatusCode;
use tollkeeper::Policy;
use tollkeeper::http::Problem;

use crate::wire::Check;

/// The largest answer to a batch.
const LARGEST: usize = 2 << 20;
/// What a row takes besides its names and its key.
const ROW: usize = 200;
/// What a check takes besides its rows, and what its headers take per rule.
const CHECK: usize = 100;
const HEADERS: usize = 150;

/// How large the answer to a batch will be at most; refuses one whose answer would be too large, before anything is charged.
pub(super) fn require_fitting(policy: &Policy, checks: &[Check<'_>]) -> Result<usize, Problem> {
    let mut size = 0;
    for check in checks {
        // A cost that is not a number is refused elsewhere.
        let Ok(charges) = policy.charges(check) else { continue };
        let headers = if check.wants_headers() { HEADERS } else { 0 };
        let rows = charges.iter().map(|charge| {
            let names = charge.rule.name().len() + charge.rule.scope().map_or(0, str::len);
            ROW + headers + names + written(&charge.key.value)
        });
        size += CHECK + rows.sum::<usize>();
        if size > LARGEST {
            let detail = format!("the answer to this batch would be larger than {LARGEST} bytes; split the batch");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
    }
    Ok(size)
}

/// How many bytes a text takes in JSON.
fn written(text: &str) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_long_as_json_writes_it() {
        for text in ["plain", "a\"b\\c\n\t", "\u{1}\u{1f}\u{8}\u{c}", "é\u{1f600}\u{7f}"] {
            let json = serde_json::to_string(text).expect("JSON");
            assert_eq!(written(text), json.len() - 2, "{json}");
        }
    }
}
