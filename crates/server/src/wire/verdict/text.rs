//! The answer to a check as JSON, as `Serialize` would write it.

use super::{CheckAnswer, RuleAnswer};
use crate::wire::member::{member, optional, text};

impl CheckAnswer<'_> {
    /// Appends the answer to a text.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let CheckAnswer { allowed, limiting, retry_after_ms, source, rules, annotations, headers } = self;
        member(out, r#"{"allowed":"#, allowed);
        text(out, r#","limiting":"#, *limiting);
        member(out, r#","retry_after_ms":"#, retry_after_ms);
        text(out, r#","source":"#, Some(source));
        out.extend_from_slice(br#","rules":["#);
        for (index, rule) in rules.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            rule.write(out);
        }
        out.push(b']');
        if !annotations.is_empty() {
            member(out, r#","annotations":"#, annotations);
        }
        optional(out, r#","headers":"#, headers.as_ref());
        out.push(b'}');
    }
}

impl RuleAnswer<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let RuleAnswer { rule, scope, key, allowed, shadow, mode, limit, remaining, .. } = self;
        let RuleAnswer { retry_after_ms, reset_after_ms, delay_ms, hold, exception, unasked, .. } = self;
        text(out, r#"{"rule":"#, Some(rule));
        text(out, r#","scope":"#, *scope);
        text(out, r#","key":"#, Some(key));
        member(out, r#","allowed":"#, allowed);
        member(out, r#","shadow":"#, shadow);
        optional(out, r#","mode":"#, *mode);
        member(out, r#","limit":"#, limit);
        member(out, r#","remaining":"#, remaining);
        member(out, r#","retry_after_ms":"#, retry_after_ms);
        member(out, r#","reset_after_ms":"#, reset_after_ms);
        optional(out, r#","delay_ms":"#, *delay_ms);
        optional(out, r#","hold":"#, hold.as_ref());
        optional(out, r#","exception":"#, *exception);
        optional(out, r#","unasked":"#, unasked.then_some(true));
        out.push(b'}');
    }
}
