//! Soft limits that a request is over: Envoy's upstream learns of them in a header, and its filters in dynamic metadata.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollkeeper::http::{OVER_LIMIT, over_limit};
use tollkeeper::{Annotation, Span, Verdict};

use super::envoy::HeaderValue;

/// For the request to the upstream.
pub(super) fn headers(verdict: &Verdict) -> Vec<HeaderValue> {
    let value = over_limit(verdict).and_then(|value| value.to_str().map(str::to_string).ok());
    let header = |value| HeaderValue { key: OVER_LIMIT.to_string(), value, ..HeaderValue::default() };
    value.map(header).into_iter().collect()
}

/// `{"over_limit": [{"rule": "monthly", "limit": 1000, "over_by": 3, "retry_after_ms": 86400000}]}`, in the namespace
/// `envoy.filters.http.ratelimit`; none if the request is over none.
pub(super) fn metadata(verdict: &Verdict) -> Option<Struct> {
    let number = |number: u64| Kind::NumberValue(number as f64);
    let value = |kind| Value { kind: Some(kind) };
    let over = verdict.annotations().map(|Annotation { rule, limit, over_by, retry_after }| {
        let wait = retry_after.map(Span::as_millis_ceil).map_or(Kind::NullValue(0), number);
        let fields = [
            ("rule", Kind::StringValue(rule.to_string())),
            ("limit", number(limit.into())),
            ("over_by", number(over_by.into())),
            ("retry_after_ms", wait),
        ];
        let fields = fields.map(|(name, kind)| (name.to_string(), value(kind)));
        value(Kind::StructValue(Struct { fields: BTreeMap::from(fields) }))
    });
    let values: Vec<Value> = over.collect();
    let list = |values| BTreeMap::from([("over_limit".to_string(), value(Kind::ListValue(ListValue { values })))]);
    (!values.is_empty()).then(|| Struct { fields: list(values) })
}

#[cfg(test)]
mod tests {
    use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};

    use super::*;

    #[test]
    fn envoy_is_told_in_a_header_and_in_metadata() {
        let rule = Rule::new("soft").key("global").limit("1/h").annotate();
        let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
        let verdict = || limiter.try_check(&Descriptor::default()).expect("decided");
        let within = verdict();
        assert!(headers(&within).is_empty() && metadata(&within).is_none());
        let over = verdict();
        assert_eq!(headers(&over)[0].key, "tollkeeper-over-limit");
        assert!(headers(&over)[0].value.starts_with(r#""soft";over=1;limit=1;t=3"#));
        let metadata = metadata(&over).expect("metadata");
        let Some(Kind::ListValue(list)) = &metadata.fields["over_limit"].kind else { panic!("{metadata:?}") };
        let Some(Kind::StructValue(one)) = &list.values[0].kind else { panic!("{metadata:?}") };
        assert_eq!(one.fields["rule"].kind, Some(Kind::StringValue("soft".into())));
        assert_eq!(one.fields["over_by"].kind, Some(Kind::NumberValue(1.0)));
    }
}
