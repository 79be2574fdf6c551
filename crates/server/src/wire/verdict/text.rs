//! The answer to a check as JSON, member by member. The generic way examines every name of a member for characters to escape, which is
//! most of what it costs; checks are what this service mostly answers. Both ways give the same text.

use serde::Serialize;

use super::{CheckAnswer, RuleAnswer};

impl CheckAnswer<'_> {
    /// Appends the answer to a text.
    pub(crate) fn write(&self, text: &mut Vec<u8>) {
        let CheckAnswer { allowed, limiting, retry_after_ms, source, rules, annotations, headers } = self;
        member(text, r#"{"allowed":"#, allowed);
        member(text, r#","limiting":"#, limiting);
        member(text, r#","retry_after_ms":"#, retry_after_ms);
        member(text, r#","source":"#, source);
        text.extend_from_slice(br#","rules":["#);
        for (index, rule) in rules.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            rule.write(text);
        }
        text.push(b']');
        if !annotations.is_empty() {
            member(text, r#","annotations":"#, annotations);
        }
        optional(text, r#","headers":"#, headers.as_ref());
        text.push(b'}');
    }
}

impl RuleAnswer<'_> {
    fn write(&self, text: &mut Vec<u8>) {
        let RuleAnswer { rule, scope, key, allowed, shadow, mode, limit, remaining, .. } = self;
        let RuleAnswer { retry_after_ms, reset_after_ms, delay_ms, hold, exception, unasked, .. } = self;
        member(text, r#"{"rule":"#, rule);
        member(text, r#","scope":"#, scope);
        member(text, r#","key":"#, key);
        member(text, r#","allowed":"#, allowed);
        member(text, r#","shadow":"#, shadow);
        optional(text, r#","mode":"#, mode.as_ref());
        member(text, r#","limit":"#, limit);
        member(text, r#","remaining":"#, remaining);
        member(text, r#","retry_after_ms":"#, retry_after_ms);
        member(text, r#","reset_after_ms":"#, reset_after_ms);
        optional(text, r#","delay_ms":"#, delay_ms.as_ref());
        optional(text, r#","hold":"#, hold.as_ref());
        optional(text, r#","exception":"#, exception.as_ref());
        optional(text, r#","unasked":"#, unasked.then_some(&true));
        text.push(b'}');
    }
}

/// `name` is written as it is, with what is around it.
fn member(text: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    text.extend_from_slice(name.as_bytes());
    serde_json::to_writer(text, value).expect("an answer is always JSON");
}

fn optional(text: &mut Vec<u8>, name: &str, value: Option<&impl Serialize>) {
    value.into_iter().for_each(|value| member(text, name, value));
}
