//! Limits that Envoy sends with a descriptor to which no rule applies that could enforce them.

use std::sync::{Arc, LazyLock};

use tollkeeper::{Algorithm, Charge, FailurePolicy, Key, Rule};

use super::attributes::Attributes;

/// The rule of all of them, whose name no file can use; its own limit is never used.
static RULE: LazyLock<Arc<Rule>> = LazyLock::new(|| {
    let rule = Rule::new("envoy.override").key("{descriptor}").limit("1/s").algorithm(Algorithm::FixedWindow);
    Arc::new(rule.on_store_failure(FailurePolicy::Local).build_internal().expect("a valid rule"))
});

/// That rule, for metrics.
pub(crate) fn rule() -> Arc<Rule> {
    RULE.clone()
}

/// The charge of a descriptor. Its bucket is that of all its entries, as in the reference service.
pub(super) fn charge(descriptor: &Attributes, hits: u32) -> Charge {
    Charge::new(RULE.clone(), Key { variant: 0, value: descriptor.to_json() }, hits)
}
