//! `TOLLKEEPER.CHECK name value [name value ...] [COST n]`: a request decided by the rules.

use std::collections::BTreeMap;

use tollkeeper::{CostError, Descriptor, Row, Span, Verdict};

use super::reply::{Protocol, Reply, shown};
use super::request::Word;
use crate::seal::Seal;
use crate::wire::HoldToken;

/// Parses the words after the name.
pub(super) fn understand(words: &[Word<'_>]) -> Result<Descriptor, Reply> {
    if words.is_empty() {
        return Err(Reply::wrong_number_of_arguments("tollkeeper.check"));
    }
    let (attributes, cost) = match words {
        [attributes @ .., option, cost] if option.eq_ignore_ascii_case(b"COST") && attributes.len() % 2 == 0 => {
            (attributes, Some(cost))
        }
        _ => (words, None),
    };
    let (pairs, rest) = attributes.as_chunks::<2>();
    if let [name] = rest {
        return Err(Reply::error(format!("ERR attribute `{}` has no value; write name value pairs", shown(name))));
    }
    let mut named = BTreeMap::new();
    for [name, value] in pairs {
        let text = |word: &Word<'_>, what: &str| {
            String::from_utf8(word.to_vec())
                .map_err(|_| Reply::error(format!("ERR the {what} of attribute `{}` is not UTF-8", shown(name))))
        };
        if named.insert(text(name, "name")?, text(value, "value")?).is_some() {
            return Err(Reply::error(format!("ERR attribute `{}` is given twice", shown(name))));
        }
    }
    let request = Descriptor::from(named);
    Ok(match cost {
        Some(cost) => request.with_cost(cost_of(cost)?),
        None => request,
    })
}

/// A whole number, however large: one too large to count saturates, and can never pass.
fn cost_of(word: &[u8]) -> Result<u32, Reply> {
    let text = std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match text.filter(|text| !text.is_empty()) {
        Some(text) => Ok(text.parse().unwrap_or(u32::MAX)),
        None => Err(Reply::error(format!("ERR COST {} is not a whole number; 0 checks without charging", shown(word)))),
    }
}

/// A verdict with names in RESP3, by position in RESP2.
pub(super) fn answer(verdict: &Verdict, protocol: Protocol, seal: &Seal) -> Reply {
    let limiting = verdict.limiting().map(|row| row.charge.rule.name());
    let rows = verdict.rows().iter();
    let head = [
        ("allowed", Reply::Boolean(verdict.is_allowed())),
        ("limiting", or_null(limiting)),
        ("retry_after_ms", wait(verdict.retry_after(), protocol)),
        ("delay_ms", millis(verdict.delay())),
        ("source", Reply::text(verdict.source().name())),
    ];
    match protocol {
        Protocol::Resp3 => {
            let rows = rows.map(|row| Reply::Map(fields(row, protocol, seal).into())).collect();
            Reply::Map(head.into_iter().chain([("rules", Reply::Array(rows))]).collect())
        }
        Protocol::Resp2 => {
            let rows = rows.map(|row| Reply::Array(fields(row, protocol, seal).map(|(_, value)| value).into()));
            Reply::Array(head.into_iter().map(|(_, value)| value).chain(rows).collect())
        }
    }
}

/// What one rule says on its own.
fn fields(row: &Row, protocol: Protocol, seal: &Seal) -> [(&'static str, Reply); 11] {
    let (rule, decision) = (&*row.charge.rule, &row.decision);
    [
        ("rule", Reply::text(rule.name())),
        ("key", Reply::text(&*row.charge.key.value)),
        ("allowed", Reply::Boolean(decision.is_allowed())),
        ("limit", Reply::Integer(decision.limit.into())),
        ("remaining", Reply::Integer(decision.remaining.into())),
        ("retry_after_ms", wait(decision.retry_after(), protocol)),
        ("reset_after_ms", millis(decision.reset_after)),
        ("delay_ms", millis(decision.delay())),
        ("shadow", Reply::Boolean(rule.is_shadow())),
        ("scope", or_null(rule.scope())),
        ("hold", or_null(HoldToken::of(row, seal).map(|hold| hold.to_string()).as_deref())),
    ]
}

/// "Never" is null in RESP3, and -1 in RESP2, where clients expect a number.
fn wait(span: Option<Span>, protocol: Protocol) -> Reply {
    match (span, protocol) {
        (Some(span), _) => millis(span),
        (None, Protocol::Resp2) => Reply::Integer(-1),
        (None, Protocol::Resp3) => Reply::Null,
    }
}

fn millis(span: Span) -> Reply {
    Reply::Integer(span.as_millis_ceil() as i64)
}

fn or_null(text: Option<&str>) -> Reply {
    text.map_or(Reply::Null, Reply::text)
}

/// An invalid cost.
pub(super) fn bad_cost(error: &CostError) -> Reply {
    Reply::error(format!(
        "ERR attribute `{}` is the cost of rule `{}` and must be a whole number, not `{}`",
        shown(error.attribute.as_bytes()),
        error.rule,
        shown(error.value.as_bytes())
    ))
}
